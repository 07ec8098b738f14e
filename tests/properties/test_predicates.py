"""Whatever happens, nothing is placed where its tags, a taint or the resource manager forbids it; and whoever can be
placed is, as soon as the resource manager has had its say.

The rules are written down here a second time, plainly: no node selector is parsed, each choice knows what it means.
"""

import random
import zlib
from collections.abc import Callable

import pytest

from tests.builders import apps, foreign, nodes, released
from tests.trial import Trial
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.rm_messages import (
    NODE_CREATE,
    NODE_DECOMMISSION,
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
    AllocationRequest,
    NodeRequest,
)
from yunishard.common.messages.rm_messages import Allocation as Message
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.partition import Partition

Attributes = dict[str, str]
Test = Callable[[str, Attributes], bool]

SELECTORS: dict[str, Test] = {
    "": lambda name, at: True,
    "zone=a": lambda name, at: at.get("zone") == "a",
    "zone in (a, b),disk": lambda name, at: at.get("zone") in ("a", "b") and "disk" in at,
    "zone!=a": lambda name, at: at.get("zone") != "a",
    "!disk": lambda name, at: "disk" not in at,
}
SCOPE = "yunishard/predicateScope"
SCOPES = ("", "none", "node", "partition")
FORBIDDEN = ("", "n1", "n2,n3", "n0,n1,n2,n3")
TOLERATIONS = ("", "gpu", "gpu=x:NoSchedule", "*")
TAINTS: dict[str, tuple[str, ...]] = {
    "": TOLERATIONS,
    "gpu=x:NoSchedule": ("gpu", "gpu=x:NoSchedule", "*"),
    "gpu=y:NoSchedule": ("gpu", "*"),
    "old:NoExecute": ("*",),
    "slow:PreferNoSchedule": TOLERATIONS,
}
"""With the tolerations that tolerate them."""


def manager_admits(key: str, node: str) -> bool:
    """What the resource manager thinks, for ever."""
    return zlib.crc32(f"{key} {node}".encode()) % 3 != 0


def admits(ask: Allocation, node: Node, *, asks_manager: bool) -> bool:
    tags, attributes = ask.tags, node.attributes
    return (
        SELECTORS[tags.get("yunishard/nodeSelector", "")](node.node_id, attributes)
        and node.node_id not in tags.get("yunishard/forbiddenNodes", "").split(",")
        and tags.get("yunishard/tolerations", "") in TAINTS[attributes.get("yunishard/taints", "")]
        and (not asks_manager or manager_admits(ask.key, node.node_id))
    )


class Life:
    """A partition in which all sorts of things happen."""

    def __init__(self, seed: int, *, asks_manager: bool, made: type[Partition] = Partition) -> None:
        self.rng = random.Random(seed)
        self.asks_manager = asks_manager
        order = self.rng.choice(["fair", "binpacking"])
        self.trial = Trial("root.a; root.b max=memory:60", nodes=order, made=made)
        self.trial.partition.nodes.predicates.asks_manager = asks_manager
        self.trial.does(apps("app-1 root.a", "app-2 root.b"), *(self.node(f"n{number}") for number in range(4)))
        self.keys = 0
        self.answered = 0
        self.checked: dict[str, tuple[str, int]] = {}
        """Allocations whose places were right when they were made, with node and time; a node may change later."""

    def happens(self) -> None:
        rng = self.rng
        event = rng.choice(
            [self.ask] * 6 + [self.ask_again] + [self.release] * 4 + [self.change_node] * 2 + [self.foreign]
        )
        self.trial.does(*event())
        if rng.random() < 0.5:
            self.trial.waits(rng.choice([0, 0.05, 0.3, 2, 40]))
        if rng.random() < 0.7:
            self.answer()
        self.check()

    def answer(self) -> None:
        """The manager answers the last question if it has not yet, in time or not."""
        asked = self.trial.asked
        if len(asked) > self.answered:
            self.answered = len(asked)
            refused = [one for one in asked[-1].asked if not manager_admits(one.allocation_key, one.node_id)]
            self.trial.answers(*(f"{one.allocation_key} on {one.node_id}: no" for one in refused))

    def ends(self) -> None:
        """The manager answers whatever it is asked from now on; then nobody waits in vain."""
        for _ in range(200):
            self.trial.waits(0.1 if len(self.trial.asked) > self.answered else 1)
            self.answer()
        self.check()
        for ask in self.trial.partition.allocations.values():
            if ask.node_id or ask.shape.required_node or ask.reserved:
                continue
            for node in self.trial.partition.nodes:
                free = node.schedulable and not node.reservations and node.has_room(ask.shape.amounts)
                room = self.trial.app(ask.application_id).queue.has_room(ask.shape.amounts)
                is_asked = ask.constraint is not None and bool(ask.constraint.asked)  # also without scope after failing
                assert not (free and room and admits(ask, node, asks_manager=self.asks_manager and is_asked)), (
                    ask.key,
                    node.node_id,
                )

    def check(self) -> None:
        """Everything that was decided since the last look is where it may be."""
        for ask in self.trial.partition.allocations.values():
            node = self.trial.partition.nodes.get(ask.node_id)
            if node is not None and self.checked.get(ask.key) != (node.node_id, ask.bound_ns):
                self.checked[ask.key] = node.node_id, ask.bound_ns
                is_asked = self.asks_manager and ask.tags.get(SCOPE) != "none"
                assert admits(ask, node, asks_manager=is_asked), (ask.key, ask.tags, node.attributes)

    # Events ---------------------------------------------------------------------------------------------------------

    def node(self, name: str, action: int = NODE_CREATE) -> NodeRequest:
        attributes = {"zone": self.rng.choice("abc"), "yunishard/taints": self.rng.choice(list(TAINTS))}
        if self.rng.random() < 0.5:
            attributes["disk"] = "ssd"
        tags = " ".join(f"tag.{key}={value}" for key, value in attributes.items() if value)
        return nodes(f"{name} memory={self.rng.choice([10, 20, 30])} {tags}", action=action)

    def ask(self) -> list[Command]:
        rng, allocations = self.rng, []
        for _ in range(rng.choice([1, 1, 2, 8])):
            self.keys += 1
            tags = {
                "yunishard/nodeSelector": rng.choice(list(SELECTORS)),
                "yunishard/forbiddenNodes": rng.choice(FORBIDDEN),
                "yunishard/tolerations": rng.choice(TOLERATIONS),
                SCOPE: rng.choice(SCOPES),
            }
            if rng.random() < 0.1:
                tags["yunikorn.apache.org/requiredNode"] = rng.choice(["n0", "n1", "n9"])
            one = Message(
                allocation_key=f"a{self.keys}",
                application_id=rng.choice(["app-1", "app-2"]),
                priority=rng.choice([0, 0, 5]),
                resource_per_alloc={"memory": rng.choice([1, 4, 9])},
                allocation_tags={key: value for key, value in tags.items() if value},
            )
            allocations.append(one)
        return [AllocationRequest(allocations=allocations)]

    def ask_again(self) -> list[Command]:
        """Send some asks again, with another scope and selector or the same ones."""
        found = []
        for one in self.trial.partition.allocations.values():
            if not one.node_id and self.rng.random() < 0.3:
                message = Message(
                    allocation_key=one.key,
                    application_id=one.application_id,
                    resource_per_alloc=one.resources,
                    allocation_tags=self._change_tags(one.tags),
                )
                found.append(message)
        return [AllocationRequest(allocations=found)]

    def _change_tags(self, tags: dict[str, str]) -> dict[str, str]:
        changed = {"yunishard/nodeSelector": self.rng.choice(list(SELECTORS))} if self.rng.random() < 0.5 else {}
        found = {**tags, **changed, SCOPE: self.rng.choice(("node", "partition"))}
        return {key: value for key, value in found.items() if value}

    def release(self) -> list[Command]:
        keys = list(self.trial.partition.allocations.values())
        chosen = self.rng.sample(keys, min(len(keys), 3))
        failed = " type=SCHEDULING_FAILED_ON_RM" if self.rng.random() < 0.2 else ""
        return [released(*(f"{one.application_id} {one.key}{failed}" for one in chosen))]

    def change_node(self) -> list[Command]:
        name = f"n{self.rng.randint(0, 5)}"
        actions = [NODE_UPDATE, NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE, NODE_DRAIN_TO_SCHEDULABLE]
        if self.trial.partition.nodes.get(name) is None:
            return [self.node(name)]
        return [self.node(name, self.rng.choice([*actions, NODE_DECOMMISSION]))]

    def foreign(self) -> list[Command]:
        known = [node.node_id for node in self.trial.partition.nodes]
        return [foreign(f"f{self.rng.randint(0, 3)} {self.rng.choice(known)} memory=2")] if known else []


@pytest.mark.parametrize("asks_manager", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_constraint_is_never_violated_and_nobody_waits_in_vain(seed: int, asks_manager: bool) -> None:
    life = Life(seed, asks_manager=asks_manager)
    for _ in range(60):
        life.happens()
    life.ends()
    assert life.trial.partition.counters.allocated >= 10
