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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.reasons import Reason, Remedy
from yunishard.common.names import NODE_PARTITION
from yunishard.common.rest.explain import ChangeView, CheckView, RemedyView
from yunishard.common.text_formats import format_count
from yunishard.common.units import format_resources, format_seconds
from yunishard.partition_worker.engine.allocation import Allocation, AskGroup
from yunishard.partition_worker.engine.application import ACTIVE, Application, AppState
from yunishard.partition_worker.engine.explain.node_checks import NodeSurvey, find_lacks, judge_predicates
from yunishard.partition_worker.engine.explain.preemption_checks import PreemptionOutlook
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.predicates.predicate import NodeView
from yunishard.partition_worker.engine.state import PartitionState

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

_LIMIT_REASONS: Final = frozenset({Reason.USER_LIMIT, Reason.GROUP_LIMIT, Reason.QUEUE_MAXIMUM})
_COUNT_REASONS: Final = frozenset(
    {Reason.QUEUE_APPLICATION_LIMIT, Reason.USER_APPLICATION_LIMIT, Reason.GROUP_APPLICATION_LIMIT}
)
_OTHER_REASONS: Final = frozenset({Reason.BACK_OFF, Reason.STATE_AWARE_TURN, Reason.QUEUE_STOPPED})
_SOLVED: Final = _NODE_REASONS | _LIMIT_REASONS | _COUNT_REASONS | _OTHER_REASONS


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
    survey: NodeSurvey | None
    """None for an ask that requires a node."""
    outlook: PreemptionOutlook | None = None
    root_short: Resources = field(init=False)
    """The amounts that the nodes together lack."""

    def __post_init__(self) -> None:
        self.root_short = {one.resource: one.shortfall for one in self.failed if one.code == Reason.CLUSTER_FULL}

    @property
    def codes(self) -> frozenset[str]:
        return frozenset(one.code for one in self.failed)


def find_remedies(stuck: StuckAsk) -> list[RemedyView]:
    """Return the remedies of an ask, the smallest first."""
    codes = stuck.codes
    if not codes or not codes <= _SOLVED or _is_behind_in_back_off(stuck):
        return []
    base = list(_list_base_changes(stuck))
    found: list[tuple[ChangeView, ...]] = []
    if None not in base:
        changes = tuple(one for one in base if one is not None)
        if codes & _NODE_REASONS:
            found += [(*changes, alternative) for alternative in _list_node_changes(stuck)]
        else:
            found.append(changes)
    found += _list_waits_and_releases(stuck)
    found.sort(key=lambda changes: (len(changes), _RANKS[changes[0].code], _size(stuck, changes)))
    return [_describe(stuck, changes) for changes in found[:REMEDIES_MAX]]


def _is_behind_in_back_off(stuck: StuckAsk) -> bool:
    """Whether asks before it may make the application back off again before the ask is tried."""
    if not stuck.application.queue.policies.back_off_after or stuck.ask.reserved:
        return False
    return stuck.application.asks.first_group is not stuck.group


# Limits, queues and times ---------------------------------------------------------------------------------------------


def _list_base_changes(stuck: StuckAsk) -> Iterator[ChangeView | None]:
    """Yield the changes that correct the failed checks of limits, queues and times, one for each queue and name; None
    if one cannot be corrected.
    """
    amounts: dict[tuple[Remedy, str, str, str], Resources] = {}
    for check in stuck.failed:
        code = Reason(check.code)
        if code in _LIMIT_REASONS:
            key = (_RAISES[code], check.queue, *_limited_names(stuck.state, check))
            amounts.setdefault(key, {})[check.resource] = check.shortfall
        elif code in _COUNT_REASONS:
            user, group = _limited_names(stuck.state, check)
            yield ChangeView(
                code=_RAISES[code], queue=check.queue, user=user, group=group, applications=check.shortfall
            )
        elif code is Reason.QUEUE_STOPPED:
            yield ChangeView(code=Remedy.START_QUEUE, queue=check.queue)
        elif code is Reason.BACK_OFF:
            yield ChangeView(code=Remedy.WAIT, seconds=stuck.application.back_off_until - stuck.now)
        elif code is Reason.STATE_AWARE_TURN:
            yield _wait_for_turn(stuck)
    for (remedy, queue, user, group), short in amounts.items():
        yield ChangeView(code=remedy, queue=queue, user=user, group=group, amounts=short)


_RAISES: Final = {
    Reason.QUEUE_MAXIMUM: Remedy.RAISE_QUEUE_MAXIMUM,
    Reason.USER_LIMIT: Remedy.RAISE_USER_LIMIT,
    Reason.GROUP_LIMIT: Remedy.RAISE_GROUP_LIMIT,
    Reason.QUEUE_APPLICATION_LIMIT: Remedy.RAISE_QUEUE_APPLICATIONS,
    Reason.USER_APPLICATION_LIMIT: Remedy.RAISE_USER_APPLICATIONS,
    Reason.GROUP_APPLICATION_LIMIT: Remedy.RAISE_GROUP_APPLICATIONS,
}


def _limited_names(state: PartitionState, check: CheckView) -> tuple[str, str]:
    """Return the user and the group in the limit that binds: `*` if there is none for the name itself."""
    user = state.usage.users.limited_name(check.user, check.queue) if check.user else ""
    return user, check.group


def _wait_for_turn(stuck: StuckAsk) -> ChangeView | None:
    """Wait until the applications that are starting run, if it is the turn of this one then."""
    turns = stuck.state.readiness.turns.leaves.get(stuck.application.queue.rank)
    if turns is None or not turns.starting or turns.accepted.first() is not stuck.application:
        return None
    ends = [one.alarms["state"].at for one in turns.starting.values() if "state" in one.alarms]
    if len(ends) < len(turns.starting):
        return None
    last = max(turns.starting.values(), key=lambda one: one.alarms["state"].at)
    seconds = max(0.0, max(ends) - stuck.now)
    return ChangeView(code=Remedy.WAIT, application=last.application_id, seconds=seconds)


# Nodes ----------------------------------------------------------------------------------------------------------------


def _list_node_changes(stuck: StuckAsk) -> Iterator[ChangeView]:
    """Yield changes of which each gives the ask a node, and the nodes together what they lack."""
    shape, state = stuck.ask.shape, stuck.state
    if shape.constraint is not None and shape.constraint.asked:
        return  # the RM decides about nodes
    if shape.required_node:
        node = state.nodes.get(shape.required_node)
        yield _grow(stuck, node) if node is not None else _add(stuck, shape.required_node, {})
        return
    assert stuck.survey is not None, stuck.ask.key
    misses = stuck.survey.nearest
    short = [node for node, verdict in misses if verdict.code in (Reason.NODE_FULL, Reason.NODE_TOO_SMALL)]
    if stuck.survey.first is not None:  # only the nodes together lack something
        short = [stuck.survey.first]
    for node in short[:_GROWN_MAX]:
        yield _grow(stuck, node)
    if not stuck.root_short:
        closed = [node for node, verdict in misses if not verdict.lacks and not node.reservations and not node.is_open]
        for node in [node for node in closed if node.schedulable or node.cordon is None][:_GROWN_MAX]:
            code = Remedy.UNCORDON_NODE if node.schedulable else Remedy.MAKE_NODE_SCHEDULABLE
            yield ChangeView(code=code, node=node.node_id)
    if stuck.survey.first is not None:
        yield ChangeView(code=Remedy.ADD_NODE, amounts=dict(stuck.root_short))
        return
    attributes = _find_attributes(stuck)
    if attributes is not None:
        yield _add(stuck, "", attributes)


def _grow(stuck: StuckAsk, node: Node) -> ChangeView:
    lacks = {kind: missing for kind, missing, _ in find_lacks(stuck.ask.shape, node)}
    kinds = [*lacks, *(kind for kind in stuck.root_short if kind not in lacks)]
    amounts = {kind: max(lacks.get(kind, 0), _find_root_lack(stuck, kind)) for kind in kinds}
    return ChangeView(code=Remedy.GROW_NODE, node=node.node_id, amounts=amounts)


def _add(stuck: StuckAsk, name: str, attributes: dict[str, str]) -> ChangeView:
    asked = {kind: value for kind, value in stuck.ask.shape.amounts if value > 0}
    amounts = {kind: max(value, _find_root_lack(stuck, kind)) for kind, value in asked.items()}
    return ChangeView(code=Remedy.ADD_NODE, node=name, amounts=amounts, attributes=attributes)


def _find_root_lack(stuck: StuckAsk, kind: str) -> int:
    """Return what the nodes together lack of a type, also if no node has it yet, so that its amount is not checked."""
    root = stuck.state.tree.root
    return root.allocated.get(kind, 0) + stuck.ask.resources.get(kind, 0) - (root.maximum or {}).get(kind, 0)


def _find_attributes(stuck: StuckAsk) -> dict[str, str] | None:
    """Return attributes of a new node that the predicates accept: none, or those of a node that they accept; None if
    no such node is known.
    """
    state, shape = stuck.state, stuck.ask.shape
    predicates = state.nodes.predicates
    demands = predicates.no_demands if shape.constraint is None else shape.constraint.demands
    amounts = dict(shape.amounts)
    for attributes in chain([{}], (node.attributes for node, _ in _nearest(stuck))):
        shown = {key: value for key, value in attributes.items() if key != NODE_PARTITION}
        view = NodeView("", {**shown, NODE_PARTITION: state.name}, amounts)
        if not predicates.find_refusal_of(demands, view)[0]:
            return shown
    return None


# Ends of allocations --------------------------------------------------------------------------------------------------


def _list_waits_and_releases(stuck: StuckAsk) -> Iterator[tuple[ChangeView, ...]]:
    """Yield waits and ends of allocations or applications that correct all failed checks alone."""
    outlook = stuck.outlook
    if outlook is not None and outlook.wait_s > 0 and outlook.victims:
        yield (ChangeView(code=Remedy.WAIT, node=outlook.node_id, seconds=outlook.wait_s),)
    if stuck.codes <= _COUNT_REASONS:
        ending = min(_list_ends(stuck), key=lambda one: (one.submitted_ns, one.application_id), default=None)
        if ending is not None:
            yield (ChangeView(code=Remedy.END_APPLICATION, application=ending.application_id),)
    if not stuck.codes <= _LIMIT_REASONS | {Reason.CLUSTER_FULL, Reason.NO_NODE_FITS, Reason.REQUIRED_NODE_FULL}:
        return
    best = min(_list_releases(stuck), key=lambda one: _weight(stuck, one), default=None)
    if best is not None:
        yield (
            ChangeView(
                code=Remedy.RELEASE_ALLOCATION,
                application=best.application_id,
                allocation=best.key,
                node=best.node_id,
                amounts=dict(best.resources),
            ),
        )
    soonest = min(_list_timeouts(stuck), default=None)
    if soonest is not None:
        yield (ChangeView(code=Remedy.WAIT, application=soonest[1], seconds=max(0.0, soonest[0] - stuck.now)),)


def _list_ends(stuck: StuckAsk) -> Iterator[Application]:
    """Yield applications that count for all failed checks, if one application less is enough for each."""
    if all(one.shortfall == 1 for one in stuck.failed):
        for application in islice(_list_applications(stuck), RELEASES_MAX):
            if all(_is_counted(stuck.state, application, check) for check in stuck.failed):
                yield application


def _is_counted(state: PartitionState, one: Application, check: CheckView) -> bool:
    """Whether an application is one of those that a limit of running applications counts."""
    level = next((level for level in one.queue.ancestry() if level.path == check.queue), None)
    if level is None:
        return False
    if not check.user and not check.group:
        return one.state in ACTIVE or one.application_id in level.allocating
    if check.user and one.user.name != check.user:
        return False
    account = state.usage.find(one)
    if account is None or (check.group and account.group_name != check.group):
        return False
    return account.counted


def _list_releases(stuck: StuckAsk) -> Iterator[Allocation]:
    """Yield allocations whose end would let the ask run, also those of its own application."""
    frees = _make_test(stuck)
    for one in islice(_list_candidates(stuck), RELEASES_MAX):
        is_bound = one.released or one.preempted or one.placeholder or one.partner is not None
        if not is_bound and frees([one]):
            yield one


def _list_candidates(stuck: StuckAsk) -> Iterator[Allocation]:
    """Yield the allocations of the nearest nodes, or those below the lowest queue whose check fails."""
    state = stuck.state
    if not stuck.codes & _LIMIT_REASONS:
        names = [stuck.ask.shape.required_node] if stuck.survey is None else []
        nodes = [state.nodes.get(name) for name in names] or [node for node, _ in _nearest(stuck)]
        yield from chain.from_iterable(node.allocations.values() for node in nodes if node is not None)
        return
    for application in _list_applications(stuck):
        yield from application.allocations.values()


def _nearest(stuck: StuckAsk) -> Sequence[tuple[Node, object]]:
    return () if stuck.survey is None else stuck.survey.nearest


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
    state, shape = stuck.state, stuck.ask.shape
    has_node = stuck.survey is not None and stuck.survey.fits > 0
    must_be_on = shape.required_node
    accepted: dict[str, bool] = {}

    def is_usable(node: Node) -> bool:
        if node.node_id not in accepted:
            own = stuck.ask.key in node.reservations
            gives_way = node.gives_way_to(stuck.application.queue, stuck.ask.priority)
            is_open = own or ((bool(must_be_on) or node.is_open) and gives_way)
            accepted[node.node_id] = is_open and judge_predicates(state, shape, node).code is Reason.NODE_FITS
        return accepted[node.node_id]

    def frees_node(freed: list[Allocation]) -> bool:
        there: dict[str, Resources] = {}
        for one in freed:
            amounts = there.setdefault(one.node_id, {})
            for kind, value in one.resources.items():
                amounts[kind] = amounts.get(kind, 0) + value
        for name, amounts in there.items():
            node = state.nodes.get(name)
            if node is None or (must_be_on and name != must_be_on):
                continue
            room = node.available
            is_enough = all(
                room.get(kind, 0) + amounts.get(kind, 0) >= value for kind, value in shape.amounts if value > 0
            )
            if is_enough and is_usable(node):
                return True
        return False

    def frees(freed: list[Allocation]) -> bool:
        for check in stuck.failed:
            if check.resource and check.code != Reason.NO_NODE_FITS and check.code != Reason.REQUIRED_NODE_FULL:
                counted = (one.resources.get(check.resource, 0) for one in freed if _counts(state, one, check))
                if sum(counted) < check.shortfall:
                    return False
        return has_node or _needs_no_node(stuck) or frees_node(freed)

    return frees


def _needs_no_node(stuck: StuckAsk) -> bool:
    """Whether the node that the ask requires takes it already."""
    return bool(stuck.ask.shape.required_node) and not stuck.codes & _NODE_REASONS


def _counts(state: PartitionState, one: Allocation, check: CheckView) -> bool:
    """Whether an allocation is part of the usage that a check compared."""
    application = state.applications[one.application_id]
    if all(level.path != check.queue for level in application.queue.ancestry()):
        return False
    if check.user:
        return application.user.name == check.user
    if check.group:
        account = state.usage.find(application)
        return account is not None and account.group_name == check.group
    return True


def _weight(stuck: StuckAsk, one: Allocation) -> tuple[float, int, str]:
    """Prefer small allocations, then young ones."""
    asked = dict(stuck.ask.shape.amounts)
    parts = [value / asked[kind] for kind, value in one.resources.items() if asked.get(kind, 0) > 0]
    return max(parts, default=0.0), -one.bound_ns, one.key


# Order and texts ------------------------------------------------------------------------------------------------------

_LAST: Final = (Remedy.END_APPLICATION, Remedy.RELEASE_ALLOCATION, Remedy.WAIT, Remedy.GROW_NODE, Remedy.ADD_NODE)
"""Remedies that cost more than a change of the configuration, or time."""

_RANKS: Final[dict[str, int]] = {code: _LAST.index(code) + 1 if code in _LAST else 0 for code in Remedy}


def _size(stuck: StuckAsk, changes: Iterable[ChangeView]) -> float:
    """How large changes are: the largest amount relative to what is asked."""
    asked = dict(stuck.ask.shape.amounts)
    parts = [value / max(1, asked.get(kind, 1)) for one in changes for kind, value in one.amounts.items()]
    return max(parts, default=0.0) + sum(one.seconds / 3600 for one in changes)


def _describe(stuck: StuckAsk, changes: tuple[ChangeView, ...]) -> RemedyView:
    text = ", and ".join(_describe_one(stuck, one) for one in changes)
    only = changes[0]
    resource, amount = next(iter(only.amounts.items()), ("", 0))
    if len(changes) > 1:
        return RemedyView(code=only.code, text=text, changes=list(changes))
    return RemedyView(
        code=only.code,
        text=text,
        changes=[only],
        queue=only.queue,
        user=only.user,
        group=only.group,
        node=only.node,
        resource=resource,
        amount=amount or only.applications,
        application=only.application,
        seconds=only.seconds,
    )


def _describe_one(stuck: StuckAsk, change: ChangeView) -> str:
    """Return what to do, with what is known about the ask."""
    text = describe_change(change, stuck.outlook)
    if change.code == Remedy.WAIT and change.application and Reason.STATE_AWARE_TURN in stuck.codes:
        left = format_amount_of_time(change.seconds)
        return f"wait for {change.application} to finish its start, {left} at the latest"
    node = stuck.state.nodes.get(change.node) if change.code == Remedy.GROW_NODE else None
    if node is None:
        return text
    asked = stuck.ask.shape.amounts
    beyond = {kind: value - node.capacity.get(kind, 0) for kind, value in asked if value > node.capacity.get(kind, 0)}
    is_less = bool(beyond) and beyond != change.amounts
    return f"{text}, or by {format_resources(beyond)} once nothing runs there" if is_less else text


def describe_change(change: ChangeView, outlook: PreemptionOutlook | None = None) -> str:
    """Return what to do, as text.

    >>> describe_change(ChangeView(code="raise-queue-maximum", queue="root.a", amounts={"vcore": 3000}))
    'raise the maximum of root.a by 3 vcore'
    """
    more = format_resources(change.amounts)
    user = "each user" if change.user == "*" else f"user {change.user}"
    group = "all other groups together" if change.group == "*" else f"group {change.group}"
    match change.code:
        case Remedy.RAISE_QUEUE_MAXIMUM:
            return f"raise the maximum of {change.queue} by {more}"
        case Remedy.RAISE_QUEUE_APPLICATIONS:
            return f"raise the application limit of {change.queue} by {change.applications}"
        case Remedy.RAISE_USER_LIMIT:
            return f"raise the limit of {user} in {change.queue} by {more}"
        case Remedy.RAISE_USER_APPLICATIONS:
            return f"raise the application limit of {user} in {change.queue} by {change.applications}"
        case Remedy.RAISE_GROUP_LIMIT:
            return f"raise the limit of {group} in {change.queue} by {more}"
        case Remedy.RAISE_GROUP_APPLICATIONS:
            return f"raise the application limit of {group} in {change.queue} by {change.applications}"
        case Remedy.ADD_NODE:
            if change.node:
                return f"add the node {change.node} with {more}, or correct the ask if that is not the node it means"
            tags = ", ".join(f"{key}={value}" for key, value in sorted(change.attributes.items()))
            return f"add a node with {more}{f' and the attributes {tags}' if tags else ''}"
        case Remedy.GROW_NODE:
            return f"enlarge node {change.node} by {more}"
        case Remedy.MAKE_NODE_SCHEDULABLE:
            return f"let the RM make the node {change.node} schedulable again"
        case Remedy.START_QUEUE:
            return f"start the queue {change.queue}"
        case Remedy.UNCORDON_NODE:
            return f"uncordon the node {change.node}"
        case Remedy.RELEASE_ALLOCATION:
            return (
                f"wait for {change.allocation} of {change.application} on {change.node} to end, or release it: "
                f"that frees {more}"
            )
        case Remedy.END_APPLICATION:
            return f"wait for {change.application} to end, or end it"
    return _describe_wait(change, outlook)


def _describe_wait(change: ChangeView, outlook: PreemptionOutlook | None) -> str:
    left = format_amount_of_time(change.seconds)
    if change.application:
        return f"wait for {change.application} to give up its placeholders, {left} at the latest"
    if change.node and outlook is not None:
        victims = format_count(len(outlook.victims), "allocation")
        return f"wait {left}: then it may preempt {victims} on {change.node}"
    return f"wait {left}"


def format_amount_of_time(seconds: float) -> str:
    """Return seconds as text, never less than a second."""
    return format_seconds(max(1.0, seconds + 0.499))
