"""A system of one's own is started, found, and stopped whatever happens; here it is a few lines of shell."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from yunishard.replay import local
from yunishard.replay.local import LocalSystemError, local_system

READY = 'echo "native  tcp://127.0.0.1:4567"; echo "rest    http://127.0.0.1:1"; echo ready;'


def system(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def test_its_address_is_read_and_it_is_told_to_stop(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    script = (
        f'trap "touch {stopped}; exit 0" TERM; {READY} read forever </dev/tty || while :; do wait; sleep 0.01; done'
    )

    async def story() -> None:
        async with local_system(system(script)) as address:
            assert address == "tcp://127.0.0.1:4567"
            assert not stopped.exists()

    asyncio.run(story())
    assert stopped.exists()


def test_it_is_stopped_after_an_error_too(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    async def story() -> None:
        async with local_system(system(f"echo $$ > {pid}; {READY} exec sleep 60")):
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(story())
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children that their parent was killed")
def test_it_is_stopped_when_we_are_killed(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    os.mkfifo(stopped)
    program = """
import asyncio, os, signal, sys
from yunishard.replay.local import local_system
async def story():
    async with local_system(("/bin/sh", "-c", sys.argv[1])):
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(story())
"""
    script = f'trap "echo stopped > {stopped}; exit 0" TERM; {READY} while :; do sleep 0.01; done'
    killed = subprocess.Popen([sys.executable, "-P", "-c", program, script])
    assert stopped.read_text() == "stopped\n"
    assert killed.wait() == -signal.SIGKILL


def test_one_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "STOP_S_MAX", 0.05)

    async def story() -> None:
        async with local_system(system(f'trap "" TERM; {READY} exec sleep 60')):
            pass

    asyncio.run(story())


def test_one_that_ends_or_hangs_at_the_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "START_S_MAX", 0.05)

    async def start(script: str) -> None:
        async with local_system(system(script)):
            pytest.fail("was ready")

    with pytest.raises(LocalSystemError, match="ended before it was ready"):
        asyncio.run(start("echo ready; exit 2"))
    with pytest.raises(LocalSystemError, match="not ready within"):
        asyncio.run(start("exec sleep 60"))


@pytest.mark.processes
def test_the_usual_hard_limit_of_file_descriptors_is_enough() -> None:
    async def story() -> None:
        async with local_system(("prlimit", "--nofile=1024:1024", *local.COMMAND)) as address:
            assert address.startswith("tcp://127.0.0.1:")

    asyncio.run(story())
