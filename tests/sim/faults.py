"""What goes wrong, and when: seeded, and another mixture for each seed (swarm testing: with few faults at a time each
one gets deeper).

Deaths happen in the middle of what a process says because of a message; everything else at moments of its own. `heal`
ends it all. Not here: what a fault does to whom (`world.py`).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tests.sim.database import Database
from tests.sim.process import Process
from yunishard.common.messages.rm_messages import AllocationRequest, ApplicationRequest
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body
from yunishard.partition_worker.partition_host import identify_message
from yunishard.partition_worker.worker import Worker

if TYPE_CHECKING:
    from tests.sim.world import World

DEATHS: Final = ("worker dies", "broker dies", "proxy dies", "web service dies", "supervisor dies", "RM dies")
KINDS: Final = (
    *DEATHS,
    "process stands still",
    "worker loses its lease",
    "RM is cut off",
    "link is clogged",
    "RM is slow",
    "disk is full",
    "disk is slow",
    "core is stopped in order",
    "record is full",
    "record is late",
    "record is lost",
    "journal is damaged",
    "journal is lost",
    "journal goes back",
    "record goes back",
    "snapshot is taken",
    "command is poison",
)
"""Every fault that there is on one machine with files."""

CLUSTER_KINDS: Final = (
    *DEATHS,
    "process stands still",
    "worker loses its lease",
    "RM is cut off",
    "link is clogged",
    "RM is slow",
    "core is stopped in order",
    "snapshot is taken",
    "command is poison",
    "database is full",
    "database is slow",
    "database hangs",
    "database fails over",
    "database connections break",
    "database clock jumps",
    "host crashes",
    "hosts are cut off from each other",
    "host is cut off from the database",
)
"""Every fault with a database."""

HOSTS: Final = (1, 2, 3, 3)
"""How many hosts there are with a database."""

_ROLES: Final = {
    "partition_worker": "worker dies",
    "broker": "broker dies",
    "rmproxy": "proxy dies",
    "webservice": "web service dies",
    "supervisor": "supervisor dies",
    "rm": "RM dies",
}

DEATHS_PER_CHANGE: Final = 0.15
"""Of the workers that may die: the share of those that answer a change by an operator, which must outlast that."""

OFTEN: Final = 0.02
"""Of the processes that may die: the share that dies after a message in the worlds of `often`."""

STILL_MAX_S: Final = 4.0
HANGS_MAX_S: Final = 5.0
CUT_MAX_S: Final = 12.0
"""How long hosts are cut off: less than a connection needs to break, or longer than a lease."""

LEASE_LOST_S: Final = 9.0
"""How long a worker stands still that is to lose its lease."""


@dataclass(frozen=True, slots=True)
class Options:
    """The mixture of one seed."""

    kinds: tuple[str, ...]
    deaths_per_message: float
    """Of the processes that may die."""
    pause_s: float
    """Between two faults that are not deaths, on the average."""
    rms: int
    spares: int
    act_max_s: float
    resolver: str
    predicates: bool
    watched: bool
    """Whether the core has a file of queues, which some RMs follow."""
    hosts: int = 1
    calm: bool = False
    """Whether nobody changes configurations or ends sessions."""

    @classmethod
    def chosen(cls, rng: random.Random, kinds: tuple[str, ...]) -> "Options":
        count = rng.choice((0, 2, 4, 7, len(kinds)))
        return cls(
            kinds=tuple(kind for kind in kinds if kind in rng.sample(kinds, count)),
            deaths_per_message=rng.choice((0.0005, 0.002, 0.005)),
            pause_s=rng.choice((0.4, 1.0, 2.0)),
            rms=rng.choice((2, 2, 3, 4)),
            spares=rng.choice((0, 0, 1, 2)),
            act_max_s=rng.choice((0.2, 0.5)),
            resolver=rng.choice(("", "", "os")),
            predicates=rng.random() < 0.3,
            watched=rng.random() < 0.4,
            hosts=rng.choice(HOSTS) if kinds is CLUSTER_KINDS else 1,
        )


Traits = Mapping[str, object]
"""Fields of the options that the seed does not choose."""

ANY: Final[Traits] = MappingProxyType({})
"""The seed chooses all."""


def often(*kinds: str, **others: object) -> Traits:
    """The traits of worlds in which these faults happen often, and no others."""
    return {"kinds": kinds, "deaths_per_message": OFTEN, "pause_s": 0.4, **others}


@dataclass
class Faults:
    """The faults of one world."""

    world: "World"
    options: Options
    rng: random.Random
    on: bool = True
    injected: dict[str, int] = field(default_factory=dict)
    poison_wanted: bool = False
    """Whether the next command that adds something new to a partition is to end every worker that handles it."""

    def begin(self) -> None:
        """From now on."""
        self._plan()

    def dies_after(self, process: Process, sends: list[Outgoing]) -> int | None:
        """After how many of these messages a process dies; None if it lives."""
        kind = _ROLES[process.role]
        if not self.on or kind not in self.options.kinds:
            return None
        answers = any(one.header.kind == "Answer" and self.world.changes.is_open(one.header.ref) for one in sends)
        if self.rng.random() >= (DEATHS_PER_CHANGE if answers else self.options.deaths_per_message):
            return None
        self.count(kind)
        return self.rng.randint(0, len(sends))

    def count(self, kind: str) -> None:
        self.injected[kind] = self.injected.get(kind, 0) + 1

    def choose_poison(self, worker: Worker, incoming: Incoming) -> None:
        """Before a worker handles a message: let this one be poison, if one is wanted and this one may be. Only what
        adds something is chosen, as the RM hears of each item that it is rejected; what ends something would be lost.
        """
        if not (self.on and self.poison_wanted and incoming.header.seq and _only_adds(worker, incoming)):
            return
        self.poison_wanted = False
        self.count("command is poison")
        self.world.disk.deadly.add(identify_message(incoming.header.kind, incoming.body))
        self.world.story.note(worker.name, f"command {incoming.header.seq} is poison")

    def heal(self) -> None:
        """No more of it."""
        self.on = False

    def _plan(self) -> None:
        self.world.timeline.after(self.rng.expovariate(1 / self.options.pause_s), self._happen)

    def _happen(self) -> None:
        if not self.on:
            return
        others = [kind for kind in self.options.kinds if kind not in DEATHS]
        if others:
            kind = self.rng.choice(others)
            if self._inject(kind):
                self.count(kind)
        self._plan()

    def _inject(self, kind: str) -> bool:
        """Let it happen; whether it could."""
        world, rng = self.world, self.rng
        match kind:
            case "process stands still":
                return self._still(list(world.processes), rng.uniform(0.1, STILL_MAX_S))
            case "worker loses its lease":
                return self._still(world.workers(), LEASE_LOST_S)
            case "RM is cut off":
                return world.cut_off()
            case "link is clogged":
                connections = world.network.connections
                for connection in rng.sample(connections, min(len(connections), rng.randint(1, 3))):
                    world.network.clog(connection, rng.uniform(0.05, 2.0))
                return bool(connections)
            case "RM is slow":
                rm = rng.choice(list(world.rms.values()))
                rm.slow_until = max(rm.slow_until, world.now + rng.uniform(0.2, 3.0))
                return True
            case "journal is damaged" | "journal is lost":
                return self._spoil(kind)
            case "journal goes back":
                return self._goes_back()
            case "record goes back":
                return world.record_goes_back(with_journals=rng.random() < 0.5)
            case "snapshot is taken":
                return world.take_snapshot()
            case "command is poison":
                self.poison_wanted = True
                return False  # it counts once there is one
            case "record is lost":
                return world.lose_record()
            case "core is stopped in order":
                return world.stop_in_order()
            case "host crashes":
                return world.crash_host(rng.choice(list(world.hosts.values())))
            case "hosts are cut off from each other" | "host is cut off from the database":
                return self._cut(kind, rng.uniform(0.2, CUT_MAX_S))
        return self._disk(kind) if world.database is None else self._database(world.database, kind)

    def _still(self, processes: list[Process], seconds: float) -> bool:
        chosen = [one for one in processes if one.alive and not one.stopped and one.machine is not None]
        if not chosen:
            return False
        process = self.rng.choice(chosen)
        self.world.note(process, "stands still", f"for {seconds:.2f} s")
        process.stop()
        self.world.timeline.after(seconds, process.go_on)
        return True

    def _spoil(self, kind: str) -> bool:
        """A journal is hit, and whoever has it open dies, so that somebody reads it."""
        world = self.world
        workers = [one for one in world.workers() if one.alive and one.machine is not None]
        if not workers:
            return False
        process = self.rng.choice(workers)
        partition = world.partition_of(process)
        for one in workers:
            if world.partition_of(one) == partition:
                world.kill(one, kind)
        file = world.disk.journal(partition)
        if kind == "journal is lost":
            file.clear()
        elif not file.flip(self.rng):
            return False
        world.auditor.damaged(partition)
        return True

    def _goes_back(self) -> bool:
        """A journal is replaced by an earlier copy while nobody has it open: its worker has died, or the broker too, or
        all processes.
        """
        world, rng = self.world, self.rng
        partitions = [name for name, file in world.disk.journals.items() if file.copies or file.before]
        if not partitions:
            return False
        how = rng.choice(("worker", "broker", "everything"))
        if how == "everything" and not world.kill_all("its journals go back"):
            return False
        if how == "broker":
            world.kill_role("broker", "a journal goes back")
        chosen = partitions if how == "everything" and rng.random() < 0.5 else [rng.choice(partitions)]
        for partition in chosen:
            world.journal_goes_back(partition)
        return True

    def _cut(self, kind: str, seconds: float) -> bool:
        """A cut in one direction, or in both."""
        world, rng, names = self.world, self.rng, list(self.world.hosts)
        assert world.database is not None
        if kind == "host is cut off from the database":
            host = rng.choice(names)
            for sends in rng.choice(((True,), (False,), (True, False))):
                world.story.note(host, f"{'sends nothing to' if sends else 'hears nothing from'} the database")
                world.database.block(host, sends=sends)
                world.timeline.after(seconds, partial(world.database.unblock, host, sends=sends))
            return True
        if len(names) == 1:
            return False
        here, there = rng.sample(names, 2)
        for source, target in rng.choice((((here, there),), ((here, there), (there, here)))):
            world.story.note(source, f"nothing from {source} reaches {target} for {seconds:.1f} s")
            world.network.block(source, target)
            world.timeline.after(seconds, partial(world.network.unblock, source, target))
        return True

    def _database(self, database: Database, kind: str) -> bool:
        self.world.story.note("database", kind)
        match kind:
            case "database fails over":
                return database.crash()
            case "database connections break":
                database.break_connections()
                return True
            case "database clock jumps":
                database.jump()
                return True
        name = kind.rpartition(" ")[2]
        setattr(database, "hung" if name == "hangs" else name, True)
        end = database.go_on if name == "hangs" else partial(setattr, database, name, False)
        self.world.timeline.after(self.rng.uniform(0.2, HANGS_MAX_S), end)
        return True

    def _disk(self, kind: str) -> bool:
        target, name = {
            "disk is full": (self.world.disk, "full"),
            "disk is slow": (self.world.disk, "slow"),
            "record is full": (self.world.record, "full"),
            "record is late": (self.world.record, "late"),
        }[kind]
        setattr(target, name, True)
        self.world.story.note("disk", kind)
        self.world.timeline.after(self.rng.uniform(0.2, 3.0), partial(setattr, target, name, False))
        return True


def _only_adds(worker: Worker, incoming: Incoming) -> bool:
    partition, lane, header = worker.partition, worker.host.channel, incoming.header
    if partition is None or partition.report is not None:
        return False
    if (header.session, header.life, header.seq) != (lane.session, lane.life, lane.received + 1):
        return False
    match incoming.header.kind:
        case "AllocationRequest":
            asked = decode_body(AllocationRequest, incoming.body)
            known = partition.allocations
            new = all(not one.node_id and known.get(one.allocation_key) is None for one in asked.allocations)
            return bool(asked.allocations) and new and not asked.releases.allocations_to_release
        case "ApplicationRequest":
            submitted = decode_body(ApplicationRequest, incoming.body)
            new = all(one.application_id not in partition.applications for one in submitted.new)
            return bool(submitted.new) and new and not submitted.remove
    return False
