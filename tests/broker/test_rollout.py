import pytest

from broker.config_rollout import Rollout
from broker.registry import Registry
from common.control_messages import AbortConfig, CommitConfig, PrepareConfig
from common.wire import NEVER
from tests.broker.house import GPU, House, is_prepare
from tests.machines import PARTITION, RM, SESSION, config_of, sent, two_partitions

FIRST, SECOND = "rm-1_default", "rm-1_gpu"
CONFIG = config_of()


def rollout() -> Rollout:
    return Rollout(number=7, rm=RM, session=SESSION, configs={FIRST: CONFIG, SECOND: CONFIG}, deadline=NEVER)


def two_seats() -> Registry:
    registry = Registry()
    for name in (FIRST, SECOND):
        registry.assign_slot(RM, name)
    return registry


SEATS = two_seats()
WORKERS = {FIRST: f"{FIRST}#1", SECOND: f"{SECOND}#2"}


def test_a_worker_is_asked_whether_it_could_run_its_part() -> None:
    assert rollout().build_prepare(SEATS, SECOND) == sent(
        WORKERS[SECOND], PrepareConfig(rollout=7, config=CONFIG), partition=SECOND
    )


def test_the_last_vote_of_yes_decides() -> None:
    house = House()
    house.call(two_partitions())
    first, second = (one for name in (PARTITION, GPU) for one in house.hello(name) if is_prepare(one))
    assert house.vote(second) == []
    assert house.vote(second) == []
    assert "CommitConfig" in {one.header.kind for one in house.vote(first)}


def test_a_worker_that_was_restarted_has_not_voted() -> None:
    house = House()
    house.call(two_partitions())
    first, second = (one for name in (PARTITION, GPU) for one in house.hello(name) if is_prepare(one))
    house.vote(first)
    [again] = [one for one in house.hello(PARTITION) if is_prepare(one)]
    assert house.vote(second) == []
    assert "CommitConfig" in {one.header.kind for one in house.vote(again)}


@pytest.mark.parametrize("outcome", [CommitConfig, AbortConfig])
def test_every_worker_hears_the_outcome(outcome: type[CommitConfig | AbortConfig]) -> None:
    assert rollout().build_outcome(SEATS, outcome) == [
        sent(worker, outcome(rollout=7), partition=name) for name, worker in WORKERS.items()
    ]


def test_a_new_life_of_a_partition_is_told_to_its_worker() -> None:
    vote = rollout()
    vote.generations = {FIRST: 3}
    assert [vote.build_prepare(SEATS, name).header.life for name in (FIRST, SECOND)] == [3, 0]


def test_a_partition_that_runs_is_asked_whether_it_could_change() -> None:
    vote = rollout()
    vote.live = frozenset({SECOND})
    asked = PrepareConfig(rollout=7, config=CONFIG, live=True)
    assert vote.build_prepare(SEATS, SECOND) == sent(WORKERS[SECOND], asked, partition=SECOND)
