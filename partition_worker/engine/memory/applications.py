"""Applications with all that they ask for and have, ended ones too, and the times at which something happens to them.

The asks are put in order when it is known for which of them a node is kept. Where an application runs is known by its
allocations, so of its pack only is written that there is one. Not here: reservations (`reserved.py`).
"""

from collections import deque
from collections.abc import Iterable

from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.application import STATE_LOG_MAX, Alarm, Application
from partition_worker.engine.applications.asks import Failure, PendingAsks
from partition_worker.engine.applications.history import Use
from partition_worker.engine.applications.task_group import TaskGroup
from partition_worker.engine.books import Books
from partition_worker.engine.memory import allocations
from partition_worker.engine.memory.amounts import amounts_of, sums
from partition_worker.engine.memory.model import AllocationMemory, ApplicationMemory, GroupMemory, TaskGroupMemory
from partition_worker.engine.memory.references import Lookup, Numbering
from partition_worker.engine.timers import Timers


def written(books: Books, numbering: Numbering) -> list[ApplicationMemory]:
    """Those that have not ended."""
    at = {number: when for when, number, _, _ in books.timers.entries()}
    return [_written(one, numbering, at) for one in books.applications.values()]


def written_ended(books: Books, numbering: Numbering) -> list[ApplicationMemory]:
    """Those that have."""
    return [_written(one, numbering, {}) for one in books.ended.values()]


def _written(one: Application, numbering: Numbering, at: dict[int, float]) -> ApplicationMemory:
    lowest, highest = one.asks.ranks
    places = {ask: place for place, ask in enumerate(one.requests.values())}
    return ApplicationMemory(
        application_id=one.application_id,
        rank=one.rank,
        user=numbering.submitter(one.user),
        queue=one.queue.rank,
        submitted_ns=one.submitted_ns,
        tags=one.tags,
        placeholder_ask=one.placeholder_ask,
        state=one.state,
        state_log=list(one.state_log),
        lowest_rank=lowest,
        highest_rank=highest,
        requests=_all(one.requests.values(), numbering),
        groups=_groups(one.asks, places),
        allocations=_all(one.allocations.values(), numbering),
        swapping=_all(one.swapping.values(), numbering),
        pending=sums(one.pending),
        allocated=sums(one.allocated),
        allocated_placeholder=sums(one.allocated_placeholder),
        max_allocated=sums(one.max_allocated),
        hard=one.gang_style == "Hard",
        placeholder_timeout_s=one.placeholder_timeout_s,
        task_groups=[_task_group(group) for group in one.task_groups.values()],
        history=[(use, kind, sums(used)) for (use, kind), used in one.history.items()],
        started_ns=one.started_ns,
        finished_ns=one.finished_ns,
        alarms=[(alarm, number, at[number]) for alarm, number in one.alarms.items()],
        held_by_queue=one.held_by_queue,
        held_by_quota=one.held_by_quota,
        back_off_until=one.back_off_until,
        packed=one.pack is not None,
    )


def _all(those: Iterable[Allocation], numbering: Numbering) -> list[AllocationMemory]:
    found = []
    for one in those:
        numbering.place(one)
        found.append(allocations.written(one, numbering))
    return found


def _groups(asks: PendingAsks, places: dict[Allocation, int]) -> list[GroupMemory]:
    return [
        GroupMemory(
            group.attempted,
            [(reason, times, last) for reason, (times, last) in group.failures.items()],
            [places[ask] for ask in group.asks],
        )
        for group in asks.kinds
    ]


def _task_group(group: TaskGroup) -> TaskGroupMemory:
    return TaskGroupMemory(
        group.name,
        sums(group.minimum),
        group.count,
        group.replaced,
        group.timed_out,
        group.waiting,
        list(group.free),
    )


# Reading ------------------------------------------------------------------------------------------------------------


def restore(books: Books, found: list[ApplicationMemory], lookup: Lookup) -> None:
    """Let the partition have those that have not ended; the queues are there, and the nodes without what is there."""
    reading = allocations.Reading(lookup, books.fleet.predicates)
    for memory in found:
        application = books.applications[memory.application_id] = _restored(memory, lookup, reading)
        for owned in (application.requests, application.allocations, application.swapping):
            books.allocations.update(owned)
        books.running_allocations += len(application.allocations)


def restore_ended(books: Books, found: list[ApplicationMemory], lookup: Lookup) -> None:
    """Let the partition remember those that have ended."""
    reading = allocations.Reading(lookup, books.fleet.predicates)
    for memory in found:
        books.remember_ended(_restored(memory, lookup, reading))


def restore_orders(books: Books, found: list[ApplicationMemory], lookup: Lookup) -> None:
    """What depends on reservations, on what lies where, and on which node is where in its order."""
    for memory in found:
        application = lookup.applications[memory.rank]
        requests = tuple(application.requests.values())
        for group in memory.groups:
            failures = {reason: Failure(times, last) for reason, times, last in group.failures}
            asks = [requests[at] for at in group.asks]
            application.asks.take_up(asks, attempted=group.attempted, failures=failures)
        if memory.packed:
            books.fleet.pack(application)


def restore_alarms(timers: Timers, found: list[ApplicationMemory], lookup: Lookup, last: int) -> None:
    """Let something happen to applications when it would have."""
    kinds: dict[str, Alarm] = {"state": "state", "placeholders": "placeholders", "look": "look"}
    timers.recall(
        (
            (at, number, kinds[alarm], lookup.applications[memory.rank])
            for memory in found
            for alarm, number, at in memory.alarms
        ),
        last,
    )


def _restored(memory: ApplicationMemory, lookup: Lookup, reading: allocations.Reading) -> Application:
    application = lookup.applications[memory.rank] = Application(
        application_id=memory.application_id,
        rank=memory.rank,
        user=lookup.submitters[memory.user],
        queue=lookup.queues[memory.queue],
        submitted_ns=memory.submitted_ns,
        tags=memory.tags,
        placeholder_ask=memory.placeholder_ask,
        state=memory.state,
        state_log=deque(memory.state_log, maxlen=STATE_LOG_MAX),
        pending=amounts_of(memory.pending),
        allocated=amounts_of(memory.allocated),
        allocated_placeholder=amounts_of(memory.allocated_placeholder),
        max_allocated=amounts_of(memory.max_allocated),
        gang_style="Hard" if memory.hard else "Soft",
        placeholder_timeout_s=memory.placeholder_timeout_s,
        history={(Use(use), kind): amounts_of(used) for use, kind, used in memory.history},
        started_ns=memory.started_ns,
        finished_ns=memory.finished_ns,
        held_by_queue=memory.held_by_queue,
        held_by_quota=memory.held_by_quota,
        back_off_until=memory.back_off_until,
    )
    application.asks.recall((memory.lowest_rank, memory.highest_rank))
    _fill(application, memory, lookup, reading)
    return application


def _fill(application: Application, memory: ApplicationMemory, lookup: Lookup, reading: allocations.Reading) -> None:
    for owned, those in (
        (application.requests, memory.requests),
        (application.allocations, memory.allocations),
        (application.swapping, memory.swapping),
    ):
        for one in those:
            owned[one.key] = allocation = reading.restored(one, application)
            lookup.allocations.append(allocation)
    for one in memory.swapping:
        assert one.rare is not None, one.key
        ask, placeholder = application.swapping[one.key], application.allocations[one.rare[0]]
        ask.partner, placeholder.partner = placeholder, ask
    for group in memory.task_groups:
        application.task_groups[group.name] = TaskGroup(
            name=group.name,
            minimum=amounts_of(group.minimum),
            count=group.count,
            replaced=group.replaced,
            timed_out=group.timed_out,
            free={key: application.allocations[key] for key in group.free},
            waiting=group.waiting,
        )
