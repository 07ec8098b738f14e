"""An operator understands from `yunishard explain` alone why an application waits: one application for each cause."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from tests.deploy.system import FREE_PORTS, eventually, up
from yunishard import BlockingResourceManager, application, ask, node
from yunishard.cli.commands.rest import Rest
from yunishard.cli.main import main
from yunishard.common.messages.reasons import Reason
from yunishard.common.rest.explain import ExplanationView

pytestmark = pytest.mark.processes

QUEUES: Final = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: small
            resources: {max: {vcore: 2}}
            queues: [{name: a}]
          - name: one
            maxapplications: 1
          - name: users
            limits:
              - limit: alice
                users: [alice]
                maxresources: {vcore: 1}
              - limit: carol
                users: [carol]
                maxapplications: 1
          - name: groups
            limits:
              - limit: developers
                groups: [developers]
                maxresources: {vcore: 1}
          - name: aware
            properties: {application.sort.policy: stateaware}
          - name: stopped
          - name: free
  - name: full
    preemption: {enabled: true}
    queues:
      - name: root
        submitacl: "*"
        queues: [{name: a}, {name: b}]
  - name: cordoned
    queues:
      - name: root
        submitacl: "*"
        queues: [{name: a}]
"""

CORE: Final = {"vcore": "1", "memory": "1Gi"}
TWO: Final = {"vcore": "2", "memory": "1Gi"}
HUGE: Final = {"vcore": "20", "memory": "1Gi"}


RUNNING: Final = 7
"""Allocations of the work that runs."""


class Cause(NamedTuple):
    """What the explanation of an application has to state."""

    code: Reason
    words: tuple[str, ...]
    partition: str = "default"


CAUSES: Final = {
    "over-the-maximum": Cause(Reason.QUEUE_MAXIMUM, ("root.small", "2 vcore", "1 vcore")),
    "second-in-queue": Cause(Reason.QUEUE_APPLICATION_LIMIT, ("root.one", "1")),
    "over-the-user-limit": Cause(Reason.USER_LIMIT, ("alice", "root.users", "1 vcore")),
    "second-of-user": Cause(Reason.USER_APPLICATION_LIMIT, ("carol", "root.users")),
    "over-the-group-limit": Cause(Reason.GROUP_LIMIT, ("developers", "root.groups", "1 vcore")),
    "too-large": Cause(
        Reason.NO_NODE_FITS, ("20 vcore", "too small even when empty", "short by 4 vcore even when it is empty")
    ),
    "wrong-zone": Cause(Reason.NO_NODE_FITS, ("it needs zone=mars", "n1 has zone=earth")),
    "missing-node": Cause(Reason.REQUIRED_NODE_MISSING, ("no-such-node",)),
    "incomplete-gang": Cause(Reason.GANG_PLACEHOLDER, ("placeholder", "workers")),
    "not-its-turn": Cause(Reason.STATE_AWARE_TURN, ("root.aware", "first-aware")),
    "in-a-stopped-queue": Cause(Reason.QUEUE_STOPPED, ("root.stopped",)),
    "cluster-is-full": Cause(Reason.CLUSTER_FULL, ("nodes together have 2 vcore", "short by 1 vcore"), "full"),
    "behind-others": Cause(Reason.CLUSTER_FULL, ("cluster-is-full",), "full"),
    "nodes-are-cordoned": Cause(Reason.NO_NODE_FITS, ("cordon",), "cordoned"),
    "not-permitted": Cause(Reason.PLACEMENT_REJECTED, ("root.nowhere",)),
}


def submit(rm: BlockingResourceManager) -> None:
    """Send nodes, the work that runs, and the work that waits, in this order."""
    rm.update_nodes(
        [
            node("n1", {"vcore": "16", "memory": "64Gi"}, attributes={"zone": "earth"}),
            node("n2", {"vcore": "16", "memory": "64Gi"}, attributes={"zone": "moon"}),
            node("f1", {"vcore": "2", "memory": "8Gi"}, partition="full"),
            node("c1", {"vcore": "2", "memory": "8Gi"}, partition="cordoned"),
        ]
    )
    queues = {
        "runs-small": ("root.small.a", "alice"),
        "over-the-maximum": ("root.small.a", "alice"),
        "first-in-queue": ("root.one", "alice"),
        "second-in-queue": ("root.one", "bob"),
        "over-the-user-limit": ("root.users", "alice"),
        "first-of-user": ("root.users", "carol"),
        "second-of-user": ("root.users", "carol"),
        "over-the-group-limit": ("root.groups", "dan"),
        "too-large": ("root.free", "alice"),
        "wrong-zone": ("root.free", "alice"),
        "missing-node": ("root.free", "alice"),
        "first-aware": ("root.aware", "alice"),
        "not-its-turn": ("root.aware", "alice"),
        "in-a-stopped-queue": ("root.stopped", "alice"),
        "not-permitted": ("root.nowhere", "alice"),
    }
    rm.update_applications(
        new=[
            *[
                application(name, queue, user=user, groups=["developers"] if user == "dan" else ["staff"])
                for name, (queue, user) in queues.items()
            ],
            application("incomplete-gang", "root.free", user="alice", gang={"vcore": "60", "memory": "3Gi"}),
            *[
                application(name, "root.a", user="eve", groups=["staff"], partition="full")
                for name in ("fills", "cluster-is-full", "behind-others")
            ],
            application("nodes-are-cordoned", "root.a", user="eve", groups=["staff"], partition="cordoned"),
        ]
    )
    rm.update_allocations(
        allocations=[
            ask("small-1", "runs-small", TWO),
            ask("one-1", "first-in-queue", CORE),
            ask("aware-1", "first-aware", CORE),
            ask("carol-1", "first-of-user", CORE),
            ask("alice-1", "over-the-user-limit", CORE),
            ask("dan-1", "over-the-group-limit", CORE),
            ask("full-1", "fills", TWO, partition="full"),
        ]
    )


def submit_what_waits(rm: BlockingResourceManager) -> None:
    """Send the asks that wait for as long as nothing changes."""
    selector, required = {"yunishard/nodeSelector": "zone=mars"}, {"yunikorn.apache.org/requiredNode": "no-such-node"}
    rm.update_allocations(
        allocations=[
            ask("over-1", "over-the-maximum", CORE),
            ask("two-1", "second-in-queue", CORE),
            ask("alice-2", "over-the-user-limit", CORE),
            ask("carol-2", "second-of-user", CORE),
            ask("dan-2", "over-the-group-limit", CORE),
            ask("large-1", "too-large", HUGE),
            ask("mars-1", "wrong-zone", CORE, tags=selector),
            ask("missing-1", "missing-node", CORE, tags=required),
            *[ask(f"ph-{one}", "incomplete-gang", HUGE, task_group="workers", placeholder=True) for one in range(3)],
            ask("real-1", "incomplete-gang", HUGE, task_group="workers"),
            ask("aware-2", "not-its-turn", CORE),
            ask("stopped-1", "in-a-stopped-queue", CORE),
            ask("full-2", "cluster-is-full", CORE, partition="full"),
            ask("full-3", "behind-others", CORE, partition="full"),
            ask("cordoned-1", "nodes-are-cordoned", CORE, partition="cordoned"),
        ]
    )


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a system in which each application waits for its cause."""
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path_factory.mktemp("system")) as running:
        endpoints = running.announced()
        client = Rest(endpoints["rest"])
        with BlockingResourceManager(endpoints["native"], rm_id="rm-1", config=QUEUES) as rm:
            submit(rm)
            eventually(lambda: count_allocations(client) == RUNNING)
            client.in_partition("default", "queue", "root.stopped", "stop", query={})
            client.in_partition("cordoned", "node", "c1", "cordon", query={})
            submit_what_waits(rm)
            yield endpoints["rest"]
        assert running.stop() == 0


def count_allocations(client: Rest) -> int:
    """The allocations of all partitions."""
    found = client.get("partitions").decode(list[dict[str, object]])
    return sum(int(str(one.get("totalContainers", 0))) for one in found)


def explain(rest: str, name: str) -> ExplanationView:
    """The explanation of an application."""
    return Rest(rest).get("partition", CAUSES[name].partition, "application", name, "explain").decode(ExplanationView)


def list_codes(found: ExplanationView) -> set[str]:
    """The reasons of an application and of its asks."""
    return {found.stopped_by, *(one.stopped_by for one in found.asks)}


@pytest.mark.parametrize("name", CAUSES)
def test_the_explanation_of_an_application_states_what_it_waits_for(
    rest: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cause = CAUSES[name]
    eventually(lambda: cause.code in list_codes(explain(rest, name)))
    assert main(["explain", "app", name, "--partition", cause.partition, "--rest", rest]) == 0
    text = capsys.readouterr().out
    summary = text.split("\n\n")[0]
    missing = [word for word in cause.words if word not in " ".join(text.split())]
    assert not missing, f"{missing}\n{text}"
    assert name in summary
