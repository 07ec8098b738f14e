"""A partition that runs takes another configuration: first asked whether it can, then all of it at once.

    objections(books, config)    as data: why it cannot, nothing is changed
    apply(books, config)         what had no objections cannot fail

What runs goes on: a lower maximum takes nothing away, it only keeps more from being placed, and a higher one is used
at once. The resolver of groups is that of the first configuration, and what was submitted keeps its queue.

Not here: what differs between two configurations (`queues/changes.py`).
"""

from common.config.check import load_problems
from common.config.model import PartitionConfig
from partition_worker.engine import draining
from partition_worker.engine.books import Books
from partition_worker.engine.placement.chain import Placement
from partition_worker.engine.placement.rule import RuleError
from partition_worker.engine.queues import priorities
from partition_worker.engine.queues.blueprint import Settings, configure
from partition_worker.engine.queues.changes import Add, Change, Drain, PassOn, Set, changes
from partition_worker.engine.queues.policies import ApplicationSort
from partition_worker.engine.queues.queue import Queue


def objections(books: Books, config: PartitionConfig) -> list[str]:
    """What keeps this partition from taking a configuration that passed validation; nothing if it can."""
    if books.retired:
        return [f"partition {books.name} was removed"]
    problems = [str(problem) for problem in load_problems(config)]
    try:
        Placement(config.placement_rules)
    except RuleError as error:
        problems.append(str(error))
    return problems


def apply(books: Books, config: PartitionConfig) -> None:
    """Take the configuration, to which there are no objections."""
    books.config = config
    books.placement = Placement(config.placement_rules)
    books.placement_problem = ""
    books.fleet.reorder(books.node_sort(config), config.node_sort_policy.weights)
    for change in changes(books.tree, config.root):
        _make(books, change)
    if books.usage.reconfigure(config):
        books.readiness.limits_changed()
    books.readiness.reshaped()
    if books.tree.has_temporary():
        books.expect_cleaning()


def _make(books: Books, change: Change) -> None:
    match change:
        case Add(path, settings):
            books.tree.add(path, settings)
        case Set(queue, settings):
            _set(books, queue, settings)
        case PassOn(queue, template):
            queue.template = template
        case Drain(queue):
            draining.begin(books, queue)


def _set(books: Books, queue: Queue, settings: Settings) -> None:
    order, priority = _application_order(queue), queue.priority
    configure(queue, settings)
    draining.end(queue)
    priorities.exported(queue, priority)
    if _application_order(queue) != order:
        books.readiness.reordered(queue)


def _application_order(queue: Queue) -> tuple[bool, ApplicationSort, bool, dict[str, int] | None]:
    """What the order of a queue's applications depends on, besides themselves."""
    policies = queue.policies
    return queue.leaf, policies.application_sort, policies.priority_sort, queue.guaranteed
