"""Remedies: the smallest changes after which an ask would run.

The promise of a remedy: take a copy of the partition in which nothing else arrives, make the changes of the remedy, let
the seconds pass that it names, and let the RM confirm every release that the scheduler asks for. Then the ask gets its
node, unless asks that are tried before it (`turn.py`) get what the change freed: their nodes, or reservations. A new
explanation then has new remedies; as every remedy places at least one ask or gives it a reservation, the last one
places this one. Without a change, the ask does not run in that copy.

Amounts are minimal for the ask alone: with less, it does not run unless others make room for it. They are computed from
the failed checks, so remedies and checks never disagree. A remedy has several changes if several checks fail. There is
none where no change can be promised to help: while the partition decides nothing, while the RM is to confirm a release
or to answer about predicates, and for asks behind others in a queue that backs off.

The remedies for limits and queues are the same for all remedies of an ask; for nodes there are alternatives: grow the
nearest, open a drained one, add one. Instead of all this, an allocation may end, or a timer may free placeholders.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from msgspec.structs import asdict, replace

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import Reason, Remedy
from yunishard.common.names import NODE_PARTITION
from yunishard.common.resources import fits, minus, total_of
from yunishard.common.rest.explain import ChangeView, CheckView, RemedyView
from yunishard.common.text_formats import format_count, format_resources, format_seconds
from yunishard.partition_worker.engine.allocation import Allocation, AskGroup
from yunishard.partition_worker.engine.application import ACTIVE, Application, AppState
from yunishard.partition_worker.engine.attempt_log import LIMITS_FULL
from yunishard.partition_worker.engine.explain.node_checks import NodeSurvey
from yunishard.partition_worker.engine.explain.preemption_checks import PreemptionOutlook
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.predicates.predicate import NodeView
from yunishard.partition_worker.engine.state import PartitionState
from yunishard.partition_worker.engine.wait_causes import compare_with_size

REMEDIES_MAX: Final = 8
"""Remedies of an ask, the smallest ones."""

RELEASES_MAX: Final = 5_000
"""Allocations whose end is considered as a remedy, about 10 ms; those beyond are not suggested."""

_GROWN_MAX: Final = 2
"""Nodes that are suggested to grow, and nodes that are suggested to open."""

_NODE_REASONS: Final = frozenset(
    {
        *(Reason.CLUSTER_FULL, Reason.NO_NODE_FITS, Reason.RESERVED_NODE_FULL, Reason.REQUIRED_NODE_MISSING),
        *(Reason.REQUIRED_NODE_TOO_SMALL, Reason.REQUIRED_NODE_FULL),
    }
)
"""Failed checks that a change of nodes corrects."""

_RAISES: Final = {
    Reason.QUEUE_MAXIMUM: Remedy.RAISE_QUEUE_MAXIMUM,
    Reason.USER_LIMIT: Remedy.RAISE_USER_LIMIT,
    Reason.GROUP_LIMIT: Remedy.RAISE_GROUP_LIMIT,
    Reason.QUEUE_APPLICATION_LIMIT: Remedy.RAISE_QUEUE_APPLICATIONS,
    Reason.USER_APPLICATION_LIMIT: Remedy.RAISE_USER_APPLICATIONS,
    Reason.GROUP_APPLICATION_LIMIT: Remedy.RAISE_GROUP_APPLICATIONS,
}
"""Failed checks that a higher maximum corrects."""

_LIMIT_REASONS: Final = LIMITS_FULL | {Reason.QUEUE_MAXIMUM}
_COUNT_REASONS: Final = _RAISES.keys() - _LIMIT_REASONS
_SOLVED: Final = _NODE_REASONS | {*_RAISES, Reason.BACK_OFF, Reason.STATE_AWARE_TURN, Reason.QUEUE_STOPPED}


@dataclass(slots=True)
class StuckAsk:
    """An ask that waits, and what was found about it."""

    state: PartitionState
    application: Application
    group: AskGroup
    ask: Allocation
    """Of its group the first one, or the one whose reservation is looked at."""
    now: float
    failed: list[CheckView]
    """The checks that failed, without preemption."""
    survey: NodeSurvey
    """Empty for an ask that requires a node."""
    outlook: PreemptionOutlook | None = None

    @property
    def codes(self) -> frozenset[str]:
        return frozenset(one.code for one in self.failed)

    def list_short_nodes(self) -> list[Node]:
        """Return nodes that take the ask once they have more room, the nearest first."""
        ask, codes = self.ask, (Reason.NODE_FULL, Reason.NODE_TOO_SMALL)
        if not ask.shape.required_node:
            return [node for node, miss in self.survey.nearest if miss.code in codes]
        node, queue = self.state.nodes.get(ask.shape.required_node), self.application.queue
        is_open = node is not None and (ask.key in node.reservations or node.gives_way_to(queue, ask.priority))
        return [node] if node is not None and is_open else []


def find_remedies(stuck: StuckAsk) -> list[RemedyView]:
    """Return the remedies of an ask, the smallest first."""
    codes = stuck.codes
    if not codes or not codes <= _SOLVED or _is_behind_in_back_off(stuck):
        return []
    base, nodes = _list_base_changes(stuck), codes & _NODE_REASONS
    changes = tuple([one for one in base if one is not None])
    found: list[tuple[ChangeView, ...]] = []
    if len(changes) == len(base):
        found += [(*changes, node) for node in _list_node_changes(stuck)] if nodes else [changes]
    found += [(one,) for one in _list_waits_and_ends(stuck)]
    found.sort(key=lambda one: (len(one), _RANKS[one[0].code], _measure_all(stuck, one)))
    return [_describe(stuck, changes) for changes in found[:REMEDIES_MAX]]


def _is_behind_in_back_off(stuck: StuckAsk) -> bool:
    """Whether asks before it may make the application back off again before the ask is tried."""
    if not stuck.application.queue.policies.back_off_after or stuck.ask.reserved:
        return False
    return stuck.application.asks.first_group is not stuck.group


# Limits, queues and times ---------------------------------------------------------------------------------------------


def _list_base_changes(stuck: StuckAsk) -> list[ChangeView | None]:
    """Return the changes that correct the failed checks of limits, queues and times, one for each queue and name; None
    for a check that cannot be corrected.
    """
    found: list[ChangeView | None] = []
    raised: dict[tuple[str, str, str, str], Resources] = {}
    for check in stuck.failed:
        code, resource = Reason(check.code), check.resource
        if code in _RAISES:
            place = check.code, check.queue, check.user, check.group
            if place not in raised:
                # The limit that binds a user may be the one for each user, `*`.
                user = stuck.state.usage.users.limited_name(check.user, check.queue) if check.user else ""
                raised[place] = {}
                found.append(
                    ChangeView(
                        code=_RAISES[code],
                        queue=check.queue,
                        user=user,
                        group=check.group,
                        amounts=raised[place],  # other types of the same limit follow
                        applications=0 if resource else check.shortfall,
                    )
                )
            if resource:
                raised[place][resource] = check.shortfall
        elif code is Reason.QUEUE_STOPPED:
            found.append(ChangeView(code=Remedy.START_QUEUE, queue=check.queue))
        elif code is Reason.BACK_OFF:
            found.append(ChangeView(code=Remedy.WAIT, seconds=stuck.application.back_off_until - stuck.now))
        elif code is Reason.STATE_AWARE_TURN:
            found.append(_wait_for_turn(stuck))
    return found


def _wait_for_turn(stuck: StuckAsk) -> ChangeView | None:
    """Wait until the applications that are starting run, if it is the turn of this one then."""
    turns = stuck.state.readiness.turns.leaves.get(stuck.application.queue.rank)
    if turns is None or not turns.starting or turns.accepted.first() is not stuck.application:
        return None
    ends = [(one.alarms["state"].at, one.application_id) for one in turns.starting.values() if "state" in one.alarms]
    if len(ends) < len(turns.starting):
        return None
    at, last = max(ends)
    return ChangeView(code=Remedy.WAIT, application=last, seconds=max(0.0, at - stuck.now))


# Nodes ----------------------------------------------------------------------------------------------------------------


def _list_node_changes(stuck: StuckAsk) -> Iterator[ChangeView]:
    """Yield changes of which each gives the ask a node, and the nodes together what they lack."""
    shape, survey = stuck.ask.shape, stuck.survey
    if shape.constraint is not None and shape.constraint.asked:
        return  # the RM decides about nodes
    required = stuck.state.nodes.get(shape.required_node)
    # With a node that takes it, only the nodes together lack something.
    first = required or survey.first
    for node in ([first] if first is not None else stuck.list_short_nodes())[:_GROWN_MAX]:
        yield ChangeView(code=Remedy.GROW_NODE, node=node.node_id, amounts=_find_needs(stuck, node.available))
    if required is not None:
        return
    if Reason.CLUSTER_FULL not in stuck.codes:
        closed = [node for node, miss in survey.nearest if not (miss.resource or node.reservations or node.is_open)]
        for node in [node for node in closed if node.schedulable or node.cordon is None][:_GROWN_MAX]:
            code = Remedy.UNCORDON_NODE if node.schedulable else Remedy.MAKE_NODE_SCHEDULABLE
            yield ChangeView(code=code, node=node.node_id)
    attributes = _find_attributes(stuck) if first is None else {}
    if attributes is not None:
        amounts = _find_needs(stuck, {} if first is None else first.available)
        yield ChangeView(code=Remedy.ADD_NODE, node=shape.required_node, amounts=amounts, attributes=attributes)


def _find_needs(stuck: StuckAsk, room: Resources) -> Resources:
    """Return what a node with this room lacks for the ask, or more if the nodes together lack more."""
    root = stuck.state.tree.root
    together = minus(root.maximum or {}, root.allocated)
    asked = [(kind, value) for kind, value in stuck.ask.shape.amounts if value > 0]
    needs = {kind: value - min(room.get(kind, 0), together.get(kind, 0)) for kind, value in asked}
    return {kind: value for kind, value in needs.items() if value > 0}


def _find_attributes(stuck: StuckAsk) -> dict[str, str] | None:
    """Return attributes of a new node that the predicates accept: none, or those of a node that they accept; None if
    no such node is known.
    """
    state, shape = stuck.state, stuck.ask.shape
    predicates = state.nodes.predicates
    demands = predicates.no_demands if shape.constraint is None else shape.constraint.demands
    for attributes in chain([{}], (node.attributes for node, _ in stuck.survey.nearest)):
        shown = {key: value for key, value in attributes.items() if key != NODE_PARTITION}
        view = NodeView(shape.required_node, {**shown, NODE_PARTITION: state.name}, dict(shape.amounts))
        if not predicates.find_refusal_of(demands, view)[0]:
            return shown
    return None


# Ends of allocations --------------------------------------------------------------------------------------------------


def _list_waits_and_ends(stuck: StuckAsk) -> Iterator[ChangeView]:
    """Yield waits and ends of allocations or applications of which each corrects all failed checks alone."""
    outlook = stuck.outlook
    if outlook is not None and outlook.wait_s > 0 and outlook.victims:
        yield ChangeView(code=Remedy.WAIT, node=outlook.node_id, seconds=outlook.wait_s)
    if stuck.codes <= _COUNT_REASONS and all(one.shortfall == 1 for one in stuck.failed):
        below = islice(_list_applications(stuck), RELEASES_MAX)
        ends = [one for one in below if all(_is_counted(stuck.state, one, check) for check in stuck.failed)]
        if ends:
            first = min(ends, key=lambda one: (one.submitted_ns, one.application_id))
            yield ChangeView(code=Remedy.END_APPLICATION, application=first.application_id)
    if not stuck.codes <= _LIMIT_REASONS | {Reason.CLUSTER_FULL, Reason.NO_NODE_FITS, Reason.REQUIRED_NODE_FULL}:
        return
    releases = [(_measure(stuck, one.resources), -one.bound_ns, one.key) for one in _list_releases(stuck)]
    if releases:
        one = stuck.state.allocations[min(releases)[2]]
        yield ChangeView(
            code=Remedy.RELEASE_ALLOCATION,
            application=one.application_id,
            allocation=one.key,
            node=one.node_id,
            amounts=dict(one.resources),
        )
    soonest = min(_list_timeouts(stuck), default=None)
    if soonest is not None:
        yield ChangeView(code=Remedy.WAIT, application=soonest[1], seconds=max(0.0, soonest[0] - stuck.now))


def _is_counted(state: PartitionState, one: Application, check: CheckView) -> bool:
    """Whether an application is one of those that a limit of running applications counts."""
    if not _is_charged(state, one, check):
        return False
    if not (check.user or check.group):
        return one.state in ACTIVE or one.application_id in one.queue.allocating
    account = state.usage.find(one)
    return account is not None and account.counted


def _is_charged(state: PartitionState, one: Application, check: CheckView) -> bool:
    """Whether an application has a part in the usage that a check compared."""
    if all(level.path != check.queue for level in one.queue.ancestry()):
        return False
    if check.user:
        return one.user.name == check.user
    account = state.usage.find(one) if check.group else None
    return not check.group or (account is not None and account.group_name == check.group)


def _list_releases(stuck: StuckAsk) -> Iterator[Allocation]:
    """Yield allocations whose end would let the ask run, also those of its own application."""
    frees = _make_test(stuck)
    for one in islice(_list_candidates(stuck), RELEASES_MAX):
        is_bound = one.released or one.preempted or one.placeholder or one.partner is not None
        if not is_bound and frees([one]):
            yield one


def _list_candidates(stuck: StuckAsk) -> Iterator[Allocation]:
    """Yield the allocations of the nearest nodes, or those below the lowest queue whose check fails."""
    if stuck.codes & _LIMIT_REASONS:
        for application in _list_applications(stuck):
            yield from application.allocations.values()
        return
    for node in stuck.list_short_nodes():
        yield from node.allocations.values()


def _list_applications(stuck: StuckAsk) -> Iterator[Application]:
    """Yield the applications below the lowest queue whose check fails."""
    failing = {one.queue for one in stuck.failed if one.queue}
    lowest = next((level for level in stuck.application.queue.ancestry() if level.path in failing), None)
    for queue in (lowest or stuck.state.tree.root).list_below():
        yield from (stuck.state.applications[name] for name in queue.applications)


def _list_timeouts(stuck: StuckAsk) -> Iterator[tuple[float, str]]:
    """Yield when placeholders of other applications time out whose end would let the ask run, and the application."""
    frees = _make_test(stuck)
    for application in islice(_list_applications(stuck), RELEASES_MAX):
        timer = application.alarms.get("placeholders")
        if timer is None or application is stuck.application:
            continue
        ends = application.state in ACTIVE or application.state is AppState.COMPLETING
        held = [one for group in application.task_groups.values() for one in group.free.values()] if ends else []
        if held and frees(held):
            yield timer.at, application.application_id


def _make_test(stuck: StuckAsk) -> Callable[[list[Allocation]], bool]:
    """Return a test whether the end of allocations corrects all failed checks."""
    state, ask, short = stuck.state, stuck.ask, stuck.list_short_nodes()
    has_node = not stuck.codes & _NODE_REASONS if ask.shape.required_node else stuck.survey.fits > 0

    def frees_node(node: Node, freed: list[Allocation]) -> bool:
        room = total_of([node.available, *(one.resources for one in freed if one.node_id == node.node_id)])
        return fits(room, ask.resources)

    def frees(freed: list[Allocation]) -> bool:
        for check in stuck.failed:
            if check.resource and check.code not in (Reason.NO_NODE_FITS, Reason.REQUIRED_NODE_FULL):
                charged = (one for one in freed if _is_charged(state, state.applications[one.application_id], check))
                if sum(one.resources.get(check.resource, 0) for one in charged) < check.shortfall:
                    return False
        return has_node or any(frees_node(node, freed) for node in short)

    return frees


# Order and texts ------------------------------------------------------------------------------------------------------

_LAST: Final = (Remedy.END_APPLICATION, Remedy.RELEASE_ALLOCATION, Remedy.WAIT, Remedy.GROW_NODE, Remedy.ADD_NODE)
"""Remedies that cost more than a change of the configuration, or time."""

_RANKS: Final[dict[str, int]] = {code: _LAST.index(code) + 1 if code in _LAST else 0 for code in Remedy}


def _measure_all(stuck: StuckAsk, changes: Sequence[ChangeView]) -> float:
    """How large changes are: the largest amount, and the hours to wait."""
    hours = sum([one.seconds / 3600 for one in changes])
    return max([_measure(stuck, one.amounts) for one in changes]) + hours


def _measure(stuck: StuckAsk, amounts: Resources) -> float:
    """How large amounts are: the largest of the types that are asked, relative to what is asked."""
    asked = stuck.ask.shape.amounts
    return max([amounts.get(kind, 0) / value for kind, value in asked if value > 0], default=0.0)


def _describe(stuck: StuckAsk, changes: tuple[ChangeView, ...]) -> RemedyView:
    text = ", and ".join(_describe_change(stuck, one) for one in changes)
    only = changes[0]
    if len(changes) > 1:
        return RemedyView(code=only.code, text=text, changes=list(changes))
    resource, amount = next(iter(only.amounts.items()), ("", only.applications))
    return RemedyView(
        code=only.code,
        text=text,
        changes=[only],
        queue=only.queue,
        user=only.user,
        group=only.group,
        node=only.node,
        resource=resource,
        amount=amount,
        application=only.application,
        seconds=only.seconds,
    )


_TEXTS: Final = {
    Remedy.RAISE_QUEUE_MAXIMUM: "raise the maximum of {queue} by {more}",
    Remedy.RAISE_QUEUE_APPLICATIONS: "raise the application limit of {queue} by {applications}",
    Remedy.RAISE_USER_LIMIT: "raise the limit of {user} in {queue} by {more}",
    Remedy.RAISE_USER_APPLICATIONS: "raise the application limit of {user} in {queue} by {applications}",
    Remedy.RAISE_GROUP_LIMIT: "raise the limit of {group} in {queue} by {more}",
    Remedy.RAISE_GROUP_APPLICATIONS: "raise the application limit of {group} in {queue} by {applications}",
    Remedy.ADD_NODE: "add a node with {more}",
    Remedy.GROW_NODE: "enlarge node {node} by {more}",
    Remedy.UNCORDON_NODE: "uncordon the node {node}",
    Remedy.MAKE_NODE_SCHEDULABLE: "let the RM make the node {node} schedulable again",
    Remedy.START_QUEUE: "start the queue {queue}",
    Remedy.RELEASE_ALLOCATION: (
        "wait for {allocation} of {application} on {node} to end, or release it: that frees {more}"
    ),
    Remedy.END_APPLICATION: "wait for {application} to end, or end it",
    Remedy.WAIT: "wait {left}",
}


def _describe_change(stuck: StuckAsk, one: ChangeView) -> str:
    """Return what to do, with what is known about the ask."""
    more, left = format_resources(one.amounts), format_seconds(max(1.0, one.seconds + 0.499))
    user = "each user" if one.user == "*" else f"user {one.user}"
    group = "all other groups together" if one.group == "*" else f"group {one.group}"
    text = _TEXTS[Remedy(one.code)].format(**asdict(replace(one, user=user, group=group)), more=more, left=left)
    if one.code == Remedy.ADD_NODE and one.node:
        return f"add the node {one.node} with {more}, or correct the ask if that is not the node it means"
    if one.code == Remedy.ADD_NODE and one.attributes:
        return (
            f"{text} and the attributes {', '.join(f'{key}={value}' for key, value in sorted(one.attributes.items()))}"
        )
    if one.code == Remedy.GROW_NODE and (node := stuck.state.nodes.get(one.node)) is not None:
        beyond = {lack.resource: lack.shortfall for lack in compare_with_size(node, stuck.ask.shape.amounts)}
        is_less = bool(beyond) and beyond != one.amounts
        return f"{text}, or by {format_resources(beyond)} once nothing runs there" if is_less else text
    if one.code == Remedy.WAIT and one.application:
        what = "finish its start" if Reason.STATE_AWARE_TURN in stuck.codes else "give up its placeholders"
        return f"wait for {one.application} to {what}, {left} at the latest"
    if one.code == Remedy.WAIT and one.node and stuck.outlook is not None:
        victims = format_count(len(stuck.outlook.victims), "allocation")
        return f"{text}: then it may preempt {victims} on {one.node}"
    return text
