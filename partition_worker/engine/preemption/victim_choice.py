"""Preemption: when an ask may look for victims, which victims are chosen, and what happens to them.

An ask that found no room looks for victims once it has waited for the preemption delay of its queue, and repeats that
from time to time. The victims are marked, the RM is asked to release them, and the freed room is reserved for the ask.

Choice of the node and the victims, for an ask whose queue is below its guarantee; it changes no state:

    1. Candidates are the unprotected allocations within reach (`victim_candidates.py`).
    2. The ask must fit the guarantee of its queue, now or without all candidates.
    3. The node is the one with the fewest victims, preferably none that did not agree to be preempted
       (`node_choice.py`); an RM may decide whether the ask would run there without them. No victim is larger than what
       remains of the guarantee, unless only such victims make room, or others that did not agree, and the ask is
       within its guarantee.
    4. Further victims are added if the queues of the ask have no room without them, by the same rule. If that is
       impossible, and the ask is within its guarantee, step 3 is repeated without the node.
    5. Others are added as long as they fit the guarantee, if all together then cover the whole ask.

Step 5 is YuniKorn's, which takes victims for the whole ask even if the node has some room, or else none at all. The
last victim of a queue may leave it below its guarantee, because the queue is checked before the victim leaves. Other
differences: the collection on a node ends when all types that are missing there are covered, not one of them
twice; and the preemption cooldown protects queues that took from the queue of the ask (`preemption_log.py`).

YuniKorn goes through the candidates of a node a second time without charging the queue of the ask. This module goes
through them once, and charges that queue only where the size of a candidate counts: its own queue has to exceed the
guarantees once the victims before it have left.

Victims for a required node (daemon sets) are chosen at the end of this file: only that node counts. Guarantees, queues,
fences and disabled preemption protect no allocation there. Such an ask is never a victim itself, so no preemption
cooldown applies.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.rm_messages import PREEMPTED_BY_SCHEDULER
from yunishard.common.resources import add_to, covers, drop_zeros, fits, plus
from yunishard.partition_worker.engine import events, ledger, reservations
from yunishard.partition_worker.engine.allocation import Allocation, AskGroup
from yunishard.partition_worker.engine.amounts import amounts_of
from yunishard.partition_worker.engine.application import Application, find_queue_lack
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.preemption.node_choice import (
    Choice,
    LargerOption,
    choose_node_of_larger_victims,
    choose_node_with_rm,
    find_usable_nodes,
    list_choices,
    list_larger_options,
    pick_larger_victims,
    pick_victims,
    reluctance_of,
)
from yunishard.partition_worker.engine.preemption.victim_candidates import (
    Candidate,
    Giver,
    Guarantees,
    GuaranteeShare,
    find_victim_candidates,
    reach_of,
)
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.state import PartitionState, Preempt

WINDOW_S: Final = 0.1
"""Seconds in which the attempts of a leaf are counted together, the length of a cycle in YuniKorn. After a preemption
all asks wait for as long, or until the ask is placed: an RM that releases the victims at once frees the node.
"""

TRIED_MAX: Final = 1024
"""Failed ask shapes that a leaf stores, with the time; beyond it all are dropped."""

NODES_MAX: Final = 10
"""Nodes that an ask within its guarantee tries one after the other, if the victims on a node leave its queues without
room and no others make up for that. Each try looks at all nodes and candidates again, so without a limit a search that
fails would take the square of their number. Beyond it the search fails.
"""

CHECKS_PER_ATTEMPT: Final = 16
"""Nodes and candidates that a search looks at in the time of one failed attempt, 20 to 30 µs. A turn ends once the
attempts that it is allowed are used up: the search in progress is its last one.
"""

ATTEMPTS_PER_LEAF: Final = 10
"""Attempts of the asks of one leaf to find victims in one cycle."""


def attempt(
    state: PartitionState, application: Application, group: AskGroup, *, nodes_tried: bool
) -> Preempt | Reason | None:
    """Look for victims for the first ask of a group, if it may; with `nodes_tried` no node has room for it. Return why
    there are none; None if no search may be made now.
    """
    leaf = application.queue
    if not state.config.preemption.is_enabled or state.now < state.preemptions.pause_until:
        return None
    if state.now >= leaf.preemption_window + WINDOW_S:
        leaf.preemption_window, leaf.preemption_attempts = state.now, 0
    plan: Preempt | Reason | None = find_obstacle(state, leaf, group, state.now)
    if plan is not None and plan is not Reason.PREEMPTION_CLUSTER_UNUSED:
        return plan
    if leaf.preemption_attempts >= ATTEMPTS_PER_LEAF:
        leaf.preemption_attempts += 1  # `next_search` gives each ATTEMPTS_PER_LEAF of them a later window
        return Reason.PREEMPTION_ATTEMPTS
    if plan is None:
        plan = plan_victims(state, application, group.head, nodes_tried=nodes_tried)
        leaf.preemption_attempts += 1
    if isinstance(plan, Reason) and plan is not Reason.VERDICT_PENDING:  # it begins again with the RM's answer
        # what failed for one ask would fail for each like it in the leaf
        if len(leaf.preemption_tried) >= TRIED_MAX:
            leaf.preemption_tried.clear()
        leaf.preemption_tried[group.shape, group.priority] = state.now
        is_tried = plan is not Reason.PREEMPTION_CLUSTER_UNUSED
        if is_tried and state.preemptions.protected(state.now, leaf, group.head.resources):
            state.preemptions.held_back += 1
    return plan


def waits_for_search(state: PartitionState, leaf: Queue, group: AskGroup) -> bool:
    """Whether victims may be sought for a group later. Not if its search waits for the RM: it is tried again with
    the answer.
    """
    if not (state.config.preemption.is_enabled and is_eligible(group) and may_ever_help(leaf)):
        return False
    return group.head.key not in state.nodes.predicates.verdicts.searching


def next_search(state: PartitionState, leaf: Queue, group: AskGroup) -> float:
    """Return when victims may be sought for the asks of a group that have waited for the preemption delay, in Unix
    seconds. It is the same for all of their shape and priority in the leaf.
    """
    at = max(pause_end(state, leaf, group), state.preemptions.pause_until)
    windows = (leaf.preemption_attempts - 1) // ATTEMPTS_PER_LEAF  # those beyond the limit have a later window
    return max(at, leaf.preemption_window + windows * WINDOW_S) if windows > 0 else at


def apply_preemption(state: PartitionState, decision: Preempt) -> None:
    """Mark the victims, ask the RM to release them, and reserve the node for the ask."""
    application, ask = decision.application, decision.ask
    for reservation in decision.cancels:
        reservations.cancel(state, reservation)
    leaves = [state.applications[victim.application_id].queue for victim in decision.victims]
    if decision.victims:  # otherwise only reservations ended. Not marked yet: those that are count as gone in deficits
        state.changes.preemptions.append(state.preemptions.record(state.now, ask, decision.node, decision.victims))
    state.changes.cooldowns.update(state.preemptions.cooldowns.drain_changed())
    state.changes.queues.update((level.path, None) for leaf in leaves for level in leaf.ancestry())
    state.preemptions.pause(ask, state.now + WINDOW_S)
    for victim in decision.victims:
        ledger.mark_preempted(state, state.applications[victim.application_id], victim)
        told = f"Preempted by {ask.key} from application {ask.application_id} in {application.queue.path}"
        events.record_request(state, victim, told)
    reservation = reservations.reserve(state, application, ask, decision.node)
    reservations.keep_victims_room(state, reservation)
    what = "daemon set ask" if reservation.for_required_node else "ask"
    reason = f"preempting allocations to free up resources to run {what}: {ask.key}"
    for victim in decision.victims:
        state.emit(victim.release(state.name, reason, PREEMPTED_BY_SCHEDULER))


def retry_pause_s(state: PartitionState) -> float:
    """Return how long an ask waits after a failed attempt, in seconds; never less than a window."""
    return max(state.tuning.preemption_pause_s, WINDOW_S)


def find_obstacle(state: PartitionState, leaf: Queue, group: AskGroup, now: float) -> Reason | None:
    """Return why victims may not be sought for the first ask of a group now; None if they may, as far as the attempts
    of its leaf suffice.
    """
    if not is_eligible(group):
        return Reason.PREEMPTION_NOT_ALLOWED
    if delay_end(leaf, group) > now:
        return Reason.PREEMPTION_DELAY
    if max(pause_end(state, leaf, group), state.preemptions.pause_until) > now:
        return Reason.PREEMPTION_PAUSE
    return None if is_cluster_used(state) else Reason.PREEMPTION_CLUSTER_UNUSED


def is_cluster_used(state: PartitionState) -> bool:
    """Whether so much of the cluster is used that asks preempt."""
    root, threshold = state.tree.root, state.tuning.preemption_threshold
    return any(root.allocated.get(kind, 0) >= threshold * size for kind, size in (root.maximum or {}).items())


def is_eligible(group: AskGroup) -> bool:
    """Whether the asks of a group may preempt others."""
    return group.may_preempt and not group.shape.required_node


def delay_end(leaf: Queue, group: AskGroup) -> float:
    """Return when the first ask of a group has waited for the preemption delay, in Unix seconds."""
    return group.head.created_ns / 1e9 + leaf.policies.preemption_delay_s


def pause_end(state: PartitionState, leaf: Queue, group: AskGroup) -> float:
    """Return when the pause after a search for the asks of a group ends, in Unix seconds; 0.0 without a search."""
    tried_at = leaf.preemption_tried.get((group.shape, group.priority))
    return 0.0 if tried_at is None else tried_at + retry_pause_s(state)


# Choice of the victims ------------------------------------------------------------------------------------------------


def may_ever_help(leaf: Queue) -> bool:
    """Whether the queue, or one above it, has a guarantee; if not, no ask of it ever gets victims."""
    return any(level.guaranteed for level in leaf.ancestry())


def plan_victims(
    state: PartitionState, application: Application, ask: Allocation, *, nodes_tried: bool
) -> Preempt | Reason:
    """Return the victims for an ask, or the reason why there are none.

    With `nodes_tried` no node with room took the ask; otherwise its queues had no room. Costs a check of each queue and
    node, and of each allocation that may be a victim; nothing if the queue has all of its own guarantee. Raises
    WorkSpent at the limit of the work of a turn.
    """
    wanted, leaf = drop_zeros(ask.resources), application.queue
    guarantees = Guarantees(leaf)
    taker = guarantees.taker
    if not (may_ever_help(leaf) and guarantees.may_cover(wanted)):
        return Reason.PREEMPTION_GUARANTEE_USED
    limit = state.nodes.predicates.begin_search(ask.shape)
    protected = state.preemptions.protected(state.now, leaf, wanted)
    priorities = reach_of(leaf, wanted, ask.priority)
    candidates = find_victim_candidates(state.applications, priorities, guarantees, wanted, protected)
    if not _is_guaranteed(taker, wanted, candidates):
        return Reason.PREEMPTION_GUARANTEE_USED
    search = _Search(state, application, ask, wanted, taker, candidates, taker.covers(wanted), limit)
    usable, ending = find_usable_nodes(state.nodes, leaf, ask, wanted)
    state.readiness.attempts_left -= (len(state.nodes) + len(candidates)) / CHECKS_PER_ATTEMPT
    free, reserved = _Pool(usable, nodes_tried), _Pool(ending, nodes_tried=False)
    failure = Reason.PREEMPTION_NO_VICTIM
    for _ in range(NODES_MAX):
        state.readiness.attempts_left -= len(candidates) / CHECKS_PER_ATTEMPT
        choice = search.choose_node(free)
        if choice is None and reserved.usable:
            choice = search.choose_node(reserved)
        if choice is None or isinstance(choice, Reason):
            return choice or failure
        node, there = choice
        cancels = tuple([one for one in node.reservations.values() if one.ask is not ask])
        if cancels and not there and search.find_queue_lack([]) is None:
            return Preempt(application, ask, node, (), cancels)
        victims = search.choose_victims(node, there)
        if not isinstance(victims, Reason):
            return Preempt(application, ask, node, tuple(victims), cancels)
        failure = victims
        if not (there and search.may_exceed):
            break
        for pool in (free, reserved):
            pool.drop(node)
    return failure


def _is_guaranteed(taker: GuaranteeShare, wanted: Resources, candidates: list[Candidate]) -> bool:
    """Whether the ask fits the remaining guarantee of its queue, now or once all candidates are gone."""
    if taker.covers(wanted):
        return True
    leaving: dict[Giver, Resources] = {}
    for allocation, giver in candidates:
        add_to(leaving.setdefault(giver, {}), allocation.resources)
    for giver, amounts in leaving.items():
        giver.leave(amounts_of(amounts))
    is_covered = taker.covers(wanted)
    for giver, amounts in leaving.items():
        giver.leave(amounts_of(amounts), -1)
    return is_covered


# The victims ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Pool:
    """Nodes that a search may free, and what it has found out about them: trying the next node costs no second look at
    all nodes and candidates.
    """

    usable: dict[str, Node]
    nodes_tried: bool
    """Whether nodes with room did not take the ask."""
    is_checked: bool = False
    """Whether all of them accept the ask; False before the first look."""
    larger: list[LargerOption] | None = None
    """The options of larger victims; None before the first look."""
    choices: Iterator[Choice] | None = None
    """Those without victims that are too large; None before the first look."""
    choice: Choice | None = None
    """The first of these whose node was not dropped; None at the end of them."""

    def drop(self, node: Node) -> None:
        """Leave out a node that was tried."""
        self.usable.pop(node.node_id, None)
        if self.choices is not None and self.choice is not None and self.choice[0] is node:
            self.choice = next(self.choices, None)


@dataclass(slots=True)
class _Search:
    """An ask that looks for victims."""

    state: PartitionState
    application: Application
    ask: Allocation
    wanted: Resources
    taker: GuaranteeShare
    candidates: list[Candidate]
    may_exceed: bool
    """Whether candidates may be chosen that are larger than what remains of the guarantee."""
    limit: float
    """Of the work of the search."""
    are_larger: bool = False
    """Whether such candidates are chosen on the node."""

    @property
    def asks_rm(self) -> bool:
        """Whether the RM decides which victims on a node are enough."""
        constraint = self.ask.shape.constraint
        return self.state.nodes.predicates.asks_about_victims and constraint is not None and bool(constraint.asked)

    def choose_node(self, pool: "_Pool") -> Choice | Reason | None:
        """Return the node to free, of a pool, with the victims on it; VERDICT_PENDING if the RM has to answer
        first, and None if none can be freed. Raises WorkSpent.
        """
        ask, wanted, candidates, nodes_tried = self.ask, self.wanted, self.candidates, pool.nodes_tried
        nodes, predicates = self.state.nodes, self.state.nodes.predicates
        choice: Choice | Reason | None
        self.are_larger = False
        self._check(pool)
        if self.asks_rm:
            choice = choose_node_with_rm(predicates, pool.usable, ask, wanted, candidates, nodes_tried=nodes_tried)
        else:
            if pool.choices is None:
                pool.choices = list_choices(nodes, pool.usable, ask, wanted, candidates, nodes_tried=nodes_tried)
                pool.choice = next(pool.choices, None)
            choice = pool.choice
        if self.may_exceed and (choice is None or (not isinstance(choice, Reason) and any(reluctance_of(choice[1])))):
            deciding = predicates if self.asks_rm else None
            if pool.larger is None:
                pool.larger = list_larger_options(pool.usable, wanted, candidates)
            larger = choose_node_of_larger_victims(pool.larger, pool.usable, ask, choice, deciding)
            if larger is not None:
                self.are_larger = True
                return larger
        return choice

    def _check(self, pool: _Pool) -> None:
        """Drop the nodes of a pool that do not accept the ask, unless that was done."""
        nodes, shape, limit = self.state.nodes, self.ask.shape, self.limit
        if pool.is_checked or (shape.constraint is None and not nodes.ever_guarded):
            return
        if self.asks_rm and shape.constraint is not None:
            accepts = partial(nodes.predicates.meets, shape.constraint.demands, limit=limit)
        else:
            accepts = partial(nodes.is_accepted, shape, allocate=False, limit=limit)
        pool.usable = {node_id: node for node_id, node in pool.usable.items() if accepts(node)}
        pool.is_checked = True

    def choose_victims(self, node: Node, there: list[Candidate]) -> list[Allocation] | Reason:
        """Return all victims, those on the node first, or why there are none. Only if that is for want of room in the
        queues, the guarantees may be used again; otherwise nothing is undone.

        There are none if candidates elsewhere may leave, and the queue of the ask would then have more than its
        guarantee of anything that is wanted. It has so before these leave, or never: what enters is covered.
        """
        wanted = self.wanted
        chosen = [allocation for allocation, _ in there]
        keys = {allocation.key for allocation in chosen}
        for allocation, giver in there:
            giver.leave(allocation.shape.amounts)
        more = self._list_further(keys, self.candidates)
        is_exceeded = not self.taker.covers(dict.fromkeys(wanted, 0))
        first = next(more, None) if is_exceeded or not chosen else None
        if is_exceeded and first is not None:
            return Reason.PREEMPTION_NO_VICTIM
        fewest = self._add_for_queues(chosen, keys)
        if not fewest:
            for allocation, giver in there:
                giver.leave(allocation.shape.amounts, -1)
            return Reason.PREEMPTION_TOO_LITTLE if chosen else Reason.PREEMPTION_NO_VICTIM
        if self.are_larger:
            return fewest
        if chosen:  # as the ask has no room on the node yet, only candidates up to the last one there count
            ends = [0]
            others = enumerate(self.candidates, 1)
            ends += (at for at, (one, _) in others if one.node_id == node.node_id and one.key not in keys)
            more = self._list_further(keys, islice(self.candidates, ends[-1]))
        elif first is not None:
            chosen = [first]
        victims = _take_enough(wanted, node, chain(chosen, more), len(there) if self.asks_rm else 0)
        return victims if victims and self.find_queue_lack(victims) is None else fewest

    def _list_further(self, chosen: set[str], candidates: Iterable[Candidate]) -> Iterator[Allocation]:
        """Yield further victims, on any node, until the queue of the ask has its guarantee. One that was returned
        counts only when the next one is requested.
        """
        bounds = self.taker.bounds
        for allocation, giver in candidates:
            if not giver.may_leave() or allocation.key in chosen:
                continue
            amounts = allocation.shape.amounts
            if not giver.may_enter(amounts.items):
                return
            if any(amount and kind in bounds for kind, amount in amounts.items):
                yield allocation
                giver.move(amounts)

    def _add_for_queues(self, chosen: list[Allocation], keys: set[str]) -> list[Allocation]:
        """Return these victims, and as few others as make room in the queues of the ask; none if that is impossible, or
        if there is nothing to do but to wait for earlier victims.
        """
        lack = self.find_queue_lack(chosen)
        if lack is None:
            return chosen
        level, missing = lack
        applications = self.state.applications
        others = [
            (one, giver)
            for one, giver in self.candidates
            if one.key not in keys
            and any(one.resources.get(kind) for kind in missing)
            and level in applications[one.application_id].queue.ancestry()
        ]
        more = pick_victims(missing, others)
        if self.may_exceed:
            more = pick_larger_victims(missing, others, self.wanted) or more
        return [*chosen, *[one for one, _ in more]] if more else []

    def find_queue_lack(self, victims: list[Allocation]) -> tuple[Queue, Resources] | None:
        """Return which queue of the ask has no room for it without these victims, and what is missing there."""
        leaf, amounts = self.application.queue, self.ask.shape.amounts
        return find_queue_lack(self.state.applications, leaf, amounts, victims)


def _take_enough(wanted: Resources, node: Node, offered: Iterable[Allocation], required: int) -> list[Allocation]:
    """Return the first of these victims that cover what is wanted, at least `required`; none if all do not. Victims on
    other nodes count only if the ask has room on its own. Those on its node are taken until it has room there, or they
    would be useless.
    """
    room = dict(node.available)
    anywhere = has_room = fits(room, wanted)
    is_short = True
    victims: list[Allocation] = []
    total: Resources = {}
    for victim in offered:
        is_here = victim.node_id == node.node_id
        if len(victims) < required or (is_here and not has_room) or ((is_here or anywhere) and is_short):
            victims.append(victim)
            add_to(total, victim.resources)
            if is_here:
                add_to(room, victim.resources)
                has_room = fits(room, wanted)
            counted = [(total[kind], amount) for kind, amount in wanted.items() if kind in total]
            is_short = not counted or (all(n <= most for n, most in counted) and any(n < most for n, most in counted))
            if has_room and not is_short and len(victims) >= required:
                break
    return [] if is_short else victims


# Required nodes -------------------------------------------------------------------------------------------------------


def plan_required_node_victims(
    applications: Mapping[str, Application], leaf: Queue, node: Node, ask: Allocation
) -> list[Allocation]:
    """Return the victims in order of release: as many as cover the whole ask and leave room for it on the node, or
    else all candidates if they and the room there cover it; empty if they do not. Allocations that agreed to be
    preempted come first, then others, then originators; of equals the one with the lowest priority, the newest, the
    smallest. If these leave a queue of the ask without room, those below it come before all others.
    """
    wanted, amounts = ask.resources, ask.shape.amounts
    candidates = [
        one
        for one in node.allocations.values()
        if not (one.shape.required_node or one.released or one.preempted)
        and one.priority <= ask.priority
        and not one.resources.keys().isdisjoint(wanted)
    ]

    def reluctance(one: Allocation) -> tuple[int, int, int, int]:
        sort = 2 if one.originator else 0 if one.may_be_victim else 1
        return sort, one.priority, -one.created_ns, sum(one.resources.values())

    candidates.sort(key=reluctance)
    chosen = next(_list_sufficient(candidates, wanted, node), [])
    lack = find_queue_lack(applications, leaf, amounts, chosen) if chosen else None
    if lack is None:
        return chosen
    candidates.sort(key=lambda one: lack[0] not in applications[one.application_id].queue.ancestry())
    for chosen in _list_sufficient(candidates, wanted, node):
        if find_queue_lack(applications, leaf, amounts, chosen) is None:
            return chosen
    return []


def _list_sufficient(candidates: Sequence[Allocation], wanted: Resources, node: Node) -> Iterator[list[Allocation]]:
    """Yield the first candidates, ever more of them, as soon as they leave room for what is wanted on the node, and
    cover it or are all there are.
    """
    total: Resources = {}
    for number, one in enumerate(candidates, 1):
        add_to(total, one.resources)
        is_covered = covers(total, wanted) or number == len(candidates)
        if is_covered and fits(plus(total, node.available), wanted):
            yield list(candidates[:number])
