"""Events as the REST API shows them, with the keys of the scheduler interface.

Not here: filling them (`partition_worker/answers/events.py`).
"""

from msgspec import Struct, field


class AmountView(Struct, frozen=True, omit_defaults=True, gc=False):
    """A quantity, in base units."""

    value: int = 0


class EventResourceView(Struct, frozen=True, omit_defaults=True, gc=False):
    """What an event is about, in quantities; often nothing."""

    resources: dict[str, AmountView] = field(default_factory=dict)


class EventView(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One event, with the keys of the scheduler interface."""

    type: int = 0
    objectID: str = ""  # noqa: N815 - this and those below are keys of the API
    message: str = ""
    timestampNano: int = 0  # noqa: N815
    eventChangeType: int = 0  # noqa: N815
    eventChangeDetail: int = 0  # noqa: N815
    referenceID: str = ""  # noqa: N815
    resource: EventResourceView


class BatchView(Struct, frozen=True):
    """Which history it is, the numbers of the events that are there, and those asked for; None if there are none."""

    InstanceUUID: str
    LowestID: int
    HighestID: int
    EventRecords: list[EventView] | None
