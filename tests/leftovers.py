"""The temporary directory of a test run, and what the tests left in it.

A run has one folder, with a subfolder for the temporary files of each process that runs tests. A subfolder that is not
empty at the end fails the run: a test, or the product, has forgotten files that would fill the directory of a user.
"""

import atexit
import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

KEPT: Final = "t"
"""The folder of pytest's `tmp_path`, which keeps the files of failed tests. Its name is short because sockets in it
have paths of at most 107 bytes."""

MAKERS: Final = "makers"
"""The file that names the test after which each forgotten file was first seen."""

at_end: Final = ExitStack()
"""Removes what several tests of a process share. A test run closes it before it looks for forgotten files."""
atexit.register(at_end.close)


def make_run_folder() -> Path:
    """Make the folder of a run."""
    folder = Path(tempfile.mkdtemp(prefix="test-"))
    folder.chmod(0o711)  # PostgreSQL runs as another user, who has files in the subfolders
    return folder


def use_folder(folder: Path) -> None:
    """Make a folder the temporary directory of this process, and of the processes that it starts."""
    folder.mkdir()
    folder.chmod(0o1777)  # as the temporary directory of a machine, for other users, too
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


class MakerLog:
    """Records the test after which a temporary file was first seen."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] = set()

    def record(self, test: str) -> None:
        """Record the test that has just ended for each new file."""
        found = set(os.listdir(self._folder))
        if new := found - self._known:
            with (self._folder.parent / MAKERS).open("a") as log:
                log.writelines(f"{self._folder / name}\t{test}\n" for name in sorted(new))
        self._known = found


def find_leftovers(folder: Path) -> list[str]:
    """Describe each file that the processes of a run left in their subfolders, with its maker if that is known."""
    log = folder / MAKERS
    makers = dict(line.split("\t", 1) for line in log.read_text().splitlines()) if log.exists() else {}
    found = sorted(str(one) for one in folder.glob("*/*") if one.parent.name != KEPT)
    return [f"{path} (first seen after {makers.get(path, 'the last test')})" for path in found]


def end_run(folder: Path, session: pytest.Session) -> None:
    """Fail the run if a file was left behind; remove its folder unless there is something to look at."""
    left = find_leftovers(folder)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if left:
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
    if reporter is not None:
        for line in left:
            reporter.write_line(f"left behind in the temporary directory: {line}", red=True)
        if session.testsfailed:
            reporter.write_line(f"the files of failed tests are in {folder / KEPT}")
    if not left and not session.testsfailed:
        shutil.rmtree(folder)
