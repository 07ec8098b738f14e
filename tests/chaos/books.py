"""What one resource manager of the chaos asked for and was told: its own books, and nobody else's word.

Pure: nothing is sent here, and nothing waited for.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from yunishard.common.messages.rm_messages import PLACEHOLDER_REPLACED, Allocation, AllocationRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One ask, made of one job of the log."""

    key: str
    application: str
    partition: str
    vcore: int
    run_s: float
    """How long it runs once it has a node; 0 for until the end."""

    task_group: str = ""
    placeholder: bool = False


@dataclass(slots=True)
class Books:
    """Every ask is in `asked`, and in exactly one of: waiting, `running`, `ended`."""

    asked: dict[str, Ask] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)
    """The node of what runs."""
    leaving: set[str] = field(default_factory=set)
    """What runs and was released, until the core has confirmed that."""
    ended: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)
    """What must never happen, and did."""

    def asks(self, ask: Ask) -> None:
        assert ask.key not in self.asked, ask
        self.asked[ask.key] = ask

    def granted(self, partition: str, allocation: Allocation) -> Ask | None:
        """The core says that this ask has a node; the ask, if that was to be expected."""
        key = allocation.allocation_key
        ask = self.asked.get(key)
        if ask is None:
            self.complaints.append(f"{key} was never asked for and got {allocation.node_id}")
        elif key in self.running or key in self.ended:
            self.complaints.append(f"{key} was allocated a second time, on {allocation.node_id}")
        elif partition != ask.partition or allocation.application_id != ask.application:
            self.complaints.append(f"{key} came from {partition} for {allocation.application_id}, it is {ask}")
        else:
            self.running[key] = allocation.node_id
            return ask
        return None

    def released(self, release: AllocationRelease) -> None:
        """The core says that this runs no longer."""
        key = release.allocation_key
        if self.is_replaced(release):
            del self.running[key]
            self.ended.add(key)
            return
        if key not in self.leaving:
            self.complaints.append(f"{key} was released unasked: {release.message}")
            return
        self.leaving.discard(key)
        del self.running[key]
        self.ended.add(key)

    def is_replaced(self, release: AllocationRelease) -> bool:
        """Whether this is a placeholder that runs, and that an ask is to replace."""
        key = release.allocation_key
        is_placeholder = key in self.running and self.asked[key].placeholder
        return is_placeholder and release.termination_type == PLACEHOLDER_REPLACED

    @property
    def waiting(self) -> int:
        """How many asks have no node yet."""
        return len(self.asked) - len(self.running) - len(self.ended)

    @property
    def quiet(self) -> bool:
        """Whether nothing waits, and only that runs which stays."""
        return not self.waiting and not self.leaving and not any(self.asked[key].run_s for key in self.running)

    def sums(self) -> Counter[tuple[str, str]]:
        """What runs: vcores by partition and application."""
        found: Counter[tuple[str, str]] = Counter()
        for key in self.running:
            ask = self.asked[key]
            found[ask.partition, ask.application] += ask.vcore
        return found

    def counts(self) -> Iterator[str]:
        """For people."""
        yield f"{len(self.asked):,} asked, {len(self.running) + len(self.ended):,} allocated, {len(self.ended):,} ended"
