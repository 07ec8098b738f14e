"""Decides when the history queries each partition, and which rows follow from the answers. Pure.

Every second each partition is queried for its new events; every minute also for a sample of its usage. An idle
partition is queried only in every IDLE_ROUNDS-th round, and idle ones take turns, as there may be hundreds. At most
EVENTS_MAX (`common/messages/query_messages.py`) events come per round: a busier partition falls behind, and events that
its worker has overwritten by then are recorded as a gap. So is the time in which a partition was not queried, or did
not answer.

The usage of a queue, user or group is recorded when it changed within the last minute, and once an hour in any case:
idle ones cost nothing, and a query of one day need not read the day before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from yunishard.common.messages.query_messages import Account, PartitionEntry, Query, Usage

Kind = Literal["queues", "users", "groups"]
KINDS: Final[tuple[Kind, ...]] = ("queues", "users", "groups")
"""The kinds of recorded usage."""

UsageByName = dict[tuple[Kind, str], Usage]
"""The latest non-zero usage, by kind and name."""


class ReadPosition(NamedTuple):
    """The read position of a partition. It is written in one transaction with the rows, so no row is written twice. The
    names are those of the columns.
    """

    instance: str = ""
    """The instance of the event sequence; empty for a partition that was not read yet, or no longer exists."""
    next_event: int = 0
    last_event_ns: int = 0
    """The time of the last event that was read."""
    ended_ns: int = 0
    """When the last recorded application ended."""
    sampled_ns: int = 0
    """When the last sample was taken; 0 for none."""
    unsure: bool = False
    """Whether ends of allocations may have been missed."""

    @property
    def latest_ns(self) -> int:
        """When the partition was last sampled, or had its last event."""
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
class RowBatch:
    """The rows that follow from one answer of a partition; written in one transaction."""

    partition: PartitionEntry
    position: ReadPosition
    """The read position after it."""
    at_ns: int
    """The time of the sample, the usage and the keys."""
    account: Account
    """The answer, without the events that are recorded already. All running allocations but its `keys` have ended, for
    an unknown reason.
    """
    usage: list[tuple[Kind, Usage]] = field(default_factory=list)
    """Changed usage."""
    gaps: list[Gap] = field(default_factory=list)


ROUND_S: Final = 1.0
"""Seconds between two rounds."""

IDLE_ROUNDS: Final = 5
"""An idle partition is queried in one round of so many. If more events happen meanwhile than the ring buffer of the
worker holds (100,000 by default), that is a gap; it would be one if the partition were queried in each round.
"""

SAMPLE_NS: Final = 60 * 10**9
"""Interval of samples."""

MISSED_AFTER_NS: Final = 90 * 10**9
"""An interval between samples from which on a gap is recorded."""

WHOLE_NS: Final = 3600 * 10**9
"""Interval in which all usage is recorded, changed or not."""

SKEW_MAX_NS: Final = 3600 * 10**9
"""How far the clock of a worker may be ahead of that of the web service; hosts may differ by minutes."""

GONE_AFTER_NS: Final = 600 * 10**9
"""Time without registration after which a partition counts as removed, with its allocations."""

FORGOTTEN_AFTER_NS: Final = 7 * 24 * 3600 * 10**9
"""Time after which the read position of a removed partition is dropped. Workers list ended applications for three days.
"""


class Collector:
    """The read positions of all partitions, starting with those in the file."""

    def __init__(self, positions: Mapping[str, ReadPosition], usage: Mapping[str, UsageByName], now_ns: int) -> None:
        self._positions = dict(positions)
        """By full name."""
        self._usage = {name: dict(found) for name, found in usage.items()}
        self._idle: set[str] = set()
        """Partitions whose last answer had no events, by full name."""
        self._round = 0
        self._sample_ns = now_ns + SAMPLE_NS
        """When the next sample is due."""
        self.sampling = False
        """Whether the present round takes one."""

    def plan_queries(self, partitions: Iterable[PartitionEntry], now_ns: int) -> list[tuple[PartitionEntry, Query]]:
        """Begin a round. Returns the queries and the partitions to send them to."""
        self._sample_ns = min(self._sample_ns, now_ns + SAMPLE_NS)  # the clock may be set back
        self.sampling = now_ns >= self._sample_ns
        if self.sampling:
            self._sample_ns += ((now_ns - self._sample_ns) // SAMPLE_NS + 1) * SAMPLE_NS
        self._round += 1
        return [
            (one, self._make_query(self._positions.get(one.full_name, ReadPosition()), now_ns))
            for turn, one in enumerate(partitions, self._round)
            if self.sampling or one.full_name not in self._idle or turn % IDLE_ROUNDS == 0
        ]

    def _make_query(self, position: ReadPosition, now_ns: int) -> Query:
        since = str(_reset_future(position.ended_ns, now_ns))
        args = {"instance": position.instance, "start": str(position.next_event), "since": since}
        if self.sampling:
            args["sample"] = "true"
            if position.unsure:
                args["keys"] = "true"
        return Query(what="account", args=args)

    def process_answer(self, partition: PartitionEntry, account: Account, now_ns: int) -> RowBatch | None:
        """The rows that follow from an answer; None for none."""
        name = partition.full_name
        before = self._positions.get(name, ReadPosition())
        read_ns = _reset_future(before.last_event_ns, now_ns)
        gaps = [*_find_missed_events(before, account, read_ns, now_ns), *_find_missed_samples(before, account, now_ns)]
        usage = [] if account.sample is None else self._changed_usage(name, account, before.sampled_ns, now_ns)
        position = self._positions[name] = ReadPosition(
            instance=account.instance,
            next_event=account.next,
            last_event_ns=max(read_ns, account.last_ns),
            ended_ns=account.ended[-1].finished_ns if account.ended else before.ended_ns,
            sampled_ns=now_ns if account.sample is not None else before.sampled_ns,
            unsure=account.keys is None and (before.unsure or any(gap.what == "events" for gap in gaps)),
        )
        if account.ended or position.next_event != before.next_event:
            self._idle.discard(name)
        else:
            self._idle.add(name)
        if position == before:
            return None
        if not before.instance:  # a partition that was not listed for a while may still have the events of before
            account = replace(account, happened=[one for one in account.happened if one.at_ns > read_ns])
        return RowBatch(partition, position, now_ns, account, usage, gaps)

    def _changed_usage(self, name: str, account: Account, sampled_ns: int, now_ns: int) -> list[tuple[Kind, Usage]]:
        """The usage to record."""
        assert account.sample is not None
        whole = now_ns // WHOLE_NS != sampled_ns // WHOLE_NS
        before = self._usage.get(name, {})
        sample = account.sample
        by_kind = zip(KINDS, (sample.queues, sample.users, sample.groups), strict=True)
        now: UsageByName = {(kind, one.name): one for kind, found in by_kind for one in found}
        self._usage[name] = now
        changed = [(key[0], one) for key, one in now.items() if whole or before.get(key) != one]
        return changed + _make_zero_usage(before, now)

    def end_removed(self, partitions: Iterable[PartitionEntry], now_ns: int) -> list[RowBatch]:
        """The final rows of partitions that were removed, in a round that takes samples."""
        if not self.sampling:
            return []
        here = {one.full_name for one in partitions}
        for name, position in tuple(self._positions.items()):
            if not position.instance and position.latest_ns < now_ns - FORGOTTEN_AFTER_NS and name not in here:
                del self._positions[name]
        return [
            self._end(name, position, now_ns)
            for name, position in self._positions.items()
            if position.instance and name not in here and position.latest_ns < now_ns - GONE_AFTER_NS
        ]

    def _end(self, name: str, position: ReadPosition, now_ns: int) -> RowBatch:
        self._idle.discard(name)
        after = self._positions[name] = position._replace(instance="", next_event=0, unsure=False)
        partition = PartitionEntry(full_name=name, name="", rm_id="")
        nothing = Account(instance="", tracked=True, first=0, next=0, happened=[], ended=[], keys=[])
        return RowBatch(partition, after, now_ns, nothing, _make_zero_usage(self._usage.pop(name, {}), {}))


def _reset_future(at_ns: int, now_ns: int) -> int:
    """A recorded time, or 0 if it is far in the future: it was written while the clock was wrong."""
    return at_ns if at_ns <= now_ns + SKEW_MAX_NS else 0


def _make_zero_usage(before: UsageByName, now: UsageByName) -> list[tuple[Kind, Usage]]:
    """Zero usage for those that had some before."""
    return [(kind, Usage(name, 0, {})) for kind, name in before if (kind, name) not in now]


def _find_missed_events(before: ReadPosition, account: Account, read_ns: int, now_ns: int) -> list[Gap]:
    since_ns = read_ns or before.sampled_ns or now_ns
    if not account.tracked:
        if account.sample is None:
            return []
        reason = "events are not tracked: event.trackingEnabled is false"
        return [Gap("events", before.sampled_ns or now_ns, now_ns, None, reason)]
    if account.instance == before.instance or not before.instance:
        expected = before.next_event if account.instance == before.instance else 0
        if account.first == expected:
            return []
        reason = "the worker overwrote events before they were read"
        return [Gap("events", since_ns, account.first_ns or now_ns, account.first - expected, reason)]
    return [Gap("events", since_ns, account.first_ns or now_ns, None, "the worker or its partition restarted")]


def _find_missed_samples(before: ReadPosition, account: Account, now_ns: int) -> list[Gap]:
    if account.sample is None or not before.sampled_ns or now_ns - before.sampled_ns <= MISSED_AFTER_NS:
        return []
    missed = (now_ns - before.sampled_ns) // SAMPLE_NS - 1
    return [Gap("samples", before.sampled_ns, now_ns, missed, "the partition was not queried, or did not answer")]
