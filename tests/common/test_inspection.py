"""What a process tells of itself is true of it."""

import asyncio
import threading
import tracemalloc
from collections import Counter

import pytest

from common.inspection import INSPECTIONS, folded, inspected, memory, sampled, stacks, table, traced, unfolded, waits


def test_stacks_are_told_of_threads_and_tasks() -> None:
    async def waiting_for_a_bus(bus: asyncio.Event) -> None:
        await bus.wait()

    async def run() -> None:
        bus, ends = asyncio.Event(), threading.Event()
        thread = threading.Thread(target=ends.wait, name="sleeper")
        thread.start()
        task = asyncio.create_task(waiting_for_a_bus(bus), name="passenger")
        await asyncio.sleep(0)
        text, places = stacks(), waits()
        ends.set()
        bus.set()
        await task
        thread.join()
        assert "thread sleeper:\n" in text
        assert "task passenger (" in text
        assert "await bus.wait()" in text
        assert "waiting_for_a_bus" in places
        assert "thread in " in places

    asyncio.run(run())


def test_beside_a_loop_only_threads_are_told() -> None:
    assert "thread MainThread:\n" in stacks()
    assert "task" not in waits()


def test_memory_is_told_by_type_or_where_it_was_asked_for() -> None:
    text = memory()
    assert "VmRSS:" in text
    assert "builtins.dict" in text
    tracemalloc.start(1)
    try:
        held = [bytes(1000) for _ in range(1000)]
        assert "test_inspection.py:" in memory()
        assert held
    finally:
        tracemalloc.stop()


def busy_until(ends: threading.Event) -> None:
    while not ends.is_set():
        sum(range(1000))


@pytest.fixture
def busy() -> threading.Event:
    return threading.Event()


def test_a_profile_counts_where_threads_were_seen(busy: threading.Event) -> None:
    thread = threading.Thread(target=busy_until, args=(busy,), name="worker;one")
    thread.start()
    try:
        found = sampled(0.05, every_s=0.001)
    finally:
        busy.set()
        thread.join()
    assert sum(count for stack, count in found.items() if stack.startswith("worker,one;")) > 1
    assert any("test_inspection.busy_until" in stack for stack in found)
    assert not any("inspection.sampled" in stack for stack in found), "whoever looks is not seen"


def test_a_trace_tells_a_thread_when_it_is_somewhere_else(busy: threading.Event) -> None:
    thread = threading.Thread(target=busy.wait, name="still")
    thread.start()
    try:
        lines = traced(0.05, every_s=0.001).splitlines()
    finally:
        busy.set()
        thread.join()
    assert [line.split()[1].split(";")[0] for line in lines].count("still") == 1


def test_a_profile_can_be_written_and_read_again() -> None:
    counts = Counter({"main;a.f;a.g": 3, "main;a.f": 1})
    assert folded(counts) == "main;a.f 1\nmain;a.f;a.g 3\n"
    assert unfolded(folded(counts)) == counts
    with pytest.raises(ValueError, match="nonsense"):
        unfolded("nonsense")


def test_the_table_for_people_has_shares_of_a_threads_time() -> None:
    text = table(Counter({"main;f;g": 3, "main;f": 1, "other;f;f": 2}))
    assert text.splitlines()[1:] == [
        "100.0%  25.0%  main: f",
        " 75.0%  75.0%  main: g",
        "100.0% 100.0%  other: f",
    ]


@pytest.mark.parametrize("what", sorted(INSPECTIONS))
def test_all_of_it_can_be_asked_for_by_name(what: str) -> None:
    assert asyncio.run(inspected(what, 0.02))


def test_nothing_else_can() -> None:
    with pytest.raises(ValueError, match="life"):
        asyncio.run(inspected("life", 0))
