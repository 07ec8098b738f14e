"""Queue traversal: back-off, the decisions of one step, batches, and the attempts of a turn."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.builders import PARTITION, apps, asks, config, nodes, released
from tests.invariants import check
from tests.recorded import snapshot
from tests.trial import START_S, Trial
from yunishard.common.messages.kinds import Command
from yunishard.partition_worker.engine import queue_traversal
from yunishard.partition_worker.engine.allocation import AskGroup
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition

# Back-off -------------------------------------------------------------------------------------------------------------

OFF_AFTER_2 = "root.a application.unschedasks.backoff=2 application.unschedasks.backoff.delay=60s"


def backing_off(*wanted: str, queues: str = OFF_AFTER_2) -> Trial:
    one = Trial(queues).does(nodes("n1 memory=5", "n2 memory=5", "n3 memory=5"), apps("app-1 root.a", "app-2 root.a"))
    one.takes(asks(*(f"app-1 {text}" for text in wanted)), asks("app-2 other memory=1"))
    one.settles()
    return one


def test_asks_after_so_many_that_fit_no_node_are_not_tried_and_others_are_served() -> None:
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "small memory=1")
    assert one.placed() == ["other on n1"]
    assert one.app("app-1").back_off_until == one.now + 60


def test_fewer_that_fit_no_node_keep_nobody_from_being_tried() -> None:
    one = backing_off("a memory=9 priority=9", "small memory=1", "b memory=9 priority=-1")
    assert one.placed() == ["small on n1", "other on n2"]


def test_what_fails_last_of_all_keeps_nobody_away() -> None:
    one = backing_off("small memory=1", "a memory=9 priority=-1", "b memory=9 priority=-1")
    assert one.app("app-1").back_off_until == 0
    assert one.placed() == ["small on n1", "other on n2"]


def test_an_ask_that_has_its_node_already_counts_as_one_that_comes_after() -> None:
    one = backing_off("a memory=9 priority=9", "small memory=1").takes(asks("app-1 b memory=9 priority=9"))
    assert one.placed() == ["small on n1", "other on n2"]
    one.settles()
    assert one.app("app-1").back_off_until == one.now + 60


def test_what_the_rm_reported_as_running_never_was_in_the_order() -> None:
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "run memory=1 on=n1")
    assert one.app("app-1").back_off_until == 0


def test_during_the_pause_nothing_of_it_is_tried_whatever_is_freed() -> None:
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "small memory=1")
    one.placed()
    one.does(nodes("n4 memory=9"))
    assert one.placed() == []
    assert one.waits(59).placed() == []
    assert one.waits(2).placed() == ["a on n4", "small on n2"], "one that fits no node is not enough"


def test_each_pause_is_followed_by_an_attempt_and_another_pause() -> None:
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "small memory=1")
    first = one.app("app-1").back_off_until
    one.waits(61)
    assert one.app("app-1").back_off_until >= first + 60
    one.waits(61)
    assert one.placed() == ["other on n1"]


@pytest.mark.parametrize("queues", [f"{OFF_AFTER_2} max=memory:10", f"{OFF_AFTER_2} limit.user.bob=memory:10"])
def test_asks_count_as_soon_as_queue_and_user_have_room_and_no_node_has(queues: str) -> None:
    one = backing_off("small memory=1", queues=queues)
    one.does(asks("app-1 a memory=9 priority=9", "app-1 b memory=9 priority=9"))
    assert one.app("app-1").back_off_until == 0
    one.does(released("app-2 other"))
    assert one.app("app-1").back_off_until == one.now + 60


def test_every_application_counts_its_asks_as_soon_as_their_queue_has_room() -> None:
    both = "root.a application.unschedasks.backoff=1 max=memory:9"
    one = Trial(both).does(nodes("n1 memory=5", "n2 memory=5"), apps("app-1 root.a", "app-2 root.a"))
    one.does(asks("app-1 run memory=1", "app-2 held memory=1"))
    one.does(asks("app-1 a memory=8 priority=1", "app-2 b memory=8 priority=1"))
    assert [one.app(name).back_off_until for name in ("app-1", "app-2")] == [0, 0]
    one.does(released("app-1 run"))
    assert one.app("app-2").back_off_until == one.now + 30, "its allocation comes after the ask"


def test_asks_that_are_alike_count_one_by_one() -> None:
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "c memory=8 priority=9", "small memory=1")
    assert one.placed() == ["other on n1"]


def test_only_what_fits_no_node_counts() -> None:
    queues = f"{OFF_AFTER_2} max=memory:6"
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "small memory=1", queues=queues)
    assert one.placed() == ["small on n1", "other on n2"]


def test_releasing_what_does_not_fit_ends_nothing_before_its_time() -> None:
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "small memory=1")
    one.placed()
    assert one.does(released("app-1 a"), released("app-1 b")).placed() == []
    assert one.waits(61).placed() == ["small on n2"]


# Decisions of one step ------------------------------------------------------------------------------------------------

QUEUES = """
root.a application.sort.policy=fair guaranteed=memory:40;
root.b guaranteed=memory:10,vcore:10 priority.offset=2;
root.c.d max=memory:60;
root.c.e node.sort.policy=binpacking;
root.c.f allocation.batch=3 limit.user.ann=memory:30;
root.s application.sort.policy=stateaware
"""
LEAVES = ("root.a", "root.b", "root.c.d", "root.c.e", "root.c.f", "root.s")


def commands(random: Random) -> Iterator[Command]:
    """Nodes, applications, and then asks and releases by chance."""
    yield nodes(*(f"n{number} memory={random.randint(10, 60)} vcore={random.randint(5, 40)}" for number in range(20)))
    names = [f"app-{number}" for number in range(12)]
    yield apps(*(f"{name} {random.choice(LEAVES)} user={random.choice(['ann', 'bob'])}" for name in names))
    asked: list[str] = []
    for number in range(18):
        news = [f"{random.choice(names)} k{number}-{one}" for one in range(random.randint(1, 30))]
        asked += news
        yield asks(
            *(
                f"{new} memory={random.randint(1, 4)} vcore={random.randint(1, 3)}"
                f" priority={random.choice([0, 0, 0, 5])}{random.choice([' required=n3', *[''] * 20])}"
                for new in news
            )
        )
        yield released(*(asked.pop(random.randrange(len(asked))) for _ in range(random.randint(0, len(asked) // 3))))


def told(effects: list[Effect]) -> list[object]:
    return [effect.part for effect in effects]


@pytest.mark.parametrize("seed", range(8))
def test_a_step_decides_and_tells_the_same_as_decisions_one_at_a_time(seed: int) -> None:
    together = Partition(config(QUEUES), name=PARTITION, now=START_S)
    single = Partition(config(QUEUES), name=PARTITION, now=START_S)
    random, now = Random(seed), START_S
    for command in commands(Random(seed)):
        now += random.choice([0.0, 0.5, 3.0])
        for one in (together, single):
            one.apply(command, now)
            one.step(now, 0)
        while not (together.idle and single.idle):
            budget = random.randint(1, 40)
            at_once = told(together.step(now, budget))
            assert at_once == [part for _, effects in single.schedule_each(now, budget) for part in told(effects)]
            assert together.drain_events() == single.drain_events()
        check(together)
        check(single)
        assert snapshot(together) == snapshot(single)
        assert together.next_change == single.next_change
    assert together.decided == single.decided > 50


# Batches --------------------------------------------------------------------------------------------------------------


def trial(queues: str = "root.a", *applications: str, on: str = "n1 memory=100") -> Trial:
    """Applications that would get a node in turn: the queue is fair."""
    one = Trial(queues).takes(nodes(on, "n2 memory=3"), apps(*(applications or ("app-1 root.a", "app-2 root.a"))))
    one.takes(asks(*(f"app-{app} {key}{number} memory=1" for number in range(4) for app, key in ((1, "a"), (2, "b")))))
    one.told()
    return one


def order(one: Trial) -> str:
    """Whose asks got a node, one after the other."""
    one.settles()
    return "".join(line[0] for line in one.placed())


FAIR = "root.a application.sort.policy=fair"


@pytest.mark.parametrize(
    ("queue", "tag", "expected"),
    [
        ("", "", "abababab"),
        ("allocation.batch=2", "", "aabbaabb"),
        ("allocation.batch=9", "", "aaaabbbb"),
        ("allocation.batch=0", "", "abababab"),
        ("", "tag.allocation.batch=3", "aaabbbab"),
        ("allocation.batch=3", "tag.allocation.batch=1", "abbbaaab"),
        ("allocation.batch=2", "tag.allocation.batch=many", "aabbaabb"),
    ],
)
def test_an_application_gets_as_many_in_one_go_as_its_tag_says_else_its_queue(
    queue: str, tag: str, expected: str
) -> None:
    one = trial(f"{FAIR} {queue} guaranteed=memory:100", f"app-1 root.a {tag}", "app-2 root.a")
    assert order(one) == expected


def test_only_asks_of_one_kind_go_along() -> None:
    one = trial(f"{FAIR} allocation.batch=9")
    one.takes(asks("app-1 a8 memory=2", "app-1 a9 memory=1 priority=-1"))
    assert order(one) == "aaaabbbbaa"


@pytest.mark.tampers
def test_they_go_to_the_next_nodes_with_room_in_the_order_of_the_application() -> None:
    one = trial("root.a allocation.batch=4 node.sort.policy=binpacking", on="n1 memory=2")
    one.settles()
    assert one.placed()[:5] == ["a0 on n1", "a1 on n1", "a2 on n2", "a3 on n2", "b0 on n2"]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max=memory:3", "aaa"),
        ("limit.user.bob=memory:3", "aaa"),
        ("limit.user.bob=memory:9", "aaaabbbb"),
    ],
)
def test_no_more_go_along_than_there_is_room_for(limit: str, expected: str) -> None:
    assert order(trial(f"root.a allocation.batch=9 {limit}")) == expected


def test_each_counts_as_a_decision() -> None:
    one = trial(f"{FAIR} allocation.batch=9")
    assert one.decides() == ["a0 on n1"]
    one._step(one.partition.step(one.now, 3))
    assert [line[0] for line in one.placed()] == ["b", "b", "b"]


def test_asks_for_one_node_only_go_one_at_a_time() -> None:
    one = Trial(f"{FAIR} allocation.batch=9").takes(nodes("n1 memory=9"), apps("app-1 root.a", "app-2 root.a"))
    one.takes(
        asks(*(f"app-{app} {key} memory=1 required=n1" for key, app in (("a1", 1), ("b1", 2), ("a2", 1), ("b2", 2))))
    )
    assert order(one) == "abab"


# The attempts of a turn -----------------------------------------------------------------------------------------------


def large(application: str, count: int) -> list[str]:
    """Asks that fit no node."""
    return [f"{application} {application}-{number} memory={100 + number}" for number in range(count)]


def turn(one: Trial) -> int:
    """Run one turn; return how many attempts at a group of asks failed in it."""
    failed = [0]
    decide = queue_traversal.Attempt._try_group

    def counting(self: queue_traversal.Attempt, group: AskGroup) -> object:
        decision = decide(self, group)
        failed[0] += decision is None
        return decision

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue_traversal.Attempt, "_try_group", counting)
        one._step(one.partition.step(one.now, 512))
    return failed[0]


@pytest.fixture
def few_attempts(monkeypatch: pytest.MonkeyPatch) -> Trial:
    monkeypatch.setattr(queue_traversal, "ATTEMPTS_PER_TURN", 8)
    monkeypatch.setattr(queue_traversal, "ATTEMPTS_AT_ONCE", 4)
    return Trial("root.a; root.b").does(
        nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.a", "app-3 root.a", "app-4 root.b")
    )


def test_a_turn_ends_after_so_many_failed_attempts_and_the_next_one_continues(few_attempts: Trial) -> None:
    few_attempts.takes(asks(*(wanted for app in ("app-1", "app-2", "app-3") for wanted in large(app, 3))))
    assert [turn(few_attempts), few_attempts.partition.idle] == [8, False]
    assert [turn(few_attempts), few_attempts.partition.idle] == [1, True]


def test_an_application_with_many_asks_that_fit_nowhere_lets_others_have_their_turn(few_attempts: Trial) -> None:
    few_attempts.takes(asks(*large("app-1", 40), "app-1 last memory=2"), asks("app-4 other memory=1"))
    assert turn(few_attempts) == 4
    assert few_attempts.placed() == ["other on n1"]
    attempts = []
    while not few_attempts.partition.idle:
        attempts.append(turn(few_attempts))
    assert few_attempts.placed() == ["last on n1"]
    assert max(attempts) <= 8
    assert sum(attempts) <= 40 + 40  # once until the last ask has its node, and once more


def test_an_attempt_starts_again_if_its_application_or_the_free_resources_change(few_attempts: Trial) -> None:
    few_attempts.takes(asks(*large("app-1", 10)))
    turn(few_attempts)
    few_attempts.takes(asks("app-1 urgent memory=1 priority=9"))
    few_attempts.settles()
    assert few_attempts.placed() == ["urgent on n1"]
    few_attempts.takes(asks("app-2 full memory=9"), asks("app-2 next memory=8", *large("app-2", 10)))
    turn(few_attempts)
    few_attempts.takes(released("app-2 full", "app-1 urgent"))
    few_attempts.settles()
    assert "next on n1" in few_attempts.placed()


@pytest.mark.parametrize("seed", range(3))
def test_the_outcome_does_not_depend_on_the_attempts_of_a_turn(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def play() -> list[str]:
        chance = Random(seed)
        one = Trial("root.a").does(nodes("n1 memory=40", "n2 memory=40"), apps("app-1 root.a"))
        for step in range(6):
            one.takes(asks(*(f"app-1 k{step}-{n} memory={chance.randrange(1, 90)}" for n in range(12))))
            one.settles()
        return one.placed()

    unlimited = play()
    monkeypatch.setattr(queue_traversal, "ATTEMPTS_PER_TURN", 5)
    monkeypatch.setattr(queue_traversal, "ATTEMPTS_AT_ONCE", 3)
    assert play() == unlimited
