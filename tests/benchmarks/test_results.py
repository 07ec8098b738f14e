"""Figures are written so that they can be read again and compared."""

from pathlib import Path

from benchmarks.catalogue import BENCHMARKS
from benchmarks.results import (
    COMMITTED,
    Figure,
    Machine,
    Plan,
    Results,
    merged,
    read,
    table,
    this_machine,
    write,
)

HERE = Machine("a processor", 2, "3.11.7")


def results(*figures: Figure) -> Results:
    return Results(HERE, list(figures))


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    found = results(Figure("engine/a", 1000.0, "allocations/s", 12.5), Figure("grpc/a", 5.0, "ms", reference=2.0))
    write(tmp_path / "results.json", found)
    assert read(tmp_path / "results.json") == found
    assert len((tmp_path / "results.json").read_text().splitlines()) == 7  # a line for each figure


def test_it_is_written_with_as_many_digits_as_mean_something(tmp_path: Path) -> None:
    write(tmp_path / "results.json", results(Figure("a/b", 123456.789, "x", 0.123456, reference=1.00004)))
    assert read(tmp_path / "results.json").figures == [Figure("a/b", 123500.0, "x", 0.1235, reference=1.0)]


def test_without_a_file_there_are_no_figures(tmp_path: Path) -> None:
    assert read(tmp_path / "none.json") == Results(this_machine(), [])


def test_what_was_not_measured_now_stays_and_what_a_benchmark_does_not_measure_any_more_goes() -> None:
    before = results(Figure("engine/a", 1.0, "x"), Figure("engine/gone", 2.0, "x"), Figure("memory/a", 3.0, "x"))
    found = results(Figure("engine/a", 4.0, "x"), Figure("engine/new", 5.0, "x"))
    assert [(one.name, one.value) for one in merged(before, found).figures] == [
        ("memory/a", 3.0),
        ("engine/a", 4.0),
        ("engine/new", 5.0),
    ]


def test_the_table_compares_with_what_is_committed_and_with_the_reference() -> None:
    text = table(
        [Figure("grpc/a", 30_000.0, "allocations/s", reference=2_000.0), Figure("latency/a", 0.5, "ms")],
        results(Figure("grpc/a", 20_000.0, "allocations/s")),
    )
    first, second = text.splitlines()
    assert "+50.0 % of committed 20,000" in first
    assert "15.00 times the reference's 2,000" in first
    assert second.split() == ["latency/a", "0.5", "ms"]


def test_sizes_are_parts_of_the_full_ones() -> None:
    assert (Plan().nodes, Plan().asks) == (1_000, 10_000)
    assert (Plan(share=0.01).nodes, Plan(share=0.01).asks, Plan(share=0.01).scaled(3)) == (10, 100, 1)


def test_the_committed_figures_are_those_of_benchmarks_that_exist() -> None:
    committed = read(COMMITTED)
    assert {one.benchmark for one in committed.figures} <= {one.name for one in BENCHMARKS}
    judged = {one.benchmark for one in committed.figures if one.cost}
    assert judged >= {one.name for one in BENCHMARKS if one.judged}


def test_the_machine_says_what_it_is() -> None:
    machine = this_machine()
    assert machine.cores >= 1
    assert machine.python.startswith("3.")
