"""Who lives where: the RMs with what they registered, and the workers of their partitions.

Not here: how an RM or worker gets on the roster (`switch.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from common.config.model import PartitionConfig
from common.messages import PartitionEntry
from common.names import RM_ID, external, normalised


@dataclass(slots=True)
class Registration:
    """One RM's current session."""

    rm: str
    session: str
    proxy: str
    """The peer through which it speaks."""
    configs: Mapping[str, PartitionConfig]
    """By normalised partition name."""
    build_info: dict[str, str]
    call: bytes
    """The body of the call that registered it: the same call again in the same session changes nothing."""
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
    lives: dict[str, int] = field(default_factory=dict)
    """Partition to how often it has begun anew in this session; those left out never have."""


@dataclass(slots=True)
class Seat:
    """The place of one partition's worker."""

    epoch: int
    """Of its lease; messages that carry another come from a worker that no longer counts."""
    present: bool = False
    """Whether a worker under this lease has said hello."""
    committed: bool = False
    """Whether it runs what its RM registered."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """A partition that is no longer configured, while its worker tells the RM what became of everything."""

    rm: str
    session: str
    deadline: float
    """When its worker has to go, whether or not the RM has heard everything."""


class Roster:
    """Registrations by RM id, seats by partition."""

    def __init__(self) -> None:
        self.registrations: dict[str, Registration] = {}
        self.seats: dict[str, Seat] = {}
        self.leaving: dict[str, Leaving] = {}
        """By partition; each has a seat, and no registration has it."""
        self._epochs = 0

    def registration(self, rm: str, session: str) -> Registration | None:
        """The registration of an RM, if this is its current session."""
        found = self.registrations.get(rm)
        return found if found is not None and found.session == session else None

    def owner(self, partition: str) -> Registration | None:
        """The RM that a partition belongs to."""
        return next((one for one in self.registrations.values() if partition in one.configs), None)

    def seat(self, partition: str) -> Seat:
        """The partition's seat, with a new lease if it has none."""
        if partition not in self.seats:
            self._epochs += 1
            self.seats[partition] = Seat(self._epochs)
        return self.seats[partition]

    def vacate(self, partition: str) -> None:
        """The partition is gone, its worker is not wanted any more."""
        self.seats.pop(partition, None)
        self.leaving.pop(partition, None)

    def leases(self) -> dict[str, int]:
        """The epoch of every seat: the workers that are wanted."""
        return {partition: seat.epoch for partition, seat in self.seats.items()}

    def entries(self) -> Iterator[PartitionEntry]:
        """Every registered partition, by RM in order of registration."""
        for one in self.registrations.values():
            for full_name in one.configs:
                yield PartitionEntry(full_name=full_name, name=external(one.rm, full_name), rm_id=one.rm)

    def name_problem(self, rm: str, partitions: list[str], claims: Iterable[Registration]) -> str:
        """Why an RM cannot have partitions of these plain names, or empty if it can. Each may be one (`naming.py`).

        `claims` are registrations under way: what they ask for is as good as taken.
        """
        if not rm:
            return "partition cannot be created without name or RM, one is not set"
        if not RM_ID.fullmatch(rm):
            return f"RM id {rm!r} must be 1 to 64 letters, digits and '_', '.', ':', '-'"
        for name in partitions:
            if name.startswith(f"{rm}_"):
                return f"partition name {name!r} must not begin with the RM's own prefix {rm + '_'!r}"
            full_name = normalised(rm, name)
            for other in (*self.registrations.values(), *claims):
                if other.rm != rm and full_name in other.configs:
                    return (
                        f"partition {name!r} of RM {rm!r} would be {full_name!r}, "
                        f"which is partition {external(other.rm, full_name)!r} of RM {other.rm!r}"
                    )
        return ""
