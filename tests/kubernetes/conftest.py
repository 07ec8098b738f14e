import re
from collections.abc import Iterator

import pytest

from tests.kubernetes.controlplane import ControlPlane, run_control_plane
from tests.kubernetes.system import Site, System, run_system


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One control plane for all tests."""
    with run_control_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture(scope="module")
def system(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One core and shim for all tests of a file."""
    with run_system(plane, tmp_path_factory.mktemp("system")) as running:
        yield running


@pytest.fixture
def site(system: System, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A namespace with the name of the test."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))
    place = Site(system, words[:40].strip("-"))
    system.plane.create_namespace(place.name)
    yield place
    place.clean()
