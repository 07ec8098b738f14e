"""Effects: the results of a step for the RM or the log, of which the worker makes messages and log lines
(`rm_channel.py`). And scheduler events, which go to the event ring buffer (`event_ring_buffer.py`).

Not compiled, as mypyc makes no structs: each decision makes several, and the garbage collector never visits them, as
they refer to nothing that could refer to them.
"""

from typing import NamedTuple

from msgspec import Struct

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Resources


class LogLine(NamedTuple):
    """A log line about an input that had no effect. The RM does not receive it."""

    text: str
    for_operators: bool = False
    """Whether operators should see it: a change that a person made, or its consequence."""
    is_warning: bool = False
    """Whether it is a probable mistake of the RM, of which the RM receives no result."""


class IgnoredRelease(NamedTuple):
    """A release without effect, and why. The RM receives it in an unnumbered `ReleasesIgnored`."""

    release: rm_messages.AllocationRelease
    reason: str
    for_operators: bool = False
    """As in a `LogLine`; the line for each release only helps to debug an RM."""

    @property
    def text(self) -> str:
        return f"release of {self.release.allocation_key}: {self.reason}"


Part = Struct | IgnoredRelease | LogLine
"""A part of a message (`rm_channel.py` has the kinds), or something to log."""


class Effect(Struct, gc=False):
    """One message part or log line, and the number of its cause: of the input or scheduling cycle that produced it, so
    that all output can be traced to its input.
    """

    cause: int
    part: Part


class Event(Struct, gc=False):
    """A scheduler event, with the numbers of `common/messages/event_codes.py`; the ring buffer adds its time."""

    kind: int
    object_id: str
    reference_id: str
    change: int
    detail: int
    message: str
    resource: Resources
    """Shared with the state; never changed in place."""
