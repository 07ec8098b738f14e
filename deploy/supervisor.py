"""Which processes should run, and what to do when one is ready, fails, falls silent, or dies: the machine behind
`yunishard up`.

It keeps one goal and comes closer to it with every event:

    RUN   the broker, then rmproxy and webservice, then a worker for each partition that the broker wants, and spares
    END   stop everything in order; the status says why

Until the first `ready`, a failure of broker, rmproxy or webservice means that the system cannot start: END, status 2.
After it, what dies starts again after a pause (`restarts.py`), for ever, and the others stay: while there is no broker
the workers are those that the last one wanted. All ports stay the ones that were bound first. A worker starts again
with the same partition and epoch. When its lease has gone over to another epoch it is killed, as it may not even be
able to stop, and its successor starts at once. A spare worker that is ready takes the place of one that would have to
be started, and another spare one is started for it. Only a few workers start at the same time, and RMs take turns.

A worker that hangs loses its lease at the broker. Whoever else has not said for too long that it is alive is killed,
and so is that worker should the broker have begun anew meanwhile and not know it yet.

Not here: clocks, processes, sockets, signals (`processes.py` and `service.py` do what the instructions say).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from common.control_messages import WORKER_REASON_CHARS_MAX, WorkersWanted
from common.metrics import Family
from common.names import OFF
from common.wire import NEVER
from deploy.children import BROKER, RMPROXY, STOP_ORDER, WEBSERVICE, WORKER, Cause, Child, Phase, worker_title
from deploy.figures import families
from deploy.instructions import (
    Alive,
    Announce,
    Assign,
    Connect,
    Died,
    Disconnect,
    Event,
    Failed,
    Forget,
    Instruction,
    Kill,
    Leave,
    Note,
    Ready,
    Report,
    Start,
    Terminate,
)
from deploy.restarts import Restarts

START_MAX_S: Final = 30.0
"""A process that is not ready by then is killed; the worker of a partition, which may have a long journal to read, once
it has not said for so long that it is alive.
"""

STOP_MAX_S: Final = 5.0
"""How long a process may take to stop when asked; then it is killed."""

WORKER_STOP_MAX_S: Final = 30.0
"""The same for the worker of a partition, which writes a snapshot of all of it first: without one the next worker,
perhaps of another release, has steps to play again.
"""

LOOK_S: Final = 1.0
"""The machine wants its `tick` so often at least, to notice when it does not get it: then the whole supervisor was
stopped, and what the others may have said meanwhile is not read yet.
"""

LATE_MAX_S: Final = 1.0
"""A tick that is later than this moves all deadlines by as much. Less is part of their room."""

STARTS_MAX: Final = 4
"""Workers that start at the same time, unless the plan says otherwise; the others wait for their turn. A start takes
half a second of a processor: more at once would be ready no sooner, and would keep the processors from those that run.
"""

TURN_MAX_S: Final = 5.0
"""A worker that has been starting for so long no longer counts among those: it may have a long journal to read, and one
that hangs must not hold up others."""

STOPPED: Final = 0
CANNOT_START: Final = 2
HASTENED: Final = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the processes are started with. Ports may be 0 until they are first bound; an address may be `off`.
    Without the REST port there is no web service.
    """

    broker: str
    native: str
    grpc: str
    rest: str
    log_level: str
    silent_max_s: float
    """A process that has not said for so long that it is alive is killed."""
    worker_silent_max_s: float
    """The same for the worker of a partition: longer than a lease lasts, as the broker sees to it sooner."""
    spares: int = 0
    """How many workers wait for a partition."""
    starts_max: int = STARTS_MAX
    """How many workers start at the same time."""
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Role to what its processes are told besides addresses and the like."""


class Goal(Enum):
    """What the supervisor works towards."""

    RUN = "run"
    END = "end"


class Supervisor:
    """Takes events and the time, gives instructions. `status` is None until everything is gone."""

    def __init__(self, plan: Plan) -> None:
        self.status: int | None = None
        self.failure = ""
        """Why the system could not start, in one line; empty if it did."""
        self._plan = plan
        self._endpoints = {"native": plan.native, "grpc": plan.grpc, "rest": plan.rest}
        self._front_ends = (RMPROXY,) if plan.rest == OFF else (RMPROXY, WEBSERVICE)
        self._goal = Goal.RUN
        self._outcome = STOPPED
        self._announced = False
        self._wanted: dict[str, int] = {}
        self._managers: dict[str, str] = {}
        """Partition to the RM that has it, of those that are wanted."""
        self._served: set[str] = set()
        """Partitions that are wanted and whose worker was ready once; only asked for membership."""
        self._ended: dict[str, None] = {}
        """Partitions that were wanted and are not any more, of which something may be left."""
        self._turn_at = NEVER
        """When the next worker gets its turn even if no other is ready by then; NEVER while none waits for it."""
        self._spares_started = 0
        self._looked = 0.0
        self._broker = Child(BROKER, BROKER, due=0.0)
        self._children: dict[str, Child] = {BROKER: self._broker}
        self._restarts: Counter[tuple[str, Cause]] = Counter()
        """By role."""

    def families(self) -> Iterator[Family]:
        """Figures of what runs, and of what had to be started again."""
        return families(self._children.values(), self._restarts)

    @property
    def deadline(self) -> float:
        """When it wants `tick`, or NEVER."""
        due = (child.due for child in self._children.values() if not child.queued)
        return min((self._looked + LOOK_S, self._turn_at, *due)) if self._children else NEVER

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take one event; what to do because of it."""
        late = list(self._look(now))
        if isinstance(event, Alive):
            self._alive(self._children[event.name], now)
            return late
        return [*late, *self._take(event, now), *self._settle(now)]

    def tick(self, now: float) -> list[Instruction]:
        """Do what is due; called to begin with, and once `deadline` has passed."""
        late = list(self._look(now))
        slow = [child for child in self._children.values() if child.due <= now and child.phase is not Phase.PAUSED]
        return [*late, *(step for child in slow for step in self._lose_patience(child)), *self._settle(now)]

    def _look(self, now: float) -> Iterator[Instruction]:
        """Give everybody the time in which nobody could be heard, if there was any."""
        late_s, self._looked = now - self._looked - LOOK_S, now
        running = [child for child in self._children.values() if child.phase is not Phase.PAUSED]
        if late_s > LATE_MAX_S and running:
            yield Note(
                "warning",
                f"the supervisor itself did not run for {late_s:.1f} s: all deadlines are extended by as much",
            )
            for child in running:
                child.due += late_s

    # Events

    def _take(self, event: Event, now: float) -> Iterator[Instruction]:
        match event:
            case Ready():
                yield from self._ready(self._children[event.name], event.endpoints, now)
            case Failed():
                self._children[event.name].complaint, self._children[event.name].cause = event.reason, Cause.FAILED
            case Died():
                yield from self._died(self._children.pop(event.name), event.ending, now)
            case WorkersWanted():
                self._ended.update(dict.fromkeys(self._wanted))
                self._wanted, self._managers = dict(event.partitions), dict(event.managers)
                self._served &= self._wanted.keys()
            case Leave() if self._goal is Goal.END:
                self._outcome = self._outcome or HASTENED
                for child in self._children.values():
                    yield from self._kill(child)
            case Leave():
                yield Note("info", "stopping")
                self._goal = Goal.END

    def _alive(self, child: Child, now: float) -> None:
        if child.phase is Phase.READY:
            child.due = now + self._patience_s(child)
        elif child.phase is Phase.STARTING and child.partition:
            child.due = now + START_MAX_S

    def _patience_s(self, child: Child) -> float:
        """How long it may be silent once it is ready."""
        return self._plan.worker_silent_max_s if child.partition else self._plan.silent_max_s

    def _ready(self, child: Child, endpoints: Mapping[str, str], now: float) -> Iterator[Instruction]:
        if child.phase is not Phase.STARTING:
            return
        child.phase = Phase.READY
        if child.partition:
            self._served.add(child.partition)
        self._alive(child, now)
        self._endpoints.update((name, endpoints[name]) for name in self._endpoints if name in endpoints)
        yield Note("debug", f"{child.title} is ready")
        if child is self._broker:
            yield Connect()
        fronts = (self._children.get(role) for role in self._front_ends)
        if not self._announced and all(front and front.phase is Phase.READY for front in fronts):
            self._announced = True
            for name, address in self._endpoints.items():
                yield Announce(f"{name:<8}{address}")
            yield Announce("ready")

    def _died(self, child: Child, ending: str, now: float) -> Iterator[Instruction]:
        told = f"{child.title} ended after {now - child.since:.1f} s: {ending}"
        unasked = child.alive or child.complaint
        yield from self._reported(child, ending)
        yield Note("warning" if unasked else "info", f"{told} ({child.complaint})" if child.complaint else told)
        if child is self._broker:
            yield Disconnect()
        if self._goal is not Goal.RUN or not unasked:
            return
        if not self._announced and child.role != WORKER:
            self._goal, self._outcome = Goal.END, CANNOT_START
            self.failure = f"{child.name} cannot start: {child.complaint or ending}"
            return
        self._restarts[child.role, child.cause] += 1
        child.phase, child.complaint, child.cause = Phase.PAUSED, "", Cause.ENDED
        child.due = now + child.restarts.pause(now - child.since)
        yield Note("info", f"{child.title} starts again in {child.due - now:.1f} s")
        self._keep(child)

    def _reported(self, child: Child, ending: str) -> Iterator[Instruction]:
        """Tell the broker why a worker that it wants did not start: a change of configuration may wait for it."""
        wanted = child.partition and self._wanted.get(child.partition) == child.epoch
        given_up = child.phase is Phase.KILLED and child.cause in (Cause.FAILED, Cause.SLOW)
        if wanted and (child.phase is Phase.STARTING or given_up):
            reason = child.complaint or ending
            cannot_start = child.cause is Cause.FAILED
            yield Report(child.partition, child.epoch, reason[:WORKER_REASON_CHARS_MAX], cannot_start)

    def _keep(self, child: Child) -> None:
        """Let it be known under its title, which a spare worker with a partition was not while it ran."""
        child.name = child.title
        self._children[child.name] = child

    def _lose_patience(self, child: Child) -> Iterator[Instruction]:
        if child.phase is Phase.STARTING:
            child.cause = child.cause if child.complaint else Cause.SLOW
            child.complaint = child.complaint or f"not ready after {START_MAX_S:.0f} s"
        elif child.phase is Phase.READY:
            child.complaint, child.cause = f"silent for {self._patience_s(child):g} s", Cause.SILENT
        reason = child.complaint or f"still running {_stop_max_s(child):.0f} s after it was asked to stop"
        yield Note("warning", f"{child.title}: {reason}: killing it")
        yield from self._kill(child)

    def _kill(self, child: Child) -> Iterator[Instruction]:
        if child.phase is not Phase.PAUSED:
            child.phase, child.due = Phase.KILLED, NEVER
            yield Kill(child.name)

    # Coming closer to the goal

    def _settle(self, now: float) -> Iterator[Instruction]:
        if self._goal is Goal.END:
            yield from self._shrink(now)
        else:
            yield from self._align_workers(now)
            yield from self._forget_ended()
            yield from self._grow(now)

    def _shrink(self, now: float) -> Iterator[Instruction]:
        """Stop one role after the other, and end once all are gone."""
        self._turn_at = NEVER
        self._children = {name: child for name, child in self._children.items() if child.phase is not Phase.PAUSED}
        for role in STOP_ORDER:
            last = [child for child in self._children.values() if child.role == role]
            for child in last:
                if child.alive:
                    yield from self._terminate(child, now)
            if last:
                return
        self.status = self._outcome

    def _align_workers(self, now: float) -> Iterator[Instruction]:
        """Let go of workers that are not wanted any more, or only with another epoch."""
        workers = [child for child in self._children.values() if child.partition]
        held = {(child.partition, child.epoch) for child in workers}
        for child in workers:
            epoch = self._wanted.get(child.partition)
            if epoch == child.epoch:
                continue
            if child.phase is Phase.PAUSED:
                del self._children[child.name]
                if epoch is not None and (child.partition, epoch) not in held:
                    child.epoch = epoch  # its pause stays: a worker that cannot live gets no quicker with new epochs
                    self._keep(child)
            elif epoch is not None and child.phase is not Phase.KILLED:
                yield from self._kill(child)
            elif child.alive:
                yield from self._terminate(child, now)

    def _forget_ended(self) -> Iterator[Instruction]:
        """Once its last worker is gone nothing of a partition that has ended is needed."""
        running = {child.partition for child in self._children.values()}
        for partition in [name for name in self._ended if name in self._wanted or name not in running]:
            del self._ended[partition]
            if partition not in self._wanted:
                yield Forget(partition)

    def _grow(self, now: float) -> Iterator[Instruction]:
        """Start what is missing and may start now."""
        if self._broker.phase is Phase.READY:
            for role in self._front_ends:
                self._children.setdefault(role, Child(role, role, due=now))
        self._add_workers(now)
        for child in [child for child in self._children.values() if child.phase is Phase.PAUSED and child.due <= now]:
            if child.role != WORKER:
                yield from self._begin(child, now)
        yield from self._take_turns(now)
        if self._announced:  # not before, as everything else is waited for
            self._recruit(now)
            yield from self._take_turns(now)

    def _take_turns(self, now: float) -> Iterator[Instruction]:
        """Start as many of the workers that are due as may start now. An RM of which fewer are starting comes first, so
        that one with hundreds of partitions holds up itself only; then partitions that were served before.
        """
        workers = [child for child in self._children.values() if child.role == WORKER]
        waiting = [child for child in workers if child.phase is Phase.PAUSED and child.due <= now]
        starting = [child for child in workers if child.phase is Phase.STARTING and now < child.since + TURN_MAX_S]
        since = [child.since for child in starting]
        counts = Counter(self._managers.get(child.partition, "") for child in starting)
        while waiting and len(since) < self._plan.starts_max:
            child = min(waiting, key=lambda one: self._turn(one, counts))
            waiting.remove(child)
            since.append(now)
            counts[self._managers.get(child.partition, "")] += 1
            yield from self._begin(child, now)
        for child in waiting:
            child.queued = True
        self._turn_at = min(since) + TURN_MAX_S if waiting else NEVER

    def _turn(self, child: Child, starting: Counter[str]) -> tuple[bool, int, bool, float]:
        """What is less comes first; `starting` counts workers by RM."""
        manager = self._managers.get(child.partition, "")
        return child.spare, starting[manager], child.partition not in self._served, child.due

    def _add_workers(self, now: float) -> None:
        """Have a worker for each partition that is wanted, under the lease that counts."""
        held = {(child.partition, child.epoch) for child in self._children.values()}
        restarts = {child.partition: child.restarts for child in self._children.values()}
        for partition, epoch in self._wanted.items():
            if (partition, epoch) not in held:
                name, pauses = worker_title(partition, epoch), restarts.get(partition) or Restarts()
                self._children[name] = Child(name, WORKER, due=now, partition=partition, epoch=epoch, restarts=pauses)

    def _begin(self, child: Child, now: float) -> Iterator[Instruction]:
        """Start a process, or let a spare one be it."""
        spares = [one for one in self._children.values() if one.spare and one.phase is Phase.READY]
        spare = max(spares, key=lambda one: one.due, default=None)  # the one that was heard last: it is not stopped
        if child.partition and spare is not None:
            del self._children[child.name]
            spare.partition, spare.epoch, spare.restarts = child.partition, child.epoch, child.restarts
            yield Note("info", f"{spare.name} becomes {spare.title}")
            yield Assign(spare.name, spare.partition, spare.epoch)
            child = spare
        else:
            yield Start(child.name, child.role, self._arguments(child))
        child.phase, child.since, child.due, child.queued = Phase.STARTING, now, now + START_MAX_S, False

    def _recruit(self, now: float) -> None:
        """Have as many spare workers as are missing wait for their turn. One that died is not missing: it pauses."""
        for _ in range(self._plan.spares - sum(child.spare for child in self._children.values())):
            self._spares_started += 1
            child = Child(f"{WORKER} spare-{self._spares_started}", WORKER, due=now)
            self._children[child.name] = child

    def _terminate(self, child: Child, now: float) -> Iterator[Instruction]:
        child.phase, child.due = Phase.LEAVING, now + _stop_max_s(child)
        yield Terminate(child.name)

    def _arguments(self, child: Child) -> tuple[str, ...]:
        broker, at = ("--broker", self._plan.broker), self._endpoints
        match child.role:
            case "broker":
                own: tuple[str, ...] = ("--listen", self._plan.broker)
            case "rmproxy":
                own = (*broker, "--native", at["native"], "--grpc", at["grpc"])
            case "webservice":
                own = (*broker, "--rest", at["rest"].rpartition("/")[2])
            case _ if child.spare:
                own = (*broker, "--spare")
            case _:  # the partition's name is anyone's choice and may begin with a dash
                own = (*broker, f"--partition={child.partition}", "--epoch", str(child.epoch))
        return (*own, *self._plan.arguments.get(child.role, ()), "--log-level", self._plan.log_level)


def _stop_max_s(child: Child) -> float:
    return WORKER_STOP_MAX_S if child.partition else STOP_MAX_S
