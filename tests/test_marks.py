import os
import subprocess
import sys
from typing import get_args

import pytest

from partition_worker.engine import durable_records
from tests import marks

ENGINE = "tests/partition_worker/engine"
IGNORED = ("nodes/test_node_index.py", "test_growth.py", "test_state.py", "test_unschedulable_asks.py")
"""They take half of the time, and no mark is needed by them alone."""


def test_every_kind_of_record_has_its_marks() -> None:
    kinds = set(get_args(durable_records.AnyRecord)) - {durable_records.Removed}
    assert set(marks.ATTRIBUTES) == set(map(durable_records.kind_of, kinds))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_tests_need_every_mark_of_the_engine() -> None:
    tests = (ENGINE, "tests/properties/test_recovery.py", *(f"--ignore={ENGINE}/{name}" for name in IGNORED))
    command = (sys.executable, "-m", "pytest", "-p", "tests.marks", "-n", "0", "-q", *tests)
    found = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "PROPERTIES": ""})
    assert "NOT NEEDED" not in found.stdout
    assert found.returncode == 0, found.stdout[-2000:]
