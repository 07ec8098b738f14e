"""The large partition has what its docstring promises, at a small scale."""

from collections.abc import Iterator

import pytest

from tests.big_partition import WAITING, Scale, commands, config, name_of, reason_of
from tests.machines import config_of
from tests.trial import START_S
from yunishard.partition_worker.engine.partition import Partition

SCALE = Scale(queues=200, nodes=200, applications=400)


@pytest.fixture(scope="module")
def partition() -> Partition:
    made = Partition(config_of(config(SCALE)), name="big_default", now=START_S)
    for command in commands(SCALE):
        made.apply(command, START_S)
        while not made.idle:
            made.step(START_S, 512)
    return made


def numbers(reason: str) -> Iterator[int]:
    return (number for number in range(SCALE.applications) if reason_of(number) == reason)


def test_the_partition_has_the_size_that_is_asked_for(partition: Partition) -> None:
    assert len(tuple(partition.tree)) == pytest.approx(SCALE.queues, rel=0.3)
    assert len(partition.nodes) == SCALE.nodes
    assert len(partition.applications) + len(partition.rejections) == SCALE.applications


def test_ordinary_applications_run(partition: Partition) -> None:
    for number in numbers(""):
        assert not partition.applications[name_of(number)].requests


@pytest.mark.parametrize("reason", [one for one in WAITING.values() if one != "rejected"])
def test_some_applications_wait_for_each_reason(partition: Partition, reason: str) -> None:
    applications = [partition.applications[name_of(number)] for number in numbers(reason)]
    assert any(one.requests for one in applications), reason


def test_some_applications_are_rejected(partition: Partition) -> None:
    assert set(partition.rejections) == {name_of(number) for number in numbers("rejected")}
