"""A test run that leaves temporary files behind fails, and names them and the test that made them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TESTS = """
import tempfile
def test_tidy(tmp_path): (tmp_path / "file").touch(); tempfile.TemporaryDirectory().cleanup()
def test_untidy(): LEAVE
"""


@pytest.mark.parametrize("processes", ["0", "2"])
@pytest.mark.parametrize(("action", "status"), [("tempfile.mkdtemp(prefix='left-')", 1), ("pass", 0)])
def test_a_run_fails_if_a_temporary_file_is_left_behind(
    tmp_path: Path, action: str, status: int, processes: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (tmp_path / "test_it.py").write_text(TESTS.replace("LEAVE", action))
    options = (
        "-p",
        "xdist.plugin",
        "-p",
        "tests.conftest",
        "-c",
        "/dev/null",
        "--rootdir",
        str(tmp_path),
        "-p",
        "no:cacheprovider",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, *options, str(tmp_path / "test_it.py")]
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout
    lines = [line for line in ended.stdout.splitlines() if "left behind" in line]
    assert len(lines) == status
    assert all("left-" in line and "test_it.py::test_untidy" in line for line in lines)
    assert bool(list(temporary.iterdir())) == bool(status), "a run without leftovers removes its folder"
