from broker.rollout import Rollout
from common.machine import NEVER
from common.messages import AbortConfig, CommitConfig, PrepareConfig
from tests.machines import RM, SESSION, config_of, sent

FIRST, SECOND = "rm-1_default", "rm-1_gpu"
CONFIG = config_of()


def rollout() -> Rollout:
    return Rollout(7, RM, SESSION, {FIRST: CONFIG, SECOND: CONFIG}, NEVER)


def test_a_worker_is_asked_whether_it_could_run_its_part() -> None:
    assert rollout().ask(SECOND) == [sent(SECOND, PrepareConfig(rollout=7, config=CONFIG), partition=SECOND)]


def test_the_last_vote_of_yes_decides() -> None:
    vote = rollout()
    assert vote.missing() == [FIRST, SECOND]
    assert not vote.accept(SECOND)
    assert vote.missing() == [FIRST]
    assert not vote.accept(SECOND)
    assert vote.accept(FIRST)


def test_a_worker_that_was_restarted_has_not_voted() -> None:
    vote = rollout()
    vote.accept(FIRST)
    vote.restarted(FIRST)
    vote.restarted(SECOND)
    assert not vote.accept(SECOND)
    assert vote.accept(FIRST)


def test_every_worker_hears_the_outcome() -> None:
    assert rollout().commit() == [sent(name, CommitConfig(rollout=7), partition=name) for name in (FIRST, SECOND)]
    assert rollout().abort() == [sent(name, AbortConfig(rollout=7), partition=name) for name in (FIRST, SECOND)]


def test_a_new_life_of_a_partition_is_told_to_its_worker() -> None:
    [asked] = Rollout(7, RM, SESSION, {FIRST: CONFIG}, NEVER, 3).ask(FIRST)
    assert asked.header.life == 3
