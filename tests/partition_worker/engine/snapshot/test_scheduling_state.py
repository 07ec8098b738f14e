import pytest

from partition_worker.engine.allocation import Failure
from partition_worker.engine.partition import Partition
from tests.builders import apps, asks, foreign, gone, nodes, released
from tests.trial import Trial
from tests.twins import Twins, remember, twin


@pytest.mark.parametrize("policy", ["fifo", "fair", "stateaware"])
def test_what_waits_is_served_in_the_same_order(policy: str) -> None:
    one = Trial(f"root.a application.sort.policy={policy}; root.b guaranteed=memory:9", made=Twins)
    one.does(nodes("n1 memory=12"), apps(*(f"app-{number} root.{'ab'[number % 2]}" for number in range(6))))
    one.does(*(asks(f"app-{number} a{number}{key} memory=3") for number in range(6) for key in "xy"))
    for key in [line.split()[0] for line in one.running]:
        remember(one).does(released(f"app-{key[1]} {key}"))
    assert one.running


def test_an_attempt_in_vain_is_not_made_once_more() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10"), apps("app-1 root.a"), foreign("f1 n1 memory=10"))
    one.does(asks("app-1 a1 memory=20"), asks("app-1 a2 memory=9"))
    before = failures(one.partition)
    other = twin(remember(one))
    one.does(apps("app-2 root.a"), asks("app-2 b1 memory=30"))
    assert failures(other) == before != {}


def failures(partition: Partition) -> dict[str, dict[str, Failure]]:
    """Why asks of the first application were not placed, and how often."""
    return {group.head.key: group.failures for group in partition.applications["app-1"].asks.groups}


def test_the_next_look_is_when_it_would_have_been() -> None:
    one = Trial(made=Twins).does(nodes("n1 memory=10"), apps("app-1 root.a"), foreign("f1 n1 memory=10"))
    one.does(asks("app-1 a1 memory=9")).waits(1)
    remember(one)
    assert twin(one).next_change == one.partition.next_change < one.now + 2
    assert [reservation.ask.key for reservation in twin(one.waits(2)).reservation_index] == ["a1"]


def test_whoever_may_not_start_starts_when_there_is_an_opening() -> None:
    one = Trial("root.a maxapps=1; root.p.x; root.p.y max=memory:3", made=Twins).does(nodes("n1 memory=20"))
    one.does(apps("app-1 root.a", "app-2 root.a", "app-3 root.p.y", "app-4 root.p.x"))
    one.does(*(asks(f"app-{number} a{number} memory=3", f"app-{number} b{number} memory=2") for number in range(1, 5)))
    remember(one).does(gone("app-1"))
    remember(one).does(released("app-3 a3"))
    assert {line.split()[0] for line in one.running} == {"a2", "b2", "b3", "a4", "b4"}


def kept() -> Trial:
    """A node is kept for each of three asks, one of which can run nowhere else."""
    one = Trial("root.a; root.b max=memory:12", made=Twins).does(nodes("n1 memory=10", "n2 memory=10", "n3 memory=10"))
    one.does(apps("app-1 root.a", "app-2 root.b"), foreign("f1 n1 memory=9", "f2 n2 memory=9", "f3 n3 memory=9"))
    return one.does(asks("app-1 a1 memory=8", "app-2 b1 memory=6", "app-1 a2 memory=5 required=n3")).waits(3)


def test_a_node_is_kept_for_whom_it_was_kept() -> None:
    one = kept()
    before = {one.ask.key: one.node.node_id for one in one.partition.reservation_index}
    other = twin(remember(one))
    assert {one.ask.key: one.node.node_id for one in other.reservation_index} == before
    assert len(before) == 3
    one.does(asks("app-2 b2 memory=1"), released("- f1"), released("- f2"), released("- f3"))
    assert len(one.running) == 4


def test_a_reservation_lasts_as_long_as_it_would_have() -> None:
    one = remember(kept().waits(3600)).waits(3590)
    assert len(twin(one).reservation_index) == 3
    one.waits(1300)
    assert all(reservation.created > one.now - 2000 for reservation in twin(one).reservation_index)


def test_what_others_had_to_go_for_is_kept_for_the_ask() -> None:
    one = Trial("root.a guaranteed=memory:8 preemption.delay=1s max=memory:10; root.b", made=Twins)
    one.does(nodes("n1 memory=8"), apps("app-1 root.a", "app-2 root.b"), asks("app-2 b1 memory=8 victim"))
    one.does(asks("app-1 a1 memory=8 preemptor")).waits(2)
    remember(one).does(asks("app-1 a2 memory=3"), released("app-2 b1 type=PREEMPTED_BY_SCHEDULER"))
    assert one.running == ["a1 on n1"]


def test_swaps_go_on_in_their_order() -> None:
    one = Trial("root.a; root.b", made=Twins).takes(nodes("n1 memory=40"), apps("app-1 root.a", "app-2 root.b"))
    one.does(*(asks(f"app-{app} p{app}{key} memory=5 placeholder group=g") for app in (1, 2) for key in "xy"))
    one.takes(*(asks(f"app-{app} r{app}{key} memory=5 group=g") for app in (2, 1) for key in "xy"))
    remember(one).decides()
    remember(one).settles()
    assert sum("PLACEHOLDER_REPLACED" in line for line in one.told()) == 3
