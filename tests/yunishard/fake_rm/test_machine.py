"""The fake RM against the real engine in virtual time: applications run and end, also after a loss of everything."""

import pytest

from tests.invariants import check
from tests.yunishard.engine_core import EngineCore
from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.wire import NEVER
from yunishard.common.names import NODE_PARTITION
from yunishard.common.resources import CORES
from yunishard.common.rest.plan import RUN_TIME_TAG
from yunishard.common.simulated_nodes import name_simulated_nodes
from yunishard.common.text_formats import parse_duration
from yunishard.partition_worker.engine.partition import Partition
from yunishard.workloads.fake_rm.machine import OPEN_IN_QUEUE_MAX, FakeNodes, FakeRM
from yunishard.workloads.fake_rm.workload import Workload, build_configuration, find_rate
from yunishard.workloads.replay.user_queues import UserQueues

NODE = {CORES: 16_000, "memory": 64 << 30}


def fake_rm(*, nodes: int = 10, load: float = 0.8, gangs: float = 0.3, seed: int = 7) -> tuple[FakeRM, EngineCore]:
    text = build_configuration(nodes, NODE)
    queues = UserQueues(text)
    rate = find_rate(nodes, load, 60.0)
    drawn = Workload(queues.targets, NODE, rate=rate, gang_share=gangs, seed=seed)
    names = tuple(name_simulated_nodes(nodes))
    fake = FakeRM(FakeNodes(partitions=queues.names, names=names, resources=NODE), drawn, rm_id="fake")
    return fake, EngineCore(text, rm_id="fake")


def partition_of(core: EngineCore) -> Partition:
    return core.partitions["fake_default"]


def play(fake: FakeRM, core: EngineCore, *, until: float) -> None:
    """Play up to a time, from deadline to deadline of both sides."""
    while True:
        for partition, news in core.take(fake.due(core.now), core.now):
            fake.receive(partition, news, core.now)
        if fake.deadline <= core.now:
            continue
        core.now = min(fake.deadline, core.next_timer)
        if core.now > until:
            core.now = until
            return


def test_applications_run_for_their_time_and_end() -> None:
    fake, core = fake_rm()
    play(fake, core, until=1800.0)
    counts = fake.counts
    assert counts.completed > 200
    assert (counts.rejected, counts.ended_by_core, fake.problem) == (0, 0, "")
    assert counts.submitted == counts.completed + fake.applications_open
    check(partition_of(core))
    used = partition_of(core).tree.root.allocated[CORES] / (10 * NODE[CORES])
    assert used > 0.2


def test_both_sides_agree_on_what_runs_and_waits_under_preemption() -> None:
    fake, core = fake_rm(load=2.0, nodes=4)
    play(fake, core, until=900.0)
    assert fake.counts.preempted > 0
    player = fake.players["default"]
    running = {key for key, task in player.tasks.items() if task.node_id}
    assert running == {key for key, one in partition_of(core).allocations.items() if one.node_id}
    active = partition_of(core).applications.values()
    assert set(player.applications) == {one.application_id for one in active if one.state != "Completing"}


def test_after_a_loss_of_everything_the_same_runs_on() -> None:
    fake, core = fake_rm()
    play(fake, core, until=300.0)
    tasks = fake.players["default"].tasks.items()
    running = {key: one.node_id for key, one in tasks if one.node_id and not one.ask.placeholder}
    core.lose("fake_default")
    fake.receive("fake_default", rm_messages.PartitionRestarted(), core.now)
    fake.receive("fake_default", rm_messages.PartitionRestarted(), core.now)  # again, before the report was sent
    play(fake, core, until=300.0)
    there = {key: one.node_id for key, one in partition_of(core).allocations.items()}
    assert running
    assert running.items() <= there.items()
    assert len(list(partition_of(core).nodes)) == 10
    play(fake, core, until=900.0)
    assert fake.problem == ""
    assert fake.counts.rejected == 0


def test_a_full_queue_gets_no_further_applications() -> None:
    fake, core = fake_rm(nodes=1, load=10.0)
    play(fake, core, until=900.0)
    assert fake.counts.held_back > 0
    assert max(fake._open.values()) == OPEN_IN_QUEUE_MAX


def test_a_load_above_100_percent_keeps_a_large_cluster_full() -> None:
    fake, core = fake_rm(nodes=100, load=1.2)
    for minute in range(1, 5):
        play(fake, core, until=60.0 * minute)
        assert partition_of(core).tree.root.allocated[CORES] > 0.85 * 100 * NODE[CORES]


def test_it_does_not_catch_up_after_a_pause() -> None:
    fake, core = fake_rm()
    play(fake, core, until=10.0)
    before = fake.counts.submitted
    fake.due(core.now + 3600)
    assert fake.counts.submitted <= before + 2


def test_without_a_rate_there_are_only_nodes() -> None:
    queues = UserQueues(build_configuration(3, NODE))
    nodes = FakeNodes(partitions=queues.names, names=("a", "b"), resources=NODE)
    fake = FakeRM(nodes, Workload(queues.targets, NODE, rate=0.0), rm_id="fake")
    assert [one.attributes[NODE_PARTITION] for one in fake.due(0.0).nodes] == ["default", "default"]
    assert fake.deadline == NEVER


def submitted(fake: FakeRM) -> str:
    """Submit, and return the id of an application without a gang."""
    batch = fake.due(0.0)
    return next(one.application_id for one in batch.applications if not one.placeholder_ask)


def test_an_application_that_the_core_has_ended_is_removed() -> None:
    fake, _ = fake_rm()
    name = submitted(fake)
    killed = rm_messages.UpdatedApplication(application_id=name, state="Failed")
    fake.receive("fake_default", rm_messages.ApplicationResponse(updated=[killed]), 1.0)
    assert fake.counts.ended_by_core == 1
    assert name in [one.application_id for one in fake.due(1.0).removals]


@pytest.mark.parametrize("what", ["application", "ask", "node", "message"])
def test_a_refusal_is_told(what: str) -> None:
    fake, _ = fake_rm()
    name = submitted(fake)
    news: Message = {
        "application": rm_messages.ApplicationResponse(
            rejected=[rm_messages.RejectedApplication(application_id=name, reason="why")]
        ),
        "ask": rm_messages.AllocationResponse(
            rejected_allocations=[rm_messages.RejectedAllocation(allocation_key=f"{name}.1", reason="why")]
        ),
        "node": rm_messages.NodeResponse(rejected=[rm_messages.RejectedNode(node_id="n", reason="why")]),
        "message": rm_messages.Refused(code="malformed", reason="why", seq=3),
    }[what]
    fake.receive("fake_default", news, 1.0)
    assert fake.problem.startswith(what)
    assert fake.problem.endswith("why")


def test_each_task_states_its_run_time_for_plans() -> None:
    fake, _ = fake_rm()
    asks = fake.due(0.0).asks
    texts = [one.allocation_tags.get(RUN_TIME_TAG, "") for one in asks if not one.placeholder]
    assert texts
    assert all((parse_duration(text) or 0.0) > 0 for text in texts)
    assert not any(one.allocation_tags for one in asks if one.placeholder)
