"""What a partition is like that is recovered from its records, where more than the latest values counts."""

import pytest

from tests.builders import apps, asks, gone, nodes, released
from tests.recorded import Recorded
from tests.trial import ADMIN, Trial
from yunishard.common.messages.rm_messages import NODE_CREATE_DRAIN
from yunishard.partition_worker.engine import state
from yunishard.partition_worker.engine.preemption.victim_choice import apply_preemption
from yunishard.partition_worker.engine.preemption_log import QUIET_S, PreemptionCooldowns
from yunishard.partition_worker.engine.reservations import end_of
from yunishard.partition_worker.engine.state import VICTIMS_LEAVE_MAX_S, Preempt


def recorded(trial: Trial) -> Recorded:
    assert isinstance(trial.partition, Recorded)
    return trial.partition


def test_ended_applications_expire_in_the_order_of_their_end() -> None:
    trial = Trial("root.a").does(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.a"))
    trial.does(asks("app-1 a1 memory=1", "app-2 b1 memory=1"), released("app-2 b1")).waits(31)
    trial.does(released("app-1 a1")).waits(31)
    other = recorded(trial).restored()
    assert [one.application_id for one in other.ended.values()] == ["app-2", "app-1"]
    assert other.next_expiry == trial.partition.next_expiry


def test_rejections_expire_in_the_order_of_their_times() -> None:
    trial = Trial("root.a").does(apps("app-1 root.z"), apps("app-2 root.z")).waits(5).does(apps("app-1 root.z"))
    assert list(recorded(trial).restored().rejections) == ["app-2", "app-1"]


def test_the_oldest_ended_application_is_dropped_from_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "ENDED_MAX", 1)
    trial = Trial("root.a").does(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.a"))
    trial.does(asks("app-1 a1 memory=1", "app-2 b1 memory=1"), released("app-1 a1")).waits(31)
    trial.does(released("app-2 b1")).waits(31)
    assert [one.application_id for one in recorded(trial).restored().ended.values()] == ["app-2"]


def test_an_allocation_with_invalid_tags_is_recovered() -> None:
    trial = Trial("root.a").does(nodes("n1 memory=10"), apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=1 on=n1 tag.yunishard/nodeSelector=!"))
    other = recorded(trial).restored()
    assert other.allocations["a1"].constraint is None
    assert other.allocations["a1"].node_id == "n1"


def test_a_resuming_gang_still_counts_for_the_application_limit() -> None:
    trial = Trial("root.a maxapps=1").does(nodes("n1 memory=10"), apps("app-1 root.a gang=memory:6 timeout=5000"))
    trial.does(asks("app-1 p1 memory=3 group=g placeholder")).waits(6)
    other = recorded(trial).restored()
    assert other.applications["app-1"].state == "Resuming"
    assert list(other.tree.root.allocating) == ["app-1"]


def test_the_queues_of_a_retired_partition_stay_gone() -> None:
    trial = Trial("root.p.a; root.b").does(nodes("n1 memory=10"))
    trial.partition.retire(trial.now)
    trial.waits(60)
    other = recorded(trial).restored()
    assert [queue.path for queue in other.tree] == ["root"]
    assert other.config == trial.partition.config


def test_a_moved_application_stays_where_it_is() -> None:
    trial = Trial("root.a; root.b").does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=1"))
    trial.partition.move("app-1", "root.b", ADMIN, trial.now)
    assert recorded(trial).restored().applications["app-1"].queue.path == "root.b"


def test_a_removed_application_is_gone() -> None:
    trial = Trial("root.a").does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=1"), gone("app-1"))
    other = recorded(trial).restored()
    assert (other.applications, other.ended, other.allocations) == ({}, {}, {})


def test_a_guarantee_deficit_is_recorded() -> None:
    trial = Trial("root.a guaranteed=memory:4; root.b guaranteed=memory:4").does(nodes("n1 memory=5"))
    trial.does(apps("app-1 root.a", "app-2 root.b"), asks("app-1 a1 memory=5")).takes(asks("app-2 b1 memory=4"))
    ask, victim = trial.partition.allocations["b1"], trial.partition.allocations["a1"]
    apply_preemption(trial.partition, Preempt(trial.app("app-2"), ask, trial.node("n1"), (victim,)))
    trial.partition.drain_effects()
    assert trial.queue("root.a").lacking == {"memory": 4}
    assert recorded(trial).restored().tree.root.children["a"].lacking == {"memory": 4}


def test_an_ask_waits_for_its_victims_as_long_as_it_would_have() -> None:
    trial = Trial("root.a; root.b guaranteed=memory:4 preemption.delay=5s").does(nodes("n1 memory=4"))
    trial.does(nodes("n2 memory=4", action=NODE_CREATE_DRAIN))
    trial.does(apps("app-1 root.a", "app-2 root.b"), asks("app-1 a1 memory=4 victim", "app-2 b1 memory=4 preemptor"))
    trial.waits(60)
    other = recorded(trial).restored()
    assert other.allocations["b1"].preemption_triggered
    [reservation] = other.reservation_index.keeping
    assert trial.now - 60 < reservation.created < reservation.keeps_since == trial.now - 55
    assert end_of(other, reservation) == reservation.keeps_since + VICTIMS_LEAVE_MAX_S


def test_dropped_cooldowns_are_named_once() -> None:
    cooldowns = PreemptionCooldowns()
    cooldowns.record_win("root.a", "root.b", 0.0, first_s=300.0, again_s=300.0)
    assert list(cooldowns.drain_changed()) == [("root.a", "root.b")]
    cooldowns.record_win("root.c", "root.d", 10 * QUIET_S, first_s=300.0, again_s=300.0)
    assert list(cooldowns.drain_changed()) == [("root.a", "root.b"), ("root.c", "root.d")]
    assert list(cooldowns.drain_changed()) == []


def test_stamps_continue_after_those_of_pending_asks_on_a_host_whose_clock_is_behind() -> None:
    trial = Trial("root.a").does(nodes("n1 memory=1"), apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=2", "app-1 a2 memory=2"))
    other = recorded(trial).restored()
    other.now = trial.now - 60
    assert other.stamp_ns() > max(one.created_ns for one in other.allocations.values())


def test_stamps_continue_after_those_of_rejections_on_a_host_whose_clock_is_behind() -> None:
    trial = Trial("root.a").does(apps("app-1 root.z"))
    other = recorded(trial).restored()
    other.now = trial.now - 60
    assert other.stamp_ns() > other.rejections["app-1"].at_ns
