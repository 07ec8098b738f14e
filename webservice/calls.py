"""What a route gets and what it gives: a request for a known path, the reply to it, and whom it may ask.

Not here: which routes there are (`routes.py`), HTTP (`api.py`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote, urlencode

from common.query_messages import (
    NOT_MODIFIED,
    Actor,
    Answer,
    ChangeConfig,
    KillApplication,
    MoveApplication,
    PartitionList,
    Query,
    ReadConfig,
    Schedule,
)
from webservice.config_view import NO_DEADLOCKS, Deadlock
from webservice.event_streams import Streams
from webservice.health import StorageHealth
from webservice.history.queries import Past
from webservice.metrics import OwnFigures
from webservice.partition_names import Directory, UnknownRmError, narrowed
from webservice.response_cache import CachedBody, Shelf, Shelved
from webservice.router import Route
from webservice.views import RequestError, SettingView

JSON: Final = "application/json; charset=UTF-8"

VALIDATIONS_MAX: Final = 8
"""Configurations that are being validated or wait for it; more are refused with 503."""

Change = ChangeConfig | KillApplication | MoveApplication | Schedule
"""What changes something, and so may have happened although nobody said so."""


class Link(Protocol):
    """Whoever knows the partitions and can ask them (`broker_link.py`)."""

    async def ask(self, partition: str, query: Query) -> Answer: ...

    async def partitions(self) -> PartitionList: ...

    async def read(self, rm: str, question: ReadConfig) -> Answer: ...

    async def change(self, wanted: Change, *, rm: str = "", partition: str = "") -> Answer: ...


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """Where what there was over time is kept, and how much of it."""

    path: Path
    bytes_max: int
    age_max_s: float


@dataclass(frozen=True, slots=True)
class Startup:
    """What the process was told when it started."""

    settings: tuple[SettingView, ...] = ()
    deadlock: Deadlock = NO_DEADLOCKS
    history: HistoryFile | None = None
    """None if nothing is kept."""
    state: Path | None = None
    """The directory with everything that is kept; None if that is not known."""
    web_root: Path | None = None
    """Directory with the files of a web UI; None for none."""
    debug: bool = False
    """Whether routes that look into the running process may be used."""
    cors: tuple[str, ...] = ()
    """Origins whose pages may use the API, or `*`; empty if nothing was said."""
    default_rm: str = ""
    """RM whose partitions have their plain names; empty for those that registered first."""


@dataclass(frozen=True, slots=True)
class Turns:
    """What is done for one caller at a time."""

    dump: asyncio.Lock = field(default_factory=asyncio.Lock)
    profile: asyncio.Lock = field(default_factory=asyncio.Lock)
    validation: asyncio.Lock = field(default_factory=asyncio.Lock)
    validations: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(VALIDATIONS_MAX))
    """For those who wait for their turn, and the one whose it is: they hold their configurations meanwhile."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request for a known path: its named segments, its query, its headers (names in lower case), a way to read its
    body.
    """

    link: Link
    parameters: dict[str, str]
    query: dict[str, str]
    body: Callable[[], Awaitable[bytes]]
    streams: Streams
    shelf: Shelf
    path: str
    """As it came, with its escapes."""
    asked: str = ""
    """The query as it came."""
    headers: Mapping[str, str] = field(default_factory=dict)
    startup: Startup = field(default_factory=Startup)
    viewer: Actor | None = None
    """Who asks, where people have to say so and see only what is theirs; None for one who sees everything."""
    figures: OwnFigures = field(default_factory=OwnFigures)
    """What this process counts."""
    past: Past | None = None
    """What there was over time; None if it is not kept."""
    turns: Turns = field(default_factory=Turns)
    storage: StorageHealth = field(default_factory=StorageHealth)


class Pieces(Protocol):
    """Pieces of a body as they come; an asynchronous generator is such."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None:
        """Nobody takes any further piece; also said after the last one, and when none was taken."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What to send back: a body, one from the response cache, or pieces of one as they come, which are sent at once and
    never compressed.
    """

    body: bytes | CachedBody | Pieces
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
    rm_id: str
    generation: str
    """As in `PartitionEntry`."""


async def registered(call: Call) -> PartitionList:
    """Who is registered with which partitions; of the resource manager only that the parameter `rm` names, if it does.

    Whoever may ask this may know of every resource manager, for the list of clusters names them all.

    Raises:
        RequestError: nobody of that name is registered.
    """
    known = await call.link.partitions()
    rm_id = call.query.get("rm", "")
    try:
        return narrowed(known, rm_id) if rm_id else known
    except UnknownRmError as error:
        raise RequestError(404, str(error)) from None


def directory_of(call: Call, known: PartitionList) -> Directory:
    """These partitions by the names that they have for every request."""
    return Directory(known.partitions, call.startup.default_rm)


async def partition_of(call: Call) -> Named:
    """The partition that the path names, among those of the resource manager that the parameter `rm` names.

    Raises:
        RequestError: there is none.
    """
    return named(directory_of(call, await registered(call)), call.parameters["partition"])


def named(directory: Directory, name: str) -> Named:
    """The partition of that name.

    Raises:
        RequestError: there is none.
    """
    entry = directory.find(name)
    if entry is None:
        raise RequestError(404, "Partition not found")
    return Named(entry.full_name, directory.shown(entry), entry.rm_id, entry.generation)


def document(answer: Answer) -> bytes:
    """The document in an answer, with one line break at its end.

    Raises:
        RequestError: the answer has another status than 200, and is a text that says why.
    """
    if answer.status != 200:
        raise RequestError(answer.status, answer.body.decode(errors="replace"))
    return answer.body


AGE_MIN_S: Final = 1.0
"""What is younger has no age."""


def lasting(call: Call, found: Shelved) -> Reply:
    """The reply with an answer, or that the one that the client has still holds.

    Raises:
        RequestError: the answer has another status than 200.
    """
    document(found.answer)  # raises for any other status
    headers = age(found.age_s)
    if call.viewer is not None:
        headers["Cache-Control"] = "private, no-cache"
    if found.answer.next:
        headers["Link"] = f'<{_next_page(call, found.answer.next)}>; rel="next"'
    if not found.answer.version:
        return Reply(found.body, headers=headers)
    headers["ETag"] = f'W/"{found.answer.version}"'
    if _is_known(call.headers.get("if-none-match", ""), found.answer.version):
        return Reply(b"", NOT_MODIFIED, headers=headers)
    return Reply(found.body, headers=headers)


def age(seconds: float) -> dict[str, str]:
    """The header that says how old an answer is, if it is old enough for one."""
    return {"Age": str(int(seconds))} if seconds >= AGE_MIN_S else {}


def _next_page(call: Call, after: str) -> str:
    others = {name: value for name, value in sorted(call.query.items()) if name not in ("limit", "after")}
    query = urlencode({**others, "limit": call.query["limit"], "after": after}, quote_via=quote)
    return f"{call.path}?{query}"


def _is_known(condition: str, version: str) -> bool:
    """Whether the header `If-None-Match` names the version."""
    tags = (tag.strip().removeprefix("W/") for tag in condition.split(","))
    return any(tag in ("*", f'"{version}"') for tag in tags)
