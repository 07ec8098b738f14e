"""A partition with a twin that was restored of what is written of it: whatever is done to one is done to both.

    one = Trial("root.a", made=Twins)
    one.does(...)
    remember(one)          from here on a restored partition does the same, and every step is compared
    one.does(...)

Not here: what happens to it (`trial.py`, properties).
"""

from collections.abc import Callable
from typing import TypeVar

from common.config.model import PartitionConfig
from common.control_messages import GroupsFound
from common.messages import Command
from common.query_messages import Actor
from common.rm_messages import PredicatesAnswered
from partition_worker.engine import queue_traversal
from partition_worker.engine.administration import NotDone
from partition_worker.engine.partition import Partition
from partition_worker.engine.snapshot import codec
from partition_worker.engine.state import Effect
from tests.invariants import check
from tests.likeness import differences
from tests.trial import Trial

_T = TypeVar("_T")


class Twins(Partition):
    """One of them, which tells the other one what to do."""

    other: Partition | None = None
    restorations = 0

    def remember(self) -> None:
        """Go on beside what is restored of the other one, or of this one if there is none yet."""
        before = self.other or self
        data = codec.encode_partition(before)
        plugins = self.nodes.predicates.plugins
        self.other = codec.restore_partition(data, name=self.name, plugins=plugins, tuning=self.tuning)
        self.restorations += 1
        check(self.other)
        self._compare()
        unlike = list(differences(self, self.other))
        assert not unlike, unlike

    def _both(self, act: Callable[[Partition], _T]) -> _T:
        if self.other is None:
            return act(self)
        self.other.tracking = self.tracking
        before = len(self._events)
        mine, theirs = outcome(act, self), outcome(act, self.other)
        if isinstance(mine, NotDone):
            assert isinstance(theirs, NotDone)
            self.other.drain_effects()
            raise mine
        assert not isinstance(theirs, NotDone)
        assert _told(mine) == _told(theirs)
        assert self._events[before:] == self.other.drain_events()
        self._compare()
        return mine

    def _compare(self) -> None:
        assert self.other is not None
        assert (self.idle, self.next_change) == (self.other.idle, self.other.next_change)
        assert codec.encode_partition(self) == codec.encode_partition(self.other), list(differences(self, self.other))

    def apply(self, command: Command, now: float) -> list[Effect]:
        return self._both(lambda one: Partition.apply(one, command, now))

    def step(self, now: float, budget: int) -> list[Effect]:
        return self._both(lambda one: Partition.step(one, now, budget))

    def schedule_each(self, now: float, budget: int) -> list[tuple[queue_traversal.Decision, list[Effect]]]:
        return self._both(lambda one: Partition.schedule_each(one, now, budget))

    def apply_groups(self, found: GroupsFound, now: float) -> list[Effect]:
        return self._both(lambda one: Partition.apply_groups(one, found, now))

    def apply_verdicts(self, answered: PredicatesAnswered, now: float) -> list[Effect]:
        return self._both(lambda one: Partition.apply_verdicts(one, answered, now))

    def kill(self, application_id: str, actor: Actor, now: float) -> list[Effect]:
        return self._both(lambda one: Partition.kill(one, application_id, actor, now))

    def move(self, application_id: str, queue: str, actor: Actor, now: float) -> list[Effect]:
        return self._both(lambda one: Partition.move(one, application_id, queue, actor, now))

    def reconfigure(self, config: PartitionConfig, now: float) -> list[Effect]:
        return self._both(lambda one: Partition.reconfigure(one, config, now))

    def retire(self, now: float) -> list[Effect]:
        return self._both(lambda one: Partition.retire(one, now))


def outcome(act: Callable[[Partition], _T], one: Partition) -> _T | NotDone:
    try:
        return act(one)
    except NotDone as problem:
        return problem


def _told(outcome: object) -> object:
    """Effects as they are; of decisions, which name things that only one of them has, only what is told."""
    if isinstance(outcome, list):
        return [told[1] if isinstance(told, tuple) and not isinstance(told, Effect) else told for told in outcome]
    return outcome


def remember(trial: Trial) -> Trial:
    """From here on the partition of the trial has a twin."""
    assert isinstance(trial.partition, Twins)
    trial.partition.remember()
    return trial


def twin(trial: Trial) -> Partition:
    """What was restored of the partition of the trial."""
    assert isinstance(trial.partition, Twins)
    assert trial.partition.other is not None
    return trial.partition.other
