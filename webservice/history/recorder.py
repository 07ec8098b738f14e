"""Records the history: owns the lock on its file, asks all partitions every second, and handles an unusable file.

Only the process that holds the lock file writes. A damaged file is renamed and a new one begins. While the disk is
full, or a later release has written the file, nothing is recorded, everything else continues, and the recorder tries
again every RETRY_S. Events of that time are read later, as far as the workers still have them.
"""

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from common.history_records import Account
from common.metrics import Family, gauge
from common.query_messages import PartitionEntry, Query
from webservice.calls import Broker, HistoryFile
from webservice.history.collector import IDLE_ROUNDS, ROUND_S, Collector, Portion
from webservice.history.store import PRIVATE, HistoryDamaged, HistoryUnusable, Store, delete_expired
from webservice.views import RequestError

RETRY_S: Final = 5.0
"""Seconds before an unusable file is tried again."""

ANSWER_MAX_S: Final = 3.0
"""Seconds for a partition to answer; a round waits for all partitions."""

DAMAGED: Final = ".damaged"
"""Suffix of a damaged file that was renamed; only the latest is kept."""

_NS: Final = 10**9
_log = logging.getLogger("core.history")
_account: Final = msgspec.json.Decoder(Account)


class HistoryRecorder:
    """Records the history of all partitions in one file while `run` runs. `problem` is why it does not at present."""

    def __init__(
        self,
        kept: HistoryFile,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        round_s: float = ROUND_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self.path = kept.path
        self.problem = "it is being opened"
        self._kept = kept
        self._clock_ns = clock_ns
        self._round_s = round_s
        self._retry_s = retry_s
        self.failure = ""
        """The last problem, which is in the log, until recording works again."""
        self._round_at = time.monotonic()
        """When the latest round ended, or recording started."""

    def families(self) -> Iterator[Family]:
        """The metrics of the history."""
        what = (
            "Seconds since what partitions tell was last asked for and written into the history. Worry above 60: the "
            "file cannot be used, the log says why; what workers forget meanwhile is missing."
        )
        yield gauge("yunishard_history_lag_seconds", what, (), [((), round(time.monotonic() - self._round_at, 3))])
        what = "Bytes of the file of the history, with SQLite's log beside it. Its bound is the setting history-max."
        size = sum(_size(_beside(self.path, suffix)) for suffix in ("", "-wal"))
        yield gauge("yunishard_history_bytes", what, (), [((), size)])

    async def run(self, link: Broker) -> None:
        """Record until cancelled."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="history") as writer:
            while True:
                try:
                    await self._keep_or_put_aside(link, writer)
                except OSError as error:
                    self._fail(error)
                    await asyncio.sleep(self._retry_s)

    async def _keep_or_put_aside(self, link: Broker, writer: ThreadPoolExecutor) -> None:
        try:
            await self._keep(link, writer)
        except HistoryDamaged as damage:
            self._put_aside(damage)
            await asyncio.sleep(self._round_s)  # limits the log of a disk that damages every new file

    async def _keep(self, link: Broker, writer: ThreadPoolExecutor) -> None:
        """Open the file and record round by round, until an error."""
        loop = asyncio.get_running_loop()
        opened = await loop.run_in_executor(writer, partial(_open, self.path, self._clock_ns()))
        self.problem = ""
        rounds = 0
        try:
            while True:
                began = loop.time()
                now_ns = self._clock_ns()
                portions = await _round(link, opened.collector, now_ns)
                work = partial(self._write, opened, portions, now_ns)
                if portions or opened.collector.sampling:
                    await loop.run_in_executor(writer, work)
                    self._recovered()
                rounds += 1
                if rounds == IDLE_ROUNDS:  # every partition was asked, and there was nothing to write
                    self._recovered()
                self._round_at = time.monotonic()
                await asyncio.sleep(max(0.0, began + self._round_s - loop.time()))
        finally:
            await loop.run_in_executor(writer, opened.close)

    def _write(self, opened: "_Opened", portions: list[Portion], now_ns: int) -> None:
        opened.store.write(portions)
        age_ns = int(self._kept.age_max_s * _NS)
        delete_expired(opened.store, bytes_max=self._kept.bytes_max, age_max_ns=age_ns, now_ns=now_ns)

    def _put_aside(self, damage: HistoryDamaged) -> None:
        """Rename a damaged file, for a later analysis."""
        path = self.path
        aside = _beside(path, DAMAGED)
        self.problem = f"{path} is damaged: {damage}"
        for suffix in ("", "-wal", "-shm"):
            file = _beside(path, suffix)
            if file.exists():
                file.replace(_beside(aside, suffix))
        _log.error("the history in %s is damaged (%s): it is now %s, and a new one begins", path, damage, aside)

    def _fail(self, error: OSError) -> None:
        self.problem = f"{self.path} cannot be used: {error}"
        if self.problem != self.failure:
            self.failure = self.problem
            wait = f"it is tried again every {self._retry_s:g} s"
            _log.error("no history is kept, everything else goes on: %s; %s", self.problem, wait)

    def _recovered(self) -> None:
        if self.failure:
            self.failure = ""
            _log.info("the history is kept again in %s", self.path)


@dataclass(frozen=True, slots=True)
class _Opened:
    """The open file, its lock, and the collector."""

    store: Store
    collector: Collector
    lock: int

    def close(self) -> None:
        self.store.close()
        os.close(self.lock)


def _open(path: Path, now_ns: int) -> _Opened:
    """Lock and open the file; runs in the writer's thread.

    Raises:
        HistoryDamaged: its content is damaged.
        OSError: it cannot be used at present.
    """
    lock = os.open(_beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HistoryUnusable("another process writes it") from None
        store = Store(path)
        try:
            return _Opened(store, Collector(store.places(), store.latest(), now_ns), lock)
        except BaseException:
            store.close()
            raise
    except BaseException:
        os.close(lock)
        raise


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


async def _round(link: Broker, collector: Collector, now_ns: int) -> list[Portion]:
    """Query the partitions of this round. Returns the rows to write. A partition that does not answer is asked again in
    the next round."""
    try:
        partitions = (await link.partitions()).partitions
    except RequestError as error:
        _log.debug("no partition is asked: %s", error.text)
        return []
    questions = collector.questions(partitions, now_ns)
    accounts = await asyncio.gather(*(_asked(link, partition, query) for partition, query in questions))
    heard = [
        collector.process_answer(partition, account, now_ns)
        for (partition, _), account in zip(questions, accounts, strict=True)
        if account is not None
    ]
    return [one for one in (*heard, *collector.gone(partitions, now_ns)) if one is not None]


async def _asked(link: Broker, partition: PartitionEntry, query: Query) -> Account | None:
    """A partition's answer; None without a valid one."""
    try:
        async with asyncio.timeout(ANSWER_MAX_S):
            answer = await link.ask(partition.full_name, query)
        if answer.status == 200:
            return _account.decode(answer.body)
        problem = answer.body.decode(errors="replace")
    except (RequestError, TimeoutError, msgspec.MsgspecError) as error:
        problem = str(error)
    _log.debug("partition %s does not report its history: %s", partition.full_name, problem)
    return None
