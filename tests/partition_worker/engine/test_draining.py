"""Queues that go: who is told, and when they are gone."""

from common import event_codes
from common.rm_messages import EventRecord
from partition_worker.engine.reconfiguration import DRAINING_TOLD_EVERY_S
from tests.builders import PROVIDED_CREATE, apps, asks, gone, nodes
from tests.trial import START_S, Trial

TREE = "root adminacl=boss; root.a; root.p adminacl=ann,kim; root.p.b; root.p.c"


def events(trial: Trial) -> list[EventRecord]:
    return [effect.part for effect in trial.effects if isinstance(effect.part, EventRecord)]


def test_administrators_and_the_rm_of_each_application_are_told_when_draining_starts() -> None:
    trial = Trial(TREE).takes(apps("app-1 root.p.b", "app-2 root.p.b", "app-3 root.a"))
    trial.reconfigures("root adminacl=chief; root.a; root.p adminacl=ann,kim; root.p.c")
    told = (
        "queue root.p.b left the configuration and drains: 2 applications in it, "
        "administrators: 'ann,kim' of root.p, 'chief' of root"
    )
    found = events(trial)
    assert [(one.type, one.object_id, one.reference_id) for one in found] == [
        (event_codes.QUEUE, "root.p.b", ""),
        (event_codes.APP, "app-1", "root.p.b"),
        (event_codes.APP, "app-2", "root.p.b"),
    ]
    assert found[0].message == told
    assert all(told in one.message for one in found)
    assert {(one.event_change_type, one.event_change_detail) for one in found} == {
        (event_codes.SET, event_codes.DETAILS_NONE)
    }
    assert all(one.timestamp_nano == trial.queue("root.p.b").draining_since_ns >= START_S * 1e9 for one in found)
    assert f"note: {told}" in trial.told()


def test_a_parent_counts_the_applications_below_it_and_each_application_is_told_of_once() -> None:
    trial = Trial(TREE).takes(apps("app-1 root.p.b", "app-2 root.p.c")).reconfigures("root.a")
    found = events(trial)
    assert [one.object_id for one in found] == ["root.p", "root.p.b", "app-1", "root.p.c", "app-2"]
    assert "2 applications in it" in found[0].message
    assert "1 application in it" in found[1].message


def test_without_administrators_it_says_so() -> None:
    (event,) = events(Trial("root.a; root.b").reconfigures("root.a"))
    assert event.message.endswith("0 applications in it, administrators: none")


def test_a_queue_that_drains_already_is_not_told_of_again() -> None:
    trial = Trial("root.a; root.b").takes(apps("app-1 root.b")).reconfigures("root.a")
    since = trial.queue("root.b").draining_since_ns
    before = len(trial.effects)
    trial.waits(5).reconfigures("root.a; root.c")
    assert trial.effects[before:] == []
    assert trial.queue("root.b").draining_since_ns == since


def test_the_log_is_told_again_while_it_lasts() -> None:
    trial = Trial("root.a; root.b").takes(apps("app-1 root.b")).reconfigures("root.a")
    trial.told()
    assert trial.waits(DRAINING_TOLD_EVERY_S - 60).told() == []
    reminder = "note: queue root.b has been draining for {} hours: 1 application in it, administrators: none"
    assert trial.waits(120).told() == [reminder.format("1.0")]
    assert trial.waits(DRAINING_TOLD_EVERY_S).told() == [reminder.format("2.0")]
    assert len(events(trial)) == 2


def test_draining_queues_that_are_empty_go_within_ten_seconds_children_first() -> None:
    trial = Trial("root.a; root.p.b; root.p.q.c").reconfigures("root.a")
    assert trial.partition.tree.find("root.p.q.c") is not None
    trial.waits(10)
    assert [queue.path for queue in trial.partition.tree] == ["root", "root.a"]
    assert trial.queue("root").children.keys() == {"a"}


def test_a_draining_queue_stays_until_its_last_application_left() -> None:
    trial = Trial("root.a; root.b").does(nodes("n1 memory=9"), apps("app-1 root.b"), asks("app-1 b1 memory=1"))
    trial.reconfigures("root.a").waits(600)
    assert trial.running == ["b1 on n1"]
    trial.does(gone("app-1")).waits(10)
    assert trial.partition.tree.find("root.b") is None


def test_a_dynamic_queue_below_a_draining_one_keeps_it_until_both_are_empty() -> None:
    trial = Trial("root.p parent", rules=(PROVIDED_CREATE,)).takes(apps("app-1 root.p.new")).reconfigures("root.a")
    assert [queue.path for queue in trial.waits(60).partition.tree] == ["root", "root.p", "root.p.new", "root.a"]
    trial.takes(gone("app-1")).waits(10)
    assert [queue.path for queue in trial.partition.tree] == ["root", "root.a"]


def test_nothing_is_cleaned_while_nothing_may_go() -> None:
    assert Trial("root.a").reconfigures("root.a; root.b").partition.next_timer > START_S * 1e9
