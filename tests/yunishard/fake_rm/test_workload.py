"""Random applications are the same for the same seed, fit a node, and keep the wanted share of the nodes busy."""

import itertools

import pytest

from yunishard.common.config.validation import load
from yunishard.common.resources import CORES
from yunishard.common.rm_player import Submission
from yunishard.workloads.fake_rm.workload import RATE_MAX, TASKS_MAX, Workload, build_configuration, find_rate

NODE = {CORES: 16_000, "memory": 64 << 30, "gpu": 4}
QUEUES = (("default", "root.a"), ("default", "root.b"))


def workload(*, seed: int = 1, rate: float = 30.0) -> Workload:
    return Workload(QUEUES, NODE, rate=rate, seed=seed)


def draw(drawn: Workload, count: int) -> list[tuple[float, Submission]]:
    return list(itertools.islice(drawn.draw_submissions(), count))


def test_a_seed_gives_the_same_applications_at_the_same_times() -> None:
    one, other = (draw(workload(), 50) for _ in range(2))
    assert one == other
    assert draw(workload(seed=2), 1)[0] != one[0]


def test_every_task_fits_a_node_and_some_use_special_resources() -> None:
    submissions = [one for _, one in draw(workload(), 500)]
    sizes = [one.tasks[0].ask.resource_per_alloc for one in submissions]
    assert all(0 < amount <= NODE[kind] for size in sizes for kind, amount in size.items())
    assert {len(one.tasks) for one in submissions} == set(range(1, TASKS_MAX + 1))
    assert 0 < sum("gpu" in size for size in sizes) < 250
    assert 0 < sum(bool(one.placeholders) for one in submissions) < 250
    assert all(len(one.placeholders) in (0, len(one.tasks)) for one in submissions)
    assert all(len(one.tasks) > 1 for one in submissions if one.placeholders)
    assert len({one.application.application_id for one in submissions}) == 500


def test_the_rate_keeps_the_wanted_share_of_the_nodes_busy() -> None:
    rate = find_rate(100, 0.8, 60.0)
    drawn = draw(workload(rate=rate), 5000)
    tasks = [task for _, one in drawn for task in one.tasks]
    core_seconds = sum(task.ask.resource_per_alloc[CORES] * (task.run_s or 0.0) for task in tasks)
    minutes = len(drawn) / rate
    assert core_seconds / (minutes * 60) == pytest.approx(0.8 * 100 * NODE[CORES], rel=0.1)
    later = [at for at, _ in drawn if at]
    assert later[-1] / len(later) == pytest.approx(60 / rate, rel=0.1)


def test_the_rate_is_bounded() -> None:
    assert find_rate(10_000, 10.0, 1.0) == RATE_MAX
    assert workload(rate=1e9).rate == RATE_MAX


def test_the_built_in_queues_are_valid_for_any_node() -> None:
    for nodes, node in ((1, {CORES: 1}), (10_000, NODE)):
        (partition,) = load(build_configuration(nodes, node)).partitions
        assert partition.name == "default"
