"""Rows of the record that no broker has written: the RM that they concern registers again, the others stay."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests import postgres
from tests.broker.test_store import BACKENDS, Backend, PostgresBackend, SqliteBackend, keep
from tests.machines import RM
from yunishard.broker.config_versions import ConfigVersions
from yunishard.broker.routing import BrokerMachine
from yunishard.broker.state import BrokerState
from yunishard.broker.store import INCARNATION_MAX, RecordDamaged
from yunishard.common.messages.kinds import INT64_MAX
from yunishard.common.names import BROKER
from yunishard.common.postgres.leases import EPOCH_MAX, HeldLease, acquire_lease
from yunishard.common.settings import Settings

OTHER: Final = "rm-2"

NO_UTF8: Final = "CAST(X'61FF62' AS TEXT)"


def run(backend: Backend, *statements: str) -> None:
    """Run statements in the database of a record that is not open."""
    if isinstance(backend, SqliteBackend):
        with closing(sqlite3.connect(backend.path, isolation_level=None)) as file:
            for statement in statements:
                file.execute(statement)
        return
    assert isinstance(backend, PostgresBackend)
    with psycopg.connect(backend.store, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """A record of two RMs with two versions each."""
    found = BACKENDS[request.param](tmp_path)
    with closing(found.open()) as store:
        store.begin(1000)
        for rm in (RM, OTHER):
            keep(store, 1, "first", rm=rm)
            keep(store, 2, f"of {rm}", rm=rm)
    return found


def restore(backend: Backend) -> list[str]:
    """The RMs whose sessions a broker restores."""
    with closing(backend.open()) as store:
        incarnation, problem = store.begin(1000)
        state = BrokerState(
            versions=ConfigVersions(store.read_histories()), incarnation=incarnation, settings=Settings()
        )
        broker = BrokerMachine(state, now=1000.0, records=store.read_records(), record_problem=problem)
        return [*broker.registry.sessions]


FACTS: Final = """UPDATE managers SET facts = '{{"rm":"rm-1","session":"s","registered_ns":1,"call":"c",{}}}'"""

EITHER: Final = (
    "UPDATE managers SET facts = ''",
    "UPDATE managers SET facts = '{'",
    "UPDATE managers SET facts = '[1]'",
    "UPDATE managers SET facts = '{\"rm\": 7}'",
    """UPDATE managers SET facts = replace(facts, '"rm-1"', '"rm-2"')""",
    FACTS.format(f'"order":{2**63}'),
    FACTS.format('"order":-1'),
    FACTS.format(f'"rollout":{2**70}'),
    FACTS.format(f'"lives":{{"rm-1_default":{2**63}}}'),
    FACTS.format(f'"lives_begun":{INT64_MAX}'),
    FACTS.format(f'"partition_order":{{"rm-1_default":{10**30}}}'),
    FACTS.format(f'"leases":{{"rm-1_default":{2**64}}}'),
    """UPDATE managers SET facts = replace(facts, '"registered_ns":1', '"registered_ns":-99999999999999999999')""",
    f"UPDATE versions SET number = {INT64_MAX} WHERE number = 2 AND TRUE",
    "UPDATE versions SET number = -5 WHERE number = 1 AND TRUE",
    "UPDATE versions SET number = 0 WHERE number = 1 AND TRUE",
    f"UPDATE versions SET size = {INT64_MAX}",
    "UPDATE versions SET size = -1",
    "DELETE FROM versions",
)
"""Statements about the rows of one RM, for both databases."""

SQLITE: Final = (
    f"UPDATE managers SET facts = {NO_UTF8}",
    "UPDATE managers SET facts = CAST(CAST(facts AS BLOB) || X'FF' AS TEXT)",
    f"UPDATE managers SET rm = {NO_UTF8}",
    f"UPDATE versions SET checksum = {NO_UTF8}",
    f"UPDATE versions SET rm = {NO_UTF8}",
)
"""Bytes that are no UTF-8, which PostgreSQL does not store in texts."""


@pytest.mark.parametrize("statement", [*EITHER, *SQLITE])
def test_an_rm_whose_rows_cannot_be_read_registers_again_and_the_others_stay(
    backend: Backend, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    if statement in SQLITE and not isinstance(backend, SqliteBackend):
        pytest.skip("PostgreSQL refuses such texts")
    run(backend, f"{statement}{' AND' if ' WHERE ' in statement else ' WHERE'} rm = '{RM}'")
    assert restore(backend) == [OTHER]
    assert len([one for one in caplog.records if one.levelno == logging.WARNING]) <= 1
    with closing(backend.open()) as store:
        store.begin(1000)
        keep(store, 1, "anew")
        keep(store, 2, "again")
    assert sorted(restore(backend)) == [RM, OTHER]
    with closing(backend.open()) as store:
        assert [one.number for one in store.read_histories()[RM].entries] == [1, 2]


@pytest.mark.parametrize("column", ["author", "origin", "base"])
def test_bytes_that_are_no_utf8_in_what_is_only_shown_concern_nobody(
    tmp_path: Path, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    backend = SqliteBackend(tmp_path)
    with closing(backend.open()) as store:
        store.begin(1000)
        keep(store, 1, "text")
    run(backend, f"UPDATE versions SET {column} = {NO_UTF8}")
    assert restore(backend) == [RM]
    assert not caplog.records
    with closing(backend.open()) as store:
        assert getattr(store.read_histories()[RM].entries[0], column) == "a\ufffdb"


def test_a_text_that_is_no_utf8_is_lost_and_nothing_else(backend: Backend) -> None:
    digest = "21f8d2e9a34c0e97bd7a0c7a39aa7a3a" * 2
    if isinstance(backend, SqliteBackend):
        run(backend, f"INSERT INTO texts VALUES ('{digest}', X'61FF62')")
    else:
        run(backend, f"INSERT INTO texts VALUES ('{digest}', '\\x61ff62')")
    with pytest.MonkeyPatch.context() as patch, closing(backend.open()) as store:
        patch.setattr("yunishard.broker.store.compute_digest", lambda config: digest)
        run(backend, f"UPDATE versions SET digest = '{digest}' WHERE rm = '{RM}'")
        with pytest.raises(RecordDamaged, match="the text of version 2 of RM rm-1 is not valid UTF-8"):
            store.read_version(RM, 2)
    assert sorted(restore(backend)) == [RM, OTHER]


@pytest.mark.parametrize("number", [INCARNATION_MAX, INT64_MAX])
def test_a_record_whose_last_broker_has_an_impossible_number_is_refused(backend: Backend, number: int) -> None:
    table = "incarnations SET number" if isinstance(backend, SqliteBackend) else "leases SET epoch"
    run(backend, f"UPDATE {table} = {number}")
    with closing(backend.open()) as store, pytest.raises(OSError, match=f"names {number} as the number of its last"):
        store.begin(1000)


@pytest.mark.parametrize("epoch", [EPOCH_MAX, INT64_MAX])
def test_a_lease_with_an_impossible_epoch_is_not_acquired_until_it_is_corrected(epoch: int) -> None:
    wanted = HeldLease("host", 1_800_000_000, 60.0)
    with psycopg.connect(postgres.new_store(), autocommit=True) as connection:
        acquire_lease(connection, BROKER, wanted)
        connection.execute("UPDATE leases SET epoch = %s", (epoch,))
        text = r"an epoch above .*: UPDATE leases SET epoch = 0"
        with pytest.raises(OSError, match=text) as refused, connection.transaction():
            acquire_lease(connection, BROKER, wanted)
        connection.execute(str(refused.value).rpartition(": ")[2].encode())
        assert acquire_lease(connection, BROKER, wanted) == 1_800_000_000
