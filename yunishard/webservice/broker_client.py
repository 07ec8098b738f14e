"""The web service's connection to the broker: sends queries and changes, and matches answers to them by `Header.ref`.

At most QUERIES_MAX queries are outstanding; more wait, and the wait counts towards their time limit. At most
CHANGES_MAX changes are outstanding; more are refused. A change may have been made although its answer did not arrive,
so it is never repeated; queries are sent again to a broker that restarted, and on a new connection to it.
"""

import asyncio
import itertools
import logging
import math
import secrets
import time
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from yunishard.common.messages import query_messages
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.query_messages import (
    Answer,
    Change,
    ChangeConfig,
    ListPartitions,
    PartitionList,
    Query,
    ReadConfig,
    ReadHosts,
)
from yunishard.common.messages.rm_messages import Heartbeat, Refused
from yunishard.common.messages.wire import (
    LINK_LOST,
    BrokerAddress,
    Incoming,
    Outgoing,
    WireError,
    decode_body,
    encode_body,
    make_outgoing,
)
from yunishard.common.names import BROKER
from yunishard.common.transport.event_loop import BrokerConnection, Transport
from yunishard.webservice.views import RequestError

ANSWER_MAX_S: Final = 10.0
ANSWERS_MAX_S: Final = {"plan": 40.0}
"""Seconds for the answers of queries that may take longer: than the worker takes (`partition_worker/plan_process.py`).
"""

CHANGE_MAX_S: Final = 30.0
"""Longer than the broker's limit for a roll-out (20 s), so that the broker reports the outcome."""

QUERIES_MAX: Final = 256
RECENT_S: Final = 2.0
"""Seconds for which a list of partitions is recent. The history reads one every second."""

CHANGES_MAX: Final = 32

_M = TypeVar("_M", bound=Message)
_T = TypeVar("_T")
_log = logging.getLogger("core.rest")


class _OpenRequest(NamedTuple):
    request: Outgoing
    repeatable: bool
    answered: asyncio.Future[Incoming]


class BrokerClient:
    """The connection to the broker. Queries are answered while `run` runs."""

    def __init__(self, broker: BrokerAddress, *, name: str, heartbeat_s: float, keys: Path | None = None) -> None:
        """`keys` is for a system of several hosts."""
        self._heartbeat_s = heartbeat_s
        self._recent: PartitionList | None = None
        self._recent_at = 0.0
        """When the latest list of partitions arrived, in monotonic seconds."""
        self._incarnation = ""
        """The broker's incarnation; empty before its first heartbeat."""
        self.wire = Transport()
        self._link = BrokerConnection(broker, name=name, wake=self.wire.wake, keys=keys)
        self.wire.add(BROKER, self._link)
        self._slots = asyncio.Semaphore(QUERIES_MAX)
        self._changes = asyncio.Semaphore(CHANGES_MAX)
        self._instance = secrets.token_hex(4)  # so that no answer for a predecessor matches a query of this process
        self._numbers = itertools.count(1)
        self._open: dict[str, _OpenRequest] = {}
        """All and only requests that were sent and have no answer and no timeout yet, by `ref`."""

    async def run(self) -> None:
        """Send heartbeats and receive answers until cancelled.

        Raises:
            OSError: the broker does not accept this process.
        """
        beats_at = -math.inf
        try:
            while True:
                if (now := time.monotonic()) >= beats_at:
                    beats_at = now + self._heartbeat_s
                    self.wire.send(make_outgoing(BROKER, Heartbeat()))
                for incoming in await self.wire.receive(beats_at - now):
                    header = incoming.header
                    if header.kind == Heartbeat.__name__:
                        self._check_incarnation(decode_body(Heartbeat, incoming.body).incarnation)
                    elif header.kind == LINK_LOST:
                        self._incarnation = ""  # the broker at the new connection may be another one
                        self._repeat_queries()
                    elif header.ref in self._open and not (answered := self._open[header.ref].answered).done():
                        answered.set_result(incoming)
                    else:
                        _log.debug("%s for request %s, which has ended", header.kind, header.ref)
        finally:
            self._link.close()

    def _check_incarnation(self, incarnation: str) -> None:
        """Send outstanding queries again if the broker restarted: it lost them."""
        before, self._incarnation = self._incarnation, incarnation
        if before not in ("", incarnation):
            self._repeat_queries()

    def _repeat_queries(self) -> None:
        for one in self._open.values():
            if one.repeatable:
                self.wire.send(one.request)

    def move(self, broker: BrokerAddress) -> None:
        """Connect to another broker, which leads now."""
        self._link.move(broker)

    async def ask(self, partition: str, query: Query) -> Answer:
        """A worker's answer, or without a partition the broker's.

        Raises:
            RequestError: 503, with the reason.
        """
        return await self._request(query, Answer, partition=partition)

    async def read(self, rm: str, question: ReadConfig | ReadHosts) -> Answer:
        """The broker's answer about a resource manager's configuration, or about the hosts.

        Raises:
            RequestError: 503, with the reason.
        """
        return await self._request(question, Answer, rm=rm)

    async def change(self, wanted: Change, *, rm: str = "", partition: str = "") -> Answer:
        """Make a change. Returns its outcome.

        Raises:
            RequestError: 503, with the reason; without an answer the change may have been made all the same.
        """
        if self._changes.locked():
            raise RequestError(503, f"{CHANGES_MAX} changes are waiting for an answer already, try again later")
        shows = {
            ChangeConfig: "configuration",
            query_messages.ChangeHosts: "hosts",
            query_messages.ChangeQueue: "queue",
            query_messages.ChangeNode: "node",
            query_messages.EndSession: "list of clusters",
            query_messages.Schedule: "applications",
        }.get(type(wanted), "application")
        hint = f". Whether the change was made is not known: read the {shows} before trying again"
        return await self._request(wanted, Answer, rm=rm, partition=partition, hint=hint)

    async def partitions(self) -> PartitionList:
        """All registered RMs and partitions.

        Raises:
            RequestError: 503, with the reason.
        """
        known = await self._request(ListPartitions(), PartitionList)
        self._recent, self._recent_at = known, time.monotonic()
        return known

    def recent_partitions(self) -> PartitionList | None:
        """The latest list of partitions, if it is young enough to resolve full names without another round trip."""
        return self._recent if time.monotonic() - self._recent_at < RECENT_S else None

    async def _request(
        self, message: Message, answer: type[_M], *, rm: str = "", partition: str = "", hint: str = ""
    ) -> _M:
        """Send a message to the RM or partition, and wait for its answer; an error about a missing answer ends with the
        hint.
        """
        peer = f"Partition {partition}" if partition else "The broker"
        is_change = isinstance(message, Change)
        what = message.what if isinstance(message, Query) else ""
        max_s = CHANGE_MAX_S if is_change else ANSWERS_MAX_S.get(what, ANSWER_MAX_S)
        ref = f"{self._instance}-{next(self._numbers)}"
        header = Header(kind=type(message).__name__, rm=rm, partition=partition, ref=ref)
        request = Outgoing(BROKER, header, encode_body(message))
        try:
            async with asyncio.timeout(max_s), self._changes if is_change else self._slots:
                answered: asyncio.Future[Incoming] = asyncio.get_running_loop().create_future()
                self._open[ref] = _OpenRequest(request, not is_change, answered)
                self.wire.send(request)
                incoming = await answered
        except TimeoutError:
            raise RequestError(503, f"{peer} did not answer within {max_s:g} s{hint}") from None
        finally:
            self._open.pop(ref, None)
        kind = incoming.header.kind
        try:
            if kind == Refused.__name__:
                raise RequestError(503, f"{peer} cannot answer: {decode_body(Refused, incoming.body).reason}")
            if kind != answer.__name__:
                raise WireError(f"{kind} instead of {answer.__name__}")
            return decode_body(answer, incoming.body)
        except WireError as error:
            raise RequestError(503, f"{peer} answered what cannot be read: {error}") from None


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
