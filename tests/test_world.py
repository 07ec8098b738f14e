import os
import subprocess
import sys

import pytest

from tests.growth import find_growing
from tests.world import PROXY, World
from tests.world_rm import RM
from yunishard.broker.config_versions import RMS_MAX
from yunishard.common.names import BROKER
from yunishard.rmproxy.rate_limit import PEERS_MAX

PARTITIONS = ("default", "gpu")


def keys(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def full_names(rm: RM, names: list[str]) -> list[str]:
    return sorted(f"{rm.rm_id}_{partition}/{name}" for partition in PARTITIONS for name in names)


def two_rms(seed: int) -> tuple[World, RM, RM]:
    """Two RMs that use the same names for everything."""
    world = World(seed)
    first, second = RM("rm-1"), RM("rm-2")
    for rm in (first, second):
        world.join(rm)
    world.until(lambda: first.open and second.open)
    for rm in (first, second):
        for partition in PARTITIONS:
            world.carry(rm.peer, rm.furnish(partition, nodes=3, vcore=10))
            world.carry(rm.peer, rm.ask(partition, *keys("k", 40)))
    return world, first, second


def a_run(seed: int) -> World:
    """Everything once: registration, updates, a break in the middle, releases, a resumption."""
    world, first, second = two_rms(seed)
    world.until(lambda: len(first.allocated) >= 10)
    world.disconnect(first)
    for partition in PARTITIONS:
        world.carry(first.peer, first.ask(partition, "late"))
        world.carry(second.peer, second.release(partition, *keys("k", 15)))
    for _ in range(50):
        world.step()
    world.reconnect(first)
    world.settle()
    for partition in PARTITIONS:
        world.carry(first.peer, first.release(partition, *keys("k", 41), "late"))
        world.carry(second.peer, second.release(partition, *keys("k", 40)))
    world.settle()
    return world


def test_each_rm_hears_all_of_its_own_once_and_nothing_of_the_other() -> None:
    world, first, second = two_rms(1)
    world.settle()
    for rm in (first, second):
        assert sorted(rm.nodes) == full_names(rm, keys("n", 3))
        assert sorted(rm.applications) == full_names(rm, ["app"])
        assert sorted(rm.allocated) == full_names(rm, keys("k", 30))
        assert rm.refusals == []
    world.carry(first.peer, first.release("default", *keys("k", 10)))
    world.settle()
    assert sorted(first.released) == sorted(f"rm-1_default/{key}" for key in keys("k", 10))
    assert len(first.allocated) == 70
    assert len(set(first.allocated)) == 70
    assert second.released == []
    assert len(second.allocated) == 60


@pytest.mark.parametrize("seed", range(15))
def test_a_connection_that_breaks_anywhere_loses_nothing_and_repeats_nothing(seed: int) -> None:
    world, first, second = two_rms(seed)
    for _ in range(20 * seed):
        world.step()
    world.disconnect(first)
    world.carry(first.peer, first.ask("default", "while-away"))
    for _ in range(5 * seed):
        world.step()
    world.reconnect(first)
    for _ in range(seed):
        world.step()
    world.disconnect(first)
    world.reconnect(first)
    world.settle()
    world.carry(first.peer, [*first.release("default", *keys("k", 30)), *first.release("gpu", *keys("k", 30))])
    world.settle()
    expected = [*full_names(first, keys("k", 40)), "rm-1_default/while-away"]
    assert sorted(first.allocated) == sorted(expected)
    assert sorted(first.released) == full_names(first, keys("k", 30))
    assert sorted(second.allocated) == full_names(second, keys("k", 30))
    assert first.refusals == []


def test_a_new_session_starts_over_and_the_old_one_is_told() -> None:
    world, first, second = two_rms(3)
    world.until(lambda: len(first.allocated) > 5)
    again = RM("rm-1", session="s2")
    again.reconnected()
    old = first
    world.join(again)
    world.rms["rm-1 before"] = old
    world.settle()
    assert again.open
    assert [one.code for one in old.refusals] == ["superseded"]
    assert again.allocated == []
    world.carry(again.peer, again.furnish("gpu", nodes=1, vcore=5))
    world.carry(again.peer, again.ask("gpu", *keys("k", 9)))
    world.carry(old.peer, old.ask("gpu", "too-late"))
    world.settle()
    assert sorted(again.allocated) == sorted(f"rm-1_gpu/{key}" for key in keys("k", 5))
    assert [one.code for one in old.refusals] == ["superseded", "unknown-session"]
    assert sorted(second.allocated) == full_names(second, keys("k", 30))


def test_a_worker_that_dies_anywhere_is_reported_to_anew_and_nothing_is_mixed_up() -> None:
    """Unless nothing had been heard of it yet: then the RM's commands are all still there, and are sent again."""
    unnoticed = 0
    for seed in range(20):
        world, first, second = two_rms(seed)
        for _ in range(10 * seed):
            world.step()
        world.kill("rm-1_default")
        world.settle()
        kept = sorted(one for one in first.allocated if one.startswith("rm-1_gpu/"))
        assert kept == [f"rm-1_gpu/{key}" for key in sorted(keys("k", 30))]
        assert sorted(second.allocated) == full_names(second, keys("k", 30))
        if not first.restarts:
            unnoticed += 1
            assert sorted(first.allocated) == full_names(first, keys("k", 30))
            continue
        assert first.restarts == ["rm-1_default"]
        before = len(first.allocated)
        world.carry(first.peer, first.furnish("default", nodes=2, vcore=10))
        world.carry(first.peer, first.ask("default", *keys("new", 25)))
        world.settle()
        assert sorted(first.allocated[before:]) == sorted(f"rm-1_default/{key}" for key in keys("new", 20))
    assert 0 < unnoticed < 20


def test_a_worker_that_dies_while_its_rm_is_away_is_told_of_when_it_is_back() -> None:
    world, first, _ = two_rms(5)
    world.settle()
    world.disconnect(first)
    world.kill("rm-1_gpu")
    world.settle()
    world.reconnect(first)
    world.settle()
    assert first.restarts == ["rm-1_gpu"]
    before = len(first.allocated)
    world.carry(first.peer, first.furnish("gpu", nodes=1, vcore=4))
    world.carry(first.peer, first.ask("gpu", *keys("new", 9)))
    world.settle()
    assert first.allocated[before:] == [f"rm-1_gpu/{key}" for key in keys("new", 4)]


def test_an_rm_that_does_not_acknowledge_stops_its_partition_and_no_other() -> None:
    world, first, second = two_rms(6)
    world.settle()
    away = len(first.allocated)
    world.disconnect(first)
    for number in range(100):
        world.carry(second.peer, second.release("gpu", f"k{number % 40}"))
        world.carry(second.peer, second.ask("gpu", f"again{number}"))
    world.settle()
    assert len(second.allocated) > 60
    world.reconnect(first)
    world.settle()
    assert len(first.allocated) == away


def test_the_same_seed_tells_the_same_story_and_another_one_another() -> None:
    assert a_run(7).digest == a_run(7).digest
    assert a_run(7).digest != a_run(8).digest


@pytest.mark.processes
def test_the_story_does_not_depend_on_the_order_of_sets() -> None:
    program = "from tests.test_world import a_run; print(a_run(7).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


def test_a_run_says_everything_that_there_is_to_say() -> None:
    kinds = a_run(7).kinds
    for kind in (
        "Ack", "AllocationRequest", "AllocationResponse", "ApplicationRequest", "ApplicationResponse", "CommitConfig",
        "ConfigVote", "Hello", "NodeRequest", "NodeResponse", "PrepareConfig", "RegisterResourceManager", "Registered",
        "Repeat", "Resume", "Received", "WorkersWanted",
    ):  # fmt: skip
        assert kinds.get(kind), kind


BOUNDED = {
    "RateLimiter._buckets": PEERS_MAX,
    "ConfigVersions._histories": RMS_MAX,
    "ConfigVersions._sizes": RMS_MAX,
}
"""Tables of the broker and the proxy that keep names of what is gone, and the most that they keep."""


def test_rms_that_left_leave_nothing_but_entries_of_bounded_tables() -> None:
    world = World(1)

    def play(number: int) -> None:
        rm = RM(f"rm-{number}", session=f"s-{number}")
        world.join(rm)
        world.until(lambda: rm.open)
        for partition in PARTITIONS:
            world.carry(rm.peer, rm.furnish(partition, nodes=1, vcore=10))
            world.carry(rm.peer, rm.ask(partition, *keys("k", 5)))
        world.settle()
        world.disconnect(rm)
        world.carry(rm.reconnected(), rm.resume())
        world.settle()
        world.carry(rm.peer, rm.leave())
        world.settle()
        assert rm.session.state == "left"
        world.disconnect(rm)
        world.workers.clear()
        world.machine(BROKER).state.notes.clear()  # which the process logs

    assert find_growing((world.machine(BROKER), world.machine(PROXY)), play, without=BOUNDED) == {}
