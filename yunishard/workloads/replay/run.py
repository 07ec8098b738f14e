"""`yunishard replay`: start a local system if asked, connect, send what is due at every tick, and receive the results.

It is a load test of the running system in real time. Waits of jobs that do not depend on the machine come from
`yunishard simulate`, in virtual time.

The docstring of `run_replay` is the help text. Not here: decisions about jobs (`machine.py`).
"""

import argparse
import asyncio
import ctypes
import math
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from typing import Final

from yunishard.cli.main import COMMANDS, NOT_DONE, CommandFailed, CommandUnusable, add_core_options, parse_whole
from yunishard.common.messages.wire import NEVER
from yunishard.common.names import RM_ID
from yunishard.common.rm_player import Batch
from yunishard.sdk.client import ResourceManager, connect, split_addresses
from yunishard.sdk.exceptions import KeyFileError, RegistrationRefused, ResyncFailed, SessionLost
from yunishard.workloads.replay import result_folder, workload
from yunishard.workloads.replay.machine import Replay
from yunishard.workloads.replay.report import WAITS, Progress, format_json, format_text, open_view, summarize
from yunishard.workloads.replay.user_queues import read_user_queues

# The command ---------------------------------------------------------------------------------------------------------


def add_replay_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard replay`."""
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="the log")
    about = "log seconds per real second (default: about a minute for all, longer for many asks)"
    add("--speed", type=_parse_positive, metavar="N", help=about)
    default = workload.PARTITIONS_DEFAULT
    about = f"the N sites with most jobs get a partition each, all others share '{workload.OTHER}' (default: {default})"
    add("--partitions", type=parse_whole(1, workload.PARTITIONS_MAX), default=default, metavar="N", help=about)
    about = (
        "the share of a partition that the jobs would keep busy over the whole log, from which its nodes are computed; "
        f"the higher it is, the longer the queues (default: {workload.LOAD_DEFAULT})"
    )
    add("--load", type=_parse_positive, default=workload.LOAD_DEFAULT, metavar="X", help=about)
    about = f"N nodes of {workload.NODE_PROCESSORS} processors in each partition instead"
    add("--nodes", type=parse_whole(1, workload.NODES_MAX), metavar="N", help=about)
    about = "queues.yaml with your own partitions and queues; - for standard input (default: a queue for each user)"
    add("--config", metavar="FILE", help=about)
    about = "submit each job of several tasks as a gang, with a placeholder for each task"
    add("--gang", action="store_true", help=about)
    about = "write a line for each job: waits, slowdown, queue, node, state; columns as in jobs.csv of `simulate`"
    add("--jobs-csv", type=Path, metavar="FILE", help=about)
    about = "write a folder that `yunishard simulate compare` and `report` read, to compare it with simulations"
    add("--output", type=Path, metavar="DIR", help=about)
    add("--strict", action="store_true", help="refuse a log with a malformed line instead of skipping it")
    add("--json", action="store_true", help="print nothing but the summary, as one JSON document")
    add("--rm-id", type=parse_rm_id, default="replay", metavar="ID", help="id of the RM (default: replay)")
    where = parser.add_mutually_exclusive_group()
    about = (
        "the native port of a running core, or several of them with commas between: the replay continues at the next "
        "one when the present one fails"
    )
    add_core_options(parser, split_addresses, where=where, about=about)
    about = "start a core for this replay, and stop it afterwards"
    where.add_argument("--local", dest="address", action="store_const", const="", help=about)


def run_replay(args: argparse.Namespace) -> int:
    """Load-test a running system with a workload log (Standard Workload Format,
    plain or .gz). Its sites become partitions, its groups and users queues, its
    jobs applications that run for their logged time, compressed. A job asks for
    each processor separately, with at most 128 asks.

    A replay runs in real time, so its waits depend on --speed and on how busy the
    machine is: two replays of a log differ. Use `yunishard simulate` for waits;
    it runs the same engine in virtual time.

    own queues (--config): a site goes to the partition of its name, else to
    `default` or the first one. A job requests the leaf queue named like its user
    (u7) or group (g2); other groups share the leaf queues in turn. Placement
    rules of the partition decide in the end; applications carry the tags `group`
    and `namespace`. Without --config, jobs go to root.<group>.<user>.

    examples:
      yunishard replay LOG.swf.gz --local         start a core for this replay only
      yunishard replay LOG.swf.gz                 through the core on this machine
      yunishard replay LOG.swf.gz --connect tcp://a:9090,tcp://b:9090
                                                  through the core on two hosts
      yunishard replay LOG.swf.gz --local --json  print only the summary, as JSON
      yunishard replay LOG.swf.gz --local --load 1.2 --speed 10000
      yunishard replay LOG.swf.gz --local --config queues.yaml --gang
      yunishard replay LOG.swf.gz --local --jobs-csv jobs.csv
      yunishard replay LOG.swf.gz --local --output replayed

    exit codes:
      0  every job ran, and everything was released
      1  a job did not run, or something was not released
      2  wrong usage, or the file or the core cannot be used
    """
    if not args.address and (missing := COMMANDS["up"].find_missing()):
        raise CommandUnusable(f"--local: {missing}")
    queues = None if args.config is None else read_user_queues(args.config)
    if args.jobs_csv is not None:
        result_folder.check_writable("--jobs-csv", args.jobs_csv)
    if args.output is not None:
        result_folder.check_writable("--output", args.output / result_folder.RUN_FILE)
    log = workload.load(args.file, strict=args.strict)
    for line in log.malformed:
        sys.stderr.write(f"yunishard replay: skipped {line}\n")
    if more := log.malformed_count - len(log.malformed):
        sys.stderr.write(f"yunishard replay: skipped {more:,} more malformed lines\n")
    plan = workload.plan(
        log, rm_id=args.rm_id, partitions=args.partitions, load=args.load, nodes=args.nodes, queues=queues
    )
    if not plan.jobs:
        raise CommandUnusable(f"{args.file}: no job can be replayed: {plan.left_out}")
    driver = ReplayDriver(args, plan, malformed=log.malformed_count)
    status = asyncio.run(driver.run())
    has_rules = queues is not None and any(part.has_rules for part in queues.partitions.values())
    jobs = list(driver.jobs)
    if args.jobs_csv is not None:
        result_folder.write_jobs(args.jobs_csv, jobs, has_rules=has_rules)
    if args.output is not None:
        config = Path(args.config).name if args.config else ""
        source = result_folder.Source(log=args.file.name, config=config, speed=driver.speed)
        result_folder.write_folder(args.output, plan, jobs, source, has_rules=has_rules)
    return status


def _parse_positive(text: str) -> float:
    number = float(text)
    if not (math.isfinite(number) and 0.001 <= number <= 1e9):
        raise argparse.ArgumentTypeError(f"{text} is not between 0.001 and 1000000000")
    return number


def parse_rm_id(text: str) -> str:
    """Parse the id of an RM, for the `type` of an option."""
    if not RM_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not made of up to 64 letters, digits and _ . : -")
    return text


# A local system for one replay ----------------------------------------------------------------------------------------

START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 20.0
PR_SET_PDEATHSIG: Final = 1
"""From Linux's `sys/prctl.h`."""

COMMAND: Final = (
    *(sys.executable, "-P", "-m", "yunishard.deploy", "--ephemeral", "--log-level", "warning"),
    *("--native", "tcp://127.0.0.1:0", "--grpc", "off", "--rest", "off"),
    *("--partitions-max", str(workload.PARTITIONS_MAX)),
)
"""The bound on partitions keeps the number of file descriptors below 1,024, which is a usual hard limit."""


@asynccontextmanager
async def local_system(command: tuple[str, ...] = COMMAND) -> AsyncIterator[str]:
    """Start a system, give the address of its native port, stop it.

    Raises:
        CommandUnusable: it ended, or was not ready within `START_S_MAX`; its standard error has the reason.
    """
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, process_group=0, preexec_fn=_link_to_parent()
    )
    assert process.stdout is not None
    drain: asyncio.Task[bytes] | None = None
    try:
        address = await _read_address(process.stdout)
        drain = asyncio.create_task(process.stdout.read())  # a full pipe would block the system
        yield address
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(STOP_S_MAX):
                    await process.wait()
            except TimeoutError:
                process.kill()  # its child processes end by themselves then
                await process.wait()
        if drain is not None:
            await drain


def _link_to_parent() -> Callable[[], None] | None:
    """Return a function that makes the child receive SIGTERM when this process is killed; only Linux has it."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM.value)


async def _read_address(output: asyncio.StreamReader) -> str:
    """Wait until the system is ready; return its native address."""
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
        raise CommandUnusable(f"the local system was not ready within {START_S_MAX:g} s") from None
    raise CommandUnusable("the local system ended before it was ready")


# Running --------------------------------------------------------------------------------------------------------------

TICK_S: Final = 0.02
"""Interval at which updates are sent."""
CONNECT_S_MAX: Final = 30.0
SILENCE_S_MAX: Final = 30.0
"""The replay gives up after so many seconds without an answer and without anything due."""

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def send_batch(rm: ResourceManager, batch: Batch) -> list[str]:
    """Send all updates of a batch, in its order; return why reports were refused."""
    reports = [rm.resync(partition, reason="the partition lost its state") for partition in batch.reports]
    for one in reports:
        await one.__aenter__()
    if batch.nodes:
        await rm.update_nodes(batch.nodes)
    if batch.applications:
        await rm.update_applications(new=batch.applications)
    if batch.asks or batch.releases:
        await rm.update_allocations(allocations=batch.asks, releases=batch.releases)
    if batch.removals:
        await rm.update_applications(remove=batch.removals)
    problems = []
    for one in reports:
        try:
            await one.__aexit__(None, None, None)
        except ResyncFailed as error:
            problems.append(f"a report was refused: {error}")
    return problems


@contextmanager
def cancel_at_signal() -> Iterator[list[int]]:
    """Let the first signal cancel the running task, and give a list that then has its number. Later ones are ignored,
    as the way out is bounded.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def stop(number: int) -> None:
        if not received:
            received.append(number)
            task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        yield received
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


class ReplayDriver:
    """Runs one replay against one core, in the main thread, as it handles signals."""

    def __init__(self, args: argparse.Namespace, plan: workload.Plan, *, malformed: int = 0) -> None:
        self._args = args
        self._malformed = malformed
        self._replay = Replay(plan, rm_id=args.rm_id, gang=args.gang)
        self.speed: float = args.speed or plan.default_speed
        """Seconds of the log in one second."""
        self._started_s: float | None = None
        """Real time of the first submission."""
        self._received_s = 0.0
        """Real time of the last answer."""
        self._signals: list[int] = []
        """The signal that interrupted the replay, if there was one."""

    @property
    def jobs(self) -> Iterable[workload.Job]:
        """All jobs of the plan with their present state, in the order of submission."""
        return self._replay.jobs.values()

    async def run(self) -> int:
        """Connect, replay, and print the summary; return the exit status."""
        args, config = self._args, self._replay.plan.build_configuration()
        keys = args.keys if args.address else ""
        with cancel_at_signal() as self._signals:
            try:
                async with (
                    nullcontext(args.address) if args.address else local_system() as address,
                    connect(address, rm_id=args.rm_id, config=config, keys=keys, timeout_s=CONNECT_S_MAX) as rm,
                ):
                    return await self._replay_with(rm)
            except asyncio.CancelledError:
                if not self._signals:
                    raise
                raise CommandFailed(
                    "interrupted before anything was submitted", status=128 + self._signals[0]
                ) from None
            except (RegistrationRefused, KeyFileError, ConnectionError, TimeoutError) as error:
                raise CommandUnusable(str(error)) from None

    async def _replay_with(self, rm: ResourceManager) -> int:
        in_json = self._args.json
        if not in_json:
            print(self._describe_plan(), flush=True)  # noqa: T201 - this is the output
        await self._run_ticks(rm)
        replay, elapsed_s = self._replay, self._elapsed_s(monotonic())
        summary = summarize(replay, elapsed_s=elapsed_s, speed=self.speed, tick_s=TICK_S, malformed=self._malformed)
        print(format_json(summary) if in_json else format_text(summary), flush=True)  # noqa: T201 - this is the output
        if self._signals:
            return 128 + self._signals[0]
        return 0 if summary.complete else NOT_DONE

    def _describe_plan(self) -> str:
        planned, speed = self._replay.plan, self.speed
        folded = f" (one for {planned.folded_sites} smaller sites)" if planned.folded_sites else ""
        processors = sum(site.processors for site in planned.sites)
        return (
            f"{self._args.file}: {len(planned.jobs):,} jobs in {planned.span_s / 3600:.1f} hours, for {processors:,}"
            f" processors in {len(planned.sites)} partitions{folded}. At {speed:,.0f} times its speed it takes "
            f"{planned.span_s / speed:.0f} s, plus the time that jobs wait in queues.\n{WAITS}"
        )

    async def _run_ticks(self, rm: ResourceManager) -> None:
        """Run the replay until it is over, interrupted or without answers."""
        receiver = asyncio.create_task(self._receive(rm))
        self._received_s = monotonic()
        try:
            with open_view(in_json=self._args.json) as (interval_s, show):
                await self._tick(rm, receiver, interval_s, show)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._signals or task is None:
                raise
            task.uncancel()  # the signal requested it; the summary follows
            self._replay.note("interrupted")
        except SessionLost as error:
            self._replay.note(str(error))
        except TimeoutError:
            self._replay.note(f"the core accepted no update for {SILENCE_S_MAX:g} s")
        finally:
            receiver.cancel()
            await asyncio.gather(receiver, return_exceptions=True)  # `_tick` has raised its exception, or it is late

    async def _tick(
        self, rm: ResourceManager, receiver: "asyncio.Task[None]", interval_s: float, show: Callable[[Progress], None]
    ) -> None:
        shown_s, replay = 0.0, self._replay
        shown = 0
        while replay.phase != "over":
            now = monotonic()
            if receiver.done():
                receiver.result()
            if replay.deadline == NEVER and now - self._received_s > SILENCE_S_MAX:
                replay.note(f"no answer for {SILENCE_S_MAX:g} s while {replay.phase}")
                return
            async with asyncio.timeout(SILENCE_S_MAX):
                for problem in await send_batch(rm, replay.due(self._log_s(now))):
                    replay.note(problem)
            if now - shown_s >= interval_s:
                per_s = (replay.allocations - shown) / (now - shown_s)
                shown_s, shown = now, replay.allocations
                log_s, elapsed_s = self._log_s(now), self._elapsed_s(now)
                show(Progress(replay=replay, log_s=log_s, elapsed_s=elapsed_s, allocations_per_s=per_s))
            await asyncio.sleep(TICK_S)

    async def _receive(self, rm: ResourceManager) -> None:
        async for partition, news in rm.results():
            self._received_s = monotonic()
            self._replay.receive(partition, news, self._log_s(self._received_s))
            if self._replay.phase == "replaying" and self._started_s is None:
                self._started_s = self._received_s

    def _elapsed_s(self, real_s: float) -> float:
        return 0.0 if self._started_s is None else real_s - self._started_s

    def _log_s(self, real_s: float) -> float:
        return self._elapsed_s(real_s) * self.speed
