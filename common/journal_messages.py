"""Messages between a worker's machine and its journal, and the records (steps) that the journal holds."""

from typing import Final

from msgspec import field

from common.messages import Control, Header, Part
from common.rm_messages import RejectedAllocation


class Step(Part, frozen=True, array_like=True):
    """One input of a partition in its journal: a message or the passing of time, and the news that followed. The same
    steps in the same order give the same partition and the same news.
    """

    number: int
    """From 1, without gaps, over the whole life of the journal."""
    at: float
    """Unix seconds."""
    source: str
    """The peer that sent the message; empty for the passing of time."""
    header: Header
    """Of the message; for the passing of time its kind is `TICK`."""
    body: bytes = b""
    budget: int = 0
    """Number of decisions that were allowed when time passed; 0 if only timers ended."""
    told: list[tuple[int, str, bytes]] = field(default_factory=list)
    """The news that followed: number in the lane, kind, body."""
    acknowledged: int = 0
    """The last number in that lane that the RM had acknowledged."""


TICK: Final = "tick"


class Append(Control, frozen=True):
    """The worker's machine to its journal: store these steps, all or none. Answered by `Kept` when they are durable."""

    steps: list[bytes]
    """Encoded `Step`s, in order."""
    first: int
    """The number of the first step; the others follow without a gap."""
    fresh: bool = False
    """Whether the first step starts from an empty partition, so that earlier ones are not needed any more."""


class Kept(Control, frozen=True):
    """The journal to the worker's machine: all steps up to this one are durable."""

    number: int


class NotKept(Control, frozen=True):
    """The journal to the worker's machine: the latest steps are not durable. The journal retries, unless another worker
    has the partition now (`fenced`): then no message of this worker is valid any more.
    """

    problem: str
    fenced: bool = False


class TakeSnapshot(Control, frozen=True):
    """The worker's machine to its journal: write a snapshot of the partition after this step, which replaces the steps
    up to it. Answered by `SnapshotTaken`.
    """

    number: int


class SnapshotTaken(Control, frozen=True):
    """The journal to the worker's machine: the snapshot is durable, or the reason why it is not."""

    number: int
    problem: str = ""


class SetAside(Control, frozen=True):
    """In a step of the journal in place of an RM's command that repeatedly ended the worker: the command has no effect,
    and the items that it would have added are rejected.
    """

    kind: str
    """Of the command."""
    reason: str
    nodes: list[str] = field(default_factory=list)
    applications: list[str] = field(default_factory=list)
    allocations: list[RejectedAllocation] = field(default_factory=list)
