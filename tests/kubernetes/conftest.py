from collections.abc import Iterator

import pytest

from tests.kubernetes.controlplane import ControlPlane, run_control_plane


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One control plane for all tests. Each works in a namespace of its own."""
    with run_control_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running
