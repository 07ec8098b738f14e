"""Changes of configuration that meet something else: another change, a break of the connection, a proxy that dies, a
session that begins anew, an edited file. In the end everything runs one configuration, and everybody knows which.

Not here: one change while a worker or the broker dies (`test_rollout_crashes.py`).
"""

import random
from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from tests.test_rollout_crashes import MORE, NEW, OLD, QUEUES, STEPS, a_world, by_a_front_end, by_the_rm, meant, running
from tests.world import World
from tests.world_rm import RM
from yunishard.broker.config_rollout import ROLLOUT_MAX_S
from yunishard.broker.state import ECHO_MAX_S
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import ChangeConfig
from yunishard.common.messages.wire import Outgoing, make_outgoing
from yunishard.common.names import BROKER

OTHER: Final = f"partitions: [{{name: default, {QUEUES}}}, {{name: gpu, {MORE}}}, {{name: stays, {MORE}}}]"
TEXTS: Final = {compute_checksum(text): text for text in (OLD, NEW, OTHER)}


def wish(text: str, ref: str = "1", *, rm: str = "rm-1") -> tuple[str, list[Outgoing]]:
    header = Header(kind="ChangeConfig", rm=rm, ref=ref)
    return "webservice", [make_outgoing(BROKER, ChangeConfig(config=text, author="alice"), header)]


def in_force(world: World, rm: RM) -> str:
    """What everybody believes and runs; fails if they differ."""
    assert rm.open
    text = TEXTS[rm.checksum]
    assert running(world) == meant(rm, text)
    assert sorted(rm.session.partitions) == sorted(meant(rm, text))
    return text


def go(world: World, steps: int) -> None:
    """So many deliveries, or as many as there are."""
    for _ in range(steps):
        if world.busy:
            world.step()


def works(world: World, rm: RM, partition: str = "stays") -> None:
    """A partition with its application goes on allocating."""
    key = f"k{len(rm.allocated)}-more"
    world.carry(rm.peer, rm.ask(partition, key))
    world.settle()
    assert f"rm-1_{partition}/{key}" in rm.allocated


@pytest.mark.parametrize("ask", [by_the_rm, by_a_front_end])
def test_a_proxy_that_dies_during_a_change_costs_nobody_anything(
    ask: Callable[[RM], tuple[str, list[Outgoing]]],
) -> None:
    ends = set()
    for step in range(STEPS):
        world, rm = a_world(step)
        world.carry(*ask(rm))
        go(world, step)
        world.kill_proxy()
        world.settle()
        world.now += ECHO_MAX_S
        world.settle()
        text = in_force(world, rm)
        ends.add(text)
        assert rm.refusals == []
        assert set(rm.restarts) <= {"rm-1_comes"}, "it was not there when the RM last heard"
        gone = ["rm-1_gpu/k1", "rm-1_gpu/k2"] if text == NEW else []
        assert sorted(rm.released) == gone
        works(world, rm)
    assert NEW in ends


@pytest.mark.parametrize("ask", [by_the_rm, by_a_front_end])
def test_an_rm_whose_connection_breaks_during_a_change_finds_out_what_became_of_it(
    ask: Callable[[RM], tuple[str, list[Outgoing]]],
) -> None:
    for step in range(STEPS):
        world, rm = a_world(step)
        world.carry(*ask(rm))
        go(world, step)
        world.disconnect(rm)
        go(world, step % 7 * 5)
        world.reconnect(rm)
        world.settle()
        text = in_force(world, rm)
        assert rm.refusals == []
        assert sorted(rm.released) == (["rm-1_gpu/k1", "rm-1_gpu/k2"] if text == NEW else [])
        works(world, rm)


def begin(world: World, rm: RM) -> None:
    sends = rm.begin_again()
    world.carry(rm.peer, sends)
    world.settle()


def test_an_rm_that_begins_anew_during_a_change_gets_what_was_decided() -> None:
    ends = set()
    for step in range(STEPS):
        world, rm = a_world(step)
        world.carry(*wish(NEW))
        go(world, step)
        world.disconnect(rm)
        begin(world, rm)
        for _ in range(5):
            if rm.open:
                break
            assert rm.refusals[-1].code == "busy"
            rm.refusals.clear()
            begin(world, rm)
        text = in_force(world, rm)
        ends.add(text)
        if world.answers and world.answers[0][0] == 200:
            assert text == NEW
        world.carry(rm.peer, rm.furnish("stays", nodes=1, vcore=8))
        works(world, rm)
    assert NEW in ends


def test_of_two_changes_at_once_one_is_made_or_one_after_the_other() -> None:
    for step in range(STEPS):
        world, rm = a_world(step)
        world.carry(*wish(NEW, "1"))
        go(world, step)
        world.carry(*wish(OTHER, "2"))
        world.settle()
        assert len(world.answers) == 2
        statuses = sorted(status for status, _ in world.answers)
        assert statuses in ([200, 200], [200, 409]), world.answers
        last = [msgspec.json.decode(body)["checksum"] for status, body in world.answers if status == 200][-1]
        assert in_force(world, rm) == TEXTS[last]
        works(world, rm)


def test_what_is_said_to_an_empty_partition_that_goes_and_comes_back_is_always_answered() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        world, rm = World(seed), RM("rm-1", config=OLD)
        world.join(rm)
        world.settle()
        told = 0
        for number, text in enumerate((NEW, OLD, NEW, OLD)):
            status = 409
            while status == 409:
                before = len(world.answers)
                world.carry(*wish(text, str(number)))
                while len(world.answers) == before:
                    if rng.random() < 0.15:
                        world.carry(rm.peer, rm.ask("gpu", f"k{told}"))
                        told += 1
                    world.step()
                status = world.answers[-1][0]
        world.settle()
        in_force(world, rm)
        assert sorted(rm.refused) == sorted(f"rm-1_gpu/k{one}" for one in range(told)), seed


def something_breaks(world: World, rm: RM, rng: random.Random) -> None:
    """Now and then: a worker, the proxy, the connection or the broker."""
    chance = rng.random()
    if chance < 0.01 and world.workers:
        world.kill(rng.choice(sorted(world.workers)))
    elif chance < 0.02:
        world.kill_proxy()
    elif chance < 0.03:
        world.disconnect(rm)
        world.reconnect(rm)
    elif chance < 0.035:
        world.kill_broker()


def insist(world: World, rm: RM, text: str, rng: random.Random) -> None:
    """Ask for a configuration until it is in force, whatever breaks meanwhile."""
    for attempt in range(60):
        before = len(world.answers)
        world.carry(*wish(text, str(attempt)))
        while len(world.answers) == before and world.busy:
            something_breaks(world, rm, rng)
            world.step()
        if not world.busy:
            world.now += ROLLOUT_MAX_S
            world.settle()
        if len(world.answers) > before and world.answers[-1][0] == 200:
            return
    raise AssertionError(world.answers[-3:])


def test_a_to_b_to_a_to_c_while_everything_dies() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        world, rm = a_world(seed)
        for text in (NEW, OLD, NEW, OTHER):
            insist(world, rm, text, rng)
        world.now += ECHO_MAX_S
        world.settle()
        assert in_force(world, rm) == OTHER, seed
        for partition in ("default", "gpu", "stays"):
            world.carry(rm.peer, rm.furnish(partition, nodes=1, vcore=30))
            world.settle()
            works(world, rm, partition)


def test_rms_that_have_their_queues_from_a_file_have_its_text_in_the_end_or_one_changed_on_top_of_it() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        world = World(seed, file=OLD)
        rms = [RM("rm-1", config=""), RM("rm-2", config="")]
        for rm in rms:
            world.join(rm)
        world.settle()
        for number in range(6):
            text = rng.choice((OLD, NEW, OTHER))
            if rng.random() < 0.5:
                world.edit(text)
            else:
                world.carry(*wish(text, str(number), rm=rng.choice(rms).rm_id))
            go(world, rng.randrange(60))
            if rng.random() < 0.2:
                world.kill_proxy()
            if rng.random() < 0.2:
                world.kill(rng.choice(sorted(world.workers)))
        for _ in range(3):
            world.now += 2 * ECHO_MAX_S
            world.settle()
        assert running(world) == {name: one for rm in rms for name, one in meant(rm, TEXTS[rm.checksum]).items()}
        for rm in rms:
            latest = next(version for owner, version in reversed(world.record) if owner == rm.rm_id)
            assert latest.checksum == rm.checksum
            assert compute_checksum(world.file) in (latest.checksum, latest.base), (seed, rm.rm_id)


def test_a_file_that_is_edited_during_a_change_over_rest_counts_at_last() -> None:
    for step in range(STEPS):
        world, rm = World(step, file=OLD), RM("rm-1", config="")
        world.join(rm)
        world.settle()
        world.carry(*wish(NEW))
        go(world, step)
        world.edit(OTHER)
        world.settle()
        assert in_force(world, rm) == world.file == OTHER, step


@pytest.mark.parametrize("wrong", ["]", "partitions: [{name: a b, queues: [{name: root, submitacl: '*'}]}]"])
def test_a_broker_that_dies_while_the_file_is_wrong_changes_nothing_for_whom_it_had_its_queues_from_there(
    wrong: str,
) -> None:
    world, rm = World(1, file=OLD), RM("rm-1", config="")
    world.join(rm)
    world.settle()
    world.carry(*wish(NEW))
    world.settle()
    world.edit(wrong)
    world.kill_broker()
    world.settle()
    assert in_force(world, rm) == NEW
    world.edit(OTHER)
    world.settle()
    assert in_force(world, rm) == OTHER
