"""Settings of roles and databases: each changes nothing, or is refused with the reason when a process connects."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Final, NamedTuple, cast

import psycopg
import pytest

from tests import postgres
from tests.broker.test_store import facts, version, written
from tests.machines import PARTITION, RM
from tests.partition_worker.journal.hand import encoded
from tests.webservice.history.accounts import application, began, gone, portion, sample, usage
from yunishard.broker.candidacy import HostFacts, HostLease, read_heartbeats, write_host
from yunishard.broker.postgres_store import PostgresStore
from yunishard.common.messages.control_messages import PollLease
from yunishard.common.names import BROKER
from yunishard.common.postgres.connection import Database, OutcomeUnknown, convert
from yunishard.common.postgres.leases import HeldLease, acquire_lease, read_lease, renew_lease
from yunishard.common.postgres.sessions import SETTINGS
from yunishard.partition_worker.journal.postgres_journal import PostgresJournals
from yunishard.webservice.history.postgres_store import PostgresHistory
from yunishard.webservice.history.queries import LISTS, HistoryFilter, read_page
from yunishard.webservice.postgres_audit import PostgresAudit

TEXT: Final = "Größe \\ 'NULL' \U0001f4a1"
LEASE_S: Final = 300.25


def use_journals(store: str) -> None:
    journals = PostgresJournals(store)
    with closing(journals.open(PARTITION, 1)) as journal:
        journal.append(encoded(1, 2), fresh=False)
        journal.write_snapshot(2, [TEXT.encode() * 99])
        assert journal.record_snapshot(2)
        journal.append(encoded(3), fresh=False)
        journal.compact()
    with closing(journals.open(PARTITION, 2)) as journal:
        assert [step.number for step in journal.read_steps(3)] == [3]
        assert b"".join(journal.read_snapshot() or ()) == TEXT.encode() * 99
        assert journal.append(encoded(4), fresh=True) == 4
    assert journals.epochs() == {PARTITION: 2}
    assert PARTITION in journals.set_aside(PARTITION, 3)
    assert journals.epochs() == {}


def use_record(store: str) -> None:
    with closing(PostgresStore(store)) as record:
        assert record.begin(5000) == (5000, "")
        record.write(RM, written(facts(RM, TEXT), version(3, TEXT)))
        record.rebase(RM, TEXT)
        assert record.read_records() == [facts(RM, TEXT)]
        found = record.read_version(RM, 3)
        assert found is not None
        assert (found.config, found.base) == (version(3, TEXT).config, TEXT)
        assert list(record.read_histories()) == [RM]


def use_leases(store: str) -> None:
    host = HostFacts("host-ö", "id", "tcp://a:1", 4, 1 << 33)
    with closing(Database(store, "lease")) as database:
        with database.transaction() as connection:
            poll = PollLease(epoch=0, duration_s=LEASE_S)
            assert HostLease(host, None).renew(connection, poll) is None
            assert HostLease(host._replace(id="other"), None).renew(connection, poll) is not None
            write_host(connection, host)
            assert [*read_heartbeats(connection)] == [host.name]
            epoch = acquire_lease(connection, BROKER, HeldLease(host.name, 9000, LEASE_S, TEXT))
        with database.autocommit() as connection:
            assert renew_lease(connection, BROKER, epoch, LEASE_S)
            held = read_lease(connection, BROKER)
    assert held is not None
    assert (held.holder, held.endpoint) == (host.name, TEXT)
    assert LEASE_S - 60 < held.left_s <= LEASE_S


def use_history(store: str) -> None:
    with closing(PostgresHistory(store, "a")) as history:
        with closing(history.open_writer()) as writer:
            rows = [("queues", usage("root.a")), ("users", usage(TEXT))]
            one = portion(began(TEXT), gone(TEXT), began("NULL"), ended=[application(TEXT)], sample=sample())
            writer.write([replace(one, usage=rows)])
            assert writer.used_bytes() > 0
        found = read_page(history, "applications", HistoryFilter(application=TEXT), limit=9, after="").rows
        assert len(found) == 1
        for name in LISTS:
            read_page(history, name, HistoryFilter(), limit=9, after="")


def use_audit(store: str) -> None:
    with closing(PostgresAudit(store)) as audit:
        audit.probe()
        audit.append(f"{TEXT}\n".encode())
        assert [*audit.read()] == [f"{TEXT}\n".encode()]


USES: Final = (use_journals, use_record, use_leases, use_history, use_audit)


HARMLESS: Final = {
    "default_transaction_deferrable": "on",
    "standard_conforming_strings": "off",
    "backslash_quote": "off",
    "DateStyle": "Postgres, DMY",
    "IntervalStyle": "iso_8601",
    "TimeZone": "Pacific/Kiritimati",
    "bytea_output": "escape",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "quote_all_identifiers": "on",
    "session_replication_role": "replica",
    "default_tablespace": "nowhere",
    "temp_tablespaces": "nowhere",
    "default_table_access_method": "nothing",
    "work_mem": "64kB",
    "temp_file_limit": "0",
    "enable_indexscan": "off",
    "plan_cache_mode": "force_generic_plan",
    "debug_parallel_query": "regress",
    "jit_above_cost": "0",
    "gin_fuzzy_search_limit": "1",
}
"""Settings that sessions do not replace, because the statements do not depend on them."""

REPLACED: Final = (
    {"default_transaction_isolation": "repeatable read", "client_encoding": "LATIN1", "synchronous_commit": "off"},
    {"default_transaction_isolation": "serializable", "client_encoding": "SQL_ASCII", "synchronous_commit": "local"},
    {"default_transaction_isolation": "read uncommitted", "client_encoding": "SJIS"},
    {
        "synchronous_commit": "remote_write",
        "search_path": "nowhere, hostile, public",
        "client_min_messages": "error",
        "statement_timeout": "100ms",
        "transaction_timeout": "200ms",
        "lock_timeout": "1ms",
        "idle_in_transaction_session_timeout": "1ms",
        "idle_session_timeout": "1s",
        "tcp_user_timeout": "1ms",
        "tcp_keepalives_idle": "7200",
        "row_security": "on",
        "exit_on_error": "on",
        "extra_float_digits": "-15",
    },
    HARMLESS,
)
"""Settings with which everything works, as other values replace them or nothing depends on them."""

REFUSED: Final = (
    ("default_transaction_read_only", "on", "session is read-only, because of default_transaction_read_only"),
    ("search_path", "pg_catalog", "no tables.*search_path"),
    ("search_path", "", "no tables.*search_path"),
)
"""Settings with which no process starts: the name, the value, and the reason."""

_numbers = count(1)


class Place(NamedTuple):
    """A store in a database of its own, for the role that owns it; both have the same name."""

    name: str
    dsn: str

    def set(self, scope: str, settings: dict[str, str]) -> None:
        """Set these for the role or the database, and only there."""
        with psycopg.connect(postgres.server().dsn, autocommit=True) as connection:
            connection.execute(f"ALTER ROLE {self.name} RESET ALL")
            connection.execute(f"ALTER DATABASE {self.name} RESET ALL")
            for name, value in {"search_path": "hostile", **settings}.items():
                quoted = value if name == "search_path" and value else f"'{value}'"
                connection.execute(f"ALTER {scope} {self.name} SET {name} = {quoted}")


@pytest.fixture
def place() -> Iterator[Place]:
    with closing(create_place("UTF8")) as found:
        yield next(found)


def create_place(encoding: str) -> Iterator[Place]:
    """Create a database and a role, and drop them afterwards."""
    name, server = f"hostile_{next(_numbers)}", postgres.server()
    dsn = server.dsn.replace(f"{postgres.USER}@/postgres", f"{name}@/{name}")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN")
        connection.execute(
            f"CREATE DATABASE {name} OWNER {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        )
        try:
            with psycopg.connect(dsn, autocommit=True) as own:
                own.execute("CREATE SCHEMA hostile")
            place = Place(name, dsn)
            place.set("ROLE", {})
            yield place
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
            connection.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize("scope", ["ROLE", "DATABASE"])
@pytest.mark.parametrize("settings", REPLACED, ids=lambda one: ",".join(one)[:60])
def test_a_setting_of_a_role_or_database_changes_nothing(place: Place, settings: dict[str, str], scope: str) -> None:
    convert(place.dsn, is_new=True)
    place.set(scope, settings)
    for use in USES:
        use(place.dsn)
    with closing(Database(place.dsn, "test")) as database, database.autocommit() as connection:
        for name, value in {**SETTINGS, "synchronous_commit": "on", "client_encoding": "UTF8"}.items():
            if not name.startswith("tcp_"):  # they are 0 without TCP
                assert connection.execute("SELECT current_setting(%s)", (name,)).fetchone() == (value,), name
        with connection.transaction():
            assert connection.execute("SHOW transaction_isolation").fetchone() == ("read committed",)


@pytest.mark.parametrize("scope", ["ROLE", "DATABASE"])
@pytest.mark.parametrize(("setting", "value", "reason"), REFUSED)
def test_a_setting_with_which_the_store_cannot_be_used_is_refused(
    place: Place, setting: str, value: str, reason: str, scope: str
) -> None:
    convert(place.dsn, is_new=True)
    place.set(scope, {setting: value})
    for use in USES:
        with pytest.raises(OSError, match=reason) as refused:
            use(place.dsn)
        assert "\n" not in str(refused.value)


def test_a_stronger_synchronous_commit_stays(place: Place) -> None:
    convert(place.dsn, is_new=True)
    place.set("ROLE", {"synchronous_commit": "remote_apply"})
    with closing(Database(place.dsn, "test")) as database, database.autocommit() as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("remote_apply",)


def test_all_tables_are_those_of_one_schema(place: Place) -> None:
    """A schema before it in the search path has a table of the same name, and one appears there before a migration."""
    convert(place.dsn, is_new=True)
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA other")
        connection.execute("CREATE TABLE other.journals (partition text PRIMARY KEY)")
    place.set("ROLE", {"search_path": "other, hostile"})
    for use in USES:
        use(place.dsn)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_has_an_encoding_that_can_store_all_texts(encoding: str) -> None:
    with closing(create_place(encoding)) as found:
        place = next(found)
        if encoding == "SQL_ASCII":
            convert(place.dsn, is_new=True)
            for use in USES:
                use(place.dsn)
        else:
            with pytest.raises(OSError, match="has the encoding LATIN1: create one with ENCODING 'UTF8'"):
                convert(place.dsn, is_new=True)


def test_rows_that_a_policy_hides_are_an_error(place: Place) -> None:
    convert(place.dsn, is_new=True)
    use_journals(place.dsn)
    with psycopg.connect(place.dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE steps ENABLE ROW LEVEL SECURITY")
        connection.execute("ALTER TABLE steps FORCE ROW LEVEL SECURITY")
    with pytest.raises(OSError, match=r"row-level security policy for table .steps."):
        PostgresJournals(place.dsn).open(PARTITION, 9)


def test_a_commit_that_may_not_have_reached_the_standby_is_noticed_in_any_language() -> None:
    """The name of the server's function is not translated."""
    notice = SimpleNamespace(
        sqlstate="01000", message_primary="Warten abgebrochen", source_function="SyncRepWaitForLSN"
    )
    database = Database(postgres.new_store(), "test")
    with closing(database), pytest.raises(OutcomeUnknown), database.autocommit():
        database._note(cast("psycopg.errors.Diagnostic", notice))
