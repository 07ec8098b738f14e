"""Decisions of the scheduling cycle and effects of the engine, as values.

A decision is checked before it is made and carried out afterwards (`cycle/cycle.py`). An effect is something for the RM
or the log; the worker turns effects into messages and log lines (`outgoing_messages.py`). Each effect names its cause,
the number of the input or scheduling cycle that produced it, so that all output can be traced to its input.
"""

from typing import NamedTuple

from common import rm_messages
from common.control_messages import GroupsWanted
from common.messages import Resources
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.nodes.node import Node, Reservation

# Decisions ------------------------------------------------------------------------------------------------------------


class Allocate(NamedTuple):
    """Allocate the ask on the node."""

    application: Application
    ask: Allocation
    node: Node


class Replace(NamedTuple):
    """Replace the placeholder with the ask, on the placeholder's node or on another one."""

    application: Application
    ask: Allocation
    placeholder: Allocation
    node: Node


class Release(NamedTuple):
    """Release placeholders that are smaller than this ask of their task group."""

    application: Application
    ask: Allocation
    placeholders: tuple[Allocation, ...]


class Reserve(NamedTuple):
    """Reserve the node for the ask."""

    application: Application
    ask: Allocation
    node: Node


class Preempt(NamedTuple):
    """Ask the RM to release the victims, and reserve the node for the ask; conflicting reservations end."""

    application: Application
    ask: Allocation
    node: Node
    victims: tuple[Allocation, ...]
    cancels: tuple[Reservation, ...] = ()


# Effects --------------------------------------------------------------------------------------------------------------


class LogLine(NamedTuple):
    """A log line about an input that had no effect. The RM does not receive it."""

    text: str
    for_operators: bool = False
    """Whether operators should see it: a change that a person made, or its consequence."""


class IgnoredRelease(NamedTuple):
    """A release without effect, and why. The RM receives it in an unnumbered `ReleasesIgnored`."""

    release: rm_messages.AllocationRelease
    reason: str
    for_operators: bool = False
    """As in a `LogLine`; the line for each release only helps to debug an RM."""

    @property
    def text(self) -> str:
        return f"release of {self.release.allocation_key}: {self.reason}"


class Event(NamedTuple):
    """A scheduler event, with the numbers of `common/event_codes.py`; the ring buffer adds its time."""

    kind: int
    object_id: str
    reference_id: str
    change: int
    detail: int
    message: str
    resource: Resources
    """Shared with the state; never changed in place."""


EventFields = tuple[int, str, str, int, int, str, Resources]
"""The fields of an event as a plain tuple: each decision records several, and few are ever read."""


Part = (
    rm_messages.AcceptedNode
    | rm_messages.RejectedNode
    | rm_messages.AcceptedApplication
    | rm_messages.RejectedApplication
    | rm_messages.UpdatedApplication
    | rm_messages.Allocation
    | rm_messages.AllocationRelease
    | rm_messages.RejectedAllocation
    | rm_messages.EventRecord
    | rm_messages.UpdateContainerSchedulingState
    | GroupsWanted
    | rm_messages.PredicatesAsked
    | rm_messages.SyncDone
    | IgnoredRelease
    | LogLine
)


class Effect(NamedTuple):
    """One message part or log line, and the number of its cause."""

    cause: int
    part: Part
