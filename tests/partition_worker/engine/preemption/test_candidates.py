"""Who might have to go, and in which order."""

from partition_worker.engine import ledger
from partition_worker.engine.preemption.candidates import candidates
from partition_worker.engine.preemption.fence import reach
from partition_worker.engine.preemption.guarantees import Guarantees
from tests.builders import foreign
from tests.partition_worker.engine.preemption.clusters import cluster
from tests.trial import Trial

NODE = "n1 memory=100 gpu=10"


def found(trial: Trial, *, protected: tuple[str, ...] = (), **wanted: int) -> list[str]:
    """Keys of the candidates for an ask in `root.z`."""
    leaf = trial.queue("root.z")
    among = candidates(reach(leaf, wanted, 0), Guarantees(leaf), wanted, protected)
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
    among = candidates(reach(leaf, {"memory": 1}, 0), Guarantees(leaf), {"memory": 1}, ())
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
