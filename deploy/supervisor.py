"""Which processes should run, and what to do when one is ready, fails, or dies: the machine behind `yunishard up`.

It keeps one goal and comes closer to it with every event:

    RUN      the broker, then rmproxy and webservice, then a worker for each partition that the broker wants
    REBUILD  the broker died, and with it what it knew: stop the others in order, then RUN again; RMs register anew
    END      stop everything in order; the status says why

Until the first `ready`, a failure of broker, rmproxy or webservice means that the system cannot start: END, status 2.
After it, what dies starts again after a pause (`restarts.py`), for ever. A worker is always started again with the
same partition and epoch: the broker hears its Hello and decides what that means. All ports stay the ones that were
bound first.

Not here: clocks, processes, sockets, signals (`processes.py` and `service.py` do what the instructions say).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from common.machine import NEVER
from common.messages import WorkersWanted
from deploy.restarts import Restarts

START_MAX_S: Final = 30.0
"""A process that is not ready by then is killed."""

STOP_MAX_S: Final = 5.0
"""How long a process may take to stop when asked; then it is killed."""

BROKER: Final = "broker"
RMPROXY: Final = "rmproxy"
WEBSERVICE: Final = "webservice"
WORKER: Final = "partition_worker"
STOP_ORDER: Final = (WEBSERVICE, RMPROXY, WORKER, BROKER)

STOPPED: Final = 0
CANNOT_START: Final = 2
HASTENED: Final = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the processes are started with. Ports may be 0 until they are first bound."""

    broker: str
    native: str
    grpc: str
    rest: str
    log_level: str
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Role to what its processes are told besides addresses and the like."""


# Events ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """A process opened everything, at these endpoints."""

    name: str
    endpoints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """A process says why it cannot run; its death follows."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Died:
    """A process is gone; `ending` says how, as in `exit status 1` or `SIGKILL`."""

    name: str
    ending: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Someone wants the system to stop; said a second time, at once."""


Event = Ready | Failed | Died | Leave | WorkersWanted

# Instructions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process of this role; it is gone now."""

    name: str
    role: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask a process to stop."""

    name: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End a process at once."""

    name: str


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the broker, which is there now, and say Hello."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Drop the connection to the broker."""


@dataclass(frozen=True, slots=True)
class Announce:
    """A line for whoever started the system."""

    line: str


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log."""

    level: str
    text: str


Instruction = Start | Terminate | Kill | Connect | Disconnect | Announce | Note

# The machine ----------------------------------------------------------------------------------------------------------


class Goal(Enum):
    """What the supervisor works towards."""

    RUN = "run"
    REBUILD = "rebuild"
    END = "end"


class Phase(Enum):
    """Where a process is in its life; `due` is the time that belongs to it."""

    PAUSED = "paused"  # not running; starts when due
    STARTING = "starting"  # must be ready when due
    READY = "ready"
    LEAVING = "leaving"  # asked to stop; killed when due
    KILLED = "killed"


@dataclass(slots=True)
class Child:
    """One process that should run, or is still on its way out."""

    name: str
    role: str
    due: float
    partition: str = ""
    epoch: int = 0
    phase: Phase = Phase.PAUSED
    since: float = 0.0
    """When it was last started."""
    complaint: str = ""
    """Why it cannot run, if it said so or was too slow; empty otherwise."""
    restarts: Restarts = field(default_factory=Restarts)

    @property
    def alive(self) -> bool:
        """Whether it runs and was not asked to stop."""
        return self.phase in (Phase.STARTING, Phase.READY)


class Supervisor:
    """Takes events and the time, gives instructions. `status` is None until everything is gone."""

    def __init__(self, plan: Plan) -> None:
        self.status: int | None = None
        self.failure = ""
        """Why the system could not start, in one line; empty if it did."""
        self._plan = plan
        self._endpoints = {"native": plan.native, "grpc": plan.grpc, "rest": plan.rest}
        self._goal = Goal.RUN
        self._outcome = STOPPED
        self._announced = False
        self._wanted: dict[str, int] = {}
        self._broker = Child(BROKER, BROKER, due=0.0)
        self._children: dict[str, Child] = {BROKER: self._broker}

    @property
    def deadline(self) -> float:
        """When it wants `tick`, or NEVER."""
        return min((child.due for child in self._children.values()), default=NEVER)

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take one event; what to do because of it."""
        return [*self._take(event, now), *self._settle(now)]

    def tick(self, now: float) -> list[Instruction]:
        """Do what is due; called to begin with, and once `deadline` has passed."""
        late = [child for child in self._children.values() if child.due <= now and child.phase is not Phase.PAUSED]
        return [*(step for child in late for step in self._lose_patience(child)), *self._settle(now)]

    # Events

    def _take(self, event: Event, now: float) -> Iterator[Instruction]:
        match event:
            case Ready():
                yield from self._ready(self._children[event.name], event.endpoints)
            case Failed():
                self._children[event.name].complaint = event.reason
            case Died():
                yield from self._died(self._children.pop(event.name), event.ending, now)
            case WorkersWanted():
                self._wanted = dict(event.partitions)
            case Leave() if self._goal is Goal.END:
                self._outcome = self._outcome or HASTENED
                for child in self._children.values():
                    yield from self._kill(child)
            case Leave():
                yield Note("info", "stopping")
                self._goal = Goal.END

    def _ready(self, child: Child, endpoints: Mapping[str, str]) -> Iterator[Instruction]:
        if child.phase is not Phase.STARTING:
            return
        child.phase, child.due = Phase.READY, NEVER
        self._endpoints.update((name, endpoints[name]) for name in self._endpoints if name in endpoints)
        yield Note("debug", f"{child.name} is ready")
        if child is self._broker:
            self._wanted = {}  # until it says so itself
            yield Connect()
        fronts = (self._children.get(role) for role in (RMPROXY, WEBSERVICE))
        if not self._announced and all(front and front.phase is Phase.READY for front in fronts):
            self._announced = True
            for name, address in self._endpoints.items():
                yield Announce(f"{name:<8}{address}")
            yield Announce("ready")

    def _died(self, child: Child, ending: str, now: float) -> Iterator[Instruction]:
        told = f"{child.name} ended after {now - child.since:.1f} s: {ending}"
        unasked = child.alive or child.complaint
        yield Note("warning" if unasked else "info", f"{told} ({child.complaint})" if child.complaint else told)
        if child is self._broker:
            yield Disconnect()
        if self._goal is not Goal.RUN or not unasked:
            return
        if not self._announced and child.role != WORKER:
            self._goal, self._outcome = Goal.END, CANNOT_START
            self.failure = f"{child.name} cannot start: {child.complaint or ending}"
            return
        child.phase, child.complaint = Phase.PAUSED, ""
        child.due = now + child.restarts.pause(now - child.since)
        yield Note("info", f"{child.name} starts again in {child.due - now:.1f} s")
        if child is self._broker:
            self._goal = Goal.REBUILD
        else:
            self._children[child.name] = child

    def _lose_patience(self, child: Child) -> Iterator[Instruction]:
        if child.phase is Phase.STARTING:
            child.complaint = child.complaint or f"not ready after {START_MAX_S:.0f} s"
        yield Note("warning", f"{child.name} is too slow ({child.phase.value}): killing it")
        yield from self._kill(child)

    def _kill(self, child: Child) -> Iterator[Instruction]:
        if child.phase is not Phase.PAUSED:
            child.phase, child.due = Phase.KILLED, NEVER
            yield Kill(child.name)

    # Coming closer to the goal

    def _settle(self, now: float) -> Iterator[Instruction]:
        if self._goal is not Goal.RUN:
            yield from self._shrink(now)
        if self._goal is Goal.RUN:
            yield from self._align_workers(now)
            yield from self._grow(now)

    def _shrink(self, now: float) -> Iterator[Instruction]:
        """Stop one role after the other; once all are gone, begin again or end."""
        self._children = {name: child for name, child in self._children.items() if child.phase is not Phase.PAUSED}
        for role in STOP_ORDER:
            last = [child for child in self._children.values() if child.role == role]
            for child in last:
                if child.alive:
                    yield from self._terminate(child, now)
            if last:
                return
        if self._goal is Goal.END:
            self.status = self._outcome
        else:
            self._goal = Goal.RUN
            self._children[BROKER] = self._broker

    def _align_workers(self, now: float) -> Iterator[Instruction]:
        """Let go of workers that are not wanted any more, or only with another epoch."""
        for child in [child for child in self._children.values() if child.role == WORKER]:
            epoch = self._wanted.get(child.partition)
            if child.phase is Phase.PAUSED and epoch is None:
                del self._children[child.name]
            elif child.phase is Phase.PAUSED and epoch is not None:
                child.epoch = epoch  # its pause stays: a worker that cannot live gets no quicker with new epochs
            elif child.alive and epoch != child.epoch:
                yield from self._terminate(child, now)

    def _grow(self, now: float) -> Iterator[Instruction]:
        """Start what is missing and may start now."""
        if self._broker.phase is Phase.READY:
            for role in (RMPROXY, WEBSERVICE):
                self._children.setdefault(role, Child(role, role, due=now))
            for partition, epoch in self._wanted.items():
                name = f"{WORKER} {partition}"
                self._children.setdefault(name, Child(name, WORKER, due=now, partition=partition, epoch=epoch))
        for child in self._children.values():
            if child.phase is Phase.PAUSED and child.due <= now:
                child.phase, child.since, child.due = Phase.STARTING, now, now + START_MAX_S
                yield Start(child.name, child.role, self._arguments(child))

    def _terminate(self, child: Child, now: float) -> Iterator[Instruction]:
        child.phase, child.due = Phase.LEAVING, now + STOP_MAX_S
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
            case _:  # the partition's name is anyone's choice and may begin with a dash
                own = (*broker, f"--partition={child.partition}", "--epoch", str(child.epoch))
        return (*own, *self._plan.arguments.get(child.role, ()), "--log-level", self._plan.log_level)
