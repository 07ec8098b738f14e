"""A queue is brought down to its maximum when its time has come."""

from dataclasses import replace

import pytest

from tests.builders import apps, asks, nodes, released
from tests.trial import Trial
from yunishard.common.messages import event_codes
from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import Limit
from yunishard.partition_worker.engine.amounts import amounts_of, sum_of
from yunishard.partition_worker.engine.effects import Event
from yunishard.partition_worker.engine.preemption.quota_enforcement import (
    NO_QUOTA_PREEMPTION,
    QuotaVictimChoice,
    choose_quota_victims,
    excess_to_claim,
    list_quota_candidates,
    quota_preemption_time,
    start_quota_timers,
    surplus_of,
)
from yunishard.partition_worker.engine.state import VICTIMS_LEAVE_MAX_S

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
        "a3 released (PREEMPTED_BY_SCHEDULER: preempting allocations to enforce new max quota for queue : root.a)"
    ]
    assert trial.queue("root.a").preempting == trial.queue("root").preempting == {"memory": 2}
    assert trial.queue("root.a").allocated == {"memory": 6}


def test_what_the_rm_confirms_is_gone() -> None:
    trial = lowered(maximum=2).waits(6)
    assert preempted(trial) == ["a2", "a3"]
    trial.takes(*(released(f"app-1 {key} type=PREEMPTED_BY_SCHEDULER") for key in ("a2", "a3")))
    assert trial.queue("root.a").allocated == {"memory": 2}
    assert trial.queue("root.a").preempting == {"memory": 0}


def test_a_rest_that_is_smaller_than_every_allocation_stays_and_is_reported_once() -> None:
    trial = lowered().waits(6).takes(released("app-1 a3 type=PREEMPTED_BY_SCHEDULER"))
    assert trial.told()
    trial.partition.drain_events()
    assert trial.waits(300).told() == []
    (summary,) = trial.partition.drain_events()
    assert summary.message.endswith("preemptable memory=1, claimed nothing, selected 2, preempted 0")


def test_a_rest_is_enforced_as_soon_as_an_allocation_is_small_enough() -> None:
    trial = lowered().waits(6).takes(released("app-1 a3 type=PREEMPTED_BY_SCHEDULER")).waits(300)
    trial.takes(asks("app-1 a1 memory=1")).waits(6)
    assert trial.queue("root.a").quota_preemption_at == NO_QUOTA_PREEMPTION
    trial.takes(asks("app-1 a4 memory=1 victim on=n1")).waits(6)
    assert preempted(trial) == ["a4"]


def test_an_application_that_is_moved_into_the_queue_gives_up_the_rest() -> None:
    """Running allocations may exceed the maximum of their queue, so a move of small ones is not refused."""
    queues = f"root.p max=memory:6 {DELAY}; root.p.a; root.b"
    running = ("app-1 a1 memory=5 victim required=n1", "app-2 b1 memory=1 victim")
    trial = enforcing(queues, *running, applications=("app-1 root.p.a", "app-2 root.b"))
    trial.moves("app-2", "root.p.a").reconfigures(queues.replace("max=memory:6", "max=memory:4"))
    trial.waits(6)
    assert preempted(trial) == []
    trial.reconfigures(queues.replace("max=memory:6", "max=memory:5")).waits(60)
    assert preempted(trial) == ["b1"]


def test_a_type_that_still_exceeds_its_maximum_is_enforced_after_another_one() -> None:
    """As long as memory is to be given up, no allocation may give up more memory than that, and the gpu stays."""
    trial = enforcing(
        f"root.a max=memory:9,gpu:9 {DELAY}",
        *("app-1 pair memory=2 gpu=1 victim created=100", "app-1 other memory=1 gpu=1 victim created=50"),
    )
    trial.reconfigures(f"root.a max=memory:1,gpu:0 {DELAY}").waits(6)
    assert preempted(trial) == ["pair"]
    trial.takes(released("app-1 pair type=PREEMPTED_BY_SCHEDULER")).waits(61)
    assert preempted(trial) == ["other"]


def test_victims_that_do_not_leave_in_time_count_as_staying() -> None:
    trial = lowered(maximum=4).waits(6)
    assert preempted(trial) == ["a3"]
    assert preempted(trial.waits(VICTIMS_LEAVE_MAX_S - 2)) == ["a3"]
    assert preempted(trial.waits(2)) == ["a2", "a3"]
    assert trial.queue("root.a").preempting == {"memory": 2}
    trial.takes(released("app-1 a3 type=PREEMPTED_BY_SCHEDULER"))
    assert trial.queue("root.a").preempting == {"memory": 2}
    assert trial.partition.leaving_deadline == trial.partition.allocations["a2"].preempted_at + VICTIMS_LEAVE_MAX_S


def test_while_no_queue_has_a_time_nobody_looks() -> None:
    trial = enforcing(f"root.a max=memory:6 {DELAY}", "app-1 a1 memory=1", "app-1 a2 memory=1")
    assert trial.partition.quota_check_at > 1e18
    trial.reconfigures(f"root.a max=memory:1 {DELAY}")
    assert trial.partition.next_timer == trial.now + 1
    trial.waits(6).takes(released("app-1 a2 type=PREEMPTED_BY_SCHEDULER")).waits(1)
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
    assert preempted(trial) == ["a3"]


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
    assert preempted(trial) == ["a2"]
    trial.takes(asks("app-1 a3 memory=2 on=n1"))
    trial.reconfigures(f"root.a max=memory:2 {DELAY}", quota_preemption=False).waits(20)
    assert preempted(trial) == ["a2"]


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
    assert preempted(trial) == ["a4", "b4"]
    trial.waits(1)
    assert preempted(trial) == ["a1", "a2", "a3", "a4", "b4"]
    assert trial.queue("root.p.a").preempting == {"memory": 4}


def test_a_parent_from_whose_children_nothing_may_be_taken_takes_nothing() -> None:
    """BUG 7: there it crashes."""
    queues = f"root.p max=memory:6 {DELAY}; root.p.a guaranteed=memory:4"
    trial = enforcing(queues, "app-1 a1 memory=4", applications=("app-1 root.p.a",))
    trial.reconfigures(queues.replace("max=memory:6", "max=memory:2"))
    trial.partition.drain_events()
    trial.waits(6)
    assert preempted(trial) == []
    (summary,) = trial.partition.drain_events()
    assert summary.message.endswith("preemptable memory=2, claimed nothing, selected 1, preempted 0")


def test_what_others_hold_back_already_is_not_taken_twice() -> None:
    trial = lowered(maximum=2).waits(6)
    trial.reconfigures(f"root.a max=memory:1 {DELAY}").waits(6)
    assert preempted(trial) == ["a2", "a3"]


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
    assert (entry.reason, entry.queue, [victim.key for victim in entry.victims]) == ("quota", "root.a", ["a2", "b1"])
    text, none = "Preempted by Quota change enforcement process in root.a", event_codes.NONE
    for key, told in (("a2", one), ("b1", two)):
        application_id = trial.partition.allocations[key].application_id
        details = event_codes.DETAILS_NONE
        assert told == Event(event_codes.REQUEST, key, application_id, none, details, text, {"memory": 2})
    assert summary == Event(
        event_codes.QUEUE,
        "root.a",
        "",
        event_codes.SET,
        event_codes.QUEUE_PREEMPTION,
        summary.message,
        {"memory": 1},
    )
    assert summary.message.endswith("preemptable memory=5, claimed memory=4, selected 3, preempted 2")


def using(queues: str, **used: Resources) -> Trial:
    """Queues and what is charged to their leaves, named without `root.` and with `_` for dots."""
    trial = Trial(queues)
    for name, amount in used.items():
        trial.queue("root." + name.replace("_", ".")).add_allocated(amounts_of(amount))
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
    trial.queue("root.a").add_preempting(amounts_of({"memory": 4}))
    assert excess_to_claim(trial.queue("root.a")) == {"memory": 2}
    trial.queue("root.a").add_preempting(amounts_of({"memory": 2}))
    assert excess_to_claim(trial.queue("root.a")) == {}


def test_only_types_of_which_there_is_too_much_are_wanted() -> None:
    trial = using("root.a max=memory:10,gpu:2; root.b", a={"memory": 12, "gpu": 2, "vcore": 9}, b={"memory": 12})
    assert excess_to_claim(trial.queue("root.a")) == {"memory": 2}
    assert excess_to_claim(trial.queue("root.b")) == {}


# Which queues -------------------------------------------------------------------------------------------------------


def chosen(queues: str, *running: str, **excess: int) -> list[str]:
    """The victims below root.p that give up this excess; `a2 memory=5` runs in the leaf a."""
    leaves = dict.fromkeys(text[0] for text in running)
    trial = Trial(queues).takes(nodes("n1 memory=999 gpu=99"))
    trial.takes(apps(*(f"{leaf} root.p.{leaf.replace('q', 'q.q')}" for leaf in leaves)))
    trial.takes(asks(*(f"{text[0]} {text} on=n1 victim" for text in running)))
    choice = QuotaVictimChoice(trial.partition.applications, trial.queue("root.p"), excess)
    return [one.key for victims in choice.victims.values() for one in victims]


def test_a_parent_divides_the_amount_by_what_its_children_use_beyond_their_guarantees() -> None:
    queues = "root.p; root.p.a guaranteed=memory:20; root.p.b; root.p.c guaranteed=memory:50; root.p.d"
    used = [f"a{number} memory=10" for number in range(5)]
    used += [f"b{number} memory=10" for number in range(6)]
    used += [f"c{number} memory=10" for number in range(5)]
    assert chosen(queues, *used, memory=30) == ["a4", "b5", "b4"]


def test_the_amount_reaches_the_leaves_level_by_level() -> None:
    used = [*(f"q{number} memory=5" for number in range(8)), *(f"c{number} memory=10" for number in range(4))]
    assert chosen("root.p.q.q; root.p.c", *used, memory=40) == ["q7", "q6", "q5", "q4", "c3", "c2"]


def test_each_type_is_divided_by_itself() -> None:
    used = ["a1 memory=2", "a2 gpu=1", "a3 memory=8", "b1 memory=2", "b2 memory=8"]
    assert chosen("root.p.a; root.p.b", *used, memory=4, gpu=1) == ["a2", "a1", "b1"]


def test_what_one_child_cannot_give_up_is_offered_to_the_others() -> None:
    used = ["a1 memory=60", *(f"b{number} memory=10" for number in range(10))]
    assert chosen("root.p.a; root.p.b", *used, memory=60) == ["b9", "b8", "b7", "b6", "b5", "b4"]


def test_a_child_never_falls_below_its_guarantee_in_any_type() -> None:
    queues = "root.p; root.p.a guaranteed=memory:20,gpu:9; root.p.b"
    used = ["a1 memory=10", "a2 memory=10", "a3 memory=10", "a4 gpu=1", "b1 memory=10", "b2 memory=10"]
    assert chosen(queues, *used, memory=30) == ["a3", "b2", "b1"]
    assert chosen(queues, *used, memory=31) == []
    assert chosen(queues, *used, gpu=1) == []


def test_the_guarantee_of_a_queue_in_between_counts_when_a_rest_is_offered_again() -> None:
    queues = "root.p; root.p.q; root.p.q.q guaranteed=memory:30; root.p.c"
    used = [*(f"q{number} memory=10" for number in range(4)), "c1 memory=40", "c2 memory=10"]
    assert chosen(queues, *used, memory=20) == ["c2", "q3"]
    assert chosen(queues, *used, memory=30) == []


def test_victims_that_are_leaving_do_not_count_as_surplus() -> None:
    trial = using("root.p.a guaranteed=memory:10", p_a={"memory": 30})
    trial.queue("root.p.a").add_preempting(amounts_of({"memory": 15}))
    assert surplus_of(trial.queue("root.p.a")) == {"memory": 5}


def test_nothing_is_preempted_if_that_leaves_the_queue_above_its_maximum() -> None:
    """An allocation that is too large, or that has to run on its node, keeps the use above the maximum."""
    for protected in ("memory=60 victim", "memory=60 victim required=n1"):
        small = (f"app-1 a{number} memory=5 victim" for number in range(4))
        trial = enforcing(f"root.a max=memory:80 {DELAY}", f"app-1 big {protected}", *small)
        trial.reconfigures(f"root.a max=memory:50 {DELAY}").waits(60)
        assert preempted(trial) == []
        trial.takes(released("app-1 big")).waits(2)
        assert trial.queue("root.a").quota_preemption_at == NO_QUOTA_PREEMPTION


def test_a_queue_without_victims_is_checked_again() -> None:
    """The allocation that kept the use above the maximum ends, and what remains can be brought down to it."""
    small = (f"app-1 a{number} memory=10 victim" for number in range(8))
    trial = enforcing(f"root.a max=memory:140 {DELAY}", "app-1 big memory=60 required=n1", *small)
    trial.reconfigures(f"root.a max=memory:50 {DELAY}").waits(30)
    assert preempted(trial) == []
    trial.takes(released("app-1 big")).waits(20)
    assert preempted(trial) == []
    trial.waits(20)
    assert preempted(trial) == ["a5", "a6", "a7"]


def test_the_history_says_that_candidates_were_not_enough() -> None:
    trial = enforcing(f"root.a max=memory:80 {DELAY}", "app-1 big memory=60 victim", "app-1 small memory=20 victim")
    trial.reconfigures(f"root.a max=memory:50 {DELAY}")
    trial.partition.drain_events()
    (summary,) = trial.waits(6).partition.drain_events()
    assert summary.message.endswith("preemptable memory=30, claimed nothing, selected 2, preempted 0")


# Which allocations --------------------------------------------------------------------------------------------------


def test_those_that_agreed_come_first_then_those_that_did_not_and_originators_last() -> None:
    trial = running(
        "driver victim originator memory=1",
        "opted-out-driver originator memory=1",
        "opted-out memory=1",
        "old victim memory=1",
        "new victim memory=1",
    )
    assert order(trial, memory=3) == ["new", "old", "opted-out", "driver", "opted-out-driver"]


def test_then_those_go_of_which_most_types_are_wanted() -> None:
    trial = running("third victim memory=1 vcore=1 gpu=1", "half victim memory=1 vcore=1", "all victim memory=1")
    assert order(trial, memory=3) == ["all", "half", "third"]


def test_then_the_lowest_priority_then_the_newest_comes() -> None:
    trial = running(
        "high victim memory=1 priority=2 created=7200",
        "old victim memory=1 created=7198",
        "new victim memory=9 created=7200",
        "between victim memory=1 created=7199",
        "as-new victim memory=2 created=7200",
    )
    assert order(trial, memory=9) == ["as-new", "new", "between", "old", "high"]


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
    assert order(trial, memory=9) == ["b1", "a2", "a1"]


def test_each_candidate_goes_that_leaves_the_sum_within_the_amount() -> None:
    """Vector 15."""
    trial = running(*(f"{size} victim memory={size}" for size in ("6", "5", "4", "3")))
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
    queue.allocated_sum, queue.quota_preemption_at = sum_of({"memory": used}), was
    return quota_preemption_time(queue, *before, NOW)


def terms(maximum: int | None, delay_s: float = 5.0) -> Terms:
    return None if maximum is None else {"memory": maximum}, delay_s


def test_a_first_maximum_below_the_use_counts_as_lowered() -> None:
    assert at(terms(None), terms(50), used=100) == NOW + 5
    assert at(terms(None), terms(50), used=50) == NO_QUOTA_PREEMPTION
    assert at(({"gpu": 1}, 5.0), ({"gpu": 1, "memory": 50}, 5.0), 100) == NOW + 5


def test_a_lowered_maximum_sets_the_time_and_lowering_it_again_leaves_it() -> None:
    assert at(terms(100), terms(10), used=110) == NOW + 5
    assert at(terms(10), terms(5), used=110, was=990.0) == 990.0
    assert at(terms(10), terms(5), used=110, was=1060.0) == NOW + 5


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
    assert at(terms(10), terms(20), used=110) == NO_QUOTA_PREEMPTION


def test_each_type_is_compared_by_itself() -> None:
    assert at(({"memory": 100, "gpu": 1}, 5.0), ({"memory": 10, "gpu": 2}, 5.0), 110) == NOW + 5
    assert at(({"memory": 100, "gpu": 9}, 5.0), ({"memory": 100, "gpu": 1}, 5.0), 110) == NO_QUOTA_PREEMPTION
    assert at(({"memory": 100, "gpu": 1}, 5.0), ({"memory": 100}, 5.0), 110) == NO_QUOTA_PREEMPTION


@pytest.mark.tampers
def test_what_grows_unchecked_sets_the_time_of_each_level_that_exceeds_its_maximum_now() -> None:
    queues = "root.p max=memory:9 quota.preemption.delay=5s; root.p.a max=memory:3; root.p.b max=memory:3"
    trial = Trial(queues).takes(nodes("n1 memory=100"))
    parent, a, root = trial.queue("root.p"), trial.queue("root.p.a"), trial.queue("root")
    a.add_allocated(amounts_of({"memory": 3}))
    assert not start_quota_timers(a, NOW)
    a.add_allocated(amounts_of({"memory": 3}))
    assert start_quota_timers(a, NOW)
    assert (a.quota_preemption_at, parent.quota_preemption_at, root.quota_preemption_at) == (
        NOW + 5,
        NO_QUOTA_PREEMPTION,
        NO_QUOTA_PREEMPTION,
    )
    a.add_allocated(amounts_of({"memory": 4}))
    assert start_quota_timers(a, NOW + 1)
    assert (a.quota_preemption_at, parent.quota_preemption_at) == (NOW + 5, NOW + 6)
    assert not start_quota_timers(a, NOW + 2)


def test_what_grows_sets_no_time_without_a_delay_or_a_maximum() -> None:
    delay = "quota.preemption.delay=5s"
    trial = Trial(f"root.a max=memory:1; root.b {delay}")
    for path in ("root.a", "root.b"):
        trial.queue(path).add_allocated(amounts_of({"memory": 2}))
        assert not start_quota_timers(trial.queue(path), NOW)
