"""The way into the engine: time, causes, and when it wants to be called again."""

import pytest

from tests.builders import PARTITION, PROVIDED_CREATE, apps, asks, config, gone, nodes, released
from tests.trial import START_S, Trial
from yunishard.common.config.model import PlacementRuleConfig
from yunishard.common.messages.rm_messages import Ack
from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine import partition, state
from yunishard.partition_worker.engine.application import RETENTION_S, AppState


def test_an_empty_partition_waits_for_nothing() -> None:
    assert Trial().partition.deadline == NEVER
    assert Trial().partition.idle


def test_after_a_command_it_wants_to_decide_at_once() -> None:
    one = Trial().takes(nodes("n1 memory=10"))
    assert one.partition.deadline == 0.0
    one.settles()
    assert one.partition.deadline == NEVER


def test_a_completing_application_sets_the_deadline() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=1"), released("app-1 a1"))
    assert one.partition.deadline == START_S + 30


def test_queues_that_may_go_are_looked_for_every_ten_seconds_and_only_then() -> None:
    one = Trial(rules=(PROVIDED_CREATE,)).does(apps("app-1 root.new"))
    assert one.partition.deadline == START_S + 10
    one.waits(10)
    assert one.partition.deadline == START_S + 20
    one.does(gone("app-1")).waits(20)
    assert one.partition.tree.find("root.new") is None
    assert one.partition.deadline == NEVER


def test_too_early_nothing_happens() -> None:
    one = Trial().does(apps("app-1 root.a"), asks("app-1 a1 memory=1"), released("app-1 a1"))
    assert one.partition.step(START_S + 29, 0) == []


def test_time_never_goes_back() -> None:
    one = Trial().does(apps("app-1 root.a"))
    one.partition.step(START_S + 50, 0)
    one.partition.apply(apps("app-2 root.a"), START_S)
    assert one.partition.now == START_S + 50
    assert one.app("app-2").submitted_ns >= int((START_S + 50) * 1e9)


def test_things_that_arrive_together_keep_their_order() -> None:
    one = Trial().does(apps(*(f"app-{number} root.a" for number in range(5))))
    stamps = [one.app(f"app-{number}").submitted_ns for number in range(5)]
    assert stamps == sorted(set(stamps))


def test_effects_name_the_step_that_caused_them() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a"))
    one.takes(asks("app-1 a1 memory=1"))
    accepted = one.effects[-1].cause
    one.settles()
    assert [effect.cause for effect in one.effects[-2:]] == [accepted + 2] * 2  # the timers come before the decisions


def test_effects_are_told_once() -> None:
    one = Trial().does(nodes("n1 memory=10"))
    assert one.partition.step(one.now, 10) == []
    assert one.partition.step(one.now, 0) == []


def test_a_command_of_somebody_else_is_a_defect() -> None:
    with pytest.raises(TypeError):
        Trial().partition.apply(Ack(), START_S)


def test_rules_that_cannot_be_built_reject_every_application_and_say_why() -> None:
    one = Trial(rules=(PlacementRuleConfig(name="magic"),)).does(apps("app-1 root.a"))
    assert one.partition.placement.problem.startswith("unknown rule name specified magic")
    assert "app-1 rejected" in one.told()[0]


def test_the_configuration_is_kept_as_it_came() -> None:
    one = Trial("root.a max=memory:5")
    assert one.partition.config == config("root.a max=memory:5")
    assert one.partition.name == PARTITION
    assert one.partition.created_ns == int(START_S * 1e9)


def test_counters_count_what_happened() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.x"), asks("app-1 a1 memory=1"))
    one.does(asks("app-1 a2"), released("app-1 a1")).waits(30)
    counters = one.partition.counters
    assert (counters.allocated, counters.released, counters.rejected, counters.errors.total) == (1, 1, 1, 1)
    assert (counters.submitted, counters.refused) == (2, 1)
    assert (counters.entries(AppState.ACCEPTED), counters.entries(AppState.COMPLETED)) == (1, 1)


def test_timers_that_are_due_at_once_fire_in_several_steps_before_anything_is_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition, "TIMERS_PER_STEP", 2)
    one = Trial().does(nodes("n1 memory=5"), apps(*(f"app-{number} root.a" for number in range(5))))
    one.does(asks(*(f"app-{number} k{number} memory=9" for number in range(5))))
    due = one.partition.timers.deadline
    left = []
    while one.partition.timers.deadline <= due:
        one.partition.step(due, 100)
        left.append(sum(timer.at <= due for timer in one.partition.timers))
    assert left == [3, 1, 0]
    assert one.partition.idle


def test_expired_applications_are_dropped_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "EXPIRED_AT_ONCE", 2)
    one = Trial().does(nodes("n1 memory=9"), apps(*(f"app-{n} root.a" for n in range(5))))
    one.does(apps(*(f"refused-{n} root.nowhere" for n in range(5))))
    one.does(asks(*(f"app-{n} k{n} memory=1" for n in range(5)))).does(*(released(f"app-{n} k{n}") for n in range(5)))
    one.waits(40)
    one.now += RETENTION_S
    left = []
    while one.partition.next_expiry <= one.now:
        one.partition.step(one.now, 0)
        left.append((len(one.partition.rejections), len(one.partition.ended)))
    assert left == [(3, 3), (1, 1), (0, 0)]
