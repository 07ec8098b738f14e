"""A good message of every kind: what all mutation begins from.

Made from the types, so that a message that is added tomorrow is there too. Names are those of the configuration in
`CONFIG`, so that most of what is said has an effect. Not here: mutation (`frames.py`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import msgspec
from msgspec import inspect

from tests.machines import config_of
from yunishard.common.messages.control_messages import PrepareConfig
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.rm_messages import RegisterResourceManager
from yunishard.common.messages.wire import encode_body, encode_frames

Frames = list[bytes]

QUEUES: Final = """
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: batch, properties: {application.sort.policy: fair}}
          - name: small
            resources: {guaranteed: {vcore: 2}, max: {vcore: 8, memory: 4Gi}}
            limits: [{limit: all, users: ["*"], maxapplications: 7, maxresources: {vcore: 6}}]
          - {name: parent, parent: true}
"""
CONFIG: Final = f"partitions:\n  - name: default\n    preemption: {{enabled: true}}\n{QUEUES}"
TWO_PARTITIONS: Final = f"{CONFIG}  - name: gpu\n{QUEUES}"

_TEXTS: Final = {
    "allocation_key": "k1",
    "application_id": "app",
    "node_id": "n1",
    "object_id": "app",
    "queue": "root.batch",
    "queue_name": "root.batch",
    "user": "alice",
    "config": CONFIG,
    "what": "queues",
    "role": "worker",
    "gang_scheduling_style": "Soft",
    "task_group_name": "",
    "partition_name": "",
}
"""By the name of the field; other texts are the name itself."""

_NUMBERS: Final = {"action": 1, "status": 200, "termination_type": 1, "rollout": 1}


def example(kind: type[Message]) -> Message:
    """A good message of this kind, with a value in every field."""
    if kind is PrepareConfig:
        return PrepareConfig(rollout=1, config=config_of(CONFIG))
    return msgspec.convert(_of(inspect.type_info(kind)), kind)


@cache
def examples() -> dict[str, Message]:
    """By kind, all that there are."""
    return {name: example(kind) for name, kind in Message.kinds.items()}


def _of(kind: inspect.Type, name: str = "") -> object:
    """A value of this type, as MessagePack would have it."""
    match kind:
        case inspect.StructType():
            fields = [(one.encode_name, _of(one.type, one.name)) for one in kind.fields]
            return [value for _, value in fields] if kind.array_like else dict(fields)
        case inspect.ListType() | inspect.VarTupleType():
            return [_of(kind.item_type, name)]
        case inspect.TupleType():
            return [_of(one, name) for one in kind.item_types]
        case inspect.DictType():
            return {"vcore" if isinstance(kind.value_type, inspect.IntType) else "key": _of(kind.value_type, name)}
        case inspect.UnionType():
            return _of(next(one for one in kind.types if not isinstance(one, inspect.NoneType)), name)
        case inspect.StrType():
            return _TEXTS.get(name, name)
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.BoolType():
            return False
        case inspect.IntType():
            return _NUMBERS.get(name, 1)
        case inspect.FloatType():
            return 1.5
        case inspect.BytesType():
            return b"bytes"
    raise TypeError(kind)


@dataclass(frozen=True, slots=True)
class Voice:
    """As whom somebody speaks."""

    rm: str
    session: str
    partition: str = ""

    def header(self, kind: str, *, seq: int = 0, ack: int = 0, ref: str = "", partition: str | None = None) -> Header:
        name = self.partition if partition is None else partition
        return Header(kind=kind, rm=self.rm, partition=name, session=self.session, seq=seq, ack=ack, ref=ref)

    def says(self, message: Message, *, seq: int = 0, ack: int = 0, partition: str | None = None) -> Frames:
        kind = type(message).__name__
        return encode_frames(self.header(kind, seq=seq, ack=ack, partition=partition), encode_body(message))

    def registers(self, config: str = CONFIG) -> Frames:
        header = self.header("RegisterResourceManager", ref="call", partition="")
        return encode_frames(header, encode_body(RegisterResourceManager(rm_id=self.rm, config=config)))

    def everything(self) -> Iterator[Frames]:
        """One of every kind."""
        for message in examples().values():
            yield self.says(message)
