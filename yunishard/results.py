"""Results: the enums and callbacks that a program uses to handle what the core sends, and predicates.

A result is a `(partition, news)` pair. Every item in it has `partition_name`, the normalised name of its partition.
`termination_type` and `state` hold the enums of this module, which are equal to the numbers and texts of the protocol.

Not here: receiving (`session.py`), the thread that the callbacks run in (`client.py`, `blocking.py`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from common import rm_messages
from yunishard.builders import check_callable

Predicate = Callable[[str, str, bool], str | None]
"""Called with the key of an ask, the id of a node, and whether the ask is to be allocated there now: False if the node
is only to be reserved, or the ask is to replace its placeholder there. Returns the reason why the ask must not run
there; None or "" if it may. The thread of the connection calls it for many pairs at once, so it must not block.
"""


def answer_predicates(asked: rm_messages.PredicatesAsked, predicate: Predicate) -> rm_messages.PredicatesAnswered:
    """Return the verdicts on all pairs in a question."""
    return rm_messages.PredicatesAnswered(
        question=asked.question, verdicts=[_call_predicate(one, predicate) for one in asked.asked]
    )


def _call_predicate(asked: rm_messages.PredicatesArgs, predicate: Predicate) -> rm_messages.Verdict:
    try:
        refusal = predicate(asked.allocation_key, asked.node_id, asked.allocate) or ""
        if not isinstance(refusal, str):
            raise TypeError(f"it must return the reason (str) or None, got {refusal!r}")
    except Exception as error:  # a fault of the program must not end the connection
        refusal = f"predicate of the resource manager failed: {type(error).__name__}: {error}"
    return rm_messages.Verdict(
        allocation_key=asked.allocation_key,
        node_id=asked.node_id,
        allocate=asked.allocate,
        refusal=refusal.encode(errors="replace").decode(),
    )


class NodeAction(IntEnum):
    """An operation on a node: the `action` of `node()`."""

    CREATE = rm_messages.NODE_CREATE
    """Add a node that takes allocations."""
    UPDATE = rm_messages.NODE_UPDATE
    """Set the resources of a node."""
    DRAIN = rm_messages.NODE_DRAIN
    """Place nothing new on a node; its allocations continue."""
    DECOMMISSION = rm_messages.NODE_DECOMMISSION
    """Remove a node and release its allocations."""
    DRAIN_TO_SCHEDULABLE = rm_messages.NODE_DRAIN_TO_SCHEDULABLE
    """Let a drained node take allocations again."""
    CREATE_DRAIN = rm_messages.NODE_CREATE_DRAIN
    """Add a node in the drained state."""


class TerminationType(IntEnum):
    """Why an allocation ends: the `termination_type` of a release."""

    UNKNOWN = rm_messages.UNKNOWN_TERMINATION
    STOPPED_BY_RM = rm_messages.STOPPED_BY_RM
    """The RM ended it, or removed its application."""
    TIMEOUT = rm_messages.TIMEOUT
    """The core releases a placeholder that no real ask replaced in time."""
    PREEMPTED_BY_SCHEDULER = rm_messages.PREEMPTED_BY_SCHEDULER
    """The core releases a victim for another ask."""
    PLACEHOLDER_REPLACED = rm_messages.PLACEHOLDER_REPLACED
    """The core releases a placeholder that a real ask replaces."""
    SCHEDULING_FAILED_ON_RM = rm_messages.SCHEDULING_FAILED_ON_RM
    """The RM could not start what the core allocated."""


class SchedulingState(IntEnum):
    """The `state` of an ask that found no node."""

    FAILED = rm_messages.SCHEDULING_FAILED


class ApplicationState(StrEnum):
    """The `state` of an application."""

    NEW = "New"
    ACCEPTED = "Accepted"
    STARTING = "Starting"
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
    rm_messages.NodeResponse
    | rm_messages.ApplicationResponse
    | rm_messages.AllocationResponse
    | rm_messages.EventResponse
    | rm_messages.SchedulingStateResponse
    | rm_messages.ConfigurationUpdated
    | rm_messages.ReleasesIgnored
    | rm_messages.PartitionRestarted
    | rm_messages.Goodbye
    | rm_messages.Refused
)
"""Everything that a result can hold."""

_T = TypeVar("_T")
Answer = Awaitable[None] | None
"""Return value of a callback: an awaitable from an `async def`, None from a plain function."""
Callback = Callable[[_T], Answer]


class Result(NamedTuple):
    """A message of the core about one partition."""

    partition: str
    """Normalised name; "" if the news concern no single partition."""
    news: Update
    """The message; its class is the kind."""


class Results(AsyncIterator[Result]):
    """An iterator over results. It is not a generator, so that a consumer may stop, and another one continue."""

    def __init__(self, take: Callable[[], Awaitable[Result]]) -> None:
        self._take = take

    async def __anext__(self) -> Result:
        return await self._take()


@dataclass(frozen=True, kw_only=True, slots=True)
class Callbacks:
    """Functions to call for each kind of item; items without a function are dropped.

    Each function takes one item, of the class in its type. For `ResourceManager.run` it may be `async def`; for
    `BlockingResourceManager` it must be a plain function.
    """

    allocated: Callback[rm_messages.Allocation] | None = None
    """An ask has a node, or the core has accepted a running allocation that was reported."""
    released: Callback[rm_messages.AllocationRelease] | None = None
    """An allocation ends. With TIMEOUT, PREEMPTED_BY_SCHEDULER or PLACEHOLDER_REPLACED the core
    requests it: stop the work, then confirm by sending the same release. Its resources stay in use until then."""
    release_ignored: Callback[rm_messages.AllocationRelease] | None = None
    """A release that this RM sent had no effect; `message` gives the reason. Harmless if both
    sides ended the same allocation at the same time; otherwise the partition, the application or the key is wrong."""
    allocation_rejected: Callback[rm_messages.RejectedAllocation] | None = None
    """The core refused an ask or allocation; `reason` tells why."""
    application_accepted: Callback[rm_messages.AcceptedApplication] | None = None
    """The core accepted a new application."""
    application_rejected: Callback[rm_messages.RejectedApplication] | None = None
    """The core refused a new application; `reason` tells why."""
    application_updated: Callback[rm_messages.UpdatedApplication] | None = None
    """An application entered a state, an `ApplicationState`."""
    node_accepted: Callback[rm_messages.AcceptedNode] | None = None
    """The core accepted a new node."""
    node_rejected: Callback[rm_messages.RejectedNode] | None = None
    """The core refused a new node; `reason` tells why."""
    partition_restarted: Callback[str] | None = None
    """The partition with this normalised name lost its state; report everything in it again."""
    configuration_changed: Callback[rm_messages.ConfigurationUpdated] | None = None
    """An operator or another client changed the configuration of this RM."""
    event: Callback[rm_messages.EventRecord] | None = None
    """An event of this RM's partitions, such as a queue that starts to drain."""
    scheduling_state_updated: Callback[rm_messages.UpdateContainerSchedulingState] | None = None
    """Only more nodes would help this ask. Called once for each ask."""
    goodbye: Callback[rm_messages.Goodbye] | None = None
    """The core stops temporarily. The session continues without any action of the program."""
    refused: Callback[rm_messages.Refused] | None = None
    """The core did not act on a whole message."""

    def __post_init__(self) -> None:
        """Check that all callbacks can be called.

        Raises:
            TypeError: one cannot be called; the text names it.
        """
        for one in fields(self):
            check_callable(f"Callbacks(): {one.name}", getattr(self, one.name))

    def dispatch(self, result: Result) -> Iterator[Answer]:
        """Call the callback for each item of a result, one item a step; yields what the callback returned."""
        if isinstance(result.news, rm_messages.PartitionRestarted):
            items: Iterable[tuple[str, object]] = [("partition_restarted", result.partition)]
        else:
            items = _iterate_items(result.news)
        for name, item in items:
            callback: Callback[object] | None = getattr(self, name)
            if callback is not None:
                yield callback(item)


_CALLBACKS: Final[dict[type[Update], dict[str, str]]] = {
    rm_messages.AllocationResponse: {
        "allocated": "new",
        "released": "released",
        "allocation_rejected": "rejected_allocations",
    },
    rm_messages.ApplicationResponse: {
        "application_accepted": "accepted",
        "application_rejected": "rejected",
        "application_updated": "updated",
    },
    rm_messages.NodeResponse: {"node_accepted": "accepted", "node_rejected": "rejected"},
    rm_messages.EventResponse: {"event": "events"},
    rm_messages.SchedulingStateResponse: {"scheduling_state_updated": "updated"},
    rm_messages.ReleasesIgnored: {"release_ignored": "ignored"},
    rm_messages.ConfigurationUpdated: {"configuration_changed": ""},
    rm_messages.Goodbye: {"goodbye": ""},
    rm_messages.Refused: {"refused": ""},
}
"""Kind of news to its callbacks, each with the field that holds the items; "" if the news are the item."""


def _iterate_items(news: Update) -> Iterator[tuple[str, Struct]]:
    """Yield each item of the news with the name of its callback."""
    for name, field in _CALLBACKS.get(type(news), {}).items():
        items: list[Struct] = getattr(news, field) if field else [news]
        for item in items:
            yield name, item


def complete_result(result: Result) -> Result:
    """Set the partition's name, which the core sends in the header, and the enums in the items of a result.

    Only this result refers to the decoded items, so they are changed in place: a tenth of the cost of copying them. A
    value that is unknown to this version, from a newer core, stays as it is.
    """
    for _, item in _iterate_items(result.news):
        force_setattr(item, "partition_name", result.partition)
        match item:
            case rm_messages.AllocationRelease(termination_type=kind) if kind in _TERMINATIONS:
                force_setattr(item, "termination_type", _TERMINATIONS[kind])
            case rm_messages.UpdatedApplication(state=state) if state in _STATES:
                force_setattr(item, "state", _STATES[state])
            case rm_messages.UpdateContainerSchedulingState(state=number) if number == SchedulingState.FAILED:
                force_setattr(item, "state", SchedulingState.FAILED)
    return result
