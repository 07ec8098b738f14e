"""A little chaos in every run of the tests; `make chaos` is the whole of it."""

import asyncio

import pytest

from tests.chaos.run import Run, play

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


def test_nothing_is_lost_or_doubled_whoever_dies() -> None:
    rounds: list[str] = []
    chaos = asyncio.run(play(Run(seed=1, blows=12, asks=1_500), lambda _, text: rounds.append(text)))
    assert sum(len(rm.books.asked) for rm in chaos.rms) == 1_500
    assert sum(map(len, chaos.recoveries.values())) >= 12, rounds
