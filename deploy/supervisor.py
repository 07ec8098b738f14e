"""The machine of `yunishard up`: decides which processes run, and how to react when one is ready, fails, or ends.

It works towards one goal with every event:

    run   the broker, then rmproxy and webservice, then a worker for each partition that the broker wants, and spares;
          all of them connect to the leading broker, which may be that of another host
    stop  everything in order; the exit status tells why

Until all front ends are ready, a failure of broker, rmproxy or webservice means that the system cannot start: stop,
status 2. The system is `ready` then; with several hosts, once the leading broker has answered this host, too.
Afterwards, each process that ends restarts after a delay, for ever, and the others keep running: while there is no
broker, there are as many workers as the last one wanted. All ports stay those that were bound first.

All workers start in the same way. Each registers with the broker, which grants it a partition; the worker reports that
here, for the log. A worker that ends is replaced at once, under another name: the broker delays partitions whose
workers keep ending. A worker that the broker has dismissed is killed, as it may be unable to stop, or stopped in order
if its partition has ended. Only a few workers start at the same time.

The broker dismisses a worker that hangs. This machine kills each other process that sends no heartbeat for too long,
and such a worker, too, in case the broker has restarted and the worker has not registered yet.

If another system is this host already, everything here is killed at once: its processes have the names of ours.

With simulated nodes, the fake RM runs as long as no other RM has a partition: a system without any RM has no partition,
and so nothing to look at.

Not here: clocks, processes, sockets, signals (`processes.py` and `up.py` carry out the instructions).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from yunishard.common.messages.control_messages import (
    WORKER_REASON_CHARS_MAX,
    Hello,
    HostLeaves,
    WorkerEnded,
    WorkersWanted,
)
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import Heartbeat
from yunishard.common.messages.wire import NEVER, BrokerAddress, Outgoing, make_outgoing
from yunishard.common.names import (
    BROKER,
    FAKE_RM,
    OFF,
    RMPROXY,
    STAND_IN_RM,
    SUPERVISOR,
    WEBSERVICE,
    WORKER,
    WORKER_PREFIX,
)
from yunishard.common.process.metrics import Family
from yunishard.common.retries import RestartDelay
from yunishard.deploy import children
from yunishard.deploy.children import Cause, Child, Event, HostCapacity, Instruction, Phase

if TYPE_CHECKING:
    from yunishard.common.settings import Settings

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

JOIN_MAX_S: Final = 10.0
"""Seconds after which the log tells that a host is not ready because the leading broker has not answered it."""

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
        broker: The address of the socket of this host's broker.
        file: The file of the settings, for the processes.
        instance: Differs from that of every other supervisor of this host whose workers may still run.
        starts_max: Workers that may start at the same time.
        capacity: The size of this host.
    """

    def __init__(
        self,
        settings: "Settings",
        *,
        broker: str,
        file: str,
        instance: str,
        starts_max: int = STARTS_MAX,
        capacity: HostCapacity = HostCapacity(),  # noqa: B008 - immutable
    ) -> None:
        self.status: int | None = None
        self.failure = ""
        """Why the system could not start, in one line; empty if it did."""
        self._settings = settings
        self._address = broker
        self._file = file
        self._instance = instance
        self._starts_max = starts_max
        self._capacity = capacity
        self._endpoints = {"native": settings.native, "grpc": settings.grpc, "rest": settings.rest}
        self._front_ends = (RMPROXY,) if settings.rest == OFF else (RMPROXY, WEBSERVICE)
        self._stop_status: int | None = None
        """The exit status of the stop in progress; None while the goal is to run."""
        self._started = False
        """Whether everything was ready once: from then on, a process that ends is restarted."""
        self._announced = False
        """Whether it is also known that this host has joined the others."""
        self._wanted: dict[str, None] = {}
        """Partitions that need a worker."""
        self._elsewhere: frozenset[str] = frozenset()
        """Partitions that other hosts serve."""
        self._ended: dict[str, None] = {}
        """Partitions that are no longer wanted, and of which workers or files may be left."""
        self._turn_at = NEVER
        """When the next worker starts even if no other is ready by then; NEVER while none waits."""
        self._workers_named = 0
        self._looked = 0.0
        self._leader: BrokerAddress | None = None
        """Where the processes reach the leading broker, as far as is known."""
        self._is_connected = False
        self._has_joined = False
        """Whether a leading broker has answered."""
        self._joins_by = NEVER
        """When to warn that it has not, although everything else is ready."""
        self._beat_at = NEVER if settings.cluster_address == OFF else 0.0
        """When the next heartbeat to the leading broker is due: those of another host do not share our lifelines."""
        self._broker = Child(BROKER, BROKER, due=0.0)
        self._children: dict[str, Child] = {BROKER: self._broker}
        self._restarts: Counter[tuple[str, Cause]] = Counter()

    def make_hello(self) -> Outgoing:
        """Build the first message to a broker, with the workers that may claim a partition."""
        running = {one.name: one.partition for one in self._workers() if one.is_running and not one.is_dismissed}
        address, capacity = self._settings.cluster_address, self._capacity
        hello = Hello(
            role=SUPERVISOR,
            host=self._settings.host_name,
            address="" if address == OFF else address,
            release=capacity.release,
            cores=capacity.cores,
            memory_bytes=capacity.memory_bytes,
            workers=running,
        )
        return make_outgoing(BROKER, hello)

    def _introduce(self) -> Instruction:
        """Build the message by which a broker counts on this host, or no longer does while it stops."""
        if self._stop_status is not None and self._settings.cluster_address != OFF:
            return make_outgoing(BROKER, HostLeaves())
        return self.make_hello()

    def metrics(self) -> Iterator[Family]:
        """Yield the metrics of processes and restarts."""
        return children.collect_metrics(self._children.values(), self._restarts)

    @property
    def deadline(self) -> float:
        """When it needs `tick`, or NEVER."""
        if not self._children:
            return NEVER
        due = [child.due for child in self._children.values() if not child.is_queued]
        beat_at = self._beat_at if self._is_connected else NEVER
        return min(self._looked + LOOK_S, self._turn_at, self._joins_by, beat_at, *due)

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Apply one event."""
        notes = list(self._extend_deadlines(now))
        if isinstance(event, children.Alive):
            self._extend(self._children[event.name], now)
            return notes
        return [*notes, *self._apply(event, now), *self._approach_goal(now)]

    def tick(self, now: float) -> list[Instruction]:
        """Act on deadlines that have passed; also called once at the start."""
        notes = [*self._extend_deadlines(now), *self._send_heartbeat(now), *self._note_exclusion(now)]
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

    def _send_heartbeat(self, now: float) -> Iterator[Instruction]:
        if self._is_connected and self._beat_at <= now:
            self._beat_at = now + self._settings.heartbeat_s
            yield make_outgoing(BROKER, Heartbeat())

    # Events

    def _apply(self, event: Event, now: float) -> Iterator[Instruction]:
        match event:
            case children.Ready():
                yield from self._mark_ready(self._children[event.name], event.endpoints, now)
            case children.Failed():
                self._children[event.name].problem, self._children[event.name].cause = event.reason, Cause.FAILED
            case children.Refused():
                yield from self._refuse(event.reason)
            case children.Died():
                yield from self._handle_death(self._children.pop(event.name), event.ending, now)
            case children.Granted():
                yield from self._mark_granted(self._children[event.name], event, now)
            case children.LeaderFound():
                yield from self._follow_leader(event.leader)
            case children.HelloWanted():
                yield self._introduce()
            case WorkersWanted():
                self._has_joined = True
                self._ended.update(self._wanted)
                self._wanted, self._elsewhere = dict.fromkeys(event.partitions), frozenset(event.elsewhere)
                for name in event.dismissed.keys() & self._children.keys():
                    child = self._children[name]
                    child.is_dismissed, child.partition = True, event.dismissed[name]
                yield from self._announce()
            case children.Leave() if self._stop_status is not None:
                self._stop_status = self._stop_status or HASTENED
                for child in self._children.values():
                    yield from self._kill(child)
            case children.Leave():
                yield children.Note("info", "stopping")
                self._stop_status = STOPPED
                if self._is_connected and self._settings.cluster_address != OFF:
                    yield self._introduce()

    def _refuse(self, reason: str) -> Iterator[Instruction]:
        """End everything, without a message to the leading broker: that would take it for one of the other system."""
        if self._is_connected:
            self._is_connected = False
            yield children.Disconnect()
        self._stop_status, self.failure = CANNOT_START, reason
        for child in self._children.values():
            yield from self._kill(child)

    def _follow_leader(self, leader: BrokerAddress) -> Iterator[Instruction]:
        """Connect to the leading broker, and have all processes do so."""
        if leader == self._leader and self._is_connected:
            return
        if leader != self._leader:
            for child in self._children.values():
                if child is not self._broker and child.phase is not Phase.PAUSED:
                    yield children.Tell(child.name, leader)
        self._leader, self._is_connected = leader, True
        yield children.Connect(leader)
        yield self._introduce()

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
        self._extend(child, now)
        self._endpoints.update((name, endpoints[name]) for name in self._endpoints if name in endpoints)
        yield children.Note("debug", f"{child.title} is ready")
        yield from self._announce()

    def _announce(self) -> Iterator[Instruction]:
        """Announce the endpoints, once everything is ready."""
        is_stand_in_missing = self._wants_stand_in and not self._is_ready(FAKE_RM)
        if self._announced or is_stand_in_missing or not all(map(self._is_ready, self._front_ends)):
            return
        self._started = True
        if not self._has_joined and self._settings.cluster_address != OFF:
            self._joins_by = min(self._joins_by, self._looked + JOIN_MAX_S)
            return
        self._announced, self._joins_by = True, NEVER
        for name, address in self._endpoints.items():
            yield children.Announce(f"{name:<8}{address}")
        yield children.READY

    def _note_exclusion(self, now: float) -> Iterator[Instruction]:
        """Report that this host has not joined the others yet."""
        if self._joins_by <= now and self._leader is not None:
            self._joins_by = NEVER
            yield children.Note(
                "warning",
                f"this host is not ready: the leading broker at {self._leader.address} has not answered for"
                f" {JOIN_MAX_S:g} s; look for `no connection to the broker` above, and compare the keys of the hosts"
                " (`yunishard cluster --help`)",
            )

    def _is_ready(self, name: str) -> bool:
        child = self._children.get(name)
        return child is not None and child.phase is Phase.READY

    @property
    def _wants_stand_in(self) -> bool:
        """Whether the fake RM should run: there are simulated nodes, and no other RM has a partition."""
        prefix = f"{STAND_IN_RM}_"
        return self._settings.simulated_nodes > 0 and all(name.startswith(prefix) for name in self._wanted)

    def _mark_granted(self, child: Child, granted: children.Granted, now: float) -> Iterator[Instruction]:
        """Give a worker that has been granted a partition the time to recover."""
        child.partition, child.epoch = granted.partition, granted.epoch
        yield children.Note("info", f"{child.name} becomes {child.title}")
        if child.is_running:
            child.phase, child.since, child.due = Phase.STARTING, now, now + START_MAX_S

    def _workers(self) -> list[Child]:
        return [child for child in self._children.values() if child.role == WORKER]

    def _handle_death(self, child: Child, ending: str, now: float) -> Iterator[Instruction]:
        text = f"{child.title} {self._describe_end(child, ending, now)}"
        is_unexpected = child.is_running or bool(child.problem)
        if child.role == WORKER and self._stop_status is None:
            yield self._report_worker_end(child, ending)
        level = "warning" if is_unexpected else "info"
        yield children.Note(level, f"{text} ({child.problem})" if child.problem else text)
        if child is self._broker and self._leader is not None and self._leader.address == self._address:
            self._is_connected = False
            yield children.Disconnect()
        if self._stop_status is not None or not is_unexpected:
            return
        if not self._started and child.role != WORKER:
            self._stop_status = CANNOT_START
            self.failure = f"{child.name} cannot start: {child.problem or ending}"
            return
        self._restarts[child.role, child.cause] += 1
        if child.partition:
            return  # the broker has its partition served by another worker
        delay_s = child.delay.next_delay(now - child.since)
        yield children.Note("info", f"{child.title} starts again in {delay_s:.1f} s")
        if child.role == WORKER:
            self._add_worker(now + delay_s, child.delay)
        else:
            child.phase, child.problem, child.cause, child.due = Phase.PAUSED, "", Cause.ENDED, now + delay_s
            self._children[child.name] = child

    def _describe_end(self, child: Child, ending: str, now: float) -> str:
        """Return how a process ended; without the exit status if the supervisor stopped it."""
        if child.is_running or child.problem or ending not in ("exit status 0", "SIGKILL"):
            return f"ended after {now - child.since:.1f} s: {ending}"
        if self._stop_status is not None or not child.partition:
            return "stopped"
        return f"stopped ({'another worker replaces it' if self._is_wanted(child) else 'its partition ended'})"

    def _is_wanted(self, child: Child) -> bool:
        """Whether the partition of a worker is still wanted, here or elsewhere."""
        return child.partition in self._wanted or child.partition in self._elsewhere

    def _report_worker_end(self, child: Child, ending: str) -> Instruction:
        """Report to the broker that a worker has ended, and why if it was not ready: a configuration change may wait
        for it.
        """
        was_given_up = child.phase is Phase.KILLED and child.cause in (Cause.FAILED, Cause.SLOW)
        reason = child.problem or ending if child.phase is Phase.STARTING or was_given_up else ""
        cannot_start = bool(reason) and child.cause is Cause.FAILED
        ended = WorkerEnded(worker=child.name, reason=reason[:WORKER_REASON_CHARS_MAX], cannot_start=cannot_start)
        return make_outgoing(BROKER, ended, Header(kind="WorkerEnded", partition=child.partition, epoch=child.epoch))

    def _add_worker(self, due: float, delay: RestartDelay) -> None:
        """Add a worker that starts at this time."""
        self._workers_named += 1
        name = f"{WORKER_PREFIX}{self._settings.host_name}.{self._instance}-{self._workers_named}"
        self._children[name] = Child(name, WORKER, due=due, delay=delay)

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
            yield from self._stop_dismissed(now)
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

    def _stop_dismissed(self, now: float) -> Iterator[Instruction]:
        """Stop workers that have lost their lease."""
        for child in self._workers():
            if child.is_dismissed and self._is_wanted(child) and child.phase is not Phase.KILLED:
                yield from self._kill(child)
            elif child.is_dismissed and child.is_running:
                yield from self._terminate(child, now)

    def _forget_ended(self) -> Iterator[Instruction]:
        """Have the files of ended partitions removed once their last worker has ended."""
        running = {child.partition for child in self._children.values()}
        wanted = self._wanted.keys() | self._elsewhere
        for partition in [name for name in self._ended if name in wanted or name not in running]:
            del self._ended[partition]
            if partition not in wanted:
                yield children.Forget(partition)

    def _start_missing(self, now: float) -> Iterator[Instruction]:
        """Start missing processes that may start now."""
        if self._leader is not None:
            for role in self._front_ends:
                self._children.setdefault(role, Child(role, role, due=now))
            yield from self._match_stand_in(now)
        for child in [child for child in self._children.values() if child.phase is Phase.PAUSED and child.due <= now]:
            if child.role != WORKER:
                yield from self._start(child, now)
        yield from self._match_workers(now)
        yield from self._start_workers(now)

    def _match_stand_in(self, now: float) -> Iterator[Instruction]:
        """Add the fake RM once RMs can connect, or stop it while another RM has a partition."""
        child = self._children.get(FAKE_RM)
        if child is None:
            if self._wants_stand_in and self._is_ready(RMPROXY):
                self._children[FAKE_RM] = Child(FAKE_RM, FAKE_RM, due=now)
        elif not self._wants_stand_in and child.phase is Phase.PAUSED:
            del self._children[FAKE_RM]
        elif not self._wants_stand_in and child.is_running:
            yield children.Note("info", f"another RM has a partition: the simulated RM {STAND_IN_RM!r} leaves")
            yield from self._terminate(child, now)

    def _match_workers(self, now: float) -> Iterator[Instruction]:
        """Add missing workers, or stop spare ones of which there are too many. One that ended early is not missing: it
        is paused. Spare workers do not delay the start of the system.
        """
        present = [child for child in self._workers() if not child.is_dismissed and child.phase is not Phase.LEAVING]
        missing = len(self._wanted) - len(present) + (self._settings.spare_workers if self._announced else 0)
        for _ in range(missing):
            self._add_worker(now, RestartDelay())
        spares = [child for child in present if child.is_spare and child.phase is not Phase.KILLED]
        spares.sort(key=lambda child: child.phase is not Phase.PAUSED)
        for child in spares[: max(0, -missing)]:
            if child.phase is Phase.PAUSED:
                del self._children[child.name]
            else:
                yield from self._terminate(child, now)

    def _start_workers(self, now: float) -> Iterator[Instruction]:
        """Start as many of the due workers as may start now."""
        workers = self._workers()
        waiting = [child for child in workers if child.phase is Phase.PAUSED and child.due <= now]
        since = [one.since for one in workers if one.phase is Phase.STARTING and now < one.since + TURN_MAX_S]
        while waiting and len(since) < self._starts_max:
            since.append(now)
            yield from self._start(waiting.pop(0), now)
        for child in waiting:
            child.is_queued = True
        self._turn_at = min(since) + TURN_MAX_S if waiting else NEVER

    def _start(self, child: Child, now: float) -> Iterator[Instruction]:
        yield children.Start(child.name, child.role, self._arguments(child))
        child.phase, child.since, child.due, child.is_queued = Phase.STARTING, now, now + START_MAX_S, False

    def _terminate(self, child: Child, now: float) -> Iterator[Instruction]:
        child.phase, child.due = Phase.LEAVING, now + _stop_max_s(child)
        yield children.Terminate(child.name)

    def _arguments(self, child: Child) -> tuple[str, ...]:
        own: tuple[str, ...] = ()
        if child.role == RMPROXY:
            ports = ("--native", self._endpoints["native"], "--grpc", self._endpoints["grpc"])
            own = ("--instance", self._settings.instance, *ports)
        elif child.role == WEBSERVICE:
            own = ("--instance", self._settings.instance, "--rest", self._endpoints["rest"].rpartition("/")[2])
        elif child.role == FAKE_RM:
            own = ("--native", self._endpoints["native"])
        elif child.role == WORKER:
            own = ("--instance", child.name.removeprefix(WORKER_PREFIX))
        broker = self._leader if child is not self._broker and self._leader else BrokerAddress(self._address)
        key = ("--broker-key", broker.key) if broker.key else ()
        return ("--broker", broker.address, *key, *own, "--settings", self._file)


def _stop_max_s(child: Child) -> float:
    return WORKER_STOP_MAX_S if child.partition else STOP_MAX_S
