"""A snapshot is there whole or not at all."""

import resource
from pathlib import Path

import pytest

from partition_worker.journal import snapshots
from partition_worker.journal.files import JournalDamaged

CONTENT = b"everything that a partition knows" * 10


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.snapshot-7"
    for content in (CONTENT, b""):
        snapshots.write(path, 7, content)
        assert snapshots.read(path, 7) == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_no_byte_of_it_may_be_another(tmp_path: Path) -> None:
    path = tmp_path / "a.snapshot-7"
    snapshots.write(path, 7, CONTENT)
    good = path.read_bytes()
    for place in range(0, len(good), 3):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(JournalDamaged):
            snapshots.read(path, 7)
    for length in range(0, len(good), 7):
        path.write_bytes(good[:length])
        with pytest.raises(JournalDamaged):
            snapshots.read(path, 7)


def test_one_that_is_missing_or_of_another_step_is_damage(tmp_path: Path) -> None:
    with pytest.raises(JournalDamaged, match=r"a\.snapshot-7 is missing"):
        snapshots.read(tmp_path / "a.snapshot-7", 7)
    snapshots.write(tmp_path / "a.snapshot-7", 6, CONTENT)
    with pytest.raises(JournalDamaged, match="not as it was written"):
        snapshots.read(tmp_path / "a.snapshot-7", 7)


def test_a_full_disk_leaves_nothing_and_not_even_half_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.snapshot-7"
    snapshots.write(path, 7, b"small")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            snapshots.write(path, 7, CONTENT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert snapshots.read(path, 7) == b"small"
    assert list(tmp_path.iterdir()) == [path]
