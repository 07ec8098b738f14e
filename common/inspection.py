"""What a running process does and holds: the stacks of its threads and tasks, its memory, where its time goes.

    stacks()                 text: every thread and asyncio task, and where it stands
    waits()                  text: the same places, counted
    memory()                 text: what the system says, and objects by type, or by where they were made
    sampled(duration_s)      counts: how often each stack of a thread was seen
    traced(duration_s)       text: when a thread was seen at another place than before
    inspected(what)          any of these as a text, beside whatever else the loop does

Nothing is changed by looking. Not here: who may look, and over which connection.
"""

import asyncio
import gc
import sys
import threading
import time
import traceback
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Final

SAMPLE_S: Final = 0.01
"""Between two looks at all threads."""

PROFILE_MAX_S: Final = 60.0
"""The longest profile."""

DEPTH_MAX: Final = 100
"""Frames of a stack that are told, the innermost ones."""

TOP: Final = 50
"""Types of objects, or places, that are told; those that have most."""

STACK: Final = "stack"
WAITS: Final = "waits"
HEAP: Final = "heap"
PROFILE: Final = "profile"
TRACE: Final = "trace"
INSPECTIONS: Final = frozenset({STACK, WAITS, HEAP, PROFILE, TRACE})
"""The `what` of a `Query` to a process about itself. The last two have the argument `seconds`; a profile is told as by
`folded`.
"""

_STATUS: Final = Path("/proc/self/status")
_TOLD: Final = ("VmPeak", "VmSize", "VmHWM", "VmRSS", "RssAnon", "VmSwap", "Threads", "FDSize")


async def inspected(what: str, seconds: float) -> str:
    """What a `Query` of this `what` is answered. What takes its time is done in a thread, and the loop goes on.

    Raises:
        ValueError: there is no such `what`.
    """
    match what:
        case "stack":
            return stacks()
        case "waits":
            return waits()
        case "heap":
            return await asyncio.to_thread(memory)
        case "profile":
            return folded(await asyncio.to_thread(sampled, seconds))
        case "trace":
            return await asyncio.to_thread(traced, seconds)
    raise ValueError(what)


def stacks() -> str:
    """Every thread and every task of the running loop, and where each stands, the outermost frame first."""
    told = []
    for name, frame in _threads():
        told.append(f"thread {name}:\n{''.join(traceback.format_stack(frame, DEPTH_MAX))}")
    for task in _tasks():
        lines = (line for frame in task.get_stack(limit=DEPTH_MAX) for line in traceback.format_stack(frame, 1))
        told.append(f"task {task.get_name()} ({_coroutine(task)}):\n{''.join(lines)}")
    return "\n".join(told)


def waits() -> str:
    """Where threads and tasks stand at this moment: how many, and the innermost frame of them."""
    places: Counter[str] = Counter()
    for _, frame in _threads():
        places[f"thread in {_place(frame)}"] += 1
    for task in _tasks():
        frames = task.get_stack(limit=1)
        places[f"task of {_coroutine(task)} in {_place(frames[0]) if frames else 'nothing'}"] += 1
    return "".join(f"{count:7} {place}\n" for place, count in _most(places))


def memory() -> str:
    """What memory is used, as the system counts it, and for what."""
    lines = [line for line in _STATUS.read_text().splitlines() if line.partition(":")[0] in _TOLD]
    lines.append(f"garbage collection: {gc.get_count()} of {gc.get_threshold()}, {gc.get_freeze_count()} frozen")
    if tracemalloc.is_tracing():
        lines += ["", "bytes by the line that asked for them:"]
        lines += [str(one) for one in tracemalloc.take_snapshot().statistics("lineno")[:TOP]]
    else:
        types = Counter(type(one) for one in gc.get_objects())  # in Python, so that other threads get their turns
        names = Counter({f"{one.__module__}.{one.__qualname__}": count for one, count in types.items()})
        lines += [
            "",
            "objects that may be part of a cycle, by type (start with PYTHONTRACEMALLOC=1 to see who made them):",
        ]
        lines += [f"{count:9} {name}" for name, count in _most(names)[:TOP]]
    return "\n".join(lines) + "\n"


def sampled(duration_s: float, *, every_s: float = SAMPLE_S) -> Counter[str]:
    """How often each thread was seen at each place: `thread;outer frame;...;inner frame` to a number of looks."""
    found: Counter[str] = Counter()
    own, until = threading.get_ident(), time.monotonic() + min(duration_s, PROFILE_MAX_S)
    while time.monotonic() < until:
        for name, frame in _threads(but=own):
            found[stack_of(name, frame)] += 1
        time.sleep(every_s)
    return found


def traced(duration_s: float, *, every_s: float = SAMPLE_S) -> str:
    """What was seen when: seconds since the beginning, and the stack of each thread that is not where it was."""
    lines: list[str] = []
    own, began, last = threading.get_ident(), time.monotonic(), dict[str, str]()
    while (passed_s := time.monotonic() - began) < min(duration_s, PROFILE_MAX_S):
        for name, frame in _threads(but=own):
            stack = stack_of(name, frame)
            if last.get(name) != stack:
                last[name] = stack
                lines.append(f"{passed_s:.3f} {stack}\n")
        time.sleep(every_s)
    return "".join(lines)


def folded(counts: Mapping[str, int]) -> str:
    """A profile as tools that draw flame graphs read it: a line for each stack, its number last."""
    return "".join(f"{stack} {count}\n" for stack, count in sorted(counts.items()))


def unfolded(text: str) -> Counter[str]:
    """The profile in such a text.

    Raises:
        ValueError: it is none.
    """
    found: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        found[stack] += int(count)
    return found


def table(counts: Mapping[str, int]) -> str:
    """A profile for people: for each function in how many of a hundred looks at its thread it was seen, and was the
    innermost one.
    """
    looks: Counter[str] = Counter()
    seen: Counter[tuple[str, str]] = Counter()
    innermost: Counter[tuple[str, str]] = Counter()
    for stack, count in counts.items():
        thread, *frames = stack.split(";")
        looks[thread] += count
        for frame in dict.fromkeys(frames):
            seen[thread, frame] += count
        innermost[thread, frames[-1]] += count
    lines = ["  seen  inner  thread: function\n"]
    for (thread, frame), count in sorted(seen.items(), key=lambda pair: (-pair[1], pair[0]))[: 4 * TOP]:
        inner = innermost[thread, frame]
        lines.append(f"{count / looks[thread]:6.1%} {inner / looks[thread]:6.1%}  {thread}: {frame}\n")
    return "".join(lines)


def stack_of(thread: str, frame: FrameType) -> str:
    """A stack in one line, the outermost frame first, without line numbers so that equal ones come together."""
    names: list[str] = []
    inner: FrameType | None = frame
    while inner is not None and len(names) < DEPTH_MAX:
        code = inner.f_code
        names.append(f"{Path(code.co_filename).stem}.{code.co_qualname}")
        inner = inner.f_back
    return ";".join([thread.replace(";", ","), *reversed(names)])


def _threads(but: int = 0) -> Iterable[tuple[str, FrameType]]:
    names = {one.ident: one.name for one in threading.enumerate()}
    for ident, frame in sorted(sys._current_frames().items()):
        if ident != but:
            yield names.get(ident, str(ident)), frame


def _tasks() -> list["asyncio.Task[object]"]:
    try:
        return sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    except RuntimeError:  # this is not the thread of a loop
        return []


def _coroutine(task: "asyncio.Task[object]") -> str:
    coroutine = task.get_coro()
    return coroutine.__qualname__ if hasattr(coroutine, "__qualname__") else repr(coroutine)


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"


def _most(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
