"""`yunishard store check`: what is missing in a store, with the statement that helps."""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import psycopg
import pytest

from tests import postgres
from yunishard.cli.main import main
from yunishard.common.names import BROKER
from yunishard.common.postgres.connection import Database, convert
from yunishard.common.postgres.leases import HeldLease, acquire_lease
from yunishard.common.postgres.tables import TABLES, describe_tables

ROLE: Final = "checker"


def check(capsys: pytest.CaptureFixture[str], store: str) -> tuple[int, str]:
    """Run `yunishard store check`; the exit status, and what it has written."""
    status = main(["store", "check", store])
    shown = capsys.readouterr()
    return status, shown.out + shown.err


def change(store: str, *statements: str) -> None:
    with psycopg.connect(store, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def schema_of(store: str) -> str:
    return store.rpartition("%3D")[2]


def test_the_list_of_tables_is_that_of_a_new_store() -> None:
    with closing(Database(postgres.new_store(), "test")) as database, database.autocommit() as connection:
        assert describe_tables(connection) == set(TABLES.read_text().splitlines())


@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("DROP TABLE hosts", "table hosts"),
        ("DROP TABLE steps, snapshots, audit", "missing: table audit, table snapshots, table steps; restore a backup"),
        ("ALTER TABLE steps SET UNLOGGED", "table steps"),
        ("ALTER TABLE steps DROP CONSTRAINT steps_pkey", "primary key of steps: partition, first"),
        ("ALTER TABLE leases DROP CONSTRAINT leases_pkey", "primary key of leases: name"),
        ("DROP INDEX history_running", "unique index of history_allocations: partition, key where (ended IS NULL)"),
        ("ALTER TABLE steps DROP COLUMN checksum", "column checksum of steps: bigint not null"),
        ("ALTER TABLE steps ALTER content DROP NOT NULL", "column content of steps: bytea not null"),
        ("ALTER TABLE journals ALTER last TYPE integer", "column last of journals: bigint not null with a default"),
        ("ALTER TABLE audit ALTER id DROP IDENTITY", "column id of audit: bigint not null identity"),
        ("DELETE FROM store_format", "store_format of the store does not have one row"),
        ("INSERT INTO store_format VALUES (2)", "store_format of the store does not have one row"),
        ("UPDATE store_format SET number = -1", "store_format of the store does not have one row"),
    ],
)
def test_a_store_that_lacks_a_part_is_named_with_it(
    capsys: pytest.CaptureFixture[str], statement: str, missing: str
) -> None:
    store = postgres.new_store()
    change(store, statement)
    status, shown = check(capsys, store)
    assert status == 2
    assert missing in shown
    assert shown.endswith("restore a backup\n")
    assert shown.count("\n") == 1


@pytest.fixture
def role() -> Iterator[str]:
    """A store with a role that has all rights which the running system needs; its connection string for the role."""
    store = postgres.new_store()
    schema = schema_of(store)
    change(
        store,
        f"CREATE ROLE {ROLE} LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO {ROLE}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {ROLE}",
    )
    yield store.replace(f"//{postgres.USER}@", f"//{ROLE}@")
    change(store, f"DROP OWNED BY {ROLE}", f"DROP ROLE {ROLE}")


@pytest.mark.parametrize(
    ("revoked", "reason"),
    [
        ("INSERT ON steps", "lacks the right INSERT on steps: GRANT INSERT ON {schema}.steps TO checker"),
        ("UPDATE ON journals", "lacks the right UPDATE on journals: GRANT UPDATE ON {schema}.journals TO checker"),
        (
            "SELECT, DELETE ON leases",
            "lacks the right DELETE on leases, SELECT on leases: GRANT DELETE, SELECT ON {schema}.leases TO checker",
        ),
        ("SELECT ON store_format", "SELECT on store_format: GRANT SELECT ON {schema}.store_format TO checker"),
        (
            "INSERT ON ALL TABLES IN SCHEMA {schema}",
            "INSERT on history_groups and 13 more: GRANT INSERT ON ALL TABLES IN SCHEMA {schema} TO checker",
        ),
        (
            "USAGE ON SCHEMA {schema}",
            "lacks the right USAGE on schema {schema}: GRANT USAGE ON SCHEMA {schema} TO checker",
        ),
    ],
)
def test_a_right_that_a_role_lacks_is_named_with_the_statement_that_grants_it(
    capsys: pytest.CaptureFixture[str], role: str, revoked: str, reason: str
) -> None:
    owner, schema = role.replace(f"//{ROLE}@", f"//{postgres.USER}@"), schema_of(role)
    assert check(capsys, role)[0] == 0
    change(owner, f"REVOKE {revoked.format(schema=schema)} FROM {ROLE}")
    status, shown = check(capsys, role)
    assert (status, shown.count("\n")) == (2, 1)
    assert shown.startswith(f"yunishard store check: role {ROLE} lacks the right ")
    assert reason.format(schema=schema) in shown
    change(owner, shown.strip().rpartition(": ")[2])
    assert check(capsys, role)[0] == 0


def test_a_role_that_may_not_create_tables_is_named(role: str) -> None:
    owner, schema = role.replace(f"//{ROLE}@", f"//{postgres.USER}@"), schema_of(role)
    change(owner, f"DROP SCHEMA {schema} CASCADE", f"CREATE SCHEMA {schema}")
    change(owner, f"GRANT USAGE ON SCHEMA {schema} TO {ROLE}")
    grant = f"GRANT CREATE ON SCHEMA {schema} TO {ROLE}"
    with pytest.raises(OSError, match=f"^role {ROLE} lacks the right CREATE on schema {schema}: {grant}$"):
        convert(role, is_new=True)
    change(owner, grant)
    assert convert(role, is_new=True) == 0


def test_a_store_is_checked_while_a_system_uses_it(capsys: pytest.CaptureFixture[str]) -> None:
    store = postgres.new_store()
    with psycopg.connect(store, autocommit=True) as connection:
        acquire_lease(connection, BROKER, HeldLease("host-7", 1000, 60.0))
    status, shown = check(capsys, store)
    assert status == 0
    assert shown.endswith("0 partition journals and 0 resource managers; host host-7 uses it\n")


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("INSERT INTO managers VALUES ('rm-1', '{')", "1 record of RMs and versions cannot be read"),
        (
            "INSERT INTO versions VALUES ('rm-1', -1, '', 0, '', '', '', 0, '')",
            "1 record of RMs and versions cannot be read",
        ),
        (
            "INSERT INTO journals (partition, epoch, begins) VALUES ('rm-1_default', 1, 7)",
            "the journal of rm-1_default is put aside by its next worker: its row in the table journals is not valid",
        ),
    ],
)
def test_rows_that_cannot_be_read_are_named(capsys: pytest.CaptureFixture[str], statement: str, problem: str) -> None:
    store = postgres.new_store()
    change(store, statement)
    status, shown = check(capsys, store)
    assert status == 1
    assert problem in shown
