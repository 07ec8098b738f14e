"""Queues: settings, priorities, running applications, and policies."""

import pytest

from tests.builders import apps, asks, gone, nodes, released
from tests.trial import Trial
from yunishard.partition_worker.engine.amounts import amounts_of
from yunishard.partition_worker.engine.queues.queue import (
    NOTHING_PENDING,
    Policies,
    Tally,
    inherit_properties,
    outranks,
    parse_policies,
)
from yunishard.partition_worker.engine.user_resolution import User

BOB = User("bob", ("dev",))


def test_the_ancestry_begins_with_the_queue_and_ends_with_the_root() -> None:
    queue = Trial("root.p.q.a").queue("root.p.q.a")
    assert [level.path for level in queue.ancestry()] == ["root.p.q.a", "root.p.q", "root.p", "root"]
    assert queue.name == "a"


@pytest.mark.parametrize(
    ("properties", "asked", "shown"),
    [
        ("", 3, 3),
        ("priority.offset=4", 3, 7),
        ("priority.offset=-4", 3, -1),
        ("priority.policy=fence priority.offset=4", 3, 4),
        ("priority.policy=fence", 3, 0),
        ("priority.offset=2147483647", 3, 2**31 - 1),
        ("priority.offset=-2147483647", -3, -(2**31)),
    ],
)
def test_the_parent_sees_the_highest_priority_with_offset_or_behind_the_fence(
    properties: str, asked: int, shown: int
) -> None:
    trial = Trial(f"root.a {properties}")
    trial.partition.apply(apps("app-1 root.a"), trial.now)
    trial.partition.apply(asks(f"app-1 a1 memory=1 priority={asked}"), trial.now)
    assert trial.queue("root.a").priority == shown


def test_a_queue_in_which_nothing_waits_shows_the_lowest_number_even_behind_a_fence() -> None:
    trial = Trial("root.a priority.policy=fence priority.offset=4")
    assert trial.queue("root.a").priority == NOTHING_PENDING
    assert trial.queue("root").priority == NOTHING_PENDING


@pytest.mark.parametrize(
    ("queues", "asked", "other", "expected"),
    [
        ("root.a; root.b", 3, 2, True),
        ("root.a; root.b", 3, 3, False),
        ("root.a priority.offset=-1; root.b", 3, 2, False),
        ("root.a; root.b priority.offset=-1", 3, 3, True),
        ("root.a priority.policy=fence; root.b", 100, 0, False),
        ("root.a priority.policy=fence priority.offset=1; root.b", -100, 0, True),
        ("root.a priority.offset=2147483647; root.b", 1, 2147483647, True),
    ],
)
def test_an_ask_outranks_another_by_the_priorities_that_their_common_queue_sees(
    queues: str, asked: int, other: int, expected: bool
) -> None:
    trial = Trial(queues)
    assert outranks(trial.queue("root.a"), asked, trial.queue("root.b"), other) == expected


def test_behind_a_fence_and_in_one_queue_the_priorities_themselves_count() -> None:
    trial = Trial("root.p priority.policy=fence; root.p.a; root.p.b priority.policy=fence priority.offset=5; root.c")
    first, second, other = (trial.queue(path) for path in ("root.p.a", "root.p.b", "root.c"))
    assert outranks(second, 1, second, 0)
    assert (outranks(first, 6, second, 9), outranks(first, 5, second, -9)) == (True, False)
    assert (outranks(first, 9, other, 0), outranks(first, 9, other, -1)) == (False, True)


def test_an_ask_in_a_leaf_that_became_a_parent_is_compared_with_those_below_it() -> None:
    trial = Trial("root.p.a priority.offset=2")
    parent, leaf = trial.queue("root.p"), trial.queue("root.p.a")
    assert (outranks(parent, 3, leaf, 0), outranks(parent, 2, leaf, 0), outranks(leaf, 1, parent, 2)) == (
        True,
        False,
        True,
    )


def test_access_anywhere_above_is_access() -> None:
    trial = Trial("root submitacl=eve; root.p submitacl=bob; root.p.a; root.b")
    assert trial.queue("root.p.a").admits_submission(BOB)
    assert not trial.queue("root.b").admits_submission(BOB)


def test_nobody_may_submit_to_the_recovery_queue() -> None:
    trial = Trial("root submitacl=*")
    trial.partition.tree.create(trial.partition.tree.plan_creation("root.@recovery@", BOB))
    assert trial.queue("root").admits_submission(BOB)
    assert not trial.queue("root.@recovery@").admits_submission(BOB)


# Tally ----------------------------------------------------------------------------------------------------------------


def test_an_empty_tally_has_no_highest() -> None:
    assert Tally().highest is None


def test_the_highest_goes_when_the_last_of_its_kind_goes() -> None:
    tally = Tally()
    for number in (3, 7, 7):
        tally.exchange(None, number)
    tally.exchange(7, None)
    assert tally.highest == 7
    tally.exchange(7, None)
    assert tally.highest == 3
    tally.exchange(3, None)
    assert tally.highest is None


def test_a_number_is_exchanged_for_another() -> None:
    tally = Tally()
    tally.exchange(None, -5)
    tally.exchange(-5, -9)
    assert tally.highest == -9


def test_a_number_exchanged_for_itself_stays() -> None:
    tally = Tally()
    tally.exchange(None, 1)
    tally.exchange(1, 1)
    assert tally.highest == 1


# Priorities -----------------------------------------------------------------------------------------------------------


def shown(trial: Trial) -> list[int]:
    return [trial.queue(path).priority for path in ("root.p.a", "root.p", "root")]


def test_the_highest_below_is_shown_above() -> None:
    trial = Trial("root.p.a; root.p.b").does(apps("app-1 root.p.a", "app-2 root.p.b"))
    trial.does(asks("app-1 a1 memory=1 priority=3", "app-2 b1 memory=1 priority=5"))
    assert shown(trial) == [3, 5, 5]
    trial.does(released("app-2 b1"))
    assert shown(trial) == [3, 3, 3]


def test_each_level_adds_its_offset() -> None:
    trial = Trial("root.p priority.offset=10; root.p.a priority.offset=-2").does(apps("app-1 root.p.a"))
    trial.does(asks("app-1 a1 memory=1 priority=3"))
    assert shown(trial) == [1, 11, 11]


def test_a_fence_hides_what_is_asked_for_below_it() -> None:
    trial = Trial("root.p priority.policy=fence priority.offset=4; root.p.a").does(apps("app-1 root.p.a"))
    trial.does(asks("app-1 a1 memory=1 priority=3"))
    assert shown(trial) == [3, 4, 4]
    trial.does(asks("app-1 a2 memory=1 priority=900"))
    assert shown(trial) == [900, 4, 4]


def test_nothing_is_left_when_the_last_ask_goes() -> None:
    trial = Trial("root.p.a").does(apps("app-1 root.p.a"), asks("app-1 a1 memory=1 priority=3"))
    trial.does(gone("app-1"))
    assert shown(trial) == [NOTHING_PENDING] * 3


def test_an_ask_of_the_lowest_priority_is_legal() -> None:
    """Nothing pending is shown by the same number (spec 0); the state must still be consistent."""
    Trial("root.a").does(apps("app-1 root.a"), asks(f"app-1 a1 memory=1 priority={NOTHING_PENDING}"))


def test_an_offset_may_take_a_priority_to_the_lowest_number() -> None:
    trial = Trial(f"root.a priority.offset={NOTHING_PENDING}")
    trial.does(apps("app-1 root.a"), asks("app-1 a1 memory=1 priority=-5"))
    assert trial.queue("root.a").priority == NOTHING_PENDING


@pytest.mark.tampers
def test_what_a_queue_shows_may_change_with_its_policies() -> None:
    one = Trial("root.p.a").takes(apps("app-1 root.p.a"), asks("app-1 a1 memory=1 priority=3"))
    leaf = one.queue("root.p.a")
    before, leaf.policies = leaf.priority, Policies(priority_offset=4)
    leaf.update_priority(before)
    assert (one.queue("root.p").priority, one.queue("root").priority) == (7, 7)


def test_a_queue_that_waits_for_nothing_shows_nothing_before_and_after() -> None:
    leaf = Trial("root.p.a").queue("root.p.a")
    before, leaf.policies = leaf.priority, Policies(priority_offset=4)
    leaf.update_priority(before)
    assert leaf.parent is not None
    assert leaf.parent.child_priorities.highest is None


def test_a_parent_shows_what_is_in_its_children_not_what_it_has_from_when_it_was_a_leaf() -> None:
    one = Trial("root.a; root.b")
    one.does(
        apps("app-1 root.a", "app-3 root.b"), asks("app-1 a1 memory=10 priority=100", "app-3 b1 memory=10 priority=5")
    )
    assert one.queue("root.a").priority == 100
    one.reconfigures("root.a.x; root.b").does(apps("app-2 root.a.x"), asks("app-2 x1 memory=10 priority=1"))
    assert one.queue("root.a").priority == 1
    one.does(nodes("n1 memory=10"))
    assert one.running == ["b1 on n1"]
    one.reconfigures("root.a; root.b")
    assert one.queue("root.a").priority == 100


# Admission ------------------------------------------------------------------------------------------------------------


def test_no_limit_means_any_number() -> None:
    leaf = Trial("root.a").queue("root.a")
    for _ in range(1000):
        leaf.add_running(1)
    assert leaf.has_opening()


def test_every_level_of_the_path_must_have_a_place() -> None:
    trial = Trial("root.p maxapps=2; root.p.a maxapps=1; root.p.b")
    a, b = trial.queue("root.p.a"), trial.queue("root.p.b")
    a.add_running(1)
    assert not a.has_opening()
    assert b.has_opening()
    b.add_running(1)
    assert not b.has_opening()
    a.add_running(-1)
    assert a.has_opening()
    assert b.has_opening()
    assert [trial.queue(path).running for path in ("root.p.a", "root.p.b", "root.p", "root")] == [0, 1, 1, 1]


def test_one_that_got_something_while_accepted_counts_and_may_go_on() -> None:
    trial = Trial("root.p maxapps=1; root.p.a; root.p.b").takes(apps("app-1 root.p.a", "app-2 root.p.b"))
    one, other = trial.app("app-1"), trial.app("app-2")
    one.queue.count_allocating("app-1")
    assert one.queue.may_start(one.application_id)
    assert not other.queue.may_start(other.application_id)
    assert one.queue.discount_allocating("app-1")
    assert not one.queue.discount_allocating("app-1")
    assert other.queue.may_start(other.application_id)


def test_more_cannot_stop_than_have_started() -> None:
    with pytest.raises(AssertionError, match=r"root\.a"):
        Trial("root.a").queue("root.a").add_running(-1)


# Policies -------------------------------------------------------------------------------------------------------------


def test_without_properties_everything_has_its_default() -> None:
    assert parse_policies({}, leaf=True) == Policies()


def test_every_property_is_read() -> None:
    properties = {
        "application.sort.policy": "fair",
        "application.sort.priority": "disabled",
        "priority.policy": "fence",
        "priority.offset": "-5",
        "preemption.policy": "disabled",
        "preemption.delay": "1m",
        "preemption.cooldown": "2m",
        "quota.preemption.delay": "5s",
        "node.sort.policy": "Pack",
        "allocation.batch": "20",
    }
    assert parse_policies(properties, leaf=True) == Policies(
        application_sort="fair",
        priority_sort=False,
        priority_fence=True,
        priority_offset=-5,
        preemption="disabled",
        preemption_delay_s=60.0,
        preemption_cooldown_s=120.0,
        quota_preemption_delay_s=5.0,
        node_sort="pack",
        allocation_batch=20,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("application.sort.policy", "FAIR"),  # the one that depends on case
        ("application.sort.policy", "StateAware"),
        ("application.sort.priority", "off"),
        ("priority.policy", "wall"),
        ("priority.offset", "2147483648"),
        ("priority.offset", "-2147483649"),
        ("priority.offset", "1.5"),
        ("priority.offset", "1_000"),
        ("priority.offset", " 1"),
        ("preemption.policy", "never"),
        ("preemption.delay", "0s"),
        ("preemption.delay", "-1s"),
        ("preemption.delay", "soon"),
        ("preemption.cooldown", "0s"),
        ("quota.preemption.delay", "-1s"),
        ("node.sort.policy", "packed"),
        ("allocation.batch", "0"),
        ("allocation.batch", "-2"),
        ("allocation.batch", "2147483648"),
        ("allocation.batch", "all"),
    ],
)
def test_a_bad_value_means_the_default(name: str, value: str) -> None:
    assert parse_policies({name: value}, leaf=True) == Policies()


@pytest.mark.parametrize("value", ["2147483647", "-2147483648", "+7"])
def test_an_offset_may_be_any_32_bit_number(value: str) -> None:
    assert parse_policies({"priority.offset": value}, leaf=True).priority_offset == int(value)


@pytest.mark.parametrize("value", ["Disabled", "DISABLED"])
def test_most_values_ignore_case(value: str) -> None:
    assert not parse_policies({"application.sort.priority": value}, leaf=True).priority_sort
    assert parse_policies({"preemption.policy": value}, leaf=True).preemption == "disabled"


def test_the_preemption_delay_counts_only_on_a_leaf() -> None:
    assert parse_policies({"preemption.delay": "1m"}, leaf=False).preemption_delay_s == 30.0


def test_most_properties_are_passed_on() -> None:
    parent = {"application.sort.policy": "fair", "preemption.delay": "1m", "my.own": "x"}
    assert inherit_properties(parent) == parent


def test_priorities_and_fences_are_not_inherited() -> None:
    parent = {"priority.policy": "fence", "priority.offset": "5", "preemption.policy": "fence"}
    assert inherit_properties(parent) == {
        "priority.policy": "default",
        "priority.offset": "0",
        "preemption.policy": "default",
    }


def test_disabled_preemption_is_inherited() -> None:
    assert inherit_properties({"preemption.policy": "Disabled"}) == {"preemption.policy": "Disabled"}


def test_passing_on_leaves_the_parent_as_it_was() -> None:
    parent = {"priority.offset": "5"}
    inherit_properties(parent)
    assert parent == {"priority.offset": "5"}


def test_each_order_of_applications_has_its_word() -> None:
    words = ("fifo", "fair", "stateaware")
    assert [parse_policies({"application.sort.policy": word}, leaf=True).application_sort for word in words] == [*words]


# Headroom -------------------------------------------------------------------------------------------------------------


def test_without_any_maximum_there_is_no_limit() -> None:
    leaf = Trial("root.p.a").queue("root.p.a")
    assert leaf.compute_headroom() is None
    assert leaf.has_room(amounts_of({"memory": 10**18}))


@pytest.mark.tampers
def test_every_level_counts_and_the_tightest_decides() -> None:
    trial = Trial("root.p max=memory:10,gpu:1; root.p.a max=memory:8; root.p.b").takes(nodes("n1 memory=100 gpu=4"))
    a, b = trial.queue("root.p.a"), trial.queue("root.p.b")
    b.add_allocated(amounts_of({"memory": 5}))
    assert a.compute_headroom() == {"memory": 5, "gpu": 1}
    assert a.has_room(amounts_of({"memory": 5, "gpu": 1}))
    assert not a.has_room(amounts_of({"memory": 6}))
    assert not a.has_room(amounts_of({"gpu": 2}))


def test_a_type_that_no_maximum_names_is_unlimited() -> None:
    leaf = Trial("root.a max=memory:8").queue("root.a")
    assert leaf.has_room(amounts_of({"vcore": 10**9}))


def test_a_type_that_the_cluster_lacks_has_no_room_in_the_root() -> None:
    """Spec 1.3: at the root a type unknown to the cluster is refused."""
    trial = Trial("root.a").does(nodes("n1 memory=10"))
    assert trial.queue("root.a").compute_headroom() == {"memory": 10}


def test_negative_room_is_no_room_but_nothing_always_fits() -> None:
    leaf = Trial("root.a max=memory:8,gpu:1").queue("root.a")
    leaf.add_allocated(amounts_of({"memory": 20}))
    assert leaf.compute_headroom() == {"memory": -12, "gpu": 1}
    assert not leaf.has_room(amounts_of({"memory": 1}))
    assert leaf.has_room(amounts_of({"memory": 0, "gpu": 1}))


@pytest.mark.tampers
def test_a_queue_lacks_what_it_will_have_no_room_for_once_all_victims_have_left() -> None:
    trial = Trial("root.p max=memory:8,gpu:1; root.p.a max=memory:6").does(nodes("n1 memory=20 gpu=9"))
    leaf, parent = trial.queue("root.p.a"), trial.queue("root.p")
    leaf.add_allocated(amounts_of({"memory": 5}))
    asked = amounts_of({"memory": 4, "gpu": 2, "vcore": 0})
    assert leaf.find_lacks(asked) == [(leaf, {"memory": 3}), (parent, {"memory": 1, "gpu": 1})]
    leaf.add_preempting(amounts_of({"memory": 3}))
    assert leaf.find_lacks(asked) == [(parent, {"gpu": 1})]
    leaf.add_kept({"memory": 2})
    assert leaf.find_lacks(asked) == [(leaf, {"memory": 2}), (parent, {"gpu": 1})]
    assert leaf.find_lacks(asked, {"memory": 2}) == [(parent, {"gpu": 1})]


def test_charges_and_expectations_go_up_to_the_root_and_come_back() -> None:
    trial = Trial("root.p.a; root.b")
    leaf, parent, root, other = (trial.queue(path) for path in ("root.p.a", "root.p", "root", "root.b"))
    leaf.add_allocated(amounts_of({"memory": 3}))
    leaf.add_pending(amounts_of({"memory": 2}))
    assert [queue.allocated for queue in (leaf, parent, root)] == [{"memory": 3}] * 3
    assert [queue.pending for queue in (leaf, parent, root)] == [{"memory": 2}] * 3
    assert (other.allocated, other.pending) == ({}, {})
    leaf.subtract_allocated(amounts_of({"memory": 3}))
    leaf.subtract_pending(amounts_of({"memory": 2}))
    assert [queue.allocated for queue in (leaf, parent, root)] == [{}] * 3
    assert [queue.pending for queue in (leaf, parent, root)] == [{}] * 3


def test_taking_back_more_than_was_charged_is_a_defect() -> None:
    leaf = Trial("root.a").queue("root.a")
    leaf.add_allocated(amounts_of({"memory": 3}))
    with pytest.raises(AssertionError, match=r"root\.a"):
        leaf.subtract_allocated(amounts_of({"memory": 4}))
    with pytest.raises(AssertionError, match=r"root\.a"):
        leaf.subtract_pending(amounts_of({"memory": 1}))
