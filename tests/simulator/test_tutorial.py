"""The commands of docs/choose-a-policy.md, on a part of its log, from the trace to the report."""

import gzip
import re
import shlex
from pathlib import Path

import pytest

from yunishard.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "choose-a-policy.md").read_text().replace("\\\n", " ")
COMMANDS = re.findall(r"^ *(?:\$ )?\.venv/bin/yunishard (simulate .*)$", PAGE, re.MULTILINE)
JOBS = 400


def test_each_command_of_the_tutorial_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "policies").symlink_to(ROOT / "examples" / "policies")
    with gzip.open(ROOT / "examples" / "lcg-2005.swf.gz", "rt") as log:
        lines = log.readlines()
    head = [line for line in lines if line.startswith(";")]
    jobs = [line for line in lines if not line.startswith(";")][:JOBS]
    with gzip.open(tmp_path / "examples" / "lcg-2005.swf.gz", "wt") as log:
        log.writelines([*head, *jobs])
    monkeypatch.chdir(tmp_path)
    assert [shlex.split(command)[1] for command in COMMANDS] == ["examples/lcg-2005.swf.gz", "compare", "report"]
    for command in COMMANDS:
        assert main(shlex.split(command)) == 0, capsys.readouterr().err
    shown = capsys.readouterr().out
    assert "fair-groups compared with one-queue:" in shown
    assert "root.others" in (tmp_path / "report.html").read_text()
