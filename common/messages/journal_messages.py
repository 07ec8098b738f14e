"""Messages between a worker's machine and its journal, and the records (steps) that the journal holds."""

from typing import Final

from msgspec import Raw, Struct, field

from yunishard.common.messages.control_messages import PrepareConfig
from yunishard.common.messages.kinds import Control, Header, Part

NO_RECORDS: Final = Raw(b"\x90")
"""An empty list in MessagePack."""


class SessionRecord(Part, frozen=True):
    """The state of a worker besides the partition: its RM's session and the configuration."""

    rm: str = ""
    session: str = ""
    life: int = 0
    rollout: int = 0
    """The roll-out that was committed last."""
    prepared: tuple[Header, PrepareConfig] | None = None
    """A roll-out that the worker voted for."""
    retiring: bool = False
    """Whether the partition is no longer configured, and only waits for the RM's acknowledgements."""
    settings: dict[str, str] = field(default_factory=dict)
    """The RM's settings, as received."""
    capabilities: list[str] = field(default_factory=list)


class SentMessage(Struct, frozen=True, array_like=True, gc=False):
    """A numbered message to the RM. A later release may add fields with a default at the end."""

    number: int
    kind: str
    body: bytes


class Step(Part, frozen=True, array_like=True):
    """The changes by one input of a partition, or by the passage of time: the records of the changed objects, and the
    messages to the RM that followed. A later release may add fields with a default at the end.
    """

    number: int
    """From 1, without gaps, over the whole life of the journal."""
    at: float
    """Unix seconds."""
    kind: str
    """The kind of the input; `TICK` for the passing of time."""
    received: int = 0
    """The number of the RM's last command."""
    acknowledged: int = 0
    """The last number of the news that the RM had acknowledged."""
    cause: int = 0
    """The engine's number of the input or scheduling cycle."""
    told: list[SentMessage] = field(default_factory=list)
    """The news that followed."""
    records: Raw = NO_RECORDS
    """A list of records (`partition_worker/engine/durable_records.py`)."""
    session: SessionRecord | None = None
    """If it changed."""


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
