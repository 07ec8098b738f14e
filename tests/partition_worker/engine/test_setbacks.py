"""What queues lack because it was taken from them, and which asks that explains."""

from partition_worker.engine import setbacks
from tests.builders import apps, asks, nodes, released
from tests.trial import Trial

QUEUES = "root.p guaranteed=memory:12; root.p.a guaranteed=memory:10; root.p.b; root.c"


def using(a: int, b: int = 0) -> Trial:
    """Of two types, in allocations of one of each."""
    one = Trial(QUEUES).does(nodes("n1 memory=100 gpu=100"), apps("a root.p.a", "b root.p.b", "c root.c"))
    for name, count in (("a", a), ("b", b), ("c", 4)):
        one.does(asks(*(f"{name} {name}{number} memory=1 gpu=1 victim" for number in range(count))))
    return one


def take(trial: Trial, *keys: str) -> None:
    """They are taken for others, and go at once."""
    victims = [trial.partition.allocations[key] for key in keys]
    setbacks.suffer(victims)
    trial.does(*(released(f"{one.application_id} {one.key}") for one in victims))


def explained(trial: Trial, path: str = "root.p.a", amount: int = 1) -> bool:
    return setbacks.explain(trial.queue(path), {"memory": amount, "gpu": 1})


def test_what_is_taken_from_below_a_guarantee_explains_an_ask_for_it() -> None:
    trial = using(11)
    take(trial, "a0", "a1", "a2")
    assert explained(trial)
    assert explained(trial, amount=2)


def test_what_is_taken_from_the_excess_explains_nothing() -> None:
    trial = using(15)
    take(trial, "a0", "a1", "a2")
    trial.does(released("a a3", "a a4", "a a5", "a a6"))
    assert not explained(trial, amount=2)


def test_work_that_ended_by_itself_explains_an_ask_however_much_was_taken_before() -> None:
    trial = using(11)
    take(trial, "a0", "a1", "a2")  # 2 are lacking
    trial.does(released("a a3", "a a4", "a a5"))
    assert not explained(trial, amount=3)
    assert explained(trial, amount=4), "one of them was taken"


def test_what_was_won_back_is_no_setback_any_more() -> None:
    trial = using(10)
    take(trial, "a0", "a1", "a2")
    trial.does(asks("a again1 memory=1 gpu=1 victim", "a again2 memory=1 gpu=1 victim"))
    take(trial, "again1")
    trial.does(released("a a3", "a a4"))
    assert not explained(trial, amount=2), "2 are lacking, and 4 are not there"
    assert explained(trial, amount=3)


def test_a_guarantee_higher_up_counts_for_all_below() -> None:
    trial = using(8, 4)
    take(trial, "b0", "b1")
    assert explained(trial, "root.p.b")
    assert explained(trial, "root.p.a")


def test_an_ask_for_nothing_that_is_guaranteed_is_as_good_as_explained() -> None:
    trial = using(4)
    assert setbacks.explain(trial.queue("root.c"), {"memory": 1})
    assert setbacks.explain(trial.queue("root.p.a"), {"gpu": 1})
    assert not setbacks.explain(trial.queue("root.p.a"), {"gpu": 1, "memory": 1})
