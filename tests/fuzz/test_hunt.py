"""A real system with somebody mad at every port. `make fuzz` sends a million; here it is a few thousand."""

import os
import random
import signal
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, up
from tests.fuzz import hunt
from tests.fuzz.hunt import BARE, KEYED, PLAIN
from tests.fuzz.streams import STREAMS
from tests.fuzz.watch import LOG_LINES_MAX, Watch

pytestmark = pytest.mark.processes

FRAMES = 1_000
"""To each port."""


def test_every_port_holds_and_the_good_one_is_served() -> None:
    outcome = hunt.plain(dict.fromkeys(PLAIN, FRAMES), seed=1)
    assert outcome.sent >= FRAMES * len(PLAIN)
    assert outcome.waits


def test_a_port_with_keys_holds_whatever_name_is_used() -> None:
    outcome = hunt.keyed(dict.fromkeys(KEYED, FRAMES), seed=2)
    assert outcome.sent >= FRAMES
    assert outcome.waits


@pytest.mark.parametrize("port", STREAMS)
def test_the_same_seed_sends_the_same(port: str) -> None:
    first, again = (STREAMS[port](random.Random(3)) for _ in range(2))
    for _ in range(500):
        assert next(first) == next(again)


def test_who_dies_is_missed(tmp_path: Path) -> None:
    with up(*BARE, *FREE_PORTS, folder=tmp_path) as running:
        running.announced()
        watch = Watch(running, {"the proxy": "-m rmproxy"})
        assert watch.problem() == ""
        os.kill(running.child("-m rmproxy"), signal.SIGKILL)
        running.until(lambda: watch.problem() == "the proxy died")
        assert running.stop() == 0


def test_what_is_no_line_of_the_log_is_counted(tmp_path: Path) -> None:
    with up(*BARE, *FREE_PORTS, folder=tmp_path) as running:
        running.announced()
        watch = Watch(running, {})
        with (tmp_path / "errors").open("a") as log:
            log.write("WARNING nonsense\n" * (LOG_LINES_MAX + 1))
        assert watch.problem() == f"the log has {LOG_LINES_MAX + 1} lines, 'WARNING nonsense' the last"
        assert running.stop() == 0
