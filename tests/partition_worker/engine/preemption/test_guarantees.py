"""What is left of guarantees; the vector is an example of the specification."""

from common.messages import Resources
from partition_worker.engine.ask_shapes import amounts_of
from partition_worker.engine.preemption.victim_candidates import Giver, Guarantees, GuaranteeShare
from tests.partition_worker.engine.preemption.clusters import remaining
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
    return {queue.path: remaining(guarantees.share(queue)) for queue in trial.partition.tree}


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


def giver_and_taker(trial: Trial, giver: str, taker: str, *wanted: str) -> tuple[Giver, GuaranteeShare, GuaranteeShare]:
    guarantees = Guarantees(trial.queue(taker))
    share = guarantees.share(trial.queue(giver))
    return Giver(share, guarantees.taker, wanted), share, guarantees.taker


def test_what_moves_counts_at_every_level_and_can_be_taken_back() -> None:
    trial = Trial("root.p guaranteed=a:5; root.p.x; root.q guaranteed=a:2,b:1; root.q.y")
    trial.queue("root.p").allocated = {"a": 6}
    giver, share, taker = giver_and_taker(trial, "root.p.x", "root.q.y", "a", "c")
    amounts = amounts_of({"a": 2, "c": 1})
    assert giver.has_surplus
    assert giver.may_leave()
    assert giver.may_enter(amounts)
    assert any(kind in taker.bounds for kind, _ in amounts)
    giver.move(amounts)
    assert (remaining(share), remaining(taker)) == ({"a": 1}, {"a": 0, "b": 1})
    assert not giver.may_leave()
    assert not giver.may_enter(amounts)
    giver.move(amounts, -1)
    assert (remaining(share), remaining(taker)) == ({"a": -1}, {"a": 2, "b": 1})


def test_what_moves_below_a_level_changes_nothing_there() -> None:
    trial = Trial("root.p guaranteed=a:5; root.p.x guaranteed=a:1; root.p.y")
    trial.queue("root.p").allocated, trial.queue("root.p.x").allocated = {"a": 5}, {"a": 4}
    giver, share, taker = giver_and_taker(trial, "root.p.x", "root.p.y", "a")
    amounts = amounts_of({"a": 3})
    assert giver.may_enter(amounts)  # what leaves makes room for it
    giver.move(amounts)
    assert (remaining(share), remaining(taker)) == ({"a": 0}, {"a": 0})
    giver.move(amounts, -1)
    giver.leave(amounts)
    assert (remaining(share), remaining(taker)) == ({"a": 0}, {"a": 3})
    giver.leave(amounts, -1)
    assert (remaining(share), remaining(taker)) == ({"a": -3}, {"a": 0})


def test_what_leaves_makes_no_room_where_there_is_too_much_anyhow() -> None:
    trial = Trial("root.p guaranteed=a:5; root.p.x; root.p.y")
    trial.queue("root.p").allocated = {"a": 6}
    giver, _, _ = giver_and_taker(trial, "root.p.x", "root.p.y", "a")
    assert giver.may_leave()
    assert not giver.may_enter(amounts_of({"a": 3}))


def test_too_much_of_a_type_that_is_not_wanted_does_not_let_anything_go() -> None:
    trial = Trial("root.x guaranteed=a:1,b:1; root.y")
    trial.queue("root.x").allocated = {"b": 2}
    assert not giver_and_taker(trial, "root.x", "root.y", "a")[0].has_surplus
    assert giver_and_taker(trial, "root.x", "root.y", "a", "b")[0].has_surplus


def test_an_amount_that_nobody_guarantees_matters_to_nobody() -> None:
    giver, _, taker = giver_and_taker(Trial("root.a; root.b guaranteed=a:5"), "root.a", "root.b", "a")
    amounts = amounts_of({"c": 9})
    assert giver.may_leave()  # nothing is guaranteed to its queue, so it always has too much
    assert giver.may_enter(amounts)
    assert not any(kind in taker.bounds for kind, _ in amounts)


def test_what_a_queue_has_used_of_its_own_guarantee_no_victim_gives_back() -> None:
    trial = Trial("root.p guaranteed=a:1; root.p.x guaranteed=a:5; root.p.y")
    trial.queue("root.p.x").allocated = {"a": 3}
    assert Guarantees(trial.queue("root.p.x")).may_cover({"a": 2, "b": 9})
    assert not Guarantees(trial.queue("root.p.x")).may_cover({"a": 3})
    assert Guarantees(trial.queue("root.p.y")).may_cover({"a": 9})  # others below its parent may


def test_but_victims_may_be_below_a_queue_that_was_a_leaf() -> None:
    trial = Trial("root.a guaranteed=a:1").reconfigures("root.a guaranteed=a:1; root.a.x")
    assert Guarantees(trial.queue("root.a")).may_cover({"a": 2})
