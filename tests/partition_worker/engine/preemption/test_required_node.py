"""Who has to go for an ask that can run on one node only."""

from partition_worker.engine import ledger
from partition_worker.engine.preemption.required_node import victims
from tests.builders import foreign
from tests.partition_worker.engine.preemption.clusters import cluster, question
from tests.trial import Trial

QUEUES = "root.a preemption.policy=disabled guaranteed=memory:100; root.z"


def found(trial: Trial, words: str) -> list[str]:
    return [one.key for one in victims(trial.node("n1"), question(trial, f"root.z daemon required=n1 {words}"))]


def test_those_who_agreed_go_first_then_others_and_originators_last() -> None:
    trial = cluster(
        QUEUES,
        *("n1 memory=3", "root.a o n1 memory=1 originator", "root.a u n1 memory=1 unwilling", "root.a v n1 memory=1"),
    )
    assert found(trial, "memory=3") == ["v", "u", "o"]


def test_an_originator_that_did_not_agree_is_an_originator() -> None:
    parts = ("n1 memory=2", "root.a o n1 memory=1 originator", "root.a uo n1 memory=1 originator unwilling priority=-1")
    assert found(cluster(QUEUES, *parts), "memory=2") == ["uo", "o"]


def test_of_equals_the_least_important_then_the_newest_then_the_smallest() -> None:
    trial = cluster(
        QUEUES,
        *("n1 memory=8", "root.a old n1 memory=1 created=5", "root.a low n1 memory=1 created=5 priority=-1"),
        *(
            "root.a large n1 memory=2 created=9",
            "root.a small n1 memory=1 created=9",
            "root.a mid n1 memory=1 created=7",
        ),
    )
    assert found(trial, "memory=6") == ["low", "small", "large", "mid", "old"]


def test_no_more_than_cover_the_ask_however_much_room_the_node_has() -> None:
    parts = ("n1 memory=10", *(f"root.a r{number} n1 memory=3" for number in range(3)))
    assert found(cluster(QUEUES, *parts), "memory=5") == ["r2", "r1"]


def test_all_go_if_they_are_enough_together_with_the_room_on_the_node() -> None:
    parts = ("n1 memory=10", "root.a r1 n1 memory=3", "root.a r2 n1 memory=3")
    assert found(cluster(QUEUES, *parts), "memory=9") == ["r2", "r1"]


def test_nobody_goes_if_all_are_not_enough() -> None:
    trial = cluster(QUEUES, "n1 memory=10", "root.a r1 n1 memory=3")
    trial.takes(foreign("f1 n1 memory=4"))
    assert found(trial, "memory=7") == []


def test_nobody_goes_where_a_type_is_short_that_the_ask_does_not_even_name() -> None:
    """As in YuniKorn: the node has less than nothing of it."""
    trial = cluster(QUEUES, "n1 memory=3 gpu=1", "root.a r1 n1 memory=3")
    trial.takes(foreign("f1 n1 gpu=2"))
    assert found(trial, "memory=3") == []


def test_daemons_more_important_ones_and_those_who_go_already_stay() -> None:
    trial = cluster(
        QUEUES,
        *("n1 memory=9 gpu=1", "root.a d n1 memory=1 required=n1", "root.a high n1 memory=1 priority=6"),
        *("root.a p n1 memory=1", "root.a r n1 memory=1", "root.a g n1 gpu=1", "root.a v n1 memory=1 priority=5"),
    )
    application = trial.app("root.a")
    ledger.mark_preempted(trial.partition, application, application.allocations["p"])
    application.allocations["r"].released = True
    assert found(trial, "memory=1 priority=5") == ["v"]


def test_what_runs_elsewhere_and_what_is_foreign_does_not_count() -> None:
    trial = cluster(QUEUES, "n1 memory=1", "n2 memory=1", "root.a r2 n2 memory=1")
    trial.takes(foreign("f1 n1 memory=1"))
    assert found(trial, "memory=1") == []


def test_neither_guarantees_nor_policies_protect_and_its_own_queue_does_not_either() -> None:
    parts = ("n1 memory=2", "root.a r1 n1 memory=1", "root.z r2 n1 memory=1")
    assert found(cluster(QUEUES, *parts), "memory=2") == ["r2", "r1"]
