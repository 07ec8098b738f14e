"""What a leaf has set aside: found by what it waits for, and not looked at while its user or group has no room."""

import pytest

from tests.builders import apps, asks, gone, nodes, released
from tests.trial import Trial
from yunishard.partition_worker.engine import queue_traversal
from yunishard.partition_worker.engine.allocation import AskShape
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.nodes.nodes import Nodes
from yunishard.partition_worker.engine.queue_traversal import Attempt
from yunishard.partition_worker.engine.queues.queue import Queue, queue_key
from yunishard.partition_worker.engine.ready_queues import Readiness
from yunishard.partition_worker.engine.unschedulable_asks import ParkedQueues
from yunishard.partition_worker.engine.user_limits import QueueUsage

BOTH = "root.a limit.user.*=memory:4 limit.group.dev=memory:6 limit.group.*=memory:999"


def trial(queues: str, *texts: str, wanted: int = 4) -> Trial:
    """Applications of root.a that ask for `wanted` twice, on a node that has enough."""
    one = Trial(queues).does(nodes("n1 memory=1000"))
    for number, text in enumerate(texts):
        one.takes(apps(f"app-{number} root.a {text}"))
        one.takes(asks(f"app-{number} a{number} memory={wanted}", f"app-{number} b{number} memory={wanted}"))
    one.settles()
    return one


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A mark for each look at a limit and each attempt of an application from now on."""
    seen: list[str] = []
    look, decide = QueueUsage.has_room, Attempt.decide

    def looked(level: QueueUsage, amounts: object) -> bool:
        seen.append(level.path)
        return look(level, amounts)

    def tried(attempt: Attempt) -> object:
        seen.append(attempt.application.application_id)
        return decide(attempt)

    monkeypatch.setattr(QueueUsage, "has_room", looked)
    monkeypatch.setattr(Attempt, "decide", tried)
    return seen


def test_what_its_user_has_no_room_for_waits_for_that_user() -> None:
    one = trial("root.a limit.user.*=memory:4", "user=ann", "user=bob")
    assert one.placed() == ["a0 on n1", "a1 on n1"]
    assert one.does(released("app-1 a1")).placed() == ["b1 on n1"]


def test_an_ask_of_its_user_in_another_leaf_may_be_what_it_waits_for() -> None:
    one = Trial("root limit.user.bob=memory:4; root.a; root.b").does(nodes("n1 memory=9"))
    one.does(apps("app-1 root.a", "app-2 root.b"), asks("app-1 a1 memory=4"), asks("app-2 b1 memory=4"))
    assert one.placed() == ["a1 on n1"]
    assert one.does(released("app-1 a1")).placed() == ["b1 on n1"]


def test_what_its_group_has_no_room_for_waits_for_the_group() -> None:
    one = trial(BOTH, "user=ann groups=dev", "user=bob groups=dev", "user=eve groups=qa")
    assert one.placed() == ["a0 on n1", "a2 on n1"]
    assert one.does(released("app-2 a2")).placed() == ["b2 on n1"]
    assert one.does(released("app-0 a0")).placed() == ["b0 on n1"]
    assert one.does(released("app-0 b0")).placed() == ["a1 on n1"]


def test_shrinking_in_place_frees_for_another_application_of_the_user() -> None:
    one = Trial("root.a limit.user.bob=memory:4").does(nodes("n1 memory=9"), apps("app-1 root.a", "app-2 root.a"))
    one.does(asks("app-1 a1 memory=3"), asks("app-2 b1 memory=3"))
    assert one.placed() == ["a1 on n1"]
    assert one.does(asks("app-1 a1 memory=1")).placed() == ["b1 on n1"]


def test_an_application_that_is_forgotten_long_after_its_last_allocation_lets_the_next_start() -> None:
    one = Trial("root.a limit.user.bob=apps:1").does(nodes("n1 memory=9"), apps("app-1 root.a", "app-2 root.a"))
    one.does(asks("app-1 a1 memory=3"), asks("app-1 a2 memory=500"), asks("app-2 b1 memory=3"), released("app-1 a1"))
    one.does(released("app-1 a2"))
    assert one.placed() == ["a1 on n1"]
    assert one.waits(29).placed() == [], "it may still go on"
    assert one.waits(2).placed() == ["b1 on n1"]


def test_where_a_user_turns_out_to_have_no_room_the_next_may_be_of_another_group() -> None:
    tree = """root limit.user.ann=memory:4 limit.user.*=memory:9 limit.group.dev=memory:99 limit.group.qa=memory:99;
    root.a max=memory:4; root.b"""
    one = Trial(tree).does(nodes("n1 memory=99"), apps("app-0 root.a user=joe"), asks("app-0 a0 memory=4"))
    for number, who in enumerate(("ann groups=dev", "bob groups=qa", "eve groups=dev"), 1):
        one.does(apps(f"app-{number} root.a user={who}"), asks(f"app-{number} a{number} memory=4"))
    one.does(apps("app-4 root.b user=ann"), asks("app-4 a4 memory=4"))
    assert one.placed() == ["a0 on n1", "a4 on n1"]
    assert one.does(released("app-0 a0")).placed() == ["a2 on n1"]
    assert one.does(released("app-2 a2")).placed() == ["a3 on n1"]
    assert one.does(released("app-3 a3")).placed() == []
    assert one.does(released("app-4 a4")).placed() == ["a1 on n1"]


def test_a_user_whose_room_is_taken_before_its_turn_leaves_the_node_to_the_next_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The turn ends after an application of ann was chosen for the node; then another queue takes the room of ann."""
    one = Trial("root limit.user.*=memory:4 limit.user.joe=memory:9; root.z; root.a").does(nodes("n1 memory=9"))
    one.does(apps("busy root.a user=joe"), asks("busy b1 memory=9"))
    one.does(apps("other root.z user=eve", "small root.z user=ann", "first root.a user=ann", "second root.a user=bob"))
    one.does(asks("first a1 memory=4", "second a2 memory=4"))
    monkeypatch.setattr(queue_traversal, "ATTEMPTS_PER_TURN", 1)
    one.takes(released("busy b1"), asks("other z1 memory=5 priority=9")).decides()
    one.takes(asks("small z2 memory=1 priority=9")).settles()
    assert one.running == ["a2 on n1", "z2 on n1"]


def test_an_ask_beyond_its_users_room_keeps_no_other_ask_of_the_application_waiting() -> None:
    """Spec scheduling 10: a quota failure never blocks other asks of the app."""
    one = Trial("root.a limit.user.bob=memory:4").does(nodes("n1 memory=1000"), apps("app-1 root.a"))
    one.does(asks("app-1 big memory=9 priority=5", "app-1 small memory=2", "app-1 none gpu=0 memory=2"))
    assert one.placed() == ["small on n1", "none on n1"]


def test_those_held_by_the_number_of_applications_of_their_user_start_one_by_one_in_order() -> None:
    one = trial("root.a limit.user.bob=apps:1", "user=bob", "user=bob", "user=bob", "user=eve", wanted=1)
    assert one.placed() == ["a0 on n1", "b0 on n1", "a3 on n1", "b3 on n1"]
    one.does(released("app-0 a0"))
    assert one.placed() == [], "it runs on"
    one.does(released("app-0 b0"))
    assert one.placed() == ["a1 on n1", "b1 on n1"]
    one.does(released("app-1"))
    assert one.placed() == ["a2 on n1", "b2 on n1"]


def test_an_application_that_ends_without_having_had_anything_else_lets_the_next_start() -> None:
    one = trial("root.a limit.group.dev=apps:1", "user=ann groups=dev", "user=bob groups=dev", wanted=600)
    assert one.placed() == ["a0 on n1"]
    one.does(released("app-0"))
    assert one.placed() == ["a1 on n1"]


def test_what_was_freed_comes_to_the_most_deserving_of_those_that_may_have_it() -> None:
    """Also when others, of users without room, come first."""
    one = Trial("root.a max=memory:6 limit.user.*=memory:3").does(nodes("n1 memory=99"))
    for number, who in enumerate(("ann", "ann", "bob", "eve", "eve")):
        one.does(apps(f"app-{number} root.a user={who}"), asks(f"app-{number} a{number} memory=3"))
    assert one.placed() == ["a0 on n1", "a2 on n1"]
    assert one.does(released("app-2 a2")).placed() == ["a3 on n1"]
    assert one.does(released("app-3 a3")).placed() == ["a4 on n1"]
    assert one.does(released("app-0 a0")).placed() == ["a1 on n1"]


@pytest.mark.parametrize("queues", ["root.a limit.user.*=memory:4", BOTH, "root.a limit.user.*=apps:1"])
def test_what_somebody_else_frees_costs_no_look_at_users_who_wait_for_themselves(
    queues: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [f"user=u{number} groups={'dev' if number % 2 else 'qa'}" for number in range(30)]
    one = trial(queues, *users, *users)
    one.does(released("app-0 a0"), apps("other root.a user=x"), asks("other o1 memory=4"))
    seen = looked_at(monkeypatch)
    one.does(released("other o1"), nodes("n2 memory=1000"), asks("other o2 memory=4"))
    assert "o2 on n2" in one.placed()
    assert len(seen) < 12, seen


def test_a_release_of_a_shared_group_costs_no_look_at_each_of_its_users(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trial("root.a limit.group.dev=memory:8", *(f"user=u{number} groups=dev" for number in range(30)))
    assert one.placed() == ["a0 on n1", "b0 on n1"]
    seen = looked_at(monkeypatch)
    assert one.does(released("app-0 a0")).placed() == ["a1 on n1"]
    assert len(seen) < 12, seen


def test_without_room_on_nodes_what_comes_free_for_many_users_is_not_passed_to_and_fro(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = trial(BOTH, *(f"user=u{number} groups=dev" for number in range(30)))
    one.does(nodes("n1 memory=4", action=2), released("app-0 a0"), released("app-1 a1"))
    seen = looked_at(monkeypatch)
    for _ in range(3):
        free = one.running[0].split()[0]
        one.does(released(f"app-{free[1:]} {free}"))
    assert len(seen) < 40, seen


def test_asks_for_several_full_required_nodes_are_tried_once_although_each_might_preempt() -> None:
    """Not for ever in turn: that their victims are too important only an attempt finds out."""
    trial = Trial("root.a; root.b").does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a", "app-2 root.b"))
    trial.does(asks("app-1 a1 memory=10 priority=9", "app-1 a2 memory=10 priority=9"))
    trial.does(asks("app-2 d1 memory=5 required=n1", "app-2 d2 memory=6 required=n2"))
    assert trial.running == ["a1 on n1", "a2 on n2"]


def test_nothing_stays_behind_when_what_was_aside_goes() -> None:
    one = trial(BOTH, "user=ann groups=dev", "user=bob groups=dev", "user=eve")
    one.does(*(released(f"app-{number}") for number in range(3)))
    readiness = one.partition.readiness
    assert not readiness.closed.by_usage
    assert all(not parked.buckets and not parked.buckets_of for parked in readiness.unschedulable.values())


def test_other_limits_bring_back_what_waited() -> None:
    one = trial("root.a limit.user.*=memory:4", "user=ann")
    assert one.placed() == ["a0 on n1"]
    assert one.reconfigures("root.a limit.user.*=memory:4 limit.group.dev=memory:9").placed() == []
    assert one.reconfigures("root.a limit.user.*=memory:8").placed() == ["b0 on n1"]


def test_a_lower_limit_takes_nothing_away_and_keeps_more_from_being_placed() -> None:
    one = trial("root.a limit.user.*=memory:8", "user=ann")
    one.reconfigures("root.a limit.user.*=memory:5").does(asks("app-0 c0 memory=1"), released("app-0 a0"))
    assert one.running == ["b0 on n1", "c0 on n1"]


@pytest.mark.parametrize("users", [("eve", "bob"), ("bob", "eve")])
def test_those_with_and_without_a_limit_take_turns_in_one_order(users: tuple[str, str]) -> None:
    one = Trial("root.a limit.user.bob=memory:9").does(nodes("n1 memory=4"), apps("app-0 root.a user=ann"))
    one.does(asks("app-0 a0 memory=4"))
    for number, user in enumerate(users, 1):
        one.does(apps(f"app-{number} root.a user={user}"), asks(f"app-{number} a{number} memory=4"))
    assert one.placed() == ["a0 on n1"]
    assert one.does(released("app-0 a0")).placed() == ["a1 on n1"]
    assert one.does(released("app-1 a1")).placed() == ["a2 on n1"]


# Parked queues -------------------------------------------------------------------------------------------------------

LEAVES = 40


def crowd(settings: str = "", *, memory: int = 2) -> Trial:
    """An application in each of many leaves, which asks for twice 2 on a node of this size."""
    one = Trial("root.p; " + "; ".join(f"root.p.q{number} {settings}" for number in range(LEAVES)))
    one.does(nodes(f"n1 memory={memory}"))
    for number in range(LEAVES):
        one.does(
            apps(f"app-{number} root.p.q{number}"),
            asks(f"app-{number} a{number} memory=2", f"app-{number} b{number} memory=2"),
        )
    one.told()
    return one


def looks_at_nodes(monkeypatch: pytest.MonkeyPatch) -> list[AskShape]:
    """The needs for which a node is sought from now on."""
    seen: list[AskShape] = []
    node_for = Nodes.node_for

    def noted(all_nodes: Nodes, need: AskShape, application: Application | None = None) -> Node | None:
        seen.append(need)
        return node_for(all_nodes, need, application)

    monkeypatch.setattr(Nodes, "node_for", noted)
    return seen


def looks_at_queues(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queues that are looked at from now on because something was freed."""
    seen: list[str] = []
    worth_a_look = Readiness._may_place_below

    def noted(readiness: Readiness, queue: Queue) -> bool:
        seen.append(queue.path)
        return worth_a_look(readiness, queue)

    monkeypatch.setattr(Readiness, "_may_place_below", noted)
    return seen


def test_a_release_in_a_full_cluster_costs_no_look_at_each_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    one = crowd()
    nodes_sought, queues = looks_at_nodes(monkeypatch), looks_at_queues(monkeypatch)
    one.does(released("app-0 a0"))
    assert one.placed() == ["a1 on n1"]
    assert len(nodes_sought) < 12
    assert len(queues) < 12


def test_the_most_deserving_queue_comes_back_and_then_the_next() -> None:
    one = crowd(memory=6)
    assert one.running == ["a0 on n1", "a1 on n1", "b0 on n1"]
    one.does(released("app-1 a1"), released("app-0 a0"))
    assert one.placed() == ["a2 on n1", "a3 on n1"], "of those that have nothing these wait for more than root.p.q1"


def test_what_is_freed_goes_to_the_most_deserving_of_those_that_rest_and_those_that_are_ready() -> None:
    one = crowd()
    late = f"root.p.q{LEAVES - 1}"
    one.does(asks(f"app-{LEAVES - 1} small memory=1 priority=3"), released("app-0 a0"))
    assert one.placed() == ["small on n1"]
    one.does(released(f"app-{LEAVES - 1} small"))
    assert one.placed() == ["a1 on n1"]
    assert one.queue(late).allocated == {}


def test_a_queue_at_its_maximum_is_not_looked_at_when_others_free_something(monkeypatch: pytest.MonkeyPatch) -> None:
    one = crowd("max=memory:2", memory=1000)
    assert len(one.running) == LEAVES
    seen = looks_at_queues(monkeypatch)
    one.does(released("app-7 a7"))
    assert one.placed() == ["b7 on n1"]
    assert len(seen) < 6


def test_a_queue_above_at_its_maximum_lets_one_in_when_something_below_it_is_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Trial("root.p max=memory:2; " + "; ".join(f"root.p.q{number}" for number in range(LEAVES)))
    one.does(nodes("n1 memory=1000"))
    for number in range(LEAVES):
        one.does(apps(f"app-{number} root.p.q{number}"), asks(f"app-{number} a{number} memory=2"))
    one.told()
    seen = looks_at_queues(monkeypatch)
    for number in range(3):
        one.does(released(f"app-{number} a{number}"))
        assert one.placed() == [f"a{number + 1} on n1"]
    assert len(seen) < 30


def test_a_higher_maximum_brings_back_what_waited_for_it() -> None:
    one = Trial("root.a max=memory:2").does(
        nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=2", "app-1 a2 memory=2")
    )
    one.told()
    one.reconfigures("root.a max=memory:4")
    assert one.placed() == ["a2 on n1"]


def test_nothing_rests_once_everything_is_gone() -> None:
    one = crowd()
    parked_queues = one.partition.readiness.parked_queues
    assert parked_queues.children
    for number in range(LEAVES):
        one.does(gone(f"app-{number}"))
    assert not parked_queues.children
    assert not parked_queues.waits


def test_no_node_is_required_once_the_asks_that_waited_for_it_are_gone() -> None:
    one = Trial("root.a; root.b").does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a", "app-2 root.b"))
    one.does(asks("app-1 a1 memory=20 required=n1"), asks("app-2 b1 memory=20 required=n1"))
    parked_queues = one.partition.readiness.parked_queues
    assert parked_queues.required_nodes["n1"].total() == 2
    one.does(released("app-1 a1"))
    assert parked_queues.required_nodes["n1"].total() == 1
    one.does(released("app-2 b1"))
    assert not parked_queues.required_nodes


def test_a_queue_where_nothing_waits_does_not_rest() -> None:
    one = crowd()
    parked_queues, leaf = ParkedQueues(), one.queue("root.p.q0")
    parent = one.queue("root.p")
    one.partition.readiness.parked_queues.unpark(leaf)
    parent.ready_children.put(leaf, queue_key(leaf))
    parked_queues.park(leaf, 0)
    assert not parked_queues.children
    assert leaf not in parent.ready_children
