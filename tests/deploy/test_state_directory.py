"""The state directory: whose it is, who may enter it, and that one system uses it at a time."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from yunishard.common.settings import SettingsError
from yunishard.deploy import state_directory
from yunishard.deploy.settings import resolve_settings
from yunishard.deploy.state_directory import (
    HOLDER_GONE_MAX_S,
    SOCKET_PATH_BYTES_MAX,
    StateDirectory,
    claim_state_directory,
)


@contextmanager
def used(folder: Path | str | None = None, *, patience_s: float = HOLDER_GONE_MAX_S) -> Iterator[StateDirectory]:
    """The directory, claimed; a temporary one if none is named."""
    settings = resolve_settings({"ephemeral": "true"} if folder is None else {"state": str(folder)}, {})
    with ExitStack() as stack, patch.object(state_directory, "HOLDER_GONE_MAX_S", patience_s):
        yield claim_state_directory(settings, stack)


def refusal(folder: Path | str, *, patience_s: float = HOLDER_GONE_MAX_S) -> str:
    with pytest.raises(SettingsError) as refused, used(folder, patience_s=patience_s):
        pass
    line = str(refused.value)
    assert "\n" not in line
    return line


def mode(folder: Path) -> int:
    return folder.stat().st_mode & 0o777


def test_an_ephemeral_directory_is_private_and_gone_at_the_end() -> None:
    with used() as state:
        assert mode(state.folder) == 0o700
    assert not state.folder.exists()


@pytest.mark.parametrize("is_temporary", [True, False])
def test_the_processes_of_a_system_can_lock_its_state_directory(tmp_path: Path, *, is_temporary: bool) -> None:
    """As for each line of the audit log."""
    with used(None if is_temporary else tmp_path / "state") as state:
        descriptor = os.open(state.folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


def test_a_state_directory_is_made_with_its_parents_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with used(folder) as state:
        run = folder / "run"
        assert state == StateDirectory(folder, run / "settings.json", f"ipc://{run}/broker.sock", state.lock)
        assert (folder / "lock").read_text() == f"{os.getpid()}\n"
    assert folder.exists()
    with used(folder):
        pass


def test_nobody_else_can_enter_where_the_socket_and_the_journals_are(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with used(tmp_path / "a") as state:
            folders = (state.folder, *(state.folder / name for name in ("run", "journals", "history")))
            assert list(map(mode, folders)) == [0o700] * 4
            assert state.settings.parent.stat().st_uid == os.geteuid()
    finally:
        os.umask(before)


def test_the_directory_of_an_older_release_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "run" / "settings.json").touch()
    (tmp_path / "lock").write_text("4711\n")
    with used(tmp_path) as state:
        assert mode(state.folder / "journals") == 0o700


@pytest.mark.parametrize("name", ["run", "journals", "history"])
@pytest.mark.parametrize("others", [0o710, 0o701, 0o740])
def test_a_directory_that_others_may_enter_is_refused(tmp_path: Path, name: str, others: int) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name).chmod(others)
    assert refusal(tmp_path) == (
        f"--state: {tmp_path / name}: others may enter it; see what is there, then `chmod 700` it"
    )
    (tmp_path / name).chmod(0o700)
    with used(tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    os.chown(tmp_path / "run", 4711, 4711)
    assert "belongs to another user" in refusal(tmp_path)


@pytest.mark.parametrize("place", ["state", "."], ids=["the directory", "the one above"])
def test_a_state_directory_that_others_may_replace_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / place).chmod(0o777)
    line = refusal(tmp_path / "state")
    assert line.startswith(
        f"--state: {tmp_path / place}: all users may write to it; see what is there, then `chmod go-w"
    )
    assert not list((tmp_path / "state").iterdir())


def test_a_link_or_a_file_in_the_place_of_a_private_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    assert "must be a directory and no link to one" in refusal(tmp_path)
    (tmp_path / "run").unlink()
    (tmp_path / "run").touch()
    assert "must be a directory and no link to one" in refusal(tmp_path)


def test_a_path_too_long_for_a_socket_gives_way_to_a_temporary_one(tmp_path: Path) -> None:
    with used(tmp_path / ("x" * 100)) as state:
        socket = Path(state.broker.removeprefix("ipc://"))
        assert len(str(socket)) <= SOCKET_PATH_BYTES_MAX
        assert mode(socket.parent) == 0o700
    assert not socket.parent.exists()


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "not a directory" in refusal(tmp_path / "file")
    assert "not a directory" in refusal(tmp_path / "file" / "below")


def test_a_directory_that_cannot_be_written_to_is_refused() -> None:
    line = refusal("/proc/1/yunishard")
    assert line.startswith("--state: /proc/1/yunishard: ")
    assert line.endswith("choose a directory you can write to with --state, or use --ephemeral")


# The lock -------------------------------------------------------------------------------------------------------------


def test_a_directory_in_use_is_refused_with_the_process_that_holds_it(tmp_path: Path) -> None:
    with used(tmp_path):
        line = refusal(tmp_path)
    assert line.startswith(f"--state: {tmp_path} is in use by process {os.getpid()}; stop that one first")


LEAVES_ONCE_LOCK_IS_OPENED = """
import os, sys, time
sys.stdin.readline()
files = f"/proc/{os.getppid()}/fd"
while sys.argv[1] not in map(os.path.realpath, (os.path.join(files, number) for number in os.listdir(files))):
    time.sleep(0.01)
"""


@contextmanager
def left_behind(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that holds the lock of a supervisor that is gone, and leaves once its input has ended and somebody else
    has the lock open.
    """
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:  # its number names nobody any more
        gone.wait()
    lock = folder / "lock"
    with used(folder) as state:
        child = subprocess.Popen(
            [sys.executable, "-c", LEAVES_ONCE_LOCK_IS_OPENED, str(lock.resolve())],
            stdin=subprocess.PIPE,
            pass_fds=(state.lock,),
        )
    lock.write_text(f"{gone.pid}\n")
    with child:
        yield child
        child.kill()


def test_the_processes_of_a_killed_instance_are_waited_for(tmp_path: Path) -> None:
    with left_behind(tmp_path) as child:
        assert child.stdin is not None
        child.stdin.close()
        with used(tmp_path):
            assert child.wait(timeout=10) == 0


def test_processes_of_a_killed_instance_that_do_not_leave_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with left_behind(tmp_path) as child:
        child.send_signal(signal.SIGSTOP)
        assert f" has left behind; end it (`kill -KILL {child.pid}`), or choose another" in refusal(
            tmp_path, patience_s=0.2
        )
        [line] = caplog.messages
        assert line.endswith(f" has ended; waiting up to 0.2 s for the processes that it left behind: {child.pid}")


def test_a_process_that_has_got_the_number_of_the_dead_supervisor_is_not_taken_for_it(tmp_path: Path) -> None:
    with left_behind(tmp_path) as child:
        (tmp_path / "lock").write_text("1\n")
        assert f"what process 1 has left behind; end it (`kill -KILL {child.pid}`)" in refusal(tmp_path, patience_s=0.2)
