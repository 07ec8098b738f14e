"""Quota enforcement: preempt allocations of queues that exceed their lowered maximum.

While a queue has a time at which its maximum is enforced, all queues are checked every second from the root down. A
queue that is enforced excludes the queues below it from the same check. It is enforced again after its delay, at least
a minute, until it no longer exceeds its maximum: what was not possible before may be possible then, because an
allocation came or ended, an application was moved, a setting changed, or victims have not left in time.

A queue never gives up more than its excess, and none below it falls below its guarantee. Enforcement is a best effort:
allocations are taken whole, an allocation that would take too much is skipped, and nothing is taken where all
candidates together leave the queue above its maximum. Fences and `preemption.policy` do not count.

A lowered or first maximum, or a charge without a check, starts the delay of a queue; the end of this file has these
rules.
"""

from collections.abc import Mapping
from typing import Final

from yunishard.common.messages import event_codes
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.rm_messages import PREEMPTED_BY_SCHEDULER
from yunishard.common.messages.wire import NEVER
from yunishard.common.resources import Limit, add_to, covers, describe_amount, less, minus, permits, tightest, total_of
from yunishard.partition_worker.engine import events, ledger
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState

QUOTA_RETRY_S: Final = 60.0
"""Seconds after which a queue that still exceeds its maximum is enforced again; a longer delay of the queue is used
instead.
"""


def enforce_quotas(state: PartitionState) -> None:
    """Enforce the maximum of every queue that is due, and schedule the next check if others will be.

    A time that is no longer needed, as the queue does not exceed its maximum, is dropped. Costs a check of each queue.
    """
    state.quota_check_at = NEVER
    if not state.config.preemption.is_quota_enabled:
        return
    enforced: dict[str, Queue] = {}
    for queue in state.tree:  # from the root down, so that a queue is enforced before those below it
        if not queue.quota_preemption_at:
            continue
        if not exceeds_maximum(queue):
            queue.quota_preemption_at, queue.reported_excess = NO_QUOTA_PREEMPTION, {}
            state.changes.queues[queue.path] = None
            continue
        state.schedule_quota_check()
        if queue.quota_preemption_at <= state.now and not any(one.path in enforced for one in queue.ancestry()):
            enforced[queue.path] = queue
            queue.quota_preemption_at = state.now + max(QUOTA_RETRY_S, queue.policies.quota_preemption_delay_s)
            state.changes.queues[queue.path] = None
            _enforce(state, queue)


def _enforce(state: PartitionState, queue: Queue) -> None:
    excess = excess_to_claim(queue)
    if not excess:
        return
    choice = QuotaVictimChoice(state.applications, queue, excess)
    victims = [victim for chosen in choice.victims.values() for victim in chosen]
    for path, chosen in choice.victims.items():
        _preempt(state, path, chosen)
    if victims:
        state.changes.preemptions.append(state.preemptions.record_quota(state.now, queue, victims))
    if choice.found and (victims or excess != queue.reported_excess):  # or one each minute where nothing helps
        queue.reported_excess = excess
        claimed = total_of(one.resources for one in victims)
        state.record_event(
            event_codes.QUEUE,
            queue.path,
            event_codes.SET,
            event_codes.QUEUE_PREEMPTION,
            message=f"Quota change enforcement process: preemptable {describe_amount(excess)}, "
            f"claimed {describe_amount(claimed)}, selected {choice.found}, preempted {len(victims)}",
            resource=dict(queue.maximum or {}),
        )


def _preempt(state: PartitionState, path: str, victims: list[Allocation]) -> None:
    """Ask the RM to release the victims, application after application."""
    order = {name: number for number, name in enumerate(dict.fromkeys(one.application_id for one in victims))}
    for victim in sorted(victims, key=lambda one: order[one.application_id]):
        ledger.mark_preempted(state, state.applications[victim.application_id], victim)
        events.record_request(state, victim, f"Preempted by Quota change enforcement process in {path}")
        reason = f"preempting allocations to enforce new max quota for queue : {path}"
        state.emit(victim.release(state.name, reason, PREEMPTED_BY_SCHEDULER))


def excess_to_claim(queue: Queue) -> Resources:
    """Return the amounts that a queue should give up, of the types that exceed its maximum.

    Victims that are still leaving count as gone. If a queue on the path has a guarantee, it is at most the usage beyond
    that, and of several guarantees the one that is exceeded most counts.
    """
    if queue.maximum is None:
        return {}
    excess = _overdrawn(less(queue.maximum, minus(queue.allocated, queue.preempting)))
    path = queue.ancestry()
    rooms = [one.allocated if one.guaranteed is None else less(one.guaranteed, one.allocated) for one in path]
    unprotected = _overdrawn(tightest(rooms) or {})
    return {kind: min(amount, unprotected.get(kind, amount)) for kind, amount in excess.items()}


class QuotaVictimChoice:
    """The victims of one queue that is to give up an amount.

    1. Each leaf below the queue lists its candidates in the order in which they are chosen.
    2. If all candidates together cannot cover the amount, there are no victims.
    3. A parent divides its amount among its children, in proportion to what they use beyond their guarantee, and
       fractions are dropped. A leaf takes each candidate that keeps the sum within its part.
    4. The rest, which remains if some child has no candidate that is small enough, is offered to the
       children once more, one after the other.
    """

    def __init__(self, applications: Mapping[str, Application], queue: Queue, excess: Resources) -> None:
        self.victims: dict[str, list[Allocation]] = {}
        """By the path of their leaf."""
        self.found = 0
        """Candidates."""
        self._applications, self._excess = applications, excess
        self._candidates: dict[str, list[Allocation]] = {}
        """Those that are not chosen, by the path of their leaf."""
        self._surplus: dict[str, Resources] = {}
        """The amounts that each queue below may still give up, by path."""
        if covers(self._list_candidates(queue), excess):
            self._choose(queue, excess)

    def _list_candidates(self, queue: Queue) -> Resources:
        """List the candidates of all leaves; return the most that they can give up, of the types of the excess."""
        most = dict.fromkeys(self._excess, 0)
        if queue.leaf:
            candidates = list_quota_candidates(self._applications, queue, self._excess)
            self._candidates[queue.path] = candidates
            self.found += len(candidates)
            for one in candidates:
                if permits(self._excess, one.resources):
                    add_to(most, {kind: one.resources.get(kind, 0) for kind in most})
            return most
        for child in queue.children.values():
            surplus = self._surplus[child.path] = surplus_of(child)
            given = self._list_candidates(child)
            add_to(most, {kind: min(amount, surplus.get(kind, 0)) for kind, amount in given.items()})
        return most

    def _choose(self, queue: Queue, amount: Resources) -> Resources:
        """Choose victims that give up at most this amount; return their total, of the types of the amount."""
        if queue.leaf:
            candidates = self._candidates[queue.path]
            chosen = choose_quota_victims(candidates, amount)
            if chosen:
                keys = {one.key for one in chosen}
                self._candidates[queue.path] = [one for one in candidates if one.key not in keys]
                self.victims.setdefault(queue.path, []).extend(chosen)
            return {kind: sum(one.resources.get(kind, 0) for one in chosen) for kind in amount}
        children = list(queue.children.values())
        total = total_of(self._surplus[child.path] for child in children)
        left = dict(amount)
        for child in children:
            surplus = self._surplus[child.path]
            part = {kind: surplus.get(kind, 0) * amount[kind] // max(1, total.get(kind, 0)) for kind in amount}
            self._take(child, part, left)
        for child in children:
            self._take(child, left, left)
        return minus(amount, left)

    def _take(self, child: Queue, part: Resources, left: Resources) -> None:
        """Choose victims of a child within a part of the amount and its surplus, and reduce both."""
        surplus = self._surplus[child.path]
        allowed = {kind: min(amount, surplus.get(kind, 0)) for kind, amount in part.items()}
        if any(allowed.values()):
            for kind, claimed in self._choose(child, allowed).items():
                left[kind] -= claimed
                surplus[kind] = surplus.get(kind, 0) - claimed


def surplus_of(queue: Queue) -> Resources:
    """Return what a queue uses beyond its guarantee. Victims that are still leaving count as gone."""
    beyond = minus(minus(queue.allocated, queue.preempting), queue.guaranteed or {})
    return {kind: amount for kind, amount in beyond.items() if amount > 0}


def list_quota_candidates(applications: Mapping[str, Application], leaf: Queue, amount: Resources) -> list[Allocation]:
    """Return the candidates of a leaf that is to give up types of this amount, in the order in which they are chosen.

    Allocations that agreed to be preempted come first, then those that did not, and originators last, because the rest
    of their application ends with them. Among each, those of which most types are wanted come first, then the lowest
    priority, then the newest.
    """
    wanted = amount.keys()

    def sort_key(one: Allocation) -> tuple[bool, bool, int, int, int]:
        amounts = one.shape.amounts.items
        matching = sum(kind in wanted for kind, _ in amounts)
        return one.originator, not one.may_be_victim, -(100 * matching // len(amounts)), one.priority, -one.created_ns

    found = [
        allocation
        for application_id in leaf.applications
        for allocation in applications[application_id].allocations.values()
        if not (allocation.released or allocation.preempted or allocation.shape.required_node)
        and not wanted.isdisjoint(allocation.resources)
    ]
    found.reverse()  # of equal age, such as pods that were created in the same second, the last one is the newest
    return sorted(found, key=sort_key)


def choose_quota_victims(candidates: list[Allocation], amount: Resources) -> list[Allocation]:
    """Return, of candidates in their order, each that keeps the sum of all within the amount."""
    chosen: list[Allocation] = []
    left = dict(amount)
    for allocation in candidates:
        if all(value <= left.get(kind, value) for kind, value in allocation.resources.items()):
            chosen.append(allocation)
            for kind in left:
                left[kind] -= allocation.resources.get(kind, 0)
    return chosen


def _overdrawn(room: Resources) -> Resources:
    """Return the amounts below zero, as positive numbers."""
    return {kind: -amount for kind, amount in room.items() if amount < 0}


# Times of quota preemption --------------------------------------------------------------------------------------------

NO_QUOTA_PREEMPTION = 0.0
"""No quota preemption is due."""


def quota_preemption_time(queue: Queue, maximum: Limit | None, delay_s: float, now: float) -> float:
    """When quota preemption of a queue whose settings changed starts, in Unix seconds; NO_QUOTA_PREEMPTION if never.

    `maximum` and `delay_s` are those before; a delay of 0 disables it. The delay starts when it is first set, and when
    the maximum of a type of which the queue uses more is lowered or set for the first time. An earlier time stays.
    """
    new_delay_s, at = queue.policies.quota_preemption_delay_s, queue.quota_preemption_at
    if not new_delay_s or queue.maximum is None or not exceeds_maximum(queue):
        return NO_QUOTA_PREEMPTION
    old, used = maximum or {}, queue.allocated
    is_lowered = any(most < min(old.get(kind, most + 1), used.get(kind, 0)) for kind, most in queue.maximum.items())
    start = now + new_delay_s if is_lowered or not delay_s else NO_QUOTA_PREEMPTION
    if not at:
        return start
    return min(at + new_delay_s - delay_s, start or NEVER)


def exceeds_maximum(queue: Queue) -> bool:
    """Whether the queue uses more than its maximum."""
    return queue.maximum is not None and not permits(queue.maximum, queue.allocated)


def start_quota_timers(leaf: Queue, now: float) -> bool:
    """After a charge without a check: start the delay of each queue on the path that exceeds its maximum, unless it is
    enforced before that. Returns whether there is one.
    """
    found = False
    for level in leaf.ancestry():
        delay_s = level.policies.quota_preemption_delay_s
        is_later = not level.quota_preemption_at or level.quota_preemption_at > now + delay_s
        if delay_s and is_later and exceeds_maximum(level):
            level.quota_preemption_at = now + delay_s
            found = True
    return found
