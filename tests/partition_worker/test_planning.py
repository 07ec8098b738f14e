"""Courses of events: run times, evictions, jobs, maxima, early ends, and changes that cannot be made.

Whether a course is what then happens is the subject of `tests/properties/test_planning.py`.
"""

import pytest

from tests.builders import PARTITION, apps, asks, config, nodes, released
from tests.trial import START_S
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.query_messages import Actor
from yunishard.common.rest.plan import (
    RUN_TIME_TAG,
    ConfigChange,
    NewJob,
    NewNodes,
    NodeDrain,
    NodeRemoval,
    PlanOrder,
    PlanView,
)
from yunishard.partition_worker import planning
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.plan_views import build_plan_view
from yunishard.partition_worker.planning import play, read_run_time

QUEUES = "root.a max=memory:40 submitacl=alice,bob; root.b submitacl=bob"
RUNS_2M = f"tag.{RUN_TIME_TAG}=2m"


def make_partition(queues: str = QUEUES) -> Partition:
    """Two nodes; alice runs on both, 2 minutes on the first; bob waits."""
    one = Partition(config(f"root submitacl=; {queues}"), name=PARTITION, now=START_S)
    for command in (
        nodes("n1 memory=10", "n2 memory=10"),
        apps("app-1 root.a user=alice", "app-2 root.b user=bob"),
        asks(f"app-1 k1 memory=10 {RUNS_2M}", "app-1 k2 memory=10"),
        asks("app-2 w1 memory=10", "app-2 w2 memory=10"),
    ):
        one.apply(command, START_S)
        while not one.idle:
            one.step(START_S, 20)
    return one


def job(memory: int = 10, tasks: int = 1, *, queue: str = "root.b", user: str = "bob", name: str = "") -> NewJob:
    amounts: Resources = {"memory": memory}
    return NewJob(name, queue, user, ["staff"], {}, {}, amounts, tasks, None, 0, gang=False)


def plan(*changes: ConfigChange | NewJob | NewNodes | NodeDrain | NodeRemoval, viewer: Actor | None = None) -> PlanView:
    order = PlanOrder(list(changes))
    planned = make_partition()
    baseline = play(make_partition(), PlanOrder([]), now=START_S, viewer=viewer)
    course = play(planned, order, now=START_S, viewer=viewer)
    return build_plan_view(planned, order, baseline, course, name="default", viewer=viewer)


def in_seconds(view: PlanView, at: int) -> float:
    return (at - view.at) / 1e9


def test_the_run_time_of_an_ask_is_its_own_tag_or_else_that_of_its_application() -> None:
    assert read_run_time({RUN_TIME_TAG: "90s"}, {RUN_TIME_TAG: "1h"}) == 90.0
    assert read_run_time({}, {RUN_TIME_TAG: "1h30m"}) == 5400.0
    assert read_run_time({RUN_TIME_TAG: "soon"}, {RUN_TIME_TAG: "5s"}) == 5.0
    assert read_run_time({RUN_TIME_TAG: "-5s"}, {}) is None
    assert read_run_time({}, {}) is None


def test_allocations_end_after_their_run_time_and_others_never_do() -> None:
    view = plan()
    assert [(one.ask, in_seconds(view, one.at), one.node) for one in view.asks] == [("w1", 120.0, "n1")]
    assert (view.planned.ended, view.planned.waiting) == (1, 1)
    assert any("1 of 2 allocations do not have an estimate" in one for one in view.assumptions)


def test_an_allocation_that_runs_longer_than_its_estimate_does_not_end() -> None:
    course = play(make_partition(), PlanOrder([]), now=START_S + 121.0)
    assert (course.overdue, course.ends) == (1, [])


def test_a_drain_reports_whose_allocations_are_evicted() -> None:
    view = plan(NodeDrain("n1"))
    assert [(one.allocation, one.user, one.node, one.again_at, one.in_baseline) for one in view.evictions] == [
        ("k1", "alice", "n1", 0, False)
    ]
    assert view.changes == ["drain node n1"]
    assert (view.baseline.waiting, view.planned.waiting) == (1, 3)


def test_new_nodes_have_names_that_do_not_exist_and_start_what_waits() -> None:
    view = plan(NewNodes(2, {"memory": 10}, {"zone": "a"}))
    assert sorted((one.ask, one.node, in_seconds(view, one.at)) for one in view.asks) == [
        ("w1", "planned-1", 0.0),
        ("w2", "planned-2", 0.0),
    ]
    assert [(one.capacity_before, one.capacity, one.used_before, one.used) for one in view.utilisation] == [
        (20, 40, 20, 30)
    ]


def test_a_lower_maximum_is_exceeded_right_after_the_change() -> None:
    smaller = config("root submitacl=; root.a max=memory:15 submitacl=alice,bob; root.b submitacl=bob")
    view = plan(ConfigChange(smaller, "smaller"))
    [excess] = view.excesses
    assert (excess.queue, excess.resource, excess.maximum, excess.used, excess.used_at_end, excess.is_new) == (
        *("root.a", "memory", 15, 20),
        *(0, True),
    )


def test_a_partition_that_is_removed_loses_everything() -> None:
    view = plan(ConfigChange(None, "removed"))
    assert {one.allocation for one in view.evictions} == {"k1", "k2"}
    assert (view.planned.running, view.planned.waiting) == (0, 0)


def test_a_job_starts_at_once_never_or_is_refused() -> None:
    never = plan(job(11))
    first = plan(NewNodes(3, {"memory": 10}, {}), job()).jobs[0]
    assert (first.verdict, first.explanation) == ("now", None)
    assert never.jobs[0].verdict == "never"
    assert never.jobs[0].explanation is not None
    assert "Nothing ends" not in never.jobs[0].text
    refused = plan(job(queue="root.nowhere")).jobs[0]
    assert refused.verdict == "rejected"
    assert refused.explanation is not None
    assert "root.nowhere does not exist" in refused.explanation.summary


def test_a_job_names_the_release_that_it_waits_for() -> None:
    small = make_partition()
    order = PlanOrder([job(10, queue="root.a", user="alice")])
    for name in ("w1", "w2"):
        small.apply(released(f"app-2 {name}"), START_S)
    baseline = play(make_partition(), PlanOrder([]), now=START_S)
    view = build_plan_view(small, order, baseline, play(small, order, now=START_S), name="default")
    [found] = view.jobs
    assert (found.verdict, in_seconds(view, found.first_start)) == ("later", 120.0)
    assert [(one.allocation, one.application, one.node) for one in found.after] == [("k1", "app-1", "n1")]
    assert found.text == "It starts in 2 min, after the end of k1 of app-1 on n1."


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (NodeDrain("n9"), 404),
        (NodeRemoval("n9"), 404),
        (job(name="app-1"), 409),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(change: NewJob | NodeDrain | NodeRemoval, status: int) -> None:
    with pytest.raises(NotDone) as refused:
        plan(change)
    assert refused.value.status == status


def test_a_course_ends_early_after_too_many_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "DECISIONS_MAX", 1)
    view = plan(NewNodes(2, {"memory": 10}, {}))
    assert any("with the change ends after" in one for one in view.incomplete)


def test_timers_alone_are_not_played_to_a_far_horizon_and_the_report_states_it() -> None:
    partition = make_partition()
    partition.apply(released("app-1 k2", "app-2 w1", "app-2 w2"), START_S)
    order = PlanOrder([], 30 * 86_400.0)
    course = play(partition, order, now=START_S)  # app-1 ends after 2 minutes, and is forgotten after 3 days
    assert START_S + 120 <= course.quiet_from < START_S + 3600
    view = build_plan_view(partition, order, course, course, name="default")
    assert any("nothing starts or ends for 6 h" in one for one in view.assumptions)
