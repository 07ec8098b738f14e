"""Quarantine poison messages: a message that ended the worker twice is rejected instead of handled a third time.

    begin(identity) --> handled --> end()
         |
         the process dies --> its successor counts an attempt for this identity; at ATTEMPTS_MAX it rejects the message

The mark is in a mapped file that survives the process (`journal/files.py`), so marking costs no disk write. A
quarantined command of the RM becomes a step of the journal, so the numbering continues; its items are rejected one by
one, in numbered messages. Every other quarantined message is answered with the reason.
"""

import struct
import zlib
from typing import Final, NamedTuple

from msgspec.structs import replace

from common import rm_messages
from common.journal_messages import SetAside
from common.messages import Command, Header
from common.names import usual_name
from common.wire import Incoming, WireError, decode_body, encode_body
from partition_worker.partition_host import check_length

ATTEMPTS_MAX: Final = 2
"""Times that handling a message may end the worker. The next time the message is quarantined."""

ANSWERED: Final = frozenset({"Query", "KillApplication", "MoveApplication", "Schedule"})
"""Kinds that are answered with the reason."""

REFUSABLE: Final = frozenset({*rm_messages.NUMBERED, *ANSWERED, "PredicatesAnswered", "PrepareConfig"})
"""Kinds that can be quarantined. The worker cannot continue without the others, which restore what runs already."""

_IDENTITY: Final = struct.Struct("<IIQ")


class Poison(NamedTuple):
    """A quarantined message, to be stored for inspection."""

    at: float
    """Unix seconds."""
    identity: bytes
    incoming: Incoming
    reason: str


class Attempts:
    """Counts how many workers ended while they handled a message; this class counts nothing, as without a journal."""

    def begin_attempt(self, identity: bytes) -> None:
        """Mark the message as being handled."""

    def end_attempt(self) -> None:
        """Remove the mark."""

    def count_deaths(self, identity: bytes) -> int:
        """Return how many workers ended while they handled the message."""
        return 0


def identify_message(kind: str, body: bytes) -> bytes:
    """Identify a message by its content, and not by time or session, so that it is recognized in a new session, too."""
    return _IDENTITY.pack(zlib.crc32(kind.encode()), zlib.crc32(body), len(body))


def describe_reason(header: Header, body: bytes, partition: str) -> str:
    """Describe why a message is quarantined, with the RM's name of the partition."""
    name = usual_name(partition)
    return (
        f"{header.kind} of {len(body)} bytes ended the worker of partition {name} {ATTEMPTS_MAX} times "
        "while it was handled: it was set aside and has no effect"
    )


def build_set_aside(incoming: Incoming, why: str, *, itemized: bool) -> Incoming:
    """Build the message that replaces a quarantined command. If `itemized`, it lists the items that the command would
    have added; for that the command is decoded.
    """
    header, body = incoming.header, incoming.body
    message = SetAside(kind=header.kind, reason=why)
    command: Command | None = None
    if itemized:
        try:
            command = decode_body(rm_messages.NUMBERED[header.kind], body)
            check_length(command)
        except WireError:  # it is refused as a whole
            command = None
    match command:
        case rm_messages.NodeRequest(nodes=nodes):
            created = [
                one.node_id for one in nodes if one.action in (rm_messages.NODE_CREATE, rm_messages.NODE_CREATE_DRAIN)
            ]
            message = SetAside(kind=header.kind, reason=why, nodes=created)
        case rm_messages.ApplicationRequest(new=new):
            message = SetAside(kind=header.kind, reason=why, applications=[one.application_id for one in new])
        case rm_messages.AllocationRequest(allocations=asked):
            rejected = [
                rm_messages.RejectedAllocation(
                    allocation_key=one.allocation_key, application_id=one.application_id, reason=why
                )
                for one in asked
            ]
            message = SetAside(kind=header.kind, reason=why, allocations=rejected)
    return Incoming(incoming.source, replace(header, kind=SetAside.__name__), encode_body(message))
