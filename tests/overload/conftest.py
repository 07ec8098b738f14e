from collections.abc import Iterator

import pytest

from tests.deploy.system import FREE_PORTS, up
from tests.processes.system import System


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One system for all tests of a file, which must outlive them all."""
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path_factory.mktemp("system")) as running:
        yield System(running, running.announced())
        assert running.stop() == 0
