"""Events in words, for the commands and the dashboard, and which events a filter selects.

Not here: the numbers of events (`common/messages/event_codes.py`), their encoding (`records.py`).
"""

from dataclasses import dataclass
from typing import Final

from yunishard.common.messages import event_codes as codes
from yunishard.common.rest.records import EventView

TYPES: Final = {
    "ask": codes.REQUEST,
    "app": codes.APP,
    "node": codes.NODE,
    "queue": codes.QUEUE,
    "user": codes.USERGROUP,
}
"""Types of the objects of events, by the word of the option `--type`."""

_TYPE_NAMES: Final = {number: name for name, number in TYPES.items()}

_ACTIONS: Final = {codes.SET: "changed", codes.ADD: "added", codes.REMOVE: "removed"}

_WHOLE: Final = {
    codes.APP_REJECT: "rejected",
    codes.APP_NEW: "new",
    codes.APP_ACCEPTED: "accepted",
    codes.APP_STARTING: "starting",
    codes.APP_RUNNING: "running",
    codes.APP_COMPLETING: "completing",
    codes.APP_COMPLETED: "completed",
    codes.APP_FAILING: "failing",
    codes.APP_FAILED: "failed",
    codes.APP_RESUMING: "resuming",
    codes.APP_EXPIRED: "expired",
    codes.APP_CANNOTRUN_QUEUE: "waits: its queue runs enough applications",
    codes.APP_RUNNABLE_QUEUE: "its queue can run it",
    codes.APP_CANNOTRUN_QUOTA: "waits: its user or group runs enough applications",
    codes.APP_RUNNABLE_QUOTA: "its user and groups can run it",
    codes.NODE_DECOMISSION: "decommissioned",
    codes.REQUEST_CANCEL: "ask cancelled",
    codes.REQUEST_TIMEOUT: "ask timed out",
    codes.ALLOC_CANCEL: "allocation stopped by the RM",
    codes.ALLOC_PREEMPT: "allocation preempted",
    codes.ALLOC_TIMEOUT: "allocation timed out",
    codes.ALLOC_REPLACED: "placeholder replaced",
    codes.ALLOC_NODEREMOVED: "allocation removed with its node",
}
"""Details that say everything, whatever the change is."""

_PARTS: Final = {
    codes.APP_ALLOC: "allocation",
    codes.APP_REQUEST: "ask",
    codes.NODE_SCHEDULABLE: "schedulable",
    codes.NODE_ALLOC: "allocation",
    codes.NODE_CAPACITY: "capacity",
    codes.NODE_RESERVATION: "reservation",
    codes.QUEUE_DYNAMIC: "dynamic queue",
    codes.QUEUE_TYPE: "type",
    codes.QUEUE_MAX: "maximum",
    codes.QUEUE_GUARANTEED: "guarantee",
    codes.QUEUE_APP: "application",
    codes.QUEUE_PREEMPTION: "preemption",
    codes.UG_USER_LIMIT: "limit of the user",
    codes.UG_GROUP_LIMIT: "limit of the group",
    codes.UG_APP_LINK: "group of an application",
    codes.UG_USER_RESOURCE: "usage of the user",
    codes.UG_GROUP_RESOURCE: "usage of the group",
}
"""Details that name the part that was added, removed or changed."""


def name_type(event: EventView) -> str:
    """Return the type of the object, in the words of `--type`; the number of an unknown type."""
    return _TYPE_NAMES.get(event.type, str(event.type))


def describe_event(event: EventView) -> str:
    """Describe the change in a few words, without the names of the objects.

    >>> from yunishard.common.rest.records import EventResourceView
    >>> nothing = EventResourceView()
    >>> describe_event(EventView(type=2, eventChangeType=2, eventChangeDetail=201, resource=nothing))
    'ask added'
    >>> describe_event(EventView(type=2, eventChangeType=1, eventChangeDetail=206, resource=nothing))
    'running'
    >>> describe_event(EventView(type=4, eventChangeType=2, resource=nothing))
    'added'
    """
    detail, action = event.eventChangeDetail, _ACTIONS.get(event.eventChangeType, "")
    text = _WHOLE.get(detail)
    if text is None:
        part = _PARTS.get(detail) or (f"detail {detail}" if detail else "")
        text = " ".join(word for word in (part, action) if word)
    return text or ("waits" if event.type == codes.REQUEST else "-")


def describe_words() -> dict[str, object]:
    """Return the words of events as a JSON object, for programs that show events."""
    types = {**_TYPE_NAMES, codes.APP: "application", codes.USERGROUP: "user or group"}
    return {"types": types, "changes": _ACTIONS, "details": _WHOLE, "parts": _PARTS}


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Selects events; an empty field selects all."""

    type: str = ""
    """A word of TYPES."""
    object: str = ""
    """Name of the object, or of the one that it refers to; of a queue also those of the queues below it."""
    text: str = ""
    """Part of a name or of the message, in any case."""
    since_ns: int = 0

    def selects(self, event: EventView) -> bool:
        """Whether it selects an event."""
        names = (event.objectID, event.referenceID)
        texts = (*names, event.message, describe_event(event))
        return (
            (not self.type or event.type == TYPES[self.type])
            and (not self.object or any(one == self.object or one.startswith(f"{self.object}.") for one in names))
            and (not self.text or any(self.text.lower() in one.lower() for one in texts))
            and event.timestampNano >= self.since_ns
        )
