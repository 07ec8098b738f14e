"""REST routes for debugging: the state dump, and with the setting `debug` stacks, memory and Go's profile paths.

Clients of YuniKorn expect the paths of Go's profiler below `/debug/pprof/`; they exist, with the stacks or the memory
of the web service. To profile a process, use py-spy, whose command line the profile paths answer with.
"""

import asyncio
import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec import Raw, json

from yunishard.common.config.extra_config import ROOT_LEVEL, effective
from yunishard.common.messages.query_messages import PartitionList, Query, ReadConfig
from yunishard.webservice import cluster_routes, config_routes, history_routes
from yunishard.webservice.calls import Call, NamedPartition, Reply, Respond, partition_names, read_registry
from yunishard.webservice.parameters import ANY_TEXT, RM, Parameter
from yunishard.webservice.router import ANY_OBJECT, BINARY, HTML, JSON_MEDIA, TEXT, Access, Content, Route, RouteGroup
from yunishard.webservice.views import RequestError

DEBUG: Final = RouteGroup("inside", "The state of the scheduler and of the web service, for debugging.")

STACK_FRAMES_MAX: Final = 100
"""Frames of a stack that are shown, the innermost ones."""

_TEXT: Final = "text/plain; charset=utf-8"
_HTML: Final = "text/html; charset=utf-8"
_NO_SNIFF: Final = {"X-Content-Type-Options": "nosniff"}


# The state dump: everything that the scheduler holds at one moment, as one indented JSON document ---------------------
#
# A query returns at most PAGE entries. An unresponsive partition does not fail the dump: its missing parts are listed
# at the end under `unanswered`, and it is not queried again. With one resource manager the document has the form of
# YuniKorn; with several, the parts of one RM (`rmDiagnostics`, `logLevel`, `config`) are objects by RM ID.

PAGE: Final = 500
"""Applications or nodes in one answer of a worker."""

STATES: Final = ("active", "completed", "rejected")

NO_RM: Final = {"empty": "Resource Manager did not register callback"}
"""The diagnostics without a resource manager: YuniKorn's words, which its users recognize."""

Part = tuple[str, bytes | AsyncIterator[bytes]]
"""A key of the document with its JSON value, or with a list in pages, each of them a JSON list."""


@Route(DEBUG, "GET", "/debug/fullstatedump", Access.ADMINS, (ANY_OBJECT,), parameters=(RM,))
async def state_dump(call: Call) -> Reply:
    """The state dump: everything, in one document.

    It is written piece by piece, one dump at a time. Missing parts are listed under `unanswered`.
    """
    dump = StateDump(call, await read_registry(call))

    async def pieces() -> AsyncGenerator[bytes, None]:
        async with call.services.dump_lock:
            async for piece in write_json(dump.parts()):
                yield piece

    return Reply(pieces())


async def write_json(parts: AsyncIterator[Part]) -> AsyncGenerator[bytes, None]:
    """The document without empty parts, and a line break at its end."""
    before = b"{\n"
    async for key, value in parts:
        lead = b"  " + json.encode(key) + b": "
        if isinstance(value, bytes):
            text = _indent(value)
            if text not in (b"[]", b"{}", b'""', b"null"):
                yield before + lead + text
                before = b",\n"
            continue
        between = before + lead + b"[\n"
        async for page in value:
            text = _indent(page).removeprefix(b"[\n").removesuffix(b"\n  ]")
            if text != b"[]":
                yield between + text
                between = b",\n"
        if between == b",\n":
            yield b"\n  ]"
            before = b",\n"
    yield b"{}\n" if before == b"{\n" else b"\n}\n"


def _indent(value: bytes) -> bytes:
    """A JSON value below the top level; a JSON text never contains a line break."""
    return json.format(value, indent=2).replace(b"\n", b"\n  ")


class StateDump:
    """One dump in the making."""

    def __init__(self, call: Call, known: PartitionList) -> None:
        self._call = call
        self._partitions = partition_names(call, known).all()
        managers = {*known.build_information, *(one.rm_id for one in known.managers)}
        self._rms = sorted(managers | {one.entry.rm_id for one in self._partitions})
        self._unanswered: list[dict[str, str]] = []
        """Missing parts: `part`; `of`, a partition, an RM or the web service itself; and the `reason`."""
        self._silent: set[str] = set()
        """Partitions that did not answer, by full name; they are not queried again."""

    async def parts(self) -> AsyncGenerator[Part, None]:
        """Everything, in the order in which it is written."""
        yield "timestamp", json.encode(time.time_ns())
        yield "partitions", self._of_all("partitions", "partition", lambda _, body: b"[" + body + b"]")
        yield "applications", self._applications()
        yield await self._answer_route("appHistory", history_routes.applications_at)
        yield "nodes", self._nodes()
        yield await self._answer_route("clusterInfo", cluster_routes.clusters)
        yield await self._answer_route("containerHistory", history_routes.containers_at)
        yield "queues", self._of_all("queues", "queues", lambda _, body: b"[" + body + b"]")
        yield "rmDiagnostics", await self._by_rm("rmDiagnostics", self._diagnostics) or json.encode(NO_RM)
        yield "logLevel", await self._by_rm("logLevel", self._log_level) or _encode_log_level({})
        yield "config", await self._by_rm("config", self._configuration) or await self._configuration("")
        yield "placementRules", self._of_all("placementRules", "rules", _encode_rules)
        streams = [{"Name": one.host, "CreatedAt": one.began} for one in self._call.services.streams.open]
        yield "eventStreams", json.encode(streams)
        yield "unanswered", json.encode(self._unanswered)

    def _note_missing(self, part: str, of: str, reason: str) -> None:
        self._unanswered.append({"part": part, "of": of, "reason": reason})

    # Of partitions --------------------------------------------------------------------------------------------------

    async def _of_all(self, part: str, what: str, page: Callable[[str, bytes], bytes]) -> AsyncGenerator[bytes, None]:
        """A page of the list for each partition, from its shown name and its answer."""
        for one in self._partitions:
            async for body in self._pages(part, one, what):
                yield page(one.shown, body)

    async def _applications(self) -> AsyncGenerator[bytes, None]:
        for one in self._partitions:
            for state in STATES:
                async for body in self._pages("applications", one, "applications", state=state, limit=str(PAGE)):
                    yield body

    async def _nodes(self) -> AsyncGenerator[bytes, None]:
        for one in self._partitions:
            nodes: list[Raw] = []
            async for body in self._pages("nodes", one, "nodes", limit=str(PAGE)):
                nodes += json.decode(body, type=list[Raw])
            yield json.encode([{"partitionName": one.shown, **({"nodesInfo": nodes} if nodes else {})}])

    async def _pages(self, part: str, one: NamedPartition, what: str, **args: str) -> AsyncGenerator[bytes, None]:
        """The answers of a partition, page by page; a missing answer is listed under `unanswered`."""
        name, reason = one.entry.full_name, "not queried, as it did not answer before"
        while name not in self._silent:
            try:
                answer = await self._call.services.broker.ask(name, Query(what=what, name=one.shown, args=dict(args)))
            except RequestError as error:
                self._silent.add(name)
                reason = error.text
                break
            if answer.status != 200:
                reason = answer.body.decode(errors="replace")
                break
            yield answer.body
            if not answer.next:
                return
            args["after"] = answer.next
        self._note_missing(part, name, reason)

    # Of resource managers -------------------------------------------------------------------------------------------

    async def _by_rm(self, part: str, of_rm: Callable[[str], Awaitable[bytes]]) -> bytes | None:
        """The part of the one resource manager, or the parts of all by RM ID; None while there is none."""
        found: dict[str, Raw] = {}
        for rm in self._rms:
            try:
                found[rm] = Raw(await of_rm(rm))
            except RequestError as error:
                self._note_missing(part, rm, error.text)
        if len(self._rms) == 1:
            return next((bytes(one) for one in found.values()), b"null")
        return json.encode(found) if self._rms else None

    async def _diagnostics(self, rm: str) -> bytes:
        """The state that the resource manager reports about itself, by way of a partition of its own that answers."""
        for one in self._partitions:
            if one.entry.rm_id == rm:
                async for body in self._pages("rmDiagnostics", one, "rm-state"):
                    return body
        return json.encode({"Error": "no partition of this resource manager can ask it"})

    async def _log_level(self, rm: str) -> bytes:
        return _encode_log_level((await config_routes.read_version(self._call, rm, ReadConfig(what="current"))).extra)

    async def _configuration(self, rm: str) -> bytes:
        query, headers = {"rm": rm} if rm else {}, {"accept": JSON_MEDIA}
        return _whole_body(await config_routes.configuration(replace(self._call, query=query, headers=headers)))

    async def _answer_route(self, key: str, respond: Respond) -> Part:
        """The answer of another route. A history that is not recorded is empty, which is no error."""
        try:
            return key, _whole_body(await respond(self._call))
        except RequestError as error:
            if self._call.services.history is not None:
                self._note_missing(key, "webservice", error.text)
            return key, b"[]"


def _encode_rules(shown: str, body: bytes) -> bytes:
    rules = json.decode(body, type=list[Raw])
    return json.encode([{"partition": shown, **({"rules": rules} if rules else {})}])


def _whole_body(reply: Reply) -> bytes:
    assert isinstance(reply.body, bytes), "these routes do not stream their answers"
    return reply.body


def _encode_log_level(extra: Mapping[str, str]) -> bytes:
    return json.encode(next(one.value for one in effective(extra) if one.key == ROOT_LEVEL))


for _name, _what in (("fullstatedump", "the state dump"), ("stack", "the stacks")):
    _path, _summary = f"/ws/v1/{_name}", f"The former address of {_what}"
    DEBUG.routes.append(Route(DEBUG, "GET", _path, Access.ANYBODY, summary=_summary, redirect=f"/debug/{_name}"))


# Stacks and Go's profile paths ----------------------------------------------------------------------------------------


@Route(DEBUG, "GET", "/debug/stack", Access.ADMINS, (Content(ANY_TEXT),), debug_only=True)
async def stack(call: Call) -> Reply:
    """Stacks of all threads and tasks of the web service.

    Text, although the content type is JSON as in YuniKorn. The path exists only with the setting `debug`.
    """
    return Reply(render_stacks().encode())


def render_stacks() -> str:
    """The stack of each thread and of each task of the running loop, outermost frame first."""
    names = {one.ident: one.name for one in threading.enumerate()}
    shown = [
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame, STACK_FRAMES_MAX))}"
        for ident, frame in sorted(sys._current_frames().items())
    ]
    for task in sorted(asyncio.all_tasks(), key=lambda task: task.get_name()):
        lines = (line for frame in task.get_stack() for line in traceback.format_stack(frame, 1))
        shown.append(f"task {task.get_name()}:\n{''.join(lines)}")
    return "\n".join(shown)


def render_memory() -> str:
    """The memory of this process as the kernel counts it, and the state of the garbage collector."""
    collection = f"garbage collection: {gc.get_count()} of {gc.get_threshold()}, {gc.get_freeze_count()} frozen"
    return f"{Path('/proc/self/status').read_text()}{collection}\n"


def render_command() -> str:
    """The py-spy command line that profiles this process."""
    return f"py-spy record --pid {os.getpid()} --duration 30 --output profile.svg\n"


_PROFILES: Final[Mapping[str, tuple[Callable[[], str], str]]] = {
    **dict.fromkeys(("allocs", "heap"), (render_memory, "The memory of the web service")),
    **dict.fromkeys(("block", "goroutine", "mutex", "threadcreate"), (render_stacks, "The stacks of the web service")),
    **dict.fromkeys(("profile", "trace"), (render_command, "The py-spy command that profiles the web service")),
    "cmdline": (lambda: "\0".join(sys.orig_argv), "The command line of the web service"),
    "symbol": (lambda: "num_symbols: 1\n", "Whether there are symbols"),
}
"""The content of each path below `/debug/pprof/`, and its summary."""

_TEXT_ONLY: Final = ("cmdline", "symbol")


@Route(DEBUG, "GET", "/debug/pprof/", Access.ADMINS, (Content(ANY_TEXT, HTML),), debug_only=True)
async def profile_index(call: Call) -> Reply:
    """The index of the profile paths.

    The path exists only with the setting `debug`.
    """
    rows = "".join(
        f'<tr><td><a href="{name}?debug=1">{name}</a></td><td>{text}</td></tr>' for name, (_, text) in _PROFILES.items()
    )
    page = f"<html><head><title>/debug/pprof/</title></head><body><table>{rows}</table></body></html>\n"
    return Reply(page.encode(), content_type=_HTML, headers=_NO_SNIFF)


def _declare_profile(name: str) -> None:
    content, summary = _PROFILES[name]
    forms = (Content(ANY_TEXT, TEXT),) if name in _TEXT_ONLY else (Content(ANY_TEXT, BINARY), Content(ANY_TEXT, TEXT))
    choice = () if name in _TEXT_ONLY else (Parameter("debug", "Any value but 0: as text."),)
    path = f"/debug/pprof/{name}"

    @Route(DEBUG, "GET", path, Access.ADMINS, forms, summary=summary, parameters=choice, debug_only=True)
    async def profile(call: Call) -> Reply:
        """One of Go's profile paths.

        The path exists only with the setting `debug`.
        """
        is_text = name in _TEXT_ONLY or call.query.get("debug", "0") != "0"
        return Reply(content().encode(errors="replace"), content_type=_TEXT if is_text else BINARY, headers=_NO_SNIFF)


for _name in _PROFILES:
    _declare_profile(_name)
