"""Encode and restore queues, nodes, node orders, and predicate results from the RM.

Queue settings are encoded even though most come from the configuration: a draining queue or one created by placement
has others. Parsed policies, shares and priorities are derived again.

A node keeps its position in a node order until an allocation of the partition starts or ends there, so the scores that
define the position are encoded too. Caches that shorten the search for a node start empty.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from common.acl import Acl
from partition_worker.engine.allocation import AskShape, Constraint
from partition_worker.engine.application import AppState
from partition_worker.engine.nodes.node_index import Node
from partition_worker.engine.nodes.nodes import Nodes
from partition_worker.engine.predicates.evaluation import Pair, Predicates, Question, Stamp, Verdict, Verdicts
from partition_worker.engine.queues.fair_share import refresh_fair_maximum
from partition_worker.engine.queues.queue import NOTHING_PENDING, Policies, Queue, Template, Tried, parse_policies
from partition_worker.engine.snapshot import schema
from partition_worker.engine.snapshot.applications import AllocationDecoder, encode_allocation
from partition_worker.engine.state import PartitionState


def encode_queues(state: PartitionState) -> schema.TreeSnapshot:
    """Encode all queues, and the removed queues that ended applications refer to."""
    gone: dict[int, Queue] = {}
    for application in state.ended.values():
        for level in application.queue.ancestry():
            if state.tree.find(level.path) is level:
                break  # its ancestors exist as well
            gone[level.rank] = level
    return schema.TreeSnapshot(
        queues=[_encode_queue(queue, state) for queue in state.tree],
        gone=[_encode_queue(gone[rank], state) for rank in sorted(gone)],
        next_rank=state.tree.next_rank,
    )


def _encode_queue(queue: Queue, state: PartitionState) -> schema.QueueSnapshot:
    return schema.QueueSnapshot(
        path=queue.path,
        rank=queue.rank,
        parent=schema.NO_RANK if queue.parent is None else queue.parent.rank,
        leaf=queue.leaf,
        managed=queue.managed,
        state=queue.state,
        draining_since_ns=queue.draining_since_ns,
        draining_told_ns=queue.draining_told_ns,
        maximum=None if queue.maximum is None else schema.encode_amounts(queue.maximum),
        guaranteed=queue.guaranteed,
        once_limited=list(queue.once_limited),
        once_guaranteed=list(queue.once_guaranteed),
        properties=queue.properties,
        template=None if queue.template is None else _encode_template(queue.template),
        submit_acl=_encode_acl(queue.submit_acl),
        admin_acl=_encode_acl(queue.admin_acl),
        admin_text=queue.admin_text,
        max_applications=queue.max_applications,
        allocated=schema.encode_amounts(queue.allocated),
        pending=schema.encode_amounts(queue.pending),
        preempting=schema.encode_amounts(queue.preempting),
        kept=schema.encode_amounts(queue.kept),
        lacking=schema.encode_amounts(queue.lacking),
        quota_preemption_at=queue.quota_preemption_at,
        running=queue.running,
        preemption_window=queue.preemption_window,
        preemption_attempts=queue.preemption_attempts,
        preemption_tried=[
            _encode_tried(shape, priority, tried) for (shape, priority), tried in queue.preemption_tried.items()
        ],
        allocating=list(queue.allocating),
        applications=[state.applications[name].rank for name in queue.applications],
        reached=[(AppState(state), count) for state, count in queue.reached.items()],
        bound=queue.bound,
        released=queue.released,
    )


def _encode_tried(shape: AskShape, priority: int, tried: Tried) -> schema.TriedSnapshot:
    tags, asked = (None, "") if shape.constraint is None else (tried.tags, shape.constraint.asked)
    return shape.amounts, shape.required_node, tags, asked, priority, tried.at


def _encode_template(template: Template) -> schema.TemplateSnapshot:
    return template.max_applications, template.properties, template.maximum, template.guaranteed


def _encode_acl(acl: Acl) -> schema.AclSnapshot:
    return acl.everybody, sorted(acl.users), sorted(acl.groups)


def restore_queues(state: PartitionState, found: schema.TreeSnapshot, lookup: schema.ReferenceDecoder) -> None:
    """Restore the queues, without applications."""
    known: dict[tuple[bool, tuple[tuple[str, str], ...]], Policies] = {}
    predicates = state.nodes.predicates
    queues = []
    for memory in (*found.queues, *found.gone):
        queue = lookup.queues[memory.rank] = _decode_queue(memory, lookup)
        like = queue.leaf, tuple(queue.properties.items())
        if like not in known:
            known[like] = parse_policies(queue.properties, leaf=queue.leaf)
        queue.policies = known[like]
        for amounts, required_node, tags, asked, priority, at in memory.preemption_tried:
            constraint = None if tags is None else Constraint(predicates.read_demands(tags), asked)
            queue.preemption_tried[AskShape(amounts, required_node, constraint), priority] = Tried(at, tags or {})
        queues.append(queue)
    state.tree.recall(queues[: len(found.queues)], found.next_rank)
    refresh_fair_maximum(state.tree.root)


def restore_queue_contents(found: schema.TreeSnapshot, lookup: schema.ReferenceDecoder) -> None:
    """Put the applications into their queues, and derive the queues' priorities. Pending asks are restored already."""
    for memory in (*found.queues, *found.gone):
        queue = lookup.queues[memory.rank]
        for rank in memory.applications:
            application = lookup.applications[rank]
            queue.applications[application.application_id] = None
            queue.priorities.exchange(None, application.asks.priority)
    for memory in reversed(found.queues):
        queue = lookup.queues[memory.rank]
        if queue.parent is not None and queue.priority != NOTHING_PENDING:
            queue.parent.child_priorities.exchange(None, queue.priority)


def _decode_queue(memory: schema.QueueSnapshot, lookup: schema.ReferenceDecoder) -> Queue:
    return Queue(
        path=memory.path,
        parent=None if memory.parent == schema.NO_RANK else lookup.queues[memory.parent],
        rank=memory.rank,
        leaf=memory.leaf,
        managed=memory.managed,
        state=memory.state,
        draining_since_ns=memory.draining_since_ns,
        draining_told_ns=memory.draining_told_ns,
        maximum=None if memory.maximum is None else schema.decode_amounts(memory.maximum),
        guaranteed=memory.guaranteed,
        once_limited=dict.fromkeys(memory.once_limited),
        once_guaranteed=dict.fromkeys(memory.once_guaranteed),
        properties=memory.properties,
        template=None if memory.template is None else Template(*memory.template),
        submit_acl=_decode_acl(memory.submit_acl),
        admin_acl=_decode_acl(memory.admin_acl),
        admin_text=memory.admin_text,
        max_applications=memory.max_applications,
        allocated=schema.decode_amounts(memory.allocated),
        pending=schema.decode_amounts(memory.pending),
        preempting=schema.decode_amounts(memory.preempting),
        kept=schema.decode_amounts(memory.kept),
        lacking=schema.decode_amounts(memory.lacking),
        quota_preemption_at=memory.quota_preemption_at,
        running=memory.running,
        preemption_window=memory.preemption_window,
        preemption_attempts=memory.preemption_attempts,
        allocating=dict.fromkeys(memory.allocating),
        reached=Counter(dict(memory.reached)),
        bound=memory.bound,
        released=memory.released,
    )


def _decode_acl(memory: schema.AclSnapshot) -> Acl:
    everybody, users, groups = memory
    return Acl(everybody=everybody, users=frozenset(users), groups=frozenset(groups))


# Nodes ----------------------------------------------------------------------------------------------------------------


def encode_nodes(fleet: Nodes, numbering: schema.ReferenceEncoder) -> schema.FleetSnapshot:
    """Encode all nodes. Allocations have their positions already."""
    return schema.FleetSnapshot(
        nodes=[_encode_node(node, numbering) for node in fleet],
        total=schema.encode_amounts(fleet.total),
        ranks=fleet.ranks,
        guarded=fleet.ever_guarded,
        lineups=[
            (policy, [(node.rank, index.score(node)) for node in index]) for policy, index in fleet.indexes.items()
        ],
    )


def _encode_node(node: Node, numbering: schema.ReferenceEncoder) -> schema.NodeSnapshot:
    places = numbering.places
    return schema.NodeSnapshot(
        node.node_id,
        node.rank,
        node.capacity,
        node.attributes,
        node.schedulable,
        node.guarded,
        schema.encode_amounts(node.allocated),
        schema.encode_amounts(node.occupied),
        schema.encode_amounts(node.available),
        [places[one] for one in node.allocations.values()],
        [encode_allocation(one, numbering) for one in node.foreign.values()],
    )


def restore_nodes(fleet: Nodes, found: schema.FleetSnapshot, lookup: schema.ReferenceDecoder) -> None:
    """Restore the nodes, without allocations."""
    nodes = []
    for memory in found.nodes:
        node = lookup.nodes[memory.rank] = Node(
            memory.node_id,
            memory.rank,
            memory.capacity,
            memory.attributes,
            memory.schedulable,
            allocated=schema.decode_amounts(memory.allocated),
            occupied=schema.decode_amounts(memory.occupied),
            guarded=memory.guarded,
        )
        node.available = schema.decode_amounts(memory.available)
        nodes.append(node)
    scores = {policy: [(lookup.nodes[rank], score) for rank, score in places] for policy, places in found.lineups}
    fleet.restore(nodes, scores)
    fleet.total, fleet.ranks, fleet.ever_guarded = schema.decode_amounts(found.total), found.ranks, found.guarded


def restore_node_contents(state: PartitionState, found: schema.FleetSnapshot, lookup: schema.ReferenceDecoder) -> None:
    """Put allocations and foreign allocations on their nodes."""
    reading = AllocationDecoder(lookup, state.nodes.predicates)
    for memory in found.nodes:
        node = lookup.nodes[memory.rank]
        for place in memory.allocations:
            allocation = lookup.allocations[place]
            node.allocations[allocation.key] = allocation
        for one in memory.foreign:
            node.foreign[one.key] = reading.decode(one, "")
            state.foreign[one.key] = node


# Predicates -----------------------------------------------------------------------------------------------------------

_OUTDATED: Final = Stamp(Node("", schema.NO_RANK, {}, {}), schema.NO_RANK)


def encode_predicates(fleet: Nodes, numbering: schema.ReferenceEncoder) -> schema.PredicatesSnapshot:
    """Encode predicate results from the RM, its pending question, and failed searches that depend on its answers.

    Results of built-in predicates and plug-ins are not encoded: these always return the same.
    """
    predicates = fleet.predicates
    asked = ((shape, allocate) for shape, allocate in predicates.in_vain if shape.constraint and shape.constraint.asked)
    in_vain = [(numbering.shape(shape), allocate) for shape, allocate in asked]
    return schema.PredicatesSnapshot(
        asks_manager=predicates.asks_manager,
        complained=list(predicates.complained),
        in_vain=[(shape, allocate) for shape, allocate in in_vain if shape is not None],
        verdicts=_encode_verdicts(predicates.verdicts, fleet),
    )


def _encode_verdicts(verdicts: Verdicts, fleet: Nodes) -> schema.VerdictsSnapshot:
    return schema.VerdictsSnapshot(
        deadline=verdicts.deadline,
        said=[
            (
                key,
                [
                    (node_id, allocate, refusal, None if stamp is None else _encode_stamp(stamp, fleet), number)
                    for (node_id, allocate), (refusal, stamp, number) in places.items()
                ],
            )
            for key, places in verdicts.known.items()
        ],
        wanted=[(key, _encode_pairs(pairs, fleet)) for key, pairs in verdicts.requested.items()],
        turned_away=list(verdicts.deferred),
        question=_encode_question(verdicts.question, fleet),
        late=_encode_question(verdicts.late, fleet),
        numbers=verdicts.numbers,
        silences=verdicts.silences,
        paused_until=verdicts.paused_until,
        forget=verdicts.expiries,
    )


def _encode_stamp(stamp: Stamp, fleet: Nodes) -> int:
    return stamp.node.rank if stamp.is_current and fleet.get(stamp.node.node_id) is stamp.node else schema.NO_RANK


def _encode_pairs(pairs: Mapping[Pair, Stamp], fleet: Nodes) -> list[tuple[schema.PairSnapshot, int]]:
    return [(pair, _encode_stamp(stamp, fleet)) for pair, stamp in pairs.items()]


def _encode_question(question: Question | None, fleet: Nodes) -> schema.QuestionSnapshot | None:
    return None if question is None else (question.number, _encode_pairs(question.pairs, fleet), question.deadline)


def restore_predicates(
    predicates: Predicates, found: schema.PredicatesSnapshot, lookup: schema.ReferenceDecoder
) -> None:
    """Restore the predicate state. Nodes and allocations are restored already."""
    predicates.asks_manager = found.asks_manager
    predicates.complained = dict.fromkeys(found.complained)
    predicates.in_vain = {(lookup.shape(shape), allocate): None for shape, allocate in found.in_vain}
    verdicts, memory = predicates.verdicts, found.verdicts
    for key, places in memory.said:
        verdicts.known[key] = {
            (node_id, allocate): Verdict(refusal, None if rank is None else _decode_stamp(rank, lookup), number)
            for node_id, allocate, refusal, rank, number in places
        }
    for key, pairs in memory.wanted:
        verdicts.requested[key] = _decode_pairs(pairs, lookup)
    verdicts.deferred = dict.fromkeys(memory.turned_away)
    verdicts.question, verdicts.late = _decode_question(memory.question, lookup), _decode_question(memory.late, lookup)
    verdicts.numbers, verdicts.silences = memory.numbers, memory.silences
    verdicts.paused_until, verdicts.expiries = memory.paused_until, memory.forget


def _decode_stamp(rank: int, lookup: schema.ReferenceDecoder) -> Stamp:
    return _OUTDATED if rank == schema.NO_RANK else Stamp(lookup.nodes[rank], lookup.nodes[rank].version)


def _decode_pairs(pairs: list[tuple[schema.PairSnapshot, int]], lookup: schema.ReferenceDecoder) -> dict[Pair, Stamp]:
    return {Pair(*pair): _decode_stamp(rank, lookup) for pair, rank in pairs}


def _decode_question(memory: schema.QuestionSnapshot | None, lookup: schema.ReferenceDecoder) -> Question | None:
    return None if memory is None else Question(memory[0], _decode_pairs(memory[1], lookup), memory[2])
