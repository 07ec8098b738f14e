"""A request to a route and its reply: `Call` and `Reply`, and what most handlers need to build one from the other.

A handler is a function `Call -> Reply` that `router.py` declares as a route. It names the partition with
`partition_of`, asks its worker, and returns the body. HTTP itself is in `api.py`.
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
from webservice.event_streams import EventStreams
from webservice.health import StorageHealth
from webservice.history.queries import HistoryReader
from webservice.metrics import RestMetrics
from webservice.parameters import entity_tag
from webservice.partition_names import PartitionNames, UnknownRmError, only_of_rm
from webservice.response_cache import CachedAnswer, CachedBody, ResponseCache
from webservice.views import RequestError, SettingView

JSON: Final = "application/json; charset=UTF-8"

VALIDATIONS_MAX: Final = 8
"""Configurations that are being validated or wait for it; more are refused with 503."""

AGE_MIN_S: Final = 1.0
"""Younger answers have no header `Age`."""

Change = ChangeConfig | KillApplication | MoveApplication | Schedule
"""Messages that change something. Without an answer, the change may have been made all the same."""


class Broker(Protocol):
    """The queries and changes that handlers send to the broker and to workers (`broker_client.py`)."""

    async def ask(self, partition: str, query: Query) -> Answer: ...

    async def partitions(self) -> PartitionList: ...

    def recent_partitions(self) -> PartitionList | None: ...

    async def read(self, rm: str, question: ReadConfig) -> Answer: ...

    async def change(self, wanted: Change, *, rm: str = "", partition: str = "") -> Answer: ...


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """The file of the history, and its bounds."""

    path: Path
    bytes_max: int
    age_max_s: float


@dataclass(frozen=True, slots=True)
class Startup:
    """The command-line options that routes need."""

    settings: tuple[SettingView, ...] = ()
    deadlock: Deadlock = NO_DEADLOCKS
    history: HistoryFile | None = None
    """None if no history is kept."""
    state: Path | None = None
    """The state directory; None if unknown."""
    web_root: Path | None = None
    """Directory with the files of a web UI; None for none."""
    debug: bool = False
    """Whether the debug routes exist."""
    cors: tuple[str, ...] = ()
    """Origins whose pages may use the API, or `*`; empty if not set."""
    default_rm: str = ""
    """RM whose partitions have their plain names; empty for those that registered first."""


@dataclass(frozen=True, slots=True)
class Locks:
    """Bounds on concurrent work that one request can make expensive."""

    dump: asyncio.Lock = field(default_factory=asyncio.Lock)
    validation: asyncio.Lock = field(default_factory=asyncio.Lock)
    validations: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(VALIDATIONS_MAX))
    """Requests that hold a configuration in memory, whether they are being validated or wait for the lock."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a route: the named path segments, the query, the headers (names in lower case), and a function that
    reads the body.
    """

    broker: Broker
    segments: dict[str, str]
    query: dict[str, str]
    body: Callable[[], Awaitable[bytes]]
    streams: EventStreams
    cache: ResponseCache
    raw_path: str
    """Undecoded."""
    raw_query: str = ""
    """Undecoded."""
    headers: Mapping[str, str] = field(default_factory=dict)
    startup: Startup = field(default_factory=Startup)
    viewer: Actor | None = None
    """The caller, if the answer is limited to what they may see; None for a caller who may see everything."""
    requester: Actor | None = None
    """The caller who makes a change; set for every route that changes something."""
    metrics: RestMetrics = field(default_factory=RestMetrics)
    history: HistoryReader | None = None
    """None if no history is kept."""
    locks: Locks = field(default_factory=Locks)
    storage: StorageHealth = field(default_factory=StorageHealth)


class Pieces(Protocol):
    """A body in pieces, such as an asynchronous generator."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None:
        """End the iteration. Called once, also after the last piece and if no piece was taken."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response: a whole body, a body from the response cache, or pieces that are sent one by one, uncompressed."""

    body: bytes | CachedBody | Pieces
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


Respond = Callable[[Call], Awaitable[Reply]]


# Partitions -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NamedPartition:
    """A partition, and the name by which the answer shows it."""

    full_name: str
    shown: str
    rm_id: str
    generation: str
    """As in `PartitionEntry`."""


async def registered(call: Call) -> PartitionList:
    """All RMs and partitions; with the parameter `rm`, only that RM.

    Every caller may learn of every RM: the list of clusters names them all.

    Raises:
        RequestError: the RM is not registered.
    """
    known = await call.broker.partitions()
    rm_id = call.query.get("rm", "")
    try:
        return only_of_rm(known, rm_id) if rm_id else known
    except UnknownRmError as error:
        raise RequestError(404, str(error)) from None


def names_of(call: Call, known: PartitionList) -> PartitionNames:
    """The names of these partitions, by the setting `default-rm`."""
    return PartitionNames(known.partitions, call.startup.default_rm)


async def partition_of(call: Call) -> NamedPartition:
    """The partition that the path names, among those of the RM that the parameter `rm` names.

    A full name means the same partition whatever else is registered, so a recent list of partitions is enough for it,
    and the request needs one round trip: to the worker. A plain name needs the list of this moment.

    Raises:
        RequestError: there is none.
    """
    name, recent = call.segments["partition"], call.broker.recent_partitions()
    if recent is not None and "rm" not in call.query:
        names = names_of(call, recent)
        if names.is_full(name):
            return named(names, name)
    return named(names_of(call, await registered(call)), name)


def named(names: PartitionNames, name: str) -> NamedPartition:
    """The partition of that name.

    Raises:
        RequestError: there is none.
    """
    entry = names.find(name)
    if entry is None:
        raise RequestError(404, "Partition not found")
    return NamedPartition(entry.full_name, names.shown(entry), entry.rm_id, entry.generation)


# Replies --------------------------------------------------------------------------------------------------------------


def document(answer: Answer) -> bytes:
    """The document in an answer, with one line break at its end.

    Raises:
        RequestError: the answer has another status than 200; its body is the error text.
    """
    if answer.status != 200:
        raise RequestError(answer.status, answer.body.decode(errors="replace"))
    return answer.body


async def ask_partition(call: Call, partition: NamedPartition, what: str, **args: str) -> Reply:
    """Query a worker through the response cache, and reply with the document or with 304.

    Raises:
        RequestError: the worker does not answer, or with another status than 200.
    """
    query = Query(what=what, name=partition.shown, args=args, viewer=call.viewer)
    return cached_reply(call, await call.cache.answer(partition.full_name, query, partition.generation))


def cached_reply(call: Call, found: CachedAnswer) -> Reply:
    """The reply with a cached answer: its age, its version as a weak entity tag, and the address of the next page; or
    304 if the client has that version.

    Raises:
        RequestError: the answer has another status than 200.
    """
    document(found.answer)  # raises for any other status
    headers = age_header(found.age_s)
    if call.viewer is not None:
        headers["Cache-Control"] = "private, no-cache"
    if found.answer.next:
        headers["Link"] = f'<{_next_page(call, found.answer.next)}>; rel="next"'
    if not found.answer.version:
        return Reply(found.body, headers=headers)
    headers["ETag"] = f"W/{entity_tag(found.answer.version)}"
    if _names_version(call.headers.get("if-none-match", ""), found.answer.version):
        return Reply(b"", NOT_MODIFIED, headers=headers)
    return Reply(found.body, headers=headers)


def age_header(seconds: float) -> dict[str, str]:
    """The header `Age` of an answer that is old enough for one."""
    return {"Age": str(int(seconds))} if seconds >= AGE_MIN_S else {}


def _names_version(if_none_match: str, version: str) -> bool:
    """Whether the header names this version. Unlike the tag of a configuration, it needs its quotes."""
    tags = (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))
    return any(tag in ("*", entity_tag(version)) for tag in tags)


def _next_page(call: Call, after: str) -> str:
    others = {name: value for name, value in sorted(call.query.items()) if name not in ("limit", "after")}
    query = urlencode({**others, "limit": call.query["limit"], "after": after}, quote_via=quote)
    return f"{call.raw_path}?{query}"
