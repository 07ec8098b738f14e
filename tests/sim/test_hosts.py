"""When partitions go on elsewhere and how soon, in worlds where nothing else goes wrong."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.sim import convergence, roles
from tests.sim.faults import Options
from tests.sim.roles import SETTINGS
from tests.sim.world import World
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import ChangeHosts
from yunishard.common.messages.wire import make_outgoing
from yunishard.common.names import BROKER

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
    calm=True,
)
BEGUN_S = 15.0
STEP_S = 0.05
RECOVERY_MAX_S = 5.0
"""After the lease timeout."""

STAYS_S = 3.0
DRAIN_MAX_S = 5.0


def begin(seed: int) -> World:
    world = World(seed, cluster=True, options=CALM)
    world.start()
    world.advance(BEGUN_S)
    assert all(decides(world, name) for name in world.switch.registry.slots)
    return world


def decides(world: World, partition: str) -> bool:
    """Whether a worker serves the partition, its RM has resumed, and its decisions become durable."""
    worker = convergence.worker_of(world, partition)
    return worker is not None and worker.partition is not None and not (worker._paused or worker.barrier.problem)


def partitions_on(world: World, host: str) -> list[str]:
    assert world.switch is not None
    return [name for name, slot in world.switch.registry.slots.items() if slot.worker_host == host]


def leader(world: World) -> str:
    assert world.database is not None
    return world.database.primary.lease("broker").holder


def choose(world: World, *, leads: bool) -> str:
    """A host with partitions that leads, or does not."""
    return next(name for name in world.hosts if (name == leader(world)) is leads and partitions_on(world, name))


def missing(world: World) -> list[str]:
    return [name for name in world.switch.registry.slots if not decides(world, name)]


def crash(world: World, host: str) -> None:
    world.crash_host(world.hosts[host], for_good=True)


def silence(world: World, host: str) -> None:
    """Nothing that it sends reaches another host."""
    for other in sorted(world.hosts.keys() - {host}):
        world.network.block(host, other)


def isolate(world: World, host: str) -> None:
    for other in sorted(world.hosts.keys() - {host}):
        world.network.block(host, other)
        world.network.block(other, host)


def isolate_from_everything(world: World, host: str) -> None:
    isolate(world, host)
    isolate_from_database(world, host)


def isolate_from_database(world: World, host: str) -> None:
    world.database.block(host, sends=True)
    world.database.block(host, sends=False)


LOSSES = (crash, silence, isolate, isolate_from_everything, isolate_from_database)


@pytest.mark.long
@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize(("seed", "leads"), [(2, True), (3, False)])
def test_all_partitions_decide_again_within_the_lease_timeout_and_five_seconds(
    lose: Callable[[World, str], None], seed: int, leads: bool
) -> None:
    world = begin(seed)
    lose(world, choose(world, leads=leads))
    world.advance(SETTINGS.lease_timeout_s + RECOVERY_MAX_S)
    for _ in range(int(STAYS_S / STEP_S)):
        assert missing(world) == []
        world.advance(STEP_S)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_partition_of_a_draining_host_pauses_for_less_than_a_second(seed: int) -> None:
    world = begin(seed)
    host = max(world.hosts, key=lambda name: len(partitions_on(world, name)))
    asker = next(one for one in world.processes if one.role == "webservice")
    header = Header(kind="ChangeHosts", ref="drain")
    asker.say([make_outgoing(BROKER, ChangeHosts(action="drain", host=host), header)], "a drain")
    pauses = dict.fromkeys(partitions_on(world, host), 0.0)
    for _ in range(int(DRAIN_MAX_S / STEP_S)):
        world.advance(STEP_S)
        for name in missing(world):
            pauses[name] += STEP_S
    assert partitions_on(world, host) == missing(world) == []
    assert max(pauses.values()) < 1.0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 3))
@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_nothing_moves_when_the_clock_of_the_database_jumps(seed: int, jump_s: float) -> None:
    world = begin(seed)
    before = {name: slot.worker_host for name, slot in world.switch.registry.slots.items()}
    led = leader(world)
    for _ in range(2):
        world.database.skew_s += jump_s
        world.advance(2 * SETTINGS.lease_timeout_s)
    after = {name: slot.worker_host for name, slot in world.switch.registry.slots.items()}
    moved = {name: host for name, host in before.items() if after.get(name, host) != host}
    assert (moved, world.switch.state.counters.moves.total(), leader(world)) == ({}, 0, led)
    crash(world, led)
    world.advance(SETTINGS.lease_timeout_s + RECOVERY_MAX_S)
    assert missing(world) == [], "a lost host is noticed all the same"


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
