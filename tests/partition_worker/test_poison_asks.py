"""An ask of which an evaluation or attempt ends the worker twice is set aside, and the asks behind it are placed."""

from collections.abc import Hashable, Mapping

import pytest

from tests.attempts import WorkerKilled
from tests.machines import PARTITION
from tests.partition_worker.bench import APP, NODES, NOW
from tests.partition_worker.test_poison_messages import Lives
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.rm_messages import (
    Allocation,
    AllocationRequest,
    AllocationResponse,
    NodeInfo,
    NodeRequest,
)
from yunishard.partition_worker.engine import queue_traversal
from yunishard.partition_worker.engine.allocation import AskGroup
from yunishard.partition_worker.engine.predicates import results
from yunishard.partition_worker.engine.predicates.predicate import NodeView
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.worker import Worker

REASON = f"an attempt to place it ended the worker of partition {PARTITION} 2 times: it was set aside"


class Deadly:
    """Ends the worker where an ask with the tag `deadly` is compared with the node that it names."""

    name = "deadly"

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        return tags.get("deadly")

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        if demand == node.node_id:
            raise WorkerKilled
        return "" if demand is None else "another node is wanted"


class Turns(Lives):
    """Lives in which turns are run, too."""

    def new_worker(self) -> Worker:
        host = PartitionHost(partition=PARTITION, epoch=1, plugins=[Deadly()])
        return Worker(host, journalled=True, attempts=self.attempts)

    def settle(self, worker_turns: int = 50) -> list[Message]:
        """Run turns until there is nothing to decide, however often the worker dies."""
        told: list[Message] = []
        for _ in range(worker_turns):
            if self.worker.deadline > NOW:
                return told
            told += self.outlive(lambda: self.worker.tick(NOW))
        raise AssertionError("there is always something to decide")

    def submit(self, *keys: str, deadly: str = "", vcore: int = 1) -> list[Message]:
        tags = {"deadly": deadly} if deadly else {}
        wanted = [
            Allocation(
                allocation_key=key, application_id="a", resource_per_alloc={"vcore": vcore}, allocation_tags=tags
            )
            for key in keys
        ]
        return self.tell(AllocationRequest(allocations=wanted))

    def placed(self) -> list[str]:
        return [key for key, one in self.partition.allocations.items() if one.node_id]


@pytest.fixture
def turns() -> Turns:
    found = Turns()
    found.tell(NODES)
    found.tell(NodeRequest(nodes=[NodeInfo(node_id="n2", action=1, schedulable_resource={"vcore": 10_000})]))
    found.tell(APP)
    return found


def rejected(told: list[Message]) -> dict[str, str]:
    found = [one for message in told if isinstance(message, AllocationResponse) for one in message.rejected_allocations]
    return {one.allocation_key: one.reason for one in found}


def test_an_ask_whose_evaluation_ends_the_worker_twice_is_rejected(turns: Turns) -> None:
    turns.submit("bad", deadly="n2")
    turns.submit("good")
    told = turns.settle()
    assert rejected(told) == {"bad": REASON}
    assert turns.deaths == 2
    assert turns.placed() == list(turns.partition.allocations) == ["good"]
    assert turns.worker.host.recent_poison(NOW) == f"ask bad of application a: {REASON}"


def test_the_rejection_is_durable(turns: Turns) -> None:
    turns.submit("bad", deadly="n2")
    turns.settle()
    turns.restart()
    turns.settle()
    assert (turns.deaths, turns.partition.allocations) == (2, {})


def test_asks_with_equal_demands_are_rejected_with_it(turns: Turns) -> None:
    turns.submit("bad", "same", deadly="n2")
    turns.submit("larger", deadly="n2", vcore=2)
    turns.submit("other", deadly="n9")
    assert rejected(turns.settle()) == dict.fromkeys(("bad", "same", "larger"), REASON)
    turns.submit("new", deadly="n2")
    assert rejected(turns.settle()) == {"new": REASON}
    assert (turns.deaths, list(turns.partition.allocations)) == (2, ["other"])


def test_an_ask_that_is_sent_again_is_rejected_at_once(turns: Turns) -> None:
    turns.submit("bad", deadly="n2")
    turns.settle()
    turns.submit("bad", deadly="n2")
    assert rejected(turns.settle()) == {"bad": REASON}
    assert turns.deaths == 2


def test_an_evaluation_that_takes_several_turns_is_not_survived_by_its_first_one(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("TURN_WORK", "BACKLOG_WORK", "SEARCH_WORK", "SLICE_WORK"):
        monkeypatch.setattr(results, limit, 1)
    turns.submit("bad", deadly="n2")
    assert rejected(turns.settle()) == {"bad": REASON}
    assert turns.deaths == 2


def test_an_ask_without_demands_is_found_once_a_turn_has_ended_a_worker(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = queue_traversal.Attempt._decide_for

    def deadly(self: queue_traversal.Attempt, group: AskGroup) -> object:
        if group.head.key == "bad":
            raise WorkerKilled
        return place(self, group)

    monkeypatch.setattr(queue_traversal.Attempt, "_decide_for", deadly)
    turns.submit("bad", vcore=2)
    turns.submit("good")
    assert rejected(turns.settle()) == {"bad": REASON}
    assert turns.deaths == 3
    assert turns.placed() == ["good"]


def test_a_turn_that_ends_one_worker_is_an_accident(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    run, deaths = queue_traversal.run, [1]

    def once(*args: object) -> object:
        if deaths and deaths.pop():
            raise WorkerKilled
        return run(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(queue_traversal, "run", once)
    turns.submit("good", "better")
    assert rejected(turns.settle()) == {}
    assert turns.deaths == 1
    assert turns.placed() == ["good", "better"]


def test_an_event_of_the_ask_says_why_it_is_gone(turns: Turns) -> None:
    turns.submit("bad", deadly="n2")
    turns.settle()
    events = turns.worker.host.events
    found = [event for _, event in events.read_since(events.lowest, 1000) if event.message == REASON]
    assert [(one.object_id, one.reference_id) for one in found] == [("bad", "a")]
