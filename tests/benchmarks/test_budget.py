"""What more cores would give is reckoned from what an allocation costs each process."""

import pytest

from benchmarks.budget import ROLES, figures, reckoned
from benchmarks.results import Plan
from benchmarks.scaling import MORE, PARTITIONS, spread
from benchmarks.scaling import figures as scaling_figures
from common.config.validation import load

US = {"client": 5.0, "rmproxy": 4.0, "broker": 1.0, "partition_worker": 20.0}


@pytest.mark.parametrize(
    ("cores", "partitions", "rate"),
    [
        (1, 1, 1e6 / 30),  # one core does it all
        (2, 1, 1e6 / 20),  # the worker has no time left
        (2, 4, 1e6 / 15),  # the cores have none
        (8, 2, 1e6 / 10),  # the two workers have none
        (64, 64, 1e6 / 5),  # the client has none
    ],
)
def test_the_rate_ends_where_the_first_has_no_time_left(cores: int, partitions: int, rate: float) -> None:
    assert reckoned(US, cores=cores, partitions=partitions) == pytest.approx(rate)


@pytest.mark.parametrize("partitions", [1, 3, 4])
def test_partitions_share_nodes_and_asks(partitions: int) -> None:
    workload = spread(12, 120, partitions)
    assert [one.name for one in load(workload.config).partitions] == [f"p{n}" for n in range(partitions)]
    assert (len(workload.nodes), len(workload.asks), len(workload.applications)) == (12, 120, 2 * partitions)
    assert len({ask.allocation_key for ask in workload.asks}) == 120
    assert {ask.partition_name for ask in workload.asks[:partitions]} == {f"p{n}" for n in range(partitions)}


@pytest.mark.processes
def test_every_process_is_in_the_budget_and_the_worker_and_all_together_are_judged() -> None:
    found = list(figures(Plan(share=0.02, rounds=1)))
    assert [one.name for one in found] == [
        *(f"budget/{way}/partition_worker, as installed" for way in ("native", "grpc")),
        *(f"budget/{way}/{what}" for way in ("native", "grpc") for what in (*ROLES, "server")),
    ]
    assert [one.name for one in found if one.cost] == [
        f"budget/{way}/{what}" for way in ("native", "grpc") for what in ("partition_worker", "server")
    ]


@pytest.mark.processes
def test_each_number_of_partitions_is_measured_and_more_are_reckoned() -> None:
    found = [one.name for one in scaling_figures(Plan(share=0.01, rounds=1))]
    assert [name for name in found if name.count("/") == 1] == [f"scaling/{number}" for number in PARTITIONS]
    assert {f"scaling/reckoned/4 cores/{number}" for number in MORE} <= set(found)
