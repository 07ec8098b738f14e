"""The machine of `yunishard up`: decides which processes run, and how to react when one is ready, fails, or ends.

It works towards one goal with every event:

    run   the broker, then rmproxy and webservice, then a worker for each partition that the broker wants, and spares
    stop  everything in order; the exit status tells why

Until the first `ready`, a failure of broker, rmproxy or webservice means that the system cannot start: stop, status 2.
Afterwards, each process that ends restarts after a delay, for ever, and the others keep running: while there is no
broker, the workers are those that the last one wanted. All ports stay those that were bound first. A worker restarts
with the same partition and epoch. When its lease has moved to another epoch it is killed, as it may be unable to stop,
and its successor starts at once. A ready spare worker replaces a worker that would have to start, and another spare
worker starts. Only a few workers start at the same time, and RMs take turns.

The broker replaces a worker that hangs by another lease. This machine kills each other process that sends no heartbeat
for too long, and such a worker, too, in case the broker has restarted and the worker has not registered yet.

Not here: clocks, processes, sockets, signals (`processes.py` and `up.py` carry out the instructions).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from common.control_messages import WORKER_REASON_CHARS_MAX, WorkerEnded, WorkersWanted
from common.messages import Header
from common.metrics import Family
from common.names import BROKER, OFF, RMPROXY, SUPERVISED, WEBSERVICE, WORKER
from common.wire import NEVER, make_outgoing
from deploy import children
from deploy.children import Cause, Child, Event, Instruction, Phase

if TYPE_CHECKING:
    from common.settings import Settings

START_MAX_S: Final = 30.0
"""A process that is not ready after this time is killed. For the worker of a partition, which may have a long journal
to read, the time starts again with each heartbeat.
"""

STOP_MAX_S: Final = 5.0
"""Seconds for a process to stop; then it is killed."""

WORKER_STOP_MAX_S: Final = 30.0
"""The same for the worker of a partition, which first writes a snapshot: without one, the next worker has
more journal steps to read.
"""

SILENCES_MAX: Final = 5
"""A process is killed after this multiple of the time after which an RM counts as disconnected: it may be busy, and a
restart takes its clients longer.
"""

LOOK_S: Final = 1.0
"""The machine requests a `tick` at least this often, to notice when it does not get it: then the whole supervisor was
stopped, and heartbeats of that time are not read yet.
"""

LATE_MAX_S: Final = 1.0
"""A tick that is later than this extends all deadlines by as much."""

STARTS_MAX: Final = 4
"""Workers that start at the same time on a small machine; the others wait. A start takes half a second of a processor:
more at once would not be ready sooner, and would slow down the running processes.
"""

TURN_MAX_S: Final = 5.0
"""A worker that has been starting for longer does not count as starting any more: it may have a long journal to read,
and one that hangs must not delay the others."""

STOPPED: Final = 0
CANNOT_START: Final = 2
HASTENED: Final = 130


class Supervisor:
    """Turns events and the time into instructions. `status` is None until all processes have ended.

    Args:
        settings: Its ports may be 0 until they are bound first, or `off`.
        broker: The address of the broker's socket.
        file: The file of the settings, for the processes.
        starts_max: Workers that may start at the same time.
    """

    def __init__(self, settings: "Settings", *, broker: str, file: str, starts_max: int = STARTS_MAX) -> None:
        self.status: int | None = None
        self.failure = ""
        """Why the system could not start, in one line; empty if it did."""
        self._settings = settings
        self._address = broker
        self._file = file
        self._starts_max = starts_max
        self._endpoints = {"native": settings.native, "grpc": settings.grpc, "rest": settings.rest}
        self._front_ends = (RMPROXY,) if settings.rest == OFF else (RMPROXY, WEBSERVICE)
        self._stop_status: int | None = None
        """The exit status of the stop in progress; None while the goal is to run."""
        self._announced = False
        self._wanted: dict[str, int] = {}
        self._rms: dict[str, str] = {}
        """The RM of each partition that is wanted."""
        self._served: set[str] = set()
        """Partitions that are wanted and whose worker was ready once."""
        self._ended: dict[str, None] = {}
        """Partitions that are no longer wanted, and of which workers or files may be left."""
        self._turn_at = NEVER
        """When the next worker starts even if no other is ready by then; NEVER while none waits."""
        self._spares_started = 0
        self._looked = 0.0
        self._broker = Child(BROKER, BROKER, due=0.0)
        self._children: dict[str, Child] = {BROKER: self._broker}
        self._restarts: Counter[tuple[str, Cause]] = Counter()

    def metrics(self) -> Iterator[Family]:
        """Yield the metrics of processes and restarts."""
        return children.collect_metrics(self._children.values(), self._restarts)

    @property
    def deadline(self) -> float:
        """When it needs `tick`, or NEVER."""
        due = (child.due for child in self._children.values() if not child.is_queued)
        return min((self._looked + LOOK_S, self._turn_at, *due)) if self._children else NEVER

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Apply one event."""
        notes = list(self._extend_deadlines(now))
        if isinstance(event, children.Alive):
            self._extend(self._children[event.name], now)
            return notes
        return [*notes, *self._apply(event, now), *self._approach_goal(now)]

    def tick(self, now: float) -> list[Instruction]:
        """Act on deadlines that have passed; also called once at the start."""
        notes = list(self._extend_deadlines(now))
        late = [child for child in self._children.values() if child.due <= now and child.phase is not Phase.PAUSED]
        return [*notes, *(step for child in late for step in self._time_out(child)), *self._approach_goal(now)]

    def _extend_deadlines(self, now: float) -> Iterator[Instruction]:
        """Extend all deadlines by the time in which the supervisor did not run."""
        late_s, self._looked = now - self._looked - LOOK_S, now
        running = [child for child in self._children.values() if child.phase is not Phase.PAUSED]
        if late_s > LATE_MAX_S and running:
            text = f"the supervisor itself did not run for {late_s:.1f} s: all deadlines are extended by as much"
            yield children.Note("warning", text)
            for child in running:
                child.due += late_s

    # Events

    def _apply(self, event: Event, now: float) -> Iterator[Instruction]:
        match event:
            case children.Ready():
                yield from self._mark_ready(self._children[event.name], event.endpoints, now)
            case children.Failed():
                self._children[event.name].problem, self._children[event.name].cause = event.reason, Cause.FAILED
            case children.Died():
                yield from self._handle_death(self._children.pop(event.name), event.ending, now)
            case WorkersWanted():
                self._ended.update(dict.fromkeys(self._wanted))
                self._wanted, self._rms = dict(event.partitions), dict(event.managers)
                self._served &= self._wanted.keys()
            case children.Leave() if self._stop_status is not None:
                self._stop_status = self._stop_status or HASTENED
                for child in self._children.values():
                    yield from self._kill(child)
            case children.Leave():
                yield children.Note("info", "stopping")
                self._stop_status = STOPPED

    def _extend(self, child: Child, now: float) -> None:
        """Move the deadline of a process that has sent a heartbeat."""
        if child.phase is Phase.READY:
            child.due = now + self._silent_max_s(child)
        elif child.phase is Phase.STARTING and child.partition:
            child.due = now + START_MAX_S

    def _silent_max_s(self, child: Child) -> float:
        """How long a ready process may be silent. The broker acts sooner on a worker, at the end of its lease."""
        lease_s = self._settings.lease_timeout_s if child.partition else 0.0
        return lease_s + SILENCES_MAX * self._settings.silence_s

    def _mark_ready(self, child: Child, endpoints: Mapping[str, str], now: float) -> Iterator[Instruction]:
        if child.phase is not Phase.STARTING:
            return
        child.phase = Phase.READY
        if child.partition:
            self._served.add(child.partition)
        self._extend(child, now)
        self._endpoints.update((name, endpoints[name]) for name in self._endpoints if name in endpoints)
        yield children.Note("debug", f"{child.title} is ready")
        if child is self._broker:
            yield children.Connect()
        fronts = (self._children.get(role) for role in self._front_ends)
        if not self._announced and all(front and front.phase is Phase.READY for front in fronts):
            self._announced = True
            for name, address in self._endpoints.items():
                yield children.Announce(f"{name:<8}{address}")
            yield children.Announce("ready")

    def _handle_death(self, child: Child, ending: str, now: float) -> Iterator[Instruction]:
        text = f"{child.title} {self._describe_end(child, ending, now)}"
        is_unexpected = child.is_running or bool(child.problem)
        yield from self._report_failed_start(child, ending)
        level = "warning" if is_unexpected else "info"
        yield children.Note(level, f"{text} ({child.problem})" if child.problem else text)
        if child is self._broker:
            yield children.Disconnect()
        if self._stop_status is not None or not is_unexpected:
            return
        if not self._announced and child.role != WORKER:
            self._stop_status = CANNOT_START
            self.failure = f"{child.name} cannot start: {child.problem or ending}"
            return
        self._restarts[child.role, child.cause] += 1
        child.phase, child.problem, child.cause = Phase.PAUSED, "", Cause.ENDED
        child.due = now + child.delay.next_delay(now - child.since)
        yield children.Note("info", f"{child.title} starts again in {child.due - now:.1f} s")
        self._add(child)

    def _describe_end(self, child: Child, ending: str, now: float) -> str:
        """Return how a process ended; without the exit status if the supervisor stopped it."""
        if child.is_running or child.problem or ending not in ("exit status 0", "SIGKILL"):
            return f"ended after {now - child.since:.1f} s: {ending}"
        if self._stop_status is not None or not child.partition:
            return "stopped"
        is_wanted = child.partition in self._wanted
        return f"stopped ({'another worker replaces it' if is_wanted else 'its partition ended'})"

    def _report_failed_start(self, child: Child, ending: str) -> Iterator[Instruction]:
        """Report to the broker why a wanted worker did not start: a configuration change may wait for it."""
        is_wanted = child.partition and self._wanted.get(child.partition) == child.epoch
        was_given_up = child.phase is Phase.KILLED and child.cause in (Cause.FAILED, Cause.SLOW)
        if is_wanted and (child.phase is Phase.STARTING or was_given_up):
            reason = (child.problem or ending)[:WORKER_REASON_CHARS_MAX]
            header = Header(kind="WorkerEnded", partition=child.partition, epoch=child.epoch)
            yield make_outgoing(BROKER, WorkerEnded(reason=reason, cannot_start=child.cause is Cause.FAILED), header)

    def _add(self, child: Child) -> None:
        """Register a child under its title. A former spare worker has another name while it runs."""
        child.name = child.title
        self._children[child.name] = child

    def _time_out(self, child: Child) -> Iterator[Instruction]:
        if child.phase is Phase.STARTING and not child.problem:
            child.problem, child.cause = f"not ready after {START_MAX_S:.0f} s", Cause.SLOW
        elif child.phase is Phase.READY:
            child.problem, child.cause = f"silent for {self._silent_max_s(child):g} s", Cause.SILENT
        reason = child.problem or f"still running {_stop_max_s(child):.0f} s after it was asked to stop"
        yield children.Note("warning", f"{child.title}: {reason}: killing it")
        yield from self._kill(child)

    def _kill(self, child: Child) -> Iterator[Instruction]:
        if child.phase is not Phase.PAUSED:
            child.phase, child.due = Phase.KILLED, NEVER
            yield children.Kill(child.name)

    # Towards the goal

    def _approach_goal(self, now: float) -> Iterator[Instruction]:
        if self._stop_status is not None:
            yield from self._stop_all(now)
        else:
            yield from self._align_workers(now)
            yield from self._forget_ended()
            yield from self._start_missing(now)

    def _stop_all(self, now: float) -> Iterator[Instruction]:
        """Stop one role after the other; once all have ended, the exit status is final."""
        self._turn_at = NEVER
        self._children = {name: child for name, child in self._children.items() if child.phase is not Phase.PAUSED}
        for role in children.STOP_ORDER:
            remaining = [child for child in self._children.values() if child.role == role]
            for child in remaining:
                if child.is_running:
                    yield from self._terminate(child, now)
            if remaining:
                return
        self.status = self._stop_status

    def _align_workers(self, now: float) -> Iterator[Instruction]:
        """Stop workers that are no longer wanted, or only with another epoch."""
        workers = [child for child in self._children.values() if child.partition]
        held = {(child.partition, child.epoch) for child in workers}
        for child in workers:
            epoch = self._wanted.get(child.partition)
            if epoch == child.epoch:
                continue
            if child.phase is Phase.PAUSED:
                del self._children[child.name]
                if epoch is not None and (child.partition, epoch) not in held:
                    child.epoch = epoch  # its delay stays: a new epoch does not repair a worker that cannot run
                    self._add(child)
            elif epoch is not None and child.phase is not Phase.KILLED:
                yield from self._kill(child)
            elif child.is_running:
                yield from self._terminate(child, now)

    def _forget_ended(self) -> Iterator[Instruction]:
        """Have the files of ended partitions removed once their last worker has ended."""
        running = {child.partition for child in self._children.values()}
        for partition in [name for name in self._ended if name in self._wanted or name not in running]:
            del self._ended[partition]
            if partition not in self._wanted:
                yield children.Forget(partition)

    def _start_missing(self, now: float) -> Iterator[Instruction]:
        """Start missing processes that may start now."""
        if self._broker.phase is Phase.READY:
            for role in self._front_ends:
                self._children.setdefault(role, Child(role, role, due=now))
        self._add_workers(now)
        for child in [child for child in self._children.values() if child.phase is Phase.PAUSED and child.due <= now]:
            if child.role != WORKER:
                yield from self._start(child, now)
        yield from self._start_workers(now)
        if self._announced:  # spare workers do not delay the start
            self._add_spares(now)
            yield from self._start_workers(now)

    def _start_workers(self, now: float) -> Iterator[Instruction]:
        """Start as many of the due workers as may start now. RMs with fewer starting workers come first, so that an RM
        with hundreds of partitions does not delay the others; then partitions that were served before.
        """
        workers = [child for child in self._children.values() if child.role == WORKER]
        waiting = [child for child in workers if child.phase is Phase.PAUSED and child.due <= now]
        starting = [child for child in workers if child.phase is Phase.STARTING and now < child.since + TURN_MAX_S]
        since = [child.since for child in starting]
        starts_by_rm = Counter(self._rms.get(child.partition, "") for child in starting)
        while waiting and len(since) < self._starts_max:
            child = min(waiting, key=lambda one: self._sort_key(one, starts_by_rm))
            waiting.remove(child)
            since.append(now)
            starts_by_rm[self._rms.get(child.partition, "")] += 1
            yield from self._start(child, now)
        for child in waiting:
            child.is_queued = True
        self._turn_at = min(since) + TURN_MAX_S if waiting else NEVER

    def _sort_key(self, child: Child, starts_by_rm: Counter[str]) -> tuple[bool, int, bool, float]:
        """The order in which workers start, smallest first."""
        starts = starts_by_rm[self._rms.get(child.partition, "")]
        return child.is_spare, starts, child.partition not in self._served, child.due

    def _add_workers(self, now: float) -> None:
        """Add a worker for each wanted partition, under its current lease."""
        held = {(child.partition, child.epoch) for child in self._children.values()}
        delays = {child.partition: child.delay for child in self._children.values()}
        for partition, epoch in self._wanted.items():
            if (partition, epoch) not in held:
                delay = delays.get(partition) or children.RestartDelay()
                self._add(Child("", WORKER, due=now, partition=partition, epoch=epoch, delay=delay))

    def _start(self, child: Child, now: float) -> Iterator[Instruction]:
        """Start a process, or assign the partition to a ready spare worker."""
        spares = [one for one in self._children.values() if one.is_spare and one.phase is Phase.READY]
        spare = max(spares, key=lambda one: one.due, default=None)  # the latest heartbeat: it is not stopped
        if child.partition and spare is not None:
            del self._children[child.name]
            spare.partition, spare.epoch, spare.delay = child.partition, child.epoch, child.delay
            yield children.Note("info", f"{spare.name} becomes {spare.title}")
            yield children.Assign(spare.name, spare.partition, spare.epoch)
            child = spare
        else:
            yield children.Start(child.name, child.role, self._arguments(child))
        child.phase, child.since, child.due, child.is_queued = Phase.STARTING, now, now + START_MAX_S, False

    def _add_spares(self, now: float) -> None:
        """Add missing spare workers. One that ended is not missing: it is paused."""
        for _ in range(self._settings.spare_workers - sum(child.is_spare for child in self._children.values())):
            self._spares_started += 1
            self._add(Child(f"{WORKER} spare-{self._spares_started}", WORKER, due=now))

    def _terminate(self, child: Child, now: float) -> Iterator[Instruction]:
        child.phase, child.due = Phase.LEAVING, now + _stop_max_s(child)
        yield children.Terminate(child.name)

    def _arguments(self, child: Child) -> tuple[str, ...]:
        own: tuple[str, ...] = ()
        if child.role == RMPROXY:
            ports = ("--native", self._endpoints["native"], "--grpc", self._endpoints["grpc"])
            own = ("--instance", SUPERVISED, *ports)
        elif child.role == WEBSERVICE:
            own = ("--instance", SUPERVISED, "--rest", self._endpoints["rest"].rpartition("/")[2])
        elif child.partition:  # its name may begin with a dash
            own = (f"--partition={child.partition}", "--epoch", str(child.epoch))
        elif child.is_spare:
            own = ("--spare",)
        return ("--broker", self._address, *own, "--settings", self._file)


def _stop_max_s(child: Child) -> float:
    return WORKER_STOP_MAX_S if child.partition else STOP_MAX_S
