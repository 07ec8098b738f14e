"""What the health check finds out about the disk by itself."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.full_disk import full_disk
from webservice import audit, storage_health
from webservice.audit import PROBE_S, AuditLog
from webservice.storage_health import StorageHealth, StorageProblems


class Keeper:
    failure = "the disk is full"


def problems(health: StorageHealth) -> StorageProblems:
    return asyncio.run(health.problems())


def test_a_directory_with_room_is_no_problem(tmp_path: Path) -> None:
    assert problems(StorageHealth(tmp_path, AuditLog(tmp_path / "audit.log"))) == StorageProblems()


def test_what_is_not_kept_is_no_problem() -> None:
    assert problems(StorageHealth()) == StorageProblems()


def test_a_file_system_short_of_space_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "journals").mkdir()
    monkeypatch.setattr(storage_health, "SPACE_BYTES_MIN", 1 << 60)
    [problem] = problems(StorageHealth(tmp_path)).space
    assert problem.startswith(f"{tmp_path}: ")
    assert problem.endswith(f" MiB free, {1 << 40} MiB are needed")


def test_a_file_system_that_takes_no_more_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.statvfs(tmp_path).f_files:
        pytest.skip("this file system has no bound on files")
    monkeypatch.setattr(storage_health, "FILES_MIN", 1 << 62)
    [problem] = problems(StorageHealth(tmp_path)).space
    assert problem.endswith(f" more files can be created, {1 << 62} are needed")


def test_a_directory_that_is_gone_is_a_problem(tmp_path: Path) -> None:
    assert problems(StorageHealth(tmp_path / "gone")).space == (f"{tmp_path / 'gone'}: No such file or directory",)


def test_a_history_that_is_not_kept_is_a_problem() -> None:
    health = StorageHealth()
    health.keeper = Keeper()
    assert problems(health).history == "the disk is full"


def test_an_audit_log_that_cannot_be_written_is_a_problem_before_anybody_changes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "audit.log"
    log = AuditLog(file)

    async def found() -> list[str]:
        with full_disk(0):
            first = await log.problem()
        again = await log.problem()
        monkeypatch.setattr(audit, "PROBE_S", 0.0)
        return [first, again, await log.problem()]

    assert PROBE_S > 1
    assert asyncio.run(found()) == [f"{file}: file too large", f"{file}: file too large", ""]
    assert [path.name for path in tmp_path.iterdir()] == ["audit.log"]
    assert file.read_bytes() == b""


def test_an_audit_log_that_is_a_directory_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "audit.log").mkdir()
    assert "is a directory" in problems(StorageHealth(None, AuditLog(tmp_path / "audit.log"))).audit
