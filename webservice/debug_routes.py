"""To look into the scheduler while it runs: the state dump, and into its processes: stacks, memory, where time goes.

The state dump is always there. The rest is, as far as anybody can tell, nothing but an unknown path until the setting
`debug` is on. What YuniKorn tells of goroutines is told of threads and tasks; a profile is in the form that tools for
flame graphs read.

Not here: what is in a dump (`dump/parts.py`), how a process is looked into (`common/inspection.py`).
"""

import html
import math
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Final

from common.inspection import HEAP, PROFILE, PROFILE_MAX_S, STACK, TRACE, WAITS, folded, inspected, table, unfolded
from common.query_messages import Query
from webservice.access import Access
from webservice.calls import ApiRoute, Call, Reply, Respond, directory_of, document, named, registered
from webservice.router import Route
from webservice.state_dump import gathered, written
from webservice.views import RequestError

ROUND_S: Final = 5.0
"""A profile of a worker is taken in rounds of this length, each a question of its own: an answer to a longer one would
be late.
"""

PROFILE_S: Final = 30.0
"""How long a profile is if nobody says."""

TRACE_S: Final = 1.0
TRACE_MAX_S: Final = 5.0

_TEXT: Final = "text/plain; charset=utf-8"
_HTML: Final = "text/html; charset=utf-8"
_BINARY: Final = "application/octet-stream"
_AS_SAID: Final = {"X-Content-Type-Options": "nosniff"}

_ABOUT: Final = {
    "allocs": "memory in use, and for what",
    "block": "where threads and tasks wait at this moment",
    "cmdline": "the command line of the web service",
    "goroutine": "stacks of all threads and tasks",
    "heap": "memory in use, and for what",
    "mutex": "where threads and tasks wait at this moment",
    "profile": f"where the time goes, for ?seconds=N ({PROFILE_S:g})",
    "symbol": "whether there are symbols",
    "threadcreate": "stacks of all threads and tasks",
    "trace": f"when which thread was where, for ?seconds=N ({TRACE_S:g})",
}
"""The pages below `/debug/pprof/`."""

# The state dump -------------------------------------------------------------------------------------------------------


async def state_dump(call: Call) -> Reply:
    """Everything, piece by piece. One dump is made at a time: who asks for another one waits."""
    parts = await gathered(call)

    async def pieces() -> AsyncGenerator[bytes, None]:
        async with call.turns.dump:
            async for piece in written(parts):
                yield piece

    return Reply(pieces())


def moved(path: str) -> Respond:
    """Say that something is at another path."""

    async def respond(call: Call) -> Reply:
        location = f"{path}?{call.asked}" if call.asked else path
        body = f'<a href="{html.escape(location)}">Moved Permanently</a>.\n\n'
        return Reply(body.encode(), 301, _HTML, {"Location": location})

    return respond


# A process ------------------------------------------------------------------------------------------------------------


async def stack(call: Call) -> Reply:
    """Stacks of all threads and tasks, as text whatever the type says, which is that of YuniKorn."""
    return Reply((await _look(call, STACK)).encode())


async def index(call: Call) -> Reply:
    """What there is."""
    rows = "".join(f'<tr><td><a href="{name}?debug=1">{name}</a></td><td>{_ABOUT[name]}</td></tr>' for name in _ABOUT)
    hint = "Of the web service, with ?process=broker of the broker, with ?partition=NAME of the worker of a partition."
    return Reply(
        f"<html><head><title>/debug/pprof/</title></head><body><p>{hint}</p><table>{rows}</table></body></html>\n".encode(),
        content_type=_HTML,
        headers=_AS_SAID,
    )


async def command_line(call: Call) -> Reply:
    """The arguments with which this process was started, each but the last followed by a zero."""
    return Reply("\0".join(sys.orig_argv).encode(errors="replace"), content_type=_TEXT, headers=_AS_SAID)


async def symbol(call: Call) -> Reply:
    """That there are symbols: names are told as they are."""
    return Reply(b"num_symbols: 1\n", content_type=_TEXT, headers=_AS_SAID)


def look(what: str) -> Respond:
    """Tell what is seen at this moment."""

    async def respond(call: Call) -> Reply:
        return Reply((await _look(call, what)).encode(), content_type=_type(call), headers=_AS_SAID)

    return respond


async def profile(call: Call) -> Reply:
    """Where the time goes."""
    duration_s = _seconds(call, PROFILE_S, PROFILE_MAX_S)
    counts: Counter[str] = Counter()
    async with _Turn(call):
        while duration_s > 0:
            counts += unfolded(await _look(call, PROFILE, min(duration_s, ROUND_S)))
            duration_s -= ROUND_S
    text = table(counts) if _is_text(call) else folded(counts)
    return Reply(text.encode(), content_type=_type(call), headers=_AS_SAID)


async def trace(call: Call) -> Reply:
    """When which thread was where."""
    async with _Turn(call):
        text = await _look(call, TRACE, _seconds(call, TRACE_S, TRACE_MAX_S))
    return Reply(text.encode(), content_type=_type(call), headers=_AS_SAID)


class _Turn:
    """The turn of the caller, if it is nobody else's."""

    def __init__(self, call: Call) -> None:
        self._lock = call.turns.profile

    async def __aenter__(self) -> None:
        if self._lock.locked():
            raise RequestError(503, "A profile is being taken already, try again when it is over")
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


async def _look(call: Call, what: str, seconds: float = 0) -> str:
    """What is seen in the process that the query names."""
    match call.query.get("process", "worker" if "partition" in call.query else "webservice"):
        case "webservice":
            return await inspected(what, seconds)
        case "broker":
            whom = ""
        case "worker":
            whom = await _partition(call)
        case _:
            raise RequestError(400, "process must be webservice, broker, or worker with the parameter partition")
    query = Query(what=what, args={"seconds": str(seconds)})
    return document(await call.link.ask(whom, query)).decode(errors="replace")


async def _partition(call: Call) -> str:
    """The full name of the partition whose worker is meant."""
    return named(directory_of(call, await registered(call)), call.query.get("partition", "")).full_name


def _seconds(call: Call, default: float, most: float) -> float:
    text = call.query.get("seconds", "")
    try:
        found = float(text) if text else default
    except ValueError:
        found = math.nan
    if not 0 < found <= most:
        raise RequestError(400, f"seconds must be a number above 0, and at most {most:g}")
    return found


def _is_text(call: Call) -> bool:
    return call.query.get("debug", "0") != "0"


def _type(call: Call) -> str:
    return _TEXT if _is_text(call) else _BINARY


_PAGES: Final[dict[str, Respond]] = {
    "allocs": look(HEAP),
    "block": look(WAITS),
    "cmdline": command_line,
    "goroutine": look(STACK),
    "heap": look(HEAP),
    "mutex": look(WAITS),
    "profile": profile,
    "symbol": symbol,
    "threadcreate": look(STACK),
    "trace": trace,
}


def _as_it_is(respond: Respond) -> Respond:
    """No browser is to guess what it might be besides."""

    async def told(call: Call) -> Reply:
        reply = await respond(call)
        return replace(reply, headers={**reply.headers, "X-Content-Type-Options": "nosniff"})

    return told


def _page(name: str) -> ApiRoute:
    return Route("GET", f"/debug/pprof/{name}", _as_it_is(_PAGES[name]), Access.ADMINS)


HIDDEN: Final[tuple[ApiRoute, ...]] = (
    Route("GET", "/debug/stack", stack, Access.ADMINS),
    Route("GET", "/debug/pprof/", _as_it_is(index), Access.ADMINS),
    *map(_page, _PAGES),
)
"""Those that are only there with the setting `debug`."""

ROUTES: Final[tuple[ApiRoute, ...]] = (
    Route("GET", "/debug/fullstatedump", state_dump, Access.ADMINS),
    Route("GET", "/ws/v1/fullstatedump", moved("/debug/fullstatedump"), Access.ANYBODY),
    Route("GET", "/ws/v1/stack", moved("/debug/stack"), Access.ANYBODY),
    *HIDDEN,
)
