"""Gang scheduling: swaps of placeholders, gangs, and placeholder accounting."""

import pytest

from tests.builders import apps, asks, config, gone, nodes, released
from tests.trial import START_S, Trial
from yunishard.common.messages import event_codes
from yunishard.common.messages.rm_messages import NODE_DECOMMISSION, NODE_DRAIN
from yunishard.partition_worker.engine import queue_traversal
from yunishard.partition_worker.engine.application import AppState, TaskGroup
from yunishard.partition_worker.engine.effects import LogLine
from yunishard.partition_worker.engine.gang_scheduling import gang_objection, placeholder_timeout_s
from yunishard.partition_worker.engine.state import Release, Replace

NOT_ON_N1 = "tag.yunishard/forbiddenNodes=n1"


def gang(*more: str, count: int = 2, queues: str = "root.a", where: str = "n1 memory=100") -> Trial:
    """An application with placeholders of 10 that all run, and nothing told yet."""
    one = Trial(queues).does(nodes(where), apps(f"app-1 root.a gang=memory:{10 * count}"))
    one.does(asks(*(f"app-1 p{number} memory=10 placeholder group=g" for number in range(1, count + 1)), *more))
    one.told()
    return one


def replacing(placeholder: str, real: str) -> str:
    return f"{placeholder} released (PLACEHOLDER_REPLACED: replacing allocationKey: {real})"


def states(one: Trial, application_id: str = "app-1") -> list[AppState]:
    return [state for _, state in one.app(application_id).state_log]


CONFIRM_P1 = released("app-1 p1 type=PLACEHOLDER_REPLACED")
SOON_ELSEWHERE = asks(f"app-1 r1 memory=10 group=g {NOT_ON_N1}")


def swapping_elsewhere(count: int = 2) -> Trial:
    """p1 runs on n1, and r1 is about to take its place on n2."""
    one = gang(count=count).does(nodes("n2 memory=50"), SOON_ELSEWHERE)
    assert one.told()[-1] == replacing("p1", "r1")
    assert one.app("app-1").swapping["r1"].node_id == "n2"
    return one


# On the same node ---------------------------------------------------------------------------------------------------


def test_a_real_ask_takes_the_place_of_a_placeholder_once_the_rm_has_let_it_go() -> None:
    one = gang()
    assert one.does(asks("app-1 r1 memory=10 group=g")).told() == [replacing("p1", "r1")]
    assert one.running == ["p1 on n1", "p2 on n1", "r1 on n1"]
    assert one.app("app-1").pending == {}
    assert one.node("n1").allocated == {"memory": 20}
    assert one.does(CONFIRM_P1).told() == ["r1 on n1"]
    assert one.running == ["p2 on n1", "r1 on n1"]
    app = one.app("app-1")
    assert (app.allocated, app.allocated_placeholder) == ({"memory": 10}, {"memory": 10})
    assert app.allocations["r1"].placeholder_used
    group = app.task_groups["g"]
    assert (group.count, group.replaced, group.timed_out) == (2, 1, 0)


def test_the_oldest_placeholder_goes_first_and_asks_come_in_their_order() -> None:
    one = gang()
    one.does(asks("app-1 low memory=10 group=g priority=-1", "app-1 high memory=10 group=g priority=1"))
    assert one.told() == [replacing("p1", "high"), replacing("p2", "low")]


def test_a_swap_needs_no_room_anywhere() -> None:
    """Spec 4.9: not subject to headroom, user quota or the number of applications."""
    one = gang(queues="root.a max=memory:20 maxapps=1 limit.user.bob=memory:20", where="n1 memory=20")
    assert one.does(asks("app-1 r1 memory=10 group=g")).told() == [replacing("p1", "r1")]
    assert one.does(CONFIRM_P1).told() == ["r1 on n1"]


def test_a_swap_may_be_on_a_node_that_drains_or_was_made_too_small() -> None:
    one = gang().does(nodes("n1", action=NODE_DRAIN))
    assert one.does(asks("app-1 r1 memory=10 group=g")).told() == [replacing("p1", "r1")]


def test_what_a_smaller_real_ask_leaves_is_free_when_the_rm_confirms() -> None:
    one = gang(where="n1 memory=20").does(apps("app-2 root.a"), asks("app-2 b1 memory=4"))
    one.does(asks("app-1 r1 memory=6 group=g"))
    assert "b1 on n1" not in one.told()
    assert one.does(CONFIRM_P1).told() == ["r1 on n1", "app-2 Running", "b1 on n1"]
    assert one.queue("root.a").allocated == {"memory": 20}


def test_placeholders_that_are_too_small_are_let_go_and_the_ask_then_waits_like_any_other() -> None:
    one = gang().does(asks("app-1 r1 memory=11 group=g"))
    assert one.told() == [
        f"{key} released (TIMEOUT: cancel placeholder: resource incompatible)" for key in ("p1", "p2")
    ]
    assert one.does(released("app-1 p1 type=TIMEOUT")).told() == []
    assert one.app("app-1").requests["r1"].held
    assert one.does(released("app-1 p2 type=TIMEOUT")).told() == ["r1 on n1"]
    group = one.app("app-1").task_groups["g"]
    assert (group.count, group.replaced, group.timed_out) == (2, 0, 2)


def test_a_type_that_the_placeholder_lacks_makes_it_too_small() -> None:
    one = gang(where="n1 memory=100 gpu=2").does(asks("app-1 r1 memory=1 gpu=1 group=g"))
    assert [text.split()[0] for text in one.told()] == ["p1", "p2"]


def test_only_the_small_ones_before_the_first_that_is_large_enough_are_let_go() -> None:
    one = gang("app-1 p3 memory=20 placeholder group=g", "app-1 p4 memory=5 placeholder group=g")
    assert one.does(asks("app-1 r1 memory=20 group=g")).told() == [
        "p1 released (TIMEOUT: cancel placeholder: resource incompatible)",
        "p2 released (TIMEOUT: cancel placeholder: resource incompatible)",
        replacing("p3", "r1"),
    ]


def test_only_placeholders_of_the_same_group_are_replaced() -> None:
    one = gang("app-1 q1 memory=10 placeholder group=h").does(asks("app-1 r1 memory=10 group=h"))
    assert one.told() == [replacing("q1", "r1")]
    assert one.does(asks("app-1 r2 memory=10")).told() == ["r2 on n1"]


def test_a_real_ask_waits_for_a_placeholder_that_has_no_node_yet() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 p1 memory=20 placeholder group=g"))
    one.told()
    assert one.does(asks("app-1 r1 memory=5 group=g")).told() == []
    assert one.does(nodes("n2 memory=20")).told() == ["node n2 accepted", "p1 on n2", replacing("p1", "r1")]


def test_swaps_come_before_anything_else_that_could_be_placed() -> None:
    one = gang().takes(asks("app-1 a1 memory=1", "app-1 r1 memory=10 group=g"))
    assert isinstance(queue_traversal.decide(one.partition), Replace)
    one.takes(asks("app-1 r0 memory=11 group=g priority=1"))
    assert isinstance(queue_traversal.decide(one.partition), Release)


def test_applications_swap_in_the_order_of_their_queues() -> None:
    one = Trial("root.a; root.b").does(nodes("n1 memory=100"), apps("app-1 root.a", "app-2 root.b"))
    one.does(asks("app-1 p1 memory=20 placeholder group=g"), asks("app-2 q1 memory=10 placeholder group=g"))
    one.told()
    one.does(asks("app-1 r1 memory=10 group=g", "app-2 s1 memory=10 group=g"))
    assert one.told() == [replacing("q1", "s1"), replacing("p1", "r1")]


def test_swaps_go_on_after_their_leaf_gets_another_order() -> None:
    one = gang().does(apps("app-2 root.a"), asks("app-2 q1 memory=10 placeholder group=g"))
    one.takes(asks("app-1 r1 memory=10 group=g"))
    one.partition.reconfigure(config("root.a application.sort.policy=fair"), one.now)
    one.takes(asks("app-2 s1 memory=10 group=g priority=1"))
    one.told()
    one.settles()
    assert one.told() == [replacing("q1", "s1"), replacing("p1", "r1")]


# States (spec 2, rules 3 and 7) -------------------------------------------------------------------------------------


def test_a_gang_of_one_placeholder_completes_and_runs_again() -> None:
    """Vector 2 of the specification."""
    one = gang(count=1).does(asks("app-1 r1 memory=10 group=g"), CONFIRM_P1)
    assert states(one) == [AppState.ACCEPTED, AppState.RUNNING, AppState.COMPLETING, AppState.RUNNING]
    assert one.waits(40).app("app-1").state is AppState.RUNNING


def test_the_first_replacement_of_an_incomplete_gang_does_not_let_it_run_and_the_second_does() -> None:
    one = Trial().does(nodes("n1 memory=20"), apps("app-1 root.a gang=memory:30"))
    one.does(asks(*(f"app-1 p{number} memory=10 placeholder group=g" for number in (1, 2, 3))))
    one.does(asks("app-1 r1 memory=10 group=g", "app-1 r2 memory=10 group=g"), CONFIRM_P1)
    assert one.app("app-1").state is AppState.ACCEPTED
    one.does(released("app-1 p2 type=PLACEHOLDER_REPLACED"))
    assert one.app("app-1").state is AppState.RUNNING


def test_an_application_that_completes_while_a_swap_is_under_way_runs_again_with_it() -> None:
    one = gang(count=1).does(asks("app-1 a1 memory=1"), asks("app-1 r1 memory=10 group=g"), released("app-1 a1"))
    assert one.app("app-1").state is AppState.COMPLETING
    one.waits(31)  # what waits for a swap has not completed
    assert one.app("app-1").state is AppState.COMPLETING
    one.told()
    assert one.does(CONFIRM_P1).told() == ["app-1 Running", "r1 on n1"]


# On another node ----------------------------------------------------------------------------------------------------


def test_where_the_node_does_not_admit_the_ask_it_gets_another_one() -> None:
    one = swapping_elsewhere()
    assert (one.node("n1").allocated, one.node("n2").allocated) == ({"memory": 20}, {"memory": 10})
    assert one.queue("root.a").allocated == {"memory": 20}, "nobody is charged twice"
    assert one.does(CONFIRM_P1).told() == ["r1 on n2"]
    assert (one.node("n1").allocated, one.queue("root.a").allocated) == ({"memory": 10}, {"memory": 20})


def test_without_another_node_the_swap_waits_until_there_is_one() -> None:
    one = gang().does(SOON_ELSEWHERE)
    assert one.told() == []
    assert one.does(nodes("n2 memory=9")).told() == ["node n2 accepted"]
    assert one.does(nodes("n3 memory=10")).told() == ["node n3 accepted", replacing("p1", "r1")]


def test_who_waits_for_another_node_does_not_hold_up_those_who_need_none() -> None:
    one = gang().does(asks(f"app-1 r1 memory=10 group=g priority=5 {NOT_ON_N1}"), asks("app-1 r2 memory=10 group=g"))
    assert one.told() == [replacing("p1", "r2")]


def test_a_placeholder_on_a_node_that_is_admitted_is_better_than_another_node() -> None:
    one = gang().does(nodes("n2 memory=50", "n3 memory=90"), asks("app-1 p3 memory=10 placeholder group=g"))
    third = one.app("app-1").allocations["p3"].node_id
    one.told()
    one.does(SOON_ELSEWHERE)
    assert one.told() == [replacing("p3", "r1")]
    assert one.app("app-1").swapping["r1"].node_id == third


def test_where_the_rm_has_a_say_the_swap_waits_for_its_answer() -> None:
    """Spec 4.9: it is asked whether the ask may have its place there, not whether there is room."""
    one = gang()
    one.partition.nodes.predicates.asks_manager = True
    one.does(nodes("n2 memory=50"), asks("app-1 r1 memory=10 group=g")).waits(0)
    asked = {(pair.node_id, pair.allocate) for pair in one.asked[-1].asked}
    assert ("n1", False) in asked
    one.told()
    assert one.answers("r1 on n2: no").told() == [replacing("p1", "r1")]


def test_where_the_rm_refuses_the_node_of_the_placeholder_it_is_another_one() -> None:
    one = gang()
    one.partition.nodes.predicates.asks_manager = True
    one.does(nodes("n2 memory=50"), asks("app-1 r1 memory=10 group=g")).waits(0)
    one.told()
    assert one.answers("r1 on n1: no").told() == [replacing("p1", "r1")]
    assert one.app("app-1").swapping["r1"].node_id == "n2"


# What comes between -------------------------------------------------------------------------------------------------


def test_confirming_twice_changes_nothing() -> None:
    one = gang().does(asks("app-1 r1 memory=10 group=g"), CONFIRM_P1)
    one.told()
    assert one.does(CONFIRM_P1).told() == ["note: release of p1: unknown to application app-1"]


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("kind", ["STOPPED_BY_RM", "UNKNOWN_TERMINATION", "TIMEOUT", "PREEMPTED_BY_SCHEDULER"])
def test_when_a_placeholder_goes_in_another_way_its_ask_waits_again(kind: str, elsewhere: bool) -> None:
    one = swapping_elsewhere(3) if elsewhere else gang(count=3).does(asks("app-1 r1 memory=10 group=g"))
    one.told()
    one.does(released(f"app-1 p1 type={kind}"))
    wished = kind in ("STOPPED_BY_RM", "UNKNOWN_TERMINATION")
    echo = ["p1 released (STOPPED_BY_RM: allocation remove as per RM request)"] if wished else []
    assert one.told() == [*echo, replacing("p2", "r1")]
    assert one.app("app-1").task_groups["g"].timed_out == 1


def test_a_real_ask_that_is_taken_back_leaves_a_placeholder_that_goes_without_successor() -> None:
    one = swapping_elsewhere().does(released("app-1 r1"))
    assert one.told() == []
    assert one.node("n2").allocated == {}
    assert one.does(CONFIRM_P1).told() == [
        "note: release of p1: nothing takes its place, it is removed",
        "p1 released (STOPPED_BY_RM: allocation remove as per RM request)",
    ]
    assert one.running == ["p2 on n1"]


def test_a_time_out_does_not_take_a_real_ask_back_and_a_failed_start_is_none() -> None:
    one = gang().does(asks("app-1 r1 memory=10 group=g"))
    one.does(released("app-1 r1 type=TIMEOUT"), released("app-1 r1 type=SCHEDULING_FAILED_ON_RM"))
    one.does(released("app-1 p1 type=SCHEDULING_FAILED_ON_RM"))
    one.told()
    assert one.does(CONFIRM_P1).told() == ["r1 on n1"]


@pytest.mark.parametrize("key", ["p2", "a1"])
def test_a_replacement_that_nobody_began_is_a_removal(key: str) -> None:
    one = gang("app-1 a1 memory=1", "app-1 a2 memory=1")
    assert one.does(released(f"app-1 {key} type=PLACEHOLDER_REPLACED")).told() == [
        f"note: release of {key}: nothing takes its place, it is removed",
        f"{key} released (STOPPED_BY_RM: allocation remove as per RM request)",
    ]


def test_both_of_a_swap_may_be_resized_meanwhile() -> None:
    one = swapping_elsewhere().does(asks("app-1 r1 memory=15 group=g", "app-1 p1 memory=12 placeholder group=g"))
    assert (one.node("n1").allocated, one.node("n2").allocated) == ({"memory": 22}, {"memory": 15})
    one.does(CONFIRM_P1)
    assert one.queue("root.a").allocated == {"memory": 25}
    here = gang().does(asks("app-1 r1 memory=10 group=g"), asks("app-1 r1 memory=3 group=g"), CONFIRM_P1)
    assert here.node("n1").allocated == {"memory": 13}


def test_a_swapped_allocation_that_could_not_be_started_waits_for_a_node_again() -> None:
    one = gang(count=1).does(nodes("n2 memory=10"), asks("app-1 r1 memory=10 group=g"), CONFIRM_P1)
    one.told()
    assert one.does(released("app-1 r1 type=SCHEDULING_FAILED_ON_RM")).told() == ["r1 on n2"]
    assert not one.app("app-1").allocations["r1"].placeholder_used


def test_a_placeholder_that_could_not_be_started_is_asked_for_again_and_counts_once() -> None:
    one = gang().does(nodes("n2 memory=10"))
    one.told()
    assert one.does(released("app-1 p1 type=SCHEDULING_FAILED_ON_RM")).told() == ["p1 on n2"]
    group = one.app("app-1").task_groups["g"]
    assert (group.count, group.timed_out) == (2, 0)


def test_everything_may_be_released_during_a_swap() -> None:
    one = swapping_elsewhere().does(released("app-1"))
    assert one.told() == [
        "app-1 Completing",
        "p1 released (STOPPED_BY_RM: allocation remove as per RM request)",
        "p2 released (STOPPED_BY_RM: allocation remove as per RM request)",
    ]
    assert (one.node("n2").allocated, one.running) == ({}, [])


def test_a_time_out_of_everything_keeps_the_asks_those_of_swaps_too() -> None:
    one = swapping_elsewhere().does(released("app-1 type=TIMEOUT"))
    assert one.told() == ["r1 on n2"]


def test_an_application_may_be_removed_during_a_swap() -> None:
    one = swapping_elsewhere().does(gone("app-1"))
    assert one.told() == [
        "app-1 Completing",
        "p1 released (STOPPED_BY_RM: Application app-1 Removed)",
        "p2 released (STOPPED_BY_RM: Application app-1 Removed)",
    ]
    assert one.does(CONFIRM_P1).told() == ["note: release of p1: application app-1 is unknown"]


def test_an_application_may_be_killed_during_a_swap() -> None:
    one = swapping_elsewhere().kills("app-1")
    told = "(STOPPED_BY_RM: Application app-1 killed by op)"
    assert one.told()[1:] == ["app-1 Failing", "app-1 Failed", f"p1 released {told}", f"p2 released {told}"]
    assert one.node("n2").allocated == {}


def test_an_application_may_be_moved_during_a_swap_and_with_something_to_swap() -> None:
    one = gang(queues="root.a; root.b").does(SOON_ELSEWHERE).does(asks("app-1 r2 memory=10 group=g"))
    one.moves("app-1", "root.b").told()
    assert one.does(nodes("n2 memory=20")).told() == ["node n2 accepted", replacing("p2", "r1")]
    one.does(CONFIRM_P1, released("app-1 p2 type=PLACEHOLDER_REPLACED"))
    assert one.queue("root.b").allocated == {"memory": 20}
    assert one.queue("root.a").allocated == {}


def test_a_partition_may_be_retired_during_a_swap() -> None:
    one = swapping_elsewhere()
    one.partition.retire(one.now)
    assert one.running == []


# Nodes that go (spec 7) ---------------------------------------------------------------------------------------------


def test_when_the_node_of_the_placeholder_goes_the_swap_to_another_node_is_complete() -> None:
    """Case a: one list of releases, then what replaced them."""
    one = swapping_elsewhere()
    one.does(asks("app-1 p1 memory=14 placeholder group=g"))
    assert one.does(nodes("n1", action=NODE_DECOMMISSION)).told() == [
        "p1 released (STOPPED_BY_RM: Node n1 Removed)",
        "p2 released (STOPPED_BY_RM: Node n1 Removed)",
        "r1 on n2",
    ]
    assert one.queue("root.a").allocated == {"memory": 10}
    group = one.app("app-1").task_groups["g"]
    assert (group.replaced, group.timed_out) == (1, 1)


def test_when_the_node_of_both_goes_the_real_ask_waits_again() -> None:
    """Case b, same node."""
    one = gang(count=1).does(asks("app-1 r1 memory=10 group=g"))
    one.told()
    assert one.does(nodes("n1", action=NODE_DECOMMISSION)).told() == ["p1 released (STOPPED_BY_RM: Node n1 Removed)"]
    assert one.app("app-1").requests["r1"].held is False
    assert one.does(nodes("n2 memory=10")).told() == ["node n2 accepted", "r1 on n2"]


def test_when_the_node_of_the_real_ask_goes_it_waits_again_and_its_placeholder_still_goes() -> None:
    """Case b, another node; what is left behind is a plain removal once the RM confirms."""
    one = swapping_elsewhere(1)
    assert one.does(nodes("n2", action=NODE_DECOMMISSION)).told() == []
    assert one.app("app-1").requests["r1"].held
    assert one.app("app-1").allocations["p1"].released
    assert one.does(CONFIRM_P1).told() == [
        "note: release of p1: nothing takes its place, it is removed",
        "p1 released (STOPPED_BY_RM: allocation remove as per RM request)",
    ]
    assert one.does(nodes("n3 memory=10")).told() == ["node n3 accepted", "r1 on n3"]


def test_an_application_that_completed_runs_again_when_its_swap_cannot_be() -> None:
    one = swapping_elsewhere(1).does(asks("app-1 a1 memory=1"), released("app-1 a1"))
    assert one.app("app-1").state is AppState.COMPLETING
    one.told()
    assert one.does(nodes("n2", action=NODE_DECOMMISSION)).told() == ["app-1 Running"]


# History (spec 9) ---------------------------------------------------------------------------------------------------


def history(one: Trial) -> list[tuple[int, int, int, str]]:
    """Kind, change, detail and reference of what was added to the history since this was asked last, states left out,
    users and queues too.
    """
    kinds = (event_codes.APP, event_codes.NODE, event_codes.REQUEST)
    return [
        (event.kind, event.change, event.detail, event.reference_id)
        for event in one.partition.drain_events()
        if event.kind in kinds and event.change != event_codes.SET
    ]


REPLACED = (event_codes.APP, event_codes.REMOVE, event_codes.ALLOC_REPLACED, "p1")
ADDED = (event_codes.APP, event_codes.ADD, event_codes.APP_ALLOC, "r1")
CANCELLED = (event_codes.APP, event_codes.REMOVE, event_codes.REQUEST_CANCEL, "p1")


def test_the_history_of_a_node_does_not_tell_of_a_swap_on_it() -> None:
    one = gang().does(asks("app-1 r1 memory=10 group=g"))
    history(one)
    one.does(CONFIRM_P1)
    assert history(one) == [REPLACED, ADDED, CANCELLED]


def test_the_history_of_nodes_tells_of_a_swap_between_them() -> None:
    one = gang().does(nodes("n2 memory=50"))
    history(one)
    one.does(SOON_ELSEWHERE)
    assert history(one)[-1] == (event_codes.NODE, event_codes.ADD, event_codes.NODE_ALLOC, "r1")
    one.does(CONFIRM_P1)
    left = (event_codes.NODE, event_codes.REMOVE, event_codes.NODE_ALLOC, "p1")
    assert history(one) == [REPLACED, left, ADDED, CANCELLED]


def test_the_history_tells_of_placeholders_that_do_not_match() -> None:
    one = gang(count=1)
    history(one)
    one.does(asks("app-1 r1 memory=11 group=g"))
    assert (event_codes.REQUEST, event_codes.NONE, event_codes.DETAILS_NONE, "app-1") in history(one)


# Gangs ----------------------------------------------------------------------------------------------------------------


LET_GO = "(TIMEOUT: releasing allocated placeholders on placeholder timeout)"
NEVER_HAD = "(TIMEOUT: releasing pending placeholders on placeholder timeout)"
DONE = "(TIMEOUT: releasing placeholders on app complete)"


def submit_gang(*more: str, size: int = 30, style: str = "Soft", app: str = "timeout=4000") -> Trial:
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
    one = submit_gang()
    assert one.app("app-1").state is AppState.ACCEPTED
    assert one.does(nodes("n2 memory=10")).told() == ["node n2 accepted", "app-1 Running", "p3 on n2"]


def test_a_gang_whose_placeholders_the_rm_reports_runs_as_well() -> None:
    one = Trial().does(nodes("n1 memory=20"), apps("app-1 root.a gang=memory:20"))
    one.told()
    one.does(*(asks(f"app-1 p{number} memory=10 placeholder group=g on=n1") for number in (1, 2)))
    assert one.told() == ["app-1 Accepted", "p1 on n1", "app-1 Running", "p2 on n1"]


def test_a_real_allocation_lets_it_run_before_the_gang_is_complete() -> None:
    one = submit_gang(size=20, app="timeout=4000").does(asks("app-1 p3 memory=10 placeholder group=g"))
    assert one.app("app-1").state is AppState.RUNNING
    other = submit_gang().does(nodes("n2 memory=5"), asks("app-1 a1 memory=5"))
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
    one = submit_gang().waits(4)
    messages = [getattr(effect.part, "message", "") for effect in one.effects]
    assert "ResourceReservationTimeout" in messages


def test_a_hard_gang_fails_once_everything_is_gone() -> None:
    one = submit_gang(style="Hard")
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
    one = submit_gang(style="Hard").waits(4)
    one.told()
    for text in ("app-1 a1 memory=1", "app-1 a1 memory=1 on=n1"):
        assert one.does(asks(text)).told() == ["a1 rejected: application app-1 is failing, it takes nothing more"]


@pytest.mark.parametrize("kind", ["STOPPED_BY_RM", "PREEMPTED_BY_SCHEDULER"])
def test_a_failing_application_has_failed_however_its_last_allocations_go(kind: str) -> None:
    one = submit_gang(style="Hard").waits(4).does(released(f"app-1 type={kind}"))
    assert one.told()[4] == "app-1 Failed"
    other = submit_gang(style="Hard").waits(4).does(nodes("n1", action=NODE_DECOMMISSION))
    assert other.told()[4] == "app-1 Failed"


def test_a_soft_gang_brings_its_swaps_to_an_end() -> None:
    one = submit_gang().does(asks("app-1 r1 memory=10 group=g"))
    one.told()
    assert one.waits(4).told() == ["app-1 Resuming", f"p2 released {LET_GO}", f"p3 released {NEVER_HAD}"]
    assert one.does(released("app-1 p1 type=PLACEHOLDER_REPLACED")).told() == ["r1 on n1"]
    assert one.does(released("app-1 p2 type=TIMEOUT")).told() == ["app-1 Accepted"]
    assert one.app("app-1").allocated == {"memory": 10}


def test_a_hard_gang_has_no_use_for_its_swaps() -> None:
    one = submit_gang(style="Hard").does(asks("app-1 r1 memory=10 group=g"))
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


def half_a_gang(style: str, *, other: int = 10) -> Trial:
    """A gang of 20 that has room for one placeholder, which is replaced; nothing else is placed."""
    one = Trial().does(nodes("n1 memory=10"), apps(f"app-1 root.a gang=memory:20 style={style} timeout=4000"))
    one.does(asks("app-1 p1 memory=10 placeholder group=g"), asks(f"app-1 p2 memory={other} placeholder group=g"))
    one.does(asks("app-1 r1 memory=10 group=g"))
    one.waits(1).does(released("app-1 p1 type=PLACEHOLDER_REPLACED"))
    assert (one.app("app-1").state, one.running) == (AppState.ACCEPTED, ["r1 on n1"])
    one.told()
    return one


def test_a_hard_gang_whose_only_placeholder_was_replaced_times_out() -> None:
    one = half_a_gang("Hard")
    assert one.waits(2.9).told() == []
    assert one.waits(0.1).told() == ["app-1 Failing", f"r1 released {LET_GO}", f"p2 released {NEVER_HAD}"]
    assert one.does(released("app-1 r1 type=TIMEOUT")).told() == ["app-1 Failed"]


def test_a_soft_gang_whose_only_placeholder_was_replaced_keeps_what_runs() -> None:
    one = half_a_gang("Soft")
    assert one.waits(1000).told() == []


def test_a_gang_that_got_its_last_placeholder_after_the_first_was_replaced_is_complete() -> None:
    one = half_a_gang("Hard").does(nodes("n2 memory=10"))
    assert one.told() == ["node n2 accepted", "p2 on n2"]
    assert one.waits(3).told() == ["app-1 Running", f"p2 released {LET_GO}"]


def test_the_timeout_of_an_incomplete_gang_ends_with_its_last_allocation_and_when_it_runs() -> None:
    one = half_a_gang("Hard", other=30)
    one.does(released("app-1 r1"))
    assert "placeholders" not in one.app("app-1").alarms
    other = half_a_gang("Hard", other=30).does(nodes("n2 memory=9"))
    other.does(asks("app-1 a1 memory=9"))
    assert other.app("app-1").state is AppState.RUNNING
    assert "placeholders" not in other.app("app-1").alarms


def test_a_gang_that_runs_keeps_running_and_loses_what_it_did_not_use() -> None:
    one = submit_gang(size=20).does(asks("app-1 r1 memory=10 group=g"))
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
    one = submit_gang().does(released("app-1 p1"), released("app-1 p2"), released("app-1 p3")).waits(10)
    assert AppState.RESUMING not in [state for _, state in one.app("app-1").state_log]


def test_time_begins_anew_when_the_only_placeholder_could_not_be_started() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a gang=memory:20 timeout=4000"))
    one.does(asks("app-1 p1 memory=10 placeholder group=g", "app-1 p2 memory=10 placeholder group=g")).waits(3)
    one.does(released("app-1 p1 type=SCHEDULING_FAILED_ON_RM")).waits(3)
    assert one.app("app-1").state is AppState.ACCEPTED
    assert one.waits(1).app("app-1").state is AppState.RESUMING


def test_a_gang_may_run_out_of_time_again() -> None:
    one = submit_gang().waits(4).does(released("app-1 p1 type=TIMEOUT"), released("app-1 p2 type=TIMEOUT"))
    one.does(asks("app-1 p4 memory=10 placeholder group=g"))
    one.told()
    assert one.waits(4).told() == ["app-1 Resuming", f"p4 released {LET_GO}"]


def test_a_real_allocation_while_it_resumes_is_accepted_first_and_the_next_one_runs() -> None:
    one = submit_gang().waits(4).does(nodes("n2 memory=20"))
    one.told()
    assert one.does(asks("app-1 a1 memory=5")).told() == ["app-1 Accepted", "a1 on n2"]
    assert one.does(asks("app-1 a2 memory=5")).told() == ["app-1 Running", "a2 on n2"]


def test_everything_may_be_released_while_it_resumes() -> None:
    one = submit_gang().waits(4)
    one.told()
    assert one.does(released("app-1")).told()[:2] == ["app-1 Accepted", "app-1 Completing"]


@pytest.mark.parametrize("style", ["Soft", "Hard"])
def test_one_that_is_removed_while_it_resumes_or_fails_enters_no_other_state(style: str) -> None:
    one = submit_gang(style=style).waits(4)
    one.told()
    removed = "released (STOPPED_BY_RM: Application app-1 Removed)"
    assert one.does(gone("app-1")).told() == [f"p1 {removed}", f"p2 {removed}"]
    assert (one.partition.applications, one.partition.ended) == ({}, {})


def test_it_may_be_killed_while_it_resumes_or_fails() -> None:
    for style in ("Soft", "Hard"):
        one = submit_gang(style=style).waits(4).kills("app-1")
        assert "app-1 Failed" in one.told()
        assert one.running == []


# Completing ---------------------------------------------------------------------------------------------------------


def completing() -> Trial:
    one = submit_gang("app-1 a1 memory=10", size=10, app="timeout=100000")
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
    told = [effect.part for effect in one.partition.retire(one.now) if not isinstance(effect.part, LogLine)]
    assert [getattr(part, "state", "released") for part in told][:2] == ["Completed", "released"]


def test_an_ask_brings_it_back_while_it_waits_for_placeholders_to_go() -> None:
    one = completing().waits(30)
    one.told()
    assert one.does(asks("app-1 a2 memory=10")).told() == ["app-1 Running", "a2 on n1"]
    assert one.does(released("app-1 p1 type=TIMEOUT")).told() == []


def test_the_time_of_the_gang_may_end_while_it_completes() -> None:
    one = submit_gang("app-1 a1 memory=10", size=10).does(released("app-1 a1"))
    one.told()
    assert one.waits(4).told() == [f"p1 released {LET_GO}"]
    assert one.waits(26).told() == []
    assert one.does(released("app-1 p1 type=TIMEOUT")).told() == ["app-1 Completed"]


# The end of asks and allocations (spec 2, rules 5 to 8) ---------------------------------------------------------------


def test_taking_back_the_last_ask_does_not_complete_an_application_that_has_placeholders() -> None:
    one = submit_gang().does(released("app-1 p3"))
    assert one.told() == []
    assert one.does(released("app-1 p1")).told() == ["p1 released (STOPPED_BY_RM: allocation remove as per RM request)"]
    assert one.does(released("app-1 p2")).told()[0] == "app-1 Completing"


def test_an_application_counts_for_its_user_while_it_resumes() -> None:
    """Spec 2, rule 7: it is not forgotten then."""
    one = submit_gang().waits(4).does(released("app-1 p1 type=TIMEOUT"), released("app-1 p2 type=TIMEOUT"))
    account = one.partition.usage.accounts.get(one.app("app-1").rank)
    assert account is not None
    assert account.counted


def test_an_allocated_placeholder_that_is_resized_stays_a_placeholder() -> None:
    """Spec 8.2.3."""
    one = submit_gang(size=10).does(asks("app-1 p1 memory=12 placeholder group=g"))
    app = one.app("app-1")
    assert (app.allocated, app.allocated_placeholder) == ({}, {"memory": 12})
    assert one.does(released("app-1 p1")).told()[0] == "app-1 Completing"


# Placeholders ---------------------------------------------------------------------------------------------------------


def trial(queues: str = "root.a") -> Trial:
    one = Trial(queues).does(nodes("n1 memory=100"), apps("app-1 root.a"))
    one.told()
    return one


def group(one: Trial, name: str = "g") -> TaskGroup:
    return one.app("app-1").task_groups[name]


def counts(one: Trial) -> tuple[int, int, int]:
    return group(one).count, group(one).replaced, group(one).timed_out


def test_each_placeholder_is_counted_once_asked_for_or_reported() -> None:
    one = trial().does(asks("app-1 p1 memory=5 placeholder group=g", "app-1 p2 memory=500 placeholder group=g"))
    one.does(asks("app-1 p3 memory=7 placeholder group=g on=n1", "app-1 p1 memory=5 placeholder group=g"))
    assert counts(one) == (3, 0, 0)
    assert group(one).minimum == {"memory": 5}, "that of the first"
    assert set(group(one).free) == {"p1", "p3"}


def test_a_placeholder_that_the_rm_places_itself_is_counted_once() -> None:
    one = trial().does(asks("app-1 p2 memory=500 placeholder group=g"))
    assert one.does(asks("app-1 p2 memory=500 placeholder group=g on=n1")).told()[-1] == "p2 on n1"
    assert counts(one) == (1, 0, 0)


def test_what_goes_without_being_replaced_has_timed_out() -> None:
    one = trial().does(asks(*(f"app-1 p{number} memory=5 placeholder group=g" for number in range(5))))
    for number, kind in enumerate(("STOPPED_BY_RM", "TIMEOUT", "PREEMPTED_BY_SCHEDULER", "PLACEHOLDER_REPLACED")):
        one.does(released(f"app-1 p{number} type={kind}"))
    assert counts(one) == (5, 0, 4)


def test_real_asks_that_came_before_the_placeholders_wait_for_them_too() -> None:
    one = trial().takes(asks("app-1 r1 memory=5 group=g", "app-1 p1 memory=5 placeholder group=g", "app-1 r2 memory=5"))
    one.settles()
    assert one.told() == [
        "app-1 Accepted",
        "p1 on n1",
        "p1 released (PLACEHOLDER_REPLACED: replacing allocationKey: r1)",
        "app-1 Running",
        "r2 on n1",
    ]


def test_a_group_without_placeholders_is_no_group() -> None:
    assert trial().does(asks("app-1 r1 memory=5 group=g")).told()[-1] == "r1 on n1"


def test_more_real_asks_than_placeholders_wait_until_the_last_was_replaced() -> None:
    """Spec 4.5 step 2: the count of a group is what decides, not what is left of it."""
    one = trial().does(asks("app-1 p1 memory=5 placeholder group=g"))
    one.does(asks("app-1 r1 memory=5 group=g", "app-1 r2 memory=5 group=g"))
    one.told()
    assert one.app("app-1").requests["r2"].held
    confirmed = one.does(released("app-1 p1 type=PLACEHOLDER_REPLACED"))
    assert confirmed.told() == ["r1 on n1", "app-1 Running", "r2 on n1"]


def test_another_placeholder_makes_real_asks_wait_again() -> None:
    one = trial().does(asks("app-1 r1 memory=500 group=g"))
    assert not one.app("app-1").requests["r1"].held
    one.does(asks("app-1 p1 memory=600 placeholder group=g"))
    assert one.app("app-1").requests["r1"].held
    one.does(released("app-1 p1"))
    assert not one.app("app-1").requests["r1"].held
    assert group(one).waiting == 0


def test_a_placeholder_that_is_no_longer_asked_for_does_not_keep_anybody_waiting() -> None:
    one = trial().does(asks("app-1 p1 memory=500 placeholder group=g", "app-1 r1 memory=5 group=g"))
    one.told()
    assert one.does(released("app-1 p1")).told() == ["app-1 Running", "r1 on n1"]
    assert counts(one) == (1, 0, 1)


def test_an_ask_that_waits_for_a_placeholder_does_not_hold_up_others() -> None:
    one = trial().does(asks("app-1 p1 memory=500 placeholder group=g", "app-1 r1 memory=5 group=g priority=9"))
    one.told()
    assert one.does(asks("app-1 a1 memory=5")).told() == ["app-1 Running", "a1 on n1"]


def test_an_ask_for_which_a_node_is_kept_gives_it_up_for_a_placeholder() -> None:
    one = trial().does(nodes("n2 memory=100"), apps("app-2 root.a"), asks("app-2 b1 memory=90", "app-2 b2 memory=90"))
    one.does(asks("app-1 r1 memory=15 group=g")).waits(3)
    assert one.app("app-1").reservations
    one.told()
    one.does(asks("app-1 p1 memory=15 placeholder group=g on=n1"))
    assert one.told()[-1] == "p1 released (PLACEHOLDER_REPLACED: replacing allocationKey: r1)"
    assert not one.app("app-1").reservations
    assert not one.node("n1").reservations


def test_a_resized_ask_is_compared_with_placeholders_anew() -> None:
    one = trial().does(asks("app-1 p1 memory=5 placeholder group=g"), asks("app-1 r1 memory=5 group=g"))
    assert one.app("app-1").swapping
    two = trial().does(asks("app-1 p1 memory=500 placeholder group=g", "app-1 r1 memory=6 group=g"))
    two.does(asks("app-1 r1 memory=4 group=g"), asks("app-1 p2 memory=5 placeholder group=g"))
    assert two.told()[-1] == "p2 released (PLACEHOLDER_REPLACED: replacing allocationKey: r1)"


# Queues of gangs ------------------------------------------------------------------------------------------------------


def objections(queues: str, **gang: int) -> str:
    return gang_objection(Trial(queues).queue("root.a.b"), "app-1", gang)


def test_without_placeholders_any_leaf_will_do() -> None:
    fair = "root.a.b application.sort.policy=fair max=memory:1"
    assert objections(fair) == ""
    assert objections(fair, memory=0) == ""
    assert objections(fair, memory=10, vcore=-1) == ""


def test_the_leaf_is_sorted_first_in_first_out() -> None:
    assert objections("root.a.b", memory=10) == ""
    assert objections("root.a.b application.sort.policy=stateaware", memory=10) == ""
    assert objections("root.a.b application.sort.policy=fair", memory=10) == (
        "queue root.a.b cannot run application app-1 with task group request: unsupported sort type"
    )


@pytest.mark.parametrize(
    ("queues", "most"),
    [
        ("root.a.b max=memory:9", "map[memory:9]"),
        ("root.a max=memory:9; root.a.b", "map[memory:9]"),
        ("root.a max=memory:9,gpu:4; root.a.b max=memory:20,gpu:5", "map[gpu:4 memory:9]"),
    ],
)
def test_it_fits_what_the_queues_of_the_path_may_ever_have(queues: str, most: str) -> None:
    assert objections(queues, memory=9, vcore=100) == ""
    assert objections(queues, memory=10, vcore=100) == (
        "queue root.a.b cannot fit application app-1: "
        f"task group request map[memory:10 vcore:100] larger than max queue allocation {most}"
    )
