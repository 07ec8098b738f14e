"""What is measured is what the table says."""

import pytest

from benchmarks.footprint import engine_figures, worker_figures
from benchmarks.results import Plan


def test_an_ask_and_an_allocation_take_bytes_that_are_judged() -> None:
    found = {one.name: one for one in engine_figures(Plan(share=0.02))}
    assert list(found) == ["memory/ask", "memory/allocation"]
    assert all(one.cost == one.value and 100 < one.value < 20_000 for one in found.values())


@pytest.mark.processes
def test_a_real_worker_is_looked_at_empty_and_full() -> None:
    found = {one.name: one.value for one in worker_figures(Plan(share=0.05))}
    assert list(found) == [
        "footprint/empty",
        "footprint/empty, shared pages in part",
        "footprint/ask",
        "footprint/allocation",
    ]
    assert 10 < found["footprint/empty, shared pages in part"] <= found["footprint/empty"] < 300
    assert found["footprint/ask"] > 0
    assert found["footprint/allocation"] > 0
