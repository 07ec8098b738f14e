"""Which files belong to the journal of a partition."""

from pathlib import Path

import pytest

from yunishard.partition_worker.journal.files import Files


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text(name)


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a b", "a\n", "ä"])
def test_only_names_of_partitions_become_names_of_files(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a full partition name"):
        Files(tmp_path, name)


def test_partitions_with_similar_names_have_nothing_in_common(tmp_path: Path) -> None:
    made(tmp_path, "a.sqlite", "a.snapshot-5", "a.snapshot-7.tmp-12", "a.snapshot-5.sqlite", "a.snapshot-5.snapshot-9")
    made(tmp_path, "aa.snapshot-5", "a.b.snapshot-5")
    assert {path.name for path in Files(tmp_path, "a").all()} == {"a.sqlite", "a.snapshot-5", "a.snapshot-7.tmp-12"}


def test_of_the_damaged_ones_the_last_is_kept(tmp_path: Path) -> None:
    files = Files(tmp_path, "a")
    made(tmp_path, "a.sqlite", "a.sqlite-wal", "a.snapshot-5", "b.sqlite")
    assert files.put_aside() == tmp_path / "a.damaged"
    made(tmp_path, "a.sqlite", "a.snapshot-6")
    files.put_aside()
    assert names(tmp_path) == {"a.damaged/a.sqlite", "a.damaged/a.snapshot-6", "b.sqlite"}


def test_the_size_is_that_of_everything(tmp_path: Path) -> None:
    made(tmp_path, "a.sqlite", "a.sqlite-wal", "a.snapshot-5", "b.sqlite")
    assert Files(tmp_path, "a").size_bytes() == len("a.sqlitea.sqlite-wala.snapshot-5")
