"""Who asked for another configuration, and how each is told what became of it.

Not here: deciding what becomes of it (`update.py`).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import msgspec

from broker.books import BAD_REQUEST, Books, Refused
from broker.roster import Registration
from broker.said import answer, lives_told, refusal_of
from broker.versions import OWNERS
from common.config.problems import Problem
from common.machine import Send, send
from common.messages import Header
from common.names import usual_name
from common.rest_records import ChangedView
from common.rm_messages import ConfigurationUpdated


class Problems(msgspec.Struct, frozen=True, kw_only=True):
    """What the web service is told about a text that is no configuration."""

    problems: list[Problem]


@dataclass(frozen=True, slots=True)
class Asker(ABC):
    """Somebody who wants an RM to have another configuration."""

    author: str
    """For people: in the history, and for the RM when it was not the RM itself."""
    origin: str
    """As in `ConfigVersion`."""

    @property
    def owns(self) -> bool:
        """Whether the text is the owner's, and no change on top of it."""
        return self.origin in OWNERS

    @property
    def described(self) -> str:
        """For the log."""
        return f"{self.author} ({self.origin})"

    @abstractmethod
    def granted(self, books: Books, registration: Registration, *, written_back: bool = False) -> list[Send]:
        """The configuration is in force, and perhaps in the watched file: the answer."""

    def announced(self, registration: Registration) -> list[Send]:
        """What the RM hears of a configuration that is new to it."""
        return [updated(registration, registration.proxy, author=self.author)]

    @abstractmethod
    def refused(self, books: Books, rm: str, refusal: Refused) -> list[Send]:
        """It is not, and nothing has changed."""


@dataclass(frozen=True, slots=True)
class Manager(Asker):
    """The RM itself, by a call."""

    peer: str
    call: Header

    def granted(self, books: Books, registration: Registration, *, written_back: bool = False) -> list[Send]:
        return [updated(registration, self.peer, ref=self.call.ref)]

    def announced(self, registration: Registration) -> list[Send]:
        """It has the answer; only one that came back by another way in the meantime has not."""
        return [] if registration.proxy == self.peer else [updated(registration, registration.proxy)]

    def refused(self, books: Books, rm: str, refusal: Refused) -> list[Send]:
        return [refusal_of(self.peer, self.call, refusal.code, f"update of configuration failed: {refusal}")]


@dataclass(frozen=True, slots=True)
class FrontEnd(Asker):
    """Somebody at a front end."""

    peer: str
    ref: str

    def granted(self, books: Books, registration: Registration, *, written_back: bool = False) -> list[Send]:
        latest = books.versions.history(registration.rm).latest
        others = (one for one in books.roster.registrations.values() if one.rm != registration.rm)
        in_force = ChangedView(
            checksum=registration.checksum,
            version=latest.number if latest else 0,
            partitions=list(registration.configs),
            file=written_back,
            followers=sorted(one.rm for one in others if one.follows_core) if written_back else [],
            warnings=books.warnings_about(registration.text),
        )
        return [answer(self.peer, self.ref, 200, msgspec.json.encode(in_force))]

    def refused(self, books: Books, rm: str, refusal: Refused) -> list[Send]:
        body = str(refusal).encode()
        if refusal.status == BAD_REQUEST:
            body = msgspec.json.encode(Problems(problems=list(refusal.problems)))
        return [answer(self.peer, self.ref, refusal.status, body)]


@dataclass(frozen=True, slots=True)
class WatchedFile(Asker):
    """The file from which RMs have their queues that send none; whoever edited it reads the log."""

    path: str

    @property
    def described(self) -> str:
        return f"the file {self.path}"

    def granted(self, books: Books, registration: Registration, *, written_back: bool = False) -> list[Send]:
        return []

    def refused(self, books: Books, rm: str, refusal: Refused) -> list[Send]:
        books.warnings.append(
            f"RM {rm} goes on with the configuration it has, {self.path} was refused: {refusal.in_one_line}; mend "
            "the file, or send it once more with `yunishard config put`"
        )
        return []


def updated(registration: Registration, to: str, *, ref: str = "", author: str = "") -> Send:
    """What an RM hears about a configuration that is in force."""
    header = Header(kind="ConfigurationUpdated", rm=registration.rm, session=registration.session, ref=ref)
    message = ConfigurationUpdated(
        checksum=registration.checksum,
        partitions=list(map(usual_name, registration.configs)),
        lives=lives_told(registration),
        author=author,
    )
    return send(to, message, header)
