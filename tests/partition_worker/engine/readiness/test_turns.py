"""Leaves that let one application at a time begin to run."""

import pytest

from common.rm_messages import AllocationRequest
from partition_worker.engine.applications.states import AppState
from tests.builders import apps, asks, gone, nodes, released
from tests.trial import START_S, Trial

AWARE = "root.a application.sort.policy=stateaware"
STARTING_S = 300


def trial(queues: str = AWARE, *, memory: int = 100) -> Trial:
    """Three applications in root.a, which came one after the other; nothing is asked for yet."""
    one = Trial(queues).takes(nodes(f"n1 memory={memory}"))
    for name in ("app-1", "app-2", "app-3"):
        one.takes(apps(f"{name} root.a"))
    one.told()
    return one


def states(one: Trial) -> list[str]:
    return [one.app(name).state for name in ("app-1", "app-2", "app-3")]


# Starting (design, 9) -------------------------------------------------------------------------------------------------


def test_the_first_allocation_starts_an_application_and_the_second_one_lets_it_run() -> None:
    one = trial().does(asks("app-1 a1 memory=1"))
    assert one.told() == ["app-1 Accepted", "app-1 Starting", "a1 on n1"]
    one.does(asks("app-1 a2 memory=1"))
    assert one.told() == ["app-1 Running", "a2 on n1"]


def test_after_five_minutes_it_runs_without_a_second_one() -> None:
    one = trial().does(asks("app-1 a1 memory=1"))
    assert one.waits(STARTING_S - 0.1).app("app-1").state is AppState.STARTING
    assert one.waits(0.1).app("app-1").state is AppState.RUNNING


def test_the_five_minutes_end_with_the_second_allocation() -> None:
    one = trial().does(asks("app-1 a1 memory=1")).waits(200).does(asks("app-1 a2 memory=1"))
    one.told()
    assert one.waits(200).told() == []


@pytest.mark.parametrize(("tag", "state"), [("true", "Running"), ("TRUE", "Running"), ("no", "Starting")])
def test_a_tag_skips_it(tag: str, state: str) -> None:
    one = trial().takes(apps(f"app-4 root.a tag.application.stateaware.disable={tag}"))
    assert one.does(asks("app-4 d1 memory=1")).app("app-4").state == state


@pytest.mark.parametrize("policy", ["fifo", "fair", "StateAware"])
def test_in_all_other_queues_applications_go_straight_to_running(policy: str) -> None:
    one = trial(f"root.a application.sort.policy={policy}").does(asks("app-1 a1 memory=1", "app-2 b1 memory=1"))
    assert states(one)[:2] == ["Running", "Running"]


def test_what_an_rm_reports_as_running_starts_its_application_too() -> None:
    one = trial().does(asks("app-1 a1 memory=1 on=n1", "app-2 b1 memory=1 on=n1", "app-2 b2 memory=1 on=n1"))
    assert states(one)[:2] == ["Starting", "Running"]


def test_one_that_is_starting_has_started_and_does_not_start_again_when_it_runs() -> None:
    one = trial().does(asks("app-1 a1 memory=1")).waits(10).does(asks("app-1 a2 memory=1"))
    assert one.app("app-1").started_ns // 10**9 == int(START_S)


def test_one_that_is_starting_completes_and_comes_back_as_one_that_runs() -> None:
    one = trial().does(asks("app-1 a1 memory=1"), released("app-1 a1"))
    assert one.app("app-1").state is AppState.COMPLETING
    assert one.does(asks("app-1 a2 memory=1")).app("app-1").state is AppState.RUNNING


def test_one_that_is_starting_counts_as_running_for_the_limit_of_its_queues() -> None:
    one = trial(f"root maxapps=1; {AWARE}; root.b").takes(apps("app-4 root.b"))
    one.does(asks("app-1 a1 memory=1"), asks("app-4 d1 memory=1"))
    assert one.placed() == ["a1 on n1"]
    assert [one.queue(path).running for path in ("root.a", "root")] == [1, 1]
    one.does(asks("app-1 a2 memory=1"))
    assert [one.queue(path).running for path in ("root.a", "root")] == [1, 1]
    assert one.does(gone("app-1")).placed()[-1] == "d1 on n1"


# Whose turn it is -----------------------------------------------------------------------------------------------------


def test_while_one_is_starting_no_other_one_begins_and_then_the_next() -> None:
    one = trial().does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"), asks("app-3 c1 memory=1"))
    assert one.placed() == ["a1 on n1"]
    one.does(asks("app-1 a2 memory=1"))
    assert one.placed() == ["a2 on n1", "b1 on n1"]
    one.waits(STARTING_S)
    assert one.placed() == ["c1 on n1"]
    assert states(one) == ["Running", "Running", "Starting"]


def test_one_that_is_starting_holds_others_up_without_asking_for_anything() -> None:
    one = trial().does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
    assert not one.app("app-1").requests
    assert one.waits(STARTING_S - 1).app("app-2").state is AppState.ACCEPTED


def test_those_that_run_are_served_whoever_is_starting() -> None:
    one = trial().does(asks("app-1 a1 memory=1", "app-1 a2 memory=1"), asks("app-2 b1 memory=1"))
    one.does(asks("app-1 a3 memory=1"))
    assert one.placed() == ["a1 on n1", "a2 on n1", "b1 on n1", "a3 on n1"]


def test_the_order_is_that_of_submission() -> None:
    one = trial().takes(asks("app-3 c1 memory=1"), asks("app-2 b1 memory=1"), asks("app-1 a1 memory=1"))
    one.settles()
    assert one.placed() == ["a1 on n1"]


def test_only_the_first_of_those_that_wait_to_begin_is_tried_even_if_it_does_not_fit() -> None:
    one = trial(memory=10).does(asks("app-1 a1 memory=11"), asks("app-2 b1 memory=1"))
    assert one.placed() == []
    assert one.does(released("app-1 a1")).placed() == ["b1 on n1"]


def test_one_that_asks_for_nothing_lets_the_next_one_begin() -> None:
    assert trial().does(asks("app-2 b1 memory=1")).placed() == ["b1 on n1"]


@pytest.mark.parametrize("how", ["removed", "killed", "completed"])
def test_when_the_one_that_is_starting_goes_the_next_one_begins(how: str) -> None:
    one = trial().does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
    one.told()
    match how:
        case "removed":
            one.does(gone("app-1"))
        case "killed":
            one.kills("app-1")
        case _:
            one.does(released("app-1 a1"))
    assert one.placed()[-1] == "b1 on n1"


def test_when_the_one_that_waits_first_goes_the_next_one_begins() -> None:
    one = trial(memory=10).does(asks("app-1 a1 memory=11"), asks("app-2 b1 memory=1"))
    assert one.does(gone("app-1")).placed()[-1] == "b1 on n1"


def test_one_that_comes_to_stand_before_it_takes_the_turn() -> None:
    one = trial(memory=10).does(asks("app-1 a1 memory=11"), asks("app-2 b1 memory=1"))
    assert one.does(asks("app-2 b2 memory=2 priority=5")).placed() == ["b2 on n1", "b1 on n1"]


def test_the_turn_comes_back_to_one_that_was_set_aside() -> None:
    one = trial(memory=10).does(asks("app-1 a1 memory=10 on=n1", "app-1 a2 memory=1"), asks("app-2 b1 memory=6"))
    assert states(one)[:2] == ["Starting", "Accepted"]
    one.told()
    one.does(released("app-1 a1"))
    assert one.placed() == ["a2 on n1", "b1 on n1"]


def test_each_leaf_has_its_own_turn() -> None:
    one = trial(f"{AWARE}; root.b application.sort.policy=stateaware").takes(apps("app-4 root.b"))
    one.does(asks("app-1 a1 memory=1"), asks("app-4 d1 memory=1"))
    assert one.placed() == ["a1 on n1", "d1 on n1"]


def test_what_only_runs_because_it_ran_before_holds_nobody_up() -> None:
    """Two that are Starting, as an RM reports what runs: both go on, and others wait for both."""
    one = trial().does(asks("app-1 a1 memory=1 on=n1", "app-2 b1 memory=1 on=n1"), asks("app-3 c1 memory=1"))
    one.told()
    one.does(asks("app-2 b2 memory=1"))
    assert one.placed() == ["b2 on n1"]
    one.does(asks("app-1 a2 memory=1"))
    assert one.placed() == ["a2 on n1", "c1 on n1"]


# Moves and configurations ---------------------------------------------------------------------------------------------


def test_one_that_is_starting_runs_as_soon_as_it_is_moved_where_states_do_not_count() -> None:
    one = trial(f"{AWARE}; root.b").does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
    one.told()
    one.moves("app-1", "root.b")
    assert one.app("app-1").state is AppState.RUNNING
    assert one.placed() == ["b1 on n1"]
    assert one.waits(STARTING_S).app("app-1").state is AppState.RUNNING


def test_one_that_is_moved_to_where_states_count_waits_for_its_turn() -> None:
    one = trial(f"{AWARE}; root.b max=memory:1").takes(apps("app-4 root.b"))
    one.does(asks("app-4 d1 memory=2"), asks("app-1 a1 memory=1"))
    one.told()
    one.moves("app-4", "root.a")
    assert one.placed() == []
    assert one.waits(STARTING_S).placed() == ["d1 on n1"]


def test_a_queue_that_becomes_aware_of_states_leaves_those_that_run_alone() -> None:
    one = trial("root.a").does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1")).reconfigures(AWARE)
    assert states(one)[:2] == ["Running", "Running"]
    one.does(asks("app-3 c1 memory=1"))
    assert one.app("app-3").state is AppState.STARTING


def test_when_a_queue_is_no_longer_aware_of_states_all_go_on_at_once() -> None:
    one = trial().does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"), asks("app-3 c1 memory=1"))
    one.told()
    one.reconfigures("root.a")
    assert states(one) == ["Running", "Running", "Running"]
    assert one.placed() == ["b1 on n1", "c1 on n1"]


def test_a_queue_that_is_gone_is_forgotten() -> None:
    one = trial().does(asks("app-1 a1 memory=1")).reconfigures("root.b")
    one.does(gone("app-1", "app-2", "app-3")).waits(30)
    assert one.partition.tree.find("root.a") is None


# Gangs ----------------------------------------------------------------------------------------------------------------


def gangs(memory: int) -> Trial:
    """Two gangs, each of two placeholders with 4 of memory; nothing is asked for yet."""
    one = Trial(AWARE).takes(nodes(f"n1 memory={memory}"))
    one.takes(apps("app-1 root.a gang=memory:8"), apps("app-2 root.a gang=memory:8"))
    one.told()
    return one


def placeholders(application: str, *keys: str, priority: int = 0) -> AllocationRequest:
    return asks(*(f"{application} {key} memory=4 priority={priority} placeholder group=g" for key in keys))


def test_a_gang_starts_with_its_last_placeholder_and_runs_with_its_second_real_allocation() -> None:
    one = gangs(memory=40).does(placeholders("app-1", "p1", "p2"))
    assert one.app("app-1").state is AppState.STARTING
    one.does(asks("app-1 r1 memory=4 group=g"), released("app-1 p1 type=PLACEHOLDER_REPLACED"))
    assert one.app("app-1").state is AppState.STARTING
    one.does(asks("app-1 r2 memory=4 group=g"), released("app-1 p2 type=PLACEHOLDER_REPLACED"))
    assert one.app("app-1").state is AppState.RUNNING


def test_the_next_gang_waits_until_the_first_one_runs() -> None:
    one = gangs(memory=40).does(placeholders("app-1", "p1", "p2"), placeholders("app-2", "q1", "q2"))
    assert one.placed() == ["p1 on n1", "p2 on n1"]
    assert one.waits(STARTING_S).placed() == ["q1 on n1", "q2 on n1"]


def test_a_gang_that_has_a_placeholder_keeps_its_turn_against_who_would_stand_before_it() -> None:
    one = gangs(memory=7).does(placeholders("app-1", "p1", "p2"), placeholders("app-2", "q1", "q2", priority=9))
    assert one.placed() == ["p1 on n1"]
    one.does(nodes("n2 memory=4"))
    assert one.placed() == ["p2 on n2"]


def test_a_gang_that_gives_its_placeholders_up_passes_the_turn_on_and_waits_for_it_again() -> None:
    one = gangs(memory=7).does(placeholders("app-1", "p1", "p2"), asks("app-2 b1 memory=4"))
    one.waits(900)
    assert one.app("app-1").state is AppState.RESUMING
    one.does(released("app-1 p1 type=TIMEOUT"))
    assert one.app("app-1").state is AppState.ACCEPTED
    assert one.placed()[-1] == "b1 on n1"
    one.does(nodes("n2 memory=9"), asks("app-1 a1 memory=5"))
    assert (one.app("app-1").state, one.app("app-2").state) == (AppState.ACCEPTED, AppState.STARTING)
    assert one.waits(STARTING_S).app("app-1").state is AppState.STARTING


def test_placeholders_that_a_starting_gang_does_not_use_are_let_go_in_time() -> None:
    one = gangs(memory=40).does(placeholders("app-1", "p1", "p2"))
    one.partition.timers.start(one.app("app-1"), "placeholders", one.now + 100)  # sooner than five minutes
    one.told()
    assert [text.split(" (")[0] for text in one.waits(100).told()] == ["p1 released", "p2 released"]
    assert one.app("app-1").state is AppState.STARTING
