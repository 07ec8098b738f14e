"""The configuration versions of every RM, without their texts, which of them are removed, and messages that wait for
the text of one.

The store has the texts (`store.py`), each once. The store is limited in bytes: the versions of one RM, those of all
former RMs, and all together. Beyond a limit the oldest versions are removed first. Two versions of a registered RM
always stay, the one in force and the one before it; a configuration for which there is no room then is refused.

    add_version --above a limit--> plan_removals --> RemoveVersions, one at a time, in steps of REMOVED_BYTES_MAX

Not here: who may change a configuration (`config_updates.py`, `rm_sessions.py`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from yunishard.common.config.problems import ConfigError, Problem
from yunishard.common.messages.control_messages import ConfigVersion, ReadVersion, VersionEntry, VersionRead
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, make_outgoing
from yunishard.common.names import RECORD

VERSIONS_MAX: Final = 100
"""Versions kept for each RM; the oldest is removed first and can no longer be rolled back to."""

VERSIONS_BYTES_MAX: Final = 64 << 20
"""Bytes of the versions of one RM; the oldest is removed first, but never the latest two, which may be larger
together than any two texts of the maximum size."""

RMS_MAX: Final = 1_000
"""Former RMs whose versions are kept; the RM whose configuration changed longest ago is removed first, with all of its
versions. When such an RM registers again, it starts with its own configuration, without earlier changes to it."""

FORMER_BYTES_MAX: Final = 256 << 20
"""Bytes of the versions of all former RMs; the same one is removed first."""

ENTRY_BYTES: Final = 1 << 10
"""Bytes that a version counts in addition to its text, so that the bytes also limit the number of versions."""

REMOVED_BYTES_MAX: Final = 32 << 20
"""Bytes that one message removes from the store, unless a single version has more: other writes wait meanwhile."""

AUTHOR_CHARS_MAX: Final = 256
"""Characters of the author of a version and of its origin; the rest is cut off."""

FROM_FILE: Final = "file"
OWNER_ORIGINS: Final = ("registration", "update", FROM_FILE)
"""Origins of versions that the configuration's owner wrote."""


class Removal(NamedTuple):
    """Versions of an RM to be removed from the store: up to this number."""

    rm: str
    up_to: int


@dataclass(slots=True)
class VersionHistory:
    """The versions of one RM, oldest first."""

    entries: list[VersionEntry] = field(default_factory=list)

    @property
    def latest(self) -> VersionEntry | None:
        return self.entries[-1] if self.entries else None

    @property
    def from_file(self) -> bool:
        """Whether the latest version is from the watched file or changes one that is; True if the owner's version has
        been removed.
        """
        owners = [one.origin for one in self.entries if one.origin in OWNER_ORIGINS]
        return owners[-1] == FROM_FILE if owners else bool(self.entries)

    def measure(self) -> int:
        """Bytes of these versions: those with the same checksum share one text."""
        return _measure(self.entries)


def _measure(entries: Iterable[VersionEntry]) -> int:
    sizes: dict[str, int] = {}
    count = 0
    for one in entries:
        sizes[one.checksum] = max(one.size, sizes.get(one.checksum, 0))
        count += 1
    return sum(sizes.values()) + count * ENTRY_BYTES


class ConfigVersions:
    """The configuration versions of every RM.

    A configuration has an *owner*: the RM that sends it, or the watched file. A change over REST has the owner's text
    as its `base` and stays in force, also after restarts and registrations, until the owner sends another text.
    """

    def __init__(self, recorded: dict[str, VersionHistory] | None = None) -> None:
        self._histories: dict[str, VersionHistory] = recorded or {}
        self._sizes = {rm: history.measure() for rm, history in self._histories.items()}
        """RM id to the bytes of its versions."""
        self.may_exceed = True
        """Whether the versions may be above a limit, as some have been added or an RM has become a former one."""

    @property
    def size(self) -> int:
        """Bytes of all versions."""
        return sum(self._sizes.values())

    def __len__(self) -> int:
        """The number of RMs that have versions."""
        return len(self._histories)

    def history(self, rm: str) -> VersionHistory:
        """The history of an RM; empty for a new one."""
        return self._histories.get(rm, VersionHistory())

    def find_changed(self, rm: str, own_checksum: str) -> VersionEntry | None:
        """The version to use for an RM in place of its owner's text: the latest one, if that changes this text."""
        latest = self.history(rm).latest
        is_change = latest is not None and latest.base == own_checksum and latest.checksum != own_checksum
        return latest if is_change else None

    def build_next(
        self, rm: str, text: str, *, checksum: str, at_ns: int, author: str, origin: str, base: str
    ) -> ConfigVersion:
        """Build the next version; it counts once it is passed to `add_version`. `checksum` is that of the text."""
        latest = self.history(rm).latest
        return ConfigVersion(
            number=latest.number + 1 if latest else 1,
            checksum=checksum,
            at_ns=at_ns,
            author=author[:AUTHOR_CHARS_MAX],
            origin=origin[:AUTHOR_CHARS_MAX],
            base=base,
            size=len(text.encode()),
            config=text,
        )

    def add_version(self, rm: str, version: VersionEntry) -> None:
        """Make a durable version the latest."""
        history = self._histories.setdefault(rm, VersionHistory())
        history.entries.append(msgspec.convert(version, VersionEntry, from_attributes=True))
        self._sizes[rm] = history.measure()
        self.may_exceed = True

    def withdraw_version(self, rm: str, number: int) -> None:
        """Undo `add_version`, as the version did not become durable after all."""
        history = self._histories[rm]
        history.entries = [one for one in history.entries if one.number != number]
        self._sizes[rm] = history.measure()
        if not history.entries:
            del self._histories[rm], self._sizes[rm]

    def rebase(self, rm: str, base: str) -> bool:
        """Set the base of the latest version to the owner's present text; whether that is a change."""
        entries = self.history(rm).entries
        if not entries or entries[-1].base == base:
            return False
        entries[-1] = replace(entries[-1], base=base)
        return True

    def mark_unreadable(self, rm: str) -> None:
        """Note that the text of the latest version cannot be used: the same text then becomes another version."""
        if entries := self.history(rm).entries:
            entries[-1] = replace(entries[-1], checksum="")

    # Limits ---------------------------------------------------------------------------------------------------------

    def find_shortage(self, rm: str, size: int, kept: Collection[str], size_max: int) -> int:
        """How many bytes are missing for a version of this size: beyond what stays of the RMs in `kept`, and the
        version that it follows. 0 if there is room.
        """
        needed = size + ENTRY_BYTES + _measure(self.history(rm).entries[-1:])
        needed += sum(_measure(self.history(one).entries[-2:]) for one in kept if one != rm)
        return max(0, needed - size_max)

    def plan_removals(self, kept: Collection[str], size_max: int) -> list[Removal]:
        """Remove the versions above the limits; what to remove from the store. RMs in `kept` are registered, or about
        to be; all versions together have at most `size_max` bytes.
        """
        self.may_exceed = False
        removals: list[Removal] = []
        for rm in kept:
            if self._sizes.get(rm, 0) > VERSIONS_BYTES_MAX or len(self.history(rm).entries) > VERSIONS_MAX:
                removals += self._shorten(rm, VERSIONS_BYTES_MAX)
        former = [rm for rm in self._histories if rm not in kept]
        former.sort(key=lambda rm: (self._histories[rm].entries[-1].at_ns, rm))
        former_size, size = sum(self._sizes[rm] for rm in former), self.size
        for count, rm in enumerate(former):
            fits = len(former) - count <= RMS_MAX and former_size <= FORMER_BYTES_MAX and size <= size_max
            if fits:
                break
            former_size, size = former_size - self._sizes[rm], size - self._sizes[rm]
            removals += self._remove(rm, len(self._histories[rm].entries))
        for rm in sorted(self._histories, key=lambda one: -self._sizes[one]):  # the largest gives room first
            if size <= size_max:
                break
            before = self._sizes[rm]
            removals += self._shorten(rm, before - (size - size_max))
            size -= before - self._sizes.get(rm, 0)
        return removals

    def _shorten(self, rm: str, size_max: int) -> list[Removal]:
        """Remove the oldest versions of an RM until they fit into this size, but never the latest two."""
        entries = self._histories[rm].entries
        count = max(0, len(entries) - VERSIONS_MAX)
        while count < len(entries) - 2 and _measure(islice(entries, count, None)) > size_max:
            count += 1
        return self._remove(rm, count)

    def _remove(self, rm: str, count: int) -> list[Removal]:
        """Remove so many of the oldest versions of an RM."""
        history = self._histories[rm]
        gone, history.entries = history.entries[:count], history.entries[count:]
        self._sizes[rm] = history.measure()
        if not history.entries:
            del self._histories[rm], self._sizes[rm]
        return [Removal(rm, up_to) for up_to in _divide(gone)]


def _divide(entries: Iterable[VersionEntry]) -> Iterator[int]:
    """The last number of each step in which these versions are removed."""
    number = size = 0
    for one in entries:
        if size and size + one.size > REMOVED_BYTES_MAX:
            yield number
            size = 0
        number, size = one.number, size + one.size + ENTRY_BYTES
    if number:
        yield number


# Texts of versions ----------------------------------------------------------------------------------------------------
#
#   message needs a text --TextWanted--> waiting --ReadVersion--> record --VersionRead--> handled again, with the text
#
# The broker holds no texts, so that its memory does not grow with them. Two kinds of messages need one: the Hello of a
# worker that does not have the configuration in force, and a registration whose RM gets another text than its own. One
# text is read at a time. The analysis of a text is in `config_validation.py`.

RETRY_S: Final = 1.0
"""Seconds until the record is asked again for a text that it could not read."""


class TextWanted(Exception):
    """A message cannot be handled without the text of this version of this RM. Nothing has changed."""

    def __init__(self, rm: str, version: int) -> None:
        super().__init__(f"version {version} of RM {rm}")
        self.rm = rm
        self.version = version


class StoredTexts:
    """The waiting messages, and the text that the record has found, while they are handled."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, tuple[Incoming, int]]] = {}
        """RM id to the partition that a message is about, empty for a registration, to that message and the version
        that it needs. Bounded by the partitions; a later message takes the place of an earlier one."""
        self._asked = ""
        """The RM whose text is being read; empty if none is."""
        self._found: tuple[str, VersionRead] | None = None
        self.deadline = NEVER
        """When to ask again for a text that the record could not read."""

    def get(self, rm: str, version: int) -> str:
        """The text of a version.

        Raises:
            TextWanted: it has to be read first; pass this to `wait`.
            ConfigError: it cannot be read.
        """
        if self._found is None or (self._found[0], self._found[1].version) != (rm, version):
            raise TextWanted(rm, version)
        found = self._found[1]
        if found.problem:
            raise ConfigError([Problem(message=found.problem, kind="record")])
        return found.text

    def is_registration_waiting(self, rm: str) -> bool:
        """Whether the registration of the RM waits for a text."""
        return "" in self._waiting.get(rm, ())

    def wait(self, incoming: Incoming, wanted: TextWanted) -> list[Outgoing]:
        """Have a message wait until the text has been read; the request to the record, unless it waits itself."""
        partition = incoming.header.partition if incoming.header.kind == "Hello" else ""
        self._waiting.setdefault(wanted.rm, {})[partition] = incoming, wanted.version
        return self._ask()

    def drop_outdated(self, sent: Header) -> bool:
        """Drop the waiting Hello of a worker that has sent this message since; return whether there was one.

        A worker repeats its Hello until it has its configuration. One of an earlier generation than the message was
        overtaken by the answer to another Hello; handling it would start the partition empty once more.
        """
        messages = self._waiting.get(sent.rm, {})
        waiting = messages.get(sent.partition)
        if waiting is None or (waiting[0].header.session, waiting[0].header.life) == (sent.session, sent.life):
            return False
        del messages[sent.partition]
        if not messages:
            del self._waiting[sent.rm]
        return True

    def _ask(self) -> list[Outgoing]:
        if self._asked or not self._waiting:
            return []
        self._asked, messages = next(iter(self._waiting.items()))
        _, version = next(iter(messages.values()))
        header = Header(kind=ReadVersion.__name__, rm=self._asked)
        return [make_outgoing(RECORD, ReadVersion(version=version), header)]

    def receive(
        self, rm: str, found: VersionRead, now: float, handle: Callable[[Incoming], list[Outgoing]]
    ) -> list[Outgoing]:
        """Handle the messages that waited for this text, with it. If the record cannot be read at present, they wait
        until it can.
        """
        if found.may_retry:
            self.deadline = now + RETRY_S
            return []
        self._asked, self._found = "", (rm, found)
        try:
            sends = [one for incoming, _ in self._waiting.pop(rm, {}).values() for one in handle(incoming)]
        finally:
            self._found = None
        return [*sends, *self._ask()]

    def retry_due(self, now: float) -> list[Outgoing]:
        """Ask again for a text that could not be read."""
        if self.deadline > now:
            return []
        self.deadline, self._asked = NEVER, ""
        return self._ask()
