"""Decides what the history asks each partition and when, and which rows follow from the answers. Pure.

Every second each partition is asked for its new events; every minute also for a sample of its usage. An idle partition
is asked only in every IDLE_ROUNDS-th round, and idle ones take turns, as there may be hundreds. At most EVENTS_MAX
(`common/history_records.py`) events come per round: a busier partition falls behind, and events that its worker has
overwritten by then are recorded as a gap. So is the time in which a partition was not asked, or did not answer.

The usage of a queue, user or group is recorded when it changed within the last minute, and once an hour in any case:
idle ones cost nothing, and a query of one day need not read the day before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from common.history_records import Account, EndedApplication, Happened, Sample, Usage
from common.messages import Resources
from common.query_messages import PartitionEntry, Query

Kind = Literal["queues", "users", "groups"]
KINDS: Final[tuple[Kind, ...]] = ("queues", "users", "groups")
"""Whose usage is kept."""

Named = dict[tuple[Kind, str], Usage]
"""The latest non-zero usage, by kind and name."""

NOTHING: Final[Resources] = {}


@dataclass(frozen=True, slots=True)
class Place:
    """The read position of a partition. It is written in one transaction with the rows, so no row is there twice."""

    instance: str = ""
    """The instance of the event sequence; empty for a partition that was not read yet, or no longer exists."""
    next_event: int = 0
    last_event_ns: int = 0
    """The time of the last event that was read: a restarted worker repeats the events of its journal."""
    ended_ns: int = 0
    """When the last recorded application ended."""
    sampled_ns: int = 0
    """When the last sample was taken; 0 for none."""
    unsure: bool = False
    """Whether ends of allocations may have been missed."""

    @property
    def heard_ns(self) -> int:
        """The time of the latest known state."""
        return max(self.sampled_ns, self.last_event_ns)


@dataclass(frozen=True, slots=True)
class Gap:
    """A period for which the history is incomplete."""

    what: Literal["events", "samples"]
    since_ns: int
    until_ns: int
    missed: int | None
    """How many events or samples; None if unknown."""
    reason: str


@dataclass(frozen=True, slots=True)
class Portion:
    """The rows that follow from one answer of a partition; written in one transaction."""

    partition: PartitionEntry
    place: Place
    """The read position after it."""
    happened: list[Happened] = field(default_factory=list)
    ended: list[EndedApplication] = field(default_factory=list)
    at_ns: int = 0
    """The time of the sample, the usage and the keys."""
    sample: Sample | None = None
    usage: list[tuple[Kind, Usage]] = field(default_factory=list)
    """Changed usage."""
    keys: list[str] | None = None
    """The running allocations: all others have ended, for an unknown reason."""
    gaps: list[Gap] = field(default_factory=list)


ROUND_S: Final = 1.0
"""Seconds between two rounds."""

IDLE_ROUNDS: Final = 5
"""In one round of so many those are asked in which nothing has happened. Should more happen until then than a worker
keeps, 100,000 events unless it is told otherwise, that is a gap; so it would be if it were asked each round.
"""

SAMPLE_NS: Final = 60 * 10**9
"""Interval of samples."""

MISSED_AFTER_NS: Final = 90 * 10**9
"""An interval between samples from which on a gap is recorded."""

WHOLE_NS: Final = 3600 * 10**9
"""Interval in which all usage is recorded, changed or not."""

GONE_AFTER_NS: Final = 600 * 10**9
"""Time without registration after which a partition counts as removed, with its allocations."""


class Collector:
    """The read positions of all partitions, starting with those in the file."""

    def __init__(self, places: Mapping[str, Place], usage: Mapping[str, Named], now_ns: int) -> None:
        self._places = dict(places)
        """By full name."""
        self._usage = {name: dict(found) for name, found in usage.items()}
        self._idle: set[str] = set()
        """Partitions whose last answer had no events, by full name."""
        self._round = 0
        self._sample_ns = now_ns + SAMPLE_NS
        """When the next sample is due."""
        self.sampling = False
        """Whether the present round takes one."""

    def questions(self, partitions: Iterable[PartitionEntry], now_ns: int) -> list[tuple[PartitionEntry, Query]]:
        """Begin a round. Returns the queries and the partitions to send them to."""
        self._sample_ns = min(self._sample_ns, now_ns + SAMPLE_NS)  # the clock may be set back
        self.sampling = now_ns >= self._sample_ns
        if self.sampling:
            self._sample_ns += ((now_ns - self._sample_ns) // SAMPLE_NS + 1) * SAMPLE_NS
        self._round += 1
        return [
            (one, self._question(self._places.get(one.full_name, Place()), now_ns))
            for turn, one in enumerate(partitions, self._round)
            if self.sampling or one.full_name not in self._idle or turn % IDLE_ROUNDS == 0
        ]

    def _question(self, place: Place, now_ns: int) -> Query:
        args = {
            "instance": place.instance,
            "start": str(place.next_event),
            "since": str(_believed(place.ended_ns, now_ns)),
        }
        if self.sampling:
            args["sample"] = "true"
            if place.unsure:
                args["keys"] = "true"
        return Query(what="account", args=args)

    def process_answer(self, partition: PartitionEntry, account: Account, now_ns: int) -> Portion | None:
        """The rows that follow from an answer; None for none."""
        name = partition.full_name
        before = self._places.get(name, Place())
        told_ns = _believed(before.last_event_ns, now_ns)
        gaps = [*_events_missed(before, account, told_ns, now_ns), *_samples_missed(before, account, now_ns)]
        usage = [] if account.sample is None else self._changes(name, account, before.sampled_ns, now_ns)
        place = self._places[name] = Place(
            instance=account.instance,
            next_event=account.next,
            last_event_ns=max(told_ns, account.last_ns),
            ended_ns=account.ended[-1].finished_ns if account.ended else before.ended_ns,
            sampled_ns=now_ns if account.sample is not None else before.sampled_ns,
            unsure=account.keys is None and (before.unsure or any(gap.what == "events" for gap in gaps)),
        )
        if account.ended or place.next_event != before.next_event:
            self._idle.discard(name)
        else:
            self._idle.add(name)
        if place == before:
            return None
        return Portion(
            partition=partition,
            place=place,
            happened=[one for one in account.happened if one.at_ns > told_ns],
            ended=account.ended,
            at_ns=now_ns,
            sample=account.sample,
            usage=usage,
            keys=account.keys,
            gaps=gaps,
        )

    def _changes(self, name: str, account: Account, sampled_ns: int, now_ns: int) -> list[tuple[Kind, Usage]]:
        """The usage to record."""
        assert account.sample is not None
        whole = now_ns // WHOLE_NS != sampled_ns // WHOLE_NS
        before = self._usage.get(name, {})
        sample = account.sample
        told = zip(KINDS, (sample.queues, sample.users, sample.groups), strict=True)
        now: Named = {(kind, one.name): one for kind, found in told for one in found}
        self._usage[name] = now
        changed = [(kind, one) for (kind, who), one in now.items() if whole or before.get((kind, who)) != one]
        return changed + _idle(before, now)

    def gone(self, partitions: Iterable[PartitionEntry], now_ns: int) -> list[Portion]:
        """The final rows of partitions that are no longer registered, in a round that takes samples."""
        if not self.sampling:
            return []
        here = {one.full_name for one in partitions}
        return [
            self._left(name, place, now_ns)
            for name, place in self._places.items()
            if place.instance and name not in here and place.heard_ns < now_ns - GONE_AFTER_NS
        ]

    def _left(self, name: str, place: Place, now_ns: int) -> Portion:
        self._idle.discard(name)
        after = self._places[name] = replace(place, instance="", next_event=0, unsure=False)
        return Portion(
            partition=PartitionEntry(full_name=name, name="", rm_id=""),
            place=after,
            at_ns=now_ns,
            usage=_idle(self._usage.pop(name, {}), {}),
            keys=[],
        )


def _believed(at_ns: int, now_ns: int) -> int:
    """A read position; one in the future was written while the clock was wrong."""
    return at_ns if at_ns <= now_ns else 0


def _idle(before: Named, now: Named) -> list[tuple[Kind, Usage]]:
    """Zero usage for those that had some before."""
    return [(kind, Usage(who, 0, NOTHING)) for kind, who in before if (kind, who) not in now]


def _events_missed(before: Place, account: Account, told_ns: int, now_ns: int) -> list[Gap]:
    since_ns = told_ns or before.sampled_ns or now_ns
    if not account.tracked:
        if account.sample is None:
            return []
        reason = "events are not tracked: event.trackingEnabled is false"
        return [Gap("events", before.sampled_ns or now_ns, now_ns, None, reason)]
    if account.instance == before.instance or not before.instance:
        expected = before.next_event if account.instance == before.instance else 0
        if account.first == expected:
            return []
        reason = "more happened than was read before the worker forgot it"
        return [Gap("events", since_ns, account.first_ns or now_ns, account.first - expected, reason)]
    if account.first_ns and account.first_ns <= told_ns:
        return []  # it repeats known events, so nothing since is missing
    return [Gap("events", since_ns, account.first_ns or now_ns, None, "the worker or its partition began anew")]


def _samples_missed(before: Place, account: Account, now_ns: int) -> list[Gap]:
    if account.sample is None or not before.sampled_ns or now_ns - before.sampled_ns <= MISSED_AFTER_NS:
        return []
    missed = (now_ns - before.sampled_ns) // SAMPLE_NS - 1
    return [Gap("samples", before.sampled_ns, now_ns, missed, "nobody asked, or the partition did not answer")]
