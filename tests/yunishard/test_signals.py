"""SIGINT and SIGTERM end a command without a traceback at any moment: as it starts, runs, and ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "packaging" / "scripts" / "yunishard"
RUN = """
import atexit, os, runpy, sys
number, event, name, *sys.argv = sys.argv[1:]
pending = [int(number)]

def send(found, args):
    if found == event and (not name or args[0] == name) and pending:
        os.kill(os.getpid(), pending.pop())

sys.addaudithook(send)
if event == "exit":
    atexit.register(send, "exit", [""])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Sends the process a signal at the first event of this kind and name."""

PORTS = ("--native", "tcp://127.0.0.1:0", "--grpc", "off", "--rest", "127.0.0.1:0")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("event", "name", "words"),
    [
        ("import", "yunishard.cli.main", ("node", "list")),
        ("import", "argparse", ("node", "list")),
        ("import", "yunishard.cli.commands.listing", ("node", "list")),
        ("socket.connect", "", ("node", "list", "--rest", "http://127.0.0.1:1")),
        ("exit", "", ("node", "list", "--rest", "http://127.0.0.1:1")),
        ("import", "yunishard.deploy.preflight", ("up", "--ephemeral", *PORTS)),
        ("socket.bind", "", ("up", "--ephemeral", *PORTS)),
    ],
)
def test_a_signal_ends_a_command_without_a_traceback(
    tmp_path: Path, number: signal.Signals, event: str, name: str, words: tuple[str, ...]
) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, str(int(number)), event, name, str(SCRIPT), *words],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 128 + number
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    words = ("node", "list", "--rest", "http://127.0.0.1:1")
    command = [sys.executable, "-P", "-c", RUN, str(int(signal.SIGINT)), "socket.connect", "", str(SCRIPT), *words]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 2
