"""What is measured is what the table says."""

import pytest

from benchmarks import tenants
from benchmarks.tenants import Busy, Idle, measured

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]


def test_every_company_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "SETTLING_S", 0.1)
    found = measured(others=1, seconds=2.0)
    assert {name: type(one) for name, one in found.items()} == {
        "busy, alone": Busy,
        "one idle": Idle,
        "2 idle": Idle,
        "busy, beside 1 idle": Busy,
        "busy, beside a busy one": Busy,
    }
    for one in found.values():
        if isinstance(one, Busy):
            assert one.asks_per_s > 0
            assert 0 < one.latency_ms <= one.latency_ms_max
