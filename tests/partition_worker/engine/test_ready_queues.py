"""What is set aside when it cannot be placed, and what brings it back."""

from collections.abc import Callable

import pytest

from tests.builders import apps, asks, config, gone, nodes, released
from tests.trial import START_S, Trial
from yunishard.common.messages.rm_messages import NODE_CREATE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE, AllocationRequest
from yunishard.partition_worker.engine import queue_traversal, ready_queues
from yunishard.partition_worker.engine.allocation import AskShape
from yunishard.partition_worker.engine.amounts import Amounts, sum_of
from yunishard.partition_worker.engine.application import Application, AppState
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.nodes.nodes import Nodes
from yunishard.partition_worker.engine.queue_traversal import Attempt
from yunishard.partition_worker.engine.ready_queues import Readiness, SwapCandidates


def full(queues: str = "root.a", *, applications: int = 3) -> Trial:
    """A node of 2, taken by app-0, and applications that wait for 2 each."""
    one = Trial(queues).does(nodes("n1 memory=2"), apps("app-0 root.a"), asks("app-0 first memory=2"))
    for number in range(1, applications + 1):
        one.does(apps(f"app-{number} root.a"), asks(f"app-{number} a{number} memory=2"))
    one.told()
    return one


def tried(one: Trial, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the applications that are tried from now on."""
    seen: list[str] = []
    decide = Attempt.decide

    def noted(attempt: Attempt) -> object:
        seen.append(attempt.application.application_id)
        return decide(attempt)

    monkeypatch.setattr(Attempt, "decide", noted)
    return seen


def test_of_those_that_wait_for_the_same_only_the_first_is_tried_when_something_is_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = full(applications=60)
    seen = tried(one, monkeypatch)
    one.does(released("app-0 first"))
    assert one.placed() == ["a1 on n1"]
    assert len(seen) <= 2


def test_the_next_one_comes_back_when_the_first_got_something() -> None:
    one = full(applications=3).does(nodes("n2 memory=4"))
    assert one.placed() == ["a1 on n2", "a2 on n2"]


def test_nothing_is_tried_when_what_was_freed_helps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    one = full()
    seen = tried(one, monkeypatch)
    one.does(nodes("n2 memory=1"))
    assert (one.placed(), seen) == ([], [])


def test_a_new_ask_is_tried_beside_those_that_wait() -> None:
    one = full().does(nodes("n2 memory=1"), asks("app-3 small memory=1"))
    assert one.placed() == ["small on n2"]


def test_an_application_is_found_under_each_of_its_needs() -> None:
    one = full().does(asks("app-1 big memory=9"))
    assert one.placed() == []
    one.does(nodes("n2 memory=9"))
    assert one.placed() == ["a1 on n2", "a2 on n2", "a3 on n2"]
    one.does(released("app-1 a1"), released("app-2 a2"), released("app-3 a3"))
    assert one.placed() == ["big on n2"]


def test_room_in_the_queue_brings_back_what_waited_for_it() -> None:
    one = Trial("root.a max=memory:2; root.b").does(nodes("n1 memory=9"), apps("app-1 root.a", "app-2 root.a"))
    one.does(asks("app-1 a1 memory=2"), asks("app-2 b1 memory=2"))
    assert one.placed() == ["a1 on n1"]
    one.does(released("app-1 a1"))
    assert one.placed() == ["b1 on n1"]


def test_those_held_by_the_number_of_applications_start_one_by_one_in_order() -> None:
    one = Trial("root.a maxapps=1").does(nodes("n1 memory=9"), apps("app-1 root.a", "app-2 root.a", "app-3 root.a"))
    one.does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"), asks("app-3 c1 memory=1 priority=5"))
    assert one.placed() == ["a1 on n1"]
    one.does(released("app-1 a1"))
    assert one.placed() == ["c1 on n1"]
    one.does(released("app-3 c1"))
    assert one.placed() == ["b1 on n1"]


def test_what_is_held_does_not_stand_in_the_way_of_what_runs_already() -> None:
    one = Trial("root.a maxapps=1").does(nodes("n1 memory=9"), apps("app-1 root.a", "app-2 root.a"))
    one.does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1 priority=9"), asks("app-1 a2 memory=1"))
    assert one.placed() == ["a1 on n1", "a2 on n1"]


def test_whoever_was_brought_back_and_is_set_aside_again_waits_for_the_next_relief() -> None:
    """Whatever an attempt and the readiness should ever disagree about, the cycle comes to an end."""
    one = full(applications=2).takes(released("app-0 first"))
    readiness, leaf = one.partition.readiness, one.queue("root.a")
    readiness.refresh()
    application = readiness.next_application(leaf)
    assert application is one.app("app-1")
    account, shape = one.partition.usage.account(application), application.requests["a1"].shape
    readiness.park_application(application, account, [(shape, False, 0, False)], {})
    assert readiness.next_application(leaf) is None
    readiness.retry_parked()
    assert readiness.next_application(leaf) is application


def test_a_need_that_nothing_has_room_for_costs_one_look_after_a_release_however_much_is_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Trial().does(nodes("n1 memory=20", "n2 memory=10", "n3 memory=100", action=NODE_CREATE_DRAIN))
    one.does(nodes("n1", "n2", action=NODE_DRAIN_TO_SCHEDULABLE))
    one.does(apps("app-0 root.a"), asks("app-0 first memory=19 on=n1", "app-0 second memory=9 on=n2"))
    for number in range(40):
        one.does(apps(f"app-{number + 1} root.a"), asks(f"app-{number + 1} large{number} memory={30 + number}"))
    for number in range(15):
        one.does(apps(f"small-{number} root.a"), asks(f"small-{number} s{number} memory={2 + number % 2}"))
    looks: list[Amounts] = []
    node_for = Nodes.node_for

    def noted(all_nodes: Nodes, shape: AskShape, application: Application | None = None) -> Node | None:
        looks.append(shape.amounts)
        return node_for(all_nodes, shape, application)

    monkeypatch.setattr(Nodes, "node_for", noted)
    one.takes(released("app-0 first"))
    while not one.partition.idle:
        one.partition.step(one.now, 100)
    assert sum(key.startswith("s") and " on n1" in key for key in one.running) >= 6
    large = [amounts for amounts in looks if dict(amounts)["memory"] >= 30]
    assert len(large) <= 2 * 40


AWARE = "root.a application.sort.policy=stateaware"
STARTING_S = 300


def state_aware_trial(queues: str = AWARE, *, memory: int = 100) -> Trial:
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
    one = state_aware_trial().does(asks("app-1 a1 memory=1"))
    assert one.told() == ["app-1 Accepted", "app-1 Starting", "a1 on n1"]
    one.does(asks("app-1 a2 memory=1"))
    assert one.told() == ["app-1 Running", "a2 on n1"]


def test_after_five_minutes_it_runs_without_a_second_one() -> None:
    one = state_aware_trial().does(asks("app-1 a1 memory=1"))
    assert one.waits(STARTING_S - 0.1).app("app-1").state is AppState.STARTING
    assert one.waits(0.1).app("app-1").state is AppState.RUNNING


def test_the_five_minutes_end_with_the_second_allocation() -> None:
    one = state_aware_trial().does(asks("app-1 a1 memory=1")).waits(200).does(asks("app-1 a2 memory=1"))
    one.told()
    assert one.waits(200).told() == []


@pytest.mark.parametrize(("tag", "state"), [("true", "Running"), ("TRUE", "Running"), ("no", "Starting")])
def test_a_tag_skips_it(tag: str, state: str) -> None:
    one = state_aware_trial().takes(apps(f"app-4 root.a tag.application.stateaware.disable={tag}"))
    assert one.does(asks("app-4 d1 memory=1")).app("app-4").state == state


@pytest.mark.parametrize("policy", ["fifo", "fair", "StateAware"])
def test_in_all_other_queues_applications_go_straight_to_running(policy: str) -> None:
    one = state_aware_trial(f"root.a application.sort.policy={policy}").does(
        asks("app-1 a1 memory=1", "app-2 b1 memory=1")
    )
    assert states(one)[:2] == ["Running", "Running"]


def test_what_an_rm_reports_as_running_starts_its_application_too() -> None:
    one = state_aware_trial().does(
        asks("app-1 a1 memory=1 on=n1", "app-2 b1 memory=1 on=n1", "app-2 b2 memory=1 on=n1")
    )
    assert states(one)[:2] == ["Starting", "Running"]


def test_one_that_is_starting_has_started_and_does_not_start_again_when_it_runs() -> None:
    one = state_aware_trial().does(asks("app-1 a1 memory=1")).waits(10).does(asks("app-1 a2 memory=1"))
    assert one.app("app-1").started_ns // 10**9 == int(START_S)


def test_one_that_is_starting_completes_and_comes_back_as_one_that_runs() -> None:
    one = state_aware_trial().does(asks("app-1 a1 memory=1"), released("app-1 a1"))
    assert one.app("app-1").state is AppState.COMPLETING
    assert one.does(asks("app-1 a2 memory=1")).app("app-1").state is AppState.RUNNING


def test_one_that_is_starting_counts_as_running_for_the_limit_of_its_queues() -> None:
    one = state_aware_trial(f"root maxapps=1; {AWARE}; root.b").takes(apps("app-4 root.b"))
    one.does(asks("app-1 a1 memory=1"), asks("app-4 d1 memory=1"))
    assert one.placed() == ["a1 on n1"]
    assert [one.queue(path).running for path in ("root.a", "root")] == [1, 1]
    one.does(asks("app-1 a2 memory=1"))
    assert [one.queue(path).running for path in ("root.a", "root")] == [1, 1]
    assert one.does(gone("app-1")).placed()[-1] == "d1 on n1"


# Whose turn it is -----------------------------------------------------------------------------------------------------


def test_while_one_is_starting_no_other_one_begins_and_then_the_next() -> None:
    one = state_aware_trial().does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"), asks("app-3 c1 memory=1"))
    assert one.placed() == ["a1 on n1"]
    one.does(asks("app-1 a2 memory=1"))
    assert one.placed() == ["a2 on n1", "b1 on n1"]
    one.waits(STARTING_S)
    assert one.placed() == ["c1 on n1"]
    assert states(one) == ["Running", "Running", "Starting"]


def test_one_that_is_starting_holds_others_up_without_asking_for_anything() -> None:
    one = state_aware_trial().does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
    assert not one.app("app-1").requests
    assert one.waits(STARTING_S - 1).app("app-2").state is AppState.ACCEPTED


def test_those_that_run_are_served_whoever_is_starting() -> None:
    one = state_aware_trial().does(asks("app-1 a1 memory=1", "app-1 a2 memory=1"), asks("app-2 b1 memory=1"))
    one.does(asks("app-1 a3 memory=1"))
    assert one.placed() == ["a1 on n1", "a2 on n1", "b1 on n1", "a3 on n1"]


def test_the_order_is_that_of_submission() -> None:
    one = state_aware_trial().takes(asks("app-3 c1 memory=1"), asks("app-2 b1 memory=1"), asks("app-1 a1 memory=1"))
    one.settles()
    assert one.placed() == ["a1 on n1"]


def test_only_the_first_of_those_that_wait_to_begin_is_tried_even_if_it_does_not_fit() -> None:
    one = state_aware_trial(memory=10).does(asks("app-1 a1 memory=11"), asks("app-2 b1 memory=1"))
    assert one.placed() == []
    assert one.does(released("app-1 a1")).placed() == ["b1 on n1"]


def test_one_that_asks_for_nothing_lets_the_next_one_begin() -> None:
    assert state_aware_trial().does(asks("app-2 b1 memory=1")).placed() == ["b1 on n1"]


@pytest.mark.parametrize("how", ["removed", "killed", "completed"])
def test_when_the_one_that_is_starting_goes_the_next_one_begins(how: str) -> None:
    one = state_aware_trial().does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
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
    one = state_aware_trial(memory=10).does(asks("app-1 a1 memory=11"), asks("app-2 b1 memory=1"))
    assert one.does(gone("app-1")).placed()[-1] == "b1 on n1"


def test_one_that_comes_to_stand_before_it_takes_the_turn() -> None:
    one = state_aware_trial(memory=10).does(asks("app-1 a1 memory=11"), asks("app-2 b1 memory=1"))
    assert one.does(asks("app-2 b2 memory=2 priority=5")).placed() == ["b2 on n1", "b1 on n1"]


def test_the_turn_comes_back_to_one_that_was_set_aside() -> None:
    one = state_aware_trial(memory=10).does(
        asks("app-1 a1 memory=10 on=n1", "app-1 a2 memory=1"), asks("app-2 b1 memory=6")
    )
    assert states(one)[:2] == ["Starting", "Accepted"]
    one.told()
    one.does(released("app-1 a1"))
    assert one.placed() == ["a2 on n1", "b1 on n1"]


def test_each_leaf_has_its_own_turn() -> None:
    one = state_aware_trial(f"{AWARE}; root.b application.sort.policy=stateaware").takes(apps("app-4 root.b"))
    one.does(asks("app-1 a1 memory=1"), asks("app-4 d1 memory=1"))
    assert one.placed() == ["a1 on n1", "d1 on n1"]


def test_what_only_runs_because_it_ran_before_holds_nobody_up() -> None:
    """Two that are Starting, as an RM reports what runs: both go on, and others wait for both."""
    one = state_aware_trial().does(
        asks("app-1 a1 memory=1 on=n1", "app-2 b1 memory=1 on=n1"), asks("app-3 c1 memory=1")
    )
    one.told()
    one.does(asks("app-2 b2 memory=1"))
    assert one.placed() == ["b2 on n1"]
    one.does(asks("app-1 a2 memory=1"))
    assert one.placed() == ["a2 on n1", "c1 on n1"]


# Moves and configurations ---------------------------------------------------------------------------------------------


def test_one_that_is_starting_runs_as_soon_as_it_is_moved_where_states_do_not_count() -> None:
    one = state_aware_trial(f"{AWARE}; root.b").does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
    one.told()
    one.moves("app-1", "root.b")
    assert one.app("app-1").state is AppState.RUNNING
    assert one.placed() == ["b1 on n1"]
    assert one.waits(STARTING_S).app("app-1").state is AppState.RUNNING


def test_one_that_is_moved_to_where_states_count_waits_for_its_turn() -> None:
    one = state_aware_trial(f"{AWARE}; root.b max=memory:1").takes(apps("app-4 root.b"))
    one.does(asks("app-4 d1 memory=2"), asks("app-1 a1 memory=1"))
    one.told()
    one.moves("app-4", "root.a")
    assert one.placed() == []
    assert one.waits(STARTING_S).placed() == ["d1 on n1"]


def test_a_queue_that_becomes_aware_of_states_leaves_those_that_run_alone() -> None:
    one = state_aware_trial("root.a").does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1")).reconfigures(AWARE)
    assert states(one)[:2] == ["Running", "Running"]
    one.does(asks("app-3 c1 memory=1"))
    assert one.app("app-3").state is AppState.STARTING


def test_when_a_queue_is_no_longer_aware_of_states_all_go_on_at_once() -> None:
    one = state_aware_trial().does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"), asks("app-3 c1 memory=1"))
    one.told()
    one.reconfigures("root.a")
    assert states(one) == ["Running", "Running", "Running"]
    assert one.placed() == ["b1 on n1", "c1 on n1"]


def test_a_queue_that_is_gone_is_forgotten() -> None:
    one = state_aware_trial().does(asks("app-1 a1 memory=1")).reconfigures("root.b")
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


def swap_trial(queues: str = "root.a; root.p.b") -> tuple[Trial, SwapCandidates]:
    return Trial(queues).does(apps("app-1 root.a", "app-2 root.a", "app-3 root.p.b")), SwapCandidates()


def test_nobody_has_anything_to_swap_at_first() -> None:
    _, swappable = swap_trial()
    assert swappable.first(0) is None


@pytest.mark.tampers
def test_queues_come_first_then_the_order_of_the_leaf() -> None:
    one, swappable = swap_trial()
    one.queue("root.a").allocated_sum = sum_of({"memory": 5})
    one.partition.tree.root.maximum = one.partition.tree.root.fair_maximum = {"memory": 10}
    one.queue("root.a").fair_maximum = {"memory": 10}
    for name in ("app-2", "app-1", "app-3"):
        swappable.offer(one.app(name))
    served = []
    while (application := swappable.first(0)) is not None:
        served.append(application.application_id)
        swappable.drop(application)
    assert served == ["app-3", "app-1", "app-2"]


def test_who_is_set_aside_comes_back_after_a_relief() -> None:
    one, swappable = swap_trial()
    swappable.offer(one.app("app-1"))
    assert swappable.first(3) is one.app("app-1")
    swappable.park(one.app("app-1"))
    assert swappable.first(3) is None
    assert one.app("app-1") in swappable
    assert swappable.first(4) is one.app("app-1")


def test_who_is_offered_anew_is_no_longer_set_aside() -> None:
    one, swappable = swap_trial()
    swappable.offer(one.app("app-1"))
    swappable.park(one.app("app-1"))
    swappable.offer(one.app("app-1"))
    assert swappable.first(-1) is one.app("app-1")
    swappable.drop(one.app("app-1"))
    assert swappable.first(9) is None
    assert one.app("app-1") not in swappable


def test_everybody_is_put_in_order_anew_when_queues_change() -> None:
    one, swappable = swap_trial()
    swappable.offer(one.app("app-1"))
    swappable.offer(one.app("app-2"))
    swappable.park(one.app("app-1"))
    one.queue("root.a").policies = one.queue("root.p.b").policies
    swappable.reorder()
    assert swappable.first(-1) is one.app("app-1")


def test_a_leaf_above_other_leaves_can_be_compared_with_them() -> None:
    one = Trial("root.a")
    one.does(apps("app-1 root.a"))
    one.reconfigures("root.a.x; root.a.y")
    one.does(apps("app-2 root.a.x"))
    swappable = SwapCandidates()
    swappable.offer(one.app("app-1"))
    swappable.offer(one.app("app-2"))
    assert swappable.first(0) is one.app("app-2")


# Bounded turns --------------------------------------------------------------------------------------------------------


def crowd(applications: int = 40) -> Trial:
    """Applications with an ask each, and no node yet."""
    one = Trial("root.a; root.b")
    one.takes(apps(*(f"app-{number} root.{'ab'[number % 2]}" for number in range(applications))))
    return one.takes(asks(*(f"app-{number} k{number} memory=1" for number in range(applications))))


def count_updates(one: Trial, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of applications and queues that each step until idleness moves to their places."""
    counts: list[int] = []
    for name in ("_update_application", "_update_queue"):
        update = getattr(Readiness, name)

        def counted(readiness: Readiness, item: object, update: Callable[..., None] = update) -> None:
            counts[-1] += 1
            update(readiness, item)

        monkeypatch.setattr(Readiness, name, counted)
    while not one.partition.idle:
        counts.append(0)
        one.effects += one.partition.step(one.now, 512)
    return counts


@pytest.fixture
def _few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_traversal, "ATTEMPTS_PER_TURN", 2)
    monkeypatch.setattr(ready_queues, "UPDATES_MIN", 3)


@pytest.mark.usefixtures("_few_attempts")
def test_many_applications_before_the_first_decision_are_sorted_in_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, plain = crowd().takes(nodes("n1 memory=100")), crowd()
    counts = count_updates(one, monkeypatch)
    monkeypatch.undo()
    assert counts[:2] == [8, 8]
    assert one.placed() == plain.does(nodes("n1 memory=100")).placed()
    assert len(one.running) == 40


@pytest.mark.usefixtures("_few_attempts")
def test_another_sort_policy_sorts_the_applications_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    fair = "root.a application.sort.policy=fair; root.b application.sort.policy=fair"
    one, plain = crowd().does(nodes("n1 memory=10")), crowd().does(nodes("n1 memory=10"))
    one.takes(gone("app-30"))
    one.partition.reconfigure(config(fair), one.now)
    counts = count_updates(one, monkeypatch)
    monkeypatch.undo()
    assert max(counts) <= 8 + 2 + 3
    one.does(nodes("n2 memory=12"))
    plain.does(gone("app-30")).reconfigures(fair).does(nodes("n2 memory=12"))
    assert one.placed() == plain.placed()
    assert len(one.running) == 22


@pytest.mark.usefixtures("_few_attempts")
def test_an_ask_that_comes_while_queues_are_sorted_again_is_placed() -> None:
    leaves = [f"root.p.q{number}" for number in range(40)]
    one = Trial("; ".join(leaves)).does(nodes("n1 memory=10"), apps("app-1 root.p.q39"))
    one.partition.reconfigure(config("; ".join([*leaves[:-1], "root.p.q39 max=memory:5"])), one.now)
    one.partition.step(one.now, 512)
    assert one.partition.readiness.touched
    assert one.does(asks("app-1 k1 memory=1")).placed() == ["k1 on n1"]


def test_another_maximum_lets_no_application_try_that_it_does_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    one = full("root.a max=memory:9; root.b", applications=60)
    seen = tried(one, monkeypatch)
    one.reconfigures("root.a max=memory:8; root.b")
    assert (one.placed(), seen) == ([], [])
    one.does(nodes("n2 memory=4")).reconfigures("root.a max=memory:6; root.b")
    assert one.placed() == ["a1 on n2", "a2 on n2"]
