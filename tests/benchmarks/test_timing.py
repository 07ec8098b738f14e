"""What comes before the clock does not count, and what is timed is all there is."""

import pytest

from benchmarks.latency import figures as latency_figures
from benchmarks.paths.heard import Heard, TooSlow
from benchmarks.paths.systems import grpc, native
from benchmarks.paths.timing import measured, prepare, timed
from benchmarks.results import Plan
from benchmarks.shapes import SHAPES, nearly_full
from benchmarks.ways import figures
from tests.benchmarks.fake import CONNECTED, fake

TINY = Plan(share=0.01, rounds=1)


@pytest.mark.parametrize("name", [name for name in SHAPES if name != "churn"])
def test_a_run_ends_with_everything_placed(name: str) -> None:
    workload = SHAPES[name](10, 60)
    run = measured(fake, workload, 0)
    assert (run.allocations, run.per_second > 0) == (60, True)
    rm = CONNECTED[-1]
    assert {ask.allocation_key for ask in workload.asks} <= rm.heard.running.keys()
    assert rm.closed


def test_in_a_full_cluster_as_many_get_in_as_end() -> None:
    run = measured(fake, SHAPES["churn"](10, 120), 0)
    assert run.allocations == 120
    assert len(CONNECTED[-1].heard.running) == 50
    assert next(iter(CONNECTED[-1].heard.running)) == "k-120"


def test_every_shape_has_a_rate_and_where_there_is_a_reference_a_ratio() -> None:
    found = list(figures("grpc", fake, TINY._replace(reference=fake), ["churn"]))
    assert [one.name for one in found] == ["grpc/churn"]
    assert found[0].ratio is not None


def test_one_ask_is_timed_idle_and_under_load() -> None:
    found = list(latency_figures(TINY._replace(reference=fake), {"grpc": fake}))
    assert [one.name for one in found] == [
        "latency/grpc/idle/median",
        "latency/grpc/idle/99 of 100",
        "latency/grpc/loaded/median",
        "latency/grpc/loaded/99 of 100",
    ]
    assert all(one.value > 0 and one.reference for one in found)


def test_what_was_refused_ends_the_run_at_once() -> None:
    heard = Heard()
    heard.take(nodes=1, refused=["n2: no"])
    with pytest.raises(TooSlow, match=r"1 nodes, .* 1 refusals: .'n2: no'."):
        heard.until(lambda: heard.nodes == 2)


def test_what_does_not_come_in_time_ends_the_run() -> None:
    with pytest.raises(TooSlow, match="0 allocations"):
        Heard().until(lambda: False, patience_s=0)


@pytest.mark.processes
@pytest.mark.parametrize("way", [native, grpc])
def test_a_real_system_does_every_shape(way) -> None:  # type: ignore[no-untyped-def]
    with way() as up:
        for shape in (*SHAPES.values(), nearly_full):
            workload = shape(10, 200)
            rm = up.connect(workload.config)
            try:
                prepare(rm, workload, 0)
                run = timed(up, rm, workload)
            finally:
                rm.close()
            assert run.allocations == 200
            assert {"client", "rmproxy", "broker", "partition_worker"} <= run.cpu_us().keys()
