"""A worker that opens a journal in PostgreSQL reads all that its predecessor has committed, at any isolation level."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Final

import msgspec
import psycopg
import pytest
from psycopg import IsolationLevel

from tests import postgres
from tests.machines import PARTITION
from tests.partition_worker.journal.hand import encoded
from yunishard.common.postgres.connection import Database
from yunishard.partition_worker.journal.postgres_journal import PostgresJournal, PostgresJournals
from yunishard.partition_worker.recovery import JournalDamaged

WAIT_MAX_S: Final = 20.0

LEVELS: Final = ("read committed", "repeatable read", "serializable")

SUCCESSOR_WAITS: Final = (
    f"SELECT FROM pg_stat_activity WHERE application_name = 'worker {PARTITION}#2' AND wait_event_type = 'Lock'"
)


@contextmanager
def opened(store: str, epoch: int) -> Iterator[PostgresJournal]:
    with closing(PostgresJournals(store).open(PARTITION, epoch)) as journal:
        yield journal


def begin(journal: PostgresJournal) -> None:
    """Store a snapshot, so that no page of steps that a successor reads has later steps in it by chance."""
    journal.append(encoded(1, 2), fresh=False)
    journal.write_snapshot(2, [b"state"])
    journal.record_snapshot(2)


def open_and_read(store: str) -> tuple[int, list[int]]:
    with opened(store, 2) as journal:
        steps = [step.number for step in journal.read_steps(3)]
        assert journal.append(encoded(5), fresh=False) == 5
        return journal.statistics().last, steps


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[postgres.Server, postgres.Server]]:
    """A primary, and its synchronous standby."""
    primary = postgres.Server("synchronous_standby_names=*")
    standby = postgres.Server(source=primary)
    yield primary, standby
    primary.remove()
    standby.remove()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scope", ["ROLE", "DATABASE"])
def test_a_successor_reads_a_commit_that_has_waited_for_the_standby(
    pair: tuple[postgres.Server, postgres.Server], scope: str, level: str
) -> None:
    primary, standby = pair
    store = postgres.new_store(primary)
    with psycopg.connect(primary.dsn, autocommit=True) as connection:
        for one in ("ROLE", "DATABASE"):
            connection.execute(f"ALTER {one} postgres RESET ALL")
        connection.execute(f"ALTER {scope} postgres SET default_transaction_isolation = '{level}'")
    with opened(store, 1) as journal, ThreadPoolExecutor() as threads:
        begin(journal)
        with postgres.suspended(standby.processes()):
            append = threads.submit(journal.append, encoded(3, 4), fresh=False)
            postgres.wait_for(primary, "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
            found = threads.submit(open_and_read, store)
            postgres.wait_for(primary, SUCCESSOR_WAITS)
        assert append.result(WAIT_MAX_S) == 4
        assert found.result(WAIT_MAX_S) == (5, [3, 4])


# Sessions whose settings are lost, as with a pooler -------------------------------------------------------------------


@pytest.fixture
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session gets this isolation level, whatever it has set."""
    prepare = Database._prepare

    def prepare_wrongly(database: Database, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        prepare(database, connection)
        connection.isolation_level = IsolationLevel[request.param.upper().replace(" ", "_")]
        connection.execute(f"SET default_transaction_isolation = '{request.param}'")

    monkeypatch.setattr(Database, "_prepare", prepare_wrongly)


@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("level", LEVELS, indirect=True)
def test_a_claim_reads_no_earlier_snapshot_even_if_the_isolation_level_is_wrong() -> None:
    """A trigger holds the append up where it has checked its epoch."""
    store = postgres.new_store()
    with (
        opened(store, 1) as journal,
        psycopg.connect(store, autocommit=True) as other,
        ThreadPoolExecutor() as threads,
    ):
        begin(journal)
        other.execute(
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$"
        )
        other.execute("CREATE TRIGGER hold BEFORE INSERT ON steps FOR EACH ROW EXECUTE FUNCTION hold()")
        other.execute("SELECT pg_advisory_lock(1)")
        append = threads.submit(journal.append, encoded(3, 4), fresh=False)
        postgres.wait_for(postgres.server(), "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        found = threads.submit(open_and_read, store)
        postgres.wait_for(postgres.server(), SUCCESSOR_WAITS)
        other.execute("SELECT pg_advisory_unlock(1)")
        assert append.result(WAIT_MAX_S) == 4
        assert found.result(WAIT_MAX_S) == (5, [3, 4])


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("unread", [[3], [3, 4]], ids=str)
def test_a_worker_that_has_not_read_all_steps_changes_nothing(unread: list[int], *, fresh: bool) -> None:
    """Its own steps have the same numbers; it must not take those in the store for its own."""
    store = postgres.new_store()
    with opened(store, 1) as journal:
        begin(journal)
        journal.append(encoded(*unread), fresh=False)
    with opened(store, 2) as journal:
        before = journal.read_meta()
        journal._row = msgspec.structs.replace(before, last=2)
        with psycopg.connect(store) as connection:
            connection.execute("UPDATE journals SET last = 2")
        with pytest.raises((OSError, JournalDamaged)):
            journal.append(encoded(3, size=9), fresh=fresh)
        with pytest.raises(JournalDamaged, match="steps from 3 on that this worker has not written"):
            journal.append(encoded(3, 4, size=9), fresh=fresh)
    with opened(store, 3) as journal:
        assert journal.read_meta() == before
        assert [step.number for step in journal.read_steps(3)] == unread
