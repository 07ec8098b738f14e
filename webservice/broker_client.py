"""Questions to the broker, and through it to the partitions' workers; each is answered once or given up.

An answer finds its question by the `ref` in its header. At most QUESTIONS_MAX questions are on their way; more wait for
a place, and the time they wait counts. A change takes longer than a question, and when nobody answers it may have been
made; at most CHANGES_MAX are on their way, and more are refused. A broker that begins anew has forgotten who asked it:
questions are put to it once more, changes are not. Not here: what is asked (`routes.py`).
"""

import asyncio
import itertools
import logging
import math
import secrets
from typing import Final, TypeVar

from msgspec.structs import replace

from common.driver import Transport
from common.machine import Delivery, Send, send
from common.messages import Header, Message
from common.names import BROKER, WEBSERVICE
from common.process import HEARTBEAT_S
from common.query_messages import (
    Answer,
    ChangeConfig,
    KillApplication,
    ListPartitions,
    MoveApplication,
    PartitionList,
    Query,
    ReadConfig,
    Schedule,
)
from common.rm_messages import Heartbeat, Refused
from common.transport import BrokerConnection
from common.wire import WireError, body_of, decoded
from webservice.calls import Change
from webservice.views import RequestError

ANSWER_MAX_S: Final = 10.0
CHANGE_MAX_S: Final = 30.0
"""Longer than the broker takes to give up on a roll-out (20 s), so that it is the one to say what came of it."""

QUESTIONS_MAX: Final = 256
CHANGES_MAX: Final = 32

_CHANGED: Final[dict[type[Change], str]] = {
    ChangeConfig: "the configuration",
    KillApplication: "the application",
    MoveApplication: "the application",
    Schedule: "the applications",
}
"""Where to look whether a change was made."""

_M = TypeVar("_M", bound=Message)
_log = logging.getLogger("core.rest")


class BrokerLink:
    """The connection to the broker. `run` must be running for questions to be answered."""

    def __init__(
        self,
        address: str,
        *,
        answer_max_s: float = ANSWER_MAX_S,
        change_max_s: float = CHANGE_MAX_S,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._answer_max_s = answer_max_s
        self._change_max_s = change_max_s
        self._heartbeat_s = heartbeat_s
        self._next_beat: asyncio.TimerHandle | None = None
        self._incarnation = ""
        """The broker's, once it is known."""
        self.wire = Transport()
        self._link = BrokerConnection(address, peer=BROKER, name=WEBSERVICE, wake=self.wire.wake)
        self.wire.add(BROKER, self._link)
        self._places = asyncio.Semaphore(QUESTIONS_MAX)
        self._changes = asyncio.Semaphore(CHANGES_MAX)
        self._life = secrets.token_hex(4)  # so that no answer to a question of an earlier life fits one of ours
        self._numbers = itertools.count(1)
        #: All and only questions that were sent and are neither answered nor given up.
        self._open: dict[str, asyncio.Future[Delivery]] = {}
        #: Those of them that may be put again.
        self._questions: dict[str, Send] = {}

    async def run(self) -> None:
        """Take answers until cancelled."""
        self._beat()
        try:
            while True:
                for delivery in await self.wire.receive(math.inf):
                    if delivery.header.kind == Heartbeat.__name__:
                        self._beaten(decoded(Heartbeat, delivery.body).incarnation)
                    else:
                        self._settle(delivery)
        finally:
            if self._next_beat is not None:
                self._next_beat.cancel()
            self._link.close()

    def _beat(self) -> None:
        """Say that this process lives, now and from now on."""
        self.wire.send(send(BROKER, Heartbeat()))
        self._next_beat = asyncio.get_running_loop().call_later(self._heartbeat_s, self._beat)

    def _beaten(self, incarnation: str) -> None:
        """The broker lives; if it is another one, it does not know what the one before was asked."""
        before, self._incarnation = self._incarnation, incarnation
        if before not in ("", incarnation):
            for question in self._questions.values():
                self.wire.send(question)

    async def ask(self, partition: str, query: Query) -> Answer:
        """A worker's answer, or without a partition the broker's.

        Raises:
            RequestError: 503, with what went wrong.
        """
        whom = f"Partition {partition}" if partition else "The broker"
        return await self._question(Header(kind="", partition=partition), query, Answer, whom=whom)

    async def read(self, rm: str, question: ReadConfig) -> Answer:
        """The broker's answer about a resource manager's configuration.

        Raises:
            RequestError: 503, with what went wrong.
        """
        return await self._question(Header(kind="", rm=rm), question, Answer, whom="The broker")

    async def change(self, wanted: Change, *, rm: str = "", partition: str = "") -> Answer:
        """What came of a change.

        Raises:
            RequestError: 503, with what went wrong; the change may have been made all the same if nobody answered.
        """
        if self._changes.locked():
            raise RequestError(503, f"{CHANGES_MAX} changes are waiting for an answer already, try again later")
        whom = "The broker" if isinstance(wanted, ChangeConfig) else f"Partition {partition}"
        async with self._changes:
            try:
                async with asyncio.timeout(self._change_max_s):
                    delivery = await self._sent(Header(kind="", rm=rm, partition=partition), wanted)
            except TimeoutError:
                look = _CHANGED[type(wanted)]
                said = f"{whom} did not answer within {self._change_max_s:g} s"
                raise RequestError(
                    503, f"{said}. Whether the change was made is not known: read {look} before trying again"
                ) from None
        return _read(delivery, Answer, whom=whom)

    async def partitions(self) -> PartitionList:
        """All that is registered.

        Raises:
            RequestError: 503, with what went wrong.
        """
        return await self._question(Header(kind=""), ListPartitions(), PartitionList, whom="The broker")

    async def _question(self, to: Header, message: Message, answer: type[_M], *, whom: str) -> _M:
        try:
            async with asyncio.timeout(self._answer_max_s), self._places:
                delivery = await self._sent(to, message)
        except TimeoutError:
            raise RequestError(503, f"{whom} did not answer within {self._answer_max_s:g} s") from None
        return _read(delivery, answer, whom=whom)

    async def _sent(self, to: Header, message: Message) -> Delivery:
        """What comes back for a message to the RM or partition in the header, which gets its kind and number here."""
        ref = f"{self._life}-{next(self._numbers)}"
        header = replace(to, kind=type(message).__name__, ref=ref)
        wanted = Send(BROKER, header, body_of(message))
        self._open[ref] = asyncio.get_running_loop().create_future()
        if not isinstance(message, Change):
            self._questions[ref] = wanted
        try:
            self.wire.send(wanted)
            return await self._open[ref]
        finally:
            del self._open[ref]
            self._questions.pop(ref, None)

    def _settle(self, delivery: Delivery) -> None:
        question = self._open.get(delivery.header.ref)
        if question is None or question.done():
            _log.debug("%s for question %s, which is closed", delivery.header.kind, delivery.header.ref)
        else:
            question.set_result(delivery)


def _read(delivery: Delivery, answer: type[_M], *, whom: str) -> _M:
    kind = delivery.header.kind
    try:
        if kind == Refused.__name__:
            raise RequestError(503, f"{whom} cannot answer: {decoded(Refused, delivery.body).reason}")
        if kind != answer.__name__:
            raise WireError(f"{kind} instead of {answer.__name__}")
        return decoded(answer, delivery.body)
    except WireError as error:
        raise RequestError(503, f"{whom} answered what cannot be read: {error}") from None
