import os
import subprocess
import sys
from typing import get_args

import pytest

from tests import marks
from yunishard.partition_worker.engine import durable_records

ENGINE = "tests/partition_worker/engine"
TESTS = (
    "tests/properties/test_recovery.py::test_without_any_field_of_a_record_a_recovered_partition_differs",
    f"{ENGINE}/preemption/test_attempts.py",
    f"{ENGINE}/preemption/test_quota_enforcement.py",
    f"{ENGINE}/test_allocation_updates.py",
    f"{ENGINE}/test_application_updates.py",
    f"{ENGINE}/test_gang_scheduling.py::test_a_gang_may_run_out_of_time_again",
    f"{ENGINE}/test_node_updates.py",
    f"{ENGINE}/test_operator_marks.py",
    f"{ENGINE}/test_reconfiguration.py",
    f"{ENGINE}/test_restoring.py",
    f"{ENGINE}/test_resync.py",
    f"{ENGINE}/test_user_limits.py",
)
"""Tests that need every mark together. For a mark that only others need, add their file."""


def test_every_kind_of_record_has_its_marks() -> None:
    kinds = set(get_args(durable_records.AnyRecord)) - {durable_records.Removed}
    assert set(marks.ATTRIBUTES) == set(map(durable_records.kind_of, kinds))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_tests_need_every_mark_of_the_engine() -> None:
    command = (sys.executable, "-m", "pytest", "-p", "tests.marks", "-n", "0", "-q", *TESTS)
    found = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "PROPERTIES": ""})
    assert "NOT NEEDED" not in found.stdout
    assert found.returncode == 0, found.stdout[-2000:]
