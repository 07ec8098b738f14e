"""Polls send the tag of the last answer, and wait longer after slow answers and failures."""

from collections.abc import Iterator

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.commands.rest import Rest
from yunishard.cli.main import CommandFailed
from yunishard.cli.top.polling import BACK_OFF_MAX_S, COST_FACTOR, Poll


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        yield fake


class FakeClock:
    """Advances by the next duration with each second look, so that a request takes that long."""

    def __init__(self, *durations: float) -> None:
        self.durations = list(durations)
        self.now = 0.0
        self.is_end = False

    def __call__(self) -> float:
        if self.is_end and self.durations:
            self.now += self.durations.pop(0)
        self.is_end = not self.is_end
        return self.now


def test_the_tag_is_sent_for_the_same_resource_only(fake: FakeWeb) -> None:
    fake.says("GET a?x=1", "[]", tag="T1")
    fake.says("GET a?x=2", "[]", tag="T2")
    poll = Poll(Rest(fake.url))
    for query in ({"x": "1"}, {"x": "1"}, {"x": "2"}):
        assert poll.request(("a",), query) is not None
    assert [headers.get("If-None-Match") for _, headers, _ in fake.heard] == [None, '"T1"', None]


def test_an_unchanged_resource_has_no_answer(fake: FakeWeb) -> None:
    poll = Poll(Rest(fake.url))
    fake.says("GET a", "[]", tag="T")
    assert poll.request(("a",), {}) is not None
    fake.says("GET a", "", status=304, tag="T")
    assert poll.request(("a",), {}) is None


def test_the_pause_is_a_multiple_of_the_answer_time(fake: FakeWeb) -> None:
    fake.says("GET a", "[]")
    poll = Poll(Rest(fake.url), period_s=2.0, clock=FakeClock(0.01, 0.5, 100))
    waits = []
    for _ in range(3):
        poll.request(("a",), {})
        waits.append(poll.wait_s)
    assert waits == [2.0, pytest.approx(COST_FACTOR * 0.5), BACK_OFF_MAX_S]


def test_failures_double_the_pause_up_to_a_limit(fake: FakeWeb) -> None:
    fake.refuses("GET a", 503, "starting")
    poll = Poll(Rest(fake.url), period_s=2.0)
    waits = []
    for _ in range(7):
        with pytest.raises(CommandFailed, match="starting"):
            poll.request(("a",), {})
        waits.append(poll.wait_s)
    assert waits == [2, 4, 8, 16, 32, 60, 60]
