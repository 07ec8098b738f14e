"""Deliveries and sends in one line each, so that a test of a machine shows who said what and nothing else."""

from typing import Final

from yunishard.common.config.model import PartitionConfig
from yunishard.common.config.validation import load
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, encode_body

RM: Final = "rm-1"
SESSION: Final = "session-1"
PARTITION: Final = "rm-1_default"
BROKER: Final = "broker"

ONE_QUEUE: Final = """
partitions:
  - name: default
    queues: [{name: root, submitacl: "*", queues: [{name: batch}]}]
"""


def two_partitions(first: str = "default", second: str = "gpu") -> str:
    queues = 'queues: [{name: root, submitacl: "*", queues: [{name: batch}]}]'
    return f"partitions:\n  - {{name: {first}, {queues}}}\n  - {{name: {second}, {queues}}}\n"


def config_of(text: str = ONE_QUEUE) -> PartitionConfig:
    """The first partition of a configuration."""
    return load(text).partitions[0]


def header(kind: str, **fields: str | int) -> Header:
    """Of this RM in this session, unless said otherwise."""
    return Header(**{"kind": kind, "rm": RM, "session": SESSION, **fields})  # type: ignore[arg-type]


def arrives(source: str, message: Message, **fields: str | int) -> Incoming:
    return Incoming(source, header(type(message).__name__, **fields), encode_body(message))


def sent(to: str, message: Message, **fields: str | int) -> Outgoing:
    return Outgoing(to, header(type(message).__name__, **fields), encode_body(message))


def said(sends: list[Outgoing]) -> list[Message]:
    """What was sent, without to whom."""
    return [decode_body(Message.kinds[one.header.kind], one.body) for one in sends]


def partition_of(worker: str) -> str:
    """The partition of a worker that is called so, as a peer; empty for another peer."""
    return worker.rpartition("#")[0]
