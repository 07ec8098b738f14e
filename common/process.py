"""What every server process does around its machine: options, logs, signals, and the lifeline to the supervisor.

The lifeline is one end of a socket pair, for lines of JSON. The process writes one when it is ready
(`{"ready": {...}}`, with the endpoints it opened) or cannot start (`{"failed": "..."}`), and one each heartbeat to say
that its loop still goes round (`{"alive": 7}`). It reads what the supervisor says, which is an `Assignment` for a spare
worker and nothing for anybody else, to the end: when the supervisor is gone, however it went, every process notices and
leaves. Started by hand, without a lifeline, a process runs until it is told to stop.

Not here: what a process decides (its machine), restarting (`deploy/`).
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import msgspec
import uvloop

from common import garbage, signals

LEAVE_MAX_S: Final = 5.0
"""How long a process may take to end in order after its supervisor has gone; then it ends at once."""

HEARTBEAT_S: Final = 1.0
"""How often a process says that it is alive, if it is told nothing else."""

LOG_LEVELS: Final = ("debug", "info", "warning", "error")


class Assignment(msgspec.Struct, frozen=True):
    """The supervisor's line to a spare worker: be the worker of this partition, under this lease."""

    partition: str
    epoch: int


class Life:
    """A process's own beginning and end: tells the supervisor that it is ready and alive, and says when to stop."""

    def __init__(self, lifeline: int | None, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.stopping = asyncio.Event()
        self._lifeline = lifeline
        self._heartbeat_s = heartbeat_s
        self._beats = 0
        self._told: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._waiters: list[Callable[[], None]] = [lambda: self._told.put_nowait(None)]
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        if lifeline is not None:
            line = socket.socket(fileno=os.dup(lifeline))
            threading.Thread(target=self._follow, args=(line, loop), name="lifeline", daemon=True).start()
            loop.call_later(heartbeat_s, self._beat, line, loop)

    def on_stop(self, wake: Callable[[], None]) -> None:
        """Have someone woken who may be waiting for something else when it is time to stop."""
        self._waiters.append(wake)

    def stop(self) -> None:
        """It is time to stop."""
        self.stopping.set()
        for wake in self._waiters:
            wake()

    def ready(self, **endpoints: str) -> None:
        """Say that everything is open."""
        tell(self._lifeline, {"ready": endpoints})

    async def told(self) -> bytes | None:
        """The next line of the supervisor, or None when it is time to stop."""
        return None if self.stopping.is_set() else await self._told.get()

    def _beat(self, line: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """Say that the loop goes round, and again after a while. While the supervisor itself is stopped nobody reads,
        and what has no room is left out: a process must not wait for that.
        """
        self._beats += 1
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            line.send(_line({"alive": self._beats}), socket.MSG_DONTWAIT)
        loop.call_later(self._heartbeat_s, self._beat, line, loop)

    def _follow(self, line: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        try:
            # Reset: the other end is gone, which is what this thread waits for.
            with suppress(ConnectionResetError), line.makefile("rb") as lines:
                for text in lines:
                    loop.call_soon_threadsafe(self._told.put_nowait, text)
            loop.call_soon_threadsafe(self.stop)
        except RuntimeError:  # the loop has already ended
            line.close()
            return
        time.sleep(LEAVE_MAX_S)
        os._exit(70)


def tell(lifeline: int | None, line: dict[str, object]) -> None:
    """Write one line to the supervisor, if there is one."""
    if lifeline is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # it is gone, which the lifeline's reader notices
        os.write(lifeline, _line(line))


def _line(line: dict[str, object]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def parser(role: str, about: str) -> argparse.ArgumentParser:
    """The options that all server processes share."""
    options = argparse.ArgumentParser(prog=f"python -m {role}", description=about)
    options.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="how much to log (default: info)")
    options.add_argument(
        "--heartbeat",
        type=float,
        default=HEARTBEAT_S,
        metavar="SECONDS",
        help="time between two signs of life, to the supervisor and to the broker (default: 1)",
    )
    options.add_argument("--lifeline", type=int, metavar="FD", help="socket to the supervisor (set by `yunishard up`)")
    return options


def main(role: str, args: argparse.Namespace, serve: Callable[[Life], Awaitable[None]]) -> int:
    """Run `serve` until it returns; its exit status. What it cannot open it reports as OSError, in one line."""
    garbage.seldom()
    signals.install()
    if args.lifeline is not None:  # the supervisor decides when to stop, not a terminal
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logging.basicConfig(
        level=args.log_level.upper(),
        format=f"%(asctime)s %(levelname)-7s {role} %(name)s: %(message)s",
        stream=sys.stderr,
    )

    async def run() -> None:
        await serve(Life(args.lifeline, heartbeat_s=args.heartbeat))

    try:
        uvloop.run(run())
    except OSError as error:
        if args.lifeline is None:
            sys.stderr.write(f"{role}: {error}\n")
        tell(args.lifeline, {"failed": str(error)})
        return 2
    finally:
        gc.freeze()  # the system takes it all back: to look for cycles in a large partition first takes seconds
    return 0
