"""Connections to the broker that break at any moment, while the processes at both ends live: whatever is lost with them
in either direction, each ask is answered once, and a change of the configuration is all or nothing.
"""

from collections.abc import Callable
from typing import Final

import pytest

from tests.test_rollout_crashes import NEW, OLD, a_world, by_a_front_end, by_the_rm, nothing_is_lost, truth
from tests.world import PROXY, World
from tests.world_rm import RM
from yunishard.common.messages.wire import NEVER
from yunishard.common.names import BROKER

PARTITIONS: Final = ("default", "gpu", "stays")
ENDS: Final = (PROXY, *(f"rm-1_{name}" for name in PARTITIONS))
"""Machines whose connection to the broker breaks."""

STEPS: Final = 40
"""Deliveries and ticks after which a connection breaks."""


def work(world: World, rm: RM) -> None:
    for partition in PARTITIONS:
        world.carry(rm.peer, [*rm.ask(partition, "k3"), *rm.release(partition, "k1")])
        world.carry(rm.peer, [*rm.ask(partition, "k4", "k5")])


def change_by_the_rm(world: World, rm: RM) -> None:
    world.carry(*by_the_rm(rm))


def change_by_a_user(world: World, rm: RM) -> None:
    world.carry(*by_a_front_end(rm))


def lose(world: World, end: str, step: int) -> None:
    """Break the connection after some steps, and again while both sides recover."""
    for _ in range(step):
        world.step()
    for pause in (step % 7, 3, 0):
        if end == PROXY or end in world.workers:
            world.cut(end)
        for _ in range(pause):
            world.step()


@pytest.mark.parametrize("end", ENDS)
def test_each_ask_and_release_takes_effect_once(end: str) -> None:
    for step in range(STEPS):
        world, rm = a_world(step)
        work(world, rm)
        lose(world, end, step)
        world.settle()
        assert rm.restarts == []
        assert rm.refused == []
        keys = ("k1", "k2", "k3", "k4")
        assert sorted(rm.released) == [f"rm-1_{name}/k1" for name in PARTITIONS], (end, step)
        assert sorted(rm.allocated) == [f"rm-1_{name}/{key}" for name in PARTITIONS for key in keys], (end, step)
        for name in PARTITIONS:
            world.carry(rm.peer, rm.release(name, "k2"))
        world.settle()
        assert sum(one.endswith("/k5") for one in rm.allocated) == len(PARTITIONS), "the connection works"


@pytest.mark.parametrize("change", [change_by_the_rm, change_by_a_user])
@pytest.mark.parametrize("end", ENDS)
def test_a_change_of_the_configuration_is_all_or_nothing(change: Callable[[World, RM], None], end: str) -> None:
    for step in range(0, STEPS, 2):
        world, rm = a_world(step)
        change(world, rm)
        lose(world, end, step)
        world.settle()
        world.until(lambda world=world: world.machine(BROKER).deadline == NEVER)  # an echo of the proxy may be lost
        world.settle()
        text = truth(world, rm)
        assert text in (OLD, NEW)
        nothing_is_lost(world, rm, text)
