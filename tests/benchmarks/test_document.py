"""What the document says is what is committed."""

import pytest

from benchmarks.document import DOCUMENT, TABLES, UNKNOWN, rewritten, written
from benchmarks.results import COMMITTED, Figure, Machine, Results, read

FOUND = Results(
    Machine("a processor", 2, "3.11.7"),
    [
        Figure("engine/churn", 40_000.4, "allocations/s"),
        Figure("grpc/churn", 30_000.0, "allocations/s", reference=6_000.0),
        Figure("growth-grpc/fair/full/nodes/1000", 1_000.0, "allocations/s"),
        Figure("growth-grpc/fair/full/nodes/20000", 800.0, "allocations/s"),
        Figure("engine/two-queues", 121_000.0, "allocations/s"),
        Figure("preemption/decision", 5.5, "ms"),
        Figure("latency/grpc/idle/median", 1.5, "ms", reference=1.0),
    ],
)


def row(table: str, *begins: str) -> list[str]:
    """The cells of the line that begins so."""
    text = rewritten(f"<!-- figures {table} -->\nwhat was\n<!-- end -->", FOUND)
    assert "what was" not in text
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line]
    return next(line for line in cells if line[: len(begins)] == list(begins))


def test_a_table_is_written_anew_and_nothing_else() -> None:
    text = "before\n<!-- figures machine -->\nwhat was\n<!-- end -->\nafter\n"
    said = "a processor, 2 cores, Python 3.11.7"
    assert rewritten(text, FOUND) == text.replace("what was", said)
    assert rewritten(rewritten(text, FOUND), FOUND) == rewritten(text, FOUND)


@pytest.mark.parametrize(
    ("table", "cells"),
    [
        ("shapes", ["churn", "40,000", UNKNOWN, "30,000", "6,000", "5", "3"]),
        ("latency", ["idle, median", UNKNOWN, "1.5", "1", "1.5", "2.5"]),
        ("growth", ["fair, 98 % full", "1,000 to 20,000 nodes", UNKNOWN, UNKNOWN, "0.8", "0.75"]),
        ("wishes", ["two-queues, engine alone", "at least 120,000/s", "121,000/s", "yes"]),
        ("wishes", ["a decision to preempt, 2,000 candidates on 500 nodes", "at most 5 ms", "5.5 ms", "**no**"]),
        ("wishes", ["a worker with nothing in it", "at most 45 MiB", UNKNOWN, ""]),
        ("budget", ["broker", UNKNOWN, UNKNOWN]),
        ("scaling", ["measured here", UNKNOWN, UNKNOWN, UNKNOWN, ""]),
    ],
)
def test_each_table_has_what_was_measured(table: str, cells: list[str]) -> None:
    assert row(table, *cells[:2]) == cells if table == "growth" else row(table, cells[0]) == cells


def test_the_document_has_every_table() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [name for name in TABLES if f"<!-- figures {name} -->" not in text] == []


def test_the_document_and_the_drawings_are_those_of_the_committed_figures() -> None:
    outdated = [path.name for path, text in written(read(COMMITTED)) if path.read_text(encoding="utf-8") != text]
    assert outdated == [], "python -m benchmarks.document writes them"
