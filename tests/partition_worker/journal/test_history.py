"""The setting `journal-history`: earlier steps and snapshots are kept for replays, and bounded."""

import os
from pathlib import Path

import pytest

from tests.builders import apps, asks, config, nodes, released
from tests.machines import PARTITION
from tests.partition_worker.journal.hand import OPEN, files_in
from tests.partition_worker.journal.session import START_S, Session
from yunishard.cli.main import main
from yunishard.partition_worker.journal.database import HistoryReader, JournalReader
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournal, SqliteJournals
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.recovery import encode_snapshot, recover

PLENTY = 1 << 30


class Kept:
    """A session whose journal takes a snapshot from time to time."""

    def __init__(self, folder: Path, history_bytes: int = PLENTY) -> None:
        self.folder, self.history_bytes = folder, history_bytes
        folder.mkdir(exist_ok=True)
        self.session = Session(config("root.a"))
        self.session.tell(0, nodes("n1 memory=100"), apps("app root.a"))
        self.written = 0
        self.snapshots: list[int] = []
        self.journal = self.open(1)

    def open(self, epoch: int) -> SqliteJournal:
        OPEN.append(journal := SqliteJournal(files_in(self.folder), epoch, self.history_bytes))
        return journal

    def goes_on(self, seconds: int, *, fresh: bool = False) -> None:
        """An ask runs for some seconds, and a snapshot follows."""
        at = int(self.session.partition.now - START_S) + 1
        self.session.tell(at, asks(f"app k{at} memory=1")).tell(at + seconds, released(f"app k{at}"))
        self.write(fresh=fresh)
        number = len(self.session.steps)
        self.journal.write_snapshot(number, encode_snapshot(self.session.host, number))
        assert self.journal.record_snapshot(number)
        self.snapshots.append(number)
        self.trim()

    def write(self, *, fresh: bool = False) -> None:
        self.journal.append(self.session.steps[self.written :], fresh=fresh)
        self.written = len(self.session.steps)

    def trim(self) -> None:
        while self.journal.has_garbage:
            self.journal.trim()

    def extents(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where the journal begins, and its snapshot; the same of the history."""
        found = []
        for kind in (JournalReader, HistoryReader):
            OPEN.append(reader := kind(files_in(self.folder)))
            meta = reader.read_meta()
            found.append((meta.begins, meta.snapshot))
        return found[0], found[1]


def filled(folder: Path, history_bytes: int = PLENTY) -> Kept:
    one = Kept(folder, history_bytes)
    for _ in range(5):
        one.goes_on(3)
    return one


def test_without_the_setting_a_journal_begins_with_its_latest_snapshot(tmp_path: Path) -> None:
    one = filled(tmp_path, 0)
    latest = one.snapshots[-1]
    assert one.extents() == ((latest + 1, latest), (latest + 1, latest))
    assert [number for number, _ in files_in(tmp_path).snapshots()] == [latest]


def test_with_it_the_history_begins_with_the_first_snapshot(tmp_path: Path) -> None:
    one = filled(tmp_path)
    first, latest = one.snapshots[0], one.snapshots[-1]
    assert one.extents() == ((latest + 1, latest), (first + 1, first))


def test_the_oldest_part_is_deleted_if_it_is_too_large(tmp_path: Path) -> None:
    whole = filled(tmp_path / "whole")
    size = sum(whole.journal._segment_bytes.values())
    one = filled(tmp_path / "part", size // 2)
    history = one.extents()[1]
    assert history[1] in one.snapshots[1:-1]
    assert sum(one.journal._segment_bytes.values()) <= size // 2
    assert [number for number, _ in files_in(one.folder).snapshots()] == [
        number for number in one.snapshots if number >= history[1]
    ]
    assert one.journal.find_first() == history[0]


def test_a_worker_recovers_from_the_latest_snapshot(tmp_path: Path) -> None:
    one = filled(tmp_path)
    one.session.tell(25, asks("app last memory=1"))
    one.write()
    one.journal.close()
    journal = one.open(2)
    meta, snapshot = journal.open_snapshot()
    assert meta.snapshot == one.snapshots[-1]
    host = PartitionHost(partition=PARTITION, epoch=2)
    recovered = recover(host, snapshot, journal.read_steps(meta.begins))
    assert recovered.last == len(one.session.steps)
    assert host.partition is not None
    assert "last" in host.partition.allocations


def test_a_worker_that_starts_again_keeps_the_history(tmp_path: Path) -> None:
    one = filled(tmp_path)
    before = one.extents()[1]
    one.journal.close()
    one.journal = one.open(2)
    one.trim()
    one.goes_on(3)
    assert one.extents()[1] == before
    one.journal.close()
    one.history_bytes = 0
    one.journal = one.open(3)
    one.trim()
    latest = one.snapshots[-1]
    assert one.extents() == ((latest + 1, latest), (latest + 1, latest))


def test_the_history_gives_way_if_the_journal_is_full(tmp_path: Path) -> None:
    one = filled(tmp_path)
    one.journal.compact()
    latest = one.snapshots[-1]
    assert one.extents()[1] == (latest + 1, latest)
    one.goes_on(3)
    assert one.extents()[1] == (latest + 1, latest), "what comes later is kept again"


def test_no_history_begins_before_the_partition_started_again(tmp_path: Path) -> None:
    one = filled(tmp_path)
    begins = len(one.session.steps) + 1
    one.session.configure(config("root.b"), 50, live=False)
    one.journal.append(one.session.steps[one.written :], fresh=True)  # the worker ends before it trims
    one.written = len(one.session.steps)
    assert one.extents()[1] == (begins, 0)
    number = len(one.session.steps)
    one.journal.write_snapshot(number, encode_snapshot(one.session.host, number))
    assert one.journal.record_snapshot(number)
    assert one.extents()[1] == (number + 1, number)
    one.trim()
    assert [found for found, _ in files_in(tmp_path).snapshots()] == [number]


def test_a_snapshot_that_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    one = filled(tmp_path)
    left = files_in(tmp_path).unfinished_snapshot(one.snapshots[1], os.getpid() + 1)
    left.write_bytes(b"x")
    one.goes_on(3)
    assert not left.exists()


def test_a_replay_goes_back_before_the_latest_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = filled(tmp_path)
    journal = str(files_in(tmp_path).database)
    assert main(["journal", "replay", journal, "--step", str(one.snapshots[1] + 2), "--check"]) == 0
    assert f"after step {one.snapshots[1] + 2}, " in capsys.readouterr().out
    assert main(["journal", "story", journal, "k9"]) == 0
    assert "Released: the RM released it. It ran for 3 s." in capsys.readouterr().out
    target = tmp_path / "whole.jsonl"
    assert main(["journal", "export", journal, "--complete", "--output", str(target)]) == 0
    assert main(["journal", "steps", str(target), "--from", str(one.snapshots[0])]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(one.session.steps) - one.snapshots[0] + 2
    assert main(["journal", "show", journal]) == 0


def test_all_journals_of_a_directory_have_the_setting(tmp_path: Path) -> None:
    OPEN.append(journal := SqliteJournals(tmp_path, 7).open(PARTITION, 1))
    assert journal._history_bytes == 7
