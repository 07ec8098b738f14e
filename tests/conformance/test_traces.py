"""Every trace in this process under a virtual clock, and a handful of them through the ports of real systems.

`python -m tests.conformance TRACE...` plays any trace to a real system.
"""

from typing import Final

import pytest

from tests.conformance.play import TRACES, differences_of, virtual_differences_of

PAGE_OF_ALL_PROCESSES: Final = "metrics-of-queues"
"""Reads the metrics of every process, which only a real system has."""

OVER_GRPC: Final = (
    PAGE_OF_ALL_PROCESSES,
    "config-adds-and-changes-queues",
    "gang-placeholders-are-replaced",
    "preemption-reclaims-what-is-guaranteed",
)
NATIVE: Final = ("recovery-takes-over-existing-allocations", "two-rms-with-partitions-of-their-own")


@pytest.mark.parametrize("name", [name for name in TRACES if name != PAGE_OF_ALL_PROCESSES])
def test_trace(name: str) -> None:
    assert virtual_differences_of(name) == []


@pytest.mark.processes
@pytest.mark.parametrize("name", OVER_GRPC)
def test_trace_over_grpc(name: str) -> None:
    assert differences_of(name) == []


@pytest.mark.processes
@pytest.mark.parametrize("name", NATIVE)
def test_trace_over_the_native_protocol(name: str) -> None:
    assert differences_of(name, native=True) == []
