"""What every server process does around its machine: options, logs, signals, and the lifeline to the supervisor.

The lifeline is one end of a socket pair. The process writes a JSON line into it when it is ready (`{"ready": {...}}`,
with the endpoints it opened) or cannot start (`{"failed": "..."}`), and reads it to its end: when the supervisor is
gone, however it went, every process notices and leaves. Started by hand, without a lifeline, a process runs until it
is told to stop.

Not here: what a process decides (its machine), restarting (`deploy/`).
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import uvloop

LEAVE_MAX_S: Final = 5.0
"""How long a process may take to end in order after its supervisor has gone; then it ends at once."""

LOG_LEVELS: Final = ("debug", "info", "warning", "error")


class Life:
    """A process's own beginning and end: tells the supervisor it is ready, and says when to stop."""

    def __init__(self, lifeline: int | None) -> None:
        self.stopping = asyncio.Event()
        self._lifeline = lifeline
        self._waiters: list[Callable[[], None]] = []
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        if lifeline is not None:
            threading.Thread(target=self._follow, args=(lifeline, loop), name="lifeline", daemon=True).start()

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

    def _follow(self, lifeline: int, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while os.read(lifeline, 4096):
                continue
        except ConnectionResetError:
            pass  # the other end is gone: that is what this thread waits for
        try:
            loop.call_soon_threadsafe(self.stop)
        except RuntimeError:
            return  # the loop has already ended
        time.sleep(LEAVE_MAX_S)
        os._exit(70)


def tell(lifeline: int | None, line: dict[str, object]) -> None:
    """Write one line to the supervisor, if there is one."""
    if lifeline is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):  # it is gone, which the lifeline's reader notices
        os.write(lifeline, json.dumps(line).encode() + b"\n")


def parser(role: str, about: str) -> argparse.ArgumentParser:
    """The options that all server processes share."""
    options = argparse.ArgumentParser(prog=f"python -m {role}", description=about)
    options.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="how much to log (default: info)")
    options.add_argument("--lifeline", type=int, metavar="FD", help="socket to the supervisor (set by `yunishard up`)")
    return options


def main(role: str, args: argparse.Namespace, serve: Callable[[Life], Awaitable[None]]) -> int:
    """Run `serve` until it returns; its exit status. What it cannot open it reports as OSError, in one line."""
    logging.basicConfig(
        level=args.log_level.upper(),
        format=f"%(asctime)s %(levelname)-7s {role} %(name)s: %(message)s",
        stream=sys.stderr,
    )

    async def run() -> None:
        await serve(Life(args.lifeline))

    try:
        uvloop.run(run())
    except OSError as error:
        if args.lifeline is None:
            sys.stderr.write(f"{role}: {error}\n")
        tell(args.lifeline, {"failed": str(error)})
        return 2
    return 0
