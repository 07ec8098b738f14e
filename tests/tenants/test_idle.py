"""A system whose resource managers have nothing to do does next to nothing itself, and writes nothing."""

from typing import Final

import pytest

from benchmarks import tenants
from benchmarks.systems import in_background
from tests.processes.system import System

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

MANAGERS: Final = 3
CPU_MAX_PERCENT: Final = 25.0
"""Of one core, with three signs of life a second from everybody; some room for a machine that is busy otherwise."""


def test_an_idle_system_is_idle(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "SETTLING_S", 1.0)
    with in_background(tenants.linger, system.native, MANAGERS):
        found = tenants.idle(system.up.process.pid, 5.0)
    assert found.written_bytes == 0
    assert 0 < found.cpu_percent < CPU_MAX_PERCENT, found
    roles = {"supervisor", "broker", "rmproxy", "webservice", "partition_worker"}
    assert set(found.cpu_percent_by_role) == roles
    assert found.memory_mib > 0
