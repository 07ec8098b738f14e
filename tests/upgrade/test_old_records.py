"""The present release opens the broker's record, the history and the audit log of earlier ones, and nothing is lost."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.deploy.system import FREE_PORTS, up
from tests.upgrade.test_old_states import extracted, named
from yunishard.broker.rm_records import restore_session
from yunishard.broker.sqlite_store import SqliteStore
from yunishard.webservice.audit import AuditFile, AuditLog, Entry
from yunishard.webservice.history.queries import HistoryFilter, read_page
from yunishard.webservice.history.sqlite_store import SqliteHistory

FOLDER = Path(__file__).parent
RECORD_2 = sorted(FOLDER.glob("record-2-*.tar.gz"))

OWN = (
    "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]},"
    " {name: gpu, queues: [{name: root, submitacl: '*'}]}]  # by RM\n"
)
TEXTS = (OWN, f"{OWN}# change 1 über REST\n", f"{OWN}# change 2 über REST\n")
"""The versions of the configuration of `rm-1`."""


@pytest.mark.parametrize("archive", RECORD_2, ids=named)
def test_a_record_is_converted_with_everything_in_it(archive: Path, tmp_path: Path) -> None:
    state = extracted(archive, tmp_path)
    for _ in range(2):  # converted, and then opened
        with closing(SqliteStore(state / "broker.sqlite")) as store:
            one, two = store.read_records()
            assert (one.rm, one.session, one.order) == ("rm-1", "session-of-rm-1", 1)
            assert (two.rm, two.session, two.order) == ("rm-2", "session-of-rm-2", 2)
            assert sorted(one.leases) == ["rm-1_default", "rm-1_gpu"]
            assert list(restore_session(two, "").configs) == ["rm-2_default"]
            history = store.read_histories()["rm-1"]
            versions = [store.read_version("rm-1", entry.number) for entry in history.entries]
            assert [(version.origin, version.config) for version in versions if version is not None] == [
                (origin, text) for origin, text in zip(("registration", "api", "api"), TEXTS, strict=True)
            ]
            assert [entry.size for entry in history.entries] == [len(text.encode()) for text in TEXTS]
            incarnation, problem = store.begin(0)
            assert incarnation > max(epoch >> 20 for epoch in (*one.leases.values(), *two.leases.values()))
            assert problem == ""


@pytest.mark.parametrize("archive", RECORD_2, ids=named)
def test_a_history_is_continued_with_everything_in_it(archive: Path, tmp_path: Path) -> None:
    path = extracted(archive, tmp_path) / "history" / "history.sqlite"
    with closing(SqliteHistory(path).open_writer()) as store:
        assert sorted(store.positions()) == ["rm-1_default", "rm-1_gpu", "rm-2_default"]
        page = read_page(SqliteHistory(path), "allocations", HistoryFilter(), limit=100, after="")
    keys = sorted((row.partition, row.allocation_key) for row in page.rows)
    assert keys == [(f"{rm}_default", f"k{number}") for rm in ("rm-1", "rm-2") for number in range(4)]


@pytest.mark.parametrize("archive", RECORD_2, ids=named)
def test_an_audit_log_is_continued(archive: Path, tmp_path: Path) -> None:
    path = extracted(archive, tmp_path) / "audit.log"
    before = path.read_bytes()
    asyncio.run(AuditLog(AuditFile(path)).write(Entry(id="1", address="127.0.0.1", method="PUT", path="/")))
    assert path.read_bytes().startswith(before)
    assert [json.loads(line)["method"] for line in path.read_text().splitlines()] == ["PUT"] * 5


@pytest.mark.processes
@pytest.mark.parametrize("archive", RECORD_2, ids=named)
def test_a_record_of_a_later_release_is_refused_and_not_changed(archive: Path, tmp_path: Path) -> None:
    state = extracted(archive, tmp_path)
    path = state / "broker.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    with up("--state", str(state), *FREE_PORTS, folder=tmp_path) as system:
        assert system.process.wait() != 0
        assert system.says("it has format 99, this release supports up to 4; move it away")
    assert path.read_bytes() == before
