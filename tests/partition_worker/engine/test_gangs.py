"""The time that a gang has, and what becomes of it then."""

import pytest

from common.rm_messages import NODE_DECOMMISSION
from partition_worker.engine.application import AppState
from partition_worker.engine.gang_scheduling import placeholder_timeout_s
from partition_worker.engine.state import LogLine
from tests.builders import apps, asks, gone, nodes, released
from tests.trial import START_S, Trial

LET_GO = "(TIMEOUT: releasing allocated placeholders on placeholder timeout)"
NEVER_HAD = "(TIMEOUT: releasing pending placeholders on placeholder timeout)"
DONE = "(TIMEOUT: releasing placeholders on app complete)"


def gang(*more: str, size: int = 30, style: str = "Soft", app: str = "timeout=4000") -> Trial:
    """A gang that wants placeholders for `size`, and has room for 20."""
    one = Trial().does(nodes("n1 memory=20"), apps(f"app-1 root.a gang=memory:{size} style={style} {app}"))
    placeholders = [f"app-1 p{number} memory=10 placeholder group=g" for number in range(1, size // 10 + 1)]
    one.does(asks(*placeholders, *more))
    one.told()
    return one


# Submission (spec 1.4) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("style", "kept"), [("Hard", "Hard"), ("Soft", "Soft"), ("hard", "Soft"), ("", "Soft")])
def test_a_gang_is_soft_unless_it_says_hard(style: str, kept: str) -> None:
    one = Trial().does(apps(f"app-1 root.a style={style}"))
    assert one.app("app-1").gang_style == kept


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("timeout=0", 900),
        ("timeout=-5", 900),
        ("timeout=4500", 4.5),
        (f"timeout=60000 tag.yunikorn.apache.org/creationTime={int(START_S) - 20}", 40),
        (f"tag.yunikorn.apache.org/creationTime={int(START_S) - 100}", 800),
        (f"timeout=60000 tag.yunikorn.apache.org/creationTime={int(START_S) - 70}", 0.001),
        (f"timeout=60000 tag.yunikorn.apache.org/creationTime={int(START_S) + 70}", 60),
        ("timeout=60000 tag.yunikorn.apache.org/creationTime=soon", 60),
        ("timeout=60000 tag.creationTime=5", 60),
    ],
)
def test_the_time_of_a_gang_runs_from_its_creation_where_that_is_known(said: str, seconds: float) -> None:
    (new,) = apps(f"app-1 root.a {said}").new
    assert placeholder_timeout_s(new, START_S) == seconds


# States while placeholders come (spec 2, rules 3 and 4) ---------------------------------------------------------------


def test_a_gang_runs_when_it_has_all_its_placeholders() -> None:
    one = gang()
    assert one.app("app-1").state is AppState.ACCEPTED
    assert one.does(nodes("n2 memory=10")).told() == ["node n2 accepted", "app-1 Running", "p3 on n2"]


def test_a_gang_whose_placeholders_the_rm_reports_runs_as_well() -> None:
    one = Trial().does(nodes("n1 memory=20"), apps("app-1 root.a gang=memory:20"))
    one.told()
    one.does(*(asks(f"app-1 p{number} memory=10 placeholder group=g on=n1") for number in (1, 2)))
    assert one.told() == ["app-1 Accepted", "p1 on n1", "app-1 Running", "p2 on n1"]


def test_a_real_allocation_lets_it_run_before_the_gang_is_complete() -> None:
    one = gang(size=20, app="timeout=4000").does(asks("app-1 p3 memory=10 placeholder group=g"))
    assert one.app("app-1").state is AppState.RUNNING
    other = gang().does(nodes("n2 memory=5"), asks("app-1 a1 memory=5"))
    assert other.told() == ["node n2 accepted", "app-1 Running", "a1 on n2"]


# Time-out -----------------------------------------------------------------------------------------------------------


def test_a_soft_gang_lets_everything_go_and_goes_on_without_placeholders() -> None:
    """Vector 3 of the specification: one placeholder that runs, a placeholder and a real ask of the group that wait."""
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a gang=memory:20 timeout=4000"))
    one.does(asks("app-1 p1 memory=10 placeholder group=g", "app-1 p2 memory=20 placeholder group=g"))
    one.takes(asks("app-1 r1 memory=30 group=h", "app-1 p3 memory=30 placeholder group=h")).settles()
    one.told()
    assert one.waits(4).told() == [
        "app-1 Resuming",
        f"p1 released {LET_GO}",
        f"p2 released {NEVER_HAD}",
        f"r1 released {NEVER_HAD}",
        f"p3 released {NEVER_HAD}",
    ]
    assert one.app("app-1").requests == {}
    assert one.running == ["p1 on n1"]
    assert one.does(released("app-1 p1 type=TIMEOUT")).told() == ["app-1 Accepted"]
    assert one.does(asks("app-1 r1 memory=10 group=g")).told() == ["app-1 Running", "r1 on n1"]
    groups = one.app("app-1").task_groups
    assert [(one.count, one.timed_out) for one in groups.values()] == [(2, 2), (1, 1)], "real asks do not count"


def test_the_cause_is_told() -> None:
    one = gang().waits(4)
    messages = [getattr(part, "message", "") for _, part in one.effects]
    assert "ResourceReservationTimeout" in messages


def test_a_hard_gang_fails_once_everything_is_gone() -> None:
    one = gang(style="Hard")
    assert one.waits(4).told() == [
        "app-1 Failing",
        *(f"{key} released {LET_GO}" for key in ("p1", "p2")),
        f"p3 released {NEVER_HAD}",
    ]
    assert one.does(released("app-1 p1 type=TIMEOUT")).told() == []
    assert one.does(released("app-1 p2 type=TIMEOUT")).told() == ["app-1 Failed"]
    assert one.partition.applications == {}
    assert one.does(released("app-1 p2 type=TIMEOUT")).told() == ["note: release of p2: application app-1 is unknown"]


def test_an_application_that_is_failing_takes_nothing_more() -> None:
    one = gang(style="Hard").waits(4)
    one.told()
    for text in ("app-1 a1 memory=1", "app-1 a1 memory=1 on=n1"):
        assert one.does(asks(text)).told() == ["a1 rejected: application app-1 is failing, it takes nothing more"]


@pytest.mark.parametrize("kind", ["STOPPED_BY_RM", "PREEMPTED_BY_SCHEDULER"])
def test_a_failing_application_has_failed_however_its_last_allocations_go(kind: str) -> None:
    one = gang(style="Hard").waits(4).does(released(f"app-1 type={kind}"))
    assert one.told()[4] == "app-1 Failed"
    other = gang(style="Hard").waits(4).does(nodes("n1", action=NODE_DECOMMISSION))
    assert other.told()[4] == "app-1 Failed"


def test_a_soft_gang_brings_its_swaps_to_an_end() -> None:
    one = gang().does(asks("app-1 r1 memory=10 group=g"))
    one.told()
    assert one.waits(4).told() == ["app-1 Resuming", f"p2 released {LET_GO}", f"p3 released {NEVER_HAD}"]
    assert one.does(released("app-1 p1 type=PLACEHOLDER_REPLACED")).told() == ["r1 on n1"]
    assert one.does(released("app-1 p2 type=TIMEOUT")).told() == ["app-1 Accepted"]
    assert one.app("app-1").allocated == {"memory": 10}


def test_a_hard_gang_has_no_use_for_its_swaps() -> None:
    one = gang(style="Hard").does(asks("app-1 r1 memory=10 group=g"))
    one.told()
    assert one.waits(4).told() == [
        "app-1 Failing",
        f"p2 released {LET_GO}",
        f"p3 released {NEVER_HAD}",
        f"r1 released {NEVER_HAD}",
    ]
    one.does(released("app-1 p1 type=PLACEHOLDER_REPLACED"))
    assert one.told() == [
        "note: release of p1: nothing takes its place, it is removed",
        "p1 released (STOPPED_BY_RM: allocation remove as per RM request)",
    ]
    assert one.does(released("app-1 p2 type=TIMEOUT")).told() == ["app-1 Failed"]


def test_a_gang_that_runs_keeps_running_and_loses_what_it_did_not_use() -> None:
    one = gang(size=20).does(asks("app-1 r1 memory=10 group=g"))
    one.told()
    assert one.waits(4).told() == [f"p2 released {LET_GO}"]
    assert one.does(released("app-1 p2 type=TIMEOUT")).told() == []
    assert one.does(released("app-1 p1 type=PLACEHOLDER_REPLACED")).told() == [
        "app-1 Completing",
        "app-1 Running",
        "r1 on n1",
    ]


def test_time_runs_from_the_first_placeholder_that_has_a_node() -> None:
    one = Trial().does(apps("app-1 root.a gang=memory:20 timeout=4000"))
    one.does(asks("app-1 p1 memory=10 placeholder group=g", "app-1 p2 memory=10 placeholder group=g")).waits(100)
    one.does(nodes("n1 memory=10")).waits(3.9)
    assert one.app("app-1").state is AppState.ACCEPTED
    assert one.waits(0.1).app("app-1").state is AppState.RESUMING


def test_without_placeholders_no_time_runs() -> None:
    one = gang().does(released("app-1 p1"), released("app-1 p2"), released("app-1 p3")).waits(10)
    assert AppState.RESUMING not in [state for _, state in one.app("app-1").state_log]


def test_time_begins_anew_when_the_only_placeholder_could_not_be_started() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a gang=memory:20 timeout=4000"))
    one.does(asks("app-1 p1 memory=10 placeholder group=g", "app-1 p2 memory=10 placeholder group=g")).waits(3)
    one.does(released("app-1 p1 type=SCHEDULING_FAILED_ON_RM")).waits(3)
    assert one.app("app-1").state is AppState.ACCEPTED
    assert one.waits(1).app("app-1").state is AppState.RESUMING


def test_a_gang_may_run_out_of_time_again() -> None:
    one = gang().waits(4).does(released("app-1 p1 type=TIMEOUT"), released("app-1 p2 type=TIMEOUT"))
    one.does(asks("app-1 p4 memory=10 placeholder group=g"))
    one.told()
    assert one.waits(4).told() == ["app-1 Resuming", f"p4 released {LET_GO}"]


def test_a_real_allocation_while_it_resumes_is_accepted_first_and_the_next_one_runs() -> None:
    one = gang().waits(4).does(nodes("n2 memory=20"))
    one.told()
    assert one.does(asks("app-1 a1 memory=5")).told() == ["app-1 Accepted", "a1 on n2"]
    assert one.does(asks("app-1 a2 memory=5")).told() == ["app-1 Running", "a2 on n2"]


def test_everything_may_be_released_while_it_resumes() -> None:
    one = gang().waits(4)
    one.told()
    assert one.does(released("app-1")).told()[:2] == ["app-1 Accepted", "app-1 Completing"]


@pytest.mark.parametrize("style", ["Soft", "Hard"])
def test_one_that_is_removed_while_it_resumes_or_fails_enters_no_other_state(style: str) -> None:
    one = gang(style=style).waits(4)
    one.told()
    removed = "released (STOPPED_BY_RM: Application app-1 Removed)"
    assert one.does(gone("app-1")).told() == [f"p1 {removed}", f"p2 {removed}"]
    assert (one.partition.applications, one.partition.ended) == ({}, {})


def test_it_may_be_killed_while_it_resumes_or_fails() -> None:
    for style in ("Soft", "Hard"):
        one = gang(style=style).waits(4).kills("app-1")
        assert "app-1 Failed" in one.told()
        assert one.running == []


# Completing ---------------------------------------------------------------------------------------------------------


def completing() -> Trial:
    one = gang("app-1 a1 memory=10", size=10, app="timeout=100000")
    one.does(released("app-1 a1"))
    assert one.told() == ["app-1 Completing", "a1 released (STOPPED_BY_RM: allocation remove as per RM request)"]
    return one


def test_an_application_completes_although_it_has_placeholders_and_lets_them_go_in_time() -> None:
    one = completing()
    assert one.waits(30).told() == [f"p1 released {DONE}"]
    assert one.waits(1000).told() == []
    assert one.does(released("app-1 p1 type=TIMEOUT")).told() == ["app-1 Completed"]


def test_it_has_completed_as_soon_as_the_last_placeholder_is_gone() -> None:
    assert completing().does(released("app-1 p1")).told()[0] == "app-1 Completed"


def test_a_completing_application_may_be_killed_with_its_placeholders() -> None:
    assert completing().kills("app-1").told()[1:] == [
        "app-1 Completed",
        "p1 released (STOPPED_BY_RM: Application app-1 killed by op)",
    ]


def test_a_completing_application_may_be_retired_with_its_placeholders() -> None:
    one = completing().waits(30)
    told = [part for _, part in one.partition.retire(one.now) if not isinstance(part, LogLine)]
    assert [getattr(part, "state", "released") for part in told][:2] == ["Completed", "released"]


def test_an_ask_brings_it_back_while_it_waits_for_placeholders_to_go() -> None:
    one = completing().waits(30)
    one.told()
    assert one.does(asks("app-1 a2 memory=10")).told() == ["app-1 Running", "a2 on n1"]
    assert one.does(released("app-1 p1 type=TIMEOUT")).told() == []


def test_the_time_of_the_gang_may_end_while_it_completes() -> None:
    one = gang("app-1 a1 memory=10", size=10).does(released("app-1 a1"))
    one.told()
    assert one.waits(4).told() == [f"p1 released {LET_GO}"]
    assert one.waits(26).told() == []
    assert one.does(released("app-1 p1 type=TIMEOUT")).told() == ["app-1 Completed"]


# The end of asks and allocations (spec 2, rules 5 to 8) ---------------------------------------------------------------


def test_taking_back_the_last_ask_does_not_complete_an_application_that_has_placeholders() -> None:
    one = gang().does(released("app-1 p3"))
    assert one.told() == []
    assert one.does(released("app-1 p1")).told() == ["p1 released (STOPPED_BY_RM: allocation remove as per RM request)"]
    assert one.does(released("app-1 p2")).told()[0] == "app-1 Completing"


def test_an_application_counts_for_its_user_while_it_resumes() -> None:
    """Spec 2, rule 7: it is not forgotten then."""
    one = gang().waits(4).does(released("app-1 p1 type=TIMEOUT"), released("app-1 p2 type=TIMEOUT"))
    account = one.partition.usage.known(one.app("app-1"))
    assert account is not None
    assert account.counted


def test_an_allocated_placeholder_that_is_resized_stays_a_placeholder() -> None:
    """Spec 8.2.3."""
    one = gang(size=10).does(asks("app-1 p1 memory=12 placeholder group=g"))
    app = one.app("app-1")
    assert (app.allocated, app.allocated_placeholder) == ({}, {"memory": 12})
    assert one.does(released("app-1 p1")).told()[0] == "app-1 Completing"
