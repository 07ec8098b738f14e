"""An RM whose first address is a host name for which the resolver does not answer."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.yunishard.fake_core import FakeCore
from yunishard.common.messages.rm_messages import RegisterResourceManager
from yunishard.sdk.client import connect

ANSWER_MAX_S = 30
"""How long the C library waits for the resolver: longer than the test does."""

NAMESPACES = ("unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), "--net", "--mount")


async def register() -> None:
    """Register at the second address. Port 53 of this network belongs to a program that never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.bind(("127.0.0.1", 53))
        async with FakeCore() as core, asyncio.TaskGroup() as tasks:
            rm = connect(f"tcp://gone.example:9090,{core.address}", rm_id="rm-1", config="")
            tasks.create_task(rm.__aenter__())
            await core.hears(RegisterResourceManager)
            assert resolver.recv(1000, socket.MSG_DONTWAIT), "nothing was looked up"
            os._exit(0)  # the thread with the look-up cannot be stopped


def run(script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in namespaces of its own."""
    words = [*NAMESPACES, "sh", "-c", script]
    return subprocess.run(words, timeout=ANSWER_MAX_S - 10, capture_output=True, text=True, check=False)


can_mount = run("mount --bind /dev/null /etc/resolv.conf").returncode == 0


@pytest.mark.skipif(not can_mount, reason="needs root or user namespaces")
def test_a_name_that_cannot_be_looked_up_does_not_delay_the_next_address(tmp_path: Path) -> None:
    configuration = tmp_path / "resolv.conf"
    configuration.write_text(f"nameserver 127.0.0.1\noptions timeout:{ANSWER_MAX_S} attempts:1\n")
    mount = f"mount --bind {configuration} /etc/resolv.conf"
    done = run(f"ip link set lo up && {mount} && exec {sys.executable} -m {__name__}")
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    asyncio.run(register())
