"""The only loop that waits: it feeds a machine with messages and time, and sends what the machine answers.

Not here: sockets (`sockets.py`), and anything that is decided.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from common.machine import Delivery, Machine, Send

_STARTED_WALL: Final = time.time()
_STARTED_MONOTONIC: Final = time.monotonic()


def clock() -> float:
    """Unix seconds that never go back: the wall clock when the process started, plus what has passed since."""
    return _STARTED_WALL + (time.monotonic() - _STARTED_MONOTONIC)


class Wire(Protocol):
    """What the loop needs of the sockets (`sockets.py`), or of a network that a test makes up."""

    def follow(self, turn: Callable[[list[Delivery]], float]) -> None:
        """While `receive` waits, call this with what arrives: it says for how long `receive` may go on waiting."""

    async def receive(self, timeout_s: float) -> list[Delivery]:
        """Messages that arrived, or none after the timeout."""

    def send(self, message: Send) -> None:
        """Pass a message on without waiting."""


async def drive(
    machine: Machine, wire: Wire, stopping: asyncio.Event, *, write_notes: Callable[[], None] = lambda: None
) -> None:
    """Run a machine until `stopping` is set. An exception in a machine is a defect and ends the process.

    `write_notes` is called after each round, to log what the machine has noted.
    """

    def turn(deliveries: list[Delivery]) -> float:
        now = clock()
        for delivery in deliveries:
            for message in machine.handle(delivery, now):
                wire.send(message)
        deadline = machine.deadline
        if deadline <= now:
            for message in machine.tick(now):
                wire.send(message)
            deadline = machine.deadline
        write_notes()
        return deadline - clock()

    wire.follow(turn)
    left_s = machine.deadline - clock()
    while not stopping.is_set():
        left_s = turn(await wire.receive(left_s))
