"""Random applications are the same for the same seed, fit a node, and keep the wanted share of the nodes busy."""

import itertools

import pytest

from yunishard.common.config.validation import load
from yunishard.common.resources import CORES
from yunishard.workloads.fake_rm.workload import RATE_MAX, TASKS_MAX, Workload, build_configuration, find_rate

NODE = {CORES: 16_000, "memory": 64 << 30, "gpu": 4}
QUEUES = (("default", "root.a"), ("default", "root.b"))


def workload(*, seed: int = 1, rate: float = 30.0) -> Workload:
    return Workload(QUEUES, NODE, rate=rate, seed=seed)


def test_a_seed_gives_the_same_applications_at_the_same_times() -> None:
    one, other = ([(w.draw_pause(), w.draw_submission()) for _ in range(50)] for w in (workload(), workload()))
    assert one == other
    assert workload(seed=2).draw_submission() != one[0][1]


def test_every_task_fits_a_node_and_some_use_special_resources() -> None:
    drawn = workload()
    submissions = [drawn.draw_submission() for _ in range(500)]
    assert all(0 < amount <= NODE[kind] for one in submissions for kind, amount in one.resources.items())
    assert {len(one.runs_s) for one in submissions} == set(range(1, TASKS_MAX + 1))
    assert 0 < sum("gpu" in one.resources for one in submissions) < 250
    assert 0 < sum(one.is_gang for one in submissions) < 250
    assert all(len(one.runs_s) > 1 for one in submissions if one.is_gang)
    assert len({one.application_id for one in submissions}) == 500


def test_the_rate_keeps_the_wanted_share_of_the_nodes_busy() -> None:
    rate = find_rate(100, 0.8, 60.0)
    drawn = workload(rate=rate)
    submissions = list(itertools.islice(iter(drawn.draw_submission, None), 5000))
    core_seconds = sum(one.resources[CORES] * sum(one.runs_s) for one in submissions)
    minutes = len(submissions) / rate
    assert core_seconds / (minutes * 60) == pytest.approx(0.8 * 100 * NODE[CORES], rel=0.1)
    pauses = [drawn.draw_pause() for _ in range(2000)]
    assert sum(pauses) / len(pauses) == pytest.approx(60 / rate, rel=0.1)


def test_the_rate_is_bounded() -> None:
    assert find_rate(10_000, 10.0, 1.0) == RATE_MAX
    assert workload(rate=1e9).rate == RATE_MAX


def test_the_built_in_queues_are_valid_for_any_node() -> None:
    for nodes, node in ((1, {CORES: 1}), (10_000, NODE)):
        (partition,) = load(build_configuration(nodes, node)).partitions
        assert partition.name == "default"
