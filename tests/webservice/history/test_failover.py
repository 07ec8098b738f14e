"""History and audit log of several hosts, while the primary crashes and its synchronous standby is promoted."""

import asyncio
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from tests import postgres
from tests.webservice.history.accounts import began, gone
from tests.webservice.history.test_recorder import World
from yunishard.webservice.audit import AuditLog, Entry
from yunishard.webservice.history.postgres_store import PostgresHistory
from yunishard.webservice.history.recorder import HistoryRecorder
from yunishard.webservice.postgres_audit import PostgresAudit


@pytest.fixture
def pair() -> Iterator[tuple[postgres.Server, postgres.Server]]:
    """A primary, and its synchronous standby."""
    primary = postgres.Server("synchronous_standby_names=*")
    standby = postgres.Server(source=primary)
    postgres.wait_for(primary, "SELECT FROM pg_stat_replication WHERE sync_state = 'sync'")
    yield primary, standby
    primary.remove()
    standby.remove()


def entry(number: int) -> Entry:
    return Entry(id=str(number), address="::1", method="PUT", path="/")


def test_recording_and_audit_continue_at_the_promoted_standby_with_everything(
    pair: tuple[postgres.Server, postgres.Server],
) -> None:
    primary, standby = pair
    store = postgres.new_store(primary)
    both = store.replace(str(primary.folder), f"{primary.folder},{standby.folder}")
    left = store.replace(str(primary.folder), str(standby.folder))
    log = AuditLog(PostgresAudit(both))
    asyncio.run(log.write(entry(1)))
    world = World(PostgresHistory(both, "a"))
    steps: list[str] = []

    def fails_over(recorder: HistoryRecorder) -> bool:
        if not steps and recorder.history.size():
            primary.stop("immediate")
            steps.append("crashed")
            world.events += [gone("b"), began("c")]
        elif steps == ["crashed"] and recorder.failure:
            standby.promote()
            with psycopg.connect(left, autocommit=True) as connection:  # it has no standby
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
                connection.execute("SELECT pg_reload_conf()")
            steps.append("promoted")
        return steps == ["crashed", "promoted"] and not recorder.failure and not recorder.problem and has_all()

    def has_all() -> bool:
        return read("SELECT key, ended IS NOT NULL FROM history_allocations ORDER BY id") == [
            ("a", True),
            ("b", True),
            ("c", False),
        ]

    def read(query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(left) as connection:
            return connection.execute(query).fetchall()

    with closing(world.history):
        assert world.run(8, fails_over).problem == ""
    assert read("SELECT * FROM history_gaps") == []
    asyncio.run(log.write(entry(2)))
    log.close()
    assert read("SELECT line::json ->> 'id' FROM audit ORDER BY id") == [("1",), ("2",)]
