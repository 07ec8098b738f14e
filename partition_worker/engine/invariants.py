"""Everything that must always be true of a partition, derived again from the allocations themselves.

Tests, properties and simulations call `check` after each step; in production it answers a health check. It costs a
look at every object and changes nothing.

Not here: mending anything.
"""

from collections.abc import Iterator

from common.messages import Resources
from common.resources import equal, minus, pruned, total_of
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.states import ENDED, LINGER_S, AppState
from partition_worker.engine.books import Books
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.queues.queue import NOTHING_PENDING, Queue


def check(books: Books) -> None:
    """Pass if every sum and index agrees with the allocations.

    Raises:
        AssertionError: naming everything that does not.
    """
    problems = list(violations(books))
    if problems:
        raise AssertionError(f"partition {books.name}: " + "; ".join(problems))


def violations(books: Books) -> Iterator[str]:
    """What is not as it must be, a sentence each."""
    for application in books.applications.values():
        yield from _application(books, application)
    for node in books.fleet:
        yield from _node(books, node)
    for queue in books.tree:
        yield from _queue(queue)
    yield from _indexes(books)
    yield from _users(books)


def _differs(what: str, expected: Resources, found: Resources) -> Iterator[str]:
    if not equal(expected, found):
        yield f"{what}: {pruned(found)} where the sum is {pruned(expected)}"


def _application(books: Books, application: Application) -> Iterator[str]:
    name = f"application {application.application_id}"
    if application.state in ENDED:
        yield f"{name} has ended ({application.state}) but is still listed"
    if application.queue.applications.get(application.application_id) is not application:
        yield f"{name} is not in its queue {application.queue.path}"
    yield from _differs(
        f"{name} pending", total_of(a.resources for a in application.requests.values()), application.pending
    )
    yield from _differs(
        f"{name} allocated", total_of(a.resources for a in application.allocations.values()), application.allocated
    )
    if {ask.key for ask in application.asks} != set(application.requests):
        yield f"{name}: its asks in order are not its asks by key"
    if bool(application.timer) != (application.state in LINGER_S):
        yield f"{name} in state {application.state}: timer is {application.timer}"
    for allocation in application.allocations.values():
        node = books.fleet.get(allocation.node_id)
        if node is None or node.allocations.get(allocation.key) is not allocation:
            yield f"{name}: allocation {allocation.key} is not on its node {allocation.node_id!r}"


def _node(books: Books, node: Node) -> Iterator[str]:
    name = f"node {node.node_id}"
    yield from _differs(f"{name} allocated", total_of(a.resources for a in node.allocations.values()), node.allocated)
    yield from _differs(f"{name} occupied", total_of(a.resources for a in node.foreign.values()), node.occupied)
    yield from _differs(f"{name} available", minus(minus(node.capacity, node.allocated), node.occupied), node.available)
    for key, allocation in node.allocations.items():
        owner = allocation.application
        if owner is None or owner.allocations.get(key) is not allocation:
            yield f"{name}: allocation {key} belongs to no application"


def _queue(queue: Queue) -> Iterator[str]:
    below: list[Queue] | list[Application] = list(queue.children.values()) or list(queue.applications.values())
    yield from _differs(f"queue {queue.path} allocated", total_of(one.allocated for one in below), queue.allocated)
    yield from _differs(f"queue {queue.path} pending", total_of(one.pending for one in below), queue.pending)
    running = (
        sum(application.state is AppState.RUNNING for application in queue.applications.values())
        if queue.leaf
        else sum(child.running for child in queue.children.values())
    )
    if running != queue.running:
        yield f"queue {queue.path}: {queue.running} running where {running} are"
    highest = max((one.priority for one in below), default=NOTHING_PENDING)
    counted = queue.priorities.highest
    if highest != (NOTHING_PENDING if counted is None else counted):
        yield f"queue {queue.path}: highest priority {counted}, below it is {highest}"


def _indexes(books: Books) -> Iterator[str]:
    keys = [
        key for application in books.applications.values() for key in (*application.requests, *application.allocations)
    ]
    if sorted(keys) != sorted(books.allocations):
        yield "the index of keys is not that of the applications"
    if sum(len(node.allocations) for node in books.fleet) != books.running_allocations:
        yield f"{books.running_allocations} allocations counted, the nodes have others"
    yield from _differs("total", total_of(node.capacity for node in books.fleet), books.fleet.total)
    yield from _differs("root maximum", books.fleet.total, books.tree.root.maximum or {})
    if {key for node in books.fleet for key in node.foreign} != set(books.foreign):
        yield "the index of foreign allocations is not that of the nodes"


def _users(books: Books) -> Iterator[str]:
    used: dict[str, Resources] = {}
    for application in books.applications.values():
        used[application.user.name] = total_of((used.get(application.user.name, {}), application.allocated))
    for user in {**used, **dict.fromkeys(books.usage)}:
        root = books.usage.levels(user).get(books.tree.root.path)
        yield from _differs(f"user {user}", used.get(user, {}), root.used if root else {})
        stale = [one for one in (root.applications if root else ()) if one not in books.applications]
        if stale:
            yield f"user {user}: {stale} count as running and are gone"
