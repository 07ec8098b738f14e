"""Messages between a worker's machine and its journal, and the records (steps) that the journal holds."""

from typing import Final

from msgspec import field

from common.messages import Control, Header, Part
from common.rm_messages import RejectedAllocation


class Step(Part, frozen=True, array_like=True):
    """One thing that changed a partition, as its journal has it: what came or fell due and when, and what the RM was
    told because of it. The same steps in the same order give the same partition, and the same words.
    """

    number: int
    """From 1, without gaps, over the whole life of the journal."""
    at: float
    """Unix seconds."""
    source: str
    """The peer that the message came from; empty for time that passed."""
    header: Header
    """Of the message; for time that passed its kind is `TICK`."""
    body: bytes = b""
    budget: int = 0
    """How many decisions were allowed, when time passed; 0 if only timers went off."""
    told: list[tuple[int, str, bytes]] = field(default_factory=list)
    """The news that followed: number in the lane, kind, body."""
    acknowledged: int = 0
    """The last number in that lane that the RM had acknowledged."""


TICK: Final = "tick"


class Append(Control, frozen=True):
    """The worker's machine to its journal: keep these, all or none. Answered by `Kept` when they are durable."""

    steps: list[bytes]
    """Encoded `Step`s, in order."""
    first: int
    """The number of the first of them; the others follow without a gap."""
    fresh: bool = False
    """Whether the first begins from an empty partition, so that nothing before it is needed any more."""


class Kept(Control, frozen=True):
    """The journal to the worker's machine: everything up to this step is durable."""

    number: int


class NotKept(Control, frozen=True):
    """The journal to the worker's machine: what it was given last is not durable. It tries again by itself, unless
    another worker has the partition now (`fenced`): then nothing that this one says counts any more.
    """

    problem: str
    fenced: bool = False


class TakeSnapshot(Control, frozen=True):
    """The worker's machine to its journal: write down the whole partition as it is after this step, so that the steps
    up to it are not needed any more. Answered by `SnapshotTaken`.
    """

    number: int


class SnapshotTaken(Control, frozen=True):
    """The journal to the worker's machine: the snapshot is durable, or why it is not."""

    number: int
    problem: str = ""


class SetAside(Control, frozen=True):
    """In a step of the journal instead of a command of the RM that ended the worker again and again: the command has no
    effect, and what it would have added is rejected.
    """

    kind: str
    """Of the command."""
    reason: str
    nodes: list[str] = field(default_factory=list)
    applications: list[str] = field(default_factory=list)
    allocations: list[RejectedAllocation] = field(default_factory=list)
