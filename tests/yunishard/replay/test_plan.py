"""The plan has room for every job, names that the core takes, and loses nothing silently."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.config.check import load, load_problems
from common.names import PARTITION, QUEUE, USER
from tests.yunishard.replay.swf_lines import swf_line, swf_log
from yunishard.replay import swf
from yunishard.replay.plan import ASKS_PER_SECOND_MAX, NODES_MAX, TASKS_MAX, WATCHED_S, Plan, PlannedJob, plan


def planned(*lines: str, partitions: int = 6, load: float = 0.7, nodes: int | None = None) -> Plan:
    return plan(swf_log(*lines), rm_id="replay", partitions=partitions, load=load, nodes=nodes)


def partitions(of: Plan) -> dict[str, int]:
    return {site.partition: site.jobs for site in of.sites}


def test_the_busiest_sites_are_partitions_and_the_others_share_one() -> None:
    sites = [1, 2, 2, 2, 3, 3, 4]
    wanted = planned(
        "; Partition: 2 rl.ac.uk", *(swf_line(n, site=site) for n, site in enumerate(sites, start=1)), partitions=2
    )
    assert partitions(wanted) == {"rl.ac.uk": 3, "site-3": 2, "other": 2}
    assert wanted.folded_sites == 2


def test_a_log_without_sites_is_one_partition() -> None:
    assert partitions(planned(swf_line(1, site=-1))) == {"default": 1}


def test_names_are_ones_that_the_core_takes_each_once() -> None:
    names = ["a b/c", "A-b-c", "replay_x", "x", "other", "x" * 200]
    header = [f"; Partition: {number} {name}" for number, name in enumerate(names, start=1)]
    jobs = [swf_line(10 * site + n, site=site) for site in range(1, 8) for n in range(10 - site)]
    found = list(partitions(planned(*header, *jobs)))
    assert found == ["a-b-c", "A-b-c-2", "replay_x", "x-2", "other", "x" * 56, "other-2"]
    assert all(PARTITION.fullmatch(name) for name in found)


def test_a_job_becomes_an_application_of_its_group_and_user() -> None:
    (job,) = planned(swf_line(5, run=90, processors=3, memory=100, user=34, group=12)).jobs
    assert job == PlannedJob(
        application_id="job-5",
        partition="site-1",
        group="g12",
        user="u34",
        submit_s=0,
        run_s=90,
        processors=3,
        memory=102_400,
    )
    assert job.queue == "root.g12.u34"
    assert job.tasks() == [1, 1, 1]


def test_unknown_users_and_groups_have_a_name() -> None:
    (job,) = planned(swf_line(5, user=-1, group=-1)).jobs
    assert job.queue == "root.unknown.unknown"
    assert USER.fullmatch(job.user)
    assert QUEUE.fullmatch(job.group)


def test_jobs_are_submitted_in_order_from_the_first_one() -> None:
    wanted = planned(swf_line(1, submit=500), swf_line(2, submit=200), swf_line(3, submit=500))
    assert [(job.application_id, job.submit_s) for job in wanted.jobs] == [("job-2", 0), ("job-1", 300), ("job-3", 300)]


def test_what_cannot_be_replayed_is_counted_by_reason() -> None:
    wanted = planned(
        swf_line(1),
        swf_line(1, status=3),
        swf_line(2, run=-1),
        swf_line(3, run=-1),
        swf_line(4, processors=0),
        swf_line(5, processors=2_000_000),
        swf_line(6, memory=10**12),
        swf_line(7, processors=-1, requested=2),
    )
    assert [job.application_id for job in wanted.jobs] == ["job-1", "job-7"]
    assert wanted.jobs[1].processors == 2
    assert list(wanted.left_out.values()) == [1, 2, 1, 1, 1]


def test_a_site_has_the_processors_that_its_load_wants() -> None:
    lines = [swf_line(n, submit=n, run=1000) for n in range(100)]
    assert planned(*lines, load=1.0).sites[0].processors == 6 * 16  # the first multiple above 100,000 / 1,099
    assert planned(*lines, load=0.5).sites[0].processors > 180
    assert planned(*lines, nodes=3).sites[0].processors == 48


def test_a_small_site_has_one_small_node() -> None:
    (site,) = planned(swf_line(1, run=100), swf_line(2, submit=1000, run=100)).sites
    assert (site.nodes, site.node_processors) == (1, 1)


@given(st.integers(min_value=1, max_value=1_000_000))
def test_tasks_are_even_bounded_and_together_the_job(processors: int) -> None:
    (job,) = planned(swf_line(1, processors=processors)).jobs
    tasks = job.tasks()
    assert sum(tasks) == processors
    assert len(tasks) <= TASKS_MAX
    assert max(tasks) - min(tasks) <= 1


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6)), min_size=1, max_size=30),
    st.sampled_from([0.01, 0.7, 5.0]),
    st.sampled_from([None, 1, 7]),
)
def test_every_task_fits_a_node(jobs: list[tuple[int, int, int]], load: float, nodes: int | None) -> None:
    lines = [swf_line(n, submit=s, run=r, processors=p, memory=p) for n, (s, r, p) in enumerate(jobs)]
    wanted = planned(*lines, load=load, nodes=nodes)
    (site,) = wanted.sites
    assert site.nodes <= NODES_MAX
    for job in wanted.jobs:
        assert max(job.tasks()) <= site.node_processors
        assert max(job.tasks()) * job.memory <= site.node_memory < 2**63
        if nodes is None:
            assert job.processors <= site.processors


def test_the_default_speed_is_about_a_minute_but_not_too_many_asks_a_second() -> None:
    day = planned(swf_line(1), swf_line(2, submit=86_400, run=0))
    assert day.default_speed == pytest.approx(86_400 / WATCHED_S)
    assert planned(swf_line(1, run=0)).default_speed == 1.0
    many = replace(day, jobs=day.jobs * 50_000)
    assert many.span_s / many.default_speed == pytest.approx(100_000 / ASKS_PER_SECOND_MAX)


def test_the_core_accepts_the_configuration() -> None:
    configuration = load(planned("; Partition: 1 0", swf_line(1), swf_line(2, site=2)).configuration())
    assert [part.name for part in configuration.partitions] == ["0", "site-2"]
    assert not [problem for part in configuration.partitions for problem in load_problems(part)]


def test_the_example_has_six_busy_partitions() -> None:
    log = swf.load(Path(__file__).parents[3] / "examples" / "lcg-2005.swf.gz")
    wanted = plan(log, rm_id="replay")
    assert len(wanted.jobs) == len(log.jobs)
    assert wanted.sites[0].partition == "lxgate13.cern.ch"
    assert len(wanted.sites) == 6
    assert 1000 < sum(site.processors for site in wanted.sites) < 2000
