"""Reports of plans: who may plan what, and what a viewer sees of others."""

import pytest

from tests.partition_worker.test_planning import job, make_partition, plan
from yunishard.common.messages.query_messages import Actor
from yunishard.common.rest.plan import NewNodes, NodeDrain, PlanOrder
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.plan_views import check_rights, describe_change
from yunishard.partition_worker.redaction import Visibility

BOB, EVE = Actor("bob", ["staff"]), Actor("eve", ["staff"])


def test_a_user_sees_the_own_applications_and_of_others_only_totals() -> None:
    view = plan(job(), viewer=BOB)
    assert {one.application for one in view.applications} == {"app-2", "planned-job"}
    assert {one.user for one in view.asks} == {"bob"}
    assert view.planned.running == 2
    assert "alice" not in repr(view)
    assert "app-1" not in repr([view.jobs, view.asks, view.evictions])


def test_evictions_of_others_are_hidden_and_counted_in_the_totals() -> None:
    view = plan(NodeDrain("n1"), viewer=BOB)
    assert (view.evictions, view.planned.evicted, view.hidden) == ([], 1, 1)
    assert plan(NodeDrain("n1"), viewer=Actor("alice", [])).evictions[0].reason == ""


def test_administrators_see_everything() -> None:
    view = plan(NodeDrain("n1"))
    assert (len(view.evictions), view.hidden) == (1, 0)
    assert "drained" in view.evictions[0].reason


def test_the_summary_tells_who_is_evicted_and_how_much_starts_and_waits() -> None:
    assert plan(NodeDrain("n1")).summary == [
        "1 allocation of 1 application is evicted (alice 1); 0 of them get another node.",
        "1 ask fewer than without the change start.",
        "2 asks more than without the change wait then.",
    ]
    assert plan(job()).summary[0].startswith("It does not start within 1 h.")
    too_small = plan(NewNodes(1, {"memory": 1}, {}))
    assert too_small.summary == ["The change makes no difference to what runs and waits."]


def test_only_administrators_plan_for_others_and_for_nodes() -> None:
    state = make_partition()
    check_rights(PlanOrder([NodeDrain("n1")]), Visibility(state, None))
    check_rights(PlanOrder([job()]), Visibility(state, BOB))
    for order, viewer in (
        (PlanOrder([NodeDrain("n1")]), BOB),
        (PlanOrder([job()]), EVE),
        (PlanOrder([job()]), Actor("bob", ["other"])),
    ):
        with pytest.raises(NotDone) as refused:
            check_rights(order, Visibility(state, viewer))
        assert refused.value.status == 403


def test_changes_are_described_in_words() -> None:
    assert describe_change(NewNodes(2, {"vcore": 4000}, {})) == "add 2 nodes with 4 vcore"
    assert describe_change(job(tasks=3)) == "submit 3 tasks of 10 B to root.b as user bob"
