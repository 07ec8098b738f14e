"""Records the history: queries all partitions every second, writes the rows, and handles an unusable file.

A damaged file is renamed and a new one begins. While the disk is full, or a later release has written the file, nothing
is recorded, everything else continues, and the recorder tries again every RETRY_S. Events of that time are read later,
as far as the workers still have them. Of several web services with one file, one records; another takes over when that
one ends.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final

from common.history_records import Account
from common.metrics import Family, gauge
from common.query_messages import Query
from webservice.broker_client import BrokerClient, decode_answer
from webservice.history.collector import IDLE_ROUNDS, ROUND_S, Collector, RowBatch
from webservice.history.store import HistoryDamaged, HistoryTaken, Store, beside, delete_expired
from webservice.views import RequestError

RETRY_S: Final = 5.0
"""Seconds before an unusable file is tried again."""

ANSWER_MAX_S: Final = 3.0
"""Seconds for a partition to answer; a round waits for all partitions."""

DAMAGED: Final = ".damaged"
"""Suffix of a damaged file that was renamed; only the latest is preserved."""

_NS: Final = 10**9
_log = logging.getLogger("core.history")


@dataclass(slots=True, eq=False)
class HistoryRecorder:
    """Records the history of all partitions in one file while `run` runs."""

    path: Path
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
    _round_at: float = field(default_factory=time.monotonic, init=False)
    """When the latest round ended, or recording started."""

    def families(self) -> Iterator[Family]:
        """The metrics of the history."""
        text = (
            "Seconds since the partitions were last queried for the history and the answers written. Investigate above"
            " 60: the file cannot be used (see the log), and events that workers discard meanwhile are missing."
        )
        yield gauge("yunishard_history_lag_seconds", text, (), [((), round(time.monotonic() - self._round_at, 3))])
        text = "Bytes of the file of the history, with SQLite's log beside it. Its bound is the setting history-max."
        size = sum(_measure(beside(self.path, suffix)) for suffix in ("", "-wal"))
        yield gauge("yunishard_history_bytes", text, (), [((), size)])

    async def run(self, broker: BrokerClient) -> None:
        """Record until cancelled."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="history") as writer:
            while True:
                try:
                    try:
                        await self._record(broker, writer)
                    except HistoryDamaged as damage:
                        self._rename_damaged(damage)
                        await asyncio.sleep(self.round_s)  # limits the log of a disk that damages every new file
                except OSError as error:
                    if isinstance(error, HistoryTaken) and self.path.exists():
                        self.problem, self._round_at = "", time.monotonic()  # it can be read
                    else:
                        self._fail(error)
                    await asyncio.sleep(self.retry_s)

    async def _record(self, broker: BrokerClient, writer: ThreadPoolExecutor) -> None:
        """Open the file and record round by round, until an error."""
        loop = asyncio.get_running_loop()
        store = await loop.run_in_executor(writer, Store, self.path)
        try:
            positions = await loop.run_in_executor(writer, store.positions)
            collector = Collector(positions, await loop.run_in_executor(writer, store.latest), self.clock_ns())
            self.problem = ""
            rounds = 0
            while True:
                began = loop.time()
                now_ns = self.clock_ns()
                batches = await _query_partitions(broker, collector, now_ns)
                if batches or collector.sampling:
                    await loop.run_in_executor(writer, self._write, store, batches, now_ns)
                rounds += 1
                if batches or collector.sampling or rounds == IDLE_ROUNDS:  # then every partition was queried
                    self._recover()
                self._round_at = time.monotonic()
                await asyncio.sleep(max(0.0, began + self.round_s - loop.time()))
        finally:
            await loop.run_in_executor(writer, store.close)

    def _write(self, store: Store, batches: list[RowBatch], now_ns: int) -> None:
        store.write(batches)
        delete_expired(store, bytes_max=self.bytes_max, age_max_ns=int(self.age_max_s * _NS), now_ns=now_ns)

    def _rename_damaged(self, damage: HistoryDamaged) -> None:
        """Rename a damaged file, for a later analysis."""
        path, renamed = self.path, beside(self.path, DAMAGED)
        self.problem = f"{path} is damaged: {damage}"
        for suffix in ("", "-wal", "-shm"):
            if (file := beside(path, suffix)).exists():
                file.replace(beside(renamed, suffix))
        _log.error("the history in %s is damaged (%s): it is now %s, and a new one begins", path, damage, renamed)

    def _fail(self, error: OSError) -> None:
        self.problem = f"{self.path} cannot be used: {error}"
        if self.problem != self.failure:
            self.failure = self.problem
            text = "no history is recorded, everything else continues: %s; it is tried again every %g s"
            _log.error(text, self.problem, self.retry_s)

    def _recover(self) -> None:
        if self.failure:
            self.failure = ""
            _log.info("the history is recorded again in %s", self.path)


def _measure(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # SQLite deletes its log when the file is closed
        return 0


async def _query_partitions(broker: BrokerClient, collector: Collector, now_ns: int) -> list[RowBatch]:
    """Query the partitions of this round. Returns the rows to write. A partition that does not answer is queried again
    in the next round.
    """
    try:
        partitions = (await broker.partitions()).partitions
    except RequestError as error:
        _log.debug("no partition is queried: %s", error.text)
        return []
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
