"""Everything that must always be true of a partition, derived again from the allocations themselves.

Tests, properties and simulations call `check` after each step; in production it answers a health check. It costs a
look at every object and changes nothing.

Not here: mending anything.
"""

from collections import Counter
from collections.abc import Iterator

from common.messages import Resources
from common.resources import add_to, equal, minus, pruned, total_of
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.states import ENDED, LINGER_S, AppState
from partition_worker.engine.books import Books
from partition_worker.engine.limits.account import Account
from partition_worker.engine.limits.trackers import Tracker
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
        yield from _queue(books, queue)
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


def _queue(books: Books, queue: Queue) -> Iterator[str]:
    below: list[Queue | Application] = [*queue.children.values(), *queue.applications.values()]
    yield from _differs(f"queue {queue.path} allocated", total_of(one.allocated for one in below), queue.allocated)
    yield from _differs(f"queue {queue.path} pending", total_of(one.pending for one in below), queue.pending)
    running = sum(application.state is AppState.RUNNING for application in queue.applications.values())
    running += sum(child.running for child in queue.children.values())
    if running != queue.running:
        yield f"queue {queue.path}: {queue.running} running where {running} are"
    for what, members, tally in (
        ("applications", queue.applications, queue.priorities),
        ("children", queue.children, queue.child_priorities),
    ):
        highest = max((one.priority for one in members.values()), default=NOTHING_PENDING)
        counted = tally.highest
        if highest != (NOTHING_PENDING if counted is None else counted):
            yield f"queue {queue.path}: highest priority of {what} {counted}, theirs is {highest}"
    if queue.draining != bool(queue.draining_since_ns):
        yield f"queue {queue.path} is {queue.state}, and drains since {queue.draining_since_ns}"
    if queue.leaf and queue.template is not None:
        yield f"queue {queue.path} is a leaf and has a template"
    if not queue.managed and not queue.leaf and queue.parent is not None and queue.template != queue.parent.template:
        yield f"queue {queue.path} has another template than the queue above it, which it hands on"
    if books.tree.find(queue.path) is not queue or (
        queue.parent is not None and queue.parent.children.get(queue.name) is not queue
    ):
        yield f"queue {queue.path} is not where its path says"


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
    """What is charged to whom, derived from the applications; who counts is known by the accounts only."""
    accounts = [(one, books.usage.known(one)) for one in books.applications.values()]
    charged: dict[tuple[str, str], list[Account]] = {}
    for application, account in accounts:
        if account is None:
            if application.allocations:
                yield f"application {application.application_id} is charged to nobody"
            continue
        if application.allocations and not account.counted:
            yield f"application {application.application_id} has something and does not count as running"
        charged.setdefault(("user", application.user.name), []).append(account)
        if account.group_name is not None:
            charged.setdefault(("group", account.group_name), []).append(account)
    for kind, trackers in (("user", books.usage.users), ("group", books.usage.groups)):
        for tracker in trackers:
            yield from _tracker(f"{kind} {tracker.name}", tracker, charged.pop((kind, tracker.name), []))
    for kind, name in charged:
        yield f"{kind} {name} is charged and not tracked"


def _tracker(what: str, tracker: Tracker, accounts: list[Account]) -> Iterator[str]:
    if {id(one) for one in tracker.accounts.values()} != {id(one) for one in accounts}:
        yield f"{what}: its accounts are not those of the applications"
    used: dict[str, Resources] = {}
    counted: dict[str, list[str]] = {}
    for one in accounts:
        for queue in one.application.queue.ancestry():
            add_to(used.setdefault(queue.path, {}), one.application.allocated)
            if one.counted:
                counted.setdefault(queue.path, []).append(one.application.application_id)
    charged = Counter(one.application.queue.path for one in accounts)
    for path, level in tracker.levels.items():
        where = f"{what} at {path}"
        yield from _differs(where, used.pop(path, {}), level.used)
        if sorted(counted.get(path, ())) != sorted(level.applications):
            yield f"{where}: {sorted(level.applications)} count as running, others should"
        if level.charged != charged[path]:
            yield f"{where}: {level.charged} applications are charged here, others should be"
        if level.empty:
            yield f"{where}: nothing is there, and it is kept"
    if used:
        yield f"{what} is charged at queues that are not tracked: {sorted(used)}"
    if not tracker.levels:
        yield f"{what} has no queues, and is kept"
