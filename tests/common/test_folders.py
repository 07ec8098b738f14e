"""Permissions of secrets, temporary directories, and directories that another user could replace."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from yunishard.common.process.folders import POD_VARIABLE, find_intruder, is_exposed, make_temporary_folder

OWN, OTHER, ROOT = 1000, 1001, 0


def status(mode: int, uid: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, uid, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("process", "owner", "mode", "exposed"),
    [
        (OWN, OWN, 0o600, False),
        (OWN, OWN, 0o400, False),
        (OWN, OWN, 0o640, True),
        (OWN, OWN, 0o604, True),
        (OWN, ROOT, 0o440, False),  # a Secret of Kubernetes, with fsGroup
        (OWN, ROOT, 0o640, False),
        (OWN, ROOT, 0o660, True),
        (OWN, ROOT, 0o444, True),
        (OWN, OTHER, 0o440, True),
        (ROOT, ROOT, 0o600, False),
        (ROOT, ROOT, 0o640, True),
    ],
)
def test_only_the_group_of_a_file_of_root_may_read_a_secret(
    monkeypatch: pytest.MonkeyPatch, process: int, owner: int, mode: int, exposed: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: process)
    assert is_exposed(status(mode, owner)) is exposed


def make_and_die(*, killed: bool) -> Path:
    """The temporary directory of a process that made it and ended, in order or by SIGKILL."""
    code = (
        "import sys; from yunishard.common.process.folders import make_temporary_folder\n"
        "with make_temporary_folder('test') as folder: print(folder, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-P", "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert folder.stat().st_mode & 0o777 == 0o700
        if killed:
            process.kill()
        process.communicate()
    return folder


def test_a_temporary_folder_is_removed_at_the_end() -> None:
    assert not make_and_die(killed=False).exists()


def test_the_next_temporary_folder_removes_those_of_killed_processes_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    killed = make_and_die(killed=True)
    assert killed.exists()
    target, other = tmp_path / "target", tmp_path / "yunishard-other-1"
    target.mkdir()
    other.mkdir()
    (tmp_path / "yunishard-test-file").touch()
    (tmp_path / "yunishard-test-link").symlink_to(target)
    with make_temporary_folder("test") as in_use, make_temporary_folder("test") as second:
        assert not killed.exists()
        assert sorted(tmp_path.iterdir()) == sorted(
            [in_use, second, target, other, tmp_path / "yunishard-test-file", tmp_path / "yunishard-test-link"]
        )


def test_a_temporary_folder_that_is_removed_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make(prefix: str) -> str:
        folder = tmp_path / f"{prefix}{len(made)}"
        folder.mkdir()
        made.append(folder)
        if len(made) == 1:
            folder.rmdir()
        return str(folder)

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    with make_temporary_folder("test") as folder:
        assert folder == made[1]


STRANGER = 4711
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")


def give(path: Path) -> None:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def link_through(above: Path, state: Path) -> None:
    """Replace the directory by a link that leads through one to which all may write."""
    state.rmdir()
    (above / "open" / "target").mkdir(parents=True)
    (above / "open").chmod(0o777)
    state.symlink_to("open/../open/target")


def link_of_stranger(above: Path, state: Path) -> None:
    state.rename(above / "target")
    state.symlink_to("target")
    give(state)
    above.chmod(0o1777)


def loop(above: Path, state: Path) -> None:
    state.rmdir()
    state.symlink_to(state.name)


def remove_and_open(above: Path, state: Path) -> None:
    state.rmdir()
    above.chmod(0o777)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda above, state: None, ""),
        (lambda above, state: state.chmod(0o755), ""),
        (lambda above, state: state.rmdir(), ""),
        (lambda above, state: above.chmod(0o1777), ""),
        (lambda above, state: state.rename(above / "b") and state.symlink_to(above / "b"), ""),
        (lambda above, state: state.chmod(0o777), "a/state: all users may write to it; see what is there, then `chmod"),
        (lambda above, state: state.chmod(0o1777), "a/state: all users may write to it"),
        (lambda above, state: state.chmod(0o770), "a/state: the group"),
        (lambda above, state: above.chmod(0o777), "a: all users may write to it"),
        (remove_and_open, "a: all users may write to it"),
        (link_through, "a/open: all users may write to it"),
        (loop, "a/state: has too many symbolic links"),
        pytest.param(lambda above, state: give(state), "a/state: belongs to another user, 4711", marks=AS_ROOT),
        pytest.param(lambda above, state: give(above), "a: belongs to another user, 4711", marks=AS_ROOT),
        pytest.param(link_of_stranger, "a/state: belongs to another user, 4711", marks=AS_ROOT),
    ],
)
def test_a_directory_that_another_user_could_replace_is_found(
    tmp_path: Path, change: Callable[[Path, Path], object], problem: str
) -> None:
    state = tmp_path / "a" / "state"
    state.mkdir(parents=True)
    state.parent.chmod(0o755)
    state.chmod(0o700)
    change(state.parent, state)
    found = find_intruder(state)
    assert found.startswith(f"{tmp_path}/{problem}") if problem else not found


@AS_ROOT
def test_a_volume_of_a_pod_may_be_writable_to_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == tmp_path)
    assert find_intruder(tmp_path)
    monkeypatch.setenv(POD_VARIABLE, "10.0.0.1")
    assert not find_intruder(tmp_path)
