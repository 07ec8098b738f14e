"""What a process tells about itself."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from common.driver import Inbox, Transport
from common.messages import Header
from common.metrics import Family
from common.process_figures import LAG_EVERY_S, ProcessFigures, Teller
from common.process_up import up
from common.wire import Incoming, Outgoing

_T = TypeVar("_T")


def told(tell: Callable[[], _T]) -> _T:
    """Within a loop."""

    async def run() -> _T:
        return tell()

    return asyncio.run(run())


def values(families: list[Family], name: str) -> dict[tuple[str, ...], float]:
    return dict(
        sample for family in families if family.name == f"yunishard_process_{name}" for sample in family.samples
    )


def test_everything_says_which_process_it_is_about() -> None:
    def families() -> list[Family]:
        figures = ProcessFigures("partition_worker", "rm-1_default")
        found = figures.families()
        figures.close()
        return found

    found = told(families)
    assert up("partition_worker", "rm-1_default") in found
    assert all(values[:2] == ("partition_worker", "rm-1_default") for family in found for values, _ in family.samples)
    for name in ("cpu_seconds_total", "resident_bytes", "open_files", "threads", "start_time_seconds"):
        assert all(value > 0 for value in values(found, name).values()), name
    assert len(values(found, "garbage_collections_total")) == 3


def test_a_loop_that_goes_round_is_counted_although_nothing_happens() -> None:
    async def run() -> list[float]:
        figures = ProcessFigures("broker")
        counts = list[float]()
        for _ in range(3):
            counts.append(sum(values(figures.families(), "loop_checks_total").values()))
            figures._timer.cancel()
            figures._look()
        figures.close()
        return counts

    assert asyncio.run(run()) == [0, 1, 2]


def test_a_loop_that_was_busy_is_late() -> None:
    async def run() -> tuple[float, float]:
        figures = ProcessFigures("broker")
        figures._due -= 2 * LAG_EVERY_S  # as if it had stood still for so long
        figures._timer.cancel()
        figures._look()
        late = sum(values(figures.families(), "loop_lag_seconds").values())
        figures._timer.cancel()
        figures._due = asyncio.get_running_loop().time()
        figures._look()
        longest = sum(values(figures.families(), "loop_lag_max_seconds").values())
        now = sum(values(figures.families(), "loop_lag_seconds").values())
        figures.close()
        assert now < late
        return late, longest

    late, longest = asyncio.run(run())
    assert late == longest
    assert late > 0.4


class Sink(Inbox):
    def send(self, message: Outgoing) -> None:
        """Takes anything."""


def test_messages_are_counted_in_each_direction_and_those_that_wait() -> None:
    async def run() -> list[Family]:
        wire = Transport()
        sink = Sink(wake=wire.wake)
        wire.add("", sink)
        for _ in range(3):
            sink.put(Incoming("peer", Header(kind="Ack"), b""))
        await wire.receive(0.0)
        wire.send(Outgoing("peer", Header(kind="Ack"), b""))
        figures = ProcessFigures("broker", wire=wire)
        found = figures.families()
        figures.close()
        return found

    found = asyncio.run(run())
    assert values(found, "messages_total") == {("broker", "", "in"): 3, ("broker", "", "out"): 1}
    assert values(found, "messages_waiting") == {("broker", ""): 3}
    assert values(found, "messages_dropped_total") == {("broker", ""): 0}


def test_a_teller_tells_at_once_and_again_until_it_is_closed() -> None:
    async def run() -> int:
        heard: list[int] = []
        again = asyncio.Event()

        def tell() -> None:
            heard.append(1)
            if len(heard) == 3:
                teller.close()
                again.set()

        teller = Teller(tell, every_s=0.0)
        await again.wait()
        await asyncio.sleep(0)
        return len(heard)

    assert asyncio.run(run()) == 3
