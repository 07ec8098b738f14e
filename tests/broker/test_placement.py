"""On which hosts partitions run, and when they move: a leader with several hosts."""

from broker.hosts import HostRow
from tests.broker.hosts_bench import SETTINGS, FakeHost, HostsBench

LEASE_S = SETTINGS.lease_timeout_s


def cluster(*cores: int) -> HostsBench:
    """Hosts a, b, ... with so many cores."""
    return HostsBench(*(FakeHost(name, one) for name, one in zip("abcdefgh", cores, strict=False)))


def test_partitions_are_spread_by_cores_then_by_rm() -> None:
    bench = cluster(4, 4, 8)
    bench.register("x", 4)
    bench.register("y", 4)
    bench.settle()
    assert bench.placed() == {"a": 2, "b": 2, "c": 4}
    for rm in "xy":
        assert sorted(slot.host for name, slot in bench.slots.items() if name.startswith(rm)) == ["a", "b", "c", "c"]


def test_the_host_is_recorded() -> None:
    bench = cluster(4, 4)
    bench.register("x", 2)
    bench.settle()
    assert bench.records["x"].hosts == {"x_p0": "a", "x_p1": "b"}


def test_partitions_of_a_lost_host_move_and_do_not_come_back_by_themselves() -> None:
    bench = cluster(4, 4, 4)
    bench.register("x", 6)
    bench.settle()
    bench.kill_host("a")
    bench.wait(LEASE_S + 3)
    assert bench.placed() == {"a": 0, "b": 3, "c": 3}
    assert bench.state.counters.moves == {"lost": 2}
    bench.start_host("a")
    bench.wait(30)
    assert bench.placed() == {"a": 0, "b": 3, "c": 3}


def test_partitions_stay_where_they_are_if_every_host_is_silent() -> None:
    bench = cluster(4, 4)
    bench.register("x", 2)
    bench.settle()
    bench.kill_host("a")
    bench.kill_host("b")
    bench.wait(2 * LEASE_S)
    assert [slot.host for slot in bench.slots.values()] == ["a", "b"]
    bench.start_host("b")
    bench.wait(3)
    assert bench.placed() == {"a": 0, "b": 2}


def test_a_host_that_is_silent_and_works_keeps_no_partition() -> None:
    bench = cluster(4, 4)
    bench.register("x", 2)
    bench.settle()
    bench.hosts["a"].is_cut = True
    bench.wait(LEASE_S + 3)
    assert bench.placed() == {"a": 0, "b": 2}
    bench.hosts["a"].is_cut = False
    bench.wait(3)
    assert bench.hosts["a"].workers == {}, "the worker there is dismissed"
    assert bench.hosts["a"].elsewhere == set(bench.slots), "and its partition has not ended"


def test_the_next_leader_keeps_workers_where_they_are() -> None:
    bench = cluster(4, 4)
    bench.register("x", 4)
    bench.settle()
    epochs = {name: slot.epoch for name, slot in bench.slots.items()}
    bench.change_leader()
    bench.wait(20)
    assert {name: slot.epoch for name, slot in bench.slots.items()} == epochs
    assert bench.placed() == {"a": 2, "b": 2}


def test_the_next_leader_waits_no_longer_for_a_lost_host_than_the_last_one_would_have() -> None:
    bench = cluster(4, 4, 4)
    bench.register("x", 3)
    bench.settle()
    bench.kill_host("a")
    bench.change_leader("a")
    bench.wait(LEASE_S - 6.0 + 2)
    assert sum(bench.placed().values()) == 3


def test_a_row_of_a_host_that_has_not_connected_yet_gets_partitions_too() -> None:
    rows = (HostRow(name="b", cores=4, age_s=1.0), HostRow(name="c", cores=4, age_s=3600.0))
    bench = HostsBench(FakeHost("a"), rows=rows)
    bench.register("x", 2)
    bench.wait(3)
    assert sorted(slot.host for slot in bench.slots.values()) == ["a", "b"]
