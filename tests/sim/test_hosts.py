"""When partitions go on elsewhere and how soon, in worlds where nothing else goes wrong."""

from dataclasses import replace

import pytest

from tests.sim import convergence, roles
from tests.sim.faults import Options
from tests.sim.roles import SETTINGS
from tests.sim.world import World

CALM = Options(
    kinds=(),
    deaths_per_message=0.0,
    pause_s=1.0,
    rms=3,
    spares=0,
    act_max_s=0.2,
    resolver="",
    predicates=False,
    watched=False,
    hosts=3,
)
BEGUN_S = 15.0
STEP_S = 0.05
RECOVERY_MAX_S = 5.0
"""After the lease timeout."""


def begin(seed: int) -> World:
    world = World(seed, cluster=True, options=CALM)
    world.start()
    world.advance(BEGUN_S)
    assert all(decides(world, name) for name in world.switch.registry.slots)
    return world


def decides(world: World, partition: str) -> bool:
    """Whether a worker serves the partition, and its RM has resumed."""
    worker = convergence.worker_of(world, partition)
    return worker is not None and worker.partition is not None and not worker._paused


def partitions_on(world: World, host: str) -> list[str]:
    assert world.switch is not None
    return [name for name, slot in world.switch.registry.slots.items() if slot.worker_host == host]


def leader(world: World) -> str:
    assert world.database is not None
    return world.database.primary.lease("broker").holder


@pytest.mark.long
@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("seed", range(1, 4))
def test_partitions_of_a_lost_host_decide_again_within_the_lease_timeout_and_five_seconds(
    seed: int, leads: bool
) -> None:
    world = begin(seed)
    host = next(name for name in world.hosts if (name == leader(world)) is leads and partitions_on(world, name))
    lost, crashed_at = partitions_on(world, host), world.now
    world.crash_host(world.hosts[host], for_good=True)
    while missing := [name for name in lost if name in world.switch.registry.slots and not decides(world, name)]:
        world.advance(STEP_S)
        assert world.now < crashed_at + SETTINGS.lease_timeout_s + RECOVERY_MAX_S, missing


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 4))
def test_nothing_moves_while_only_the_database_is_unavailable(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than the lease timeout, which is longer than hosts take to find the next leader."""
    monkeypatch.setattr(roles, "SETTINGS", replace(SETTINGS, lease_timeout_s=10.0, pause_timeout_s=120.0))
    world = begin(seed)
    before = {name: slot.worker_host for name, slot in world.switch.registry.slots.items()}
    world.database._is_up = False
    world.advance(30.0)
    world.database._is_up = True
    world.advance(15.0)
    after = {name: slot.worker_host for name, slot in world.switch.registry.slots.items()}
    moved = {name: host for name, host in before.items() if after.get(name, host) != host}
    assert (moved, world.switch.state.counters.moves.total()) == ({}, 0)
