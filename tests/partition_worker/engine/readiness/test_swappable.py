"""Who has something to swap is known without looking for it, in the order of the regular cycle."""

from partition_worker.engine.readiness.swappable import Swappable
from tests.builders import apps
from tests.trial import Trial


def trial(queues: str = "root.a; root.p.b") -> tuple[Trial, Swappable]:
    return Trial(queues).does(apps("app-1 root.a", "app-2 root.a", "app-3 root.p.b")), Swappable()


def test_nobody_has_anything_to_swap_at_first() -> None:
    _, swappable = trial()
    assert swappable.first(0) is None


def test_queues_come_first_then_the_order_of_the_leaf() -> None:
    one, swappable = trial()
    one.queue("root.a").allocated["memory"] = 5
    one.partition.tree.root.maximum = one.partition.tree.root.fair_maximum = {"memory": 10}
    one.queue("root.a").fair_maximum = {"memory": 10}
    for name in ("app-2", "app-1", "app-3"):
        swappable.offer(one.app(name))
    served = []
    while (application := swappable.first(0)) is not None:
        served.append(application.application_id)
        swappable.drop(application)
    assert served == ["app-3", "app-1", "app-2"]


def test_who_is_set_aside_comes_back_after_a_relief() -> None:
    one, swappable = trial()
    swappable.offer(one.app("app-1"))
    assert swappable.first(3) is one.app("app-1")
    swappable.set_aside(one.app("app-1"))
    assert swappable.first(3) is None
    assert one.app("app-1") in swappable
    assert swappable.first(4) is one.app("app-1")


def test_who_is_offered_anew_is_no_longer_set_aside() -> None:
    one, swappable = trial()
    swappable.offer(one.app("app-1"))
    swappable.set_aside(one.app("app-1"))
    swappable.offer(one.app("app-1"))
    assert swappable.first(-1) is one.app("app-1")
    swappable.drop(one.app("app-1"))
    assert swappable.first(9) is None
    assert one.app("app-1") not in swappable


def test_everybody_is_put_in_order_anew_when_queues_change() -> None:
    one, swappable = trial()
    swappable.offer(one.app("app-1"))
    swappable.offer(one.app("app-2"))
    swappable.set_aside(one.app("app-1"))
    one.queue("root.a").policies = one.queue("root.p.b").policies
    swappable.reorder()
    assert swappable.first(-1) is one.app("app-1")


def test_a_leaf_above_other_leaves_can_be_compared_with_them() -> None:
    one = Trial("root.a")
    one.does(apps("app-1 root.a"))
    one.reconfigures("root.a.x; root.a.y")
    one.does(apps("app-2 root.a.x"))
    swappable = Swappable()
    swappable.offer(one.app("app-1"))
    swappable.offer(one.app("app-2"))
    assert swappable.first(0) is one.app("app-2")
