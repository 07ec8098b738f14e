"""Full reports of partitions, as the dialogue sees them: what was said since each began, and what came of it.

    begun --SyncEnd--> ended --SyncDone--> outcome          begun, ended --the partition began anew, or went--> outcome

The answers of a partition come in the order of the questions, each perhaps several times. Not here: who waits for them
(`manager.py`).
"""

from collections import deque
from dataclasses import dataclass, field

from common.messages import Command
from common.reports import both, reported
from common.rm_messages import SyncDone, SyncEnd
from yunishard.failures import ResyncFailed


@dataclass(slots=True)
class Sync:
    """One report."""

    partition: str
    """Normalised name."""
    counts: SyncEnd = field(default_factory=SyncEnd)
    """What was said so far."""
    outcome: SyncDone | ResyncFailed | None = None

    @property
    def swept(self) -> SyncDone | None:
        """What the core had and the report did not, by id; None until that is known."""
        return self.outcome if isinstance(self.outcome, SyncDone) else None


@dataclass(slots=True)
class _Lane:
    begun: Sync | None = None
    ended: deque[Sync] = field(default_factory=deque)
    """Those without an answer, oldest first."""
    heard: int = 0
    """Number of the last answer in the partition's present life."""


class Syncs:
    """All of one session."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        """By partition; none for one of which nothing has been reported in its present life, or that is none."""

    def __bool__(self) -> bool:
        """Whether a report is under way, so that what is said counts."""
        return any(lane.begun is not None for lane in self._lanes.values())

    def partitions(self) -> list[str]:
        """Those of which anything was reported."""
        return list(self._lanes)

    def begin(self, partition: str) -> Sync:
        """A report begins; one that has not ended never will."""
        lane = self._lanes.setdefault(partition, _Lane())
        lane.begun = Sync(partition)
        return lane.begun

    def count(self, partition: str, command: Command) -> None:
        """Something was said to a partition."""
        lane = self._lanes.get(partition)
        if lane is not None and lane.begun is not None:
            lane.begun.counts = both(lane.begun.counts, reported(command))

    def end(self, sync: Sync) -> None:
        """The report is complete."""
        if sync.outcome is not None:
            return
        lane = self._lanes[sync.partition]
        if lane.begun is not sync:
            sync.outcome = ResyncFailed(f"{sync.partition}: another report was begun before this one was complete")
            return
        lane.begun = None
        lane.ended.append(sync)

    def answered(self, partition: str, seq: int, done: SyncDone) -> None:
        """The partition says what came of the oldest report; 0 is the number of one that nobody keeps."""
        lane = self._lanes.get(partition)
        if lane is None or not lane.ended or 0 < seq <= lane.heard:
            return
        lane.heard = max(lane.heard, seq)
        lane.ended.popleft().outcome = ResyncFailed(f"{partition}: {done.problem}") if done.problem else done
        if not (seq or lane.begun or lane.ended):
            del self._lanes[partition]

    def fail(self, partition: str, reason: str) -> None:
        """What was reported to this partition is forgotten."""
        lane = self._lanes.pop(partition, None)
        if lane is not None:
            for sync in (*lane.ended, *((lane.begun,) if lane.begun else ())):
                sync.outcome = ResyncFailed(f"{partition}: {reason}")
