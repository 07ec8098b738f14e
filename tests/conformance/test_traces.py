"""Every trace, on a system of its own. Most of the time a trace waits for silence, so several are played at the same
time, each by a process of its own: see `__main__.py`, which is also the way to play one by hand.
"""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.play import TRACES

pytestmark = pytest.mark.processes

ROOT: Final = Path(__file__).parents[2]
AT_ONCE: Final = 5
PLAY_S: Final = 110.0
SLOWEST: Final = ("app-completed-after-completing-timeout",)
"""Begun first: this one waits for 30 seconds."""


NATIVE: Final = ("two-", "partitions-", "recovery-", "ask-", "release-")
"""How the traces begin that are played over the native protocol as well."""

CASES: Final = [(name, False) for name in TRACES] + [(name, True) for name in TRACES if name.startswith(NATIVE)]

Case = tuple[str, bool]
"""A trace, and whether it is played over the native protocol."""


class Plays:
    """The selected traces, played in the background, the slowest first."""

    def __init__(self, cases: list[Case]) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._pool = ThreadPoolExecutor(AT_ONCE)
        slowest_first = sorted(cases, key=lambda case: case[0] not in SLOWEST)
        self._plays: dict[Case, Future[tuple[int, str]]] = {
            case: self._pool.submit(self._play, *case) for case in slowest_first
        }

    def result(self, case: Case) -> tuple[int, str]:
        """Exit status and output, once it is over."""
        return self._plays[case].result()

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in tuple(self._running):
            process.terminate()
        self._pool.shutdown()

    def _play(self, name: str, native: bool) -> tuple[int, str]:
        with subprocess.Popen(
            [sys.executable, "-m", "tests.conformance", *(["--native"] if native else []), name],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            self._running.add(process)
            try:
                output, _ = process.communicate(timeout=PLAY_S)
            except subprocess.TimeoutExpired:
                process.terminate()
                output, _ = process.communicate()
                output += f"\nnot over after {PLAY_S} s"
            finally:
                self._running.discard(process)
        return process.returncode, output


@pytest.fixture(scope="session")
def plays(request: pytest.FixtureRequest) -> Iterator[Plays]:
    """All traces of this run, and only those, started when the first is asked for."""
    selected: list[Case] = [
        item.callspec.params["case"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and "plays" in item.fixturenames
    ]
    started = Plays(selected)
    yield started
    started.stop()


@pytest.mark.timeout(300)  # it may have to wait for others
@pytest.mark.parametrize("case", CASES, ids=[f"{name}{' natively' if native else ''}" for name, native in CASES])
def test_trace(plays: Plays, case: Case) -> None:
    status, output = plays.result(case)
    assert status == 0, output
