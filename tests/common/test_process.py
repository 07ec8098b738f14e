"""The lifeline, with real processes: what they say when they start, and that they end when their other end closes."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from common.process import parser, tell

PATIENCE_S = 20.0

CHILD = """
import asyncio, sys
from common.process import main, parser

options = parser("child", "for tests")
options.add_argument("--story", default="serve")
args = options.parse_args()

async def serve(life):
    if args.story == "fail":
        raise OSError("cannot listen on tcp://127.0.0.1:1: taken")
    if args.story == "defect":
        raise KeyError("a defect")
    woken = asyncio.Event()
    life.on_stop(woken.set)
    life.ready(native="tcp://127.0.0.1:9090")
    await woken.wait()
    assert life.stopping.is_set()

sys.exit(main("child", args, serve))
"""


class Child:
    def __init__(self, process: subprocess.Popen[bytes], lifeline: socket.socket) -> None:
        self.process = process
        self.lifeline = lifeline

    def line(self) -> object:
        """What it says; empty when it closed its end."""
        text = b""
        while not text.endswith(b"\n"):
            piece = self.lifeline.recv(4096)
            if not piece:
                break
            text += piece
        return json.loads(text) if text else None

    def ends(self) -> int:
        return self.process.wait(timeout=PATIENCE_S)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


@contextmanager
def child(story: str = "serve") -> Iterator[Child]:
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE_S)
    with (
        ours,
        subprocess.Popen(
            [sys.executable, "-P", "-c", CHILD, f"--story={story}", f"--lifeline={theirs.fileno()}"],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
        ) as process,
    ):
        theirs.close()
        try:
            yield Child(process, ours)
        finally:
            process.kill()


@pytest.mark.processes
def test_a_process_says_that_it_is_ready_and_ends_when_its_supervisor_is_gone() -> None:
    with child() as one:
        assert one.line() == {"ready": {"native": "tcp://127.0.0.1:9090"}}
        one.lifeline.close()
        assert one.ends() == 0
        assert one.errors() == ""


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(number: signal.Signals) -> None:
    with child() as one:
        one.line()
        one.process.send_signal(number)
        assert one.ends() == 0
        assert one.errors() == ""


@pytest.mark.processes
def test_what_cannot_be_opened_is_said_in_one_line_and_only_to_the_supervisor() -> None:
    with child("fail") as one:
        assert one.line() == {"failed": "cannot listen on tcp://127.0.0.1:1: taken"}
        assert one.ends() == 2
        assert one.errors() == ""


@pytest.mark.processes
def test_started_by_hand_it_says_so_to_whoever_started_it() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHILD, "--story=fail"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "child: cannot listen on tcp://127.0.0.1:1: taken\n")


@pytest.mark.processes
def test_a_defect_is_loud() -> None:
    with child("defect") as one:
        assert one.ends() == 1
        assert "KeyError: 'a defect'" in one.errors()
        assert one.line() is None


def test_nobody_is_told_without_a_lifeline_or_with_a_broken_one() -> None:
    tell(None, {"ready": {}})
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        tell(ours.fileno(), {"ready": {}})
    read, write = os.pipe()
    tell(write, {"ready": {"rest": "http://127.0.0.1:9080"}})
    assert os.read(read, 4096) == b'{"ready": {"rest": "http://127.0.0.1:9080"}}\n'
    os.close(read)
    os.close(write)


def test_all_processes_share_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert parser("child", "").parse_args([]) == argparse.Namespace(log_level="info", lifeline=None)
    with pytest.raises(SystemExit):
        parser("child", "").parse_args(["--log-level", "loud"])
    assert "invalid choice: 'loud'" in capsys.readouterr().err
