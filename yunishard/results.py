"""A say in which ask may run on which node: the answer of a resource manager to what the core asks.

Not here: when the core asks, and what it makes of the answer (`docs/predicates.md`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from itertools import chain
from typing import NamedTuple, TypeVar

from msgspec.structs import force_setattr

from common.rm_messages import (
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
    """What to call for which news; what is left out is not told.

    Every item has a `partition_name`, the normalised name of its partition, which may be used in updates as it is.
    """

    allocated: Callback[Allocation] | None = None
    """An ask got its node, or a running allocation that was reported is now known."""
    released: Callback[AllocationRelease] | None = None
    """An allocation ends. Of type TIMEOUT, PREEMPTED_BY_SCHEDULER or PLACEHOLDER_REPLACED it is the core's wish: stop
    the work, then confirm by sending the same release back; until then its resources stay in use."""
    release_ignored: Callback[AllocationRelease] | None = None
    """A release that this resource manager sent had no effect; `message` says why. Harmless if both sides ended the
    same thing at the same time, otherwise the partition, the application or the key is wrong."""
    allocation_rejected: Callback[RejectedAllocation] | None = None
    application_accepted: Callback[AcceptedApplication] | None = None
    application_rejected: Callback[RejectedApplication] | None = None
    application_updated: Callback[UpdatedApplication] | None = None
    node_accepted: Callback[AcceptedNode] | None = None
    node_rejected: Callback[RejectedNode] | None = None
    partition_restarted: Callback[str] | None = None
    """The partition of this (normalised) name knows nothing any more: report everything of it again."""
    configuration_changed: Callback[ConfigurationUpdated] | None = None
    """Somebody else gave this resource manager another configuration: these are its partitions now."""
    event: Callback[EventRecord] | None = None
    """Something happened that concerns this resource manager, such as a queue that drains."""
    scheduling_state_updated: Callback[UpdateContainerSchedulingState] | None = None
    """An ask waits for nothing but nodes: more of them would help it. Told once for each ask."""
    goodbye: Callback[Goodbye] | None = None
    """The core stops for a while. Nothing has to be done: the session goes on when it is back."""
    refused: Callback[Refused] | None = None
    """A whole message was not acted on."""

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
    """The same result, after its items were given the name of their partition, which the core sends in the header.

    The items were decoded for this result alone, so they are completed in place: a tenth of the cost of copying them.
    """
    for item in _items(result.news):
        force_setattr(item, "partition_name", result.partition)
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
