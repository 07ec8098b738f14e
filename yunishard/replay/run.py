"""Run a replay: start a local system if asked, connect, send what is due at every tick, and receive the results.

Not here: decisions about jobs (`machine.py`), command line options (`command.py`).
"""

import asyncio
import ctypes
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from yunishard.client import ResourceManager
from yunishard.exceptions import KeyFileError, RegistrationRefused, ResyncFailed, SessionLost
from yunishard.replay.machine import NEVER, Batch, Replay
from yunishard.replay.report import Progress, View, as_json, as_text, progress, report, view_for
from yunishard.replay.workload import PARTITIONS_MAX, Log, Plan, SwfError, load, plan

RATE_WINDOW_S: Final = 3.0


class Clock:
    """Stands at 0 until it is started, then runs `speed` log seconds in a real one."""

    def __init__(self, *, speed: float) -> None:
        assert speed > 0
        self.speed = speed
        self._started_s: float | None = None

    def start(self, real_s: float) -> None:
        """Begin; starting twice changes nothing."""
        if self._started_s is None:
            self._started_s = real_s

    def elapsed_s(self, real_s: float) -> float:
        """Real seconds since the start."""
        return 0.0 if self._started_s is None else real_s - self._started_s

    def log_s(self, real_s: float) -> float:
        """Log seconds since the start."""
        return self.elapsed_s(real_s) * self.speed


class Rate:
    """How fast a counter grows, over the last `RATE_WINDOW_S` seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def per_second(self, real_s: float, count: int) -> float:
        """Note the counter and give its rate; 0 until there are two notes."""
        self._samples.append((real_s, count))
        while len(self._samples) > 2 and self._samples[1][0] <= real_s - RATE_WINDOW_S:
            self._samples.popleft()
        first_s, first = self._samples[0]
        return (count - first) / (real_s - first_s) if real_s > first_s else 0.0


# A local system for one replay ----------------------------------------------------------------------------------------

START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 20.0
PR_SET_PDEATHSIG: Final = 1
"""From Linux's `sys/prctl.h`."""

COMMAND: Final = (
    *(sys.executable, "-P", "-m", "deploy", "--ephemeral", "--log-level", "warning"),
    *("--native", "tcp://127.0.0.1:0", "--grpc", "off", "--rest", "off"),
    *("--partitions-max", str(PARTITIONS_MAX)),
)
"""The bound on partitions keeps the need for file descriptors below 1,024, which is a usual hard limit."""


class LocalSystemError(Exception):
    """The system did not start; it has said why on standard error."""


@asynccontextmanager
async def local_system(command: tuple[str, ...] = COMMAND) -> AsyncIterator[str]:
    """Start it, give the address of its native port, stop it.

    Raises:
        LocalSystemError: it ended, or was not ready within `START_S_MAX`.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        process_group=0,
        preexec_fn=_dies_with_us(),
    )
    assert process.stdout is not None
    drain: asyncio.Task[bytes] | None = None
    try:
        address = await _address(process.stdout)
        drain = asyncio.create_task(process.stdout.read())  # it may go on talking; a full pipe would stop it
        yield address
    finally:
        await _stop(process)
        if drain is not None:
            await drain


def _dies_with_us() -> Callable[[], None] | None:
    """What makes the child get SIGTERM when this process is killed; only Linux has it."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM.value)


async def _address(output: asyncio.StreamReader) -> str:
    """The native address, once everything is ready."""
    address = ""
    try:
        async with asyncio.timeout(START_S_MAX):
            while line := (await output.readline()).decode(errors="replace"):
                match line.split():
                    case ["native", where]:
                        address = where
                    case ["ready", *_] if address:
                        return address
    except TimeoutError:
        raise LocalSystemError(f"the local system was not ready within {START_S_MAX:g} s") from None
    raise LocalSystemError("the local system ended before it was ready")


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_S_MAX):
            await process.wait()
    except TimeoutError:
        process.kill()  # its own children notice that it is gone
        await process.wait()


# Running --------------------------------------------------------------------------------------------------------------

TICK_S: Final = 0.02
"""Everything that became due within it goes out together."""
CONNECT_S_MAX: Final = 30.0
SILENCE_S_MAX: Final = 30.0
"""When nothing is due, nothing is heard and not all is done, for so long: give up."""

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

OK: Final = 0
INCOMPLETE: Final = 1
UNUSABLE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user wants."""

    file: Path
    address: str
    """Of a running core; empty to start one."""
    keys: str | None = None
    """Our own secret key file for it; None for what the environment says."""
    rm_id: str
    speed: float | None
    """None for about a minute."""
    partitions: int
    load: float
    nodes: int | None
    strict: bool
    json: bool


def replay_file(options: Options) -> int:
    """Replay the file, print how it goes and what came of it; the exit status."""
    try:
        log = load(options.file, strict=options.strict)
    except SwfError as error:
        return _said(str(error), status=UNUSABLE)
    _tell_malformed(log)
    wanted = plan(log, rm_id=options.rm_id, partitions=options.partitions, load=options.load, nodes=options.nodes)
    if not wanted.jobs:
        return _said(f"{options.file}: no job can be replayed: {wanted.left_out}", status=UNUSABLE)
    return asyncio.run(replay_plan(options, wanted, malformed=log.malformed_count))


async def replay_plan(options: Options, wanted: Plan, *, malformed: int = 0) -> int:
    """Replay what is planned, in the main thread (it listens for signals); the exit status."""
    return await _Drive(options, wanted, malformed=malformed).run()


class _Drive:
    """One replay against one core."""

    def __init__(self, options: Options, wanted: Plan, *, malformed: int) -> None:
        self.options = options
        self.malformed = malformed
        self.replay = Replay(wanted, rm_id=options.rm_id)
        self.clock = Clock(speed=options.speed or wanted.default_speed)
        self.signal: int | None = None
        """Which one broke the replay off; only the first counts, because the way out is bounded."""
        self._heard_s = 0.0

    async def run(self) -> int:
        """Everything from the first connection to the summary."""
        with self._breakable():
            try:
                return await self._replayed()
            except asyncio.CancelledError:
                if self.signal is None:
                    raise
                return _said("interrupted before anything was submitted", status=128 + self.signal)
            except (LocalSystemError, RegistrationRefused, KeyFileError, ConnectionError, TimeoutError) as error:
                return _said(str(error), status=UNUSABLE)

    async def _replayed(self) -> int:
        options = self.options
        async with _core(options.address) as address, await self._connected(address) as rm:
            if not options.json:
                _write(_intention(self.replay.plan, options.file, self.clock.speed))
            elapsed_s = await self._drive(rm)
            summary = report(
                self.replay, elapsed_s=elapsed_s, speed=self.clock.speed, tick_s=TICK_S, malformed=self.malformed
            )
            _write(as_json(summary) if options.json else as_text(summary))
        if self.signal is not None:
            return 128 + self.signal
        return OK if summary.complete else INCOMPLETE

    async def _connected(self, address: str) -> ResourceManager:
        configuration = self.replay.plan.configuration()
        keys = self.options.keys if self.options.address else ""
        return await ResourceManager.connect(
            address, rm_id=self.options.rm_id, config=configuration, keys=keys, timeout_s=CONNECT_S_MAX
        )

    async def _drive(self, rm: ResourceManager) -> float:
        """Tick until the replay is over, broken off, or hopeless; how many seconds it ran."""
        listener = asyncio.create_task(self._listen(rm))
        self._heard_s = monotonic()
        try:
            with view_for(json=self.options.json) as view:
                await self._tick(rm, view, listener)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self.signal is None or task is None:
                raise
            task.uncancel()  # asked for by the signal, and dealt with: from here on to the summary
            self.replay.note("interrupted")
        except SessionLost as error:
            self.replay.note(str(error))
        except TimeoutError:
            self.replay.note(f"the core took no update for {SILENCE_S_MAX:g} s")
        finally:
            listener.cancel()
            await asyncio.gather(
                listener, return_exceptions=True
            )  # what it raised was seen in _tick, or comes too late
        return self.clock.elapsed_s(monotonic())

    async def _tick(self, rm: ResourceManager, view: View, listener: "asyncio.Task[None]") -> None:
        rate = Rate()
        shown_s = 0.0
        while self.replay.phase != "over":
            now = monotonic()
            if listener.done():
                listener.result()
            if self.replay.deadline == NEVER and now - self._heard_s > SILENCE_S_MAX:
                self.replay.note(f"heard nothing for {SILENCE_S_MAX:g} s while {self.replay.phase}")
                return
            async with asyncio.timeout(SILENCE_S_MAX):
                await self._send(rm, self.replay.due(self.clock.log_s(now)))
            if now - shown_s >= view.every_s:
                shown_s = now
                view.show(self._progress(rate, now))
            await asyncio.sleep(TICK_S)

    async def _send(self, rm: ResourceManager, batch: Batch) -> None:
        reports = [rm.resync(partition, reason="it began anew") for partition in batch.reports]
        for one in reports:
            await one.__aenter__()
        if batch.nodes:
            await rm.update_nodes(batch.nodes)
        if batch.applications or batch.removals:
            await rm.update_applications(new=batch.applications, remove=batch.removals)
        if batch.asks or batch.releases:
            await rm.update_allocations(allocations=batch.asks, releases=batch.releases)
        for one in reports:
            try:
                await one.__aexit__(None, None, None)
            except ResyncFailed as error:
                self.replay.note(f"a report was not taken: {error}")

    def _progress(self, rate: Rate, now: float) -> Progress:
        per_s = rate.per_second(now, sum(tally.allocations for tally in self.replay.tallies.values()))
        log_s, elapsed_s = self.clock.log_s(now), self.clock.elapsed_s(now)
        return progress(self.replay, log_s=log_s, elapsed_s=elapsed_s, allocations_per_s=per_s)

    async def _listen(self, rm: ResourceManager) -> None:
        async for result in rm.results():
            self._heard_s = monotonic()
            self.replay.hear(result.partition, result.news, self.clock.log_s(self._heard_s))
            if self.replay.phase == "replaying":
                self.clock.start(self._heard_s)

    @contextmanager
    def _breakable(self) -> Iterator[None]:
        """The first signal to end cancels what is going on."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop(number: int) -> None:
            if self.signal is None:
                self.signal = number
                task.cancel()

        for number in SIGNALS:
            loop.add_signal_handler(number, stop, number)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)


@asynccontextmanager
async def _core(address: str) -> AsyncIterator[str]:
    """The running core at this address, or one of our own."""
    if address:
        yield address
    else:
        async with local_system() as own:
            yield own


def _intention(wanted: Plan, file: Path, speed: float) -> str:
    folded = f" (one for {wanted.folded_sites} smaller sites)" if wanted.folded_sites else ""
    processors = sum(site.processors for site in wanted.sites)
    return (
        f"{file}: {len(wanted.jobs):,} jobs in {wanted.span_s / 3600:.1f} hours, for {processors:,} processors in "
        f"{len(wanted.sites)} partitions{folded}. At {speed:,.0f} times its speed it takes "
        f"{wanted.span_s / speed:.0f} s, and longer by what the queues hold back."
    )


def _tell_malformed(log: Log) -> None:
    for malformed in log.malformed:
        _say(f"skipped {malformed}")
    if more := log.malformed_count - len(log.malformed):
        _say(f"skipped {more:,} more malformed lines")


def _write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _say(text: str) -> None:
    sys.stderr.write(f"yunishard replay: {text}\n")


def _said(text: str, *, status: int) -> int:
    _say(text)
    return status
