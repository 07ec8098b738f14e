"""What the tests of the journal have open is closed at their end."""

from collections.abc import Iterator

import pytest

from tests.partition_worker.journal.hand import OPEN


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()
