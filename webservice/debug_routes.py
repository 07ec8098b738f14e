"""REST routes for debugging: the state dump, and with the setting `debug` stacks, memory and Go's profile paths.

Clients of YuniKorn expect the paths of Go's profiler below `/debug/pprof/`; they exist, with the stacks or the memory
of the web service. To profile a process, use py-spy, whose command line the profile paths answer with.
"""

import asyncio
import gc
import html
import os
import sys
import threading
import traceback
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from webservice.calls import Call, Reply, Respond
from webservice.parameters import ANY_TEXT, RM, Parameter
from webservice.router import ANY_OBJECT, BINARY, HTML, TEXT, Access, Content, RouteGroup
from webservice.state_dump import collect, write_json

DEBUG: Final = RouteGroup("inside", "The state of the scheduler and of the web service, for debugging.")

STACK_FRAMES_MAX: Final = 100
"""Frames of a stack that are shown, the innermost ones."""

_TEXT: Final = "text/plain; charset=utf-8"
_HTML: Final = "text/html; charset=utf-8"
_NO_SNIFF: Final = {"X-Content-Type-Options": "nosniff"}
_STATUS_FILE: Final = Path("/proc/self/status")
_STATUS_KEYS: Final = ("VmPeak", "VmSize", "VmHWM", "VmRSS", "RssAnon", "VmSwap", "Threads", "FDSize")


# The state dump -------------------------------------------------------------------------------------------------------


@DEBUG.route("GET", "/debug/fullstatedump", Access.ADMINS, ANY_OBJECT, parameters=(RM,))
async def state_dump(call: Call) -> Reply:
    """The state dump: everything, in one document.

    It is written piece by piece, one dump at a time. Missing parts are listed under `unanswered`.
    """
    parts = await collect(call)

    async def pieces() -> AsyncGenerator[bytes, None]:
        async with call.locks.dump:
            async for piece in write_json(parts):
                yield piece

    return Reply(pieces())


def _declare_redirect(path: str, target: str, summary: str) -> None:
    @DEBUG.route("GET", path, Access.ANYBODY, summary=summary, redirects=True)
    async def redirect(call: Call) -> Reply:
        location = f"{target}?{call.raw_query}" if call.raw_query else target
        body = f'<a href="{html.escape(location)}">Moved Permanently</a>.\n\n'
        return Reply(body.encode(), 301, _HTML, {"Location": location})


_declare_redirect("/ws/v1/fullstatedump", "/debug/fullstatedump", "The former address of the state dump")
_declare_redirect("/ws/v1/stack", "/debug/stack", "The former address of the stacks")


# Stacks and Go's profile paths ----------------------------------------------------------------------------------------


@DEBUG.route("GET", "/debug/stack", Access.ADMINS, Content(ANY_TEXT), debug_only=True)
async def stack(call: Call) -> Reply:
    """Stacks of all threads and tasks of the web service.

    Text, although the content type is JSON as in YuniKorn. The path exists only with the setting `debug`.
    """
    return Reply(stacks().encode())


def stacks() -> str:
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


def memory() -> str:
    """The memory of this process as the kernel counts it, and the state of the garbage collector."""
    lines = [line for line in _STATUS_FILE.read_text().splitlines() if line.partition(":")[0] in _STATUS_KEYS]
    lines.append(f"garbage collection: {gc.get_count()} of {gc.get_threshold()}, {gc.get_freeze_count()} frozen")
    return "\n".join(lines) + "\n"


def py_spy() -> str:
    """How to profile this process."""
    return f"py-spy record --pid {os.getpid()} --duration 30 --output profile.svg\n"


def symbols() -> str:
    """That there are symbols: Python's tracebacks have names."""
    return "num_symbols: 1\n"


def command_line() -> str:
    """The arguments that this process was started with, separated by NUL characters."""
    return "\0".join(sys.orig_argv)


_PROFILES: Final = {
    "allocs": (memory, "The memory of the web service"),
    "block": (stacks, "The stacks of the web service"),
    "cmdline": (command_line, "The command line of the web service"),
    "goroutine": (stacks, "The stacks of the web service"),
    "heap": (memory, "The memory of the web service"),
    "mutex": (stacks, "The stacks of the web service"),
    "profile": (py_spy, "The py-spy command that profiles the web service"),
    "symbol": (symbols, "Whether there are symbols"),
    "threadcreate": (stacks, "The stacks of the web service"),
    "trace": (py_spy, "The py-spy command that profiles the web service"),
}
"""The content of each path below `/debug/pprof/`, and its summary."""

_TEXT_ONLY: Final = ("cmdline", "symbol")


@DEBUG.route("GET", "/debug/pprof/", Access.ADMINS, Content(ANY_TEXT, HTML), debug_only=True)
async def profile_index(call: Call) -> Reply:
    """The index of the profile paths.

    The path exists only with the setting `debug`.
    """
    rows = "".join(
        f'<tr><td><a href="{name}?debug=1">{name}</a></td><td>{text}</td></tr>' for name, (_, text) in _PROFILES.items()
    )
    page = f"<html><head><title>/debug/pprof/</title></head><body><table>{rows}</table></body></html>\n"
    return Reply(page.encode(), content_type=_HTML, headers=_NO_SNIFF)


def _declare_profile(name: str) -> Respond:
    content, summary = _PROFILES[name]
    forms = (Content(ANY_TEXT, TEXT),) if name in _TEXT_ONLY else (Content(ANY_TEXT, BINARY), Content(ANY_TEXT, TEXT))
    choice = () if name in _TEXT_ONLY else (Parameter("debug", "Any value but 0: as text."),)

    @DEBUG.route(
        "GET",
        f"/debug/pprof/{name}",
        Access.ADMINS,
        *forms,
        summary=summary,
        parameters=choice,
        debug_only=True,
    )
    async def profile(call: Call) -> Reply:
        """One of Go's profile paths.

        The path exists only with the setting `debug`.
        """
        is_text = name in _TEXT_ONLY or call.query.get("debug", "0") != "0"
        return Reply(content().encode(errors="replace"), content_type=_TEXT if is_text else BINARY, headers=_NO_SNIFF)

    return profile


for _name in _PROFILES:
    _declare_profile(_name)
