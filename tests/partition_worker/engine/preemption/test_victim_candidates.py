"""How far an ask reaches, and whose priority counts there; vectors are examples of the specification."""

import pytest

from tests.builders import foreign
from tests.partition_worker.engine.preemption.clusters import cluster, remaining, victims
from tests.trial import Trial
from yunishard.common.messages.kinds import Resources
from yunishard.partition_worker.engine import ledger
from yunishard.partition_worker.engine.amounts import amounts_of, sum_of
from yunishard.partition_worker.engine.preemption.victim_candidates import (
    Giver,
    Guarantees,
    GuaranteeShare,
    areas,
    find_victim_candidates,
    reach_of,
)

FULL = ("n1 memory=1000", "root.p.a r1 n1 memory=100")


def fence_of(trial: Trial, path: str, **wanted: int) -> str:
    return next(reversed(reach_of(trial.queue(path), wanted, 0))).path


def within(trial: Trial, path: str, priority: int = 0) -> dict[str, int | None]:
    found = areas(reach_of(trial.queue(path), {"memory": 1}, priority))
    return {queue.path: highest for queue, highest in found}


def test_without_any_fence_it_reaches_up_to_the_root() -> None:
    assert fence_of(cluster("root.p.a; root.p.b", *FULL), "root.p.b", memory=100) == "root"


def test_a_fence_by_policy_ends_it() -> None:
    trial = cluster("root.p preemption.policy=fence; root.p.a; root.p.b; root.c", *FULL, "root.c x n1 memory=1")
    assert fence_of(trial, "root.p.b", memory=1) == "root.p"
    assert list(within(trial, "root.p.b")) == ["root.p.a"]
    assert list(within(trial, "root.c")) == ["root.p.a", "root.p.b"]  # it keeps asks in, not out


def test_a_leaf_that_is_a_fence_finds_nobody() -> None:
    assert within(cluster("root.p.a; root.p.b preemption.policy=fence", *FULL), "root.p.b") == {}


def test_a_queue_that_would_have_too_much_ends_it() -> None:
    """Vector 10: only victims below it help."""
    trial = cluster("root.p max=memory:200; root.p.a; root.p.b", *FULL)
    assert fence_of(trial, "root.p.b", memory=100) == "root"  # exactly full
    assert fence_of(trial, "root.p.b", memory=101) == "root.p"


def test_so_does_one_whose_parent_would_have_too_much() -> None:
    """The maximum of a queue is also that of all above it."""
    trial = cluster(
        "root.p max=memory:150; root.p.q.a; root.p.q.b; root.p.c", "n1 memory=900", "root.p.q.a x n1 memory=99"
    )
    assert fence_of(trial, "root.p.q.b", memory=52) == "root.p.q"


def test_a_maximum_of_a_type_that_nobody_uses_does_not_count() -> None:
    """Vector 10."""
    trial = cluster("root.p max=gpu:1; root.p.a; root.p.b", *FULL)
    assert fence_of(trial, "root.p.b", memory=500) == "root"


def test_the_offsets_of_the_queues_of_an_ask_count_against_those_beside_it() -> None:
    """Vector 9: they do even against its sibling, below the same parent."""
    asks_in, parts = "root.p.b ask memory=1", ("n1 memory=1", "root.p.a r1 n1 memory=1 priority=5")
    assert victims(cluster("root.p.a; root.p.b guaranteed=memory:10", *parts), asks_in) == []
    offset = "root.p priority.offset=10; root.p.a; root.p.b guaranteed=memory:10"
    assert victims(cluster(offset, *parts), asks_in) == ["r1"]


@pytest.mark.parametrize(
    ("parent", "goes"),
    [
        ("priority.offset=1001", False),
        ("priority.offset=1000", True),
        ("priority.policy=fence priority.offset=1", False),
        ("priority.policy=fence priority.offset=0", True),
        ("priority.policy=fence priority.offset=-1", True),
    ],
)
def test_offsets_and_fences_on_the_side_of_the_victim(parent: str, goes: bool) -> None:
    """Vector 11."""
    trial = cluster(
        f"root.b guaranteed=memory:10; root.p {parent}; root.p.a",
        "n1 memory=1",
        "root.p.a r1 n1 memory=1 priority=-1000",
    )
    assert bool(victims(trial, "root.b ask memory=1")) is goes


def test_behind_a_fence_that_the_ask_overcomes_no_priority_protects() -> None:
    trial = cluster(
        "root.b; root.p priority.policy=fence; root.p.a; root.p.q priority.policy=fence priority.offset=1; root.p.q.d",
        *("n1 memory=10", "root.p.a r1 n1 memory=1 priority=1000", "root.p.q.d r2 n1 memory=1"),
    )
    assert within(trial, "root.b") == {"root.p.a": None}  # and the next fence counts again
    assert within(trial, "root.b", priority=1) == {"root.p.a": None, "root.p.q.d": None}


@pytest.mark.parametrize(("offset", "goes"), [(-1000, True), (-1001, False)])
def test_a_priority_fence_on_the_side_of_the_ask(offset: int, goes: bool) -> None:
    """Vector 11."""
    trial = cluster(
        f"root.p priority.policy=fence priority.offset={offset}; root.p.b guaranteed=memory:10; root.a",
        *("n1 memory=1", "root.a r1 n1 memory=1 priority=-1000"),
    )
    assert bool(victims(trial, "root.p.b ask memory=1 priority=9")) is goes


def test_priorities_of_asks_are_not_cut_to_what_a_message_can_say() -> None:
    most = 2**31 - 1
    trial = cluster(f"root.p priority.offset={most}; root.p.b priority.offset={most}; root.a", "n1 memory=1")
    assert reach_of(trial.queue("root.p.b"), {"memory": 1}, most)[trial.queue("root.p")] == 3 * most


NODE = "n1 memory=100 gpu=10"


def found(trial: Trial, *, protected: tuple[str, ...] = (), **wanted: int) -> list[str]:
    """Keys of the candidates for an ask in `root.z`."""
    leaf = trial.queue("root.z")
    among = find_victim_candidates(
        trial.partition.applications, reach_of(leaf, wanted, 0), Guarantees(leaf), wanted, protected
    )
    return [allocation.key for allocation, _ in among]


def test_those_who_agreed_go_first_and_originators_last_and_of_equals_the_newest() -> None:
    trial = cluster(
        "root.a; root.b; root.z",
        NODE,
        *("root.a o1 n1 memory=1 originator", "root.a u1 n1 memory=1 unwilling", "root.b v1 n1 memory=1"),
        *("root.a uo n1 memory=1 unwilling originator", "root.b o2 n1 memory=1 originator", "root.a v2 n1 memory=1"),
    )
    assert found(trial, memory=1) == ["v2", "v1", "o2", "o1", "u1", "uo"]


def test_of_those_created_at_the_same_time_the_first_in_the_tree() -> None:
    same = [f"root.{leaf} {key} n1 memory=1 created=5" for leaf, key in (("b", "x"), ("a", "y"), ("a", "z"))]
    assert found(cluster("root.a; root.b; root.z", NODE, *same), memory=1) == ["y", "z", "x"]


def test_those_of_queues_with_the_same_guarantees_have_one_giver() -> None:
    """What is asked about guarantees is asked once for all of them."""
    trial = cluster(
        "root.a; root.b; root.p guaranteed=memory:1; root.p.c; root.p.d; root.z",
        *(NODE, *(f"root.{leaf} r{leaf} n1 memory=1" for leaf in ("a", "b", "p.c", "p.d"))),
    )
    leaf = trial.queue("root.z")
    among = find_victim_candidates(
        trial.partition.applications, reach_of(leaf, {"memory": 1}, 0), Guarantees(leaf), {"memory": 1}, ()
    )
    giver = {one.key: giver for one, giver in among}
    assert giver["ra"] is giver["rb"]
    assert giver["rp.c"] is giver["rp.d"]
    assert giver["ra"] is not giver["rp.c"]


def test_somebody_who_has_nothing_that_is_wanted_stays() -> None:
    trial = cluster(
        "root.a; root.z", NODE, "root.a r1 n1 memory=1", "root.a r2 n1 gpu=1", "root.a r3 n1 memory=1 gpu=1"
    )
    assert found(trial, gpu=1, vcore=1) == ["r3", "r2"]


def test_somebody_more_important_stays() -> None:
    trial = cluster("root.a; root.z", NODE, "root.a r1 n1 memory=1 priority=1", "root.a r2 n1 memory=1 priority=0")
    assert found(trial, memory=1) == ["r2"]


@pytest.mark.tampers
def test_daemons_and_those_who_go_already_stay() -> None:
    trial = cluster(
        "root.a; root.z", NODE, "root.a d n1 memory=1 required=n1", "root.a p n1 memory=1", "root.a r n1 memory=1"
    )
    ledger.mark_preempted(trial.partition, trial.app("root.a"), trial.app("root.a").allocations["p"])
    trial.app("root.a").allocations["r"].released = True
    assert found(trial, memory=1) == []
    trial.app("root.a").allocations["r"].released = False
    assert found(trial, memory=1) == ["r"]


def test_foreign_allocations_stay() -> None:
    trial = cluster("root.a; root.z", NODE)
    trial.takes(foreign("f1 n1 memory=5"))
    assert found(trial, memory=1) == []


def test_a_queue_that_loses_nothing_keeps_all() -> None:
    trial = cluster(
        "root.a preemption.policy=disabled; root.b guaranteed=memory:2; root.c; root.z",
        *(NODE, "root.a r1 n1 memory=1", "root.b r2 n1 memory=2", "root.c r3 n1 memory=1"),
    )
    assert found(trial, memory=1) == ["r3"]
    assert found(trial, memory=1, protected=("root.c",)) == []


def test_a_queue_above_its_guarantee_may_lose_even_if_what_is_wanted_is_not_the_type_of_which_it_has_too_much() -> None:
    """It is a candidate; whether it goes is asked later."""
    trial = cluster("root.a guaranteed=memory:5,gpu:1; root.z", NODE, "root.a r1 n1 memory=2 gpu=2")
    assert found(trial, memory=1) == ["r1"]


def test_what_a_queue_still_has_from_when_it_was_a_leaf_may_go() -> None:
    trial = cluster("root.a; root.z", NODE, "root.a r1 n1 memory=1").reconfigures("root.a.x; root.z")
    assert found(trial, memory=1) == ["r1"]


# Guarantees ----------------------------------------------------------------------------------------------------------

QUEUES = "root.p guaranteed=a:5; root.p.x guaranteed=b:5; root.p.y guaranteed=a:5; root.z"


def tree() -> Trial:
    """The numbers of the vector. A guarantee of the root comes from no configuration, but has a meaning."""
    trial = Trial(QUEUES)
    trial.queue("root").guaranteed = {"a": 10}
    for path, amount in (("root", 10), ("root.p", 10), ("root.p.y", 5)):
        trial.queue(path).allocated_sum = sum_of({"a": amount})
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
    trial.queue("root.a").allocated_sum, trial.queue("root.a").preempting = sum_of({"a": 7}), {"a": 3}
    assert left(trial, "root.b")["root.a"] == {"a": 1}


def giver_and_taker(trial: Trial, giver: str, taker: str, *wanted: str) -> tuple[Giver, GuaranteeShare, GuaranteeShare]:
    guarantees = Guarantees(trial.queue(taker))
    share = guarantees.share(trial.queue(giver))
    return Giver(share, guarantees.taker, wanted), share, guarantees.taker


def test_what_moves_counts_at_every_level_and_can_be_taken_back() -> None:
    trial = Trial("root.p guaranteed=a:5; root.p.x; root.q guaranteed=a:2,b:1; root.q.y")
    trial.queue("root.p").allocated_sum = sum_of({"a": 6})
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
    trial.queue("root.p").allocated_sum, trial.queue("root.p.x").allocated_sum = sum_of({"a": 5}), sum_of({"a": 4})
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
    trial.queue("root.p").allocated_sum = sum_of({"a": 6})
    giver, _, _ = giver_and_taker(trial, "root.p.x", "root.p.y", "a")
    assert giver.may_leave()
    assert not giver.may_enter(amounts_of({"a": 3}))


def test_too_much_of_a_type_that_is_not_wanted_does_not_let_anything_go() -> None:
    trial = Trial("root.x guaranteed=a:1,b:1; root.y")
    trial.queue("root.x").allocated_sum = sum_of({"b": 2})
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
    trial.queue("root.p.x").allocated_sum = sum_of({"a": 3})
    assert Guarantees(trial.queue("root.p.x")).may_cover({"a": 2, "b": 9})
    assert not Guarantees(trial.queue("root.p.x")).may_cover({"a": 3})
    assert Guarantees(trial.queue("root.p.y")).may_cover({"a": 9})  # others below its parent may


def test_but_victims_may_be_below_a_queue_that_was_a_leaf() -> None:
    trial = Trial("root.a guaranteed=a:1").reconfigures("root.a guaranteed=a:1; root.a.x")
    assert Guarantees(trial.queue("root.a")).may_cover({"a": 2})
