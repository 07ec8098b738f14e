"""What is written to the history at a time, as values.

Times are Unix nanoseconds. Not here: when something is to be written (`collector.py`), tables (`schema.py`).
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from common.messages import Resources
from common.query_messages import PartitionEntry
from common.records import EndedApplication, Happened, Sample, Usage

Kind = Literal["queues", "users", "groups"]
KINDS: Final[tuple[Kind, ...]] = ("queues", "users", "groups")
"""Whose usage is kept."""

Named = dict[tuple[Kind, str], Usage]
"""The latest usage of each of them that has some, by kind and name."""

NOTHING: Final[Resources] = {}


@dataclass(frozen=True, slots=True)
class Place:
    """Up to where a partition has been read. It is written with what was read, so nothing is ever there twice."""

    instance: str = ""
    """Which history of events it is; empty for a partition that has not been read, or is gone."""
    next_event: int = 0
    last_event_ns: int = 0
    """When the last event that was read happened: a worker that was replaced tells again what it plays again."""
    ended_ns: int = 0
    """When the last application ended that was read."""
    sampled_ns: int = 0
    """When the last sample was taken; 0 for none."""
    unsure: bool = False
    """Whether allocations may have ended that nobody told of."""

    @property
    def heard_ns(self) -> int:
        """Since when nothing is known of it."""
        return max(self.sampled_ns, self.last_event_ns)


@dataclass(frozen=True, slots=True)
class Gap:
    """A time of which something is not known."""

    what: Literal["events", "samples"]
    since_ns: int
    until_ns: int
    missed: int | None
    """How many of them; None if nobody knows."""
    reason: str


@dataclass(frozen=True, slots=True)
class Portion:
    """What one answer of a partition adds to the history, all in one transaction."""

    partition: PartitionEntry
    place: Place
    """Where to go on after it."""
    happened: list[Happened] = field(default_factory=list)
    ended: list[EndedApplication] = field(default_factory=list)
    at_ns: int = 0
    """Of the sample, of the usage, and of the keys."""
    sample: Sample | None = None
    usage: list[tuple[Kind, Usage]] = field(default_factory=list)
    """What is another than it was."""
    keys: list[str] | None = None
    """Of the allocations that run: those that are not among them have ended, however that was."""
    gaps: list[Gap] = field(default_factory=list)
