import pytest

from partition_worker.engine.applications.asks import Failure
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
    assert [reservation.ask.key for reservation in twin(one.waits(2)).reserved] == ["a1"]


def test_whoever_may_not_start_starts_when_there_is_an_opening() -> None:
    one = Trial("root.a maxapps=1; root.p.x; root.p.y max=memory:3", made=Twins).does(nodes("n1 memory=20"))
    one.does(apps("app-1 root.a", "app-2 root.a", "app-3 root.p.y", "app-4 root.p.x"))
    one.does(*(asks(f"app-{number} a{number} memory=3", f"app-{number} b{number} memory=2") for number in range(1, 5)))
    remember(one).does(gone("app-1"))
    remember(one).does(released("app-3 a3"))
    assert {line.split()[0] for line in one.running} == {"a2", "b2", "b3", "a4", "b4"}
