"""Ask the RM for its state dump, and answer the queries that wait for it.

    Query(what="rm-state") --StateDumpAsked--> waits --StateDumpAnswered, or ANSWER_MAX_S--> Answer

This changes nothing in the partition, so the journal has no record of it: if the worker ends, the broker answers the
queries. Questions have numbers of their own, and an answer without a waiting query is ignored.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.json import decode, encode

from common.messages import Header
from common.names import BROKER
from common.query_messages import Answer
from common.rm_messages import STATE_DUMP, STATE_DUMP_BYTES_MAX, StateDumpAnswered, StateDumpAsked
from common.wire import NEVER, Incoming, Outgoing, WireError, decode_body, make_outgoing
from partition_worker.partition_host import RMChannel

ANSWER_MAX_S: Final = 2.0
"""How long the RM may take."""

WAITING_MAX: Final = 8
"""Questions that wait for the RM at once; whoever asks beyond it is told so, and may ask again."""

NO_DUMP: Final[Mapping[str, str]] = {"empty": "Resource Manager did not register callback"}
"""What is answered for an RM without the capability, in the words that YuniKorn's users know."""


class StateDumpRequests:
    """The questions that wait for the RM of one partition. `deadline` is when the oldest has waited too long."""

    def __init__(self) -> None:
        self.deadline = NEVER
        self._last = 0
        """Number of the latest question."""
        self._waiting: dict[int, tuple[float, Header]] = {}
        """Number of a question to its deadline and the header of the answer, the oldest first."""

    def ask(self, channel: RMChannel, capabilities: list[str], reply: Header, now: float, *, obstacle: str) -> Outgoing:
        """The question to the RM of this channel; or at once the answer, where it cannot be asked: it has no such
        capability, there is an `obstacle`, or too many wait.
        """
        if STATE_DUMP not in capabilities:
            return make_outgoing(BROKER, _document(NO_DUMP), reply)
        if obstacle:
            return _failed(obstacle, reply)
        if len(self._waiting) >= WAITING_MAX:
            return _failed(f"{WAITING_MAX} others wait for the resource manager's answer already", reply)
        self._last += 1
        self._waiting[self._last] = (now + ANSWER_MAX_S, reply)
        self.deadline = min(self.deadline, now + ANSWER_MAX_S)
        return channel.send_unnumbered(
            StateDumpAsked(question=self._last, deadline_milli_seconds=int(ANSWER_MAX_S * 1000))
        )

    def heard(self, channel: RMChannel, incoming: Incoming) -> list[Outgoing]:
        """The RM's answer goes to whoever waits for it."""
        header = incoming.header
        if header.life != channel.life or not channel.accept(header):
            return []
        try:
            answered = decode_body(StateDumpAnswered, incoming.body)
        except WireError as error:
            return [channel.refuse(header, "malformed", str(error))]
        question = self._waiting.pop(answered.question, None)
        self._look()
        return [] if question is None else [_answer(answered, question[1])]

    def expired(self, now: float) -> list[Outgoing]:
        """What those are told who have waited for too long."""
        late = [number for number, (deadline, _) in self._waiting.items() if deadline <= now]
        told = f"the resource manager did not answer within {ANSWER_MAX_S:g} s"
        sends = [_failed(told, self._waiting.pop(number)[1]) for number in late]
        self._look()
        return sends

    def _look(self) -> None:
        self.deadline = min((deadline for deadline, _ in self._waiting.values()), default=NEVER)


def _answer(answered: StateDumpAnswered, reply: Header) -> Outgoing:
    if answered.problem:
        return _failed(answered.problem, reply)
    text = answered.text.encode()
    if len(text) > STATE_DUMP_BYTES_MAX:
        told = f"the resource manager's answer has {len(text)} bytes, at most {STATE_DUMP_BYTES_MAX} are taken"
        return _failed(told, reply)
    try:
        decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        return _failed(f"the resource manager's answer is no JSON object: {error}", reply)
    return make_outgoing(BROKER, Answer(status=200, body=text), reply)


def _failed(problem: str, reply: Header) -> Outgoing:
    return make_outgoing(BROKER, _document({"Error": problem}), reply)


def _document(found: Mapping[str, str]) -> Answer:
    return Answer(status=200, body=encode(found))
