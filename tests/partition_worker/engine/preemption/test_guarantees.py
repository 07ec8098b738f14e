"""What is left of guarantees; the vector is an example of the specification."""

from common.messages import Resources
from partition_worker.engine.needs import shape_of
from partition_worker.engine.preemption.guarantees import Guarantees, Transfer
from tests.trial import Trial

QUEUES = "root.p guaranteed=a:5; root.p.x guaranteed=b:5; root.p.y guaranteed=a:5; root.z"


def tree() -> Trial:
    """The numbers of the vector. A guarantee of the root comes from no configuration, but has a meaning."""
    trial = Trial(QUEUES)
    trial.queue("root").guaranteed = {"a": 10}
    for path, amount in (("root", 10), ("root.p", 10), ("root.p.y", 5)):
        trial.queue(path).allocated = {"a": amount}
    return trial


def left(trial: Trial, asks_in: str) -> dict[str, Resources | None]:
    guarantees = Guarantees(trial.queue(asks_in))
    return {queue.path: guarantees.share(queue).remaining() for queue in trial.partition.tree}


def test_what_is_left_is_the_least_on_the_way_up() -> None:
    """Vector 12."""
    found = left(tree(), "root.z")
    assert found["root"] == {"a": 0}
    assert found["root.p"] == {"a": -5}
    assert found["root.p.x"] == {"a": -5, "b": 5}
    assert found["root.p.y"] == {"a": -5}


def test_a_guarantee_above_an_ask_that_has_its_own_binds_nobody_below() -> None:
    """Vector 12."""
    found = left(tree(), "root.p.y")
    assert found["root.p"] is None
    assert found["root.p.x"] == {"b": 5}
    assert found["root.p.y"] == {"a": 0}


def test_of_its_own_guarantee_the_queue_of_the_ask_loses_nothing_to_those_above() -> None:
    trial = Trial("root.p guaranteed=a:1,b:2; root.p.y guaranteed=a:5; root.z")
    trial.queue("root").guaranteed = {"a": 1, "c": 1}
    assert left(trial, "root.p.y")["root.p.y"] == {"a": 5}  # its parent binds nobody
    assert left(trial, "root.z")["root.p.y"] == {"a": 1, "b": 2, "c": 1}
    trial.queue("root.p").guaranteed = None
    assert left(trial, "root.p.y")["root.p.y"] == {"a": 5, "c": 1}


def test_a_queue_whose_path_begins_as_that_of_the_ask_is_taken_for_one_above_it() -> None:
    """As in YuniKorn: by the letters, not by the levels."""
    trial = Trial("root.a guaranteed=a:1; root.ab guaranteed=a:1; root.c guaranteed=a:1")
    assert left(trial, "root.ab") == {"root": None, "root.a": None, "root.ab": {"a": 1}, "root.c": {"a": 1}}


def test_without_any_guarantee_nothing_is_said() -> None:
    assert left(Trial("root.p.x; root.y"), "root.y") == dict.fromkeys(("root", "root.p", "root.p.x", "root.y"))


def test_what_is_asked_back_counts_as_gone() -> None:
    trial = Trial("root.a guaranteed=a:5; root.b")
    trial.queue("root.a").allocated, trial.queue("root.a").preempting = {"a": 7}, {"a": 3}
    assert left(trial, "root.b")["root.a"] == {"a": 1}


def test_a_transfer_counts_at_every_level_and_can_be_taken_back() -> None:
    trial = Trial("root.p guaranteed=a:5; root.p.x; root.q guaranteed=a:2,b:1; root.q.y")
    trial.queue("root.p").allocated = {"a": 6}
    guarantees = Guarantees(trial.queue("root.q.y"))
    giver, taker = guarantees.share(trial.queue("root.p.x")), guarantees.taker
    transfer = Transfer(giver, taker, shape_of({"a": 2, "c": 1}), ("a", "c"))
    assert transfer.gains == (2, 1)
    assert transfer.may_leave()
    transfer.leave()
    assert giver.remaining() == {"a": 1}
    assert not transfer.may_leave()
    assert transfer.may_enter()
    assert transfer.matters
    transfer.enter()
    assert taker.remaining() == {"a": 0, "b": 1}
    assert not transfer.may_enter()
    transfer.withdraw()
    transfer.stay()
    assert (giver.remaining(), taker.remaining()) == ({"a": -1}, {"a": 2, "b": 1})


def test_an_amount_that_nobody_guarantees_matters_to_nobody() -> None:
    trial = Trial("root.a; root.b guaranteed=a:5")
    guarantees = Guarantees(trial.queue("root.b"))
    transfer = Transfer(guarantees.share(trial.queue("root.a")), guarantees.taker, shape_of({"c": 9}), ("a",))
    assert transfer.may_leave()  # nothing is guaranteed to its queue, so it always has too much
    assert transfer.may_enter()
    assert not transfer.matters
