import pytest

from yunishard.kubernetes_shim import pacing
from yunishard.kubernetes_shim.pacing import Backoff, RequestRate


def test_requests_wait_for_their_turn() -> None:
    rate = RequestRate(10, 3)
    assert [round(rate.reserve(5.0), 3) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]
    assert rate.reserve(5.3) == 0
    assert [round(rate.reserve(100.0), 3) for _ in range(4)] == [0, 0, 0, 0.1]


def test_pauses_double_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "FIRST_PAUSE_S", 0.001)
    backoff = Backoff(0.003)
    assert all(low <= backoff.next_pause() <= high for low, high in ((0.0005, 0.001), (0.001, 0.002), (0.0015, 0.003)))
    assert backoff.next_pause() <= 0.003
    backoff.reset()
    assert backoff.next_pause() <= 0.001
