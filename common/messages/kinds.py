"""The envelope of every message: the header, the base classes by direction, and the registry of message kinds.

A message is a header and a body. The header carries the destination and is all that the proxy and the broker read; the
body is one of the structs below `Message`, a MessagePack map whose keys are the field names of the scheduler interface
(`applicationID`, `allocationKey`, ...) with default values left out. The class name is the `kind` in the header.

The messages by audience: `rm_messages.py` (the RM protocol), `control_messages.py` (between processes),
`query_messages.py` (requests of the web service), `journal_messages.py` (a worker and its journal). `wire.py` encodes
and decodes them, `session.py` numbers and acknowledges them.
"""

from typing import Annotated, ClassVar, Final

from msgspec import Meta, Struct

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

Amount = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Resources = dict[str, Amount]
"""Resource type to quantity in base units (`memory` in bytes, `vcore` in thousandths). A missing type is 0."""


def interface_name(name: str) -> str:
    """The scheduler interface's spelling of a field: `application_id` is `applicationID`, `queue_name` is
    `queueName`.
    """
    first, *rest = name.split("_")
    camel = first + "".join(word.capitalize() for word in rest)
    return camel[:-2] + "ID" if camel.endswith("Id") else camel


class Header(Struct, array_like=True, frozen=True, kw_only=True, gc=False):
    """The kind and route of a message; on the wire an array in this order. Unknown trailing elements are ignored."""

    kind: str
    rm: str = ""
    """RM id; empty between processes when no RM is meant."""
    partition: str = ""
    """Normalised name (`<rm-id>_<name>`); empty if the message is about none, or about several."""
    session: str = ""
    """The RM's session: new and random for each start of an RM."""
    seq: int = 0
    """Number of this message in its lane (session, partition, direction), from 1; 0 for what is not numbered."""
    ack: int = 0
    """Highest number received in the opposite lane; 0 acknowledges nothing."""
    epoch: int = 0
    """The lease of a worker; between broker and worker only."""
    ref: str = ""
    """Correlation id of a call or query: the caller chooses it, and the answer repeats it."""
    life: int = 0
    """The partition's generation: how often it has restarted without its state in this session. Numbers of an earlier
    generation do not apply. An RM repeats the one of the last `PartitionRestarted`.
    """


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True, rename=interface_name, gc=False):
    """A piece of a message, as the scheduler interface names and nests it. Parts never refer to each other in a cycle,
    so the garbage collector need not visit them.
    """


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True, rename=interface_name):
    """A whole body. Subclasses register under their class name, which is the `kind` in the header."""

    kinds: ClassVar[dict[str, type["Message"]]] = {}

    def __init_subclass__(cls) -> None:
        """Make the class known under its name."""
        super().__init_subclass__()
        Message.kinds[cls.__name__] = cls


class Command(Message, frozen=True):
    """From the resource manager to a partition: numbered and acknowledged."""


class News(Message, frozen=True):
    """From a partition to its resource manager: numbered and acknowledged."""


class Call(Message, frozen=True):
    """From the resource manager to the core as a whole; answered by one `Reply` with the same `ref`."""


class Reply(Message, frozen=True):
    """From the core as a whole to the resource manager."""


class Control(Message, frozen=True):
    """Between our own processes."""
