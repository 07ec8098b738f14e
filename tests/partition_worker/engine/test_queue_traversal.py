"""An application of which too many asks fit no node is left alone for a while."""

from tests.builders import apps, asks, nodes, released
from tests.trial import Trial

OFF_AFTER_2 = "root.a application.unschedasks.backoff=2 application.unschedasks.backoff.delay=60s"


def backing_off(*wanted: str, queues: str = OFF_AFTER_2) -> Trial:
    one = Trial(queues).does(nodes("n1 memory=5", "n2 memory=5", "n3 memory=5"), apps("app-1 root.a", "app-2 root.a"))
    one.takes(asks(*(f"app-1 {text}" for text in wanted)), asks("app-2 other memory=1"))
    one.settles()
    return one


def test_asks_after_so_many_that_fit_no_node_are_not_tried_and_others_are_served() -> None:
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "small memory=1")
    assert one.placed() == ["other on n1"]
    assert one.app("app-1").back_off_until == one.now + 60


def test_fewer_that_fit_no_node_keep_nobody_from_being_tried() -> None:
    one = backing_off("a memory=9 priority=9", "small memory=1", "b memory=9 priority=-1")
    assert one.placed() == ["small on n1", "other on n2"]


def test_what_fails_last_of_all_keeps_nobody_away() -> None:
    one = backing_off("small memory=1", "a memory=9 priority=-1", "b memory=9 priority=-1")
    assert one.app("app-1").back_off_until == 0
    assert one.placed() == ["small on n1", "other on n2"]


def test_an_ask_that_has_its_node_already_counts_as_one_that_comes_after() -> None:
    one = backing_off("a memory=9 priority=9", "small memory=1").takes(asks("app-1 b memory=9 priority=9"))
    assert one.placed() == ["small on n1", "other on n2"]
    one.settles()
    assert one.app("app-1").back_off_until == one.now + 60


def test_what_the_rm_reported_as_running_never_was_in_the_order() -> None:
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "run memory=1 on=n1")
    assert one.app("app-1").back_off_until == 0


def test_during_the_pause_nothing_of_it_is_tried_whatever_is_freed() -> None:
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "small memory=1")
    one.placed()
    one.does(nodes("n4 memory=9"))
    assert one.placed() == []
    assert one.waits(59).placed() == []
    assert one.waits(2).placed() == ["a on n4", "small on n2"], "one that fits no node is not enough"


def test_each_pause_is_followed_by_an_attempt_and_another_pause() -> None:
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "small memory=1")
    first = one.app("app-1").back_off_until
    one.waits(61)
    assert one.app("app-1").back_off_until >= first + 60
    one.waits(61)
    assert one.placed() == ["other on n1"]


def test_asks_that_are_alike_count_one_by_one() -> None:
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "c memory=8 priority=9", "small memory=1")
    assert one.placed() == ["other on n1"]


def test_only_what_fits_no_node_counts() -> None:
    queues = f"{OFF_AFTER_2} max=memory:6"
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "small memory=1", queues=queues)
    assert one.placed() == ["small on n1", "other on n2"]


def test_releasing_what_does_not_fit_ends_nothing_before_its_time() -> None:
    one = backing_off("a memory=9 priority=9", "b memory=9 priority=9", "small memory=1")
    one.placed()
    assert one.does(released("app-1 a"), released("app-1 b")).placed() == []
    assert one.waits(61).placed() == ["small on n2"]
