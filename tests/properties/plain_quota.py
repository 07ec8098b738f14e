"""A second implementation of quota enforcement, as plain as it can be: all sums are added up again for every question.

It shares nothing with the engine but reading its state. It is slow on purpose.
"""

from collections.abc import Iterable

from yunishard.common.messages.kinds import Resources
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState

Limits = dict[str, int]

LEAVES_WITHIN_S = 600.0
"""Seconds after which a victim counts as one that stays."""


def delay_starts(queue: Queue, before: Limits | None) -> bool:
    """Whether enforcement of a queue starts with a change of its maximum: some type is above a maximum that is new or
    lower than before.
    """
    return any(
        queue.allocated.get(kind, 0) > most and (kind not in (before or {}) or most < (before or {})[kind])
        for kind, most in (queue.maximum or {}).items()
    )


def exceeds_maximum(queue: Queue) -> bool:
    return any(queue.allocated.get(kind, 0) > most for kind, most in (queue.maximum or {}).items())


class PlainQuota:
    """The victims of one queue that is above its maximum at some time, in Unix seconds."""

    def __init__(self, state: PartitionState, queue: Queue, at: float) -> None:
        self.state, self.queue, self.at = state, queue, at
        self.victims: list[Allocation] = []
        self.excess = self.find_excess()
        if all(self.most_of(queue)[kind] >= amount for kind, amount in self.excess.items()):
            self.give(queue, self.excess)

    def find_excess(self) -> Resources:
        used, most = self.used(self.queue), self.queue.maximum or {}
        excess = {kind: used.get(kind, 0) - amount for kind, amount in most.items() if used.get(kind, 0) > amount}
        for kind in excess:
            beyond = [
                level.allocated.get(kind, 0) - level.guaranteed[kind]
                for level in self.queue.ancestry()
                if level.guaranteed and kind in level.guaranteed
            ]
            if beyond and max(beyond) > 0:
                excess[kind] = min(excess[kind], max(beyond))
        return excess

    def below(self, queue: Queue) -> Iterable[Allocation]:
        """Everything below a queue that is not on its way out, in order of arrival."""
        for application in self.state.applications.values():
            if queue in application.queue.ancestry():
                yield from (one for one in application.allocations.values() if one not in self.victims)

    def used(self, queue: Queue) -> Resources:
        total: Resources = {}
        for one in self.below(queue):
            for kind, amount in one.resources.items():
                total[kind] = total.get(kind, 0) + (0 if self.is_leaving(one) else amount)
        return total

    def is_leaving(self, one: Allocation) -> bool:
        """Whether it was asked to go, and may still do so in time."""
        return one.preempted and self.at < one.preempted_at + LEAVES_WITHIN_S

    def surplus(self, queue: Queue) -> Resources:
        guaranteed = queue.guaranteed or {}
        return {kind: max(0, amount - guaranteed.get(kind, 0)) for kind, amount in self.used(queue).items()}

    def candidates(self, leaf: Queue) -> list[Allocation]:
        found = [
            one
            for one in self.below(leaf)
            if not (one.released or one.preempted or one.shape.required_node)
            and any(kind in self.excess for kind in one.resources)
        ][::-1]
        found.sort(key=lambda one: one.created_ns, reverse=True)
        found.sort(key=lambda one: one.priority)
        found.sort(key=lambda one: 100 * len(self.excess.keys() & one.resources) // len(one.resources), reverse=True)
        found.sort(key=lambda one: 2 * one.originator + (not one.may_be_victim))
        return found

    def most_of(self, queue: Queue) -> Resources:
        """The most that the candidates below a queue that are small enough give up together."""
        if queue.children:
            total = dict.fromkeys(self.excess, 0)
            for child in queue.children.values():
                surplus = self.surplus(child)
                for kind, amount in self.most_of(child).items():
                    total[kind] += min(amount, surplus.get(kind, 0))
            return total
        small = [one for one in self.candidates(queue) if self.is_within(one, self.excess)]
        return {kind: sum(one.resources.get(kind, 0) for one in small) for kind in self.excess}

    def is_within(self, one: Allocation, amount: Resources) -> bool:
        return all(value <= amount[kind] for kind, value in one.resources.items() if kind in amount)

    def give(self, queue: Queue, amount: Resources) -> None:
        """Add victims below a queue, of this amount at most."""
        before = len(self.victims)

        def left() -> Resources:
            given = self.victims[before:]
            return {kind: value - sum(one.resources.get(kind, 0) for one in given) for kind, value in amount.items()}

        if not queue.children:
            for one in self.candidates(queue):
                if self.is_within(one, left()):
                    self.victims.append(one)
            return
        children = list(queue.children.values())
        surpluses = [self.surplus(child) for child in children]
        for child, surplus in zip(children, surpluses, strict=True):
            whole = {kind: sum(other.get(kind, 0) for other in surpluses) for kind in amount}
            part = {kind: int(surplus.get(kind, 0) * amount[kind] / (whole[kind] or 1)) for kind in amount}
            self.give(child, {kind: min(value, surplus.get(kind, 0)) for kind, value in part.items()})
        for child in children:
            surplus = self.surplus(child)
            self.give(child, {kind: min(value, surplus.get(kind, 0)) for kind, value in left().items()})
