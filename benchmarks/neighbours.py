"""`python -m benchmarks.neighbours`: what others notice while a client sends an expensive input that is allowed.

A system is started for each input of `expensive.py`. One RM sends the input; meanwhile three clients measure:

    beside     another RM in a partition of its own sends an ask 40 times a second
    same       another application in the partition of the input does so over the same connection
    status     a user runs `yunishard status` again and again

A wait ends with the allocation, or with the measurement if there is none. The same-partition client shares a process
with the sender of the input, so what the sender computes adds to its waits. Everything runs on this machine.
"""

import argparse
import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, closing, contextmanager
from fnmatch import fnmatch
from functools import partial
from multiprocessing.connection import Connection
from os import getloadavg
from pathlib import Path
from statistics import median, quantiles
from time import monotonic, perf_counter, sleep
from typing import Final, TypeAlias

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.expensive import CONFIG, ONE, ROWS, Row, Scene, nodes
from benchmarks.systems import SPAWN, roles_of, system
from yunishard.common.messages.rm_messages import AllocationResponse
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import application, ask, node, release

WAIT_MAX_MS: Final = 250.0
"""The 99th percentile of the wait of an ask beside the input above which the program fails."""

SECONDS: Final = 10.0
PERIOD_S: Final = 0.025
"""Between two asks of a client that measures; they are sent whether or not earlier ones have been answered."""

PREPARED_MAX_S: Final = 120.0
OVERTIME_MAX_S: Final = 60.0
"""Seconds that the last request of an input may take after its time."""

MAIN: Final = "import sys; from yunishard.cli.main import main; sys.exit(main())"
"""The program of a command."""

LIMITS: Final = Path(__file__).parents[1] / "docs" / "operating" / "limits.md"
BEGIN, END = "<!-- neighbours -->\n", "<!-- end -->"

ABOUT: Final = """\
Measure what other clients notice while a client sends the most expensive inputs that the limits allow. Exit status 1:
another RM waited longer than 250 ms for one ask of a hundred, or a process ended."""
EXAMPLES: Final = """\
examples:
  make neighbours                              all inputs, 20 s each
  make neighbours ROWS='*selectors* *gRPC*'    those whose name matches
  python -m benchmarks.neighbours --list
  python -m benchmarks.neighbours --json rows.json --update
"""


class Waits(msgspec.Struct, frozen=True):
    """The waits of one client, in milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, found_ms: Sequence[float]) -> "Waits":
        if len(found_ms) < 2:
            return cls(len(found_ms), *[max(found_ms, default=0.0)] * 3)
        return cls(len(found_ms), median(found_ms), quantiles(found_ms, n=100, method="inclusive")[-1], max(found_ms))


class Found(msgspec.Struct, frozen=True):
    """The measurements with one input."""

    name: str
    limit: str
    beside: Waits
    same: Waits
    status: Waits
    ended: list[str]
    """Roles of processes that ended meanwhile."""

    @property
    def holds(self) -> bool:
        return self.beside.p99_ms <= WAIT_MAX_MS and not self.ended


# Clients that measure -------------------------------------------------------------------------------------------------


class Asker:
    """Sends asks of one application at fixed times, and measures how long each waits for its node."""

    def __init__(self, rm: ResourceManager, queue: str) -> None:
        self._rm = rm
        self._queue = queue
        self._sent: dict[str, float] = {}
        self._waits_ms: list[float] = []

    async def settle(self) -> None:
        """Submit the application, and wait until its first ask has a node: everything before it has been handled."""
        await self._rm.update_applications(new=[application("honest", self._queue, user="honest")])
        await self._rm.update_allocations(allocations=[ask("honest", "honest", ONE)])
        async for _, news in self._rm.results():
            if isinstance(news, AllocationResponse) and any(one.allocation_key == "honest" for one in news.new):
                return

    async def measure(self, seconds: float) -> Waits:
        """Measure for so long; an ask without a node at the end has waited until then."""
        reader = asyncio.create_task(self._read())
        began = perf_counter()
        sending = [asyncio.create_task(self._send(number, began)) for number in range(int(seconds / PERIOD_S))]
        await asyncio.sleep(seconds)
        ended = perf_counter()
        for task in (reader, *sending):
            task.cancel()
        await asyncio.gather(reader, *sending, return_exceptions=True)
        return Waits.of([*self._waits_ms, *((ended - sent) * 1000 for sent in self._sent.values())])

    async def _send(self, number: int, began: float) -> None:
        due = began + number * PERIOD_S
        await asyncio.sleep(due - perf_counter())
        self._sent[f"honest-{number}"] = due
        await self._rm.update_allocations(allocations=[ask(f"honest-{number}", "honest", ONE)])

    async def _read(self) -> None:
        async for _, news in self._rm.results():
            if not isinstance(news, AllocationResponse):
                continue
            now = perf_counter()
            found = [one.allocation_key for one in news.new if one.allocation_key in self._sent]
            self._waits_ms += [(now - self._sent.pop(key)) * 1000 for key in found]
            if found:
                await self._rm.update_allocations(releases=[release("honest", key) for key in found])


async def _measure_beside(address: str, seconds: float, line: "Line") -> None:
    async with await ResourceManager.connect(address, rm_id="beside", config=CONFIG) as rm:
        await rm.update_nodes([node("n1", {"vcore": "1000"})])
        asker = Asker(rm, "root.honest")
        await asker.settle()
        line.send(None)
        await asyncio.to_thread(line.recv)
        line.send(await asker.measure(seconds))
        await asyncio.to_thread(line.recv)  # its worker stays until it has been looked for


async def _send_input(at: dict[str, str], name: str, seconds: float, line: "Line") -> None:
    """Prepare the input and send it, while an application in the same partition measures."""
    [chosen] = [one for one in ROWS if one.name == name]
    async with await ResourceManager.connect(at["native"], rm_id="heavy", config=CONFIG) as rm:
        await rm.update_nodes(nodes())
        asker = Asker(rm, "root.honest")
        scene = Scene(at["native"], at["grpc"], at["rest"].removeprefix("http://"), rm)
        async with aclosing(chosen.load(scene)) as steps:
            await anext(steps)
            await asker.settle()
            line.send(None)
            await asyncio.to_thread(line.recv)
            scene.until = monotonic() + seconds
            measuring = asyncio.create_task(asker.measure(seconds))
            async with asyncio.timeout(seconds + OVERTIME_MAX_S):
                await anext(steps, None)
            line.send(await measuring)
            await asyncio.to_thread(line.recv)


Line: TypeAlias = "Connection[Waits | None, None]"
Client: TypeAlias = Callable[[Line], Coroutine[None, None, None]]


def _run(client: Client, line: Line) -> None:
    asyncio.run(client(line))


@contextmanager
def _start(client: Client) -> Iterator["Connection[None, Waits | None]"]:
    """Start a client in a process of its own, and wait until it is ready to measure."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_run, args=(client, theirs))
    process.start()
    theirs.close()
    with closing(ours):
        try:
            if not ours.poll(PREPARED_MAX_S):
                raise TimeoutError(f"{client} is not ready after {PREPARED_MAX_S:.0f} s")
            ours.recv()
            yield ours
        finally:
            process.terminate()
            process.join()


class StatusUser(threading.Thread):
    """Runs `yunishard status` again and again."""

    def __init__(self, rest: str, seconds: float) -> None:
        super().__init__()
        self._command = [sys.executable, "-P", "-c", MAIN, "status", "--rest", rest]
        self._until = monotonic() + seconds
        self.waits_ms: list[float] = []

    def run(self) -> None:
        while monotonic() < self._until:
            began = perf_counter()
            subprocess.run(self._command, capture_output=True, check=False)  # noqa: S603 - our own
            self.waits_ms.append((perf_counter() - began) * 1000)
            sleep(0.5)


def measure(row: Row, seconds: float) -> Found:
    """Measure one input in a new system."""
    with (
        system("--log-level", "error") as (supervisor, at),
        _start(partial(_measure_beside, at["native"], seconds)) as beside,
        _start(partial(_send_input, dict(at), row.name, seconds)) as sender,
    ):
        before = roles_of(supervisor)
        status = StatusUser(at["rest"], seconds)
        status.start()
        for line in (beside, sender):
            line.send(None)
        waits = [_receive(line, seconds) for line in (beside, sender)]
        status.join()
        after = roles_of(supervisor)
        ended = sorted(role for process, role in before.items() if process not in after)
    ended += [role for role, found in zip(("RM beside", "sender"), waits, strict=True) if found is None]
    lost = Waits.of([seconds * 1000])
    return Found(row.name, row.limit, waits[0] or lost, waits[1] or lost, Waits.of(status.waits_ms), ended)


def _receive(line: "Connection[None, Waits | None]", seconds: float) -> Waits | None:
    """Receive what a client measured; None if it failed, which its traceback on stderr explains."""
    try:
        return line.recv() if line.poll(seconds + OVERTIME_MAX_S) else None
    except EOFError:
        return None


# The program ----------------------------------------------------------------------------------------------------------


def write_table(rows: Sequence[Found]) -> str:
    """Write the results as a Markdown table."""
    lines = [
        "| input, sent all the time | limits that bound it | beside | same partition | `status` |",
        "|---|---|---|---|---|",
    ]
    for one in rows:
        waits = (f"{waits.p99_ms:,.0f} ms" for waits in (one.beside, one.same))
        ended = f"; ended: {', '.join(one.ended)}" if one.ended else ""
        lines.append(f"| {one.name} | {one.limit} | {' | '.join(waits)} | {one.status.max_ms:,.0f} ms{ended} |")
    return "\n".join(lines) + "\n"


def update_document(rows: Sequence[Found], path: Path = LIMITS) -> None:
    """Replace the table in the documentation."""
    text = path.read_text()
    head, rest = text.split(BEGIN, 1)
    path.write_text(f"{head}{BEGIN}{write_table(rows)}{END}{rest.split(END, 1)[1]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m benchmarks.neighbours", description=ABOUT, epilog=EXAMPLES, formatter_class=style
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="names of inputs, with * for any text (default: all)")
    parser.add_argument("--list", action="store_true", help="list the inputs")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each input (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--update", action="store_true", help="write the table into docs/operating/limits.md")
    options = parser.parse_args(arguments)
    chosen = [one for one in ROWS if not options.rows or any(fnmatch(one.name, text) for text in options.rows)]
    if not chosen:
        parser.error("no input has such a name; --list shows them")
    if options.update and len(chosen) < len(ROWS):
        parser.error("--update writes all inputs: leave out the names")
    if options.list:
        sys.stdout.write("".join(f"{one.name}\n    {one.limit}\n" for one in chosen))
        return 0
    found = _measure_all(chosen, options.seconds)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    if options.update:
        update_document(found)
    sys.stdout.write(write_table(found))
    failed = [one for one in found if not one.holds]
    for one in failed:
        why = f"one ask of a hundred beside it waited {one.beside.p99_ms:,.0f} ms, at most {WAIT_MAX_MS:.0f} are right"
        sys.stderr.write(f"{one.name}: {'ended: ' + ', '.join(one.ended) if one.ended else why}\n")
    return 1 if failed else 0


def _measure_all(rows: Sequence[Row], seconds: float) -> list[Found]:
    console, found = Console(stderr=True), []
    columns = (TimeElapsedColumn(), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(rows))
        for one in rows:
            bar.update(task, description=one.name)
            found.append(measure(one, seconds))
            bar.advance(task)
            if not console.is_terminal:
                load = getloadavg()[0]
                waits = ", ".join(
                    f"{w.p50_ms:.0f}/{w.p99_ms:.0f}/{w.max_ms:.0f}"
                    for w in (found[-1].beside, found[-1].same, found[-1].status)
                )
                console.print(f"{one.name}: {waits} ms, ended {found[-1].ended}, load {load:.1f}", highlight=False)
    return found


if __name__ == "__main__":
    sys.exit(main())
