"""What becomes of placeholders is counted, and real asks of their group wait as long as there are any."""

from partition_worker.engine.application import TaskGroup
from tests.builders import apps, asks, nodes, released
from tests.trial import Trial


def trial(queues: str = "root.a") -> Trial:
    one = Trial(queues).does(nodes("n1 memory=100"), apps("app-1 root.a"))
    one.told()
    return one


def group(one: Trial, name: str = "g") -> TaskGroup:
    return one.app("app-1").task_groups[name]


def counts(one: Trial) -> tuple[int, int, int]:
    return group(one).count, group(one).replaced, group(one).timed_out


def test_each_placeholder_is_counted_once_asked_for_or_reported() -> None:
    one = trial().does(asks("app-1 p1 memory=5 placeholder group=g", "app-1 p2 memory=500 placeholder group=g"))
    one.does(asks("app-1 p3 memory=7 placeholder group=g on=n1", "app-1 p1 memory=5 placeholder group=g"))
    assert counts(one) == (3, 0, 0)
    assert group(one).minimum == {"memory": 5}, "that of the first"
    assert set(group(one).free) == {"p1", "p3"}


def test_a_placeholder_that_the_rm_places_itself_is_counted_once() -> None:
    one = trial().does(asks("app-1 p2 memory=500 placeholder group=g"))
    assert one.does(asks("app-1 p2 memory=500 placeholder group=g on=n1")).told()[-1] == "p2 on n1"
    assert counts(one) == (1, 0, 0)


def test_what_goes_without_being_replaced_has_timed_out() -> None:
    one = trial().does(asks(*(f"app-1 p{number} memory=5 placeholder group=g" for number in range(5))))
    for number, kind in enumerate(("STOPPED_BY_RM", "TIMEOUT", "PREEMPTED_BY_SCHEDULER", "PLACEHOLDER_REPLACED")):
        one.does(released(f"app-1 p{number} type={kind}"))
    assert counts(one) == (5, 0, 4)


def test_real_asks_that_came_before_the_placeholders_wait_for_them_too() -> None:
    one = trial().takes(asks("app-1 r1 memory=5 group=g", "app-1 p1 memory=5 placeholder group=g", "app-1 r2 memory=5"))
    one.settles()
    assert one.told() == [
        "app-1 Accepted",
        "p1 on n1",
        "p1 released (PLACEHOLDER_REPLACED: replacing allocationKey: r1)",
        "app-1 Running",
        "r2 on n1",
    ]


def test_a_group_without_placeholders_is_no_group() -> None:
    assert trial().does(asks("app-1 r1 memory=5 group=g")).told()[-1] == "r1 on n1"


def test_more_real_asks_than_placeholders_wait_until_the_last_was_replaced() -> None:
    """Spec 4.5 step 2: the count of a group is what decides, not what is left of it."""
    one = trial().does(asks("app-1 p1 memory=5 placeholder group=g"))
    one.does(asks("app-1 r1 memory=5 group=g", "app-1 r2 memory=5 group=g"))
    one.told()
    assert one.app("app-1").requests["r2"].held
    confirmed = one.does(released("app-1 p1 type=PLACEHOLDER_REPLACED"))
    assert confirmed.told() == ["r1 on n1", "app-1 Running", "r2 on n1"]


def test_another_placeholder_makes_real_asks_wait_again() -> None:
    one = trial().does(asks("app-1 r1 memory=500 group=g"))
    assert not one.app("app-1").requests["r1"].held
    one.does(asks("app-1 p1 memory=600 placeholder group=g"))
    assert one.app("app-1").requests["r1"].held
    one.does(released("app-1 p1"))
    assert not one.app("app-1").requests["r1"].held
    assert group(one).waiting == 0


def test_a_placeholder_that_is_no_longer_asked_for_does_not_keep_anybody_waiting() -> None:
    one = trial().does(asks("app-1 p1 memory=500 placeholder group=g", "app-1 r1 memory=5 group=g"))
    one.told()
    assert one.does(released("app-1 p1")).told() == ["app-1 Running", "r1 on n1"]
    assert counts(one) == (1, 0, 1)


def test_an_ask_that_waits_for_a_placeholder_does_not_hold_up_others() -> None:
    one = trial().does(asks("app-1 p1 memory=500 placeholder group=g", "app-1 r1 memory=5 group=g priority=9"))
    one.told()
    assert one.does(asks("app-1 a1 memory=5")).told() == ["app-1 Running", "a1 on n1"]


def test_an_ask_for_which_a_node_is_kept_gives_it_up_for_a_placeholder() -> None:
    one = trial().does(nodes("n2 memory=100"), apps("app-2 root.a"), asks("app-2 b1 memory=90", "app-2 b2 memory=90"))
    one.does(asks("app-1 r1 memory=15 group=g")).waits(3)
    assert one.app("app-1").reservations
    one.told()
    one.does(asks("app-1 p1 memory=15 placeholder group=g on=n1"))
    assert one.told()[-1] == "p1 released (PLACEHOLDER_REPLACED: replacing allocationKey: r1)"
    assert not one.app("app-1").reservations
    assert not one.node("n1").reservations


def test_a_resized_ask_is_compared_with_placeholders_anew() -> None:
    one = trial().does(asks("app-1 p1 memory=5 placeholder group=g"), asks("app-1 r1 memory=5 group=g"))
    assert one.app("app-1").swapping
    two = trial().does(asks("app-1 p1 memory=500 placeholder group=g", "app-1 r1 memory=6 group=g"))
    two.does(asks("app-1 r1 memory=4 group=g"), asks("app-1 p2 memory=5 placeholder group=g"))
    assert two.told()[-1] == "p2 released (PLACEHOLDER_REPLACED: replacing allocationKey: r1)"
