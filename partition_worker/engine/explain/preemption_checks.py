"""Whether an ask may preempt others now, and if not why: the conditions of `victim_choice.attempt`, in its order.

The victims are those that `victim_choice.plan_victims` would choose. If there are none, the allocations within reach
are counted by the reason that protects them.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import Reason
from yunishard.common.resources import drop_zeros
from yunishard.common.rest.explain import CheckView
from yunishard.common.text_formats import format_count, format_resources, format_seconds
from yunishard.partition_worker.engine.allocation import Allocation, AskGroup
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.preemption import victim_choice
from yunishard.partition_worker.engine.preemption.victim_candidates import (
    Giver,
    Guarantees,
    areas,
    find_shield,
    find_victim_candidates,
    reach_of,
)
from yunishard.partition_worker.engine.preemption_log import remaining_guarantee
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.reservations import end_of
from yunishard.partition_worker.engine.state import PartitionState, Preempt

REACH_MAX: Final = 5_000
"""Allocations within reach that one explanation examines, about 10 ms; with more of them no victims are planned, and
the reasons count the first ones.
"""

TOO_LARGE_NAMED_MAX: Final = 3
"""Candidates that are too large of which an explanation has the key; further ones are counted."""


@dataclass(slots=True)
class Reach:
    """The allocations that an ask might preempt, by what protects them."""

    protected: Counter[Reason] = field(default_factory=Counter)
    candidates: int = 0
    too_large: list[str] = field(default_factory=list)
    """The candidates that are larger than what remains of the guarantee, in a type that the ask lacks on their node."""
    fence: Queue | None = None
    """The queue beyond which nothing is within reach; None if that is the root."""
    cooldown_s: float = inf
    """Seconds until the first cooldown ends that protects allocations; infinite without."""
    is_cut: bool = False
    """Whether there are more than REACH_MAX."""

    @property
    def total(self) -> int:
        return self.candidates + self.protected.total()


@dataclass(slots=True)
class PreemptionOutlook:
    """Whether preemption helps an ask, and when."""

    check: CheckView
    wait_s: float = 0.0
    """Seconds until victims may be sought; 0 if that is not what stops it."""
    victims: tuple[Allocation, ...] = ()
    """The victims that would be chosen now, or after the wait."""
    node_id: str = ""


def check_preemption(
    state: PartitionState, application: Application, group: AskGroup, now: float, *, nodes_tried: bool
) -> PreemptionOutlook:
    """Return whether the first ask of a group, on whose path is a guarantee, may preempt others, and whom."""
    leaf, ask = application.queue, group.head
    if not state.config.preemption.is_enabled:
        return _stop(Reason.PREEMPTION_OFF, "preemption is off in this partition")
    if ask.preemption_triggered:
        rest = format_seconds(end_of(state, application.reservations[ask.key]) - now)
        text = f"others were preempted for it; if their room is lost, or not free in {rest}, it may again"
        return _stop(Reason.PREEMPTION_TRIGGERED, text)
    if not victim_choice.is_eligible(group):
        return _stop(Reason.PREEMPTION_NOT_ALLOWED, "its preemption policy does not let it preempt others")
    wanted = drop_zeros(ask.resources)
    if not Guarantees(leaf).may_cover(wanted):
        left = format_resources(remaining_guarantee(leaf), limit=True)
        text = f"it does not fit the remaining guarantee of {leaf.path} ({left}), so it preempts nothing"
        return _stop(Reason.PREEMPTION_GUARANTEE_USED, text, queue=leaf.path)
    reach, plan = _examine_reach(state, leaf, ask, now), None
    if not reach.is_cut and ask.shape.constraint is None and not state.nodes.ever_guarded:
        plan = victim_choice.plan_victims(state, application, ask, nodes_tried=nodes_tried)
    waits = _find_pause(state, leaf, group, now)
    if isinstance(plan, Preempt):
        node, victims = plan.node.node_id, plan.victims
        text = f"it may preempt {format_count(len(victims), 'allocation')} on {node}"
        text = text if victims else f"it may get {node}, which is reserved for others"
        waits = waits or PreemptionOutlook(CheckView(code=Reason.PREEMPTION_NO_VICTIM, passed=True, text=text))
        return replace(waits, victims=victims, node_id=node)
    if waits is not None and plan is None and reach.total:
        return waits
    return _describe_failure(leaf, reach, plan)


def _stop(code: Reason, text: str, *, queue: str = "", wait_s: float = 0.0) -> PreemptionOutlook:
    return PreemptionOutlook(CheckView(code=code, passed=False, text=text, queue=queue), wait_s)


def _find_pause(state: PartitionState, leaf: Queue, group: AskGroup, now: float) -> PreemptionOutlook | None:
    """Return why victims may not be sought yet, and for how many seconds."""
    code = victim_choice.find_obstacle(state, leaf, group, now)
    if code is Reason.PREEMPTION_DELAY:
        delay, left = format_seconds(leaf.policies.preemption_delay_s), victim_choice.delay_end(leaf, group) - now
        text = f"an ask of {leaf.path} may preempt others after {delay}: in {format_seconds(left)} for this one"
        return _stop(code, text, queue=leaf.path, wait_s=left)
    if code is Reason.PREEMPTION_PAUSE:
        left = max(victim_choice.pause_end(state, leaf, group), state.preemptions.pause_until) - now
        text = f"victims were sought a moment ago, and are sought again in {max(left, 0.1):.1f} s"
        return _stop(code, text, queue=leaf.path, wait_s=left)
    if code is Reason.PREEMPTION_CLUSTER_UNUSED:
        text = f"less than {state.tuning.preemption_threshold:.0%} of the cluster is used, from where on asks preempt"
        return _stop(code, text)
    return None


def _describe_failure(leaf: Queue, reach: Reach, plan: object) -> PreemptionOutlook:
    """Say why no victims were found, with what protects the allocations within reach."""
    reasons = ", ".join(f"{number} {_PHRASES[code]}" for code, number in reach.protected.most_common())
    if reach.cooldown_s < inf:
        reasons += f"; the first cooldown ends in {format_seconds(reach.cooldown_s)}"
    beyond = f" below {reach.fence.path}, beyond which nothing is within its reach" if reach.fence is not None else ""
    every = f"{reach.total} allocations{' examined' if reach.is_cut else ''}{beyond}"
    if not reach.total:
        code = Reason.PREEMPTION_NO_VICTIM if reach.fence is None else Reason.PREEMPTION_FENCE
        return _stop(code, f"there is no other allocation that it might preempt{beyond}", queue=leaf.path)
    if not reach.candidates:
        code = reach.protected.most_common(1)[0][0]
        return _stop(code, f"none of {every} may be preempted for it: {reasons}", queue=leaf.path)
    protected = f"; {reasons}" if reasons else ""
    if plan is Reason.PREEMPTION_GUARANTEE_USED:
        text = f"it does not fit the remaining guarantees on its path, so it preempts nothing{protected}"
        return _stop(Reason.PREEMPTION_GUARANTEE_USED, text, queue=leaf.path)
    failing = "those of one node free too little"
    if reach.too_large:
        rest = len(reach.too_large) - TOO_LARGE_NAMED_MAX
        names = ", ".join(reach.too_large[:TOO_LARGE_NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
        failing += f" without those that are larger than the remaining guarantee of {leaf.path} ({names})"
    text = f"{reach.candidates} of {every} might be preempted, but {failing}{protected}"
    return _stop(Reason.PREEMPTION_TOO_LITTLE, text, queue=leaf.path)


_PHRASES: Final = {
    Reason.PREEMPTION_DISABLED: "are in queues in which preemption is disabled",
    Reason.PREEMPTION_COOLDOWN: "are in queues that preempted from this one a short while ago",
    Reason.PREEMPTION_WITHIN_GUARANTEE: "are in queues within their guarantee",
    Reason.PREEMPTION_PRIORITY: "have a higher priority",
    Reason.PREEMPTION_NO_VICTIM: "leave already, require their node, or have nothing of what it needs",
}
"""The words after the number of allocations, by code."""


def _examine_reach(state: PartitionState, leaf: Queue, ask: Allocation, now: float) -> Reach:
    """Count the allocations within reach, by the checks of `find_victim_candidates`."""
    wanted, guarantees = drop_zeros(ask.resources), Guarantees(leaf)
    priorities, protected = reach_of(leaf, wanted, ask.priority), state.preemptions.protected(now, leaf, wanted)
    kinds, fence = wanted.keys(), next(reversed(priorities))
    found = Reach(fence=None if fence.parent is None else fence)
    for queue, limit in areas(priorities):
        shield = find_shield(queue, guarantees, protected)
        for application_id in queue.applications:
            running = state.applications[application_id].allocations
            if shield is Reason.PREEMPTION_COOLDOWN and running:
                found.cooldown_s = min(found.cooldown_s, protected[queue.path])
            for one in running.values():
                if shield is not None:
                    found.protected[shield] += 1
                elif one.released or one.preempted or one.shape.required_node or kinds.isdisjoint(one.resources):
                    found.protected[Reason.PREEMPTION_NO_VICTIM] += 1
                elif limit is not None and one.priority > limit:
                    found.protected[Reason.PREEMPTION_PRIORITY] += 1
                else:
                    found.candidates += 1
            if found.total > REACH_MAX:
                found.is_cut = True
                return found
    if not guarantees.taker.covers(wanted):
        candidates = find_victim_candidates(state.applications, priorities, guarantees, wanted, protected)
        found.too_large = [one.key for one, giver in candidates if _is_too_large(state, one, giver, wanted)]
    return found


def _is_too_large(state: PartitionState, one: Allocation, giver: Giver, wanted: Resources) -> bool:
    node = state.nodes.get(one.node_id)
    available = {} if node is None else node.available
    lacked = [kind for kind, amount in wanted.items() if available.get(kind, 0) < amount]
    return not giver.may_enter([(kind, one.resources.get(kind, 0)) for kind in lacked or wanted])
