"""What becomes of the placeholders of a task group, and of the real asks that wait for them.

As long as a placeholder of its group may still be there to be replaced, a real ask is *held*: the regular cycle passes
it over. When the last one has been replaced or is gone, the rest of the group's asks are like any others.

Not here: taking the place of a placeholder (`swaps.py`), and the time that a gang has (`gangs.py`).
"""

from common.resources import is_zero
from common.rm_messages import TIMEOUT
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application, TaskGroup
from partition_worker.engine.application_states import AppState
from partition_worker.engine.books import Books


def expect(books: Books, application: Application, placeholder: Allocation) -> None:
    """A placeholder is asked for, or reported as running, that was not known before."""
    name = placeholder.task_group
    group = application.task_groups.get(name)
    if group is None:
        group = application.task_groups[name] = TaskGroup(name, dict(placeholder.resources))
    group.count += 1
    if group.outstanding == 1:
        _hold_asks(books, application, group)


def gone(books: Books, application: Application, placeholder: Allocation, *, replaced: bool = False) -> None:
    """A placeholder is asked for no longer, or runs no longer; `replaced` if a real allocation has its place."""
    group = application.task_groups[placeholder.task_group]
    if replaced:
        group.replaced += 1
    else:
        group.timed_out += 1
    if group.outstanding == 0:
        _hold_asks(books, application, group)


def _hold_asks(books: Books, application: Application, group: TaskGroup) -> None:
    """Hold all real asks of a group that has placeholders now, or none of one that has none any more."""
    held = group.outstanding > 0
    for ask in tuple(application.asks):
        if ask.task_group == group.name and not ask.placeholder:
            application.hold(ask, held=held)
    books.readiness.touch_application(application)


def offer(books: Books, application: Application, changed: Allocation) -> None:
    """A placeholder, or an ask that waits for one, is new or has changed: another of its group may be there for it."""
    group = application.task_groups[changed.task_group]
    if group.waiting and group.free:
        books.swappable.offer(application)


def may_swap(application: Application) -> bool:
    """Whether the application has both an ask that waits for a placeholder and one that may be replaced."""
    return any(group.waiting and group.free for group in application.task_groups.values())


def watch(books: Books, application: Application) -> None:
    """A placeholder is about to be placed: with the first one the time of the gang begins."""
    if (
        application.state is AppState.ACCEPTED
        and is_zero(application.allocated_placeholder)
        and "placeholders" not in application.alarms
    ):
        books.timers.start(application, "placeholders", books.now + application.placeholder_timeout_s)


def let_go(books: Books, application: Application, chosen: list[Allocation], reason: str) -> None:
    """Ask the RM to let these go; they are used and charged until it confirms."""
    for one in chosen:
        assert not one.released, one.key
        assert not one.preempted, one.key
        one.released = True
        application.withdraw_placeholder(one)
    for one in chosen:
        books.emit(one.release(books.name, reason, TIMEOUT))
