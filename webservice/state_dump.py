"""The state dump: everything that the scheduler knows at one moment, as one indented JSON document, written in pieces.

Workers are asked for at most PAGE entries at a time. An unresponsive partition does not fail the dump: its missing
parts are listed at the end under `unanswered`, and it is not asked again. With one resource manager the document has
YuniKorn's form; with several, the parts of one RM (`rmDiagnostics`, `logLevel`, `config`) are objects by RM ID.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Raw, Struct, json

from common.extra_config import ROOT_LEVEL, effective
from common.query_messages import PartitionEntry, PartitionList, Query, ReadConfig
from webservice import cluster_routes, config_routes, history_routes
from webservice.calls import Call, Reply, document, names_of, registered
from webservice.views import RequestError

_LEVEL = b"  "


@dataclass(frozen=True, slots=True)
class Whole:
    """A part that is there at once."""

    key: str
    value: bytes
    """JSON."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A list whose entries come page by page."""

    key: str
    pages: AsyncIterator[bytes]
    """Each a JSON list."""


Part = Whole | Listed


async def write_json(parts: AsyncIterator[Part]) -> AsyncGenerator[bytes, None]:
    """The document, and a line break at its end."""
    before = b"{\n"
    async for part in parts:
        async for piece in _whole(part) if isinstance(part, Whole) else _listed(part):
            yield before + piece
            before = b""
        before = before or b",\n"
    yield b"{}\n" if before == b"{\n" else b"\n}\n"


async def _whole(part: Whole) -> AsyncGenerator[bytes, None]:
    text = _indented(part.value, _LEVEL)
    if text not in (b"[]", b"{}", b'""', b"null"):
        yield _key(part.key) + text


async def _listed(part: Listed) -> AsyncGenerator[bytes, None]:
    begun = False
    async for page in part.pages:
        text = _indented(page, _LEVEL).removeprefix(b"[\n").removesuffix(b"\n  ]")
        if text != b"[]":
            yield (b",\n" if begun else _key(part.key) + b"[\n") + text
            begun = True
    if begun:
        yield b"\n" + _LEVEL + b"]"


def _key(key: str) -> bytes:
    return _LEVEL + msgspec.json.encode(key) + b": "


def _indented(value: bytes, by: bytes) -> bytes:
    """In lines of which all but the first are indented by so much more: a line break is never inside of a text."""
    return msgspec.json.format(value, indent=len(_LEVEL)).replace(b"\n", b"\n" + by)


PAGE: Final = 500
"""Applications or nodes in one answer of a worker."""

STATES: Final = ("active", "completed", "rejected")

NO_RM: Final = {"empty": "Resource Manager did not register callback"}
"""What is said of the resource manager while there is none, in the words that YuniKorn's users know."""

_AS_JSON: Final = {"accept": config_routes.JSON_ONLY}


class NodesView(Struct, frozen=True, omit_defaults=True):
    """The nodes of a partition."""

    partitionName: str  # noqa: N815 - this and those below are keys of the document
    nodesInfo: list[Raw] = []  # noqa: N815


class RulesView(Struct, frozen=True, omit_defaults=True):
    """The placement rules of a partition."""

    partition: str
    rules: list[Raw] = []


class StreamView(Struct, frozen=True):
    """Somebody who is told of events as they happen."""

    Name: str
    """The `Host` that it asked for."""
    CreatedAt: datetime


class UnansweredView(Struct, frozen=True):
    """A part that is missing here, and why."""

    part: str
    of: str
    """A partition, a resource manager, or the web service itself."""
    reason: str


class _Current(Struct, frozen=True):
    """What the broker tells of a resource manager's configuration, as far as it is wanted here."""

    extra: dict[str, str] = {}


class StateDump:
    """One dump in the making."""

    def __init__(self, call: Call, known: PartitionList) -> None:
        self._call = call
        self._partitions = names_of(call, known).all()
        managers = {*known.build_information, *(one.rm_id for one in known.managers)}
        self._rms = sorted(managers | {entry.rm_id for _, entry in self._partitions})
        self._unanswered: list[UnansweredView] = []
        self._silent: set[str] = set()
        """Partitions that did not answer, by full name; they are asked nothing more."""

    async def parts(self) -> AsyncGenerator[Part, None]:
        """Everything, in the order in which it is written."""
        yield Whole("timestamp", json.encode(time.time_ns()))
        yield Listed("partitions", self._partition_list())
        yield Listed("applications", self._applications())
        yield await self._own("appHistory", history_routes.applications_at)
        yield Listed("nodes", self._nodes())
        yield await self._own("clusterInfo", cluster_routes.clusters)
        yield await self._own("containerHistory", history_routes.containers_at)
        yield Listed("queues", self._queues())
        yield Whole("rmDiagnostics", await self._by_rm("rmDiagnostics", self._diagnostics) or json.encode(NO_RM))
        yield Whole("logLevel", await self._by_rm("logLevel", self._log_level) or _log_level({}))
        yield await self._configuration()
        yield Listed("placementRules", self._rules())
        streams = [StreamView(one.host, one.began) for one in self._call.streams.open]
        yield Whole("eventStreams", json.encode(streams))
        yield Whole("unanswered", json.encode(self._unanswered))

    # Of partitions --------------------------------------------------------------------------------------------------

    async def _partition_list(self) -> AsyncGenerator[bytes, None]:
        for shown, entry in self._partitions:
            async for body in self._pages("partitions", shown, entry, "partition"):
                yield b"[" + body + b"]"

    async def _applications(self) -> AsyncGenerator[bytes, None]:
        for shown, entry in self._partitions:
            for state in STATES:
                async for body in self._pages("applications", shown, entry, "applications", state=state, limit=PAGE):
                    yield body

    async def _nodes(self) -> AsyncGenerator[bytes, None]:
        for shown, entry in self._partitions:
            found: list[Raw] = []
            async for body in self._pages("nodes", shown, entry, "nodes", limit=PAGE):
                found += json.decode(body, type=list[Raw])
            yield json.encode([NodesView(shown, found)])

    async def _queues(self) -> AsyncGenerator[bytes, None]:
        for shown, entry in self._partitions:
            async for body in self._pages("queues", shown, entry, "queues"):
                yield b"[" + body + b"]"

    async def _rules(self) -> AsyncGenerator[bytes, None]:
        for shown, entry in self._partitions:
            async for body in self._pages("placementRules", shown, entry, "rules"):
                yield json.encode([RulesView(shown, json.decode(body, type=list[Raw]))])

    async def _pages(
        self, part: str, shown: str, entry: PartitionEntry, what: str, **args: str | int
    ) -> AsyncGenerator[bytes, None]:
        """What a partition answers, page by page; what is missing is noted."""
        texts, after = {key: str(value) for key, value in args.items()}, ""
        while entry.full_name not in self._silent:
            query = Query(what=what, name=shown, args={**texts, "after": after} if after else texts)
            try:
                answer = await self._call.broker.ask(entry.full_name, query)
            except RequestError as error:
                self._silent.add(entry.full_name)
                self._unanswered.append(UnansweredView(part, entry.full_name, error.text))
                return
            try:
                yield document(answer)
            except RequestError as error:
                self._unanswered.append(UnansweredView(part, entry.full_name, error.text))
                return
            after = answer.next
            if not after:
                return
        self._unanswered.append(UnansweredView(part, entry.full_name, "not asked, as it did not answer before"))

    # Of resource managers -------------------------------------------------------------------------------------------

    async def _by_rm(self, part: str, of_rm: Callable[[str], Awaitable[bytes]]) -> bytes | None:
        """What belongs to the one resource manager, or to each by its id; None while there is none."""
        found: dict[str, Raw] = {}
        for rm in self._rms:
            try:
                found[rm] = Raw(await of_rm(rm))
            except RequestError as error:
                self._unanswered.append(UnansweredView(part, rm, error.text))
        if len(self._rms) == 1:
            return next((bytes(one) for one in found.values()), b"null")
        return json.encode(found) if self._rms else None

    async def _diagnostics(self, rm: str) -> bytes:
        """What the resource manager says of itself, to a partition of its own that answers."""
        for shown, entry in self._partitions:
            if entry.rm_id == rm:
                async for body in self._pages("rmDiagnostics", shown, entry, "rm-state"):
                    return body
        return json.encode({"Error": "no partition of this resource manager can ask it"})

    async def _log_level(self, rm: str) -> bytes:
        answer = await self._call.broker.read(rm, ReadConfig(what="current"))
        try:
            return _log_level(json.decode(document(answer), type=_Current).extra)
        except msgspec.MsgspecError as error:
            raise RequestError(503, f"the broker answered what cannot be read: {error}") from None

    async def _configuration(self) -> Part:
        async def of_rm(rm: str) -> bytes:
            query = {"rm": rm} if rm else {}
            return _whole_body(await config_routes.configuration(replace(self._call, query=query, headers=_AS_JSON)))

        found = await self._by_rm("config", of_rm)
        return Whole("config", await of_rm("") if found is None else found)

    async def _own(self, key: str, route: Callable[[Call], Awaitable[Reply]]) -> Part:
        """What a route of our own answers. A history that is not kept is empty, which is no fault."""
        try:
            return Whole(key, _whole_body(await route(self._call)))
        except RequestError as error:
            if self._call.history is not None:
                self._unanswered.append(UnansweredView(key, "webservice", error.text))
            return Whole(key, b"[]")


async def collect(call: Call) -> AsyncGenerator[Part, None]:
    """The parts of a dump of what is registered now.

    Raises:
        RequestError: it is not known what is.
    """
    return StateDump(call, await registered(call)).parts()


def _whole_body(reply: Reply) -> bytes:
    assert isinstance(reply.body, bytes), "these routes answer at once"
    return reply.body


def _log_level(extra: Mapping[str, str]) -> bytes:
    return json.encode(next(one.value for one in effective(extra) if one.key == ROOT_LEVEL))
