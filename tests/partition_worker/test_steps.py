"""Decisions that are made one at a time, when somebody asks for them."""

import json

import pytest

from common.machine import Send
from common.outbox import WINDOW_MESSAGES
from common.query_messages import STEPS_MAX, Answer, Schedule
from common.rest_records import DecisionView
from common.rm_messages import (
    PREEMPTED_BY_SCHEDULER,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    AllocationResponse,
    ApplicationResponse,
)
from partition_worker.engine.decisions import Preempt
from partition_worker.engine.effects import Effect
from partition_worker.steps import described
from partition_worker.worker import BUDGET_DECISIONS
from tests.builders import apps, asks, nodes
from tests.machines import said
from tests.partition_worker.bench import EPOCH, NOW, Bench, ask, placed
from tests.trial import Trial


@pytest.fixture
def bench() -> Bench:
    """A worker that decides only when asked to; application `a` asks for a1, a2 and a3, for which there is room."""
    one = Bench(manual=True)
    one.furnish()
    one.tell(ask("a1", "a2", "a3"))
    return one


def steps(bench: Bench, count: int) -> tuple[dict[str, object], list[Send]]:
    """What is answered, and what is sent before."""
    *sends, last = bench.hear(Schedule(steps=count), ref="ws 1")
    (told,) = said([last])
    assert isinstance(told, Answer)
    assert (told.status, last.header.ref, last.header.epoch) == (200, "ws 1", EPOCH)
    document = json.loads(told.body)
    assert isinstance(document, dict)
    return document, sends


def refusal(bench: Bench) -> tuple[int, str]:
    (sent,) = bench.hear(Schedule(steps=1))
    (told,) = said([sent])
    assert isinstance(told, Answer)
    return told.status, told.body.decode()


def test_what_is_decided_is_timed(bench: Bench) -> None:
    seconds = iter((10.0, 12.5))
    bench.worker.stopwatch = lambda: next(seconds)
    steps(bench, 2)
    assert (sum(bench.worker.cycles.counts), bench.worker.cycles.sum_s) == (1, 2.5)


def test_nothing_is_decided_unless_somebody_asks(bench: Bench) -> None:
    assert bench.worker.tick(NOW) == []
    assert bench.worker.deadline > NOW


def test_so_many_decisions_are_made_as_were_asked_for_and_told_one_by_one(bench: Bench) -> None:
    document, sends = steps(bench, 2)
    assert placed(sends) == ["a1", "a2"]
    assert document == {
        "partition": "default",
        "made": 2,
        "idle": False,
        "decisions": [
            {"kind": "allocate", "applicationID": "a", "allocationKey": key, "nodeID": "n1"} for key in ("a1", "a2")
        ],
    }
    bench.check()


def test_the_rm_hears_of_each_step_by_itself(bench: Bench) -> None:
    _, sends = steps(bench, 2)
    causes = [one.cause for one in said(sends) if isinstance(one, AllocationResponse)]
    assert len(set(causes)) == len(causes) == 2


def test_steps_that_are_asked_for_together_go_as_those_of_a_worker_that_decides_by_itself() -> None:
    one = Trial("root.a application.sort.policy=fair allocation.batch=2").takes(nodes("n1 memory=9"))
    one.takes(apps("app-1 root.a", "app-2 root.a"))
    one.takes(
        asks(*(f"{app} {key}{number} memory=1" for number in "123" for app, key in (("app-1", "a"), ("app-2", "b"))))
    )
    made = one.partition.schedule_each(one.now, 5)
    assert [decision.ask.key for decision, _ in made] == ["a1", "a2", "b1", "b2", "a3"]


def test_fewer_are_made_when_nothing_is_left_and_that_is_said(bench: Bench) -> None:
    document, sends = steps(bench, STEPS_MAX)
    assert (document["made"], document["idle"], placed(sends)) == (3, True, ["a1", "a2", "a3"])
    document, sends = steps(bench, 1)
    assert (document["made"], document["idle"], document["decisions"], sends) == (0, True, [], [])


def test_timers_go_off_by_the_clock_all_the_same(bench: Bench) -> None:
    steps(bench, 3)
    releases = [AllocationRelease(application_id="a", allocation_key=key) for key in ("a1", "a2", "a3")]
    bench.tell(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=releases)))
    assert NOW < bench.worker.deadline <= NOW + 30
    (told,) = said(bench.worker.tick(NOW + 30))
    assert isinstance(told, ApplicationResponse)
    assert [one.state for one in told.updated] == ["Completed"]


def test_a_partition_that_decides_by_itself_says_so() -> None:
    one = Bench()
    one.furnish()
    one.tell(ask("a1"))
    status, reason = refusal(one)
    assert (status, "partition default decides by itself" in reason) == (409, True)
    assert placed(one.schedule()) == ["a1"]


def test_a_partition_that_is_starting_says_so() -> None:
    assert refusal(Bench(running=False, manual=True)) == (503, "the partition is starting")


def test_an_rm_that_acknowledges_nothing_is_told_of_no_further_steps(bench: Bench) -> None:
    for number in range(WINDOW_MESSAGES):
        bench.tell(ask(f"b{number}"))
    while refusal_or_made(bench) == 200:
        pass
    status, reason = refusal(bench)
    assert (status, "messages to acknowledge" in reason) == (503, True)
    bench.check()


def refusal_or_made(bench: Bench) -> int:
    told = said(bench.hear(Schedule(steps=BUDGET_DECISIONS)))[-1]
    assert isinstance(told, Answer)
    return told.status


# What a step is called ------------------------------------------------------------------------------------------------


def test_a_node_that_is_kept_for_an_ask_is_a_step_of_which_the_rm_hears_nothing() -> None:
    one = Trial().takes(nodes("n1 memory=4", "n2 memory=2"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=3", "app-1 a2 memory=3"))
    one.partition.elapse(one.now + 3)
    ((decision, effects),) = one.partition.schedule_each(one.now + 3, 1)
    assert described(decision, effects) == DecisionView(
        kind="reserve", application_id="app-1", allocation_key="a2", node_id="n1"
    )


def test_what_the_rm_is_asked_to_let_go_for_it_is_told_with_a_step() -> None:
    one = Trial().does(nodes("n1 memory=4"), apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    application, node = one.app("app-1"), one.node("n1")
    victim = application.allocations["a1"]
    decision = Preempt(application, victim, node, (victim,))
    effects = [Effect(1, victim.release("rm-1_default", "for another one", PREEMPTED_BY_SCHEDULER))]
    assert described(decision, effects) == DecisionView(
        kind="preempt", application_id="app-1", allocation_key="a1", node_id="n1", releases=["a1"]
    )
