"""Preemption attempts: when an ask may look for victims, and what happens to the victims.

An ask that found no room looks for victims once it has waited for the preemption delay of its queue, and repeats that
from time to time. `victim_choice.py` chooses them without changing state. This module marks them, asks the RM to
release them and reserves the freed room for the ask.

Victims for a required node (daemon sets) are chosen here: only that node counts. Guarantees, queues, fences and
disabled preemption protect no allocation there. Such an ask is never a victim itself, so no preemption cooldown
applies.
"""

from typing import Final

from common.messages import Resources
from common.resources import add_to, minus, plus
from common.rm_messages import PREEMPTED_BY_SCHEDULER
from common.wire import NEVER
from partition_worker.engine import events, ledger, reservations
from partition_worker.engine.allocation import Allocation, AskGroup
from partition_worker.engine.application import Application
from partition_worker.engine.nodes.node_index import Node
from partition_worker.engine.preemption import victim_choice
from partition_worker.engine.preemption.victim_choice import ATTEMPTS_PER_LEAF, NO_HELP
from partition_worker.engine.queues.queue import Queue, Tried
from partition_worker.engine.state import PartitionState, Preempt

WINDOW_S: Final = 0.1
"""Seconds in which the attempts of a leaf are counted together, the length of a cycle in YuniKorn. After a preemption
all asks wait for as long, or until the ask is placed: an RM that releases the victims at once frees the node.
"""

TRIED_MAX: Final = 1024
"""Failed ask shapes that a leaf stores, with the time; beyond it all are dropped."""

EXHAUSTED: Final = "Preemption max attempts exhausted"
PRECONDITIONS: Final = "Preemption preconditions failed"
NOT_USED_ENOUGH: Final = "Preemption waits until more of the cluster is used"
NO_HELP_ON_REQUIRED_NODE: Final = "No fit on required node, preemption does not help"


def attempt(state: PartitionState, application: Application, group: AskGroup, *, nodes_tried: bool) -> Preempt | None:
    """Look for victims for the first ask of a group, if it may; with `nodes_tried` no node has room for it."""
    if not state.config.preemption.is_enabled:
        return None
    if state.now < state.preemptions.pause_until:
        if _is_eligible(group):
            state.preemptions.turn_away(application.application_id)
        return None
    plan = _plan(state, application, group, nodes_tried=nodes_tried)
    if isinstance(plan, str):
        for reason in dict.fromkeys((plan, NO_HELP)):
            group.note(reason, state.now)
        return None
    return plan


def next_attempt(state: PartitionState, leaf: Queue, group: AskGroup) -> float:
    """Return when the first ask of a group may look for victims, in Unix seconds; NEVER if that cannot help."""
    if not (state.config.preemption.is_enabled and _is_eligible(group) and victim_choice.may_ever_help(leaf)):
        return NEVER
    at = max(_due(state, leaf, group), state.preemptions.pause_until)
    windows = leaf.preemption_attempts // ATTEMPTS_PER_LEAF  # asks beyond the limit come back in a later window
    return max(at, leaf.preemption_window + windows * WINDOW_S) if windows else at


def apply_preemption(state: PartitionState, decision: Preempt) -> None:
    """Mark the victims, ask the RM to release them, and reserve the node for the ask."""
    application, ask = decision.application, decision.ask
    for reservation in decision.cancels:
        reservations.cancel(state, reservation)
    state.preemptions.record(state.now, ask, decision.node, decision.victims)
    state.preemptions.pause(ask, state.now + WINDOW_S)
    for victim in decision.victims:
        ledger.mark_preempted(state, state.applications[victim.application_id], victim)
        events.record_preemption(state, victim, ask, application.queue)
    reservation = reservations.reserve(state, application, ask, decision.node)
    ask.preemption_triggered = True
    application.asks.regroup(ask)
    reservations.keep_room(state, reservation)
    what = "daemon set ask" if reservation.for_required_node else "ask"
    reason = f"preempting allocations to free up resources to run {what}: {ask.key}"
    for victim in decision.victims:
        state.emit(victim.release(state.name, reason, PREEMPTED_BY_SCHEDULER))


def retry_pause_s(state: PartitionState) -> float:
    """Return how long an ask waits after a failed attempt, in seconds; never less than a window."""
    return max(state.tuning.preemption_pause_s, WINDOW_S)


def _plan(state: PartitionState, application: Application, group: AskGroup, *, nodes_tried: bool) -> Preempt | str:
    leaf = application.queue
    if state.now >= leaf.preemption_window + WINDOW_S:
        leaf.preemption_window, leaf.preemption_attempts = state.now, 0
    if not _is_eligible(group) or _due(state, leaf, group) > state.now:
        return PRECONDITIONS
    if leaf.preemption_attempts >= ATTEMPTS_PER_LEAF:
        leaf.preemption_attempts += 1
        return EXHAUSTED
    plan: Preempt | str = NOT_USED_ENOUGH
    if _is_used_enough(state):
        leaf.preemption_attempts += 1
        plan = victim_choice.plan_victims(state, application, group.head, nodes_tried=nodes_tried)
    if isinstance(plan, str):  # what failed for one ask would fail for each like it in the leaf
        if len(leaf.preemption_tried) >= TRIED_MAX:
            leaf.preemption_tried.clear()
        tags = {} if group.shape.constraint is None else group.head.tags
        leaf.preemption_tried[group.shape, group.kind.priority] = Tried(state.now, tags)
        if plan != NOT_USED_ENOUGH and state.preemptions.protected(state.now, leaf, group.head.resources):
            state.preemptions.held_back += 1
    return plan


def _is_used_enough(state: PartitionState) -> bool:
    """Whether the cluster is used as much as the threshold of preemption demands, in any type."""
    root, threshold = state.tree.root, state.tuning.preemption_threshold
    return any(root.allocated.get(kind, 0) >= threshold * size for kind, size in (root.maximum or {}).items())


def _is_eligible(group: AskGroup) -> bool:
    return group.kind.may_preempt and not group.shape.required_node


def _due(state: PartitionState, leaf: Queue, group: AskGroup) -> float:
    waited = group.head.created_ns / 1e9 + leaf.policies.preemption_delay_s
    tried = leaf.preemption_tried.get((group.shape, group.kind.priority))
    return waited if tried is None else max(waited, tried.at + retry_pause_s(state))


# Required nodes -------------------------------------------------------------------------------------------------------


def plan_required_node_victims(node: Node, ask: Allocation) -> list[Allocation]:
    """Return the victims in order of release: as many as cover the whole ask, or else all candidates if they and the
    room on the node do; empty if they do not.
    """
    wanted = ask.resources
    candidates = (one for one in node.allocations.values() if _is_candidate(one, ask))
    chosen: list[Allocation] = []
    total: Resources = {}
    for one in sorted(candidates, key=_reluctance):
        if _covers(total, wanted):
            break
        chosen.append(one)
        add_to(total, one.resources)
    return chosen if _covers(plus(total, node.available), wanted) else []


def _is_candidate(one: Allocation, ask: Allocation) -> bool:
    return (
        not (one.shape.required_node or one.released or one.preempted)
        and one.priority <= ask.priority
        and not one.resources.keys().isdisjoint(ask.resources)
    )


def _reluctance(one: Allocation) -> tuple[int, int, int, int]:
    """The sort key of victims: first those that agreed to be preempted, then others, then originators; of equals the
    lowest priority, the newest, the smallest.
    """
    sort = 2 if one.originator else 0 if one.may_be_victim else 1
    return (sort, one.priority, -one.created_ns, sum(one.resources.values()))


def _covers(amount: Resources, wanted: Resources) -> bool:
    """Whether there is at least as much of every type, and a negative amount of none."""
    return all(value >= 0 for value in minus(amount, wanted).values())
