"""Who lives where: the RMs with what they registered, and the workers of their partitions.

What must outlive the broker is in frozen values that are replaced as a whole (`put`), and in the epochs of seats; each
replacement is noted in `changed`, so that nothing of it is forgotten when it is made durable. Not here: how an RM or
worker gets on the roster (`switch.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from common.config.model import Configuration, PartitionConfig
from common.names import RM_ID, distinct_name, external, normalised, worker_name
from common.query_messages import PartitionEntry

NUMBERS_PER_INCARNATION: Final = 2**20
"""Epochs and numbers of roll-outs begin anew above all earlier ones when the broker does. An incarnation is the second
in which it began, or later, and no broker gives so many leases in a second that they reach into the next.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One RM's current session."""

    rm: str
    session: str
    proxy: str = ""
    """The peer through which it speaks; empty until it does, after the broker began anew. Not durable."""
    configs: Mapping[str, PartitionConfig]
    """By full name."""
    build_info: dict[str, str]
    call: str
    """Hash of the body of the call that registered it: the same call again in the same session changes nothing."""
    registered_ns: int = 0
    """When, in Unix nanoseconds."""
    text: str = ""
    """The configuration in force, as it was written."""
    checksum: str = ""
    extra: dict[str, str] = field(default_factory=dict)
    """The RM's settings (`extraConfig`), as they came."""
    capabilities: list[str] = field(default_factory=list)
    """What it can do that not every RM can."""
    follows_core: bool = False
    """Whether it sent no configuration of its own and has what the core offers."""
    passed_over: str = ""
    """Checksum of the core's text that it could not begin with, and so is not offered either."""
    rollout: int = 0
    """Number of the roll-out that brought its configuration: who has not carried it out is told again."""
    lives: Mapping[str, int] = field(default_factory=dict)
    """Its partitions to their lives in this session; those left out are in their first, 0."""
    lives_begun: int = 0
    """The last life that any partition has begun in this session: the next one is above it, so that nothing has to be
    remembered of a partition that went."""
    leaving: Sequence[str] = ()
    """Partitions that are no longer configured, whose workers tell the RM what became of everything."""
    order: int = 0
    """Place of the RM in the order of registration; lower is earlier. It stays the same in later sessions, until the RM
    leaves or its pause timeout ends it."""
    partition_order: Mapping[str, int] = field(default_factory=dict)
    """Places of the partitions that were configured after the RM registered; the others have the RM's place."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """All that have a worker."""
        return (*self.configs, *self.leaving)

    def life(self, partition: str) -> int:
        return self.lives.get(partition, 0)

    def latest_life(self, partition: str) -> int:
        """The highest life in which this partition can have been heard: of one that went, that of any."""
        return self.life(partition) if self.has(partition) else self.lives_begun

    def has(self, partition: str) -> bool:
        return partition in self.configs or partition in self.leaving

    def full_name(self, partition: str) -> str:
        """The full name of the partition that the RM calls so; as it is where the RM has no such partition."""
        if self.has(partition):
            return partition
        distinct = distinct_name(self.rm, partition)
        return distinct if self.has(distinct) else partition

    def place(self, partition: str) -> int:
        """Place of a configured partition in the order of registration."""
        return self.partition_order.get(partition, self.order)

    def ordered(self, before: "Registration | None", order: int) -> "Registration":
        """This registration with its places in the order of registration: the RM and those partitions that it had
        `before` keep theirs, all others get `order`.
        """
        if before is None:
            return replace(self, order=order, partition_order={})
        places = {name: before.place(name) if name in before.configs else order for name in self.configs}
        others = {name: place for name, place in places.items() if place != before.order}
        return replace(self, order=before.order, partition_order=others)


@dataclass(slots=True)
class Seat:
    """The place of one partition's worker."""

    rm: str
    epoch: int
    """Of its lease; a worker of another one is called otherwise and no longer counts."""
    worker: str
    """Its name as a peer."""
    inherited: bool = False
    """Whether the lease is older than the broker: the partition may have begun without its knowledge."""
    present: bool = False
    """Whether a worker under this lease has said hello."""
    begun: bool = False
    """Whether anything was heard of the partition in its present life, so that its RM may know of it."""
    heard: float = 0.0
    """When the worker last said anything, since it is present."""
    problem: str = ""
    """Why its worker cannot start, or run the configuration in force; empty once one with this lease said hello."""
    missed_since: float = 0.0
    """Since when it has been looked out for, while it is not; 0 until somebody does."""


class Roster:
    """Registrations by RM id, seats by partition."""

    def __init__(self, incarnation: int = 0) -> None:
        self.registrations: dict[str, Registration] = {}
        self.seats: dict[str, Seat] = {}
        """Also of partitions whose configuration is only being voted on."""
        self.leaving: dict[str, float] = {}
        """Partitions that are being taken down, to when their workers have to go, whether or not the RM has heard
        everything."""
        self.away: dict[str, float] = {}
        """RM id to since when nothing is heard of it."""
        self.heard: dict[str, float] = {}
        """Proxies, and other peers without a seat that send heartbeats, to when they were last heard."""
        self.changed: dict[str, None] = {}
        """Ids of the RMs of which something is another than when somebody last looked."""
        self.rearranged = False
        """Whether the leases are others than when somebody last looked."""
        self._first_epoch = incarnation * NUMBERS_PER_INCARNATION
        """Leases that this broker gives have later epochs."""
        self._epochs = self._first_epoch
        self._order = 0
        """The last place in the order of registration that was given."""

    def registration(self, rm: str, session: str) -> Registration | None:
        """The registration of an RM, if this is its current session."""
        found = self.registrations.get(rm)
        return found if found is not None and found.session == session else None

    def owner(self, partition: str) -> Registration | None:
        """The RM that has a partition configured."""
        seat = self.seats.get(partition)
        found = self.registrations.get(seat.rm) if seat else None
        return found if found is not None and partition in found.configs else None

    def put(self, registration: Registration, *, leave_by: float = 0.0) -> None:
        """An RM has this from now on; what it had and does not have any more ends. Partitions that now begin to leave
        have until `leave_by`.
        """
        rm = registration.rm
        before = self.registrations.get(rm)
        self.registrations[rm] = registration
        self.changed[rm] = None
        for partition in before.partitions if before is not None else ():
            if not registration.has(partition):
                self.vacate(partition)
        for partition in registration.configs:
            self.seat(rm, partition)
            self.leaving.pop(partition, None)
        for partition in registration.leaving:
            self.seat(rm, partition)
            self.leaving.setdefault(partition, leave_by)

    def remove(self, rm: str) -> None:
        """The RM is gone, and its partitions with it."""
        for partition in self.registrations.pop(rm).partitions:
            self.vacate(partition)
        self.away.pop(rm, None)
        self.changed[rm] = None

    def next_order(self) -> int:
        """A place in the order of registration, after all others."""
        self._order += 1
        return self._order

    def restore(self, registration: Registration, leases: Mapping[str, int], *, leave_by: float) -> None:
        """As it was before the broker began anew. RMs that were recorded by a release without an order of registration
        are restored last, and get their places in the order in which they are restored.
        """
        if not registration.order:
            registration = registration.ordered(None, self.next_order())
        self._order = max(self._order, registration.order, *registration.partition_order.values())
        for partition in registration.partitions:
            epoch = leases.get(partition)
            if epoch is not None:
                name = worker_name(partition, epoch)
                self.seats[partition] = Seat(registration.rm, epoch, name, inherited=True)
        self.put(registration, leave_by=leave_by)

    def seat(self, rm: str, partition: str) -> Seat:
        """The partition's seat, with a new lease if it has none."""
        if partition not in self.seats:
            self._lease(rm, partition)
        return self.seats[partition]

    def renew(self, partition: str) -> None:
        """The worker has lost its lease: another one is to come."""
        before = self.seats[partition]
        self._lease(before.rm, partition)
        after = self.seats[partition]
        after.begun, after.inherited, after.problem = before.begun, before.inherited, before.problem
        self.changed[before.rm] = None

    def renew_restored(self, partition: str) -> bool:
        """Renew a lease that an earlier broker gave; False if this one gave it. A record that was restored from a
        backup may hold an older lease than the partition's journal, which then accepts no worker under it.
        """
        if self.seats[partition].epoch > self._first_epoch:
            return False
        self.renew(partition)
        return True

    def _lease(self, rm: str, partition: str) -> None:
        self._epochs += 1
        self.seats[partition] = Seat(rm, self._epochs, worker_name(partition, self._epochs))
        self.rearranged = True

    def vacate(self, partition: str) -> None:
        """The partition is gone, its worker is not wanted any more."""
        self.seats.pop(partition, None)
        self.leaving.pop(partition, None)
        self.rearranged = True

    def leases(self) -> dict[str, int]:
        """The epoch of every seat: the workers that are wanted."""
        return {partition: seat.epoch for partition, seat in self.seats.items()}

    def extend(self, seconds: float, now: float) -> None:
        """For so long nobody could be heard: that counts for nothing."""
        for seat in self.seats.values():
            seat.heard = min(now, seat.heard + seconds)
        for times in (self.away, self.heard):
            for name in times:
                times[name] = min(now, times[name] + seconds)
        for partition in self.leaving:
            self.leaving[partition] += seconds

    def entries(self) -> Iterator[PartitionEntry]:
        """Every registered partition, in the order of registration; those that came together by name."""
        found = [(one.place(name), name, one) for one in self.registrations.values() for name in one.configs]
        for _, full_name, one in sorted(found, key=lambda entry: entry[:2]):
            yield PartitionEntry(
                full_name=full_name,
                name=external(one.rm, full_name),
                rm_id=one.rm,
                epoch=self.seats[full_name].epoch,
                life=one.life(full_name),
                session=one.session,
                problem=self.seats[full_name].problem,
            )

    def managers(self) -> list[Registration]:
        """Every RM, in the order of registration."""
        return sorted(self.registrations.values(), key=lambda one: one.order)

    def name_problem(self, rm: str, partitions: list[str]) -> str:
        """Why an RM cannot have partitions of these plain names, or empty if it can. Each may be one (`naming.py`)."""
        if not rm:
            return "partition cannot be created without name or RM, one is not set"
        if not RM_ID.fullmatch(rm):
            return f"RM id {rm!r} must be 1 to 64 letters, digits and '_', '.', ':', '-'"
        for name in partitions:
            if name.startswith(f"{rm}_"):
                return f"partition name {name!r} must not begin with the RM's own prefix {rm + '_'!r}"
        return ""

    def full_name(self, rm: str, name: str) -> str:
        """The full name for a partition of an RM: the one that it has, or else the usual one, unless a partition of
        another RM has that, be it one that is leaving or one whose configuration is only being voted on.
        """
        usual, distinct = normalised(rm, name), distinct_name(rm, name)
        if distinct in self.seats:
            return distinct
        return distinct if usual in self.seats and self.seats[usual].rm != rm else usual

    def by_full_name(self, rm: str, configuration: Configuration) -> dict[str, PartitionConfig]:
        """The partitions of an RM's configuration, by the full names that they have or are to get."""
        return {self.full_name(rm, one.name): one for one in configuration.partitions}
