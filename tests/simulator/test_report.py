"""The report is one file with every figure in tables; tests/dashboard looks at it in a browser."""

import argparse
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.simulator.sample_runs import write_run, write_sample_run
from yunishard.workloads.simulator.report import GROUPS_MAX, add_report_arguments, build_report, run_report
from yunishard.workloads.simulator.run_folder import load_run, load_runs


class Page(HTMLParser):
    """The rows of all tables as texts, the tags, and every address in an attribute."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self._is_in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self._is_in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._is_in_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.rows[-1][-1] += data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs."""
    write_sample_run(tmp_path / "fifo")
    write_sample_run(tmp_path / "shortest", is_shortest_first=True)
    return tmp_path


def read_row(page: Page, heading: str) -> list[str]:
    return next(row[1:] for row in page.rows if row[0] == heading)


def test_nothing_is_loaded_from_elsewhere(folder: Path) -> None:
    text = build_report(load_runs([folder]), title="x")
    page = Page(text)
    assert {one for one in page.addresses if not one.startswith("#")} == set()
    assert not {"link", "img", "iframe", "object"}.intersection(page.tags)
    assert "default-src 'none'" in text
    assert not re.search(r"@import|url\(", text)
    assert not re.search(r"^(?:import|export)\b", text, re.MULTILINE)


def test_the_same_runs_make_the_same_bytes(folder: Path) -> None:
    assert build_report(load_runs([folder]), title="x") == build_report(load_runs([folder]), title="x")


def test_figures_stand_beside_each_other_with_the_best_and_the_difference(folder: Path) -> None:
    page = Page(build_report(load_runs([folder]), title="x"))
    assert page.rows[0] == ["figure", "fifo", "shortest"]
    assert read_row(page, "mean wait") == ["2 h 40 min", "56 min 34 s ★-1 h 44 min (better)"]
    assert read_row(page, "jobs") == ["400", "400"]
    assert read_row(page, "completed") == ["398", "398"], "no best of equal ones"


def test_each_queue_and_user_has_a_line_for_each_run(folder: Path) -> None:
    page = Page(build_report(load_runs([folder]), title="x"))
    first = next(number for number, row in enumerate(page.rows) if row[0] == "root.batch")
    assert [row[:3] for row in page.rows[first : first + 2]] == [
        ["root.batch", "fifo", "110"],
        ["shortest", "110", "1"],
    ]
    assert read_row(page, "user-3")[0] == "fifo"


def test_one_run_needs_no_column_of_runs(folder: Path) -> None:
    page = Page(build_report(load_runs([folder / "fifo"]), title="x"))
    assert read_row(page, "root.batch")[0] == "110"
    assert read_row(page, "mean wait") == ["2 h 40 min"]


def test_queues_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    rows = [{"job": f"j{n}", "user": "a", "queue": f"root.q{n}", "submit": 0} for n in range(GROUPS_MAX + 3)]
    text = build_report([load_run(write_run(tmp_path, rows=rows))], title="x")
    assert "3 more with fewer jobs are in the files of the runs." in text


def test_names_from_files_are_only_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    rows = [{"job": "a", "user": evil, "queue": evil, "submit": 0}]
    usage = [{"time": 0, "queue": evil, "resource": "vcore", "used": 1, "pending": 0, "guaranteed": 1}]
    text = build_report([load_run(write_run(tmp_path, rows=rows, usage=usage, name=evil, traces=[evil]))], title=evil)
    assert evil not in text
    assert text.count("<script") == 2
    data = re.search(r'<script type="application/json" id="data">(.*)</script>', text)
    assert data is not None
    assert json.loads(data[1])["runs"] == [evil]


def test_differences_that_mislead_are_noted(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", traces=["other.swf"])
    assert "The runs have different traces" in build_report(load_runs([tmp_path]), title="x")


def test_entries_that_were_left_out_of_the_trace_are_counted(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "one", leftOut={"malformed line": 1200}))
    assert read_row(Page(build_report([run], title="x")), "one")[-1] == "1,200 malformed line"


def test_the_command_writes_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_report_arguments(parser)
    target = folder / "report.html"
    assert run_report(parser.parse_args([str(folder), "--output", str(target), "--title", "Our cluster"])) == 0
    assert "<h1>Our cluster</h1>" in target.read_text(encoding="utf-8")
    assert capsys.readouterr().out == f"{target}: 2 runs\n"
