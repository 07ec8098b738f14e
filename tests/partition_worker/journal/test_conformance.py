"""What every store of journals does: SQLite, PostgreSQL, and the disk and the database of the simulation."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Protocol

import psycopg
import pytest

from tests import postgres
from tests.full_disk import full_disk
from tests.machines import PARTITION
from tests.partition_worker.journal.hand import encoded, sql, step
from tests.sim.database_journal import DatabaseJournals
from tests.sim.disk import Disk, JournalFile, SimulatedJournal
from yunishard.partition_worker.journal import sqlite_journal
from yunishard.partition_worker.journal.database import FORMAT
from yunishard.partition_worker.journal.files import Files
from yunishard.partition_worker.journal.postgres_journal import PostgresJournals
from yunishard.partition_worker.journal.protocol import Fenced, Journal, Journals
from yunishard.partition_worker.journal.sqlite_journal import STATEMENT_STEPS, SqliteJournal, SqliteJournals
from yunishard.partition_worker.recovery import JournalDamaged

ROOT = Path(__file__).parents[3]
OTHER = "rm-1_gpu"
LOST = "lost|closed the connection"
"""The reason of an answer that never came."""

# Implementations ------------------------------------------------------------------------------------------------------


class Store(Protocol):
    """A store of journals, and what may happen to it."""

    journals: Journals

    def die_while_appending(self, numbers: range, epoch: int) -> None:
        """A worker appends these steps, and is killed before the transaction is committed."""

    def die_after_appending(self, numbers: range, epoch: int) -> None:
        """A worker appends these steps, and is killed at once."""

    def lose_answer(self, journal: Journal) -> None:
        """The next append is committed, and fails all the same, as the answer is lost."""

    def full(self) -> AbstractContextManager[None]:
        """No room is left."""

    def damage(self) -> None:
        """A byte of a step is another one."""

    def become_later(self) -> None:
        """The journal is of a later format."""

    def content(self) -> object:
        """Everything that is stored, to be compared."""


APPENDS = """
import os, signal, sys
from pathlib import Path
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournal, SqliteJournals
from tests.partition_worker.journal.hand import encoded

folder, partition, first, end, epoch, finishes = sys.argv[1:]
journal = SqliteJournals(Path(folder)).open(partition, int(epoch))
if finishes == "no":
    SqliteJournal._update_meta = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # in the transaction, after all rows
journal.append(encoded(*range(int(first), int(end))), fresh=False)
os.kill(os.getpid(), signal.SIGKILL)
"""


def run_and_die(script: str, place: str, numbers: range, epoch: int, finishes: str) -> None:
    """Run a process that appends these steps and kills itself, after the transaction or in it."""
    arguments = [place, PARTITION, str(numbers.start), str(numbers.stop), str(epoch), finishes]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run([sys.executable, "-P", "-c", script, *arguments], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL


class SqliteStore:
    """SQLite files."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, history_bytes: int = 0) -> None:
        monkeypatch.setattr(sqlite_journal, "WAL_PREALLOCATED_BYTES", 0)  # a full disk is full at once
        self._folder, self._monkeypatch = folder, monkeypatch
        self.journals = SqliteJournals(folder, history_bytes)
        self._files = Files(folder, PARTITION)

    def die_while_appending(self, numbers: range, epoch: int) -> None:
        assert len(numbers) > STATEMENT_STEPS, "else it is a single statement"
        run_and_die(APPENDS, str(self._folder), numbers, epoch, "no")

    def die_after_appending(self, numbers: range, epoch: int) -> None:
        run_and_die(APPENDS, str(self._folder), numbers, epoch, "yes")

    def lose_answer(self, journal: Journal) -> None:
        assert isinstance(journal, SqliteJournal)
        commit = journal._append_rows

        def lose(*arguments: object, **options: bool) -> None:
            journal._append_rows = commit
            commit(*arguments, **options)
            raise OSError("the connection is lost")

        journal._append_rows = lose

    @contextmanager
    def full(self) -> Iterator[None]:
        with full_disk(self._files.wal.stat().st_size):
            yield

    def damage(self) -> None:
        sql(self._files).execute("UPDATE steps SET step = zeroblob(9)")

    def become_later(self) -> None:
        sql(self._files).execute(f"PRAGMA user_version={FORMAT + 1}")

    def content(self) -> object:
        return {path: path.read_bytes() for path in self._folder.rglob("*") if path.suffix in (".sqlite", ".snapshot")}


APPENDS_TO_POSTGRES = """
import os, signal, sys
from contextlib import contextmanager
from yunishard.partition_worker.journal.postgres_journal import PostgresJournals
from tests.partition_worker.journal.hand import encoded

store, partition, first, end, epoch, finishes = sys.argv[1:]
journal = PostgresJournals(store).open(partition, int(epoch))
if finishes == "no":
    @contextmanager
    def dies():
        connection = journal._database._connect()
        connection.execute("BEGIN")
        yield connection
        os.kill(os.getpid(), signal.SIGKILL)
    journal._database.autocommit = dies
journal.append(encoded(*range(int(first), int(end))), fresh=False)
os.kill(os.getpid(), signal.SIGKILL)
"""


class PostgresStore:
    """A PostgreSQL server."""

    def __init__(self) -> None:
        self._store = postgres.new_store()
        self._link = postgres.Link(postgres.server())
        self.journals = PostgresJournals(self._link.through(self._store))

    def close(self) -> None:
        self._link.close()

    def _sql(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self._store) as connection:
            done = connection.execute(statement)
            return done.fetchall() if done.description else []

    def die_while_appending(self, numbers: range, epoch: int) -> None:
        run_and_die(APPENDS_TO_POSTGRES, self._store, numbers, epoch, "no")

    def die_after_appending(self, numbers: range, epoch: int) -> None:
        run_and_die(APPENDS_TO_POSTGRES, self._store, numbers, epoch, "yes")

    def lose_answer(self, journal: Journal) -> None:
        self._link.once(postgres.Action.LOSE_ANSWER, b"INSERT INTO steps")

    def full(self) -> AbstractContextManager[None]:
        return postgres.full_disk(self._store, "steps")

    def damage(self) -> None:
        self._sql("UPDATE steps SET content = 'x'")

    def become_later(self) -> None:
        self._sql("UPDATE store_format SET number = number + 1")

    def content(self) -> object:
        return [row for table in ("journals", "steps", "snapshots") for row in self._sql(f"SELECT * FROM {table}")]


class SimulatedStore:
    """The disk of the simulation."""

    def __init__(self) -> None:
        self.journals = self._disk = Disk()

    def _file(self) -> JournalFile:
        return self._disk.journal(PARTITION)

    def die_while_appending(self, numbers: range, epoch: int) -> None:
        self.journals.open(PARTITION, epoch)  # which stores a transaction wholly or not at all

    def die_after_appending(self, numbers: range, epoch: int) -> None:
        self.journals.open(PARTITION, epoch).append(encoded(*numbers), fresh=False)

    def lose_answer(self, journal: Journal) -> None:
        assert isinstance(journal, SimulatedJournal)
        journal.loses_answer = True

    @contextmanager
    def full(self) -> Iterator[None]:
        self._disk.full = True
        yield
        self._disk.full = False

    def damage(self) -> None:
        self._file().steps[0].data += b"x"

    def become_later(self) -> None:
        self._file().format += 1

    def content(self) -> object:
        return self._file().copy()


class SimulatedDatabase(SimulatedStore):
    """The database of the simulation."""

    def __init__(self) -> None:
        self.journals = self._disk = DatabaseJournals()


@pytest.fixture(params=["sqlite", "sqlite with history", "postgresql", "simulated", "simulated database"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    match request.param:
        case "sqlite":
            yield SqliteStore(tmp_path / "journals", monkeypatch)
        case "sqlite with history":
            yield SqliteStore(tmp_path / "journals", monkeypatch, history_bytes=1 << 30)
        case "postgresql":
            with closing(PostgresStore()) as found:
                yield found
        case "simulated":
            yield SimulatedStore()
        case _:
            yield SimulatedDatabase()


@pytest.fixture
def open_journal(store: Store) -> Iterator[Callable[[int], Journal]]:
    """Opens the journal under an epoch, until the end of the test."""
    opened: list[Journal] = []

    def open_under(epoch: int) -> Journal:
        opened.append(store.journals.open(PARTITION, epoch))
        return opened[-1]

    yield open_under
    for journal in opened:
        journal.close()


Opens = Callable[[int], Journal]


def numbers(journal: Journal, first: int | None = None) -> list[int]:
    """The steps from this one on, or those that a worker needs; each is as it was written."""
    found = list(journal.read_steps(journal.statistics().begins if first is None else first))
    assert found == [step(one.number) for one in found]
    return [one.number for one in found]


def snapshot_of(journal: Journal) -> bytes | None:
    content = journal.read_snapshot()
    return None if content is None else b"".join(content)


def take_snapshot(journal: Journal, number: int, content: bytes) -> None:
    journal.write_snapshot(number, [content[:3], content[3:]])
    assert journal.record_snapshot(number)


# Steps ----------------------------------------------------------------------------------------------------------------


def test_a_new_journal_is_empty(open_journal: Opens) -> None:
    journal = open_journal(1)
    assert numbers(journal) == []
    assert snapshot_of(journal) is None
    found = journal.statistics()
    assert (found.begins, found.snapshot, found.last) == (1, 0, 0)


def test_steps_are_read_in_order_from_any_of_them(open_journal: Opens) -> None:
    journal = open_journal(1)
    assert journal.append(encoded(1, 2), fresh=False) == 2
    assert journal.append(encoded(3), fresh=False) == 3
    assert journal.append(encoded(*range(4, 1001)), fresh=False) == 1000
    assert numbers(journal) == list(range(1, 1001))
    assert numbers(journal, 998) == [998, 999, 1000]
    assert numbers(journal, 1001) == []


def test_the_next_worker_finds_what_was_appended(open_journal: Opens) -> None:
    open_journal(1).append(encoded(1, 2), fresh=False)
    journal = open_journal(2)
    assert journal.statistics().last == 2
    journal.append(encoded(3), fresh=False)
    assert numbers(journal) == [1, 2, 3]


def test_a_fresh_step_needs_no_earlier_one(open_journal: Opens) -> None:
    journal = open_journal(1)
    journal.append(encoded(1, 2), fresh=False)
    take_snapshot(journal, 1, b"one")
    journal.append(encoded(5), fresh=True)
    journal.append(encoded(6), fresh=False)
    assert (numbers(journal), snapshot_of(journal)) == ([5, 6], None)
    assert numbers(open_journal(2)) == [5, 6]


def test_the_journals_of_two_partitions_have_nothing_in_common(store: Store, open_journal: Opens) -> None:
    open_journal(1).append(encoded(1), fresh=False)
    other = store.journals.open(OTHER, 1)
    other.append(encoded(1, 2), fresh=False)
    other.delete()
    assert numbers(open_journal(2)) == [1]


@pytest.mark.processes
def test_a_worker_that_is_killed_before_a_commit_has_stored_nothing_of_it(store: Store, open_journal: Opens) -> None:
    open_journal(1).append(encoded(1), fresh=False)
    store.die_while_appending(range(2, 1002), 1)
    assert numbers(open_journal(2)) == [1]


@pytest.mark.processes
def test_a_worker_that_is_killed_after_a_commit_has_stored_everything(store: Store, open_journal: Opens) -> None:
    store.die_after_appending(range(1, 1002), 1)
    assert numbers(open_journal(2)) == list(range(1, 1002))


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("count", [1, 1000])
def test_a_commit_of_unknown_outcome_is_repeated_and_stored_once(
    store: Store, open_journal: Opens, count: int, fresh: bool
) -> None:
    journal = open_journal(1)
    journal.append(encoded(1), fresh=False)
    steps = encoded(*range(2, 2 + count))
    store.lose_answer(journal)
    with pytest.raises(OSError, match=LOST):
        journal.append(steps, fresh=fresh)
    more = [] if fresh else encoded(2 + count)
    last = journal.append([*steps, *more], fresh=fresh)
    assert last == 1 + count + len(more)
    journal.append(encoded(last + 1), fresh=False)
    assert numbers(journal) == list(range(2 if fresh else 1, last + 2))


def test_a_commit_of_unknown_outcome_is_not_repeated_after_another_worker_has_opened(
    store: Store, open_journal: Opens
) -> None:
    journal = open_journal(1)
    store.lose_answer(journal)
    with pytest.raises(OSError, match=LOST):
        journal.append(encoded(1), fresh=False)
    successor = open_journal(2)
    with pytest.raises(Fenced):
        journal.append(encoded(1), fresh=False)
    assert numbers(successor) == [1]


# Epochs ---------------------------------------------------------------------------------------------------------------


def test_an_earlier_epoch_changes_nothing(store: Store, open_journal: Opens) -> None:
    earlier = open_journal(1)
    earlier.append(encoded(1, 2), fresh=False)
    take_snapshot(earlier, 1, b"one")
    earlier.write_snapshot(2, [b"two of the earlier"])
    later = open_journal(2)
    with pytest.raises(Fenced):
        earlier.append(encoded(3), fresh=False)
    with pytest.raises(Fenced):
        earlier.append(encoded(*range(3, 1000)), fresh=False)
    with pytest.raises(Fenced):
        earlier.append(encoded(9), fresh=True)
    with pytest.raises(Fenced):
        earlier.record_snapshot(2)
    with pytest.raises(Fenced):
        earlier.trim()
    with pytest.raises(Fenced):
        store.journals.set_aside(PARTITION, 1)
    with pytest.raises(Fenced):
        open_journal(1)
    with pytest.raises(Fenced):
        earlier.delete()
    assert (numbers(later), snapshot_of(later)) == ([2], b"one")
    later.append(encoded(3), fresh=False)
    take_snapshot(later, 2, b"two")
    assert (numbers(open_journal(3)), snapshot_of(later)) == ([3], b"two")


def test_a_snapshot_that_an_earlier_epoch_writes_later_replaces_none(open_journal: Opens) -> None:
    earlier = open_journal(1)
    earlier.append(encoded(1), fresh=False)
    later = open_journal(2)
    take_snapshot(later, 1, b"right")
    earlier.write_snapshot(1, [b"wrong"])
    assert snapshot_of(later) == b"right"


# Snapshots ------------------------------------------------------------------------------------------------------------


def test_a_snapshot_replaces_the_steps_up_to_it(open_journal: Opens) -> None:
    journal = open_journal(1)
    journal.append(encoded(*range(1, 2001)), fresh=False)
    take_snapshot(journal, 1990, b"the first")
    before = journal.statistics().stored_bytes
    while journal.has_garbage:
        journal.trim()
    assert journal.statistics()[:3] == (1991, 1990, 2000)
    journal.append(encoded(2001), fresh=False)
    take_snapshot(journal, 2000, b"the second" * 100_000)
    journal.compact()
    assert not journal.has_garbage
    found = open_journal(2)
    assert (numbers(found), snapshot_of(found)) == ([2001], b"the second" * 100_000)
    assert found.statistics().stored_bytes > 1_000_000 > before > 0


def test_a_snapshot_that_is_interrupted_or_not_recorded_does_not_count(open_journal: Opens) -> None:
    def interrupted() -> Iterator[bytes]:
        yield b"some of it"
        raise InterruptedError("no more")

    journal = open_journal(1)
    journal.append(encoded(1, 2), fresh=False)
    take_snapshot(journal, 1, b"one")
    with pytest.raises(InterruptedError):
        journal.write_snapshot(2, interrupted())
    assert (numbers(journal), snapshot_of(journal)) == ([2], b"one")
    journal.write_snapshot(2, [b"two"])
    after = open_journal(2)
    assert (numbers(after), snapshot_of(after)) == ([2], b"one")
    take_snapshot(after, 2, b"two")
    assert (numbers(after), snapshot_of(after)) == ([], b"two")


def test_a_snapshot_may_be_recorded_before_its_steps_are_stored(open_journal: Opens) -> None:
    journal = open_journal(1)
    journal.append(encoded(1), fresh=False)
    take_snapshot(journal, 3, b"three")
    assert journal.statistics()[:3] == (4, 3, 3)
    assert journal.append(encoded(2, 3, 4), fresh=False) == 4
    assert numbers(open_journal(2)) == [4]


def test_a_snapshot_from_before_a_fresh_step_is_not_recorded(open_journal: Opens) -> None:
    journal = open_journal(1)
    journal.append(encoded(1, 2), fresh=False)
    journal.write_snapshot(2, [b"two"])
    journal.append(encoded(3), fresh=True)
    assert not journal.record_snapshot(2)
    assert (numbers(journal), snapshot_of(journal)) == ([3], None)


def test_the_partitions_with_a_journal_are_listed_with_their_epochs(store: Store, open_journal: Opens) -> None:
    assert store.journals.epochs() == {}
    open_journal(1).append(encoded(1), fresh=False)
    with closing(store.journals.open(OTHER, 7)) as other:
        open_journal(3)
        assert store.journals.epochs() == {PARTITION: 3, OTHER: 7}
        other.delete()
    assert store.journals.epochs() == {PARTITION: 3}


# Journals that cannot be used -----------------------------------------------------------------------------------------


def test_a_damaged_journal_is_set_aside_and_the_next_one_is_new(store: Store, open_journal: Opens) -> None:
    journal = open_journal(1)
    journal.append(encoded(1, 2), fresh=False)
    store.damage()
    with pytest.raises(JournalDamaged, match="step 1"):
        numbers(open_journal(2))
    for _ in range(2):
        journal.close()
        assert PARTITION in store.journals.set_aside(PARTITION, 2)
        journal = open_journal(2)
        assert (numbers(journal), journal.statistics().last) == ([], 0)
    journal.append(encoded(1), fresh=False)
    assert numbers(open_journal(3)) == [1]


def test_a_journal_of_a_later_format_is_refused_and_left_as_it_is(store: Store, open_journal: Opens) -> None:
    journal = open_journal(1)
    journal.append(encoded(1), fresh=False)
    journal.close()
    store.become_later()
    before = store.content()
    with pytest.raises(OSError, match=r"format \d.* formats up to \d"):
        open_journal(2)
    assert store.content() == before


def test_a_full_disk_is_named_as_the_cause_and_nothing_is_lost(store: Store, open_journal: Opens) -> None:
    journal = open_journal(1)
    journal.append(encoded(1), fresh=False)
    with store.full():
        for _ in range(2):
            with pytest.raises(OSError, match="disk"):
                journal.append(encoded(*range(2, 1000)), fresh=False)
        assert numbers(journal) == [1]
    journal.append(encoded(*range(2, 1000)), fresh=False)
    assert numbers(open_journal(2)) == list(range(1, 1000))


# The end --------------------------------------------------------------------------------------------------------------


def test_a_journal_that_was_deleted_is_gone_with_its_snapshots(store: Store, open_journal: Opens) -> None:
    journal = open_journal(1)
    journal.append(encoded(1, 2), fresh=False)
    take_snapshot(journal, 1, b"one")
    journal.delete()
    assert not store.content() or store.content() == JournalFile()
    after = open_journal(2)
    assert (numbers(after), snapshot_of(after), after.statistics().last) == ([], None, 0)
    after.append(encoded(1), fresh=False)
    assert numbers(open_journal(3)) == [1]
