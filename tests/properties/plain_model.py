"""What the plain scheduler knows: asks, applications, queues and nodes, every sum added up again each time.

It shares nothing with the engine but messages. Not here: who gets what (`plain_scheduler.py`), and what an RM's word
does (`plain_updates.py`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from yunishard.common.config.model import QueueConfig, parse_amounts
from yunishard.common.messages.kinds import Resources

NOTHING_PENDING = -(2**31)


def summed(all_of: Iterable[Resources]) -> Resources:
    total: Resources = {}
    for one in all_of:
        for kind, value in one.items():
            total[kind] = total.get(kind, 0) + value
    return total


def fits(room: Resources, wanted: Resources) -> bool:
    return all(value <= max(0, room.get(kind, 0)) for kind, value in wanted.items())


@dataclass(eq=False)
class PlainAsk:
    key: str
    resources: Resources
    priority: int
    created: int
    required: str
    node: str = ""
    app: "PlainApp | None" = None
    forbidden: tuple[str, ...] = ()
    group: str = ""
    placeholder: bool = False
    agreed: bool = False
    """To be preempted."""
    originator: bool = False
    recovered: bool = False
    released: bool = False
    preempted: bool = False
    triggered: bool = False
    """Others were asked to go for it, and their room is kept."""
    triggered_at: float = 0.0
    keeping: bool = False
    """Others passed it over for too long, and its queues keep room for it."""
    partner: "PlainAsk | None" = None
    reserved: str = ""
    """The node that is reserved for it."""
    reserved_at: float = 0.0
    reserved_rank: int = 0
    """Greater than that of every earlier reservation."""
    rank: int = 0
    """Among asks of the application with equal priority and creation time."""

    @property
    def place(self) -> tuple[int, int, int]:
        """Among the asks of its application; smaller is tried first."""
        return -self.priority, self.created, self.rank

    @property
    def has_kept(self) -> bool:
        """Whether its queues keep room for it."""
        return bool(self.reserved) and (self.triggered or self.keeping)

    @property
    def free(self) -> bool:
        """Whether it is a placeholder that may be replaced."""
        return self.placeholder and not self.released and not self.preempted


@dataclass
class PlainGroup:
    least: Resources
    """Of the first placeholder."""
    count: int = 0
    replaced: int = 0
    timed_out: int = 0


@dataclass(eq=False)
class PlainApp:
    name: str
    queue: "PlainQueue"
    submitted: int
    user: str = ""
    groups: list[str] = field(default_factory=list)
    counts: bool = False
    """As running, for user and group."""
    state: str = "New"
    gang: Resources = field(default_factory=dict)
    hard: bool = False
    timeout: float = 900.0
    asks: list[PlainAsk] = field(default_factory=list)
    """In the order in which they are tried."""
    insertions: int = 0
    allocations: list[PlainAsk] = field(default_factory=list)
    """In the order in which they began, placeholders too."""
    swapping: list[PlainAsk] = field(default_factory=list)
    """Real ones with a node, whose placeholder is not confirmed to be gone."""
    task_groups: dict[str, PlainGroup] = field(default_factory=dict)
    completes_at: float | None = None
    times_out_at: float | None = None
    back_off_until: float = 0.0
    reserves_anew_at: float = 0.0
    """When a reservation became too old: then its asks wait for others as if they were new."""

    @property
    def pending(self) -> Resources:
        return summed(ask.resources for ask in self.asks)

    @property
    def allocated(self) -> Resources:
        """By real allocations."""
        return summed(one.resources for one in self.allocations if not one.placeholder)

    @property
    def held(self) -> Resources:
        """By placeholders."""
        return summed(one.resources for one in self.allocations if one.placeholder)

    @property
    def charged(self) -> Resources:
        return summed(one.resources for one in self.allocations)

    @property
    def priority(self) -> int:
        return max((ask.priority for ask in self.asks), default=NOTHING_PENDING)

    def can_replace(self, ask: PlainAsk) -> bool:
        """Whether it waits for a placeholder."""
        group = self.task_groups.get(ask.group)
        if ask.placeholder or group is None:
            return False
        return group.count > group.replaced + group.timed_out

    def insert(self, ask: PlainAsk) -> None:
        """Priority descending, then time ascending; of equals behind them if they are last of all, else before them."""

        self.insertions += 1
        equals = [index for index, one in enumerate(self.asks) if one.place[:2] == ask.place[:2]]
        is_before = bool(equals) and equals[-1] != len(self.asks) - 1
        ask.rank = -self.insertions if is_before else self.insertions
        self.asks = sorted([*self.asks, ask], key=lambda one: one.place)


@dataclass(eq=False)
class PlainQueue:
    path: str
    parent: "PlainQueue | None"
    config: QueueConfig
    children: list["PlainQueue"] = field(default_factory=list)
    apps: list[PlainApp] = field(default_factory=list)
    """In order of arrival."""
    allocating: list[PlainApp] = field(default_factory=list)
    """Of the leaf: those that are Accepted and got something."""

    def path_up(self) -> "Iterator[PlainQueue]":
        yield self
        if self.parent is not None:
            yield from self.parent.path_up()

    def leaves(self) -> "list[PlainQueue]":
        return [leaf for child in self.children for leaf in child.leaves()] if self.children else [self]

    def all_apps(self) -> list[PlainApp]:
        return [app for leaf in self.leaves() for app in leaf.apps]

    @property
    def allocated(self) -> Resources:
        return summed(app.charged for app in self.all_apps())

    @property
    def pending(self) -> Resources:
        return summed(app.pending for app in self.all_apps())

    @property
    def kept(self) -> Resources:
        """What others were asked to leave for asks below; those who wait for it are the only ones that get it."""
        return summed(ask.resources for app in self.all_apps() for ask in app.asks if ask.has_kept)

    @property
    def leaving(self) -> Resources:
        """What those below have who were asked to leave for others."""
        return summed(one.resources for app in self.all_apps() for one in app.allocations if one.preempted)

    @property
    def maximum(self) -> Resources | None:
        return parse_amounts(self.config.resources.max) or None

    @property
    def guaranteed(self) -> Resources:
        return parse_amounts(self.config.resources.guaranteed)

    def setting(self, name: str) -> str:
        return self.config.properties.get(name, "")

    @property
    def sorts_by_priority(self) -> bool:
        switch = [queue.setting("application.sort.priority") for queue in self.path_up()]
        return next((value for value in switch if value), "") != "disabled"

    @property
    def priority(self) -> int:
        below = self.apps if not self.children else self.children
        current = max((one.priority for one in below), default=NOTHING_PENDING)
        offset = int(self.setting("priority.offset") or 0)
        if current == NOTHING_PENDING:
            return current
        return offset if self.setting("priority.policy") == "fence" else current + offset

    def may_start(self, app: PlainApp) -> bool:
        for queue in self.path_up():
            running = sum(one.state == "Running" for one in queue.all_apps())
            allocating = [one for leaf in queue.leaves() for one in leaf.allocating]
            most = queue.config.max_applications
            if most and app not in allocating and running + len(allocating) + 1 > most:
                return False
        return True


@dataclass(eq=False)
class PlainNode:
    name: str
    capacity: Resources
    schedulable: bool = True
    own: list[PlainAsk] = field(default_factory=list)
    foreign: dict[str, Resources] = field(default_factory=dict)
    reserving: list[PlainAsk] = field(default_factory=list)
    """Asks for which it is reserved, the oldest reservation first."""
    score: float = 0.0

    @property
    def available(self) -> Resources:
        used = summed([*(one.resources for one in self.own), *self.foreign.values()])
        return {kind: self.capacity.get(kind, 0) - used.get(kind, 0) for kind in {**self.capacity, **used}}

    def takes(self, ask: PlainAsk) -> bool:
        return fits(self.available, ask.resources) and self.name not in ask.forbidden

    def could_take(self, ask: PlainAsk) -> bool:
        """If nothing ran there."""
        return fits(self.capacity, ask.resources)

    def rescore(self, policy: str) -> None:
        kinds = [kind for kind in ("vcore", "memory") if self.capacity.get(kind)]
        used = sum(1.0 - self.available[kind] / self.capacity[kind] for kind in kinds) / len(kinds) if kinds else 0.0
        self.score = 1.0 - used if policy == "binpacking" else used
