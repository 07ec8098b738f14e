"""Whatever anybody sends: nothing breaks, all books are right, and the resource manager beside is served.

`PROPERTIES=long` searches for as long as there is time.
"""

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz import found
from tests.fuzz.arena import PLACES, attack
from tests.fuzz.examples import examples
from tests.fuzz.frames import said
from tests.fuzz.machines import SLOW, attacked, complaint
from tests.fuzz.readers import Target, spoiled, targets

LONG = os.environ.get("PROPERTIES") == "long"
bounded = settings(
    max_examples=300 if LONG else 20,
    phases=tuple(Phase) if LONG else (Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    return targets(tmp_path_factory.mktemp("readers"))


def test_what_a_reader_cannot_read_it_says_as_it_promised(readers: dict[str, Target]) -> None:
    rng = random.Random(7)
    for name, target in readers.items():
        for seed in target.seeds:
            target.read(seed)
        for _ in range((100 if name in SLOW else 3_000) if LONG else 10 if name in SLOW else 100):
            data = spoiled(rng, target)
            assert complaint(target, data) == "", (name, data)


@pytest.mark.parametrize("place", PLACES)
def test_nobody_suffers_from_somebody_mad(place: str) -> None:
    for seed in range(5 if LONG else 2):
        assert attacked(place, seed, 1_500 if LONG else 300) == ""


@bounded
@given(rng=st.randoms(use_true_random=False), place=st.sampled_from(PLACES))
def test_nobody_suffers_from_a_few_messages_that_were_searched_for(rng: random.Random, place: str) -> None:
    for _ in attack(place, rng, 60):
        pass


@pytest.mark.parametrize("file", sorted(found.FOLDER.glob("*.json")), ids=lambda file: file.stem)
def test_what_once_broke_something_does_not_any_more(readers: dict[str, Target], file: Path) -> None:
    found.play(found.read(file), readers)


def test_the_attacks_are_worth_it() -> None:
    """Most of what is sent has a header that can be read, and it is of every kind."""
    kinds: dict[str, int] = {}
    for _, frames in attack("native", random.Random(1), 10_000):
        header = said(frames)
        kinds["" if header is None else header.kind] = kinds.get("" if header is None else header.kind, 0) + 1
    assert kinds[""] < 5_000
    assert examples().keys() <= kinds.keys()
