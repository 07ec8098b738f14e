"""What is left of a partition that has ended goes, and nothing of any other."""

from pathlib import Path

import pytest

from deploy.service import remove_journal

OURS = (
    "rm_a.sqlite",
    "rm_a.sqlite-wal",
    "rm_a.sqlite-shm",
    "rm_a.snapshot-12",
    "rm_a.snapshot-9.tmp-77",
    "rm_a.attempts",
    "rm_a.poison-0a1b",
)
OTHERS = ("rm_a.b.sqlite", "rm_ab.sqlite", "rm_a.b.snapshot-1", "rm_a.snapshot-1.sqlite", "rm.sqlite", "rm_a.txt")


def test_only_its_own_files_go(tmp_path: Path) -> None:
    for name in (*OURS, *OTHERS):
        (tmp_path / name).write_text("x")
    (tmp_path / "rm_a.damaged").mkdir()
    (tmp_path / "rm_a.damaged" / "rm_a.sqlite").write_text("x")
    remove_journal(tmp_path, "rm_a")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(OTHERS)


def test_what_cannot_be_removed_is_complained_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "rm_a.damaged").symlink_to(tmp_path)
    (tmp_path / "rm_a.sqlite").write_text("x")
    remove_journal(tmp_path, "rm_a")
    assert "rm_a.damaged: cannot be removed" in caplog.text
    assert not (tmp_path / "rm_a.sqlite").exists()


def test_a_folder_that_cannot_be_read_is_complained_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    remove_journal(tmp_path / "journals", "rm_a")
    assert "the journal of rm_a in " in caplog.text
    assert "cannot be removed: No such file or directory" in caplog.text
