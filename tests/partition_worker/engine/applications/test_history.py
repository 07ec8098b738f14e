"""What allocations used until they ended."""

from common.rm_messages import NODE_DECOMMISSION
from partition_worker.engine import ledger
from partition_worker.engine.applications.history import Use
from tests.builders import apps, asks, nodes, released
from tests.trial import Trial

M5 = "m5.large"


def trial() -> Trial:
    """Something that stays, so that the application goes on, on a node that names its instance type."""
    one = Trial().takes(nodes(f"n1 memory=100 tag.si/instance-type={M5}", "n2 memory=100"), apps("app-1 root.a"))
    return one.takes(asks("app-1 stays memory=1 on=n1"))


def test_amounts_are_multiplied_by_the_whole_seconds_that_they_were_held() -> None:
    one = trial().takes(asks("app-1 a1 memory=4 gpu=2 on=n1")).waits(2.9).takes(released("app-1 a1"))
    assert one.app("app-1").history == {(Use.REAL, M5): {"memory": 8, "gpu": 4}}
    one.takes(asks("app-1 a2 memory=1 on=n1")).waits(10.1).takes(released("app-1 a2"))
    assert one.app("app-1").history == {(Use.REAL, M5): {"memory": 18, "gpu": 4}}


def test_what_ran_for_less_than_a_second_is_told_of_with_zeros() -> None:
    one = trial().takes(asks("app-1 a1 memory=4 on=n1")).waits(0.9).takes(released("app-1 a1"))
    assert one.app("app-1").history == {(Use.REAL, M5): {"memory": 0}}


def test_each_instance_type_is_counted_by_itself_and_a_node_that_goes_counts_too() -> None:
    one = trial().takes(asks("app-1 a1 memory=4 on=n1", "app-1 a2 memory=3 on=n2")).waits(1.1)
    one.takes(released("app-1 a1"), nodes("n2", action=NODE_DECOMMISSION))
    assert one.app("app-1").history == {(Use.REAL, M5): {"memory": 4}, (Use.REAL, "UNKNOWN"): {"memory": 3}}


def test_victims_and_placeholders_are_counted_by_themselves() -> None:
    one = trial().takes(asks("app-1 a1 memory=4 on=n1", "app-1 p1 placeholder group=tg memory=3 on=n1"))
    one.takes(asks("app-1 p2 placeholder group=tg memory=2 on=n1"))
    for key in ("a1", "p2"):
        ledger.mark_preempted(one.partition, one.app("app-1"), one.partition.allocations[key])
    one.waits(1.1).takes(released("app-1 a1 type=PREEMPTED_BY_SCHEDULER", "app-1 p1", "app-1 p2"))
    assert one.app("app-1").history == {(Use.PREEMPTED, M5): {"memory": 6}, (Use.PLACEHOLDER, M5): {"memory": 3}}


def test_an_application_that_ended_has_it_still() -> None:
    one = trial().waits(5).takes(released("app-1")).waits(30)
    (ended,) = one.partition.ended.values()
    assert ended.history == {(Use.REAL, M5): {"memory": 4}}
