"""The web service's connection to the broker: sends queries and changes, and matches answers to them by `Header.ref`.

At most QUERIES_MAX queries are outstanding; more wait, and the wait counts towards their time limit. At most
CHANGES_MAX changes are outstanding; more are refused. A change may have been made although its answer did not arrive,
so it is never repeated; queries are sent again to a broker that restarted.
"""

import asyncio
import itertools
import logging
import math
import secrets
import time
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

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
from common.transport import BrokerConnection, Transport
from common.wire import Incoming, Outgoing, WireError, decode_body, encode_body, make_outgoing
from webservice.views import RequestError

ANSWER_MAX_S: Final = 10.0
CHANGE_MAX_S: Final = 30.0
"""Longer than the broker's limit for a roll-out (20 s), so that the broker reports the outcome."""

QUERIES_MAX: Final = 256
RECENT_S: Final = 2.0
"""Seconds for which a list of partitions is recent. The history reads one every second."""

CHANGES_MAX: Final = 32

Change = ChangeConfig | KillApplication | MoveApplication | Schedule
"""Messages that change something. Without an answer, the change may have been made all the same."""

_M = TypeVar("_M", bound=Message)
_T = TypeVar("_T")
_log = logging.getLogger("core.rest")


class BrokerClient:
    """The connection to the broker. Queries are answered while `run` runs."""

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
        self._recent: PartitionList | None = None
        self._recent_at = 0.0
        """When the latest list of partitions arrived, in monotonic seconds."""
        self._incarnation = ""
        """The broker's incarnation; empty before its first heartbeat."""
        self.wire = Transport()
        self._link = BrokerConnection(address, peer=BROKER, name=WEBSERVICE, wake=self.wire.wake)
        self.wire.add(BROKER, self._link)
        self._slots = asyncio.Semaphore(QUERIES_MAX)
        self._changes = asyncio.Semaphore(CHANGES_MAX)
        self._instance = secrets.token_hex(4)  # so that no answer for a predecessor matches a query of this process
        self._numbers = itertools.count(1)
        #: All and only messages that were sent and have no answer and no timeout yet.
        self._open: dict[str, asyncio.Future[Incoming]] = {}
        #: Those of them that may be sent again.
        self._repeatable: dict[str, Outgoing] = {}

    async def run(self) -> None:
        """Send heartbeats and receive answers until cancelled."""
        beats_at = -math.inf
        try:
            while True:
                if (now := time.monotonic()) >= beats_at:
                    beats_at = now + self._heartbeat_s
                    self.wire.send(make_outgoing(BROKER, Heartbeat()))
                for incoming in await self.wire.receive(beats_at - now):
                    if incoming.header.kind == Heartbeat.__name__:
                        self._check_incarnation(decode_body(Heartbeat, incoming.body).incarnation)
                    else:
                        self._settle(incoming)
        finally:
            self._link.close()

    def _check_incarnation(self, incarnation: str) -> None:
        """Send outstanding queries again if the broker restarted: it lost them."""
        before, self._incarnation = self._incarnation, incarnation
        if before not in ("", incarnation):
            for query in self._repeatable.values():
                self.wire.send(query)

    async def ask(self, partition: str, query: Query) -> Answer:
        """A worker's answer, or without a partition the broker's.

        Raises:
            RequestError: 503, with the reason.
        """
        return await self._request(Header(kind="", partition=partition), query, Answer)

    async def read(self, rm: str, question: ReadConfig) -> Answer:
        """The broker's answer about a resource manager's configuration.

        Raises:
            RequestError: 503, with the reason.
        """
        return await self._request(Header(kind="", rm=rm), question, Answer)

    async def change(self, wanted: Change, *, rm: str = "", partition: str = "") -> Answer:
        """Make a change. Returns its outcome.

        Raises:
            RequestError: 503, with the reason; without an answer the change may have been made all the same.
        """
        if self._changes.locked():
            raise RequestError(503, f"{CHANGES_MAX} changes are waiting for an answer already, try again later")
        shows = {ChangeConfig: "configuration", Schedule: "applications"}.get(type(wanted), "application")
        hint = f". Whether the change was made is not known: read the {shows} before trying again"
        return await self._request(Header(kind="", rm=rm, partition=partition), wanted, Answer, hint=hint)

    async def partitions(self) -> PartitionList:
        """All registered RMs and partitions.

        Raises:
            RequestError: 503, with the reason.
        """
        known = await self._request(Header(kind=""), ListPartitions(), PartitionList)
        self._recent, self._recent_at = known, time.monotonic()
        return known

    def recent_partitions(self) -> PartitionList | None:
        """The latest list of partitions, if it is young enough to resolve full names without another round trip."""
        return self._recent if time.monotonic() - self._recent_at < RECENT_S else None

    async def _request(self, to: Header, message: Message, answer: type[_M], *, hint: str = "") -> _M:
        """Send a message to the RM or partition in the header, and wait for its answer; an error about a missing answer
        ends with the hint.
        """
        peer = f"Partition {to.partition}" if to.partition else "The broker"
        is_change = isinstance(message, Change)
        max_s = self._change_max_s if is_change else self._answer_max_s
        ref = f"{self._instance}-{next(self._numbers)}"
        request = Outgoing(BROKER, replace(to, kind=type(message).__name__, ref=ref), encode_body(message))
        try:
            async with asyncio.timeout(max_s), self._changes if is_change else self._slots:
                incoming = await self._exchange(ref, request, repeatable=not is_change)
        except TimeoutError:
            raise RequestError(503, f"{peer} did not answer within {max_s:g} s{hint}") from None
        kind = incoming.header.kind
        try:
            if kind == Refused.__name__:
                raise RequestError(503, f"{peer} cannot answer: {decode_body(Refused, incoming.body).reason}")
            if kind != answer.__name__:
                raise WireError(f"{kind} instead of {answer.__name__}")
            return decode_body(answer, incoming.body)
        except WireError as error:
            raise RequestError(503, f"{peer} answered what cannot be read: {error}") from None

    async def _exchange(self, ref: str, request: Outgoing, *, repeatable: bool) -> Incoming:
        self._open[ref] = asyncio.get_running_loop().create_future()
        if repeatable:
            self._repeatable[ref] = request
        try:
            self.wire.send(request)
            return await self._open[ref]
        finally:
            del self._open[ref]
            self._repeatable.pop(ref, None)

    def _settle(self, incoming: Incoming) -> None:
        request = self._open.get(incoming.header.ref)
        if request is None or request.done():
            _log.debug("%s for request %s, which has ended", incoming.header.kind, incoming.header.ref)
        else:
            request.set_result(incoming)


def read_document(answer: Answer) -> bytes:
    """The document in an answer, with one line break at its end.

    Raises:
        RequestError: the answer has another status than 200; its body is the error text.
    """
    if answer.status != 200:
        raise RequestError(answer.status, answer.body.decode(errors="replace"))
    return answer.body


def decode_answer(answer: Answer, kind: type[_T], peer: str) -> _T:
    """Decode the JSON document in an answer of this peer.

    Raises:
        RequestError: the answer has another status than 200, or is malformed.
    """
    try:
        return msgspec.json.decode(read_document(answer), type=kind)
    except msgspec.MsgspecError as error:
        raise RequestError(503, f"{peer} answered what cannot be read: {error}") from None
