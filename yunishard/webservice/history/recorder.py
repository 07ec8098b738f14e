"""Records the history: queries all partitions every second, writes the rows, and handles a store that cannot be used.

A damaged file is renamed and a new one begins. While the disk is full, the database cannot be reached, or a later
release has written the file, nothing is recorded, everything else continues, and the recorder tries again every
RETRY_S. Events of that time are read later, as far as the workers still have them. Of several web services with one
history, one records; another takes over when that one ends.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from yunishard.common.messages.query_messages import Account, Query
from yunishard.common.process.health import WriteTimes
from yunishard.webservice.broker_client import BrokerClient, decode_answer
from yunishard.webservice.history.collector import IDLE_ROUNDS, ROUND_S, Collector, RowBatch
from yunishard.webservice.history.store import HistoryDamaged, HistoryStore, HistoryTaken, delete_expired
from yunishard.webservice.history.writer import HistoryWriter
from yunishard.webservice.views import RequestError

RETRY_S: Final = 5.0
"""Seconds before an unusable store is tried again."""

ANSWER_MAX_S: Final = 3.0
"""Seconds for a partition to answer; a round waits for all partitions."""

_NS: Final = 10**9
_log = logging.getLogger("core.history")


@dataclass(slots=True, eq=False)
class HistoryRecorder:
    """Records the history of all partitions while `run` runs."""

    history: HistoryStore
    _: KW_ONLY
    bytes_max: int
    age_max_s: float
    clock_ns: Callable[[], int] = time.time_ns
    round_s: float = ROUND_S
    retry_s: float = RETRY_S
    problem: str = field(default="it is being opened", init=False)
    """Why nothing is recorded at present; empty if the history is recorded."""
    failure: str = field(default="", init=False)
    """The last problem, which is in the log, until recording works again."""
    writes: WriteTimes = field(default_factory=WriteTimes, init=False)
    _round_at: float = field(default_factory=time.monotonic, init=False)
    """When the latest round ended, or recording started."""

    def collect(self) -> Iterator[Metric]:
        """The metrics of the history."""
        text = (
            "Seconds since the partitions were last queried for the history and the answers written. Investigate above"
            " 60: the history cannot be written (see the log), and events that workers discard meanwhile are missing."
        )
        lag_s = round(time.monotonic() - self._round_at, 3)
        yield GaugeMetricFamily("yunishard_history_lag_seconds", text, lag_s)
        if (size := self.history.size()) is not None:
            text = (
                "Bytes of the history: of its file with SQLite's log, or of its rows in the store, reported by the web"
                " service that records it. The bound is the setting history-max."
            )
            yield GaugeMetricFamily("yunishard_history_bytes", text, size)

    async def run(self, broker: BrokerClient) -> None:
        """Record until cancelled."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="history") as writer:
            while True:
                try:
                    try:
                        await self._record(broker, writer)
                    except HistoryDamaged as damage:
                        self.problem = self.history.put_aside(damage)
                        _log.error("%s", self.problem)
                        await asyncio.sleep(self.round_s)  # limits the log of a disk that damages every new file
                except OSError as error:
                    if isinstance(error, HistoryTaken) and self.history.exists():
                        self.problem, self._round_at = "", time.monotonic()  # it can be read
                    else:
                        self._fail(error)
                    await asyncio.sleep(self.retry_s)

    async def _record(self, broker: BrokerClient, writer: ThreadPoolExecutor) -> None:
        """Open the history and record round by round, until an error."""
        loop = asyncio.get_running_loop()
        opened = await loop.run_in_executor(writer, self.history.open_writer)
        try:
            positions = await loop.run_in_executor(writer, opened.positions)
            collector = Collector(positions, await loop.run_in_executor(writer, opened.latest), self.clock_ns())
            self.problem = ""
            rounds = 0
            while True:
                began = loop.time()
                now_ns = self.clock_ns()
                batches = await _query_partitions(broker, collector, now_ns)
                if batches is None:  # another web service may reach the broker: the right to record ends
                    await asyncio.sleep(self.round_s)
                    continue
                if batches or collector.sampling:
                    await loop.run_in_executor(writer, self._write, opened, batches, now_ns)
                elif opened.is_due:
                    await loop.run_in_executor(writer, opened.renew)
                rounds += 1
                if batches or collector.sampling or rounds == IDLE_ROUNDS:  # then every partition was queried
                    self._recover()
                self._round_at = time.monotonic()
                await asyncio.sleep(max(0.0, began + self.round_s - loop.time()))
        finally:
            await loop.run_in_executor(writer, opened.close)

    def _write(self, opened: HistoryWriter, batches: list[RowBatch], now_ns: int) -> None:
        with self.writes.measure():
            opened.write(batches)
        delete_expired(opened, bytes_max=self.bytes_max, age_max_ns=int(self.age_max_s * _NS), now_ns=now_ns)

    def _fail(self, error: OSError) -> None:
        self.problem = self.history.describe(error)
        if self.problem != self.failure:
            self.failure = self.problem
            text = "no history is recorded, everything else continues: %s; it is tried again every %g s"
            _log.error(text, self.problem, self.retry_s)

    def _recover(self) -> None:
        if self.failure:
            self.failure = ""
            _log.info("the history is recorded again")


async def _query_partitions(broker: BrokerClient, collector: Collector, now_ns: int) -> list[RowBatch] | None:
    """Query the partitions of this round. Returns the rows to write; None if the broker does not answer. A partition
    that does not answer is queried again in the next round.
    """
    try:
        partitions = (await broker.partitions()).partitions
    except RequestError as error:
        _log.debug("no partition is queried: %s", error.text)
        return None
    queries = collector.plan_queries(partitions, now_ns)
    accounts = await asyncio.gather(*(_query(broker, partition.full_name, query) for partition, query in queries))
    batches = [
        collector.process_answer(partition, account, now_ns)
        for (partition, _), account in zip(queries, accounts, strict=True)
        if account is not None
    ]
    return [one for one in (*batches, *collector.end_removed(partitions, now_ns)) if one is not None]


async def _query(broker: BrokerClient, name: str, query: Query) -> Account | None:
    """A partition's answer; None without a valid one."""
    try:
        async with asyncio.timeout(ANSWER_MAX_S):
            return decode_answer(await broker.ask(name, query), Account, f"Partition {name}")
    except (RequestError, TimeoutError) as error:
        _log.debug("partition %s does not report its history: %s", name, error)
        return None
