"""Convert the engine's effects to outgoing messages for the RM, grouped into as few messages as keep the order.

Adjacent effects of one sort and one cause become one message. Accepted and rejected applications come first, then
application state changes: each was true before the effects that depend on it. Without that, a batch of a thousand
releases would become two thousand messages.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from msgspec.structs import replace

from common.control_messages import GroupsWanted
from common.messages import News
from common.rm_messages import (
    RELEASES_IGNORED_MAX,
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    EventRecord,
    EventResponse,
    NodeResponse,
    PredicatesAsked,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    ReleasesIgnored,
    SchedulingStateResponse,
    SyncDone,
    UpdateContainerSchedulingState,
    UpdatedApplication,
)
from partition_worker.engine.effects import Effect, IgnoredRelease, LogLine, Part

ITEMS_MAX: Final = 10_000
"""Entries in one message; more become several."""

_SORT: Final[dict[type[Part], str]] = {
    AcceptedNode: "nodes",
    RejectedNode: "nodes",
    AcceptedApplication: "applications",
    RejectedApplication: "applications",
    UpdatedApplication: "states",
    Allocation: "new",
    AllocationRelease: "released",
    RejectedAllocation: "rejected",
    EventRecord: "events",
    UpdateContainerSchedulingState: "scheduling states",
    SyncDone: "sync",
}

_UNNUMBERED: Final = (LogLine, GroupsWanted, PredicatesAsked, IgnoredRelease)
"""Parts that are not for the RM, or that are sent to it without a number."""

_FIRST: Final[dict[type[Part], int]] = {AcceptedApplication: 0, RejectedApplication: 0, UpdatedApplication: 1}
"""What is told before the rest, and in which order."""


def build_messages(effects: Sequence[Effect]) -> Iterator[News]:
    """The messages for the effects of one input, or of a batch of decisions: applications that came, then states, then
    the rest in order.
    """
    told = [effect for effect in effects if not isinstance(effect.part, _UNNUMBERED)]
    told.sort(key=lambda effect: _FIRST.get(type(effect.part), len(_FIRST)))
    for (sort, cause), group in groupby(told, key=lambda effect: (_SORT[type(effect.part)], effect.cause)):
        parts = [effect.part for effect in group]
        for start in range(0, len(parts), ITEMS_MAX):
            yield _message(sort, cause, parts[start : start + ITEMS_MAX])


def select_notes(effects: Sequence[Effect], *, for_operators: bool) -> Iterator[str]:
    """What is for the log only, and there for whoever runs the system, or for those who look closer."""
    notes = (effect.part for effect in effects if isinstance(effect.part, LogLine | IgnoredRelease))
    return (note.text for note in notes if note.for_operators == for_operators)


def select_lookups(effects: Sequence[Effect]) -> Iterator[GroupsWanted]:
    """What has to be looked up outside, and is not for the RM."""
    return (effect.part for effect in effects if isinstance(effect.part, GroupsWanted))


def select_questions(effects: Sequence[Effect]) -> Iterator[PredicatesAsked]:
    """What the RM is asked. Nobody repeats it: it has lost its sense by the time that it would arrive."""
    return (effect.part for effect in effects if isinstance(effect.part, PredicatesAsked))


def collect_ignored_releases(effects: Sequence[Effect]) -> ReleasesIgnored | None:
    """The releases that had no effect, each with the reason; None if all had one.

    Not numbered, and so not in the journal: a journal that an earlier release wrote leads to the same numbered news.
    """
    found = [effect.part for effect in effects if isinstance(effect.part, IgnoredRelease)]
    if not found:
        return None
    listed = found[:RELEASES_IGNORED_MAX]
    return ReleasesIgnored(
        ignored=[replace(one.release, message=one.reason) for one in listed], more=len(found) - len(listed)
    )


def _message(sort: str, cause: int, parts: list[Part]) -> News:
    match sort:
        case "nodes":
            return NodeResponse(
                accepted=[part for part in parts if isinstance(part, AcceptedNode)],
                rejected=[part for part in parts if isinstance(part, RejectedNode)],
                cause=cause,
            )
        case "applications":
            return ApplicationResponse(
                accepted=[part for part in parts if isinstance(part, AcceptedApplication)],
                rejected=[part for part in parts if isinstance(part, RejectedApplication)],
                cause=cause,
            )
        case "states":
            return ApplicationResponse(
                updated=[part for part in parts if isinstance(part, UpdatedApplication)], cause=cause
            )
        case "new":
            return AllocationResponse(new=[part for part in parts if isinstance(part, Allocation)], cause=cause)
        case "released":
            return AllocationResponse(
                released=[part for part in parts if isinstance(part, AllocationRelease)], cause=cause
            )
        case "scheduling states":
            waiting = [part for part in parts if isinstance(part, UpdateContainerSchedulingState)]
            return SchedulingStateResponse(updated=waiting, cause=cause)
        case "sync":
            (done,) = parts
            assert isinstance(done, SyncDone)
            return replace(done, cause=cause)
        case "events":
            return EventResponse(events=[part for part in parts if isinstance(part, EventRecord)], cause=cause)
    return AllocationResponse(
        rejected_allocations=[part for part in parts if isinstance(part, RejectedAllocation)], cause=cause
    )
