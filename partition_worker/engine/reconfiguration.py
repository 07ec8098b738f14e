"""A partition that runs takes another configuration: first asked whether it can, then all of it at once.

    objections(books, config)    as data: why it cannot, nothing is changed
    plan(books, config)          as data: what becomes another, nothing is changed
    apply(books, config, plan)   what had no objections cannot fail

What runs goes on: a lower maximum takes nothing away, unless quotas are enforced by preemption and then later; it only
keeps more from being placed, and a higher one is used at once. The resolver of groups is that of the first
configuration, and what was submitted keeps its queue.

What comes at the commit is short even if thousands of queues change, as the partition decides nothing meanwhile: what
can be found out before has been. Not here: what differs between two configurations (`queues/changes.py`).
"""

from common.config.check import load_problems
from common.config.model import PartitionConfig
from partition_worker.engine import draining, happenings, lifecycle
from partition_worker.engine.books import Books
from partition_worker.engine.placement_chain import PlacementChain
from partition_worker.engine.placement_rules import RuleError
from partition_worker.engine.queues import changes as queue_changes
from partition_worker.engine.queues import priorities, quota_timing
from partition_worker.engine.queues.blueprint import Settings, configure
from partition_worker.engine.queues.changes import Add, Change, Drain, PassOn, Plan, Set, changes
from partition_worker.engine.queues.policies import ApplicationSort
from partition_worker.engine.queues.queue import Queue


def objections(books: Books, config: PartitionConfig) -> list[str]:
    """What keeps this partition from taking a configuration that passed validation; nothing if it can."""
    if books.retired:
        return [f"partition {books.name} was removed"]
    problems = [str(problem) for problem in load_problems(config)]
    try:
        PlacementChain(config.placement_rules)
    except RuleError as error:
        problems.append(str(error))
    return problems


def plan(books: Books, config: PartitionConfig) -> Plan:
    """What is another in a configuration to which there are no objections than in the one in force."""
    return queue_changes.plan(books.tree, books.config.root, config.root)


def apply(books: Books, config: PartitionConfig, found: Plan) -> None:
    """Take the configuration, to which there are no objections and which differs like this from the one in force."""
    assert found.before is books.config.root, "a plan from another configuration"
    books.config = config
    books.placement = PlacementChain(config.placement_rules)
    books.placement_problem = ""
    books.fleet.reorder(books.node_sort(config), config.node_sort_policy.weights)
    for change in changes(books.tree, found):
        _make(books, change)
    if found.limits:
        books.usage.reconfigure(config)
    books.readiness.reconfigured()
    books.swappable.reorder()
    if any(queue.quota_preemption_at for queue in books.tree):
        books.expect_quota_look()
    if books.tree.has_temporary():
        books.expect_cleaning()


def _make(books: Books, change: Change) -> None:
    match change:
        case Add(path, settings):
            happenings.queue_came(books, books.tree.add(path, settings))
        case Set(queue, settings):
            _set(books, queue, settings)
        case PassOn(queue, template):
            queue.template = template
        case Drain(queue):
            draining.begin(books, queue)


def _set(books: Books, queue: Queue, settings: Settings) -> None:
    leaf, maximum, guaranteed = queue.leaf, queue.maximum, queue.guaranteed
    terms = quota_timing.terms_of(queue) if settings.policies.quota_preemption_delay_s else None
    alike = (leaf, queue.policies) == (settings.leaf, settings.policies)  # mostly, and then little can follow
    order = None if alike and guaranteed == settings.guaranteed else _application_order(queue)
    priority = None if alike else queue.priority
    configure(queue, settings)
    queue.quota_preemption_at = quota_timing.NO_TIME if terms is None else _brought_down_at(books, queue, terms)
    draining.end(queue)
    happenings.quota_changed(books, queue, maximum, guaranteed)
    if leaf != queue.leaf:
        happenings.queue_type(books, queue)
    if priority is not None:
        priorities.exported(queue, priority)
    if order is not None and _application_order(queue) != order:
        books.readiness.reordered(queue)
        for application_id in tuple(queue.applications):
            lifecycle.settle(books, books.applications[application_id])


def _brought_down_at(books: Books, queue: Queue, before: quota_timing.Terms) -> float:
    """When a queue that had these terms is brought down to its maximum, if it is."""
    return quota_timing.starts_at(
        before,
        quota_timing.terms_of(queue),
        allocated=queue.allocated,
        at=queue.quota_preemption_at,
        now=books.now,
    )


def _application_order(queue: Queue) -> tuple[bool, ApplicationSort, bool, dict[str, int] | None]:
    """What the order of a queue's applications depends on, besides themselves."""
    policies = queue.policies
    return queue.leaf, policies.application_sort, policies.priority_sort, queue.guaranteed
