"""A journal in PostgreSQL when servers and connections fail: what was acknowledged is there, and nothing twice.

Not here: what every journal does (`test_conformance.py`).
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from random import Random
from typing import Final

import psycopg
import pytest

from tests import postgres
from tests.machines import PARTITION
from tests.partition_worker.journal.hand import encoded
from tests.postgres import Action
from yunishard.partition_worker.journal.postgres_journal import PAGE_ROWS, PostgresJournals, PostgresReader
from yunishard.partition_worker.journal.protocol import Journal
from yunishard.partition_worker.recovery import JournalDamaged

WAIT_MAX_S = 20.0


def numbers(journal: Journal) -> list[int]:
    return [step.number for step in journal.read_steps(1)]


@contextmanager
def opened(store: str, epoch: int = 1) -> Iterator[Journal]:
    with closing(PostgresJournals(store).open(PARTITION, epoch)) as journal:
        yield journal


@contextmanager
def appending(journal: Journal, *steps: int) -> Iterator[list[OSError]]:
    """Append these steps in a thread, which must end within this block; the errors."""
    errors: list[OSError] = []

    def append() -> None:
        try:
            journal.append(encoded(*steps), fresh=False)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=append)
    thread.start()
    yield errors
    thread.join(WAIT_MAX_S)
    assert not thread.is_alive()


# Connections ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def link() -> Iterator[postgres.Link]:
    with closing(postgres.Link(postgres.server())) as found:
        yield found


def test_a_connection_that_broke_while_nobody_used_it_is_opened_again_unnoticed(link: postgres.Link) -> None:
    with opened(link.through(postgres.new_store())) as journal:
        journal.append(encoded(1), fresh=False)
        link.cut()
        journal.append(encoded(2), fresh=False)
        assert numbers(journal) == [1, 2]


def test_a_step_that_was_lost_on_the_way_is_appended_by_the_next_call(link: postgres.Link) -> None:
    with opened(link.through(postgres.new_store())) as journal:
        journal.append(encoded(1), fresh=False)
        link.once(Action.LOSE)
        with pytest.raises(OSError, match="store cannot be used"):
            journal.append(encoded(2), fresh=False)
        assert journal.append(encoded(2, 3), fresh=False) == 3
        assert numbers(journal) == [1, 2, 3]


def test_a_commit_that_is_carried_out_after_it_was_given_up_is_stored_once(link: postgres.Link) -> None:
    """The link holds the statement back, until the next call has found that it was not carried out."""
    store = postgres.new_store()
    with opened(link.through(store)) as journal:
        journal.append(encoded(1), fresh=False)
        link.once(Action.DELAY)
        with pytest.raises(OSError, match="store cannot be used"):
            journal.append(encoded(2), fresh=False)
        assert journal.append(encoded(2, 3), fresh=False) == 3
        link.send_delayed()
        assert numbers(journal) == [1, 2, 3]


@pytest.mark.parametrize("before", ["the next call", "its statement"])
def test_the_late_one_may_also_come_between(link: postgres.Link, before: str) -> None:
    with opened(link.through(postgres.new_store())) as journal:
        journal.append(encoded(1), fresh=False)
        link.once(Action.DELAY)
        with pytest.raises(OSError, match="store cannot be used"):
            journal.append(encoded(2), fresh=False)
        if before == "the next call":
            link.send_delayed()
        else:
            link.once(Action.SEND_DELAYED, b"INSERT INTO steps")
            with pytest.raises(OSError, match="only now"):
                journal.append(encoded(2, 3), fresh=False)
        assert journal.append(encoded(2, 3), fresh=False) == 3
        assert numbers(journal) == [1, 2, 3]


# Successors -----------------------------------------------------------------------------------------------------------


def open_and_read(store: str, epoch: int) -> list[int]:
    with opened(store, epoch) as journal:
        return numbers(journal)


def test_a_successor_waits_for_a_commit_that_has_begun() -> None:
    """A trigger holds the append up where it has checked its epoch. Otherwise the successor would miss that step."""
    store, opens = postgres.new_store(), f"worker {PARTITION}#2"
    waits = f"SELECT 1 FROM pg_stat_activity WHERE application_name = '{opens}' AND wait_event_type = 'Lock'"
    with opened(store) as journal, psycopg.connect(store, autocommit=True) as other, ThreadPoolExecutor() as threads:
        other.execute(
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$"
        )
        other.execute("CREATE TRIGGER hold BEFORE INSERT ON steps FOR EACH ROW EXECUTE FUNCTION hold()")
        journal.append(encoded(1), fresh=False)
        other.execute("SELECT pg_advisory_lock(1)")
        append = threads.submit(journal.append, encoded(2), fresh=False)
        postgres.wait_for(postgres.server(), "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        found = threads.submit(open_and_read, store, 2)
        while not (found.done() or other.execute(waits).fetchone()):
            pass
        other.execute("SELECT pg_advisory_unlock(1)")
        assert append.result(WAIT_MAX_S) == 2
        assert found.result(WAIT_MAX_S) == [1, 2]


# Reading beside the worker --------------------------------------------------------------------------------------------


@contextmanager
def reading(store: str) -> Iterator[PostgresReader]:
    with closing(PostgresReader(store, PARTITION)) as reader:
        yield reader


def test_a_running_worker_may_delete_what_is_not_needed_while_somebody_reads() -> None:
    store, rows = postgres.new_store(), PAGE_ROWS * 3
    with opened(store) as journal, reading(store) as reader:
        for number in range(1, rows + 1):
            journal.append(encoded(number), fresh=False)
        steps = reader.read_steps(reader.find_first())
        seen = [next(steps).number]
        journal.write_snapshot(rows - 5, [b"snap", b"shot"])
        assert journal.record_snapshot(rows - 5)
        journal.compact()
        journal.append(encoded(rows + 1), fresh=False)
        seen += [step.number for step in steps]
        assert seen == [*range(1, PAGE_ROWS + 1), *range(rows - 4, rows + 2)]
        meta, content = reader.open_snapshot()
        assert (meta.begins, meta.snapshot, meta.last) == (rows - 4, rows - 5, rows + 1)
        assert b"".join(content or ()) == b"snapshot"
        assert reader.find_first() == rows - 4


def test_a_reader_gets_the_snapshot_that_replaces_another_one_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    store = postgres.new_store()
    with opened(store) as journal, reading(store) as reader:
        journal.append(encoded(1, 2, 3), fresh=False)
        journal.write_snapshot(1, [b"first"])
        journal.record_snapshot(1)
        earlier = reader.read_meta()
        journal.write_snapshot(2, [b"second"])
        journal.record_snapshot(2)
        journal.compact()
        rows = iter([earlier, reader.read_meta(), reader.read_meta()])
        monkeypatch.setattr(reader, "read_meta", lambda: next(rows))
        assert [*(reader.open_snapshot()[1] or ())] == [b"second"]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("DELETE FROM steps WHERE last = 2", "step 2 is missing"),
        ("DELETE FROM steps WHERE last = 1", "step 1 is missing"),
        ("UPDATE steps SET content = content || 'x' WHERE last = 2", "step 2 or a later one up to 2 does not match"),
    ],
)
def test_steps_that_are_missing_or_changed_are_damage(statement: str, problem: str) -> None:
    store = postgres.new_store()
    with opened(store) as journal, reading(store) as reader:
        for number in (1, 2, 3):
            journal.append(encoded(number), fresh=False)
        with psycopg.connect(store) as connection:
            connection.execute(statement)
        for one in (reader, journal):
            with pytest.raises(JournalDamaged, match=problem):
                list(one.read_steps(1))


def test_a_worker_notices_that_its_latest_steps_are_missing() -> None:
    store = postgres.new_store()
    with opened(store) as journal:
        journal.append(encoded(1, 2, 3), fresh=False)
        with psycopg.connect(store) as connection:
            connection.execute("DELETE FROM steps")
        with pytest.raises(JournalDamaged, match="its steps from 1 to 3 are missing"):
            list(journal.read_steps(1))


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("DELETE FROM steps WHERE first >= 4", "step 3 and snapshot 2"),
        ("UPDATE journals SET begins = 1, snapshot = 0", "step 4 and snapshot 0"),
    ],
)
def test_nothing_is_appended_to_a_store_that_has_lost_what_it_acknowledged(statement: str, left: str) -> None:
    store = postgres.new_store()
    with opened(store) as journal:
        journal.append(encoded(1, 2, 3), fresh=False)
        journal.write_snapshot(2, [b"state"])
        journal.record_snapshot(2)
        journal.append(encoded(4), fresh=False)
        with psycopg.connect(store) as connection:
            connection.execute(statement)
        with pytest.raises(JournalDamaged, match=f"back at {left}, although it acknowledged step 4 and snapshot 2"):
            journal.append(encoded(5), fresh=False)
        with closing(PostgresReader(store, PARTITION)) as reader:
            assert reader.read_meta().last < 5


def test_a_commit_is_not_slower_while_others_read_for_long() -> None:
    """A snapshot of the database keeps all versions of a row: the row of the journal must not get new ones."""
    store = postgres.new_store()
    with opened(store) as journal, psycopg.connect(store) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM steps")
        with psycopg.connect(store, autocommit=True) as connection:
            places = []
            for number in range(1, 50):
                journal.append(encoded(number), fresh=False)
                places.append(connection.execute("SELECT ctid, epoch FROM journals").fetchall())
        assert places[0] == places[-1]


def test_what_is_carried_out_after_its_steps_were_deleted_is_not_read(link: postgres.Link) -> None:
    store = postgres.new_store()
    with opened(link.through(store)) as journal:
        journal.append(encoded(1), fresh=False)
        link.once(Action.DELAY)
        with pytest.raises(OSError, match="store cannot be used"):
            journal.append(encoded(2, 3), fresh=False)
        journal.append(encoded(2, 3, 4), fresh=False)
        journal.write_snapshot(4, [b"snapshot"])
        journal.record_snapshot(4)
        journal.compact()
        link.send_delayed()
        journal.append(encoded(5), fresh=False)
        with opened(store, 2) as successor:
            assert [step.number for step in successor.read_steps(successor.statistics().begins)] == [5]
            assert successor.statistics().last == 5
            successor.has_garbage = True
            successor.compact()
            assert successor.append(encoded(6), fresh=False) == 6
        with psycopg.connect(store) as connection:
            assert connection.execute("SELECT first FROM steps ORDER BY first").fetchall() == [(5,), (6,)]


def test_a_new_beginning_that_is_carried_out_late_makes_nothing_unneeded(link: postgres.Link) -> None:
    store = postgres.new_store()
    with opened(link.through(store)) as journal:
        journal.append(encoded(1, 2), fresh=False)
        link.once(Action.DELAY)
        with pytest.raises(OSError, match="store cannot be used"):
            journal.append(encoded(3), fresh=True)
        journal.append(encoded(3, 4), fresh=True)
        journal.append(encoded(5), fresh=False)
        journal.write_snapshot(4, [b"snapshot"])
        journal.record_snapshot(4)
        journal.compact()
        link.send_delayed()
        with opened(store, 2) as successor:
            assert successor.statistics()[:3] == (5, 4, 5)
            assert b"".join(successor.read_snapshot() or ()) == b"snapshot"
            assert [step.number for step in successor.read_steps(5)] == [5]


class Model:
    """What a journal must contain, whatever is carried out late."""

    def __init__(self, link: postgres.Link, random: Random) -> None:
        self._link, self._random, self._store = link, random, postgres.new_store()
        self._journals = PostgresJournals(link.through(self._store))
        self._epoch, self._journal = 1, self._journals.open(PARTITION, 1)
        self._begins = self._next = 1
        self._is_late = False
        """Whether the link holds an append back."""

    def append(self) -> None:
        count, fresh = self._random.randint(1, 4), self._random.random() < 0.1
        steps = encoded(*range(self._next, self._next + count))
        if not self._is_late and self._random.random() < 0.4:
            self._link.once(Action.DELAY)
            self._is_late = True
        for more in range(3):
            try:
                self._journal.append(steps, fresh=fresh)
                break
            except OSError:
                if more == 0 and not fresh:
                    steps += encoded(self._next + count)
                    count += 1
        else:
            raise AssertionError("it was never stored")
        self._begins = self._next if fresh else self._begins
        self._next += count

    def deliver(self) -> None:
        if self._is_late:
            self._link.send_delayed()
            self._is_late = False

    def snapshot(self) -> None:
        number = self._random.randint(self._begins, self._next) - 1
        if number >= self._begins:
            self._journal.write_snapshot(number, [str(number).encode()])
            assert self._journal.record_snapshot(number)
            self._begins = number + 1

    def trim(self) -> None:
        self._journal.trim()

    def replace(self) -> None:
        self._journal.close()
        self._epoch += 1
        self._journal = self._journals.open(PARTITION, self._epoch)
        self.check()

    def check(self) -> None:
        found = self._journal.statistics()
        assert found[:3:2] == (self._begins, self._next - 1)
        assert [one.number for one in self._journal.read_steps(found.begins)] == [*range(self._begins, self._next)]
        content = b"".join(self._journal.read_snapshot() or ())
        assert content == (str(found.snapshot).encode() if found.snapshot else b"")

    def close(self) -> None:
        self.deliver()
        self.replace()
        self._journal.close()


@pytest.mark.parametrize("seed", range(10))
def test_nothing_that_is_carried_out_late_changes_what_is_read(link: postgres.Link, seed: int) -> None:
    random = Random(seed)
    with closing(Model(link, random)) as model:
        actions = (model.append, model.append, model.append, model.deliver, model.snapshot, model.trim, model.replace)
        for _ in range(30):
            random.choice(actions)()
            model.check()


# Servers that hang ----------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers count as hung sooner."""
    monkeypatch.setattr("yunishard.common.postgres.connection.ANSWER_MAX_S", 0.3)


WORKER: Final = f"worker {PARTITION}#1"


@pytest.mark.usefixtures("impatient")
def test_a_session_that_hangs_is_given_up_and_what_it_does_later_changes_nothing() -> None:
    with opened(postgres.new_store()) as journal:
        journal.append(encoded(1), fresh=False)
        [hung] = postgres.server().sessions(WORKER)
        with postgres.suspended([hung]):
            with pytest.raises(OSError, match=r"not answered for 0\.3 s"):
                journal.append(encoded(2), fresh=False)
            assert journal.append(encoded(2, 3), fresh=False) == 3
        postgres.wait_for(
            postgres.server(), f"SELECT 1 WHERE NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {hung})"
        )
        assert numbers(journal) == [1, 2, 3]


@pytest.mark.usefixtures("impatient")
def test_reading_and_snapshots_do_not_wait_for_a_hung_session_either(caplog: pytest.LogCaptureFixture) -> None:
    with opened(postgres.new_store()) as journal:
        journal.append(encoded(1, 2), fresh=False)
        for attempt in (
            lambda: numbers(journal),
            lambda: journal.record_snapshot(1),
            journal.trim,
        ):
            with (
                postgres.suspended(postgres.server().sessions(WORKER)),
                pytest.raises(OSError, match=r"not answered for 0\.3 s"),
            ):
                attempt()
            attempt()
    assert not caplog.records


# Servers --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Iterator[tuple[postgres.Server, postgres.Server]]:
    """A primary, and its synchronous standby."""
    primary = postgres.Server("synchronous_standby_names=*")
    standby = postgres.Server(source=primary)
    yield primary, standby
    primary.remove()
    standby.remove()


def both(store: str, pair: tuple[postgres.Server, postgres.Server]) -> str:
    """The connection string with both servers."""
    return store.replace(str(pair[0].folder), f"{pair[0].folder},{pair[1].folder}")


def test_a_journal_goes_on_at_the_standby_that_was_promoted(pair: tuple[postgres.Server, postgres.Server]) -> None:
    primary, standby = pair
    with opened(both(postgres.new_store(primary), pair)) as journal:
        journal.append(encoded(1, 2), fresh=False)
        primary.stop("immediate")
        with pytest.raises(OSError, match="store cannot be used"):
            journal.append(encoded(3), fresh=False)
        standby.promote()
        assert journal.append(encoded(3), fresh=False) == 3
        assert numbers(journal) == [1, 2, 3]


@pytest.mark.usefixtures("impatient")
def test_a_journal_goes_on_at_the_standby_when_the_primary_hangs(
    pair: tuple[postgres.Server, postgres.Server],
) -> None:
    primary, standby = pair
    with opened(both(postgres.new_store(primary), pair) + "&connect_timeout=2") as journal:
        journal.append(encoded(1, 2), fresh=False)
        with postgres.suspended(primary.processes()):
            with pytest.raises(OSError, match="not answered"):
                journal.append(encoded(3), fresh=False)
            standby.promote()
            assert journal.append(encoded(3), fresh=False) == 3
            assert numbers(journal) == [1, 2, 3]


@pytest.mark.usefixtures("impatient")
def test_a_commit_that_waits_for_a_standby_that_hangs_is_given_up_and_counts_later(
    pair: tuple[postgres.Server, postgres.Server],
) -> None:
    primary, standby = pair
    with opened(postgres.new_store(primary)) as journal:
        journal.append(encoded(1), fresh=False)
        with postgres.suspended(standby.processes()):
            with pytest.raises(OSError, match="not answered"):
                journal.append(encoded(2), fresh=False)
            with pytest.raises(OSError, match="not answered"):  # it waits for the row's lock
                journal.append(encoded(2, 3), fresh=False)
        assert journal.append(encoded(2, 3), fresh=False) == 3
        assert numbers(journal) == [1, 2, 3]


SYNC: Final = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
"""The commits that wait for the standby."""


@contextmanager
def in_doubt(pair: tuple[postgres.Server, postgres.Server]) -> Iterator[Journal]:
    """A journal whose step 2 is on the disk of the primary and not on that of the standby; both have ended."""
    primary, standby = pair
    with opened(both(postgres.new_store(primary), pair)) as journal:
        journal.append(encoded(1), fresh=False)
        standby.stop()
        with appending(journal, 2) as errors:
            postgres.wait_for(primary, f"SELECT {SYNC}")
            primary.stop("immediate")
        assert len(errors) == 1
        yield journal


def test_a_commit_that_only_the_lost_primary_had_is_repeated(pair: tuple[postgres.Server, postgres.Server]) -> None:
    _, standby = pair
    with in_doubt(pair) as journal:
        standby.start()
        standby.promote()
        assert journal.append(encoded(2, 3), fresh=False) == 3
        assert numbers(journal) == [1, 2, 3]


def test_a_commit_that_the_primary_still_has_counts_once_the_standby_has_it_too(
    pair: tuple[postgres.Server, postgres.Server],
) -> None:
    primary, standby = pair
    with in_doubt(pair) as journal:
        primary.start()
        with appending(journal, 2) as errors:
            postgres.wait_for(primary, f"SELECT {SYNC}")
            standby.start()
        assert not errors
        primary.stop("immediate")
        standby.promote()
        assert numbers(journal) == [1, 2]


def test_a_commit_for_which_the_server_stopped_waiting_is_not_acknowledged(
    pair: tuple[postgres.Server, postgres.Server],
) -> None:
    primary, standby = pair
    with opened(postgres.new_store(primary)) as journal:
        standby.stop()
        with appending(journal, 1) as errors:
            postgres.wait_for(primary, f"SELECT {SYNC}")
            with psycopg.connect(primary.dsn) as other:
                other.execute(f"SELECT pg_cancel_backend(pid) {SYNC}")
        assert len(errors) == 1
        standby.start()
        assert journal.append(encoded(1), fresh=False) == 1
        assert numbers(journal) == [1]


def test_a_standby_is_not_written_and_named_as_the_cause(pair: tuple[postgres.Server, postgres.Server]) -> None:
    primary, standby = pair
    store = postgres.new_store(primary)
    postgres.wait_for(primary, "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'")
    with pytest.raises(OSError, match=r"read-only|read-write"):
        PostgresJournals(store.replace(str(primary.folder), str(standby.folder))).open(PARTITION, 1)
