"""This build reads each file of the state directories that releases have left, and nothing is lost."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, up
from tests.recorded import content
from tests.upgrade.content import CHANGED, CONFIGURATIONS, PARTITIONS, RM_1, RM_2
from tests.upgrade.write import ARCHIVES, EXPORTED, NOTE, extract, name_archive
from yunishard.broker.rm_records import restore_session
from yunishard.broker.sqlite_store import SqliteStore
from yunishard.journal_tools.sources import find_journal
from yunishard.journal_tools.views import read_all
from yunishard.partition_worker.journal.database import JournalReader
from yunishard.partition_worker.journal.files import Files
from yunishard.webservice.audit import AuditFile, AuditLog, Entry
from yunishard.webservice.history.queries import HistoryFilter, read_page
from yunishard.webservice.history.sqlite_store import SqliteHistory

VERSIONS = {
    "rm-1": [("registration", RM_1), ("api", CHANGED)],
    "rm-2": [("registration", CONFIGURATIONS["rm-2"]), ("update", RM_2)],
}
"""Origins and texts of the configurations of each RM."""


@pytest.fixture(params=ARCHIVES, ids=name_archive)
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    archive: Path = request.param
    return extract(archive, tmp_path)


def test_the_record_has_sessions_leases_and_versions(state: Path) -> None:
    with closing(SqliteStore(state / "broker.sqlite")) as store:
        records = {record.rm: record for record in store.read_records()}
        assert {rm: sorted(record.leases) for rm, record in records.items()} == {
            rm: list(partitions) for rm, partitions in PARTITIONS.items()
        }
        for rm, record in records.items():
            assert sorted(restore_session(record, "").configs) == list(PARTITIONS[rm])
            history = store.read_histories()[rm]
            versions = [store.read_version(rm, entry.number) for entry in history.entries]
            assert [(version.origin, version.config) for version in versions if version is not None] == VERSIONS[rm]
        incarnation, problem = store.begin(0)
        assert incarnation > max(epoch >> 20 for record in records.values() for epoch in record.leases.values())
        assert problem == ""


def test_each_journal_has_all_steps(state: Path) -> None:
    positions = json.loads((state / NOTE).read_text())["positions"]
    for rm, partitions in PARTITIONS.items():
        for partition in partitions:
            with closing(JournalReader(Files(state / "journals", partition))) as journal:
                meta, snapshot = journal.open_snapshot()
                assert snapshot is None or sum(map(len, snapshot)) > 0
                steps = list(journal.read_steps(meta.begins))
            assert [step.number for step in steps] == list(range(meta.begins, meta.last + 1))
            sent = max((step.received for step in steps), default=0)
            assert snapshot is not None or sent == positions[rm][0][partition]


def test_an_exported_journal_has_what_the_journal_has(state: Path) -> None:
    journal, exported = (
        read_all(find_journal(str(path), state=None, store=None)).recovery
        for path in (state / "journals" / "rm-1_default.sqlite", state / EXPORTED)
    )
    assert content(exported.image) == content(journal.image)
    assert list(exported.outbox.unacknowledged()) == list(journal.outbox.unacknowledged())


def test_the_history_has_all_allocations(state: Path) -> None:
    path = state / "history" / "history.sqlite"
    with closing(SqliteHistory(path).open_writer()) as store:
        assert sorted(store.positions()) == sorted(name for names in PARTITIONS.values() for name in names)
        page = read_page(SqliteHistory(path), "allocations", HistoryFilter(), limit=1000, after="")
    keys = sorted(row.allocation_key for row in page.rows)
    assert keys == json.loads((state / NOTE).read_text())["history"]


def test_the_audit_log_is_continued(state: Path) -> None:
    path = state / "audit.log"
    before = path.read_bytes()
    asyncio.run(AuditLog(AuditFile(path)).write(Entry(id="1", address="127.0.0.1", method="PUT", path="/")))
    assert path.read_bytes().startswith(before)
    assert [json.loads(line)["method"] for line in path.read_text().splitlines()] == ["POST"] * 2 + ["PUT"]


@pytest.mark.processes
def test_a_record_of_a_later_release_is_refused_and_not_changed(state: Path, tmp_path: Path) -> None:
    path = state / "broker.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    with up("--state", str(state), *FREE_PORTS, folder=tmp_path) as system:
        assert system.process.wait() != 0
        assert system.says("it has format 99, this release supports up to 1; move it away")
    assert path.read_bytes() == before
