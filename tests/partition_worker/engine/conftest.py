"""The trials of these tests are recorded: after each step their records are complete, and at the end of each test a
partition that is recovered from them is like the one that was recorded.
"""

from collections.abc import Iterator

import pytest

from tests.recorded import Recorded
from tests.trial import Trial


@pytest.fixture(autouse=True)
def recorded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Record the partitions of a test, unless it is marked with `tampers`."""
    made: list[Recorded] = []

    class Collected(Recorded):
        def _start_recording(self) -> None:
            made.append(self)

    tampers = "tampers" in request.keywords
    if not tampers:
        monkeypatch.setattr(Trial, "made", Collected)
    yield
    for partition in made:
        partition.drain_effects()  # some tests call modules of the engine themselves
        partition.restored()
