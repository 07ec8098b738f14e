"""What the tests of the journal have open is closed at their end."""

from collections.abc import Iterator

import pytest

from tests.partition_worker.journal.hand import OPEN
from yunishard.partition_worker.journal import sqlite_journal


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


@pytest.fixture
def log_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a log is written beforehand, so that a disk is full when it has to be."""
    monkeypatch.setattr(sqlite_journal, "WAL_PREALLOCATED_BYTES", 0)
