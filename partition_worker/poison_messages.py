"""Quarantine poison messages: a message that ended the worker twice is rejected instead of handled a third time.

    begin_attempt --> handled --> end_attempt
         |
         the process dies --> its successor counts a death for this identity; at ATTEMPTS_MAX it rejects the message

The mark is in a mapped file that survives the process (`open_attempts` in `journal/files.py`), so marking costs no disk
write. A quarantined command of the RM becomes a step of the journal, so the numbering continues; its items are rejected
one by one, in numbered messages. Every other quarantined message is answered with the reason.
"""

import struct
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from common import rm_messages
from common.journal_messages import SetAside
from common.messages import Command, Header
from common.names import usual_name
from common.wire import Incoming, WireError, decode_body, encode_body
from partition_worker.partition_host import check_length

if TYPE_CHECKING:
    from mmap import mmap

ATTEMPTS_MAX: Final = 2
"""Times that handling a message may end the worker. The next time the message is quarantined."""

ANSWERED: Final = frozenset({"Query", "KillApplication", "MoveApplication", "Schedule"})
"""Kinds that are answered with the reason."""

REFUSABLE: Final = frozenset({*rm_messages.NUMBERED, *ANSWERED, "PredicatesAnswered", "PrepareConfig"})
"""Kinds that can be quarantined. The worker cannot continue without the others, which restore what runs already."""

_IDENTITY: Final = struct.Struct("<IIQ")
_IDENTITY_BYTES: Final = 16

MAGIC: Final = b"YSHATT01"
ENTRIES_MAX: Final = 16
"""Messages whose deaths are counted; the one that ended a worker longest ago is dropped first."""

PAGE_BYTES: Final = 4096
"""Size of the page of `Attempts`."""

_BUSY: Final = len(MAGIC)
_CURRENT: Final = slice(16, 16 + _IDENTITY_BYTES)
_SUPERVISOR: Final = slice(32, 48)
_ENTRIES_AT: Final = 64
_ENTRY: Final = struct.Struct(f"<{_IDENTITY_BYTES}sIId")
"""The identity and the fields of `Deaths`."""


class Poison(NamedTuple):
    """A quarantined message, to be stored for inspection."""

    at: float
    """Unix seconds."""
    identity: bytes
    incoming: Incoming
    reason: str


class Deaths(NamedTuple):
    """How often a message ended a worker."""

    alone: int = 0
    together: int = 0
    """Together with the supervisor."""
    at: float = 0.0
    """Unix seconds of the last time."""


class Attempts:
    """The message in progress, and how often messages ended a worker, in a page of memory.

    With a journal the page is a mapped file, which the next worker reads; else it ends with the process.
    """

    def __init__(self, deaths: Mapping[bytes, Deaths] | None = None, supervisor: bytes = b"") -> None:
        """`deaths` are those of earlier workers, by identity; the latest ENTRIES_MAX count."""
        self._supervisor = supervisor.ljust(_IDENTITY_BYTES, b"\0")
        self._deaths = dict(sorted((deaths or {}).items(), key=lambda item: -item[1].at)[:ENTRIES_MAX])
        self._current = b""
        self.page: bytearray | mmap = bytearray(self._content())

    def begin_attempt(self, identity: bytes) -> None:
        """Mark the message as being handled."""
        self.page[_CURRENT] = self._current = identity
        self.page[_BUSY] = 1

    def end_attempt(self) -> None:
        """Remove the mark."""
        self.page[_BUSY] = 0
        if self._deaths and self._deaths.pop(self._current, None) is not None:
            self.page[:] = self._content()  # this time the worker survived it

    def count_deaths(self, identity: bytes) -> int:
        """Return how many workers ended while they handled the message."""
        ended = self._deaths.get(identity)
        return 0 if ended is None else ended.alone + ended.together // 2

    def _content(self) -> bytes:
        header = MAGIC.ljust(_SUPERVISOR.start, b"\0") + self._supervisor
        entries = b"".join(_ENTRY.pack(identity, *ended) for identity, ended in self._deaths.items())
        return (header.ljust(_ENTRIES_AT, b"\0") + entries).ljust(PAGE_BYTES, b"\0")


def read_page(page: bytes, supervisor: bytes, now: float) -> tuple[dict[bytes, Deaths], bytes]:
    """Read the page of the former worker: return the messages that ended workers, and the one among them that was in
    progress (empty if none was), which is counted.

    Raises:
        ValueError: it is not such a page.
    """
    if len(page) != PAGE_BYTES or not page.startswith(MAGIC):
        raise ValueError("not a page of attempts")
    found: dict[bytes, Deaths] = {}
    for number in range(ENTRIES_MAX):
        identity, *entry = _ENTRY.unpack_from(page, _ENTRIES_AT + number * _ENTRY.size)
        ended = Deaths(*entry)
        if ended.alone or ended.together:
            found[identity] = ended
    if not page[_BUSY]:
        return found, b""
    identity = page[_CURRENT]
    ended = found.get(identity, Deaths())
    if page[_SUPERVISOR] == supervisor.ljust(_IDENTITY_BYTES, b"\0"):
        found[identity] = ended._replace(alone=ended.alone + 1, at=now)
    else:
        found[identity] = ended._replace(together=ended.together + 1, at=now)
    return found, identity


def identify_message(kind: str, body: bytes) -> bytes:
    """Identify a message by its content, and not by time or session, so that it is recognized in a new session, too."""
    return _IDENTITY.pack(zlib.crc32(kind.encode()), zlib.crc32(body), len(body))


def describe_reason(header: Header, body: bytes, partition: str) -> str:
    """Describe why a message is quarantined, with the RM's name of the partition."""
    name = usual_name(partition)
    return (
        f"{header.kind} of {len(body)} bytes ended the worker of partition {name} {ATTEMPTS_MAX} times "
        "while it was handled: it was quarantined and has no effect"
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
