"""The command: what it measures, where it writes, and what it refuses."""

from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.catalogue import BENCHMARKS
from benchmarks.results import read


def test_all_that_can_be_measured_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [one.name for one in BENCHMARKS]


def test_what_is_named_is_measured_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "found.json"
    assert main(["preemption", "--quick", "--rounds", "1", "--json", str(file)]) == 0
    assert [one.name for one in read(file).figures] == ["preemption/decision"]
    assert capsys.readouterr().out.split()[0] == "preemption/decision"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nothing"], "there is no nothing; there are engine, native"),
        (["--quick", "--update"], "go without --quick"),
        (["--quick", "--check"], "go without --quick"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert complaint in capsys.readouterr().err


def test_a_reference_that_cannot_be_built_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--own-network", "--reference-dir", str(tmp_path)]
    assert main(words) == 2
    assert "there is no Go source of the reference" in capsys.readouterr().err
