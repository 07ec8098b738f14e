"""A whole system with a store in PostgreSQL: by way of TLS, and with the roles in docs/operating/postgresql.md."""

import asyncio
import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests import postgres
from tests.deploy.certificates import self_signed
from tests.deploy.system import FREE_PORTS, Up, up
from tests.processes.placing import ASKS, QUEUES, allocations, placing
from tests.store.tls import TlsFront
from yunishard.cli.main import main
from yunishard.common.postgres.connection import convert

pytestmark = pytest.mark.processes

PATIENCE_S: Final = 60.0
PAGE: Final = (Path(__file__).parents[2] / "docs" / "operating" / "postgresql.md").read_text()


def documented_roles() -> list[str]:
    """The statements of the page: those for the server, and those for the new database."""
    section = PAGE.partition("\n## Roles\n")[2].partition("\n## ")[0]
    return re.findall(r"```sql\n(.*?)```", section, re.DOTALL)


def run_statements(dsn: str, text: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in text.split(";")[:-1]:
            connection.execute(statement)


@pytest.fixture
def place() -> Iterator[postgres.Server]:
    found = postgres.Server()
    yield found
    found.remove()


@pytest.fixture
def owner(place: postgres.Server) -> str:
    """The connection string of a store, for the role that owns its tables."""
    for_server, for_database = documented_roles()
    run_statements(place.dsn, for_server)
    database = place.dsn.replace("/postgres?", "/yunishard?")
    run_statements(database, for_database)
    found = database.replace(f"{postgres.USER}@", "yunishard_owner@")
    convert(found, is_new=True)
    return found


def count(dsn: str, table: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return row[0]


def change_configuration(rest: str) -> None:
    request = urllib.request.Request(f"{rest}/ws/v1/config", QUEUES.replace("batch", "other").encode(), method="PUT")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert answer.status == 200


def test_a_session_of_the_database_that_hangs_ends_no_process(place: postgres.Server, tmp_path: Path) -> None:
    store = postgres.new_store(place)

    async def play() -> None:
        async with asyncio.timeout(PATIENCE_S), placing(announced["native"]) as asker:
            await asker.asks()
            await asker.has(ASKS)
            processes = system.children
            with psycopg.connect(place.dsn) as connection:
                query = "SELECT pid FROM pg_stat_activity WHERE application_name ~ '^(worker|broker|lease)'"
                sessions = [pid for (pid,) in connection.execute(query)]
            assert len(sessions) == 3
            with postgres.suspended(sessions):
                await asker.asks()
                await asker.has(2 * ASKS)
            assert set(asker.placed.values()) == {1}
            assert system.children == processes, system.errors

    with up("--store", store, "--state", str(tmp_path / "state"), *FREE_PORTS, folder=tmp_path) as system:
        announced = system.announced()
        asyncio.run(play())


def test_the_documented_roles_run_a_system_by_way_of_tls(
    place: postgres.Server, owner: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = self_signed(tmp_path)
    role = owner.replace("yunishard_owner@", "yunishard@")
    with closing(TlsFront(place, certificate, key)) as front:
        store = front.through(role) + f"&sslmode=verify-full&sslrootcert={certificate}"
        with up("--store", store, "--state", str(tmp_path / "state"), *FREE_PORTS, folder=tmp_path) as system:
            announced = system.announced()
            asyncio.run(play(system, announced["native"], announced["rest"], owner))
            assert main(["journal", "show", "rm-1_default", "--store", store]) == 2
            assert "there are: none" in capsys.readouterr().err
            assert system.stop() == 0
            assert "permission denied" not in system.errors
    assert "permission denied" not in (place.folder / "log").read_text()
    for statement in ("CREATE TABLE t ()", "DROP TABLE steps", "ALTER TABLE steps ADD t text", "TRUNCATE steps"):
        with psycopg.connect(role) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)


async def play(system: Up, native: str, rest: str, store: str) -> None:
    """Use everything that is in the store; in the end, a killed worker leaves its journal behind."""
    async with asyncio.timeout(PATIENCE_S):
        async with placing(native) as asker:
            await asker.asks()
            await asker.has(ASKS)
            os.kill(system.child(" partition_worker rm-1_default"), signal.SIGKILL)
            await asker.asks()
            await asker.has(2 * ASKS)
            assert set(asker.placed.values()) == {1}
            assert await asyncio.to_thread(allocations, rest) == 2 * ASKS
            await asyncio.to_thread(change_configuration, rest)
            assert count(store, "audit") > 0
            assert count(store, "journals") == 1
            await asyncio.to_thread(system.until, lambda: count(store, "history_partitions") > 0)
            worker = system.child(" partition_worker rm-1_default")
            os.kill(worker, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        await asyncio.to_thread(system.until, lambda: count(store, "journals") == count(store, "steps") == 0)
