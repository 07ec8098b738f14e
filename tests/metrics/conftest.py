"""One filled system for all tests of this folder that need its page."""

from pathlib import Path

import pytest

from tests.metrics.filled import filled, page
from tests.metrics.series import Family, read


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page as it was sent."""
    folder: Path = tmp_path_factory.mktemp("filled")
    with filled(folder) as (_, endpoints):
        return page(endpoints)


@pytest.fixture(scope="session")
def families(text: str) -> dict[str, Family]:
    return read(text)
