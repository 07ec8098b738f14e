"""One filled system for all tests of this folder that need its page."""

from pathlib import Path

import pytest

from tests.metrics.filled import PAGE, filled, page
from tests.metrics.series import Family, read


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The page of both resource managers, and that of the first one, as they were sent."""
    folder: Path = tmp_path_factory.mktemp("filled")
    with filled(folder) as (_, endpoints):
        return page(endpoints), page(endpoints, f"{PAGE}?rm=rm-1")


@pytest.fixture(scope="session")
def text(texts: tuple[str, str]) -> str:
    """The page of both."""
    return texts[0]


@pytest.fixture(scope="session")
def families(text: str) -> dict[str, Family]:
    return read(text)


@pytest.fixture(scope="session")
def of_one(texts: tuple[str, str]) -> dict[str, Family]:
    """The families of the first one, as if there were no other: YuniKorn's have no label `partition`."""
    return read(texts[1])
