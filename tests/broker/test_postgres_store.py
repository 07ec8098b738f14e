"""The broker's record in PostgreSQL when the connection breaks: the outcome of a write is found out, never guessed.

Not here: what every store does (`test_store.py`).
"""

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests import postgres
from tests.broker.test_store import facts, keep
from tests.machines import RM
from tests.partition_worker.journal.hand import encoded
from tests.postgres import Action
from yunishard.broker import postgres_store
from yunishard.broker.postgres_store import PostgresStore
from yunishard.common.postgres.connection import Database
from yunishard.partition_worker.journal.postgres_journal import PostgresJournals

WAIT_MAX_S = 20.0


@pytest.fixture
def link() -> Iterator[postgres.Link]:
    with closing(postgres.Link(postgres.server())) as found:
        yield found


@pytest.fixture
def uri() -> str:
    return postgres.new_store()


@pytest.fixture
def store(link: postgres.Link, uri: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(link.through(uri))) as opened:
        assert opened.begin(1000) == (1000, "")
        keep(opened, 1, "first")
        yield opened


def test_a_write_whose_answer_was_lost_has_succeeded(link: postgres.Link, store: PostgresStore) -> None:
    link.once(Action.LOSE_ANSWER, b"COMMIT\0")
    keep(store, 2, "second")
    assert store.read_records() == [facts(RM, "second")]
    keep(store, 3, "third")
    assert [one.number for one in store.read_histories()[RM].entries] == [1, 2, 3]


@pytest.mark.usefixtures("impatient")
def test_a_write_whose_answer_does_not_come_has_succeeded(link: postgres.Link, store: PostgresStore) -> None:
    link.once(Action.HANG, b"COMMIT\0")
    keep(store, 2, "second")
    assert store.read_records() == [facts(RM, "second")]


@pytest.mark.parametrize("lost", [b"BEGIN", b"INSERT INTO versions", b"COMMIT\0"])
def test_a_write_that_was_lost_on_the_way_has_failed(link: postgres.Link, store: PostgresStore, lost: bytes) -> None:
    link.once(Action.LOSE, lost)
    with pytest.raises(OSError, match="the store cannot be used"):
        keep(store, 2, "second")
    assert store.read_records() == [facts(RM, "first")]
    keep(store, 2, "another")
    assert store.read_records() == [facts(RM, "another")]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers count as hung sooner."""
    monkeypatch.setattr("yunishard.common.postgres.connection.ANSWER_MAX_S", 0.3)


@pytest.mark.usefixtures("impatient")
def test_a_write_in_a_session_that_hangs_has_failed(store: PostgresStore) -> None:
    before = store.read_records()
    with postgres.suspended(postgres.server().sessions("broker")), pytest.raises(OSError, match=r"for 0\.3 s"):
        keep(store, 2, "second")
    assert store.read_records() == before
    keep(store, 2, "another")
    assert store.read_records() == [facts(RM, "another")]


def test_a_write_waits_until_its_outcome_is_known(
    link: postgres.Link, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "SETTLE_INTERVAL_S", 0.01)
    link.once(Action.LOSE_ANSWER, b"COMMIT\0")
    link.is_open = False
    thread = threading.Thread(target=keep, args=(store, 2, "second"))
    thread.start()
    for _ in range(3):
        assert link.refused.acquire(timeout=WAIT_MAX_S)
    assert thread.is_alive()
    link.is_open = True
    thread.join(WAIT_MAX_S)
    assert not thread.is_alive()
    assert store.read_records() == [facts(RM, "second")]


def test_a_write_of_unknown_outcome_fails_once_another_broker_has_begun(
    link: postgres.Link, store: PostgresStore, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "SETTLE_INTERVAL_S", 0.01)
    link.once(Action.LOSE, b"COMMIT\0")
    link.is_open = False
    errors: list[OSError] = []

    def write() -> None:
        try:
            keep(store, 2, "second")
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    assert link.refused.acquire(timeout=WAIT_MAX_S)
    with closing(PostgresStore(uri)) as another:
        another.begin(2000)
    link.is_open = True
    thread.join(WAIT_MAX_S)
    assert [str(error) for error in errors] == ["broker 2000 has taken the place of this one, 1000"]


def test_the_journal_of_an_ended_partition_is_removed_unless_a_later_worker_has_it(
    store: PostgresStore, uri: str
) -> None:
    journals = PostgresJournals(uri)
    for partition in ("rm-1_a", "rm-1_a2"):
        for epoch in (4, 5):
            with closing(journals.open(partition, epoch)) as journal:
                journal.append(encoded(1, 2), fresh=False)
                journal.write_snapshot(1, [b"content"])
            if epoch == 4:
                journals.set_aside(partition, epoch)
    store.remove_journal("rm-1_a", 4)
    assert journals.epochs() == {"rm-1_a": 5, "rm-1_a2": 5}
    store.remove_journal("rm-1_a", 5)
    store.remove_journal("rm-1_a", 5)
    with closing(Database(uri, "test")) as database, database.autocommit() as connection:
        for table in ("journals", "steps", "snapshots"):
            rows = connection.execute(f"SELECT DISTINCT partition FROM {table} ORDER BY 1").fetchall()
            assert rows == [("rm-1_a2",), ("rm-1_a2 (set aside)",)], table
    with closing(journals.open("rm-1_a", 6)) as journal:
        assert journal.statistics().last == 0
