"""What a route gets and what it gives: a request for a known path, the reply to it, and whom it may ask.

Not here: which routes there are (`routes.py`), HTTP (`api.py`).
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from common.messages import (
    Actor,
    Answer,
    ChangeConfig,
    KillApplication,
    MoveApplication,
    PartitionEntry,
    PartitionList,
    Query,
    ReadConfig,
    Schedule,
)
from webservice.config_view import NO_DEADLOCKS, Deadlock
from webservice.errors import RequestError
from webservice.resolve import AmbiguityError, Directory
from webservice.router import Route
from webservice.views import SettingView

JSON: Final = "application/json; charset=UTF-8"

Change = ChangeConfig | KillApplication | MoveApplication | Schedule
"""What changes something, and so may have happened although nobody said so."""


class Link(Protocol):
    """Whoever knows the partitions and can ask them (`broker_link.py`)."""

    async def ask(self, partition: str, query: Query) -> Answer: ...

    async def partitions(self) -> PartitionList: ...

    async def read(self, rm: str, question: ReadConfig) -> Answer: ...

    async def change(self, wanted: Change, *, rm: str = "", partition: str = "") -> Answer: ...


@dataclass(frozen=True, slots=True)
class Startup:
    """What the process was told when it started."""

    settings: tuple[SettingView, ...] = ()
    deadlock: Deadlock = NO_DEADLOCKS


@dataclass(frozen=True, slots=True)
class Call:
    """A request for a known path: its named segments, its query, its headers (names in lower case), a way to read its
    body.
    """

    link: Link
    parameters: dict[str, str]
    query: dict[str, str]
    body: Callable[[], Awaitable[bytes]]
    headers: Mapping[str, str] = field(default_factory=dict)
    startup: Startup = field(default_factory=Startup)
    viewer: Actor | None = None
    """Who asks, where people have to say so and see only what is theirs; None for one who sees everything."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What to send back: a body, or pieces of one as they come, which are sent at once and never compressed."""

    body: bytes | AsyncGenerator[bytes, None]
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


Respond = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Changing:
    """A route that changes something. It is called only for somebody who is known, never for another site's page."""

    respond: Callable[[Call, Actor], Awaitable[Reply]]


ApiRoute = Route[Respond | Changing]


@dataclass(frozen=True, slots=True)
class Named:
    """A partition, and the name by which the answer shows it."""

    full_name: str
    shown: str


async def partition_of(call: Call) -> Named:
    """The partition that the path names.

    Raises:
        RequestError: there is none, or several.
    """
    directory = Directory((await call.link.partitions()).partitions)
    found = named(directory, call.parameters["partition"])
    if found is None:
        raise RequestError(404, "Partition not found")
    return found


def named(directory: Directory, name: str) -> Named | None:
    """The partition of that name.

    Raises:
        RequestError: there are several.
    """
    try:
        entry: PartitionEntry | None = directory.find(name)
    except AmbiguityError as error:
        raise RequestError(409, str(error)) from None
    return None if entry is None else Named(entry.full_name, directory.shown(entry))


def document(answer: Answer) -> bytes:
    """The document in an answer, with one line break at its end.

    Raises:
        RequestError: the answer has another status than 200, and is a text that says why.
    """
    if answer.status != 200:
        raise RequestError(answer.status, answer.body.decode(errors="replace"))
    return answer.body
