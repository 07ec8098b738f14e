"""The analysis of configurations in tests, in place of the broker's child processes."""

from functools import lru_cache

import msgspec

from yunishard.broker.config_analysis import analyze
from yunishard.broker.routing import BrokerMachine
from yunishard.common.messages.control_messages import TextRead
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import Incoming, Outgoing, encode_body


@lru_cache(maxsize=256)
def encode_analysis(text: str) -> bytes:
    return msgspec.msgpack.encode(analyze(text))


def answer_text(request: Outgoing, used_s: float = 0.0) -> Incoming:
    """The answer of a child process to a text of the broker."""
    return answer_with(request, TextRead(analysis=encode_analysis(request.body.decode()), used_s=used_s))


def answer_with(request: Outgoing, outcome: TextRead) -> Incoming:
    """Another answer to a text."""
    assert request.header.kind == "ReadText"
    return Incoming(request.to, Header(kind=TextRead.__name__, ref=request.header.ref), encode_body(outcome))


def handle_with_analyses(broker: BrokerMachine, incoming: Incoming, now: float) -> list[Outgoing]:
    """Have the broker handle a message, and answer its texts."""
    sends: list[Outgoing] = []
    for one in broker.handle(incoming, now):
        sends += handle_with_analyses(broker, answer_text(one), now) if one.header.kind == "ReadText" else [one]
    return sends
