from collections.abc import Iterator

import pytest

from tests.deploy.system import FREE_PORTS, up
from tests.processes.system import System


@pytest.fixture
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system of its own for each test, which notices early that somebody is away."""
    settings = ("--ephemeral", "--silence", "1s", "--heartbeat", "300ms")
    with up(*settings, *FREE_PORTS, folder=tmp_path_factory.mktemp("system")) as running:
        yield System(running, running.announced())
        assert running.stop() == 0
