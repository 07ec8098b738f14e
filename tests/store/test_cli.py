"""`yunishard store`: what operators do with a database, and a system that moves into it and back."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests import postgres
from tests.broker.test_store import facts, version, written
from tests.machines import PARTITION, RM
from tests.partition_worker.journal.hand import encoded, step
from tests.webservice.history.accounts import (
    DEFAULT,
    GPU,
    MINUTE,
    NOW,
    S,
    application,
    began,
    gone,
    portion,
    sample,
    usage,
)
from tests.webservice.history.accounts import OTHER as OTHER_RM
from yunishard.broker.postgres_store import PostgresStore
from yunishard.broker.sqlite_store import SqliteStore
from yunishard.broker.store import RECORD_NAME, Store
from yunishard.cli.main import main
from yunishard.common.messages.control_messages import ManagerRecord
from yunishard.common.messages.query_messages import Failing
from yunishard.common.names import BROKER
from yunishard.common.postgres.connection import FORMAT
from yunishard.common.postgres.leases import HeldLease, acquire_lease, renew_lease
from yunishard.common.settings import Settings, SettingsError, parse_setting
from yunishard.deploy.preflight import prepare
from yunishard.partition_worker.journal.postgres_journal import PostgresJournals
from yunishard.partition_worker.journal.protocol import Journals
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournals
from yunishard.store import history_copy
from yunishard.webservice import audit as audit_files
from yunishard.webservice import postgres_audit
from yunishard.webservice.audit import AUDIT, AuditFile, AuditLines
from yunishard.webservice.history.collector import Gap, ReadPosition
from yunishard.webservice.history.postgres_store import PostgresHistory
from yunishard.webservice.history.queries import LISTS, HistoryFilter, read_minutes, read_page
from yunishard.webservice.history.sqlite_store import SqliteHistory
from yunishard.webservice.history.store import HistoryStore
from yunishard.webservice.postgres_audit import PostgresAudit

OTHER = "rm-1_gpu"


@pytest.fixture
def empty() -> str:
    """A database without tables."""
    return postgres.new_store(initialized=False)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run `yunishard store` with these words; the exit status, and what it has written."""
    status = main(["store", *words])
    shown = capsys.readouterr()
    return status, shown.out + shown.err


# Databases ------------------------------------------------------------------------------------------------------------


def test_a_store_is_created_once_and_checked(capsys: pytest.CaptureFixture[str], empty: str) -> None:
    status, shown = run(capsys, "check", empty)
    assert status == 2
    assert re.search(r"the store has no tables in schema store_\d+ .*: run `yunishard store init`\n$", shown)
    assert run(capsys, "migrate", empty)[0] == 2
    assert run(capsys, "init", empty) == (0, f"the store has format {FORMAT} now\n")
    assert (
        run(capsys, "init", empty) == run(capsys, "migrate", empty) == (0, f"the store has format {FORMAT} already\n")
    )
    status, shown = run(capsys, "check", empty)
    assert status == 0
    assert shown.startswith("PostgreSQL 18.")
    assert shown.endswith(
        f", without a synchronous standby; format {FORMAT}; 0 partition journals and 0 resource managers\n"
    )


def test_a_role_that_can_only_read_rows_finds_that_the_store_was_created(capsys: pytest.CaptureFixture[str]) -> None:
    store = postgres.new_store()
    with psycopg.connect(store, autocommit=True) as connection:
        connection.execute("CREATE ROLE reader LOGIN")
        try:
            connection.execute("DO $$ BEGIN EXECUTE 'GRANT USAGE ON SCHEMA ' || current_schema || ' TO reader'; END $$")
            connection.execute("GRANT SELECT ON store_format TO reader")
            reader = store.replace(f"//{postgres.USER}@", "//reader@")
            assert run(capsys, "init", reader) == (0, f"the store has format {FORMAT} already\n")
        finally:
            connection.execute("DROP OWNED BY reader")
            connection.execute("DROP ROLE reader")


def test_no_system_starts_with_a_store_that_cannot_be_used(tmp_path: Path, empty: str) -> None:
    for store, reason in ((empty, "run `yunishard store init`"), ("postgresql://127.0.0.1:1/x", "refused")):
        settings = Settings(store=store, state=tmp_path, native="off", grpc="off", rest="127.0.0.1:0")
        with pytest.raises(SettingsError, match=f"^--store: .*{reason}"), prepare(settings):
            pass


@pytest.mark.parametrize(
    "text", ["postgresql://u:geheim@h/d", "postgresql://h/d?password=geheim", "postgres://h/d?a=b&sslpassword=geheim"]
)
def test_a_password_is_refused_without_being_repeated(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SettingsError, match="contains a password; put it in a file") as refused:
        parse_setting("store", text, "--store")
    status, shown = run(capsys, "check", text)
    assert status == 2
    assert "geheim" not in shown + str(refused.value)


@pytest.mark.parametrize("text", ["sqlite:x", "db1", "mysql://h/d"])
def test_another_database_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="expected postgresql://USER@HOST"):
        parse_setting("store", text, "--store")


# Copies ---------------------------------------------------------------------------------------------------------------


@contextmanager
def opened(uri: str) -> Iterator[tuple[Store, Journals]]:
    """The record and the journals in a store."""
    if uri.startswith("sqlite:"):
        folder = Path(uri.removeprefix("sqlite:"))
        record: Store = SqliteStore(folder / RECORD_NAME)
        journals: Journals = SqliteJournals(folder / "journals")
    else:
        record, journals = PostgresStore(uri), PostgresJournals(uri)
    with closing(record):
        yield record, journals


def fill(uri: str) -> None:
    with opened(uri) as (record, journals):
        assert record.begin(5000) == (5000, "")
        record.write("rm-2", written(None, version(1, "of an RM that has left")))
        record.write(RM, written(facts(RM, "first"), version(3, "first")))
        record.write(RM, written(facts(RM, "second"), version(4, "second")))
        with closing(journals.open(PARTITION, 7)) as journal:
            journal.append(encoded(*range(1, 1001)), fresh=False)
            journal.write_snapshot(990, [b"a snapshot" * 200_000])
            journal.record_snapshot(990)
        with closing(journals.open(OTHER, 9)) as journal:
            journal.append(encoded(5), fresh=True)
            journal.append(encoded(*range(6, 2000), size=4000), fresh=False)


def verify(uri: str) -> None:
    with opened(uri) as (record, journals):
        assert record.read_records() == [facts(RM, "second")]
        assert list(record.read_histories()) == [RM, "rm-2"]
        assert [record.read_version(RM, number) for number in (3, 4)] == [version(3, "first"), version(4, "second")]
        assert record.begin(0)[0] > 5000, "a later broker has a later number"
        assert journals.epochs() == {OTHER: 9, PARTITION: 7}
        with closing(journals.open(PARTITION, 7)) as journal:
            assert journal.statistics()[:3] == (991, 990, 1000)
            assert b"".join(journal.read_snapshot() or ()) == b"a snapshot" * 200_000
            assert list(journal.read_steps(991)) == [step(number) for number in range(991, 1001)]
        with closing(journals.open(OTHER, 9)) as journal:
            assert journal.statistics()[:3] == (5, 0, 1999)
            assert [one.number for one in journal.read_steps(5)] == list(range(5, 2000))


def test_a_system_moves_into_a_database_and_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before, after = (f"sqlite:{tmp_path / name}" for name in ("before", "after"))
    (tmp_path / "before").mkdir(mode=0o700)
    (tmp_path / "after").mkdir(mode=0o700)
    store = postgres.new_store()
    fill(before)
    copied = (0, "copied 2 partition journals and 1 resource manager, the history and the audit log\n")
    assert run(capsys, "copy", before, store) == copied
    verify(store)
    assert run(capsys, "copy", store, after) == copied
    verify(after)
    verify(before)


@contextmanager
def web_state(uri: str) -> Iterator[tuple[HistoryStore, AuditLines]]:
    """The history and the audit log in a store."""
    if uri.startswith("sqlite:"):
        folder = Path(uri.removeprefix("sqlite:"))
        (folder / "history").mkdir(mode=0o700, exist_ok=True)
        history: HistoryStore = SqliteHistory(folder / "history" / "history.sqlite")
        audit: AuditLines = AuditFile(folder / AUDIT)
    else:
        history, audit = PostgresHistory(uri, "a"), PostgresAudit(uri)
    with closing(history), closing(audit):
        yield history, audit


LINES = [b'{"id":"%d","reason":"Gr\xc3\xbc\xc3\x9fe %%s"}\n' % number for number in range(3_000)]
PLACE = ReadPosition("one", 7, NOW, NOW + 1, NOW + 2, unsure=True)


def fill_web_state(uri: str) -> None:
    """With a partition that was deleted, so that numbers have gaps."""
    with web_state(uri) as (history, audit):
        audit.append(b"".join(LINES[:2_000]))
        for part in range(2_000, 3_000, 500):
            audit.append(b"".join(LINES[part : part + 500]))
        with closing(history.open_writer()) as writer:
            at_ns = NOW - 1000 * MINUTE
            old = replace(portion(began("old", at_ns), partition=GPU), position=ReadPosition(sampled_ns=at_ns))
            writer.write([old, portion(partition=OTHER_RM)])
            writer.delete_partition(NOW)
            events = [began("a"), gone("a"), began("b"), Failing(NOW, "app-9", "why")]
            usages = [("queues", usage("root.a")), ("users", usage("bob")), ("groups", usage("dev"))]
            gap = Gap("events", NOW, NOW + S, None, "lost")
            one = portion(*events, ended=[application()], sample=sample())
            writer.write([replace(one, usage=usages, gaps=[gap], position=PLACE), portion(began("c"), partition=GPU)])
            writer.write([portion(*(began(f"k{number}") for number in range(250)), partition=GPU)])


def show_web_state(uri: str) -> list[object]:
    """All that can be read of them."""
    everything = HistoryFilter()
    with web_state(uri) as (history, audit), closing(history.open_writer()) as writer:
        lists = [read_page(history, name, everything, limit=1_000, after="").rows for name in LISTS]
        writer.write([portion(ended=[application("app-9", NOW + MINUTE, state="Failed")])])
        [reason] = read_page(history, "applications", HistoryFilter(application="app-9"), limit=9, after="").rows
        writer.write([portion(gone("b"))])
        return [
            *(*lists, reason, read_minutes(history, everything, "running")),
            *(writer.positions()[GPU.full_name], writer.latest(), [*audit.read()]),
        ]


def test_the_history_and_the_audit_log_move_along(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_files, "FILE_BYTES_MAX", 40_000)
    monkeypatch.setattr(postgres_audit, "PAGE_LINES", 1_000)
    monkeypatch.setattr(history_copy, "PAGE_ROWS", 100)
    monkeypatch.setattr(history_copy, "CHUNK_LINES", 100)
    before, after = (f"sqlite:{tmp_path / name}" for name in ("before", "after"))
    for name in ("before", "after"):
        (tmp_path / name).mkdir(mode=0o700)
    store = postgres.new_store()
    fill_web_state(before)
    for source, target in ((before, store), (store, after)):
        assert run(capsys, "copy", source, target)[0] == 0
    with web_state(store) as (history, _), closing(history.open_writer()) as writer:
        assert writer.positions()[DEFAULT.full_name] == PLACE
    shown = show_web_state(before)
    assert show_web_state(store) == show_web_state(after) == shown
    assert shown[-1] == LINES
    status, told = run(capsys, "copy", before, store)
    assert (status, told) == (2, f"yunishard store copy: {store}: is not empty; nothing was copied\n")


def test_nothing_is_copied_over_a_history_or_an_audit_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for fill in (lambda audit, _: audit.append(b"line\n"), lambda _, writer: writer.write([portion(began("a"))])):
        store = postgres.new_store()
        with web_state(store) as (history, audit), closing(history.open_writer()) as writer:
            fill(audit, writer)
        assert run(capsys, "copy", f"sqlite:{tmp_path}", store)[1].endswith("is not empty; nothing was copied\n")


def test_nothing_is_copied_over_another_system(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    fill(f"sqlite:{tmp_path}")
    store = postgres.new_store()
    with opened(store) as (record, _):
        record.begin(1)
        record.write(RM, ManagerRecord(number=0, facts=b"", version=version(1, "mine")))
    status, shown = run(capsys, "copy", f"sqlite:{tmp_path}", store)
    assert status == 2
    assert shown.endswith(": is not empty; nothing was copied\n")
    with opened(store) as (record, journals):
        assert (record.read_records(), journals.epochs()) == ([], {})


def test_a_running_system_is_not_copied(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = Settings(state=tmp_path, native="off", grpc="off", rest="127.0.0.1:0")
    with prepare(settings):
        status, shown = run(capsys, "copy", f"sqlite:{tmp_path}", postgres.new_store())
    assert status == 2
    assert "in use by process" in shown
    assert run(capsys, "copy", f"sqlite:{tmp_path / 'missing'}", "postgresql://x")[0] == 2


def test_a_store_with_a_leader_is_not_copied(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    store = postgres.new_store()
    with psycopg.connect(store, autocommit=True) as connection:
        acquire_lease(connection, BROKER, HeldLease("a", 1000, 60.0))
        status, shown = run(capsys, "copy", store, f"sqlite:{tmp_path}")
        assert status == 2
        assert shown.endswith(": host a uses it; stop all of its hosts first\n")
        renew_lease(connection, BROKER, 1000, 0.0)
    assert run(capsys, "copy", store, f"sqlite:{tmp_path}")[0] == 0
