"""A request to a route and its reply: `Call` and `Reply`, and the functions that most handlers share.

A handler is a function `Call -> Reply` that `router.py` declares as a route. It looks up the partition that the path
names (`find_partition`), queries its worker, and returns the body. HTTP itself is in `api.py`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

from msgspec.structs import replace

from yunishard.common.messages.query_messages import Actor, PartitionEntry, PartitionList, ProcessHealth, Query
from yunishard.common.settings import Settings
from yunishard.webservice.audit import AuditLog
from yunishard.webservice.broker_client import BrokerClient, read_document
from yunishard.webservice.event_streams import EventStream, EventStreams
from yunishard.webservice.history.queries import HistoryReader
from yunishard.webservice.metrics import RestMetrics
from yunishard.webservice.parameters import entity_tag
from yunishard.webservice.response_cache import ResponseCache
from yunishard.webservice.views import RequestError

JSON: Final = "application/json; charset=UTF-8"

VALIDATIONS_MAX: Final = 8
"""Configurations that are being validated or wait for it; more are refused with 503."""

AGE_MIN_S: Final = 1.0
"""Younger answers have no header `Age`."""

RM_SHOWN_MAX: Final = 64
"""Characters of an RM ID that an error repeats."""


class Services:
    """The parts of the web service that handlers use, and bounds on concurrent work that one request can make
    expensive.
    """

    def __init__(self, broker: BrokerClient, settings: Settings, audit: AuditLog | None = None) -> None:
        self.broker = broker
        self.settings = settings
        self.streams = EventStreams(broker.ask)
        self.cache = ResponseCache(broker.ask)
        self.history: HistoryReader | None = None
        """None if no history is recorded."""
        self.audit = audit
        self.report_health: Callable[[], ProcessHealth] = ProcessHealth
        """Returns the problems of this process; set by the service."""
        self.metrics = RestMetrics()
        for collector in (self.streams, self.cache):
            self.metrics.registry.register(collector)
        self.dump_lock = asyncio.Lock()
        self.validation_lock = asyncio.Lock()
        self.validations = asyncio.Semaphore(VALIDATIONS_MAX)
        """Requests that hold a configuration in memory, whether they are being validated or wait for the lock."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a route: the named path segments, the query, the headers (names in lower case), and a function that
    reads the body.
    """

    services: Services
    segments: dict[str, str]
    query: dict[str, str]
    body: Callable[[], Awaitable[bytes]]
    raw_path: str
    """Undecoded."""
    headers: Mapping[str, str] = field(default_factory=dict)
    viewer: Actor | None = None
    """The caller, if the answer is limited to what they may see; None for a caller who may see everything."""
    requester: Actor = field(default_factory=lambda: Actor(user=""))
    """The caller who makes a change; set for every route that changes something."""


Pieces = AsyncGenerator[bytes, None] | EventStream
"""A body in pieces. It is closed once, also after the last piece and if no piece was sent."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A response: a whole body, or pieces that are sent one by one, uncompressed."""

    body: bytes | Pieces
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


Respond = Callable[[Call], Awaitable[Reply]]


# Partitions -----------------------------------------------------------------------------------------------------------
#
# Internally a partition is `<rm-id>_<name>`. `<rm-id>_<name>` and `[rm-id]name` always work. The plain name means the
# partition of that name that was registered first, unless the setting `default-rm` names another RM that has one. So a
# new RM never changes the meaning of a name. A shown name always leads back to its partition. With `?rm=` only the
# partitions of that RM have names.


class NamedPartition(NamedTuple):
    """A partition, and the name by which the answer shows it."""

    shown: str
    entry: PartitionEntry


class PartitionNames:
    """The partitions of one moment by all their names, in the order of registration."""

    def __init__(self, partitions: Iterable[PartitionEntry], preferred: str = "") -> None:
        """`preferred` is the RM whose partitions have their plain names even if others were registered earlier."""
        self._entries = list(partitions)
        self.full: dict[str, PartitionEntry] = {}
        """By full name, which never means another partition."""
        plain: dict[str, PartitionEntry] = {}
        for entry in self._entries:
            self.full |= {entry.full_name: entry, f"[{entry.rm_id}]{entry.name}": entry}
            if entry.rm_id == preferred:
                plain[entry.name] = entry
            else:
                plain.setdefault(entry.name, entry)
        self._by_name = plain | self.full

    def find(self, name: str) -> PartitionEntry | None:
        """The partition of that name."""
        return self._by_name.get(name)

    def require(self, name: str) -> NamedPartition:
        """The partition of that name.

        Raises:
            RequestError: there is none.
        """
        entry = self.find(name)
        if entry is None:
            raise RequestError(404, "Partition not found")
        return self.show(entry)

    def all(self) -> list[NamedPartition]:
        """All partitions, in the order of registration."""
        return [self.show(entry) for entry in self._entries]

    def show(self, entry: PartitionEntry) -> NamedPartition:
        """The partition with the name to show: the plain one if it means this partition, else the full one."""
        return NamedPartition(entry.name if self.find(entry.name) is entry else entry.full_name, entry)


def select_rm(known: PartitionList, rm_id: str) -> PartitionList:
    """The part of a list of partitions that belongs to one RM. An RM without partitions may be registered.

    Raises:
        RequestError: no RM with this ID is registered.
    """
    managers = [one for one in known.managers if one.rm_id == rm_id]
    if rm_id not in known.build_information and not managers:
        listed = ", ".join(sorted({*known.build_information, *(one.rm_id for one in known.managers)})) or "none"
        raise RequestError(404, f"RM {rm_id[:RM_SHOWN_MAX]!r} is not registered, those that are: {listed}")
    partitions = [entry for entry in known.partitions if entry.rm_id == rm_id]
    builds = {id_: build for id_, build in known.build_information.items() if id_ == rm_id}
    return replace(known, partitions=partitions, build_information=builds, managers=managers)


def default_rm(known: PartitionList, preferred: str) -> str:
    """The RM of a request that names neither an RM nor a partition: the preferred one if it is registered, else the one
    that registered first. Empty while there is none.
    """
    return preferred if preferred in known.build_information else next(iter(known.build_information), "")


async def read_registry(call: Call) -> PartitionList:
    """All registered RMs and partitions; with the parameter `rm`, only that RM.

    Every caller may learn of every RM: the list of clusters names them all.

    Raises:
        RequestError: the RM is not registered.
    """
    known = await call.services.broker.partitions()
    rm_id = call.query.get("rm", "")
    return select_rm(known, rm_id) if rm_id else known


def partition_names(call: Call, known: PartitionList) -> PartitionNames:
    """The names of these partitions, by the setting `default-rm`."""
    return PartitionNames(known.partitions, call.services.settings.default_rm)


async def find_partition(call: Call) -> NamedPartition:
    """The partition that the path names, among those of the RM that the parameter `rm` names.

    A full name means the same partition whatever else is registered, so a recent list of partitions is enough for it,
    and the request needs one round trip: to the worker. A plain name needs the list of this moment.

    Raises:
        RequestError: there is none.
    """
    name, recent = call.segments["partition"], call.services.broker.recent_partitions()
    if recent is not None and "rm" not in call.query:
        names = partition_names(call, recent)
        if name in names.full:
            return names.require(name)
    return partition_names(call, await read_registry(call)).require(name)


# Replies --------------------------------------------------------------------------------------------------------------


async def ask_partition(call: Call, partition: NamedPartition, what: str, **args: str) -> Reply:
    """Query a worker through the response cache. Reply with the document, its age, its version as a weak entity tag and
    the address of the next page.

    Raises:
        RequestError: the worker does not answer, or with another status than 200.
    """
    return await ask_recent(call, partition, what, args, age_max_s=inf)


async def ask_recent(
    call: Call, partition: NamedPartition, what: str, args: dict[str, str], *, age_max_s: float
) -> Reply:
    """As `ask_partition`, for an answer that is not older than this.

    Raises:
        RequestError: the worker does not answer, or with another status than 200.
    """
    query = Query(what=what, name=partition.shown, args=args, viewer=call.viewer)
    cache, entry = call.services.cache, partition.entry
    found = await cache.answer(entry.full_name, query, entry.generation, age_max_s=age_max_s)
    body = read_document(found.answer)
    headers = age_header(found.age_s)
    if call.viewer is not None:
        headers["Cache-Control"] = "private, no-cache"
    if found.answer.next:
        others = {name: value for name, value in sorted(call.query.items()) if name not in ("limit", "after")}
        following = {**others, "limit": call.query["limit"], "after": found.answer.next}
        headers["Link"] = f'<{call.raw_path}?{urlencode(following, quote_via=quote)}>; rel="next"'
    if found.answer.version:
        headers["ETag"] = f"W/{entity_tag(found.answer.version)}"
    return Reply(body, headers=headers)


def age_header(seconds: float) -> dict[str, str]:
    """The header `Age` of an answer that is old enough for one."""
    return {"Age": str(int(seconds))} if seconds >= AGE_MIN_S else {}
