"""What an RM's word about asks and allocations does: new, changed, already running, and released."""

import pytest

from common.rm_messages import Allocation, AllocationRequest, RejectedAllocation
from partition_worker.engine.application import AppState
from tests.builders import apps, asks, both, foreign, nodes, released
from tests.trial import Trial


def trial(queues: str = "root.a max=memory:10") -> Trial:
    one = Trial(queues).does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a", "app-2 root.a"))
    one.told()
    return one


# Refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("app-9 a1 memory=1", "failed to find application app-9"),
        ("app-1 a1 memory=1 on=n9", "failed to find node n9"),
        ("app-1 a1", "allocation contains no resources"),
        ("app-1 a1 memory=0", "allocation contains no resources"),
        ("app-1 a1 memory=1 gpu=-1", "allocation contains negative resources"),
    ],
)
def test_what_cannot_be_is_refused_and_counted(words: str, reason: str) -> None:
    one = trial().does(asks(words))
    assert one.told() == [f"a1 rejected: {reason}"]
    assert (one.partition.counters.errors, one.partition.counters.rejected) == (1, 1)
    assert one.partition.allocations == {}


def test_a_placeholder_needs_a_task_group() -> None:
    told = trial().does(asks("app-1 a1 memory=1 placeholder")).told()
    assert told == ["a1 rejected: placeholder allocation a1 has no task group"]


def test_an_ask_needs_a_key() -> None:
    assert trial().does(asks("app-1 memory=1")).told() == [" rejected: allocation has no key"]


def test_a_key_belongs_to_one_application() -> None:
    one = trial().does(asks("app-1 a1 memory=1"))
    one.told()
    assert one.does(asks("app-2 a1 memory=1")).told() == [
        "a1 rejected: allocation key a1 is in use by application app-1"
    ]
    one.does(released("app-1 a1"))
    one.told()
    assert one.does(asks("app-2 a1 memory=1")).placed() == ["a1 on n1"]


def test_a_refusal_names_the_application_and_leaves_the_others_of_the_request_alone() -> None:
    """Spec 8.1: rejections are collected and come after the allocations part."""
    one = trial().takes(asks("app-1 a1", "app-1 a2 memory=1 on=n1"), asks("app-1 a3 memory=1"))
    assert one.told()[-2:] == ["a2 on n1", "a1 rejected: allocation contains no resources"]
    refusals = [effect.part for effect in one.effects if isinstance(effect.part, RejectedAllocation)]
    assert [refusal.application_id for refusal in refusals] == ["app-1"]


def test_allocations_are_handled_before_releases() -> None:
    one = trial().takes(both(released("app-1 a1"), asks("app-1 a1 memory=1 on=n1")))
    assert one.told() == [
        "app-1 Accepted",
        "app-1 Running",
        "a1 on n1",
        "app-1 Completing",
        "a1 released (STOPPED_BY_RM: allocation remove as per RM request)",
    ]


# Known and running ones -----------------------------------------------------------------------------------------------


def test_a_repeated_message_changes_nothing() -> None:
    one = trial().does(asks("app-1 a1 memory=4"), asks("app-1 a2 memory=40"))
    one.told()
    one.does(asks("app-1 a1 memory=4", "app-1 a1 memory=4 on=n1", "app-1 a2 memory=40 priority=7"))
    assert one.told() == []
    assert one.app("app-1").priority == 0


def test_what_runs_stays_where_it_is_whatever_another_message_says() -> None:
    one = trial().does(asks("app-1 a1 memory=4 on=n1"), asks("app-1 a1 memory=4 on=n2"))
    assert one.running == ["a1 on n1"]


def test_a_running_allocation_is_taken_over_limits_and_announced() -> None:
    one = trial("root.a max=memory:1 maxapps=1").does(asks("app-1 a1 memory=40 on=n1", "app-2 b1 memory=1 on=n1"))
    assert one.told() == ["app-1 Accepted", "app-1 Running", "a1 on n1", "app-2 Accepted", "app-2 Running", "b1 on n1"]
    assert one.node("n1").available == {"memory": -31}


def test_an_ask_that_the_rm_places_itself_is_an_ask_no_longer() -> None:
    one = trial().takes(asks("app-1 a1 memory=4"))
    one.told()
    assert one.does(asks("app-1 a1 memory=5 on=n2")).told() == ["app-1 Running", "a1 on n2"]
    assert (one.app("app-1").pending, one.app("app-1").allocated) == ({"memory": 0}, {"memory": 5})


def test_a_completing_application_runs_again_by_what_is_reported_of_it() -> None:
    one = trial().does(asks("app-1 a1 memory=4"), released("app-1 a1"), asks("app-1 a2 memory=1 on=n1")).waits(60)
    assert one.app("app-1").state is AppState.RUNNING


def test_a_resize_to_nothing_is_refused() -> None:
    one = trial().does(asks("app-1 a1 memory=4"))
    one.told()
    assert one.does(asks("app-1 a1 memory=0")).told() == ["a1 rejected: allocation contains no resources"]
    assert one.app("app-1").allocated == {"memory": 4}


# Releases -------------------------------------------------------------------------------------------------------------

ECHO = "a1 released (STOPPED_BY_RM: allocation remove as per RM request)"


@pytest.mark.parametrize(
    ("kind", "echo"),
    [
        ("UNKNOWN_TERMINATION", [ECHO]),
        ("STOPPED_BY_RM", [ECHO]),
        ("TIMEOUT", []),
        ("PREEMPTED_BY_SCHEDULER", []),
    ],
)
def test_only_what_the_rm_wished_is_echoed(kind: str, echo: list[str]) -> None:
    """The other types confirm what the core asked for."""
    one = trial().does(asks("app-1 a1 memory=4"))
    one.told()
    assert one.does(released(f"app-1 a1 type={kind}")).told() == ["app-1 Completing", *echo]
    assert one.partition.allocations == {}
    assert one.partition.counters.released == len(echo)


def test_releasing_an_ask_is_not_echoed() -> None:
    one = trial().takes(asks("app-1 a1 memory=4"))
    one.told()
    assert one.does(released("app-1 a1")).told() == ["app-1 Completing"]


def test_a_confirmed_timeout_leaves_asks_alone() -> None:
    """Spec 8.3.4: unless the type is TIMEOUT the ask with that key is removed."""
    one = trial().does(asks("app-1 a1 memory=40"), released("app-1 a1 type=TIMEOUT"))
    assert list(one.app("app-1").requests) == ["a1"]


def test_without_a_key_everything_of_the_application_is_released() -> None:
    one = trial().does(asks("app-1 a1 memory=4", "app-1 a2 memory=40", "app-1 a3 memory=1"), released("app-1"))
    assert one.app("app-1").state is AppState.COMPLETING
    assert [line.split()[0] for line in one.told() if "released" in line] == ["a1", "a3"]


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("app-9 a1", "release of a1: application app-9 is unknown"),
        ("app-1 a9", "release of a9: unknown to application app-1"),
        ("app-2 a1", "release of a1: unknown to application app-2"),
        ("- f9", "release of f9: no foreign allocation has this key"),
    ],
)
def test_releasing_what_is_unknown_is_only_noted(words: str, note: str) -> None:
    one = trial().does(asks("app-1 a1 memory=4"))
    one.told()
    assert one.does(released(words)).told() == [f"note: {note}"]


# Foreign allocations --------------------------------------------------------------------------------------------------


def test_a_foreign_allocation_takes_room_on_its_node_and_nowhere_else() -> None:
    one = trial().does(foreign("f1 n1 memory=4"))
    assert one.told() == []
    assert (one.node("n1").occupied, one.queue("root").allocated) == ({"memory": 4}, {})


def test_a_foreign_allocation_may_change_and_move() -> None:
    one = trial().does(foreign("f1 n1 memory=4"), foreign("f1 n1 memory=2"))
    assert one.node("n1").available == {"memory": 8}
    one.does(foreign("f1 n2 memory=3"))
    assert [one.node(name).available for name in ("n1", "n2")] == [{"memory": 10}, {"memory": 7}]
    one.does(released("- f1"))
    assert one.node("n2").available == {"memory": 10}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("f1 memory=1", "trying to add a foreign request (non-allocation) f1"),
        ("f1 n9 memory=1", "failed to find node n9 for allocation f1"),
    ],
)
def test_a_foreign_allocation_needs_a_known_node(words: str, reason: str) -> None:
    assert trial().does(foreign(words)).told() == [f"f1 rejected: {reason}"]


def test_a_foreign_key_and_one_of_our_own_have_nothing_to_do_with_each_other() -> None:
    one = trial().does(foreign("k1 n1 memory=4"), asks("app-1 k1 memory=1"), released("app-1 k1"))
    assert one.node("n1").occupied == {"memory": 4}


def test_an_application_named_in_a_foreign_allocation_is_ignored() -> None:
    message = Allocation(
        allocation_key="f1", application_id="app-1", node_id="n1", allocation_tags={"foreign": "static"},
        resource_per_alloc={"memory": 1},
    )  # fmt: skip
    one = trial().does(AllocationRequest(allocations=[message]))
    assert one.app("app-1").allocations == {}
    assert list(one.partition.foreign) == ["f1"]


def test_what_the_rm_could_not_start_waits_for_a_node_again() -> None:
    one = trial().does(asks("app-1 a1 memory=10"))
    one.told()
    one.takes(released("app-1 a1 type=SCHEDULING_FAILED_ON_RM"))
    assert (one.told(), one.app("app-1").pending) == ([], {"memory": 10})
    one.settles()
    assert one.told() == ["a1 on n1"]


def test_a_roll_back_of_what_does_not_run_changes_nothing() -> None:
    one = trial().does(asks("app-1 a1 memory=99"), released("app-1 a1 type=SCHEDULING_FAILED_ON_RM"))
    assert list(one.app("app-1").requests) == ["a1"]


def test_a_foreign_allocation_cannot_make_room() -> None:
    one = trial()
    assert one.does(foreign("f1 n1 memory=-5")).told() == ["f1 rejected: allocation contains negative resources"]
    assert one.node("n1").available == {"memory": 10}
