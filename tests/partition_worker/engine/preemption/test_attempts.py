"""Others have to go for an ask: when it may want that, what follows, and what is kept for it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.builders import apps, asks, foreign, nodes, released
from tests.partition_worker.engine.preemption.clusters import cluster, question
from tests.trial import Trial
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.rm_messages import (
    NODE_CREATE_DRAIN,
    NODE_DECOMMISSION,
    NODE_DRAIN,
    NODE_DRAIN_TO_SCHEDULABLE,
    NODE_UPDATE,
)
from yunishard.partition_worker.engine import ledger, queue_traversal
from yunishard.partition_worker.engine.attempt_log import (
    NO_HELP,
    PRECONDITIONS,
    list_messages,
)
from yunishard.partition_worker.engine.preemption import victim_choice
from yunishard.partition_worker.engine.preemption.victim_choice import plan_required_node_victims
from yunishard.partition_worker.engine.queue_traversal import Attempt
from yunishard.partition_worker.engine.state import VICTIMS_LEAVE_MAX_S, Tuning

QUEUES = "root.owner guaranteed=memory:10; root.borrower"


def borrowed(queues: str = QUEUES, *, wanted: str = "memory=4", preemption: bool | None = None) -> Trial:
    """A node of 10 that root.borrower has all of, in parts of 2, and an ask of root.owner that may preempt."""
    one = Trial(queues, preemption=preemption).does(
        nodes("n1 memory=10"),
        apps("owner root.owner", "borrower root.borrower"),
        asks(*(f"borrower b{number} memory=2 victim" for number in range(5))),
        asks(f"owner o1 {wanted} preemptor"),
    )
    one.told()
    return one


def going(one: Trial) -> list[str]:
    """Keys of those that the RM is asked to let go, since this was asked last."""
    return [line.split()[0] for line in one.told() if "(PREEMPTED_BY_SCHEDULER: preempting" in line]


def failures(one: Trial) -> set[str]:
    group = one.app("owner").requests["o1"].group
    assert group is not None
    return set(list_messages(group.log))


def confirmed(*keys: str) -> tuple[str, ...]:
    return tuple(f"borrower {key} type=PREEMPTED_BY_SCHEDULER" for key in keys)


# When ---------------------------------------------------------------------------------------------------------------


def test_an_ask_preempts_when_it_has_waited_for_the_delay_of_its_queue() -> None:
    one = borrowed()
    assert going(one.waits(29)) == []
    assert PRECONDITIONS in failures(one)
    assert going(one.waits(1.5)) == ["b4", "b3"]


def test_the_delay_is_that_of_the_queue() -> None:
    one = borrowed("root.owner guaranteed=memory:10 preemption.delay=5s; root.borrower")
    assert going(one.waits(4)) == []
    assert going(one.waits(1.5)) == ["b4", "b3"]


def test_what_could_not_preempt_tries_again_after_a_quarter_of_a_minute() -> None:
    one = borrowed("root.owner guaranteed=memory:10; root.borrower guaranteed=memory:10")
    assert going(one.waits(40)) == []
    assert NO_HELP in failures(one)
    one.reconfigures(QUEUES)
    assert going(one) == []
    assert going(one.waits(16)) == ["b4", "b3"]


def test_an_ask_that_may_not_preempt_waits() -> None:
    one = borrowed()
    one.does(released("owner o1"), asks("owner o1 memory=4"))
    assert going(one.waits(100)) == []
    assert PRECONDITIONS in failures(one)


def test_without_any_guarantee_nobody_preempts() -> None:
    one = borrowed("root.owner; root.borrower")
    assert going(one.waits(31).does(asks("owner o1 memory=5"))) == []
    assert "Preemption queue guarantees check failed" in failures(one)


def test_nobody_preempts_where_that_is_switched_off() -> None:
    one = borrowed(preemption=False)
    assert going(one.waits(100)) == []
    assert failures(one) == {"Not enough queue quota"}


def test_nobody_preempts_while_too_little_of_the_cluster_is_used() -> None:
    one = borrowed().does(nodes("n2 memory=10", action=NODE_CREATE_DRAIN))
    one.partition.tuning = Tuning(preemption_threshold=0.6, preemption_pause_s=5.0)
    assert going(one.waits(31)) == []
    assert "Preemption waits until more of the cluster is used" in failures(one)
    one.partition.tuning = Tuning(preemption_threshold=0.5, preemption_pause_s=5.0)
    assert going(one.waits(5)) == ["b4", "b3"]


def test_an_ask_preempts_no_others_while_its_victims_leave() -> None:
    one = borrowed().waits(30)
    assert going(one) == ["b4", "b3"]
    assert going(one.waits(VICTIMS_LEAVE_MAX_S - 1)) == []


def test_after_a_preemption_others_wait_until_its_ask_runs() -> None:
    """Also those of other applications. There is one node only, so they would look in vain before."""
    one = borrowed(wanted="memory=2").does(apps("second root.owner"), asks("second o2 memory=2 preemptor"))
    one.does(asks("owner o3 memory=2 preemptor"))
    assert going(one.waits(30.05)) == ["b4"]
    assert going(one.does(released(*confirmed("b4")))) == ["b3"]
    assert going(one.does(released(*confirmed("b3")))) == ["b2"]
    assert one.running == ["b0 on n1", "b1 on n1", "b2 on n1", "o1 on n1", "o3 on n1"]


def test_or_for_the_length_of_a_cycle() -> None:
    queues = "root.owner guaranteed=memory:20; root.borrower"
    one = Trial(queues).does(nodes("n1 memory=2", "n2 memory=2"), apps("owner root.owner", "borrower root.borrower"))
    one.does(asks("borrower b1 memory=2 victim", "borrower b2 memory=2 victim"))
    one.does(asks("owner o1 memory=2 preemptor", "owner o2 memory=2 preemptor"))
    assert len(going(one.waits(30))) == 1
    assert going(one.waits(0.05)) == []
    assert len(going(one.waits(0.06))) == 1


def test_or_until_its_ask_is_gone() -> None:
    queues = "root.owner guaranteed=memory:20; root.borrower"
    one = Trial(queues).does(nodes("n1 memory=2", "n2 memory=2"), apps("owner root.owner", "borrower root.borrower"))
    one.does(asks("borrower b1 memory=2 victim", "borrower b2 memory=2 victim"))
    one.does(asks("owner o1 memory=2 preemptor", "owner o2 memory=2 preemptor"))
    assert len(going(one.waits(30))) == 1
    assert len(going(one.does(released("owner o1")))) == 1


def test_many_asks_of_a_leaf_look_for_victims_in_turn() -> None:
    one = borrowed("root.owner guaranteed=memory:10; root.borrower guaranteed=memory:10")
    one.does(asks(*(f"owner more{number} memory={3 + number} preemptor created=1" for number in range(12))))
    reasons = [group.log for group in one.app("owner").asks.groups]
    assert sum(Reason.PREEMPTION_ATTEMPTS in failed for failed in reasons) == 12 - 10
    one.waits(1)
    assert len(one.queue("root.owner").preemption_tried) == 12


def test_all_of_a_guarantee_is_reclaimed_although_the_victims_are_larger_than_the_last_part() -> None:
    one = Trial("root.owner guaranteed=memory:10 preemption.delay=1s; root.borrower")
    one.does(nodes("n1 memory=12"), apps("owner root.owner", "borrower root.borrower"))
    one.does(asks("borrower b0 memory=6 victim", "borrower b1 memory=6 victim"))
    one.does(asks("owner o1 memory=5 preemptor", "owner o2 memory=5 preemptor"))
    assert going(one.waits(2)) == ["b1"]
    assert going(one.does(released(*confirmed("b1"))).waits(16)) == ["b0"]
    assert one.does(released(*confirmed("b0"))).running == ["o1 on n1", "o2 on n1"]


# What follows -------------------------------------------------------------------------------------------------------


def test_victims_run_until_the_rm_lets_them_go_and_then_the_ask_has_the_node() -> None:
    one = borrowed().waits(31)
    assert one.queue("root.borrower").preempting == {"memory": 4}
    assert one.queue("root.borrower").allocated == {"memory": 10}
    one.told()
    assert one.does(released(*confirmed("b4"))).placed() == []
    assert one.does(released(*confirmed("b3"))).placed() == ["o1 on n1"]
    assert one.queue("root.borrower").preempting == {"memory": 0}


def test_the_rm_hears_for_whom_it_is() -> None:
    one = borrowed().waits(31)
    (first, *_) = [line for line in one.told() if "PREEMPTED" in line]
    assert first == ("b4 released (PREEMPTED_BY_SCHEDULER: preempting allocations to free up resources to run ask: o1)")


def test_what_was_freed_is_kept_although_others_of_the_victims_ask_at_once() -> None:
    one = borrowed().waits(31)
    one.told()
    for key in ("b4", "b3"):
        one.does(released(*confirmed(key)), asks(f"borrower again-{key} memory=2 victim priority=9"))
    assert one.placed() == ["o1 on n1"]


def test_room_in_a_shared_queue_is_kept_for_the_ask_too() -> None:
    queues = "root.p max=memory:10; root.p.owner guaranteed=memory:10; root.p.borrower"
    one = Trial(queues).does(
        nodes("n1 memory=10", "n2 memory=10"),
        apps("owner root.p.owner", "borrower root.p.borrower"),
        asks(*(f"borrower b{number} memory=2 victim on=n1" for number in range(5))),
        asks("owner o1 memory=4 preemptor"),
    )
    one.waits(31)
    assert going(one) == ["b4", "b3"]
    assert one.queue("root.p").kept == {"memory": 4}
    one.does(released(*confirmed("b4")), asks("borrower again memory=2 priority=9"))
    assert one.placed() == [], "there is room on n2 and in root.p, but not for this one"
    assert one.does(released(*confirmed("b3"))).placed() == ["o1 on n1"]
    assert one.queue("root.p").kept == {}


def test_nothing_is_kept_any_more_when_the_ask_goes() -> None:
    one = borrowed().waits(31).does(released("owner o1"))
    one.told()
    one.does(released(*confirmed("b4")), asks("borrower again memory=2"))
    assert one.placed() == ["again on n1"]


def test_nothing_is_kept_any_more_when_the_node_goes() -> None:
    one = borrowed().waits(31).does(nodes("n2 memory=10"), nodes("n1", action=NODE_DECOMMISSION))
    assert one.queue("root.owner").kept == {}
    assert one.app("owner").allocations["o1"].node_id == "n2"


def test_an_ask_that_can_run_on_one_node_only_does_not_take_what_was_freed_for_another() -> None:
    one = borrowed().waits(31).does(nodes("n2 memory=10", action=NODE_CREATE_DRAIN))
    one.does(apps("daemon root.borrower"), asks("daemon d1 memory=2 required=n1 priority=9"))
    assert one.app("daemon").reservations == {}
    one.told()
    assert one.does(released(*confirmed("b4", "b3"))).placed() == ["o1 on n1"]
    assert list(one.app("daemon").reservations) == ["d1"], "now its node can be kept for it"


def test_a_victim_that_changes_its_size_leaves_the_sums_right() -> None:
    one = borrowed().waits(31).does(asks("borrower b4 memory=1"))
    assert one.queue("root.borrower").preempting == {"memory": 3}


def test_a_victim_that_is_moved_leaves_the_sums_right() -> None:
    one = borrowed("root.owner guaranteed=memory:10; root.borrower; root.other").waits(31)
    one.moves("borrower", "root.other")
    assert one.queue("root.borrower").preempting == {"memory": 0}
    assert one.queue("root.other").preempting == {"memory": 4}


def test_nobody_goes_where_the_ask_could_not_run() -> None:
    one = borrowed(wanted="memory=4 tag.yunishard/forbiddenNodes=n1").waits(100)
    assert going(one) == []


# Room that is lost ----------------------------------------------------------------------------------------------------


def waiting_for_victims() -> Trial:
    """Two nodes of 10 that root.borrower has all of; an ask of root.owner for 4 has preempted two allocations on n1."""
    one = Trial("root.owner guaranteed=memory:10 preemption.delay=1s; root.borrower")
    one.does(nodes("n1 memory=10", "n2 memory=10"), apps("owner root.owner", "borrower root.borrower"))
    one.does(asks(*(f"borrower b{number} memory=2 victim on=n{1 + number // 5}" for number in range(10))))
    one.does(nodes("n2", action=NODE_DRAIN), asks("owner o1 memory=4 preemptor")).waits(2)
    assert going(one.does(nodes("n2", action=NODE_DRAIN_TO_SCHEDULABLE))) == ["b4", "b3"]
    return one


LOSSES: dict[str, Callable[[Trial], object]] = {
    "its node leaves": lambda one: one.does(nodes("n1", action=NODE_DECOMMISSION)),
    "its node shrinks": lambda one: one.does(nodes("n1 memory=9", action=NODE_UPDATE)),
    "its node is drained": lambda one: one.does(nodes("n1", action=NODE_DRAIN)),
    "an operator cordons its node": lambda one: one.cordons("n1"),
    "a foreign allocation takes the room": lambda one: one.does(foreign("f1 n1 memory=1")),
    "the RM reports an allocation there": lambda one: one.does(asks("borrower x memory=1 on=n1")),
    "another allocation there grows": lambda one: one.does(asks("borrower b0 memory=3")),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_an_ask_that_has_lost_its_room_preempts_others(loss: str) -> None:
    one = waiting_for_victims()
    LOSSES[loss](one)
    assert going(one) == ["b9", "b8"]
    leaving = [key for key, allocation in one.app("borrower").allocations.items() if allocation.preempted]
    assert one.does(released(*confirmed(*leaving))).placed() == ["o1 on n2"]
    assert one.queue("root.owner").kept == {}


def test_an_ask_whose_victims_never_leave_preempts_others() -> None:
    one = waiting_for_victims().waits(VICTIMS_LEAVE_MAX_S)
    assert going(one) == ["b2", "b1"]
    assert one.does(released(*confirmed("b2", "b1"))).placed() == ["o1 on n1"]


def test_an_ask_that_has_grown_beyond_its_room_preempts_others() -> None:
    one = waiting_for_victims().does(asks("owner o1 memory=5"))
    assert going(one) == ["b2", "b1", "b0"]


def test_an_ask_whose_room_is_as_large_as_before_keeps_it() -> None:
    one = waiting_for_victims().does(nodes("n1 memory=11", action=NODE_UPDATE), foreign("f1 n1 memory=1"))
    assert going(one.does(asks("owner o1 memory=3"), asks("borrower b4 memory=1")).waits(60)) == []
    assert one.app("owner").reservations["o1"].node.node_id == "n1"


def test_an_ask_whose_queue_has_lost_the_room_is_as_one_that_never_preempted() -> None:
    queues = "root.p max=memory:10; root.p.owner guaranteed=memory:10 preemption.delay=1s; root.p.borrower"
    one = Trial(queues).does(nodes("n1 memory=10", "n2 memory=10"), apps("owner root.p.owner", "b root.p.borrower"))
    one.does(asks(*(f"b b{number} memory=2 victim on=n1" for number in range(5))), asks("owner o1 memory=4 preemptor"))
    assert going(one.waits(2)) == ["b4", "b3"]
    assert going(one.does(asks("b more memory=2 on=n2"))) == ["b2", "b1"], "now 4 too much are used"
    assert one.does(released("b b4", "b b3", "b b2")).placed() == ["o1 on n2"]


def test_a_lower_maximum_takes_the_room_as_well() -> None:
    queues = "root.p max=memory:10; root.p.owner guaranteed=memory:4 preemption.delay=1s; root.p.borrower"
    one = Trial(queues).does(nodes("n1 memory=10"), apps("owner root.p.owner", "b root.p.borrower"))
    one.does(asks(*(f"b b{number} memory=2 victim on=n1" for number in range(5))), asks("owner o1 memory=4 preemptor"))
    assert going(one.waits(2)) == ["b4", "b3"]
    one.reconfigures(queues.replace("10", "8"))
    assert going(one) == ["b2", "b1"]


def test_an_ask_that_requires_a_node_preempts_others_there_if_its_room_is_lost() -> None:
    one = borrowed("root.owner; root.borrower")
    one.does(nodes("n2 memory=10", action=NODE_CREATE_DRAIN), asks("owner d1 memory=3 required=n1"))
    assert going(one) == ["b4", "b3"]
    assert going(one.does(nodes("n1", action=NODE_DRAIN)).waits(60)) == [], "it runs on a drained node"
    assert going(one.does(foreign("f1 n1 memory=2"))) == ["b2", "b1", "b0"], "the node has less than nothing left"
    assert one.does(released(*confirmed("b2", "b1", "b0"))).placed() == ["d1 on n1"]


# One node only ------------------------------------------------------------------------------------------------------


def test_for_an_ask_that_can_run_on_one_node_only_the_less_important_there_go_at_once() -> None:
    one = borrowed("root.owner; root.borrower", preemption=False)
    one.does(nodes("n2 memory=10", action=NODE_CREATE_DRAIN), asks("owner d1 memory=3 required=n1"))
    assert going(one) == ["b4", "b3"]
    assert one.does(released(*confirmed("b4", "b3"))).placed() == ["d1 on n1"]


def test_it_waits_as_long_as_only_more_important_ones_run_there() -> None:
    one = Trial().does(nodes("n1 memory=4"), apps("app-1 root.a"), asks("app-1 high memory=4 priority=5 on=n1"))
    one.does(asks("app-1 d1 memory=3 required=n1 priority=1"))
    assert going(one.waits(60)) == []
    assert one.does(released("app-1 high"), asks("app-1 low memory=4")).placed()[-1:] == ["d1 on n1"]


def test_an_ask_that_requires_a_node_preempts_there_although_the_cluster_has_no_room_for_it() -> None:
    """10 are free elsewhere, and 15 are asked for."""
    one = Trial("root.a; root.d").does(nodes("n1 memory=40", "n2 memory=40"), apps("a root.a", "d root.d"))
    one.does(asks(*(f"a a{number} memory=10 on=n1" for number in range(4))))
    one.does(asks(*(f"a b{number} memory=10 on=n2" for number in range(3))))
    one.does(asks("d d1 memory=15 required=n1 priority=5"))
    assert going(one) == ["a3", "a2"]
    one.does(released("a a3", "a a2"), asks("a late memory=10 priority=9"))
    assert one.placed() == ["d1 on n1", "late on n2"]


def test_an_ask_in_a_full_queue_leaves_its_required_node_to_others_before_it_preempts_there_again() -> None:
    one = Trial("root.a max=memory:10; root.b")
    one.partition.tuning = Tuning(reservation_max_s=60)
    one.does(nodes("n1 memory=11"), apps("a root.a", "b root.b"))
    one.does(asks("a a1 memory=6 victim on=n1", "b b1 memory=5 on=n1"), asks("a d1 memory=5 required=n1"))
    assert going(one) == ["a1"]
    assert going(one.waits(60)) == [], "a1 has not left, and the reservation has ended"
    assert going(one.waits(2)) == ["b1"]


def test_victims_below_a_queue_without_room_come_first_if_the_others_do_not_make_room_in_it() -> None:
    """The newest are in another queue."""
    one = Trial(SHARED_QUEUES).does(nodes("n1 memory=16"), apps("a root.p.a", "d root.p.d", "z root.z"))
    one.does(asks("a a1 memory=4", "a a2 memory=4"), asks("z z1 memory=4", "z z2 memory=4"))
    assert going(one.does(asks("d d1 memory=4 required=n1"))) == ["a2"]
    assert one.does(released("a a2")).placed() == ["d1 on n1"]


@pytest.mark.parametrize("big", ["n3 memory=20", ""])
def test_an_ask_preempts_nothing_on_a_required_node_that_refuses_it_and_does_once_it_accepts_it(big: str) -> None:
    """Whether its queues have room, for which another node is enough, or not."""
    one = Trial("root.a; root.d").does(nodes("n1 memory=10", big or "n2 memory=1"), apps("a root.a", "d root.d"))
    one.does(asks("a a1 memory=8 on=n1"), asks("d d1 memory=5 required=n1 tag.yunishard/nodeSelector=zone=a"))
    assert going(one.waits(60)) == []
    assert one.app("d").reservations == {}, "an idle node would help nothing"
    one.does(nodes("n1 tag.zone=a", action=NODE_UPDATE))
    assert going(one) == ["a1"]
    assert one.does(released("a a1")).placed() == ["d1 on n1"]


SHARED_QUEUES = "root.p max=memory:10; root.p.a; root.p.d; root.z"


def test_it_preempts_if_its_queue_has_room_once_the_victims_have_left() -> None:
    one = Trial(SHARED_QUEUES).does(nodes("n1 memory=10", "n2 memory=10"), apps("a root.p.a", "d root.p.d"))
    one.does(asks(*(f"a a{number} memory=5 on=n1" for number in range(2))), asks("d d1 memory=4 required=n1"))
    assert going(one) == ["a1"]
    assert one.does(released("a a1"), asks("a late memory=5 priority=9")).placed() == ["d1 on n1"]


def test_it_preempts_nothing_if_its_queue_would_have_no_room_then_either_and_does_once_it_would() -> None:
    """Of 10 that its queue may use, 8 are used elsewhere; 2 of the victims are in the queue."""
    one = Trial(SHARED_QUEUES)
    one.does(nodes("n1 memory=10", "n2 memory=10"), apps("a root.p.a", "d root.p.d", "z root.z"))
    one.does(asks("z z1 memory=8 on=n1", "a a1 memory=2 on=n1"))
    one.does(asks(*(f"a b{number} memory=2 on=n2" for number in range(4))), asks("d d1 memory=4 required=n1"))
    assert going(one) == []
    assert one.app("d").reservations == {}, "an idle node would help nothing"
    assert going(one.does(released("a b0"))) == ["a1", "z1"]
    assert one.does(released("a a1", "z z1")).placed() == ["d1 on n1"]


def test_nothing_is_preempted_for_room_in_the_queue_alone() -> None:
    one = Trial(SHARED_QUEUES).does(nodes("n1 memory=20"), apps("a root.p.a", "d root.p.d"))
    one.does(asks("a a1 memory=10 on=n1"), asks("d d1 memory=4 required=n1"))
    assert going(one) == []
    assert one.does(released("a a1")).placed() == ["d1 on n1"]


# Many, and other settings ---------------------------------------------------------------------------------------------


def test_of_two_who_make_others_go_in_one_queue_neither_waits_for_the_victims_of_the_other() -> None:
    queues = "root.p max=memory:10; root.p.owner guaranteed=memory:10 preemption.delay=1s; root.p.borrower"
    one = Trial(queues).does(
        nodes("n1 memory=5", "n2 memory=5"),
        apps("owner root.p.owner", "borrower root.p.borrower"),
        asks("borrower b0 memory=5 victim", "borrower b1 memory=5 victim"),
        asks("owner o1 memory=5 preemptor", "owner o2 memory=5 preemptor"),
    )
    first, second = going(one.waits(2))
    one.does(released(*confirmed(first)), asks("borrower again memory=1 priority=9"))
    assert [line.split()[0] for line in one.placed()] == ["o1"]
    one.does(released(*confirmed(second)))
    assert [line.split()[0] for line in one.placed()] == ["o2"]


def waiting(queues: str) -> Trial:
    return Trial(queues).does(
        nodes("n1 memory=10"),
        apps("owner root.p.owner", "borrower root.borrower"),
        asks(*(f"borrower b{number} memory=2 victim" for number in range(5))),
        asks("owner o1 memory=4 preemptor"),
    )


def test_a_guarantee_above_the_queue_counts_once_it_is_configured() -> None:
    one = waiting("root.p.owner; root.borrower").waits(40)
    one.told()
    one.reconfigures("root.p guaranteed=memory:10; root.p.owner; root.borrower")
    assert going(one) == ["b4", "b3"]


def test_a_shorter_delay_counts_at_once() -> None:
    one = waiting("root.p.owner guaranteed=memory:10 preemption.delay=1h; root.borrower").waits(40)
    one.told()
    one.reconfigures("root.p.owner guaranteed=memory:10 preemption.delay=1s; root.borrower")
    assert going(one) == ["b4", "b3"]


def test_what_one_application_looked_for_in_vain_no_other_of_its_queue_looks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, looks = victim_choice.plan_victims, []
    monkeypatch.setattr(victim_choice, "plan_victims", lambda *of, **more: looks.append(of) or plan(*of, **more))
    one = borrowed("root.owner guaranteed=memory:10 preemption.delay=1s; root.borrower guaranteed=memory:10")
    one.takes(apps(*(f"more{number} root.owner" for number in range(50))))
    one.does(asks(*(f"more{number} m{number} memory=4 preemptor" for number in range(50)))).waits(2)
    assert len(looks) == 1
    tried = [app.asks for app in map(one.app, one.queue("root.owner").applications)]
    assert all(Reason.PREEMPTION_PAUSE in group.log for asks_ in tried[1:] for group in asks_.groups)


def attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The application of each attempt from now on."""
    seen: list[str] = []
    decide = Attempt.decide

    def tried(attempt: Attempt) -> object:
        seen.append(attempt.application.application_id)
        return decide(attempt)

    monkeypatch.setattr(Attempt, "decide", tried)
    return seen


def test_a_search_costs_one_attempt_however_many_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one = borrowed("root.owner guaranteed=memory:10 preemption.delay=1s; root.borrower guaranteed=memory:10")
    one.takes(apps(*(f"more{number} root.owner" for number in range(50))))
    one.does(asks(*(f"more{number} m{number} memory=4 preemptor" for number in range(50)))).waits(3)
    seen = attempts(monkeypatch)
    one.waits(46)
    assert seen == ["owner"] * 3, "one in 15 seconds, of the first in order"
    one.does(released("owner o1"))
    seen.clear()
    assert set(one.waits(16) and seen) == {"more0"}


def test_who_waits_for_the_room_of_a_user_looks_for_victims_as_soon_as_there_is_some() -> None:
    queues = "root limit.user.eve=memory:4; root.owner guaranteed=memory:10 preemption.delay=1s; root.borrower; root.z"
    one = borrowed(queues, wanted="memory=50").does(nodes("n2 memory=4"))
    one.does(apps("busy root.z user=eve", "late root.owner user=eve", "also root.owner user=eve"))
    one.does(asks("busy z1 memory=4"), asks("late l1 memory=4 preemptor"), asks("also l2 memory=4 preemptor"))
    assert going(one.waits(20)) == []
    one.does(apps("other root.z user=joe"), asks("other z2 memory=4 priority=9"))
    assert going(one.does(released("busy z1"))) == ["b4", "b3"]
    assert one.running[-1] == "z2 on n2", "its own room went to another user"


def test_a_user_whose_room_is_taken_before_its_search_leaves_the_search_to_the_next_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The turn ends after an application of ann was chosen for the search; then another queue takes the room of ann."""
    queues = """root limit.user.*=memory:4 limit.user.joe=memory:10; root.z;
        root.owner guaranteed=memory:20 preemption.delay=1s; root.borrower"""
    one = Trial(f"{queues} guaranteed=memory:10").does(nodes("n1 memory=10", "n2 memory=1"))
    one.does(apps("borrower root.borrower user=joe", "other root.z user=eve", "small root.z user=ann"))
    one.does(asks(*(f"borrower b{number} memory=2 victim" for number in range(5))))
    one.does(apps("first root.owner user=ann", "second root.owner user=bob"))
    one.does(asks("first o1 memory=4 preemptor", "second o2 memory=4 preemptor"))
    assert going(one.waits(2)) == []
    one.reconfigures(queues)
    monkeypatch.setattr(queue_traversal, "ATTEMPTS_PER_TURN", 1)
    one.now += 15.0
    one.takes(asks("other z1 memory=3 priority=9")).decides()
    one.takes(asks("small z2 memory=1 priority=9")).settles()
    messages = "\n".join(one.told())
    assert "z2 on n2" in messages
    assert messages.count("to run ask: o2") == 2


def test_who_waits_to_start_looks_for_victims_as_soon_as_it_may() -> None:
    queues = "root.p maxapps=1; root.p.owner guaranteed=memory:10 preemption.delay=1s; root.p.z; root.borrower"
    one = Trial(queues).does(
        nodes("n1 memory=10"),
        apps("busy root.p.z", "borrower root.borrower", "owner root.p.owner", "second root.p.owner"),
        asks("busy z1 memory=2", "busy z2 memory=20"),
        asks(*(f"borrower b{number} memory=2 victim" for number in range(4))),
        asks("owner o1 memory=4 preemptor"),
        asks("second o2 memory=4 preemptor"),
    )
    assert going(one.waits(20)) == []
    one.does(asks("borrower b4 memory=2 victim priority=9"))
    assert going(one.does(released("busy"))) == ["b3", "b2"]
    assert going(one.waits(100)) == [], "the second may not start"


def test_more_than_have_their_turn_at_once_are_not_woken_for_every_turn() -> None:
    one = borrowed("root.owner guaranteed=memory:1000 preemption.delay=1s; root.borrower guaranteed=memory:10")
    one.takes(apps(*(f"more{number} root.owner" for number in range(60))))
    one.does(asks(*(f"more{number} m{number} memory={5 + number} preemptor" for number in range(60)))).waits(3)
    assert len(one.queue("root.owner").preemption_tried) == 61, "each had its turn"
    times = [
        group.log[Reason.PREEMPTION_ATTEMPTS].times
        for app in map(one.app, one.queue("root.owner").applications)
        for group in app.asks.groups
        if Reason.PREEMPTION_ATTEMPTS in group.log
    ]
    assert max(times) <= 3


def test_a_leaf_stores_no_more_failed_searches_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victim_choice, "TRIED_MAX", 2)
    one = borrowed("root.owner guaranteed=memory:10; root.borrower guaranteed=memory:10")
    one.does(asks(*(f"owner more{number} memory={5 + number} preemptor created=1" for number in range(3))))
    assert 1 <= len(one.queue("root.owner").preemption_tried) <= 2


def test_without_a_pause_nobody_looks_for_ever_at_one_moment() -> None:
    one = borrowed("root.owner guaranteed=memory:10 limit.user.*=memory:3; root.borrower guaranteed=memory:10")
    one.partition.tuning = Tuning(preemption_pause_s=0.0)
    one.does(asks("owner o2 memory=5 preemptor"))
    assert one.partition.timers.deadline > one.now
    one.partition.tuning = Tuning(preemption_pause_s=0.0, preemption_threshold=2.0)
    one.does(nodes("n2 memory=10"), apps("other root.owner user=eve"), asks("other x1 memory=3 preemptor created=1"))
    assert one.waits(31).partition.timers.deadline > one.now


REQUIRED_NODE_QUEUES = "root.a preemption.policy=disabled guaranteed=memory:100; root.z"


def found(trial: Trial, words: str) -> list[str]:
    ask = question(trial, f"root.z daemon required=n1 {words}")
    victims = plan_required_node_victims(trial.partition.applications, trial.queue("root.z"), trial.node("n1"), ask)
    return [one.key for one in victims]


def test_those_who_agreed_go_first_then_others_and_originators_last() -> None:
    trial = cluster(
        REQUIRED_NODE_QUEUES,
        *("n1 memory=3", "root.a o n1 memory=1 originator", "root.a u n1 memory=1 unwilling", "root.a v n1 memory=1"),
    )
    assert found(trial, "memory=3") == ["v", "u", "o"]


def test_an_originator_that_did_not_agree_is_an_originator() -> None:
    parts = ("n1 memory=2", "root.a o n1 memory=1 originator", "root.a uo n1 memory=1 originator unwilling priority=-1")
    assert found(cluster(REQUIRED_NODE_QUEUES, *parts), "memory=2") == ["uo", "o"]


def test_of_equals_the_least_important_then_the_newest_then_the_smallest() -> None:
    trial = cluster(
        REQUIRED_NODE_QUEUES,
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
    assert found(cluster(REQUIRED_NODE_QUEUES, *parts), "memory=5") == ["r2", "r1"]


def test_all_go_if_they_are_enough_together_with_the_room_on_the_node() -> None:
    parts = ("n1 memory=10", "root.a r1 n1 memory=3", "root.a r2 n1 memory=3")
    assert found(cluster(REQUIRED_NODE_QUEUES, *parts), "memory=9") == ["r2", "r1"]


def test_nobody_goes_if_all_are_not_enough() -> None:
    trial = cluster(REQUIRED_NODE_QUEUES, "n1 memory=10", "root.a r1 n1 memory=3")
    trial.takes(foreign("f1 n1 memory=4"))
    assert found(trial, "memory=7") == []


def test_a_type_that_the_ask_does_not_name_protects_nothing_if_the_node_is_overcommitted_in_it() -> None:
    trial = cluster(REQUIRED_NODE_QUEUES, "n1 memory=3 gpu=1", "root.a r1 n1 memory=3")
    trial.takes(foreign("f1 n1 gpu=2"))
    assert found(trial, "memory=3") == ["r1"]


@pytest.mark.tampers
def test_daemons_more_important_ones_and_those_who_go_already_stay() -> None:
    trial = cluster(
        REQUIRED_NODE_QUEUES,
        *("n1 memory=9 gpu=1", "root.a d n1 memory=1 required=n1", "root.a high n1 memory=1 priority=6"),
        *("root.a p n1 memory=1", "root.a r n1 memory=1", "root.a g n1 gpu=1", "root.a v n1 memory=1 priority=5"),
    )
    application = trial.app("root.a")
    ledger.mark_preempted(trial.partition, application, application.allocations["p"])
    application.allocations["r"].released = True
    assert found(trial, "memory=1 priority=5") == ["v"]


def test_what_runs_elsewhere_and_what_is_foreign_does_not_count() -> None:
    trial = cluster(REQUIRED_NODE_QUEUES, "n1 memory=1", "n2 memory=1", "root.a r2 n2 memory=1")
    trial.takes(foreign("f1 n1 memory=1"))
    assert found(trial, "memory=1") == []


def test_neither_guarantees_nor_policies_protect_and_its_own_queue_does_not_either() -> None:
    parts = ("n1 memory=2", "root.a r1 n1 memory=1", "root.z r2 n1 memory=1")
    assert found(cluster(REQUIRED_NODE_QUEUES, *parts), "memory=2") == ["r2", "r1"]


@pytest.mark.parametrize(("checks_per_attempt", "searches"), [(16, [3]), (0.25, [1, 1, 1])])
def test_a_search_counts_as_the_work_of_a_turn(
    checks_per_attempt: float, searches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = borrowed("root.owner guaranteed=memory:10; root.borrower guaranteed=memory:10", wanted="memory=3")
    one.does(asks("owner o2 memory=4 preemptor", "owner o3 memory=5 preemptor"))
    counts: list[int] = []
    plan = victim_choice.plan_victims

    def counting(*args: Any, **fields: Any) -> Any:
        counts[-1] += 1
        return plan(*args, **fields)

    monkeypatch.setattr(victim_choice, "plan_victims", counting)
    monkeypatch.setattr(victim_choice, "CHECKS_PER_ATTEMPT", checks_per_attempt)
    monkeypatch.setattr(queue_traversal, "ATTEMPTS_PER_TURN", 4)
    one.now += 30.0
    while one.partition.next_change <= one.now or not one.partition.idle:
        counts.append(0)
        one._step(one.partition.step(one.now, 10))
    assert [count for count in counts if count] == searches
    assert going(one) == []
