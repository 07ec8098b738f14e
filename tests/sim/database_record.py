"""The broker's record in the simulated database, as `broker/postgres_store.py` keeps it in a real one.

Each write is a transaction that checks the broker's epoch and counts itself, so that the outcome of one whose answer
was lost can be read back. The statements are those of `broker/sqlite_store.py`.

Not here: the database (`database.py`), which messages there are (`broker/store.py`).
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.sim.database import Client, ClusterRecord, Database, OutcomeUnknown, Tables, Work
from yunishard.broker.store import Store, execute
from yunishard.common.messages.control_messages import HostChange, ManagerRecord
from yunishard.common.messages.wire import Incoming, Outgoing
from yunishard.common.names import BROKER

SETTLE_S: Final = 0.5
"""Between two attempts to find out an outcome."""


class DatabaseRecord:
    """What the simulation asks of the record of any broker."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def store(self) -> Store:
        return self._database.primary.record

    def ever_recorded(self) -> set[str]:
        """The checksums of all configurations."""
        histories = self._database.primary.record.read_histories().values()
        return {entry.checksum for history in histories for entry in history.entries}


class RecordClient:
    """The record as an endpoint of one broker, which leads under this epoch."""

    def __init__(self, client: Client, epoch: int, answer: Callable[[Incoming], None]) -> None:
        self._client, self._epoch, self._answer = client, epoch, answer
        self._waiting: deque[Outgoing] = deque()
        self._writes = 0
        self._is_writing = False

    def give(self, message: Outgoing) -> None:
        self._waiting.append(message)
        self._begin()

    def _begin(self) -> None:
        if not self._is_writing and self._waiting:
            self._is_writing, self._writes = True, self._writes + 1
            message = self._waiting.popleft()
            self._client.drive(self._write(message, self._writes), partial(self._finish, message))

    def _write(self, message: Outgoing, writes: int) -> Work[Incoming]:
        try:
            answer = yield partial(_execute, self._epoch, writes, message)
        except OutcomeUnknown as error:
            if message.header.kind in ("ReadConfig", "ReadVersion") or (yield from self._settle()) != writes:
                raise OSError(str(error)) from error
            return execute(DONE, message)
        assert isinstance(answer, Incoming)
        return answer

    def _settle(self) -> Work[int]:
        """The number of our last write that was carried out, as soon as that is known."""
        while True:
            try:
                epoch, writes = yield _read_writes
            except OSError:
                yield SETTLE_S
                continue
            return writes if epoch == self._epoch else 0

    def _finish(self, message: Outgoing, outcome: Incoming | OSError) -> None:
        if isinstance(outcome, OSError):
            outcome = execute(self._client.database.primary.record, message, str(outcome))
        self._answer(outcome)
        self._is_writing = False
        self._begin()


def is_latest(tables: Tables, epoch: int) -> bool:
    """The check of the epoch in each transaction."""
    return tables.lease(BROKER).epoch == epoch


def _execute(epoch: int, writes: int, message: Outgoing, tables: Tables, now: float) -> Incoming:
    if not is_latest(tables, epoch):
        raise OSError("a later broker has taken the place of this one")
    tables.lease(BROKER).writes = writes
    tables.record.incarnation = max(epoch, tables.record.read_incarnation())
    return execute(tables.record, message)


def _read_writes(tables: Tables, now: float) -> tuple[int, int]:
    lease = tables.lease(BROKER)
    return lease.epoch, lease.writes


class _Done(ClusterRecord):
    """A record that has been written already."""

    def __init__(self) -> None:
        self.incarnation = 0

    def write(self, rm: str, record: ManagerRecord) -> None: ...

    def rebase(self, rm: str, base: str) -> None: ...

    def remove_versions(self, rm: str, up_to: int) -> None: ...

    def probe(self) -> None: ...

    def change_host(self, host: str, change: HostChange) -> None: ...

    def remove_journal(self, partition: str, epoch: int) -> None: ...


DONE: Final = _Done()
