from tests.builders import apps, asks, foreign, nodes, released
from tests.trial import Trial
from tests.twins import Twins, remember, twin


def kept() -> Trial:
    """A node is kept for each of three asks, one of which can run nowhere else."""
    one = Trial("root.a; root.b max=memory:12", made=Twins).does(nodes("n1 memory=10", "n2 memory=10", "n3 memory=10"))
    one.does(apps("app-1 root.a", "app-2 root.b"), foreign("f1 n1 memory=9", "f2 n2 memory=9", "f3 n3 memory=9"))
    return one.does(asks("app-1 a1 memory=8", "app-2 b1 memory=6", "app-1 a2 memory=5 required=n3")).waits(3)


def test_a_node_is_kept_for_whom_it_was_kept() -> None:
    one = kept()
    before = {one.ask.key: one.node.node_id for one in one.partition.reserved}
    other = twin(remember(one))
    assert {one.ask.key: one.node.node_id for one in other.reserved} == before
    assert len(before) == 3
    one.does(asks("app-2 b2 memory=1"), released("- f1"), released("- f2"), released("- f3"))
    assert len(one.running) == 4


def test_a_reservation_lasts_as_long_as_it_would_have() -> None:
    one = remember(kept().waits(3600)).waits(3590)
    assert len(twin(one).reserved) == 3
    one.waits(1300)
    assert all(reservation.created > one.now - 2000 for reservation in twin(one).reserved)


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
