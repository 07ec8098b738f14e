"""Plain decisions in a row are the ones that would have been made one at a time, told in the same words."""

import re
from collections.abc import Iterator
from random import Random

import pytest

from common.messages import Command
from partition_worker.engine.checks.invariants import check
from partition_worker.engine.cycle import stretch
from partition_worker.engine.effects import Effect
from partition_worker.engine.partition import Partition
from tests.builders import PARTITION, apps, asks, config, nodes, released
from tests.likeness import differences
from tests.trial import START_S, Trial

QUEUES = """
root.a application.sort.policy=fair guaranteed=memory:40;
root.b guaranteed=memory:10,vcore:10 priority.offset=2;
root.c.d max=memory:60;
root.c.e node.sort.policy=binpacking;
root.c.f allocation.batch=3 limit.user.ann=memory:30;
root.s application.sort.policy=stateaware
"""
LOOKED = re.compile(r"partition\.(step|readiness\.(asides\.\d+\.searched_at|resting\.searched)|swappable\.seen)\b")
"""How many steps there were, and when somebody looked in vain for the last time: no decision depends on it."""

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
def test_the_same_is_decided_and_told_as_one_at_a_time(seed: int) -> None:
    fast = Partition(config(QUEUES), name=PARTITION, now=START_S)
    slow = Partition(config(QUEUES), name=PARTITION, now=START_S)
    random, now = Random(seed), START_S
    for command in commands(Random(seed)):
        now += random.choice([0.0, 0.5, 3.0])
        for one in (fast, slow):
            one.apply(command, now)
            one.elapse(now)
        while not (fast.idle and slow.idle):
            budget = random.randint(1, 40)
            quick = told(fast.schedule(now, budget))
            plodding = [part for _, effects in slow.schedule_each(now, budget) for part in told(effects)]
            assert quick == plodding
            assert fast.happenings() == slow.happenings()
        check(fast)
        unlike = [one for one in differences(fast, slow) if not LOOKED.match(one)]
        assert not unlike, unlike
    assert fast.decided == slow.decided > 50


def test_a_stretch_goes_on_as_long_as_everything_is_plain() -> None:
    one = Trial("root.a; root.b").takes(nodes("n1 memory=100"), apps("app-1 root.a", "app-2 root.b"))
    one.does(asks("app-1 a0 memory=1", "app-2 b0 memory=1"))
    one.takes(asks(*(f"app-{1 + number % 2} k{number} memory=1" for number in range(20))))
    assert stretch.run(one.partition, 12) == 12
    assert stretch.run(one.partition, 12) == 8


@pytest.mark.parametrize(
    "ask",
    [
        "app-1 a1 memory=1 required=n1",
        "app-1 a1 memory=1 placeholder group=g",
        "app-1 a1 memory=1000",
        "app-2 a1 memory=1",
    ],
)
def test_what_is_not_plain_is_left_to_others(ask: str) -> None:
    one = Trial("root.a").takes(nodes("n1 memory=100"), apps("app-1 root.a", "app-2 root.a"))
    one.does(asks("app-1 a0 memory=1")).takes(asks(ask))
    assert stretch.run(one.partition, 10) == 0


def test_whoever_has_a_limit_is_looked_at_one_by_one() -> None:
    one = Trial("root.a limit.user.ann=memory:5").takes(nodes("n1 memory=100"), apps("app-1 root.a user=ann"))
    one.does(asks("app-1 a0 memory=1")).takes(asks("app-1 a1 memory=1"))
    assert stretch.run(one.partition, 10) == 0
