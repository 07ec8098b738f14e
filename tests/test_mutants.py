"""Mutation runs list small faults, plant one in the code of a function, and tell which of them a test finds."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants import ROOT, list_mutants, plant

SOURCE = '''
"""A module."""

class Shelf:
    def __init__(self) -> None:
        self.size = 0

    @property
    def is_empty(self) -> bool:
        """Whether it is empty."""
        assert self.size >= 0, "negative"
        return not self.size

    def put(self, count: int) -> str:
        if count < 1 and self.size:
            raise ValueError(f"{count + 1}")
        self.size += count
        return str(self.size)
'''

CHANGES = [
    "return not self.size → return None",
    "not self.size → (self.size)",
    "count < 1 and self.size → (count < 1 or self.size)",
    "count < 1 and self.size → (self.size)",
    "count < 1 and self.size → (count < 1)",
    "count < 1 → (count <= 1)",
    "count < 1 → (count >= 1)",
    "count < 1 → (count < 2)",
    "self.size += count → pass",
    "self.size += count → self.size -= count",
    "return str(self.size) → return None",
]


@pytest.fixture
def shelf(tmp_path: Path) -> ModuleType:
    """The module, imported from a file of its own."""
    path = tmp_path / "shelf.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("shelf", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_mutants_change_conditions_operators_and_statements_but_no_assertion_and_no_text(shelf: ModuleType) -> None:
    assert [one.change for one in list_mutants(Path(str(shelf.__file__)))] == CHANGES


def test_a_planted_mutant_changes_the_function_and_no_file(shelf: ModuleType) -> None:
    path = Path(str(shelf.__file__))
    mutants = {one.change: one for one in list_mutants(path)}
    one = shelf.Shelf()
    assert one.put(2) == "2"
    assert plant(mutants["self.size += count → self.size -= count"]) == 1
    assert one.put(2) == "0"
    assert one.is_empty
    assert plant(mutants["not self.size → (self.size)"]) == 1
    assert one.is_empty == 0
    assert path.read_text() == SOURCE


def test_a_run_names_the_test_that_fails_with_each_mutant(tmp_path: Path) -> None:
    tests, outcomes = "tests/partition_worker/engine/test_sorted_items.py", tmp_path / "outcomes.json"
    options = ["--modules", "sorted_items", "--tests", tests, "--mutants", "5", "--json", str(outcomes)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", *options], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = json.loads(outcomes.read_text())
    killed = [one for one in found if one["stage"]]
    assert f"{len(killed)} killed ({len(killed)} by module, 0 by engine, 0 by sessions)" in done.stdout
    assert killed
    assert all(one["test"].startswith(tests) for one in killed)
    assert [one["mutant"]["number"] for one in found] == [1, 2, 3, 4, 5]
