"""`yunishard backup`: what is copied, of one moment, while another process writes; and what it reports otherwise.

The restored system is in `tests/processes/test_restored_backup.py`.
"""

import json
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from tests.machines import PARTITION
from tests.partition_worker.journal.hand import encoded, files_in, found_in, record_snapshot
from tests.store.test_cli import OTHER, fill, fill_web_state, show_web_state, verify
from yunishard.broker.store import RECORD_NAME
from yunishard.cli.main import main
from yunishard.common.settings import encode_settings
from yunishard.deploy.settings import resolve_settings
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournal
from yunishard.store.backup import _Backup

BACKUPS = 8
STEPS_BETWEEN = 40
"""Steps between two snapshots of the journal that is copied meanwhile."""


class Run(Protocol):
    """Makes a backup; returns the exit status, and what was written."""

    def __call__(self, *words: str, target: str = "backup") -> tuple[int, str]: ...


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with journals, a record, a history and an audit log."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    fill(f"sqlite:{folder}")
    fill_web_state(f"sqlite:{folder}")
    return folder


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, state: Path) -> Run:
    def back_up(*words: str, target: str = "backup") -> tuple[int, str]:
        status = main(["backup", str(tmp_path / target), "--state", str(state), *words])
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    return back_up


def test_a_backup_has_everything_and_is_private(tmp_path: Path, run: Run, state: Path) -> None:
    before = sorted(path.name for path in state.rglob("*"))
    (state / "journals" / f"{PARTITION}.poison-ab").write_bytes(b"a message")
    status, shown = run()
    assert (status, shown.split(",")[0]) == (0, f"{tmp_path / 'backup'}: 2 partition journals")
    copied = tmp_path / "backup" / "state"
    assert (copied / "journals" / f"{PARTITION}.poison-ab").read_bytes() == b"a message"
    found = [path for path in (tmp_path / "backup").rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.name != "manifest.json"} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "backup", copied, copied / "journals")} == {0o700}
    verify(f"sqlite:{copied}")
    assert show_web_state(f"sqlite:{copied}") == show_web_state(f"sqlite:{state}")
    (state / "journals" / f"{PARTITION}.poison-ab").unlink()
    assert sorted(path.name for path in state.rglob("*") if "-wal" not in path.name and "-shm" not in path.name) == [
        name for name in before if "-wal" not in name and "-shm" not in name
    ]


def test_the_manifest_names_the_release_the_formats_and_the_last_steps(tmp_path: Path, run: Run) -> None:
    assert run()[0] == 0
    manifest = json.loads((tmp_path / "backup" / "manifest.json").read_bytes())
    assert manifest["format"] == 1
    assert manifest["release"].count(".") == 2
    assert manifest["formats"].keys() == {
        *(f"state/journals/{partition}.sqlite" for partition in (PARTITION, OTHER)),
        f"state/{RECORD_NAME}",
        "state/history/history.sqlite",
    }
    assert all(manifest["formats"].values())
    assert {one["partition"]: (one["snapshot"], one["last_step"]) for one in manifest["partitions"]} == {
        PARTITION: (990, 1000),
        OTHER: (0, 1999),
    }


def test_each_backup_of_a_journal_that_grows_and_takes_snapshots_can_be_restored(
    tmp_path: Path, run: Run, state: Path
) -> None:
    """A snapshot is the number of its step, so that one of another moment than the steps is noticed."""
    done = threading.Event()
    progress: list[int] = []

    def write() -> None:
        with closing(SqliteJournal(files_in(state / "journals"), 8)) as journal:
            for number in range(1001, 1_000_000):
                journal.append(encoded(number, size=2_000), fresh=False)
                if number % STEPS_BETWEEN == 0:
                    record_snapshot(journal, number, str(number).encode())
                    while journal.has_garbage:
                        journal.trim()
                progress.append(number)
                if done.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(BACKUPS):
            before = len(progress)
            status, shown = run(target=f"backup-{number}")
            assert status == 0, shown
            found = found_in(files_in(tmp_path / f"backup-{number}" / "state" / "journals"))
            if found.snapshot_number > 990:
                assert found.snapshot == str(found.snapshot_number).encode()
            numbers = [one.number for one in found.steps]
            assert numbers == list(range(found.snapshot_number + 1, found.snapshot_number + 1 + len(numbers)))
            while len(progress) < before + STEPS_BETWEEN and writer.is_alive():
                threading.Event().wait(0.001)
    finally:
        done.set()
        writer.join()
    assert progress[-1] > 1001 + STEPS_BETWEEN


@pytest.mark.parametrize("place", ["_read_meta", "_copy_content"])
def test_a_snapshot_that_is_replaced_while_its_journal_is_copied_belongs_to_the_copied_steps(
    tmp_path: Path, run: Run, state: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Once, before or after the files of the journal were opened."""
    original, left = getattr(_Backup, place), [1]
    with closing(SqliteJournal(files_in(state / "journals"), 8)) as journal:

        def replace_snapshot(*arguments: object) -> object:
            is_of_journal = any(PARTITION in str(getattr(one, "database", one)) for one in arguments)
            found = original(*arguments) if place == "_read_meta" else None
            if is_of_journal and left:
                left.pop()
                journal.append(encoded(1001), fresh=False)
                record_snapshot(journal, 1001, b"1001")
                while journal.has_garbage:
                    journal.trim()
            return found if place == "_read_meta" else original(*arguments)

        monkeypatch.setattr(_Backup, place, replace_snapshot)
        status, shown = run()
    assert (status, left) == (0, []), shown
    found = found_in(files_in(tmp_path / "backup" / "state" / "journals"))
    assert found.snapshot == (b"1001" if place == "_read_meta" else b"a snapshot" * 200_000)


def test_files_of_settings_are_copied_and_missing_ones_reported(tmp_path: Path, run: Run, state: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "server.key_secret").write_text("secret")
    (tmp_path / "cert.pem").write_text("certificate")
    settings = tmp_path / "yunishard.yaml"
    settings.write_text(f"native-keys: keys\nrest-tls-cert: cert.pem\nrest-tls-key: none.pem\nstate: {state}\n")
    (state / "run").mkdir(mode=0o700)
    (state / "run" / "settings.json").write_bytes(encode_settings(resolve_settings({}, {}, str(settings))))
    status, shown = run()
    assert status == 1
    assert shown.endswith(f"is a backup without: {tmp_path / 'none.pem'} (rest-tls-key): no such file or directory\n")
    copied = tmp_path / "backup" / "settings"
    assert (copied / "native-keys" / "keys" / "server.key_secret").read_text() == "secret"
    assert (copied / "settings" / "yunishard.yaml").read_text() == settings.read_text()
    manifest = json.loads((tmp_path / "backup" / "manifest.json").read_bytes())
    assert manifest["settings"]["native-keys"] == str(keys)
    assert manifest["files"]["settings/native-keys/keys"] == str(keys)
    verify(f"sqlite:{tmp_path / 'backup' / 'state'}")


def test_a_damaged_journal_is_reported_and_the_rest_copied(tmp_path: Path, run: Run, state: Path) -> None:
    (state / "journals" / f"{OTHER}.sqlite").write_bytes(b"no database" * 1000)
    status, shown = run()
    assert status == 1
    assert f"{OTHER}.sqlite: file is not a database" in shown
    assert (tmp_path / "backup" / "state" / RECORD_NAME).exists()


@pytest.mark.parametrize(
    ("words", "target", "reason"),
    [
        ((), "state/backup", "is in the state directory"),
        ((), "state", "exists already"),
        (("--state", "/nowhere"), "backup", "/nowhere: is no state directory"),
    ],
)
def test_wrong_places_are_refused(tmp_path: Path, run: Run, words: tuple[str, ...], target: str, reason: str) -> None:
    status, shown = run(*words, target=target)
    assert status == 2
    assert reason in shown
    assert not (tmp_path / "backup").exists()


def test_nothing_is_left_where_no_backup_can_be_written(tmp_path: Path, run: Run) -> None:
    status, shown = run(target="missing/backup")
    assert (status, shown.count("\n")) == (1, 1)
    assert "no such file or directory; there is no backup" in shown
    assert not list(tmp_path.glob("missing*"))


def test_the_backup_of_a_store_in_postgresql_is_that_of_the_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YUNISHARD_STORE", "postgresql://db1/yunishard")
    assert main(["backup", str(tmp_path / "backup")]) == 2
    assert "back it up with pg_dump or pg_basebackup" in capsys.readouterr().err
