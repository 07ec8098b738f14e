"""The versions of each RM's configuration: which text is in force, since when, by whom, and on what it stands.

An RM's configuration has an *owner*: the RM that sends it, or the watched file of the core. What somebody else changes
on top of the owner's text (over REST) holds for as long as the owner still has that text, which is the version's
`base`: it survives the RM's next registration, and a restart of everything. When the owner comes with another text,
that counts.

Not here: the file that all this is written to before anybody hears of it (`record.py`).
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from common.config.checksum import checksum_of
from common.control_messages import ConfigVersion

VERSIONS_MAX: Final = 100
"""Versions remembered for each RM; the oldest is forgotten first and can no longer be rolled back to."""

FROM_FILE: Final = "file"
OWNERS: Final = ("registration", "update", FROM_FILE)
"""Origins of versions that whoever owns the configuration wrote."""

RMS_MAX: Final = 1_000
"""RMs whose versions are remembered; the one that was first known is forgotten first, and what was changed on top of
its own text with it."""


@dataclass(slots=True)
class Entry:
    """One version, without its text. The fields are as in `ConfigVersion`."""

    number: int
    checksum: str
    at_ns: int
    author: str
    origin: str
    base: str


@dataclass(slots=True)
class History:
    """The versions of one RM, oldest first, and the text of the latest."""

    entries: deque[Entry] = field(default_factory=lambda: deque(maxlen=VERSIONS_MAX))
    text: str = ""

    @property
    def latest(self) -> Entry | None:
        return self.entries[-1] if self.entries else None

    @property
    def from_file(self) -> bool:
        """Whether the latest version is the watched file's, or was changed on top of it. Where so much was changed that
        the owner's own version is forgotten, nothing says otherwise.
        """
        owners = [one.origin for one in self.entries if one.origin in OWNERS]
        return owners[-1] == FROM_FILE if owners else bool(self.entries)


class Versions:
    """All histories, by RM id."""

    def __init__(self, recorded: dict[str, History] | None = None) -> None:
        self._histories: dict[str, History] = recorded or {}

    def history(self, rm: str) -> History:
        """What is known of an RM; nothing, if it is new."""
        return self._histories.get(rm, History())

    def chosen(self, rm: str, own_text: str) -> str:
        """The text for an RM whose owner has this one: the latest version, if it stands on it, or else the owner's."""
        history = self.history(rm)
        if history.latest is not None and history.latest.base == checksum_of(own_text):
            return history.text
        return own_text

    def next(self, rm: str, text: str, *, at_ns: int, author: str, origin: str, base: str) -> ConfigVersion:
        """The version that is to follow; it counts once it was `add`ed."""
        latest = self.history(rm).latest
        return ConfigVersion(
            number=latest.number + 1 if latest else 1,
            checksum=checksum_of(text),
            at_ns=at_ns,
            author=author,
            origin=origin,
            base=base,
            config=text,
        )

    def add(self, rm: str, version: ConfigVersion) -> None:
        """The version is durable: it is the latest from now on."""
        history = self._histories.setdefault(rm, History())
        entry = Entry(version.number, version.checksum, version.at_ns, version.author, version.origin, version.base)
        history.entries.append(entry)
        history.text = version.config
        if len(self._histories) > RMS_MAX:
            del self._histories[next(iter(self._histories))]

    def rebase(self, rm: str, base: str) -> bool:
        """The owner has this text now, which is the latest version's own or what it stands on; whether that is new."""
        latest = self.history(rm).latest
        if latest is None or latest.base == base:
            return False
        latest.base = base
        return True
