"""What an RM's word about asks and allocations does to the partition: new, changed, already running, and released.

Not here: who gets a node (`cycle/cycle.py`), and the books (`ledger.py`).
"""

from collections.abc import Iterable

from common import event_codes, rm_messages
from common.resources import equal, is_positive, is_zero
from common.rm_messages import (
    PLACEHOLDER_REPLACED,
    PREEMPTED_BY_SCHEDULER,
    SCHEDULING_FAILED_ON_RM,
    STOPPED_BY_RM,
    TIMEOUT,
    AllocationRelease,
    AllocationRequest,
    RejectedAllocation,
)
from partition_worker.engine import happenings, ledger, lifecycle, swaps
from partition_worker.engine.allocation import FOREIGN, Allocation, from_message
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import ACTIVE, AppEvent, AppState
from partition_worker.engine.ask_shapes import Constraint
from partition_worker.engine.books import Books
from partition_worker.engine.bounds import ask_objection
from partition_worker.engine.effects import IgnoredRelease
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.queues import quota_timing
from partition_worker.engine.updates import removal, verdict_updates
from partition_worker.engine.user_resolution import HELD_MAX, Said

_CONFIRMATIONS = frozenset({TIMEOUT, PREEMPTED_BY_SCHEDULER})
"""Types by which an RM confirms a release that the core asked for; they are not answered."""


class _Refusal(Exception):
    """An ask or allocation that cannot be taken; the text is the reason for the RM."""

    def __init__(self, reason: str, *, counts: bool = False) -> None:
        super().__init__(reason)
        self.counts = counts
        """Whether it counts as a scheduling error, which an RM that is in its right mind does not cause."""


def handle(books: Books, request: AllocationRequest) -> None:
    """All allocations in order, then their rejections together, then all releases in order."""
    rejected: list[RejectedAllocation] = []
    for message in request.allocations:
        try:
            _take(books, message)
        except _Refusal as refusal:
            books.counters.errors += refusal.counts
            rejected.append(
                RejectedAllocation(
                    allocation_key=message.allocation_key,
                    application_id=message.application_id,
                    reason=str(refusal),
                )
            )
    for rejection in rejected:
        books.emit(rejection)
    for release in request.releases.allocations_to_release:
        _release(books, release)


def follow(books: Books, said: Iterable[Said]) -> None:
    """What was said about applications while they waited has its effect now."""
    for one in said:
        if isinstance(one, AllocationRelease):
            _release(books, one)
        else:
            handle(books, AllocationRequest(allocations=[one]))


# Asks and allocations -----------------------------------------------------------------------------------------------


def _take(books: Books, message: rm_messages.Allocation) -> None:
    """Repeating a message changes nothing; a known key with other amounts is resized, with a node it was placed by
    the RM.
    """
    if message.placeholder and not message.task_group_name:
        raise _Refusal(f"placeholder allocation {message.allocation_key} has no task group")
    if FOREIGN in message.allocation_tags:
        _take_foreign(books, message)
        return
    application = books.applications.get(message.application_id)
    if application is None:
        if message.application_id not in books.waiting:
            raise _Refusal(f"failed to find application {message.application_id}", counts=True)
        if not books.waiting.hold(message.application_id, message):
            raise _Refusal(f"{HELD_MAX} asks and releases wait until users have been looked up: try again later")
        return
    if application.state is AppState.FAILING:
        raise _Refusal(f"application {message.application_id} is failing, it takes nothing more")
    node = _node(books, message)
    if is_zero(message.resource_per_alloc):
        raise _Refusal("allocation contains no resources", counts=True)
    if not is_positive(message.resource_per_alloc):
        raise _Refusal("allocation contains negative resources", counts=True)
    known = application.find(message.allocation_key)
    if known is None:
        _take_new(books, application, message, node)
        return
    if not equal(known.resources, message.resource_per_alloc):
        resize = ledger.resize_allocation if known.node_id else ledger.resize_ask
        resize(books, application, known, message.resource_per_alloc)
        _charged_unchecked(books, application)
    if node is not None and not known.node_id:
        ledger.place_ask(books, application, known, node)
        _charged_unchecked(books, application)
        application.queue.bound += 1
        books.emit(known.announced())


def _take_new(books: Books, application: Application, message: rm_messages.Allocation, node: Node | None) -> None:
    if not message.allocation_key:
        raise _Refusal("allocation has no key")
    owner = books.allocations.get(message.allocation_key)
    if owner is not None:
        raise _Refusal(f"allocation key {message.allocation_key} is in use by application {owner.application_id}")
    if objection := ask_objection(books, message):
        raise _Refusal(objection)
    constraint = _constraint(books, message)
    allocation = from_message(
        message, application.application_id, stamp_ns=books.stamp_ns(), needs=books.needs, constraint=constraint
    )
    if node is None:
        if application.state in (AppState.NEW, AppState.COMPLETING):
            lifecycle.fire(books, application, AppEvent.RUN)
        ledger.add_ask(books, application, allocation)
        return
    allocation.recovered = True
    ledger.recover(books, application, allocation, node)
    _charged_unchecked(books, application)
    application.queue.bound += 1
    books.emit(allocation.announced())


def _charged_unchecked(books: Books, application: Application) -> None:
    """What the RM says runs was charged to the queues, whether or not there was room."""
    if books.config.preemption.is_quota_enabled and quota_timing.grown(application.queue, books.now):
        books.expect_quota_look()


def _constraint(books: Books, message: rm_messages.Allocation) -> Constraint | None:
    """What the tags demand of a node. What runs already is not refused for what it would demand."""
    try:
        return books.fleet.predicates.read(message.allocation_tags, message.allocation_key)
    except ValueError as error:
        if message.node_id:
            return None
        raise _Refusal(str(error)) from error


def _node(books: Books, message: rm_messages.Allocation) -> Node | None:
    if not message.node_id:
        return None
    node = books.fleet.get(message.node_id)
    if node is None:
        raise _Refusal(f"failed to find node {message.node_id}", counts=True)
    return node


def _take_foreign(books: Books, message: rm_messages.Allocation) -> None:
    """Something runs on a node that we did not schedule: it takes room there and concerns nobody else."""
    key = message.allocation_key
    if not message.node_id:
        raise _Refusal(f"trying to add a foreign request (non-allocation) {key}")
    node = books.fleet.get(message.node_id)
    if node is None:
        raise _Refusal(f"failed to find node {message.node_id} for allocation {key}")
    if any(amount < 0 for amount in message.resource_per_alloc.values()):
        raise _Refusal("allocation contains negative resources")
    before = books.foreign.get(key)
    if before is None and (objection := ask_objection(books, message)):
        raise _Refusal(objection)
    if before is not None and before is not node:
        _take_foreign_away(books, before, key)
    allocation = from_message(message, "", stamp_ns=books.stamp_ns(), needs=books.needs)
    allocation.node_id = node.node_id
    node.put_foreign(allocation)
    if before is not node:
        happenings.node_allocation(books, node.node_id, event_codes.ADD, allocation)
    books.foreign[key] = node
    _foreign_changed(books, node)


# Releases -----------------------------------------------------------------------------------------------------------


def _release(books: Books, release: AllocationRelease) -> None:
    if not release.application_id:
        _release_foreign(books, release)
        return
    application = books.applications.get(release.application_id)
    if application is None:
        if release.application_id in books.waiting:
            if not books.waiting.hold(release.application_id, release):
                books.waiting.withdraw(release.application_id, release.allocation_key)
            return
        books.emit(IgnoredRelease(release, f"application {release.application_id} is unknown"))
        return
    if release.allocation_key:
        known = application.find(release.allocation_key)
        if known is None:
            books.emit(IgnoredRelease(release, f"unknown to application {release.application_id}"))
            return
        _release_one(books, application, known, release.termination_type)
    else:
        _release_all(books, application, release.termination_type)


def _release_one(books: Books, application: Application, known: Allocation, termination_type: int) -> None:
    """Something goes; or waits again, or makes place for a real allocation."""
    if termination_type == SCHEDULING_FAILED_ON_RM:
        _roll_back(books, application, known)
    elif termination_type == PLACEHOLDER_REPLACED and known.placeholder and known.partner is not None:
        books.emit(swaps.confirm(books, application, known).announced())
        _charged_unchecked(books, application)
    elif known.key in application.allocations:
        if termination_type == PLACEHOLDER_REPLACED:
            books.note(f"release of {known.key}: nothing takes its place, it is removed")
            termination_type = STOPPED_BY_RM
        removal.remove(books, application, known, termination_type)
        _answer(books, [known], termination_type)
    elif termination_type != TIMEOUT:  # that confirms the time-out of what had a node
        removal.take_back(books, application, known)


def _release_all(books: Books, application: Application, termination_type: int) -> None:
    keeping_asks = termination_type == TIMEOUT
    told = books.told
    ran = removal.empty(books, application, keeping_asks=keeping_asks)
    application.queue.released += len(ran)
    lifecycle.emptied(books, application)
    happenings.arrange(books, told, happenings.OF_RELEASE)
    _answer(books, ran, termination_type)


def _answer(books: Books, gone: list[Allocation], termination_type: int) -> None:
    """An RM hears that what ran is gone, unless it confirms that with the release."""
    if termination_type not in _CONFIRMATIONS:
        for allocation in gone:
            books.emit(allocation.release(books.name, "allocation remove as per RM request"))


def _roll_back(books: Books, application: Application, allocation: Allocation) -> None:
    """The RM could not start what was placed: it waits for a node again. A placeholder that the RM was asked to let go
    has to go all the same, and what has not got its place yet was not to be started.
    """
    if allocation.released or allocation.key not in application.allocations:
        books.note(f"allocation {allocation.key} was not to be started")
    elif application.state is AppState.ACCEPTED or application.state in ACTIVE:
        verdict_updates.not_started(books, allocation)
        ledger.roll_back(books, application, allocation)


def _release_foreign(books: Books, release: AllocationRelease) -> None:
    key = release.allocation_key
    node = books.foreign.pop(key, None)
    if node is None:
        books.emit(IgnoredRelease(release, "no foreign allocation has this key"))
        return
    _take_foreign_away(books, node, key)


def _take_foreign_away(books: Books, node: Node, key: str) -> None:
    happenings.node_allocation(books, node.node_id, event_codes.REMOVE, node.foreign[key])
    node.remove_foreign(key)
    _foreign_changed(books, node)


def _foreign_changed(books: Books, node: Node) -> None:
    """Foreign use of a node changed. It does not move the node in the order: only what we place does."""
    books.fleet.freed(node)
    books.reserved.nudge(node)
    books.readiness.relieve()
