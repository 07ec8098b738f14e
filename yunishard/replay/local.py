"""A whole system of one's own for the length of a replay: started as a child process, stopped whatever happens.

The child is `yunishard up` with free ports and a temporary state directory; it tells its address on its output. It has
a process group of its own, so that Ctrl-C reaches the replay alone, which stops it in order. Not here: what `up` does.
"""

import asyncio
import ctypes
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from yunishard.replay.plan import PARTITIONS_MAX

START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 20.0
PR_SET_PDEATHSIG: Final = 1
"""From Linux's `sys/prctl.h`."""

COMMAND: Final = (
    *(sys.executable, "-P", "-m", "deploy", "--ephemeral", "--log-level", "warning"),
    *("--native", "tcp://127.0.0.1:0", "--grpc", "off", "--rest", "off"),
    *("--partitions-max", str(PARTITIONS_MAX)),
)
"""The bound on partitions keeps the need for file descriptors below 1,024, which is a usual hard limit."""


class LocalSystemError(Exception):
    """The system did not start; it has said why on standard error."""


@asynccontextmanager
async def local_system(command: tuple[str, ...] = COMMAND) -> AsyncIterator[str]:
    """Start it, give the address of its native port, stop it.

    Raises:
        LocalSystemError: it ended, or was not ready within `START_S_MAX`.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        process_group=0,
        preexec_fn=_dies_with_us(),
    )
    assert process.stdout is not None
    drain: asyncio.Task[bytes] | None = None
    try:
        address = await _address(process.stdout)
        drain = asyncio.create_task(process.stdout.read())  # it may go on talking; a full pipe would stop it
        yield address
    finally:
        await _stop(process)
        if drain is not None:
            await drain


def _dies_with_us() -> Callable[[], None] | None:
    """What makes the child get SIGTERM when this process is killed; only Linux has it."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM.value)


async def _address(output: asyncio.StreamReader) -> str:
    """The native address, once everything is ready."""
    address = ""
    try:
        async with asyncio.timeout(START_S_MAX):
            while line := (await output.readline()).decode(errors="replace"):
                match line.split():
                    case ["native", where]:
                        address = where
                    case ["ready", *_] if address:
                        return address
    except TimeoutError:
        raise LocalSystemError(f"the local system was not ready within {START_S_MAX:g} s") from None
    raise LocalSystemError("the local system ended before it was ready")


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_S_MAX):
            await process.wait()
    except TimeoutError:
        process.kill()  # its own children notice that it is gone
        await process.wait()
