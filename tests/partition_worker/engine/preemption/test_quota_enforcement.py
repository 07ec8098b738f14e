"""A queue is brought down to its maximum when its time has come."""

from common import event_codes
from partition_worker.engine.queues.quota_timing import NO_TIME
from tests.builders import apps, asks, nodes, released
from tests.trial import Trial

DELAY = "quota.preemption.delay=5s"


def enforcing(queues: str, *running: str, applications: tuple[str, ...] = ("app-1 root.a",)) -> Trial:
    """A partition that enforces quotas, with these allocations running; nothing of it is told any more."""
    trial = Trial(queues, quota_preemption=True).takes(nodes("n1 memory=100"), apps(*applications))
    trial.takes(asks(*(f"{text} on=n1" for text in running)))
    trial.told()
    trial.partition.happenings()
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
    assert trial.queue("root.a").quota_preemption_at == NO_TIME
    assert trial.told()
    assert trial.waits(100).told() == []


def test_while_no_queue_has_a_time_nobody_looks() -> None:
    trial = enforcing(f"root.a max=memory:6 {DELAY}", "app-1 a1 memory=2")
    assert trial.partition.quota_look_at > 1e18
    trial.reconfigures(f"root.a max=memory:1 {DELAY}")
    assert trial.partition.next_timer == trial.now + 1
    trial.waits(6)
    assert trial.partition.quota_look_at > 1e18


def test_a_queue_that_falls_below_its_maximum_in_the_meantime_is_left_alone() -> None:
    trial = lowered(maximum=4).waits(1)
    trial.takes(released("app-1 a3"))
    trial.waits(1)
    assert trial.queue("root.a").quota_preemption_at == NO_TIME
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
    trial.partition.happenings()
    trial.waits(6)
    assert preempted(trial) == []
    assert trial.partition.happenings() == []


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
    trial.partition.happenings()
    trial.waits(6)
    one, two, summary = trial.partition.happenings()
    (entry,) = trial.partition.preemptions
    assert (entry.kind, entry.queue, [victim.key for victim in entry.victims]) == ("quota", "root.a", ["a1", "a2"])
    text, none = "Preempted by Quota change enforcement process in root.a", event_codes.NONE
    for key, told in (("a1", one), ("a2", two)):
        assert told == (event_codes.REQUEST, key, "app-1", none, event_codes.DETAILS_NONE, text, {"memory": 2})
    assert summary[:5] == (event_codes.QUEUE, "root.a", "", event_codes.SET, event_codes.QUEUE_PREEMPTION)
    assert summary[5].endswith("preemptable memory=5, claimed memory=4, selected 3, preempted 2")
    assert summary[6] == {"memory": 1}
