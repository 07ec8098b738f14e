"""Results: the enums and callbacks that a program uses to handle what the core sends, and predicates.

A result is a `(partition, news)` pair. Every item in it has `partition_name`, the normalised name of its partition.
`termination_type` and `state` hold the enums of this module, which are equal to the numbers and texts of the protocol.

Not here: receiving (`session.py`), the thread that the callbacks run in (`client.py`, `blocking.py`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import force_setattr

from common.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    NODE_DECOMMISSION,
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
    PLACEHOLDER_REPLACED,
    PREEMPTED_BY_SCHEDULER,
    SCHEDULING_FAILED,
    STOPPED_BY_RM,
    TIMEOUT,
    UNKNOWN_TERMINATION,
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    ConfigurationUpdated,
    EventRecord,
    EventResponse,
    Goodbye,
    NodeResponse,
    PartitionRestarted,
    PredicatesAnswered,
    PredicatesArgs,
    PredicatesAsked,
    Refused,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    ReleasesIgnored,
    SchedulingStateResponse,
    UpdateContainerSchedulingState,
    UpdatedApplication,
    Verdict,
)
from yunishard.builders import check_callable

Predicate = Callable[[str, str, bool], str | None]
"""Called with the key of an ask, the id of a node, and whether it is to run there now: otherwise the node is only to be
kept for it, or it is to take the place of its placeholder there. Gives the reason why it may not, or None (or "") if it
may. It is called in the thread of the connection, for many pairs at once: it looks at what it knows, and waits for
nothing.
"""


def answer(asked: PredicatesAsked, predicate: Predicate) -> PredicatesAnswered:
    """The verdicts on all that is asked."""
    return PredicatesAnswered(question=asked.question, verdicts=[_verdict(one, predicate) for one in asked.asked])


def _verdict(asked: PredicatesArgs, predicate: Predicate) -> Verdict:
    try:
        refusal = predicate(asked.allocation_key, asked.node_id, asked.allocate) or ""
        if not isinstance(refusal, str):
            raise TypeError(f"it must return the reason (str) or None, got {refusal!r}")
    except Exception as error:  # the core gets an answer all the same, and people read the reason
        refusal = f"predicate of the resource manager failed: {type(error).__name__}: {error}"
    return Verdict(
        allocation_key=asked.allocation_key,
        node_id=asked.node_id,
        allocate=asked.allocate,
        refusal=refusal.encode(errors="replace").decode(),
    )


class NodeAction(IntEnum):
    """What to do with a node: the `action` of `node()`."""

    CREATE = NODE_CREATE
    UPDATE = NODE_UPDATE
    DRAIN = NODE_DRAIN
    DECOMMISSION = NODE_DECOMMISSION
    DRAIN_TO_SCHEDULABLE = NODE_DRAIN_TO_SCHEDULABLE
    CREATE_DRAIN = NODE_CREATE_DRAIN


class TerminationType(IntEnum):
    """Why an allocation ends: the `termination_type` of a release."""

    UNKNOWN = UNKNOWN_TERMINATION
    STOPPED_BY_RM = STOPPED_BY_RM
    TIMEOUT = TIMEOUT
    PREEMPTED_BY_SCHEDULER = PREEMPTED_BY_SCHEDULER
    PLACEHOLDER_REPLACED = PLACEHOLDER_REPLACED


class SchedulingState(IntEnum):
    """The `state` of an ask that found no node."""

    FAILED = SCHEDULING_FAILED


class ApplicationState(StrEnum):
    """The `state` of an application."""

    NEW = "New"
    ACCEPTED = "Accepted"
    RUNNING = "Running"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    FAILING = "Failing"
    FAILED = "Failed"
    REJECTED = "Rejected"
    RESUMING = "Resuming"
    EXPIRED = "Expired"


_TERMINATIONS: Final[dict[int, TerminationType]] = {one.value: one for one in TerminationType}
_STATES: Final[dict[str, ApplicationState]] = {one.value: one for one in ApplicationState}

Update = (
    NodeResponse
    | ApplicationResponse
    | AllocationResponse
    | EventResponse
    | SchedulingStateResponse
    | ConfigurationUpdated
    | ReleasesIgnored
    | PartitionRestarted
    | Goodbye
    | Refused
)
"""What the core has to tell."""

_T = TypeVar("_T")
Answer = Awaitable[None] | None
"""What a function gives back: an `async def` something to wait for, a plain one nothing."""
Callback = Callable[[_T], Answer]


class Result(NamedTuple):
    """Something the core has to tell: about which partition (its normalised name, "" for none), and what."""

    partition: str
    news: Update


class Results(AsyncIterator[Result]):
    """Not a generator, so that nothing is left hanging when one consumer breaks off and another goes on."""

    def __init__(self, take: Callable[[], Awaitable[Result]]) -> None:
        self._take = take

    async def __anext__(self) -> Result:
        return await self._take()


@dataclass(frozen=True, kw_only=True, slots=True)
class Callbacks:
    """Functions to call for each kind of item; items without a function are dropped.

    Each function takes one argument, given below. For `ResourceManager.run` it may be `async def`; for
    `BlockingResourceManager` it must be a plain function.
    """

    allocated: Callback[Allocation] | None = None
    """`(Allocation)`: an ask has a node, or the core has accepted a running allocation that was reported."""
    released: Callback[AllocationRelease] | None = None
    """`(AllocationRelease)`: an allocation ends. With TIMEOUT, PREEMPTED_BY_SCHEDULER or PLACEHOLDER_REPLACED the core
    requests it: stop the work, then confirm by sending the same release. Its resources stay in use until then."""
    release_ignored: Callback[AllocationRelease] | None = None
    """`(AllocationRelease)`: a release that this RM sent had no effect; `message` gives the reason. Harmless if both
    sides ended the same allocation at the same time; otherwise the partition, the application or the key is wrong."""
    allocation_rejected: Callback[RejectedAllocation] | None = None
    """`(RejectedAllocation)`: the core refused an ask or allocation; `reason` says why."""
    application_accepted: Callback[AcceptedApplication] | None = None
    """`(AcceptedApplication)`: the core accepted a new application."""
    application_rejected: Callback[RejectedApplication] | None = None
    """`(RejectedApplication)`: the core refused a new application; `reason` says why."""
    application_updated: Callback[UpdatedApplication] | None = None
    """`(UpdatedApplication)`: an application entered a state, an `ApplicationState`."""
    node_accepted: Callback[AcceptedNode] | None = None
    """`(AcceptedNode)`: the core accepted a new node."""
    node_rejected: Callback[RejectedNode] | None = None
    """`(RejectedNode)`: the core refused a new node; `reason` says why."""
    partition_restarted: Callback[str] | None = None
    """`(str)`: the partition with this normalised name lost its state; report everything in it again."""
    configuration_changed: Callback[ConfigurationUpdated] | None = None
    """`(ConfigurationUpdated)`: an operator or another client changed the configuration of this RM."""
    event: Callback[EventRecord] | None = None
    """`(EventRecord)`: an event of this RM's partitions, such as a queue that starts to drain."""
    scheduling_state_updated: Callback[UpdateContainerSchedulingState] | None = None
    """`(UpdateContainerSchedulingState)`: only more nodes would help this ask. Called once for each ask."""
    goodbye: Callback[Goodbye] | None = None
    """`(Goodbye)`: the core stops for a while. The session continues without any action of the program."""
    refused: Callback[Refused] | None = None
    """`(Refused)`: the core did not act on a whole message."""

    def __post_init__(self) -> None:
        """Check that all of them can be called.

        Raises:
            TypeError: one cannot; names it.
        """
        for one in fields(self):
            check_callable("Callbacks()", one.name, getattr(self, one.name))

    def tell(self, result: Result) -> Iterator[Answer]:
        """Call what is meant for this result, one function a step; each step gives what the function gave back."""
        match result.news:
            case AllocationResponse() as news:
                yield from _each(self.allocated, news.new)
                yield from _each(self.released, news.released)
                yield from _each(self.allocation_rejected, news.rejected_allocations)
            case ApplicationResponse() as news:
                yield from _each(self.application_accepted, news.accepted)
                yield from _each(self.application_rejected, news.rejected)
                yield from _each(self.application_updated, news.updated)
            case NodeResponse() as news:
                yield from _each(self.node_accepted, news.accepted)
                yield from _each(self.node_rejected, news.rejected)
            case EventResponse() as news:
                yield from _each(self.event, news.events)
            case SchedulingStateResponse() as news:
                yield from _each(self.scheduling_state_updated, news.updated)
            case ReleasesIgnored() as news:
                yield from _each(self.release_ignored, news.ignored)
            case ConfigurationUpdated() as changed:
                yield from _each(self.configuration_changed, [changed])
            case PartitionRestarted():
                yield from _each(self.partition_restarted, [result.partition])
            case Goodbye() as goodbye:
                yield from _each(self.goodbye, [goodbye])
            case Refused() as refused:
                yield from _each(self.refused, [refused])


def with_partition(result: Result) -> Result:
    """Set the partition's name, which the core sends in the header, and the enums in the items of a result.

    Only this result refers to the decoded items, so they are changed in place: a tenth of the cost of copying them. A
    value that this version does not know, from a newer core, stays as it is.
    """
    for item in _items(result.news):
        force_setattr(item, "partition_name", result.partition)
        match item:
            case AllocationRelease(termination_type=kind) if kind in _TERMINATIONS:
                force_setattr(item, "termination_type", _TERMINATIONS[kind])
            case UpdatedApplication(state=state) if state in _STATES:
                force_setattr(item, "state", _STATES[state])
            case UpdateContainerSchedulingState(state=number) if number == SchedulingState.FAILED:
                force_setattr(item, "state", SchedulingState.FAILED)
            case _:
                pass
    return result


_Item = (
    Allocation
    | AllocationRelease
    | RejectedAllocation
    | AcceptedApplication
    | RejectedApplication
    | UpdatedApplication
    | AcceptedNode
    | RejectedNode
    | EventRecord
    | UpdateContainerSchedulingState
    | Refused
)
"""What names its partition."""


def _items(news: Update) -> Iterable[_Item]:
    match news:
        case AllocationResponse():
            return chain(news.new, news.released, news.rejected_allocations)
        case ApplicationResponse():
            return chain(news.accepted, news.rejected, news.updated)
        case NodeResponse():
            return chain(news.accepted, news.rejected)
        case EventResponse():
            return news.events
        case SchedulingStateResponse():
            return news.updated
        case ReleasesIgnored():
            return news.ignored
        case Refused():
            return [news]
    return ()


def _each(callback: Callback[_T] | None, items: Iterable[_T]) -> Iterator[Answer]:
    if callback is not None:
        for item in items:
            yield callback(item)
