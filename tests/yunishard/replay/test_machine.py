"""The replay's machine against the engine, in virtual time: it submits, runs, releases, removes, and proves it."""

import random
from collections.abc import Iterator

import pytest

from tests.yunishard.engine_core import EngineCore
from tests.yunishard.replay.swf_lines import swf_line, swf_log
from yunishard.common.messages.rm_messages import (
    PLACEHOLDER_REPLACED,
    PREEMPTED_BY_SCHEDULER,
    STOPPED_BY_RM,
    TIMEOUT,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    NodeResponse,
    PartitionRestarted,
    Refused,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    UpdatedApplication,
)
from yunishard.common.messages.wire import NEVER
from yunishard.common.rm_player import Batch
from yunishard.workloads.replay.machine import ASKS_IN_A_BATCH_MAX, PROBLEMS_KEPT_MAX, Replay
from yunishard.workloads.replay.workload import plan

SITE = "replay_site-1"
TURNS_MAX = 100_000


def replay_of(*lines: str, load: float = 0.7, nodes: int | None = None) -> Replay:
    return Replay(plan(swf_log(*lines), rm_id="replay", load=load, nodes=nodes), rm_id="replay")


def with_core(replay: Replay) -> tuple[Replay, EngineCore]:
    return replay, EngineCore(replay.plan.build_configuration(), rm_id="replay")


def turn(replay: Replay, core: EngineCore, now: float) -> None:
    """Send what is due, hear what comes back."""
    for partition, news in core.take(replay.due(now), now):
        replay.receive(partition, news, now)


def times(replay: Replay, core: EngineCore) -> Iterator[float]:
    """Play to the end, jumping from deadline to deadline; every time at which something happened."""
    now = 0.0
    for _ in range(TURNS_MAX):
        turn(replay, core, now)
        yield now
        if replay.phase == "over":
            return
        if replay.deadline != NEVER:
            now = max(now, replay.deadline)
    pytest.fail(f"not over after {TURNS_MAX} turns: {list(replay.find_missing())[:5]}")


def play(replay: Replay, core: EngineCore) -> float:
    return max(times(replay, core))


def test_nothing_is_submitted_before_every_node_is_there() -> None:
    replay = replay_of(swf_line(1), swf_line(2, site=2))
    first = replay.due(0.0)
    assert len(first.nodes) == 2
    assert not first.applications
    _, core = with_core(replay)
    results = core.take(first, 0.0)
    replay.receive(*results[0], 0.0)
    assert (replay.phase, replay.deadline) == ("joining", NEVER)
    assert replay.due(50.0) == Batch()
    replay.receive(*results[1], 0.0)
    assert (replay.phase, replay.deadline) == ("replaying", 0)


def test_a_job_lives_from_submission_to_removal() -> None:
    replay, core = with_core(replay_of(swf_line(1), swf_line(2, submit=100, run=40, processors=2)))
    turn(replay, core, 0.0)
    turn(replay, core, 99.0)
    turn(replay, core, 100.0)
    job = replay.jobs["job-2"]
    assert (job.state, core.keys(SITE, running=True)) == ("running", ["job-1.1", "job-2.1"])
    assert core.keys(SITE, running=False) == ["job-2.2"]  # a processor is not yet free
    turn(replay, core, 159.0)
    assert (job.state, core.keys(SITE, running=True)) == ("running", ["job-2.2"])
    assert job.wait_s == 59.0
    turn(replay, core, 199.0)
    assert (job.state, core.cut_off) == ("done", 0)
    assert core.empty


def test_the_core_is_asked_last_whether_it_has_handled_everything() -> None:
    replay, core = with_core(replay_of(swf_line(1, run=10)))
    for now in (0.0, 0.0):
        turn(replay, core, now)
    last = replay.due(10.0)
    assert (len(last.releases), len(last.removals), last.nodes) == (1, 1, [])
    core.take(last, 10.0)
    assert core.empty
    assert core.cut_off == 0
    question = replay.due(10.0)
    assert (replay.phase, len(question.nodes)) == ("settling", 1)
    assert not replay.is_complete
    for partition, news in core.take(question, 10.0):
        replay.receive(partition, news, 10.0)
    assert replay.is_complete
    assert not replay.problems


def test_a_whole_log_runs_and_the_books_agree() -> None:
    chance = random.Random(7)
    lines = [
        swf_line(
            n,
            submit=chance.randrange(10_000),
            run=chance.choice([0, 5, 300, 4000]),
            processors=150 if n == 50 else chance.choice([1, 1, 4]),
            site=chance.choice([1, 1, 1, 2, 3]),
            user=chance.randrange(5),
            group=chance.randrange(2),
        )
        for n in range(300)
    ]
    replay, core = with_core(replay_of(*lines))
    end_s = play(replay, core)
    assert replay.is_complete
    assert list(replay.find_missing()) == []
    assert core.empty
    assert core.cut_off == 0
    assert [job.state for job in replay.jobs.values()] == 300 * ["done"]
    assert replay.allocations == sum(len(job.split_tasks()) for job in replay.plan.jobs)
    assert max(replay.end_s.values()) == end_s
    for site in replay.plan.sites:
        root = core.partitions[f"replay_{site.partition}"].tree.root
        assert not any(root.allocated.values())
    assert any(job.wait_s > 0 for job in replay.jobs.values())


def test_a_batch_is_bounded_and_the_rest_follows() -> None:
    replay, core = with_core(replay_of(*(swf_line(n) for n in range(ASKS_IN_A_BATCH_MAX + 5))))
    turn(replay, core, 0.0)
    assert len(replay.due(0.0).asks) == ASKS_IN_A_BATCH_MAX
    assert replay.deadline == 0.0
    assert len(replay.due(0.0).asks) == 5


def test_a_refused_application_fails_by_name_and_the_others_run() -> None:
    replay, core = with_core(replay_of(swf_line(1), swf_line(2, processors=3, user=9)))
    core.refuse.add("job-2")
    play(replay, core)
    assert core.empty
    assert not replay.is_complete
    assert list(replay.find_missing()) == ["job-2 (site-1, root.g1.u9) failed: refused: not today"]


def test_a_refused_ask_fails_its_job_when_its_other_tasks_are_gone() -> None:
    replay, core = with_core(replay_of(swf_line(1, processors=2)))
    turn(replay, core, 0.0)
    replay.due(0.0)
    rejected = RejectedAllocation(allocation_key="job-1.2", application_id="job-1", reason="too big")
    replay.receive(SITE, AllocationResponse(rejected_allocations=[rejected]), 1.0)
    replay.receive(SITE, AllocationResponse(new=[Allocation(allocation_key="job-1.1", node_id="node-1")]), 1.0)
    assert replay.jobs["job-1"].state == "running"
    last = replay.due(61.0)
    assert [item.allocation_key for item in last.releases] == ["job-1.1"]
    assert [item.application_id for item in last.removals] == ["job-1"]
    assert replay.jobs["job-1"].problem == "ask job-1.2 refused: too big"
    assert replay.jobs["job-1"].state == "failed"


def test_an_allocation_that_is_taken_away_fails_its_job() -> None:
    replay, core = with_core(replay_of(swf_line(1)))
    turn(replay, core, 0.0)
    turn(replay, core, 0.0)
    gone = AllocationRelease(allocation_key="job-1.1", termination_type=STOPPED_BY_RM, message="its node is gone")
    replay.receive(SITE, AllocationResponse(released=[gone]), 5.0)
    assert [item.application_id for item in replay.due(5.0).removals] == ["job-1"]
    assert list(replay.find_missing()) == [
        "job-1 (site-1, root.g1.u1) failed: allocation job-1.1 ended by the core: its node is gone"
    ]
    assert not replay.due(60.0).releases


def test_a_job_that_an_operator_kills_fails_and_does_not_ask_again() -> None:
    replay, core = with_core(replay_of(swf_line(1)))
    turn(replay, core, 0.0)
    turn(replay, core, 0.0)
    killed = UpdatedApplication(application_id="job-1", state="Failing", message="killed by alice")
    replay.receive(SITE, ApplicationResponse(updated=[killed]), 5.0)
    victim = AllocationRelease(allocation_key="job-1.1", termination_type=PREEMPTED_BY_SCHEDULER)
    replay.receive(SITE, AllocationResponse(released=[victim]), 5.0)
    batch = replay.due(5.0)
    assert not batch.asks
    assert [one.application_id for one in batch.removals] == ["job-1"]
    job = replay.jobs["job-1"]
    assert (job.state, job.is_refused, job.preemptions) == ("failed", False, 0)
    assert job.problem == "ended by the core: killed by alice"


def test_a_preempted_task_is_confirmed_and_asks_again() -> None:
    replay, core = with_core(replay_of(swf_line(1, run=60)))
    turn(replay, core, 0.0)
    turn(replay, core, 0.0)
    victim = AllocationRelease(allocation_key="job-1.1", termination_type=PREEMPTED_BY_SCHEDULER, message="a victim")
    replay.receive(SITE, AllocationResponse(released=[victim]), 5.0)
    batch = replay.due(5.0)
    assert [(one.allocation_key, one.termination_type) for one in batch.releases] == [
        ("job-1.1", PREEMPTED_BY_SCHEDULER)
    ]
    assert [one.allocation_key for one in batch.asks] == ["job-1.1~2"]
    started = Allocation(allocation_key="job-1.1~2", application_id="job-1", node_id="node-1")
    replay.receive(SITE, AllocationResponse(new=[started]), 9.0)
    job = replay.jobs["job-1"]
    assert (job.preemptions, job.lost_s, job.wait_s, job.state) == (1, 5.0, 0.0, "running")
    (last,) = replay.due(69.0).releases
    replay.receive(SITE, AllocationResponse(released=[last]), 69.0)
    assert (job.state, job.end_s, job.problem) == ("done", 69.0, "")


def gang_of_two() -> Replay:
    replay = Replay(plan(swf_log(swf_line(1, processors=2)), rm_id="replay", nodes=1), rm_id="replay", gang=True)
    replay.due(0.0)
    replay.receive(SITE, NodeResponse(accepted=[AcceptedNode(node_id="node-1")]), 0.0)
    return replay


def test_a_gang_asks_for_placeholders_and_then_for_its_tasks() -> None:
    replay = gang_of_two()
    batch = replay.due(0.0)
    assert batch.applications[0].placeholder_ask == {"vcore": 2000}
    assert [(one.allocation_key, one.placeholder) for one in batch.asks] == [
        ("job-1.1.placeholder", True),
        ("job-1.2.placeholder", True),
    ]
    placed = [Allocation(allocation_key=one.allocation_key, node_id="node-1") for one in batch.asks]
    replay.receive(SITE, AllocationResponse(new=placed), 3.0)
    assert replay.jobs["job-1"].state == "waiting"
    for _ in range(2):  # the second one changes nothing
        running = UpdatedApplication(application_id="job-1", state="Running")
        replay.receive(SITE, ApplicationResponse(updated=[running]), 3.0)
    tasks = replay.due(3.0).asks
    assert [(one.allocation_key, one.placeholder) for one in tasks] == [("job-1.1", False), ("job-1.2", False)]
    assert {one.task_group_name for one in (*batch.asks, *tasks)} == {"1-processors"}
    for key in ("job-1.1", "job-1.2"):
        replaced = AllocationRelease(
            allocation_key=f"{key}.placeholder", application_id="job-1", termination_type=PLACEHOLDER_REPLACED
        )
        replay.receive(SITE, AllocationResponse(released=[replaced]), 3.0)
        (confirmed,) = replay.due(3.0).releases
        assert confirmed.termination_type == PLACEHOLDER_REPLACED
        replay.receive(SITE, AllocationResponse(new=[Allocation(allocation_key=key, node_id="node-1")]), 4.0)
    assert (replay.jobs["job-1"].state, replay.jobs["job-1"].wait_s, replay.allocations) == ("running", 4.0, 2)
    released = replay.due(64.0).releases
    replay.receive(SITE, AllocationResponse(released=released), 64.0)
    assert replay.jobs["job-1"].state == "done"


def test_a_gang_that_did_not_get_all_placeholders_runs_without() -> None:
    replay = gang_of_two()
    replay.due(0.0)
    placed = Allocation(allocation_key="job-1.1.placeholder", application_id="job-1", node_id="node-1")
    replay.receive(SITE, AllocationResponse(new=[placed]), 0.0)
    late = AllocationRelease(allocation_key="job-1.1.placeholder", application_id="job-1", termination_type=TIMEOUT)
    replay.receive(SITE, AllocationResponse(released=[late]), 900.0)
    resuming = UpdatedApplication(application_id="job-1", state="Resuming")
    replay.receive(SITE, ApplicationResponse(updated=[resuming]), 900.0)
    batch = replay.due(900.0)
    assert [one.termination_type for one in batch.releases] == [TIMEOUT]
    assert [one.allocation_key for one in batch.asks] == ["job-1.1", "job-1.2"]


def test_a_refused_gang_fails_by_name() -> None:
    replay = gang_of_two()
    replay.due(0.0)
    refused = RejectedApplication(application_id="job-1", reason="larger than its queue")
    replay.receive(SITE, ApplicationResponse(rejected=[refused]), 0.0)
    assert replay.due(0.0).removals == []
    assert next(replay.find_missing()) == "job-1 (site-1, root.g1.u1) failed: refused: larger than its queue"
    assert replay.jobs["job-1"].is_refused


def test_a_repeated_answer_changes_nothing() -> None:
    replay, core = with_core(replay_of(swf_line(1)))
    turn(replay, core, 0.0)
    for partition, news in core.take(replay.due(0.0), 0.0):
        replay.receive(partition, news, 0.0)
        replay.receive(partition, news, 7.0)
    assert replay.allocations == 1
    turn(replay, core, 60.0)
    replay.receive(SITE, AllocationResponse(released=[AllocationRelease(allocation_key="job-1.1")]), 61.0)
    replay.receive(SITE, ApplicationResponse(), 61.0)
    assert replay.jobs["job-1"].state == "done"


def test_a_restarted_partition_is_told_everything_again_and_the_replay_completes() -> None:
    lines = [swf_line(n, submit=10 * n, run=95, processors=1 + n % 3, site=1 + n % 2) for n in range(60)]
    replay, core = with_core(replay_of(*lines, load=1.5))
    lost: set[str] = set()
    for now in times(replay, core):
        if now > 200 and not lost:
            waiting = replay.due(now)  # a release is under way while the worker dies
            core.take(waiting, now)
            lost = set(core.keys(SITE, running=True))
            core.lose(SITE)
            replay.receive(SITE, PartitionRestarted(), now)
            report = replay.due(now)
            assert report.reports == ["site-1"]
            for partition, news in core.take(report, now):
                replay.receive(partition, news, now)
            assert lost <= set(core.keys(SITE, running=True))
            assert core.keys(SITE, running=False)
    assert lost
    assert replay.is_complete
    assert core.empty


def test_a_refused_node_and_a_refused_message_are_reported() -> None:
    replay = replay_of(swf_line(1))
    replay.receive(SITE, NodeResponse(rejected=[RejectedNode(node_id="node-1", reason="no room")]), 0.0)
    replay.receive(SITE, Refused(code="oversized", reason="too long", seq=3), 0.0)
    replay.receive("replay_else", NodeResponse(), 0.0)
    assert replay.problems == [
        "site-1: node node-1 refused: no room",
        "replay_site-1: message 3 refused (oversized): too long",
        "unexpected NodeResponse from 'replay_else'",
    ]
    for _ in range(100):
        replay.note("again")
    assert len(replay.problems) == PROBLEMS_KEPT_MAX


def test_what_is_open_is_missing_by_its_state() -> None:
    replay, core = with_core(replay_of(swf_line(1), swf_line(2), swf_line(3, submit=1000)))
    turn(replay, core, 0.0)
    turn(replay, core, 0.0)
    assert [name.rsplit(" ", 1)[1] for name in replay.find_missing()] == ["running", "waiting", "planned"]
    assert not replay.is_complete


def test_a_partition_that_forgets_twice_before_it_is_told_is_told_once() -> None:
    replay, core = with_core(replay_of(swf_line(1)))
    turn(replay, core, 0.0)
    for _ in range(2):
        replay.receive(SITE, PartitionRestarted(), 1.0)
    batch = replay.due(1.0)
    assert (batch.reports, len(batch.nodes)) == (["site-1"], 1)


def test_a_partition_that_does_not_answer_is_missing_by_name() -> None:
    replay = replay_of(swf_line(1, run=1))
    assert list(replay.find_missing())[-1] == "site-1: no answer about 1 nodes"
