"""The history in PostgreSQL: the lease of the web service that records it, failures, and texts that it refuses."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests import postgres
from tests.postgres import Action, Link
from tests.webservice.history.accounts import DEFAULT, GPU, MINUTE, NOW, application, began, gone, portion, usage
from tests.webservice.history.backends import TABLES, PostgresBackend
from tests.webservice.history.test_recorder import KEYS, World
from yunishard.common.messages.query_messages import Began, Ended, PartitionList
from yunishard.webservice.history import postgres_store, queries
from yunishard.webservice.history.postgres_store import NAME_BYTES_MAX, PostgresHistory
from yunishard.webservice.history.queries import LISTS, HistoryFilter, ListName
from yunishard.webservice.history.recorder import HistoryRecorder
from yunishard.webservice.history.store import HistoryTaken, delete_expired
from yunishard.webservice.history.writer import HistoryWriter
from yunishard.webservice.postgres_audit import PostgresAudit
from yunishard.webservice.views import RequestError

HELD = "SELECT holder, epoch, expires_at > clock_timestamp() FROM leases WHERE name = 'history'"
TAKE = "UPDATE leases SET epoch = epoch + 1, holder = 'c', expires_at = clock_timestamp() + interval '1 hour'"


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[PostgresBackend]:
    with closing(PostgresBackend(tmp_path)) as one:
        yield one


@pytest.fixture
def writer(backend: PostgresBackend) -> Iterator[HistoryWriter]:
    with closing(backend.history.open_writer()) as one:
        yield one


# The lease ------------------------------------------------------------------------------------------------------------


def test_the_lease_ends_with_its_writer_and_its_epoch_grows(backend: PostgresBackend) -> None:
    with closing(backend.history.open_writer()):
        assert backend.read(HELD) == [("a", 1, True)]
        with pytest.raises(HistoryTaken, match=r"^a records it$"):
            backend.another("b").open_writer()
    assert backend.read(HELD) == [("a", 1, False)]
    with closing(backend.another("b").open_writer()):
        assert backend.read(HELD) == [("b", 2, True)]


def test_a_lease_that_has_ended_is_taken_and_its_earlier_holder_writes_nothing_any_more(
    backend: PostgresBackend,
) -> None:
    with closing(backend.history.open_writer()) as first:
        first.write([portion(began("a"), next_event=1)])
        backend.change("UPDATE leases SET expires_at = 'epoch' WHERE name = 'history'")
        with closing(backend.another("b").open_writer()) as second:
            assert second.positions()[DEFAULT.full_name].next_event == 1
            for change in (lambda: first.write([portion(gone("a"))]), first.renew):
                with pytest.raises(HistoryTaken):
                    change()
            with pytest.raises(HistoryTaken):
                first.delete_rows("allocations", NOW + MINUTE)
            second.write([portion(began("b"))])
    assert backend.read("SELECT key, ended FROM allocations ORDER BY id") == [("a", None), ("b", None)]
    assert backend.read(HELD) == [("b", 2, False)], "the first one has not ended the lease of the second"


@pytest.mark.parametrize("jump", ["1 hour", "-1 hour"])
def test_a_jump_of_the_clock_neither_ends_nor_extends_the_lease(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch, jump: str
) -> None:
    now = [100.0]
    monkeypatch.setattr(postgres_store.time, "monotonic", lambda: now[0])
    other = backend.another("b")
    with closing(backend.history.open_writer()) as first:
        for _ in range(5):
            backend.change(f"UPDATE leases SET expires_at = expires_at - interval '{jump}'")
            with pytest.raises(HistoryTaken):
                other.open_writer()
            first.renew()
            now[0] += postgres_store.RENEWAL_S
        with pytest.raises(HistoryTaken):
            other.open_writer()
        now[0] += postgres_store.LEASE_S
        with closing(other.open_writer()), pytest.raises(HistoryTaken):
            first.renew()


def test_a_write_renews_the_lease_and_so_does_time(backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(backend.history.open_writer()) as writer:
        assert not writer.is_due
        monkeypatch.setattr(postgres_store, "RENEWAL_S", 0.0)
        assert writer.is_due
        for change in (lambda: writer.write([portion()]), writer.renew):
            backend.change("UPDATE leases SET expires_at = clock_timestamp() + interval '1 s' WHERE name = 'history'")
            change()
            remaining = "SELECT expires_at > clock_timestamp() + interval '5 s' FROM leases WHERE name = 'history'"
            assert backend.read(remaining) == [(True,)]


# Recording ------------------------------------------------------------------------------------------------------------


def test_what_workers_report_is_in_the_store(backend: PostgresBackend) -> None:
    recorder = World(backend.history).run(8)
    assert (recorder.problem, recorder.failure) == ("", "")
    assert backend.read(KEYS) == [("a", True), ("b", False)]
    assert backend.read("SELECT name FROM queues") == [("root",)]
    names = [one.name for one in recorder.collect()]
    assert names == ["yunishard_history_lag_seconds"], "the size is that of the recording web service"


def test_a_second_recorder_only_reads_and_takes_over_when_the_first_ends(backend: PostgresBackend) -> None:
    with closing(backend.history.open_writer()) as first:
        first.write([portion(began("a"))])
        world = World(backend.another("b"))
        recorder = world.run(0, lambda one: not one.problem)
        assert (world.link.asked, recorder.failure) == ([], "")
        assert [row.allocation_key for row in read(recorder)] == ["a"]
    assert world.run(8).problem == ""
    assert backend.read(KEYS) == [("a", True), ("b", False)]


def read(recorder: HistoryRecorder) -> list[queries.PastRow]:
    return queries.read_page(recorder.history, "allocations", HistoryFilter(), limit=10, after="").rows


def test_a_recorder_that_has_lost_its_lease_stops_and_reads(
    backend: PostgresBackend, caplog: pytest.LogCaptureFixture
) -> None:
    world, size = World(backend.history), []

    def took(recorder: HistoryRecorder) -> bool:
        if not size and recorder.history.size() is not None:
            size.append(recorder.history.size())
            backend.change(TAKE)
        return bool(size) and recorder.history.size() is None and not recorder.problem

    recorder = world.run(0, took)
    assert (recorder.failure, caplog.messages) == ("", [])
    assert backend.read(HELD)[0][0] == "c"


def test_without_a_broker_the_lease_is_not_renewed(backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_store, "RENEWAL_S", 0.0)
    world = World(backend.history)
    seen: list[object] = []

    async def partitions() -> PartitionList:
        if not seen:
            backend.change("UPDATE leases SET expires_at = clock_timestamp() + interval '1 hour'")
        seen.append(backend.read("SELECT expires_at > clock_timestamp() + interval '30 min' FROM leases"))
        raise RequestError(503, "the broker does not answer")

    monkeypatch.setattr(world.link, "partitions", partitions)
    world.run(0, lambda _: len(seen) == 20)
    assert seen[-1] == [(True,)], "a renewal would have made it shorter"
    assert world.link.asked == []


def test_a_store_that_cannot_be_written_is_a_problem_until_it_can(
    backend: PostgresBackend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world, full = World(backend.history), ExitStack()
    full.enter_context(backend.refusing("allocations"))

    def healed(recorder: HistoryRecorder) -> bool:
        if recorder.failure:
            full.close()
        return "the history is recorded again" in caplog.text

    recorder = world.run(0, healed)
    assert (recorder.problem, recorder.failure) == ("", "")
    [told] = [one for one in caplog.messages if "no history is recorded" in one]
    assert "the disk of the store is full: could not extend file: No space left on device; it is tried again" in told
    assert backend.read(KEYS) == [("a", True), ("b", False)]


def test_without_a_server_the_reason_is_one_line() -> None:
    recorder = World(PostgresHistory("postgresql://127.0.0.1:1/x", "a")).run(0, lambda one: bool(one.failure))
    assert recorder.problem.startswith("the store cannot be used: ")
    assert "\n" not in recorder.problem
    with pytest.raises(queries.RequestError, match=r"^The history cannot be read: the store cannot be used: [^\n]*$"):
        read(recorder)


@pytest.mark.parametrize("action", [Action.LOSE, Action.LOSE_ANSWER])
def test_a_write_whose_outcome_is_unknown_is_neither_lost_nor_repeated(action: Action) -> None:
    link = Link(postgres.server())
    with closing(link), closing(PostgresBackend(Path())) as backend:
        history = PostgresHistory(link.through(backend.place), "a")
        world = World(history)
        seen: list[int] = []

        def cut(recorder: HistoryRecorder) -> bool:
            if recorder.history.size() and not seen:
                seen.append(1)
                link.once(action, b"UPDATE history_partitions")
                world.events.append(gone("b"))
            return bool(seen) and backend.read("SELECT count(*) FROM allocations WHERE ended IS NOT NULL") == [(2,)]

        world.run(2, cut)
        history.close()
        assert backend.read(KEYS) == [("a", True), ("b", True)]
        assert backend.read("SELECT * FROM gaps") == []


def test_a_role_that_may_only_read_and_write_rows_is_enough(backend: PostgresBackend) -> None:
    with psycopg.connect(backend.place, autocommit=True) as connection:
        row = connection.execute("SELECT current_schema()").fetchone()
        assert row is not None
        role = f"rows_{row[0]}"
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {row[0]} TO {role}")
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {row[0]} TO {role}")
    store = backend.place.replace(f"{postgres.USER}@", f"{role}@")
    audit, limited = PostgresAudit(store), PostgresHistory(store, "b")
    with closing(audit), closing(limited), closing(limited.open_writer()) as writer:
        audit.append(b"{}\n")
        audit.probe()
        writer.write([portion(began("a"), gone("a"), ended=[application()])])
        delete_expired(writer, bytes_max=1, age_max_ns=MINUTE, now_ns=NOW + 60 * MINUTE)
        writer.write([portion(began("b"))])
        assert queries.read_minutes(limited, HistoryFilter(), "running") == []
    assert backend.read("SELECT key FROM allocations") == [("b",)]


# Texts and sizes ------------------------------------------------------------------------------------------------------


def test_names_that_postgresql_refuses_are_replaced_and_found(backend: PostgresBackend, writer: HistoryWriter) -> None:
    long, nul = "k" * 5_000, "a\0b"
    writer.write(
        [
            portion(began(long, app=long), began(nul, app=nul, user=nul)),
            portion(gone(long, app=long), gone(nul, app=nul), ended=[application(long), application(nul)]),
        ]
    )
    assert backend.read("SELECT count(*) FROM allocations WHERE ended IS NOT NULL AND began IS NOT NULL") == [(2,)]
    with queries.open_history(backend.history) as tables:
        clean_name = tables.clean_name
    for name, shown in ((long, clean_name(long)), (nul, "a\ufffdb")):
        found = [
            queries.read_page(backend.history, one, HistoryFilter(application=name), limit=9, after="").rows
            for one in ("allocations", "applications")
        ]
        assert [row.application_id for rows in found for row in rows] == [shown, shown]
    assert len(clean_name(long)) <= NAME_BYTES_MAX
    assert clean_name(long) != clean_name(long + "k")
    assert len(clean_name("ü" * 900).encode()) <= NAME_BYTES_MAX
    assert clean_name("ü" * 500) == "ü" * 500


def test_the_size_is_about_that_of_the_tables(backend: PostgresBackend) -> None:
    with closing(backend.history.open_writer()) as writer:
        for part in range(10):
            events: list[Began | Ended] = []
            for number in range(1000):
                key = f"application-{part}-{number}-executor-1"
                events += [began(key, app=f"application-{part}-{number}"), gone(key)]
            ended = [application(f"application-{part}-{number}", NOW + part) for number in range(1000)]
            uses = [("queues", usage(f"root.{number}")) for number in range(1000)]
            writer.write([replace(portion(*events, ended=ended), usage=uses)])
        counted = writer.used_bytes()
    with psycopg.connect(backend.place) as connection:
        sizes = [f"pg_total_relation_size('history_{table}')" for table in TABLES]
        [(size,)] = connection.execute(f"SELECT ({' + '.join(sizes)})::bigint").fetchall()
    assert 0.6 < counted / size < 1.3


def test_the_size_is_the_same_for_the_next_writer_also_after_deletions(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "COUNTED_ROWS", 7)
    with closing(backend.history.open_writer()) as writer:
        writer.write([portion(*(began(f"k{number}", NOW + number) for number in range(20)), ended=[application()])])
        writer.write([portion(gone("k1"), partition=GPU)])
        writer.delete_rows("allocations", NOW + 10)
        size = writer.used_bytes()
    with closing(backend.history.open_writer()) as writer:
        assert writer.used_bytes() == size > 0


def test_a_web_service_that_may_not_record_locks_nothing_and_counts_nothing(backend: PostgresBackend) -> None:
    with closing(backend.history.open_writer()), psycopg.connect(backend.place) as connection:
        connection.execute("SELECT FROM leases FOR UPDATE")
        connection.execute("LOCK TABLE history_allocations")
        with pytest.raises(HistoryTaken):
            backend.another("b").open_writer()


@pytest.mark.parametrize("name", list(LISTS))
def test_every_list_is_read_by_its_index(backend: PostgresBackend, name: ListName) -> None:
    with queries.open_history(backend.history) as reading:
        sql, values = queries.page_query(reading, name, HistoryFilter(since_ns=1), after="")
        for setting in ("enable_seqscan", "enable_sort", "enable_bitmapscan", "enable_hashjoin"):
            reading.execute(f"SELECT set_config('{setting}', 'off', true)")
        steps = "\n".join(str(row[0]) for row in reading.execute(f"EXPLAIN {sql}", (*values, 10)))
    assert f"Index Scan using history_{name}_at" in steps
    assert "Sort" not in steps


def test_every_table_with_a_time_is_one_of_those_that_expire(backend: PostgresBackend) -> None:
    found = backend.read("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    assert {name.removeprefix("history_") for (name,) in found if str(name).startswith("history_")} == {*TABLES}
