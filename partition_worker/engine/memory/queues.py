"""Queues with their settings and sums, and those that are gone and that an ended application remembers.

Settings are written as they are, as a queue may have others than the configuration says: it drains, or placement made
it. What its properties mean, shares and the priorities that it shows are derived again. Not here: who is ready in a
queue (`readiness.py`).
"""

from collections import Counter

from common.acl import Acl
from partition_worker.engine.books import Books
from partition_worker.engine.memory.amounts import amounts_of, sums
from partition_worker.engine.memory.model import AclMemory, QueueMemory, TemplateMemory, TreeMemory, TriedMemory
from partition_worker.engine.memory.references import Lookup
from partition_worker.engine.memory.values import NOBODY
from partition_worker.engine.needs import Need
from partition_worker.engine.predicates.constraint import Constraint
from partition_worker.engine.queues.fairness import refresh_fair_maximum
from partition_worker.engine.queues.policies import Policies, policies
from partition_worker.engine.queues.queue import NOTHING_PENDING, Queue, Template, Tried


def written(books: Books) -> TreeMemory:
    """All of them."""
    gone: dict[int, Queue] = {}
    for application in books.ended.values():
        for level in application.queue.ancestry():
            if books.tree.find(level.path) is level:
                break  # and so are those above it
            gone[level.rank] = level
    return TreeMemory(
        queues=[_written(queue) for queue in books.tree],
        gone=[_written(gone[rank]) for rank in sorted(gone)],
        next_rank=books.tree.next_rank,
    )


def _written(queue: Queue) -> QueueMemory:
    return QueueMemory(
        path=queue.path,
        rank=queue.rank,
        parent=NOBODY if queue.parent is None else queue.parent.rank,
        leaf=queue.leaf,
        managed=queue.managed,
        state=queue.state,
        draining_since_ns=queue.draining_since_ns,
        draining_told_ns=queue.draining_told_ns,
        maximum=None if queue.maximum is None else sums(queue.maximum),
        guaranteed=queue.guaranteed,
        once_limited=list(queue.once_limited),
        once_guaranteed=list(queue.once_guaranteed),
        properties=queue.properties,
        template=None if queue.template is None else _template(queue.template),
        submit_acl=_acl(queue.submit_acl),
        admin_acl=_acl(queue.admin_acl),
        admin_text=queue.admin_text,
        max_applications=queue.max_applications,
        allocated=sums(queue.allocated),
        pending=sums(queue.pending),
        preempting=sums(queue.preempting),
        kept=sums(queue.kept),
        lacking=sums(queue.lacking),
        quota_preemption_at=queue.quota_preemption_at,
        running=queue.running,
        preemption_window=queue.preemption_window,
        preemption_attempts=queue.preemption_attempts,
        preemption_tried=[_tried(need, priority, tried) for (need, priority), tried in queue.preemption_tried.items()],
        allocating=list(queue.allocating),
        applications=[one.rank for one in queue.applications.values()],
        reached=list(queue.reached.items()),
        bound=queue.bound,
        released=queue.released,
    )


def _tried(need: Need, priority: int, tried: Tried) -> TriedMemory:
    tags, asked = (None, "") if need.constraint is None else (tried.tags, need.constraint.asked)
    return need.shape, need.required_node, tags, asked, priority, tried.at


def _template(template: Template) -> TemplateMemory:
    return template.max_applications, template.properties, template.maximum, template.guaranteed


def _acl(acl: Acl) -> AclMemory:
    return acl.everybody, sorted(acl.users), sorted(acl.groups)


# Reading ------------------------------------------------------------------------------------------------------------


def restore(books: Books, found: TreeMemory, lookup: Lookup) -> None:
    """Let the partition have the queues, with no applications in them."""
    known: dict[tuple[bool, tuple[tuple[str, str], ...]], Policies] = {}
    predicates = books.fleet.predicates
    queues = []
    for memory in (*found.queues, *found.gone):
        queue = lookup.queues[memory.rank] = _restored(memory, lookup)
        like = queue.leaf, tuple(queue.properties.items())
        if like not in known:
            known[like] = policies(queue.properties, leaf=queue.leaf)
        queue.policies = known[like]
        for shape, required_node, tags, asked, priority, at in memory.preemption_tried:
            constraint = None if tags is None else Constraint(predicates.demanded(tags), asked)
            queue.preemption_tried[Need(shape, required_node, constraint), priority] = Tried(at, tags or {})
        queues.append(queue)
    books.tree.recall(queues[: len(found.queues)], found.next_rank)
    refresh_fair_maximum(books.tree.root)


def restore_contents(found: TreeMemory, lookup: Lookup) -> None:
    """Let the applications be in their queues, and queues know what these ask for. Their asks are in order."""
    for memory in (*found.queues, *found.gone):
        queue = lookup.queues[memory.rank]
        for rank in memory.applications:
            application = lookup.applications[rank]
            queue.applications[application.application_id] = application
            queue.priorities.exchange(None, application.asks.priority)
    for memory in reversed(found.queues):
        queue = lookup.queues[memory.rank]
        if queue.parent is not None and queue.priority != NOTHING_PENDING:
            queue.parent.child_priorities.exchange(None, queue.priority)


def _restored(memory: QueueMemory, lookup: Lookup) -> Queue:
    return Queue(
        path=memory.path,
        parent=None if memory.parent == NOBODY else lookup.queues[memory.parent],
        rank=memory.rank,
        leaf=memory.leaf,
        managed=memory.managed,
        state=memory.state,
        draining_since_ns=memory.draining_since_ns,
        draining_told_ns=memory.draining_told_ns,
        maximum=None if memory.maximum is None else amounts_of(memory.maximum),
        guaranteed=memory.guaranteed,
        once_limited=dict.fromkeys(memory.once_limited),
        once_guaranteed=dict.fromkeys(memory.once_guaranteed),
        properties=memory.properties,
        template=None if memory.template is None else Template(*memory.template),
        submit_acl=_acl_of(memory.submit_acl),
        admin_acl=_acl_of(memory.admin_acl),
        admin_text=memory.admin_text,
        max_applications=memory.max_applications,
        allocated=amounts_of(memory.allocated),
        pending=amounts_of(memory.pending),
        preempting=amounts_of(memory.preempting),
        kept=amounts_of(memory.kept),
        lacking=amounts_of(memory.lacking),
        quota_preemption_at=memory.quota_preemption_at,
        running=memory.running,
        preemption_window=memory.preemption_window,
        preemption_attempts=memory.preemption_attempts,
        allocating=dict.fromkeys(memory.allocating),
        reached=Counter(dict(memory.reached)),
        bound=memory.bound,
        released=memory.released,
    )


def _acl_of(memory: AclMemory) -> Acl:
    everybody, users, groups = memory
    return Acl(everybody=everybody, users=frozenset(users), groups=frozenset(groups))
