"""A change of configuration while things die: whatever is killed, and after whichever message, all partitions of the
RM end up with one configuration, the old or the new, and everybody was told the truth about it.

The change goes over all there is: one partition stays and gets another queue, one goes, one comes.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from tests.world import World
from tests.world_rm import RM
from yunishard.common.config.model import compute_checksum
from yunishard.common.config.validation import load
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import ChangeConfig
from yunishard.common.messages.wire import Outgoing, make_outgoing
from yunishard.common.names import BROKER, normalise_partition_name

QUEUES: Final = "queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]"
MORE: Final = "queues: [{name: root, submitacl: '*', queues: [{name: batch}, {name: more}]}]"
OLD: Final = f"partitions: [{{name: default, {QUEUES}}}, {{name: gpu, {QUEUES}}}, {{name: stays, {QUEUES}}}]"
NEW: Final = f"partitions: [{{name: default, {MORE}}}, {{name: stays, {QUEUES}}}, {{name: comes, {QUEUES}}}]"
BY_CHECKSUM: Final = {compute_checksum(OLD): OLD, compute_checksum(NEW): NEW}

STEPS: Final = 43
"""Deliveries and ticks in the course of a change: each is a place to die at."""

MORTALS: Final = (BROKER, "rm-1_default", "rm-1_gpu", "rm-1_stays", "rm-1_comes")


def a_world(seed: int) -> tuple[World, RM]:
    """An RM with work in three partitions."""
    world, rm = World(seed), RM("rm-1", config=OLD)
    world.join(rm)
    world.until(lambda: rm.open)
    for partition in ("default", "gpu", "stays"):
        world.carry(rm.peer, rm.furnish(partition, nodes=1, vcore=3))
        world.carry(rm.peer, rm.ask(partition, "k1", "k2"))
    world.settle()
    return world, rm


def by_the_rm(rm: RM) -> tuple[str, list[Outgoing]]:
    return rm.peer, rm.reconfigure(NEW)


def by_a_front_end(rm: RM) -> tuple[str, list[Outgoing]]:
    change = ChangeConfig(config=NEW, author="alice")
    return "webservice", [make_outgoing(BROKER, change, Header(kind="ChangeConfig", rm=rm.rm_id, ref="1"))]


def running(world: World) -> dict[str, object]:
    return {name: worker.partition and worker.partition.config for name, worker in sorted(world.workers.items())}


def meant(rm: RM, text: str) -> dict[str, object]:
    partitions = load(text).partitions
    return {normalise_partition_name(rm.rm_id, one.name): one for one in sorted(partitions, key=lambda one: one.name)}


def truth(world: World, rm: RM) -> str:
    """The configuration that everything runs; fails if there is no such."""
    assert rm.checksum in BY_CHECKSUM
    text = BY_CHECKSUM[rm.checksum]
    assert running(world) == meant(rm, text)
    assert list(rm.session.partitions) == [
        normalise_partition_name(rm.rm_id, one.name) for one in load(text).partitions
    ]
    return text


def nothing_is_lost(world: World, rm: RM, text: str) -> None:
    """No partition has begun anew, and each goes on where it was."""
    assert rm.restarts == []
    assert rm.session.session == "s1"
    names = [normalise_partition_name(rm.rm_id, one.name) for one in load(text).partitions]
    for name in names:
        short = name.removeprefix(f"{rm.rm_id}_")
        if short == "comes":
            continue
        world.carry(rm.peer, [*rm.ask(short, "k3"), *rm.release(short, "k1")])
    world.settle()
    went = {"rm-1_default", "rm-1_gpu", "rm-1_stays"} - set(names)
    old = [f"rm-1_{partition}/{key}" for partition in ("default", "gpu", "stays") for key in ("k1", "k2")]
    new = [f"{name}/k3" for name in names if name != "rm-1_comes"]
    assert sorted(rm.allocated) == sorted([*old, *new])
    told = [f"{name}/{key}" for name in went for key in ("k1", "k2")]
    assert sorted(rm.released) == sorted([*told, *(f"{name}/k1" for name in names if name != "rm-1_comes")])


@pytest.mark.parametrize("ask", [by_the_rm, by_a_front_end])
def test_undisturbed_the_change_reaches_everybody(ask: Callable[[RM], tuple[str, list[Outgoing]]]) -> None:
    world, rm = a_world(1)
    world.carry(*ask(rm))
    steps = 0
    while world.busy:
        world.step()
        steps += 1
    assert steps == STEPS
    assert truth(world, rm) == NEW
    assert rm.updates == 1
    assert sorted(rm.released) == ["rm-1_gpu/k1", "rm-1_gpu/k2"]
    assert rm.restarts == []
    world.carry(rm.peer, rm.ask("stays", "k3"))
    world.settle()
    assert "rm-1_stays/k3" in rm.allocated


def test_what_is_asked_of_a_partition_that_goes_is_released_or_refused_and_the_session_goes_on() -> None:
    ended_in_its_queue = 0
    for step in range(STEPS):
        world, rm = a_world(step)
        world.carry(*by_a_front_end(rm))
        for _ in range(step):
            world.step()
        world.carry(rm.peer, rm.ask("gpu", "late"))
        world.settle()
        assert rm.refusals == []
        assert rm.failing == ["rm-1_gpu/app"]
        ended_in_its_queue += not {"rm-1_gpu/late"} & {*rm.refused, *rm.allocated}
        assert not {*rm.refused} & {*rm.allocated}
        assert sorted(rm.released) == sorted(one for one in rm.allocated if one.startswith("rm-1_gpu/"))
        world.carry(rm.peer, rm.ask("stays", "k3"))
        world.settle()
        assert "rm-1_stays/k3" in rm.allocated
    assert ended_in_its_queue <= 2, "only one that waits in the moment in which its application fails"


def test_what_is_said_to_a_partition_before_it_comes_is_answered_and_it_works_afterwards() -> None:
    early = 0
    for step in range(STEPS):
        world, rm = a_world(step)
        world.carry(rm.peer, rm.ask("comes", "too-early"))
        world.carry(*by_a_front_end(rm))
        for _ in range(step):
            world.step()
        world.carry(rm.peer, rm.furnish("comes", nodes=1, vcore=3))
        world.settle()
        early += "rm-1_comes/n0" in rm.refused_nodes
        assert len(rm.refused_nodes) + rm.nodes.count("rm-1_comes/n0") == 1
        assert rm.refused == ["rm-1_comes/too-early"]
        assert rm.refusals == []
        if rm.refused_nodes:
            world.carry(rm.peer, rm.furnish("comes", nodes=1, vcore=3))
            world.settle()
        world.carry(rm.peer, rm.ask("comes", "k1"))
        world.settle()
        assert "rm-1_comes/k1" in rm.allocated
    assert 0 < early < STEPS


@pytest.mark.parametrize("mortal", MORTALS)
@pytest.mark.parametrize("ask", [by_the_rm, by_a_front_end])
def test_whoever_dies_and_whenever_all_partitions_have_one_configuration(
    mortal: str, ask: Callable[[RM], tuple[str, list[Outgoing]]]
) -> None:
    ends = set()
    for step in range(STEPS):
        world, rm = a_world(step)
        world.carry(*ask(rm))
        for _ in range(step):
            world.step()
        if mortal == BROKER:
            world.kill_broker()
        elif mortal in world.workers:
            world.kill(mortal)
        world.settle()
        text = truth(world, rm)
        ends.add(text)
        assert [one.code for one in rm.refusals] in ([], ["busy"] if mortal == BROKER else [])  # it asked twice
        if mortal == BROKER:
            nothing_is_lost(world, rm, text)
        for status, body in world.answers:
            assert status == 200
            assert text == NEW, "somebody was told that it is in force"
            assert msgspec.json.decode(body)["checksum"] == rm.checksum
        assert text == NEW or (mortal == BROKER and ask is by_a_front_end)
        if mortal == BROKER and ask is by_a_front_end:
            assert text == (NEW if len(world.record) == 2 else OLD), "what is on the disk was decided"
    assert NEW in ends
    assert (OLD in ends) == (mortal == BROKER and ask is by_a_front_end)


def test_a_broker_that_dies_at_any_time_of_a_registration_is_asked_again_or_knows_it() -> None:
    """The RM has said what it wants in its first breath, and is heard once."""
    begun_before = 0
    for step in range(STEPS):
        world, rm = World(step), RM("rm-1", config=OLD)
        world.join(rm)
        for _ in range(step):
            world.step()
        for partition in ("default", "gpu"):
            world.carry(rm.peer, rm.furnish(partition, nodes=1, vcore=3))
            world.carry(rm.peer, rm.ask(partition, "k1", "k2"))
        for _ in range(step % 7):
            world.step()
        begun_before += "rm-1" in world.facts
        world.kill_broker()
        world.settle()
        assert truth(world, rm) == OLD
        assert rm.restarts == []
        assert rm.refusals == []
        assert rm.session.session == world.facts["rm-1"].session == "s1"
        assert len(world.record) == 1
        assert sorted(rm.allocated) == [f"rm-1_{name}/{key}" for name in ("default", "gpu") for key in ("k1", "k2")]
        assert sorted(rm.nodes) == ["rm-1_default/n0", "rm-1_gpu/n0"]
    assert 0 < begun_before < STEPS


def test_a_broker_that_dies_again_and_again_loses_nothing_either() -> None:
    for step in range(0, STEPS, 3):
        world, rm = a_world(step)
        world.carry(*by_the_rm(rm))
        for _ in range(4):
            for _ in range(step % 11 + 1):
                world.step()
            world.kill_broker()
        world.settle()
        assert truth(world, rm) == NEW
        nothing_is_lost(world, rm, NEW)


def test_a_worker_and_the_broker_that_die_together_leave_all_others_as_they_were() -> None:
    for step in range(STEPS):
        world, rm = a_world(step)
        world.carry(*by_the_rm(rm))
        for _ in range(step):
            world.step()
        mortal = MORTALS[1 + step % 4]
        if mortal in world.workers:
            world.kill(mortal)
        world.kill_broker()
        world.settle()
        assert truth(world, rm) == NEW
        assert set(rm.restarts) <= {mortal}


def test_lives_and_epochs_never_come_again() -> None:
    world, rm = a_world(1)
    seen: set[tuple[str, int]] = set()
    lives = []
    for _ in range(5):
        world.kill_broker()
        world.settle()
        world.kill("rm-1_gpu")
        world.settle()
        lives.append(world.facts["rm-1"].generations["rm-1_gpu"])
        assert world.facts["rm-1"].leases == {name: worker.host.epoch for name, worker in world.workers.items()}
        world.carry(rm.peer, rm.reconfigure(NEW))
        world.settle()
        world.carry(rm.peer, rm.reconfigure(OLD))
        world.settle()
        leases = {(name, worker.host.epoch) for name, worker in world.workers.items() if name == "rm-1_gpu"}
        assert not leases & seen
        seen |= leases
    assert lives == sorted(set(lives))
