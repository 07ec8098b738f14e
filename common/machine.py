"""The shape of every process: a machine decides and waits for nothing, a driver (`driver.py`) waits and decides
nothing.

A machine gets a message and the time and returns the messages to send. It has no socket, clock, randomness, logger or
environment, so a test, a simulation and a replay drive it exactly as production does.

Not here: what any process decides.
"""

import math
from typing import Final, Protocol

from msgspec import Struct

from common.messages import Header, Message
from common.wire import body_of

NEVER: Final = math.inf
"""The deadline of a machine that waits for nothing but messages."""

MALFORMED: Final = "Malformed"
"""The kind of an incoming message that cannot be read; its header's `ref` says why."""

FORBIDDEN: Final = "Forbidden"
"""The kind of an incoming message whose sender may not act for the RM in its header; the body says why."""


class Outgoing(Struct, frozen=True, gc=False):
    """A message on its way out: to whom (a peer's name), and the encoded body that no one on the way needs to open."""

    to: str
    header: Header
    body: bytes


class Incoming(Struct, frozen=True, gc=False):
    """A message that arrived: from whom, and still encoded."""

    source: str
    header: Header
    body: bytes


def make_outgoing(to: str, message: Message, header: Header | None = None) -> Outgoing:
    """A `Outgoing` of a message; the kind in the header is the message's class unless a header says otherwise."""
    return Outgoing(to, header or Header(kind=type(message).__name__), body_of(message))


class Machine(Protocol):
    """Everything a process decides, with nothing it waits for. Times are Unix seconds."""

    @property
    def deadline(self) -> float:
        """When it wants `tick`, or NEVER."""

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Take one message; what to send because of it."""

    def tick(self, now: float) -> list[Outgoing]:
        """Do what is due; called once `deadline` has passed."""
