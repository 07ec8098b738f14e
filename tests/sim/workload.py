"""What RMs want: nodes that come, shrink, drain and go; applications, gangs, asks and releases; other configurations.

Mostly sensible and small, the same for the same seed. Names are counted for each RM, so that several RMs use the same
ones. Not here: what follows from what they hear (`hearing.py`), faults.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.sim.configurations import LEAVES, REFUSED
from tests.sim.hearing import foreign_release, releases
from tests.sim.rm import ResourceManager, hash_of
from tests.sim.site import Application, Node, Phase, Pod, Site, foreign, node_info, submission
from yunishard.common.messages.rm_messages import (
    NODE_DECOMMISSION,
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
    SCHEDULING_FAILED_ON_RM,
    STOPPED_BY_RM,
    Allocation,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    RemoveApplicationRequest,
)
from yunishard.common.messages.session import EncodedMessage
from yunishard.common.names import NODE_PARTITION
from yunishard.partition_worker.engine.predicates.evaluation import PARTITION_SCOPE, SCOPE

NODES_MAX: Final = 5
APPLICATIONS_MAX: Final = 6
PODS_MAX: Final = 40
GANG: Final = 3
"""Members of a gang."""

Act = Callable[["Workload", ResourceManager, Site], list[EncodedMessage]]


@dataclass(frozen=True)
class Appetite:
    """How often RMs want something, and which rare things."""

    pause_max_s: float = 0.4
    gangs: bool = True
    rare: tuple[str, ...] = ("sync", "configure", "leave", "refused")


class Workload:
    """The wishes of all RMs."""

    def __init__(self, rng: random.Random, appetite: Appetite, texts: tuple[str, ...]) -> None:
        self.rng = rng
        self.appetite = appetite
        self.texts = texts

    def pause_s(self) -> float:
        return self.rng.uniform(0.01, self.appetite.pause_max_s)

    def act(self, rm: ResourceManager) -> list[EncodedMessage]:
        """Something that the RM wants now."""
        if rm.session.state not in ("open", "resuming", "away"):
            return []
        if self.appetite.rare and self.rng.random() < 0.015:
            return self._rare(rm)
        sites = [site for site in rm.cluster.sites.values() if not site.dying]
        if not sites:
            return []
        site = self.rng.choice(sites)
        if rm.session.is_full(site.partition):
            return []
        if len([node for node in site.nodes.values() if not node.gone]) < 2:
            return self._add_node(rm, site)
        if not site.applications:
            return self._submit(rm, site)
        act = self.rng.choices(_ACTS, _WEIGHTS)[0]
        return act(self, rm, site)

    def _rare(self, rm: ResourceManager) -> list[EncodedMessage]:
        what = self.rng.choice(self.appetite.rare)
        sites = [site for site in rm.cluster.sites.values() if not site.dying and not site.syncing]
        if what == "sync" and sites:
            return rm.report(self.rng.choice(sites), "the simulation wants it")
        if what == "configure" and rm.open and not rm.wanted_config:
            return rm.reconfigure(self.rng.choice(self.texts))
        if what == "refused" and rm.open and not rm.wanted_config:
            return rm.reconfigure(REFUSED)
        if what == "leave" and rm.open and self.rng.random() < 0.3:
            return rm.leave()
        return []

    # Nodes ----------------------------------------------------------------------------------------------------------

    def _add_node(self, rm: ResourceManager, site: Site) -> list[EncodedMessage]:
        if len(site.nodes) >= NODES_MAX:
            return []
        name = f"n{rm.cluster.number()}"
        node = Node({}, schedulable=self.rng.random() < 0.9)
        node.resize({"vcore": self.rng.choice((4000, 6000, 8000)), "memory": self.rng.choice((8, 16)) << 20})
        site.nodes[name] = node
        return rm.update(site, NodeRequest(nodes=[node_info(site.partition, name, node)]))

    def _change_node(self, rm: ResourceManager, site: Site) -> list[EncodedMessage]:
        name, node = self.rng.choice(list(site.nodes.items()))
        if node.gone:
            return []
        match self.rng.randrange(4):
            case 0:
                node.resize({**node.capacity, "vcore": self.rng.choice((4000, 6000, 8000))})
                return self._node(rm, site, name, NODE_UPDATE)
            case 1 | 2:
                node.schedulable = not node.schedulable
                return self._node(rm, site, name, NODE_DRAIN_TO_SCHEDULABLE if node.schedulable else NODE_DRAIN)
        if self.rng.random() < 0.5:
            return []
        node.gone = True
        node.foreign.clear()
        return self._node(rm, site, name, NODE_DECOMMISSION)

    def _node(self, rm: ResourceManager, site: Site, name: str, action: int) -> list[EncodedMessage]:
        node, changes = site.nodes[name], action == NODE_UPDATE
        info = NodeInfo(
            node_id=name,
            action=action,
            attributes={NODE_PARTITION: site.partition, **(node.attributes if changes else {})},
            schedulable_resource=node.capacity if changes else None,
        )
        return rm.update(site, NodeRequest(nodes=[info]))

    def _foreign(self, rm: ResourceManager, site: Site) -> list[EncodedMessage]:
        name, node = self.rng.choice(list(site.nodes.items()))
        if node.gone:
            return []
        if node.foreign:
            key, _ = node.foreign.popitem()
            return rm.update(site, foreign_release(site, key))
        key = f"foreign{rm.cluster.number()}"
        node.foreign[key] = {"vcore": 500}
        return rm.update(site, AllocationRequest(allocations=[foreign(site.partition, key, name, {"vcore": 500})]))

    # Applications ---------------------------------------------------------------------------------------------------

    def _submit(self, rm: ResourceManager, site: Site) -> list[EncodedMessage]:
        if len(site.applications) >= APPLICATIONS_MAX:
            return []
        gang = self.appetite.gangs and self.rng.random() < 0.25
        name = f"app{rm.cluster.number()}"
        queue = "root.low" if gang else self.rng.choice(LEAVES)
        groups = ("dev",) if self.rng.random() < 0.7 else ()
        new = submission(site.partition, name, queue, self.rng.choice(("ann", "bob")), groups=groups, gang=gang)
        site.applications[name] = Application(new, gang=gang)
        out = rm.update(site, ApplicationRequest(new=[new]))
        if gang:
            return [*out, *self._ask(rm, site, name, GANG, placeholder=True)]
        return [*out, *self._ask(rm, site, name, self.rng.randint(1, 4))]

    def _more(self, rm: ResourceManager, site: Site) -> list[EncodedMessage]:
        name, application = self.rng.choice(list(site.applications.items()))
        if application.removed or application.state in ("Failing", "Failed", "rejected"):
            return []
        members = sum(pod.application == name and not pod.placeholder for pod in site.pods.values())
        if application.gang and members < GANG and self.rng.random() < 0.9:
            return self._ask(rm, site, name, 1, group="g")
        return self._ask(rm, site, name, self.rng.randint(1, 3))

    def _ask(
        self, rm: ResourceManager, site: Site, name: str, count: int, *, group: str = "", placeholder: bool = False
    ) -> list[EncodedMessage]:
        asked: list[Allocation] = []
        for _ in range(min(count, PODS_MAX - len(site.pods))):
            queue = site.applications[name].submission.queue_name
            key = f"k{rm.cluster.number()}"
            pod = Pod(
                key=key,
                application=name,
                resources={"vcore": 1000} if group or placeholder else self._amount(),
                group="g" if placeholder else group,
                placeholder=placeholder,
                priority=self.rng.choice((0, 0, 0, 1)),
                preempts=queue == "root.high",
                tags={SCOPE: PARTITION_SCOPE} if hash_of(key) % 2 else {},
            )
            site.pods[pod.key] = pod
            asked.append(pod.message(site.partition))
        return rm.update(site, AllocationRequest(allocations=asked)) if asked else []

    def _amount(self) -> dict[str, int]:
        return {"vcore": self.rng.choice((500, 1000, 1000, 2000)), "memory": self.rng.choice((1, 2)) << 20}

    def _remove_application(self, rm: ResourceManager, site: Site) -> list[EncodedMessage]:
        name, application = self.rng.choice(list(site.applications.items()))
        if application.removed or application.state == "sent" or self.rng.random() < 0.5:
            return []  # what the core has not accepted yet it would forget without a word
        application.removed = True
        for pod in [one for one in site.pods.values() if one.application == name]:
            pod.phase = Phase.WITHDRAWN if pod.phase in (Phase.ASKED, Phase.WITHDRAWN) else Phase.RELEASING
        gone = RemoveApplicationRequest(application_id=name, partition_name=site.partition)
        out = rm.update(site, ApplicationRequest(remove=[gone]))
        site.end_application(name, "removed")
        return out

    # Releases -------------------------------------------------------------------------------------------------------

    def _release(self, rm: ResourceManager, site: Site) -> list[EncodedMessage]:
        """What ran has come to its end; now and then an ask is not wanted any more."""
        chosen = [pod for pod in site.pods.values() if pod.phase is Phase.BOUND]
        if self.rng.random() < 0.2:
            chosen = [pod for pod in site.pods.values() if pod.phase is Phase.ASKED]
        chosen = self.rng.sample(chosen, min(len(chosen), self.rng.randint(1, 3)))
        if not chosen:
            return []
        for pod in chosen:
            pod.phase = Phase.WITHDRAWN if pod.phase is Phase.ASKED else Phase.RELEASING
        return rm.update(site, releases(site, [(pod, STOPPED_BY_RM) for pod in chosen]))

    def _roll_back(self, rm: ResourceManager, site: Site) -> list[EncodedMessage]:
        """What was placed cannot be started there."""
        chosen = [one for one in site.pods.values() if one.phase is Phase.BOUND and not (one.placeholder or one.echoes)]
        if not chosen:
            return []
        pod = self.rng.choice(chosen)
        pod.phase, pod.node, pod.crossed, pod.hinted = Phase.ASKED, "", True, False
        return rm.update(site, releases(site, [(pod, SCHEDULING_FAILED_ON_RM)]))


_ACTS: Final[tuple[Act, ...]] = (
    Workload._add_node,
    Workload._change_node,
    Workload._foreign,
    Workload._submit,
    Workload._more,
    Workload._release,
    Workload._remove_application,
    Workload._roll_back,
)
_WEIGHTS: Final = (3, 6, 2, 8, 20, 25, 2, 1)
