"""A queue is brought down to its maximum when its time has come."""

from dataclasses import replace

import pytest

from common import event_codes
from common.messages import Resources
from common.resources import Limit
from partition_worker.engine.preemption.quota_enforcement import (
    NO_QUOTA_PREEMPTION,
    choose_quota_victims,
    excess_to_claim,
    list_quota_candidates,
    quota_preemption_time,
    split_among_leaves,
    start_quota_timers,
)
from tests.builders import apps, asks, nodes, released
from tests.trial import Trial

DELAY = "quota.preemption.delay=5s"


def enforcing(queues: str, *running: str, applications: tuple[str, ...] = ("app-1 root.a",)) -> Trial:
    """A partition that enforces quotas, with these allocations running; nothing of it is told any more."""
    trial = Trial(queues, quota_preemption=True).takes(nodes("n1 memory=100"), apps(*applications))
    trial.takes(asks(*(f"{text} on=n1" for text in running)))
    trial.told()
    trial.partition.drain_events()
    return trial


def preempted(trial: Trial) -> list[str]:
    return [key for key, one in trial.partition.allocations.items() if one.preempted]


def lowered(maximum: int = 3) -> Trial:
    """A queue with three allocations of 2 whose maximum was lowered to this."""
    trial = enforcing(f"root.a max=memory:6 {DELAY}", *(f"app-1 a{number} memory=2 victim" for number in (1, 2, 3)))
    return trial.reconfigures(f"root.a max=memory:{maximum} {DELAY}")


def test_victims_are_asked_back_after_the_delay_and_only_then() -> None:
    trial = lowered()
    assert trial.waits(4.9).told() == []
    assert trial.waits(0.2).told() == [
        "a1 released (PREEMPTED_BY_SCHEDULER: preempting allocations to enforce new max quota for queue : root.a)"
    ]
    assert trial.queue("root.a").preempting == trial.queue("root").preempting == {"memory": 2}
    assert trial.queue("root.a").allocated == {"memory": 6}


def test_what_the_rm_confirms_is_gone() -> None:
    trial = lowered(maximum=2).waits(6)
    assert preempted(trial) == ["a1", "a2"]
    trial.takes(*(released(f"app-1 {key} type=PREEMPTED_BY_SCHEDULER") for key in ("a1", "a2")))
    assert trial.queue("root.a").allocated == {"memory": 2}
    assert trial.queue("root.a").preempting == {"memory": 0}


def test_it_is_done_once() -> None:
    trial = lowered().waits(6)
    assert trial.queue("root.a").quota_preemption_at == NO_QUOTA_PREEMPTION
    assert trial.told()
    assert trial.waits(100).told() == []


def test_while_no_queue_has_a_time_nobody_looks() -> None:
    trial = enforcing(f"root.a max=memory:6 {DELAY}", "app-1 a1 memory=2")
    assert trial.partition.quota_check_at > 1e18
    trial.reconfigures(f"root.a max=memory:1 {DELAY}")
    assert trial.partition.next_timer == trial.now + 1
    trial.waits(6)
    assert trial.partition.quota_check_at > 1e18


def test_a_queue_that_falls_below_its_maximum_in_the_meantime_is_left_alone() -> None:
    trial = lowered(maximum=4).waits(1)
    trial.takes(released("app-1 a3"))
    trial.waits(1)
    assert trial.queue("root.a").quota_preemption_at == NO_QUOTA_PREEMPTION
    assert trial.waits(10).told() == ["a3 released (STOPPED_BY_RM: allocation remove as per RM request)"]


def test_what_the_rm_places_above_the_maximum_is_enforced_as_well() -> None:
    trial = enforcing(f"root.a max=memory:5 {DELAY}", "app-1 a1 memory=4")
    trial.takes(asks("app-1 a2 memory=1 on=n1")).waits(10)
    assert preempted(trial) == []
    trial.takes(asks("app-1 a3 memory=1 on=n1")).waits(6)
    assert preempted(trial) == ["a2"]


def test_an_ask_that_the_rm_places_and_an_allocation_that_it_grows_are_as_unchecked() -> None:
    for grows in (asks("app-1 a2 memory=2 on=n1"), asks("app-1 a1 memory=6")):
        trial = enforcing(f"root.a max=memory:5 {DELAY}", "app-1 a1 memory=4")
        trial.takes(asks("app-1 a2 memory=2"), grows)
        assert trial.queue("root.a").quota_preemption_at == trial.now + 5


def test_without_the_switch_of_the_partition_nothing_happens_until_it_is_on() -> None:
    trial = Trial(f"root.a max=memory:6 {DELAY}").takes(nodes("n1 memory=100"), apps("app-1 root.a"))
    trial.takes(asks("app-1 a1 memory=2 on=n1", "app-1 a2 memory=2 on=n1"))
    trial.reconfigures(f"root.a max=memory:2 {DELAY}").waits(20)
    assert preempted(trial) == []
    trial.reconfigures(f"root.a max=memory:2 {DELAY}", quota_preemption=True).waits(1)
    assert preempted(trial) == ["a1"]
    trial.takes(asks("app-1 a3 memory=2 on=n1"))
    trial.reconfigures(f"root.a max=memory:2 {DELAY}", quota_preemption=False).waits(20)
    assert preempted(trial) == ["a1"]


def test_a_parent_goes_before_what_is_below_it_which_has_its_turn_a_second_later() -> None:
    before = f"root.p max=memory:20 {DELAY}; root.p.a max=memory:10; root.p.b max=memory:10"
    after = f"root.p max=memory:8 {DELAY}; root.p.a max=memory:1; root.p.b max=memory:10"
    trial = enforcing(
        before,
        *(f"app-1 a{number} memory=1 victim" for number in range(5)),
        *(f"app-2 b{number} memory=1 victim" for number in range(5)),
        applications=("app-1 root.p.a", "app-2 root.p.b"),
    ).reconfigures(after)
    trial.waits(5.5)
    assert preempted(trial) == ["a0", "b0"]
    trial.waits(1)
    assert preempted(trial) == ["a0", "a1", "a2", "a3", "b0"]
    assert trial.queue("root.p.a").preempting == {"memory": 4}


def test_a_parent_from_whose_children_nothing_may_be_taken_takes_nothing() -> None:
    """BUG 7: there it crashes."""
    queues = f"root.p max=memory:6 {DELAY}; root.p.a guaranteed=memory:4"
    trial = enforcing(queues, "app-1 a1 memory=4", applications=("app-1 root.p.a",))
    trial.reconfigures(queues.replace("max=memory:6", "max=memory:2"))
    trial.partition.drain_events()
    trial.waits(6)
    assert preempted(trial) == []
    assert trial.partition.drain_events() == []


def test_what_others_hold_back_already_is_not_taken_twice() -> None:
    trial = lowered(maximum=2).waits(6)
    trial.reconfigures(f"root.a max=memory:1 {DELAY}").waits(6)
    assert preempted(trial) == ["a1", "a2"]


def test_the_history_tells_of_each_victim_and_of_all_of_them_together() -> None:
    """The summary counts the victims of all applications (BUG 7)."""
    trial = enforcing(
        f"root.a max=memory:6 {DELAY}",
        "app-1 a1 memory=2 victim",
        "app-2 b1 memory=2 victim",
        "app-1 a2 memory=2 victim",
        applications=("app-1 root.a", "app-2 root.a"),
    )
    trial.reconfigures(f"root.a max=memory:1 {DELAY}")
    trial.partition.drain_events()
    trial.waits(6)
    one, two, summary = trial.partition.drain_events()
    (entry,) = trial.partition.preemptions.entries
    assert (entry.reason, entry.queue, [victim.key for victim in entry.victims]) == ("quota", "root.a", ["a1", "a2"])
    text, none = "Preempted by Quota change enforcement process in root.a", event_codes.NONE
    for key, told in (("a1", one), ("a2", two)):
        assert told == (event_codes.REQUEST, key, "app-1", none, event_codes.DETAILS_NONE, text, {"memory": 2})
    assert summary[:5] == (event_codes.QUEUE, "root.a", "", event_codes.SET, event_codes.QUEUE_PREEMPTION)
    assert summary[5].endswith("preemptable memory=5, claimed memory=4, selected 3, preempted 2")
    assert summary[6] == {"memory": 1}


def using(queues: str, **used: Resources) -> Trial:
    """Queues and what is charged to their leaves, named without `root.` and with `_` for dots."""
    trial = Trial(queues)
    for name, amount in used.items():
        trial.queue("root." + name.replace("_", ".")).add_to_total("allocated", amount)
    return trial


def running(*texts: str, maximum: str = "memory:10", at: str = "root.a") -> Trial:
    """Allocations of app-1 in a queue, which may exceed what its node and queue have."""
    trial = Trial(f"{at} max={maximum}").takes(nodes("n1 memory=10"), apps(f"app-1 {at}"))
    return trial.takes(asks(*(f"app-1 {text} on=n1" for text in texts)))


def order(trial: Trial, **wanted: int) -> list[str]:
    return [one.key for one in list_quota_candidates(trial.partition.applications, trial.queue("root.a"), wanted)]


# How much -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("guarantee", "expected"), [("", 500), ("guaranteed=memory:1200", 300), ("guaranteed=memory:900", 500)]
)
def test_the_excess_goes_as_far_as_nothing_is_guaranteed_to_it(guarantee: str, expected: int) -> None:
    """Vector 16."""
    trial = using(f"root.p {guarantee}; root.p.a max=memory:1000", p_a={"memory": 1500})
    assert excess_to_claim(trial.queue("root.p.a")) == {"memory": expected}


def test_of_several_guarantees_the_one_that_is_exceeded_most_counts() -> None:
    queues = "root.p guaranteed=memory:1000; root.p.a max=memory:800 guaranteed=memory:1400"
    assert excess_to_claim(using(queues, p_a={"memory": 1500}).queue("root.p.a")) == {"memory": 500}


def test_what_was_asked_back_already_counts_as_gone() -> None:
    trial = using("root.a max=memory:10", a={"memory": 16})
    trial.queue("root.a").add_to_total("preempting", {"memory": 4})
    assert excess_to_claim(trial.queue("root.a")) == {"memory": 2}
    trial.queue("root.a").add_to_total("preempting", {"memory": 2})
    assert excess_to_claim(trial.queue("root.a")) == {}


def test_only_types_of_which_there_is_too_much_are_wanted() -> None:
    trial = using("root.a max=memory:10,gpu:2; root.b", a={"memory": 12, "gpu": 2, "vcore": 9}, b={"memory": 12})
    assert excess_to_claim(trial.queue("root.a")) == {"memory": 2}
    assert excess_to_claim(trial.queue("root.b")) == {}


# Which queues -------------------------------------------------------------------------------------------------------


def test_a_parent_divides_the_amount_by_what_its_children_use_beyond_their_guarantees() -> None:
    queues = "root.p max=memory:1; root.p.a guaranteed=memory:20; root.p.b; root.p.c guaranteed=memory:50; root.p.d"
    trial = using(queues, p_a={"memory": 50}, p_b={"memory": 60}, p_c={"memory": 50})
    divided = [(leaf.name, part) for leaf, part in split_among_leaves(trial.queue("root.p"), {"memory": 31})]
    assert divided == [("a", {"memory": 10}), ("b", {"memory": 20})]


def test_the_amount_reaches_the_leaves_level_by_level() -> None:
    trial = using("root.p.q.a; root.p.q.b; root.p.c", p_q_a={"memory": 10}, p_q_b={"memory": 30}, p_c={"memory": 40})
    divided = [(leaf.path, part) for leaf, part in split_among_leaves(trial.queue("root.p"), {"memory": 40})]
    assert divided == [("root.p.q.a", {"memory": 5}), ("root.p.q.b", {"memory": 15}), ("root.p.c", {"memory": 20})]


def test_each_type_is_divided_by_itself() -> None:
    trial = using("root.p.a; root.p.b", p_a={"memory": 10, "gpu": 1}, p_b={"memory": 10})
    divided = [(leaf.name, part) for leaf, part in split_among_leaves(trial.queue("root.p"), {"memory": 4, "gpu": 1})]
    assert divided == [("a", {"memory": 2, "gpu": 1}), ("b", {"memory": 2})]


def test_a_parent_without_surplus_below_it_has_no_leaves_that_give() -> None:
    trial = using("root.p.a guaranteed=memory:10; root.p.b", p_a={"memory": 10})
    assert list(split_among_leaves(trial.queue("root.p"), {"memory": 1})) == []


# Which allocations --------------------------------------------------------------------------------------------------


def test_those_who_did_not_agree_go_first_then_originators() -> None:
    """Vector 13."""
    trial = running("normal victim memory=1", "origin victim originator memory=1", "opted-out memory=1")
    assert order(trial, memory=3) == ["opted-out", "origin", "normal"]


def test_then_those_go_of_which_most_types_are_wanted() -> None:
    trial = running("third victim memory=1 vcore=1 gpu=1", "half victim memory=1 vcore=1", "all victim memory=1")
    assert order(trial, memory=3) == ["all", "half", "third"]


def test_then_the_lowest_priority_then_the_newest_hour_then_the_smallest_goes() -> None:
    trial = running(
        "high victim memory=1 priority=2 created=7200",
        "old victim memory=1 created=3599",
        "large victim memory=3 created=3600",
        "small victim memory=2 created=7199",
        "new victim memory=9 created=7200",
    )
    assert order(trial, memory=9) == ["new", "small", "large", "old", "high"]


def test_size_is_that_of_the_wanted_types_relative_to_the_maximum() -> None:
    trial = running(
        "much-gpu victim memory=10 gpu=3 vcore=1",
        "much-memory victim memory=50 gpu=1 vcore=9",
        maximum="memory:100,gpu:4",
    )
    assert order(trial, memory=1, gpu=1) == ["much-memory", "much-gpu"]


@pytest.mark.tampers
def test_what_has_to_run_on_its_node_or_goes_already_or_has_nothing_of_it_is_no_candidate() -> None:
    trial = running(
        "pinned victim memory=1 required=n1", "going victim memory=1", "gone victim memory=1", "other victim gpu=1"
    )
    trial.partition.allocations["going"].preempted = True
    trial.partition.allocations["gone"].released = True
    assert order(trial, memory=1) == []
    assert order(trial, gpu=1) == ["other"]


def test_applications_of_a_leaf_are_looked_at_together() -> None:
    trial = running("a1 victim memory=2", "a2 victim memory=4").takes(apps("app-2 root.a"))
    trial.takes(asks("app-2 b1 memory=3 victim on=n1"))
    assert order(trial, memory=9) == ["a1", "b1", "a2"]


def test_each_candidate_goes_that_leaves_the_sum_within_the_amount() -> None:
    """Vector 15."""
    trial = running(*(f"{size} victim memory={size}" for size in ("3", "4", "5", "6")))
    ordered = list_quota_candidates(trial.partition.applications, trial.queue("root.a"), {"memory": 8})
    assert [one.key for one in ordered] == ["3", "4", "5", "6"]
    assert [one.key for one in choose_quota_victims(ordered, {"memory": 8})] == ["3", "4"]
    assert [one.key for one in choose_quota_victims(ordered, {"memory": 5})] == ["3"]
    assert [one.key for one in choose_quota_victims(ordered[::-1], {"memory": 9})] == ["6", "3"]


def test_types_that_are_not_wanted_do_not_keep_a_candidate_from_going() -> None:
    trial = running("a1 victim memory=1 gpu=5")
    ordered = list_quota_candidates(trial.partition.applications, trial.queue("root.a"), {"memory": 1})
    assert [one.key for one in choose_quota_victims(ordered, {"memory": 1})] == ["a1"]


# Times of quota preemption --------------------------------------------------------------------------------------------


NOW = 1000.0


Terms = tuple[Limit | None, float]
"""The maximum of a queue, and the delay of its quota preemption in seconds."""


def at(before: Terms, after: Terms, used: int, was: float = NO_QUOTA_PREEMPTION) -> float:
    queue = Trial("root.a").queue("root.a")
    queue.maximum, queue.policies = after[0], replace(queue.policies, quota_preemption_delay_s=after[1])
    queue.allocated, queue.quota_preemption_at = {"memory": used}, was
    return quota_preemption_time(queue, *before, NOW)


def terms(maximum: int | None, delay_s: float = 5.0) -> Terms:
    return None if maximum is None else {"memory": maximum}, delay_s


# Vector 14 ----------------------------------------------------------------------------------------------------------


def test_a_first_maximum_below_what_is_used_sets_no_time() -> None:
    assert at(terms(None), terms(50), used=100) == NO_QUOTA_PREEMPTION


def test_a_lowered_maximum_sets_the_time_and_lowering_it_again_leaves_it() -> None:
    assert at(terms(100), terms(10), used=110) == NOW + 5
    assert at(terms(10), terms(5), used=110, was=990.0) == 990.0


def test_a_maximum_above_what_is_used_clears_the_time() -> None:
    assert at(terms(10), terms(100), used=90, was=990.0) == NO_QUOTA_PREEMPTION
    assert at(terms(10), terms(90), used=90, was=990.0) == NO_QUOTA_PREEMPTION


# The other rules ----------------------------------------------------------------------------------------------------


def test_without_a_delay_or_a_maximum_there_is_no_time() -> None:
    assert at(terms(100), terms(10, delay_s=0), used=110, was=990.0) == NO_QUOTA_PREEMPTION
    assert at(terms(100), terms(None), used=110, was=990.0) == NO_QUOTA_PREEMPTION


@pytest.mark.parametrize("maximum", [10, 5, 20])
def test_another_delay_moves_the_time_by_the_difference(maximum: int) -> None:
    assert at(terms(10), terms(maximum, delay_s=7), used=110, was=990.0) == 992.0
    assert at(terms(10), terms(maximum, delay_s=1), used=110, was=990.0) == 986.0


def test_the_same_maximum_sets_the_time_only_when_there_was_no_delay_before() -> None:
    assert at(terms(10, delay_s=0), terms(10), used=110) == NOW + 5
    assert at(terms(10, delay_s=3), terms(10), used=110) == NO_QUOTA_PREEMPTION


def test_a_raised_maximum_sets_no_time_even_if_more_is_used() -> None:
    assert at(terms(10, delay_s=0), terms(20), used=110) == NO_QUOTA_PREEMPTION


@pytest.mark.parametrize("was", [NO_QUOTA_PREEMPTION, 990.0])
def test_a_change_in_both_directions_changes_nothing(was: float) -> None:
    assert at(({"memory": 100, "gpu": 1}, 5.0), ({"memory": 10, "gpu": 2}, 50.0), 110, was) == was


@pytest.mark.parametrize(
    ("maximum", "expected"),
    [
        ({"memory": 100}, NOW + 5),
        ({"memory": 100, "gpu": 1, "vcore": 1}, NO_QUOTA_PREEMPTION),
        ({"gpu": 0, "memory": 99}, NOW + 5),
    ],
)
def test_a_type_that_is_no_longer_limited_counts_as_lowered_to_nothing(maximum: Limit, expected: float) -> None:
    """Spec 5.4: maxima are compared with 0 for a missing type."""
    assert at(({"memory": 100, "gpu": 1}, 5.0), (maximum, 5.0), 101) == expected


@pytest.mark.tampers
def test_what_grows_unchecked_sets_the_time_of_each_level_that_exceeds_its_maximum_now() -> None:
    queues = "root.p max=memory:9 quota.preemption.delay=5s; root.p.a max=memory:3; root.p.b max=memory:3"
    trial = Trial(queues).takes(nodes("n1 memory=100"))
    parent, a, root = trial.queue("root.p"), trial.queue("root.p.a"), trial.queue("root")
    a.add_to_total("allocated", {"memory": 3})
    assert not start_quota_timers(a, NOW)
    a.add_to_total("allocated", {"memory": 3})
    assert start_quota_timers(a, NOW)
    assert (a.quota_preemption_at, parent.quota_preemption_at, root.quota_preemption_at) == (
        NOW + 5,
        NO_QUOTA_PREEMPTION,
        NO_QUOTA_PREEMPTION,
    )
    a.add_to_total("allocated", {"memory": 4})
    assert start_quota_timers(a, NOW + 1)
    assert (a.quota_preemption_at, parent.quota_preemption_at) == (NOW + 5, NOW + 6)
    assert not start_quota_timers(a, NOW + 2)


def test_what_grows_sets_no_time_without_a_delay_a_maximum_or_a_configured_queue() -> None:
    delay = "quota.preemption.delay=5s"
    trial = Trial(f"root.a max=memory:1; root.b {delay}; root.c max=memory:1 {delay}")
    trial.queue("root.c").managed = False
    for path in ("root.a", "root.b", "root.c"):
        trial.queue(path).add_to_total("allocated", {"memory": 2})
        assert not start_quota_timers(trial.queue(path), NOW)
