"""No message is sent before it is durable; when snapshots are taken; how a partition ends."""

import pytest

from tests.machines import PARTITION, arrives, config_of, said
from tests.partition_worker.bench import APP, EPOCH, NODES, NOW, ask, placed
from tests.partition_worker.desk import Desk, busy, kinds
from yunishard.common.messages.control_messages import (
    ConfigVote,
    Hello,
    Pause,
    PrepareConfig,
    Repeat,
    Retired,
    RetirePartition,
)
from yunishard.common.messages.journal_messages import Append, Kept, NotKept, SnapshotTaken
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import Actor, Answer, KillApplication, Query
from yunishard.common.messages.rm_messages import Ack, ApplicationResponse, Heartbeat, NodeResponse
from yunishard.common.messages.wire import LINK_LOST, Incoming, Outgoing, decode_body
from yunishard.common.names import BROKER
from yunishard.partition_worker import rm_channel
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.worker import IdleWorker, Worker


@pytest.fixture
def desk() -> Desk:
    return Desk()


# Before it is durable -------------------------------------------------------------------------------------------------


def test_nothing_is_told_before_it_is_durable(desk: Desk) -> None:
    assert desk.tell(NODES) == []
    assert desk.tell(APP) == []
    told = said(desk.kept())
    assert [type(message) for message in told[:2]] == [NodeResponse, ApplicationResponse]


def asked(desk: Desk, *keys: str) -> list[Outgoing]:
    """What the worker says at once to asks of an application that runs already."""
    for command in (NODES, APP, ask("first")):
        desk.tell(command)
    desk.schedule()
    desk.kept()
    return desk.worker.handle(arrives(BROKER, ask(*keys), partition=PARTITION, seq=4), desk.now)


def test_what_is_decided_because_of_an_ask_becomes_durable_with_it_and_acknowledges_it(desk: Desk) -> None:
    assert asked(desk, "k") == []
    assert desk.worker.deadline <= desk.now
    [append] = desk.worker.tick(desk.now)
    desk.disk.give(append)
    assert len(decode_body(Append, append.body).steps) == 2
    told = desk.kept()
    assert placed(told) == ["k"]
    assert "Received" not in kinds(told)
    assert {one.header.ack for one in told} == {4}


def test_an_ask_is_acknowledged_though_nothing_may_be_decided_any_more(desk: Desk) -> None:
    assert asked(desk, "k") == []
    assert desk.hear(Pause()) == []
    while desk.worker.deadline <= desk.now:
        desk.tick()
    assert desk.disk.steps[-1].kind == "AllocationRequest"
    assert [(one.header.kind, one.header.ack) for one in desk.kept()] == [("Received", 4)]


def test_what_takes_the_disk_long_is_handed_over_before_anything_is_decided(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rm_channel, "PATIENT_BYTES", 10)
    assert kinds(asked(desk, "k")) == ["Append"]


def test_the_first_ask_of_an_application_is_durable_with_what_is_decided_because_of_it(desk: Desk) -> None:
    desk.tell(NODES)
    desk.tell(APP)
    desk.kept()
    assert desk.worker.handle(arrives(BROKER, ask("first"), partition=PARTITION, seq=3), desk.now) == []
    [append] = desk.worker.tick(desk.now)
    assert len(decode_body(Append, append.body).steps) == 2
    desk.disk.give(append)
    assert {"ApplicationResponse", "AllocationResponse"} <= set(kinds(desk.kept()))


def test_many_news_are_handed_over_before_anything_is_decided(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rm_channel, "NEWS_BYTES", 10)
    desk.tell(NODES)
    desk.tell(APP)
    sends = desk.worker.handle(arrives(BROKER, ask("first"), partition=PARTITION, seq=3), desk.now)
    assert kinds(sends) == ["Append"], "the application runs from now on"


def test_what_waits_for_the_disk_is_told_once_however_often_the_rm_resumes_meanwhile(desk: Desk) -> None:
    desk.tell(NODES)
    desk.hear(KillApplication(application_id="unknown", actor=Actor(user="alice")), session="")
    for _ in range(3):
        assert desk.hear(Repeat()) == []
    assert kinds(desk.kept()) == ["Answer", "Received", "NodeResponse"]


def test_what_became_durable_is_told_while_the_rest_waits(desk: Desk) -> None:
    desk.tell(NODES)
    first = desk.disk.steps[-1].number
    desk.tell(APP)
    assert kinds(desk.journal(Kept(number=first))) == ["NodeResponse"]
    assert kinds(desk.kept())[0] == "ApplicationResponse"


def test_an_acknowledgement_waits_too() -> None:
    desk = Desk()
    desk.tell(NODES)
    desk.kept()
    assert desk.hear(NODES, seq=1) != []  # seen: nothing new has to become durable
    desk.tell(APP)
    assert desk.hear(APP, seq=2) == []  # seen as well, but whether it stays so is not certain yet
    assert "Received" in kinds(desk.kept())


def test_a_vote_waits() -> None:
    desk = Desk(running=False)
    assert desk.hear(PrepareConfig(rollout=7, config=config_of())) == []
    assert said(desk.kept()) == [ConfigVote(rollout=7)]


def test_a_question_is_answered_at_once(desk: Desk) -> None:
    desk.tell(NODES)
    assert kinds(desk.hear(Query(what="nodes"), ref="q")) == ["Answer"]


def test_what_an_administrator_did_is_durable_before_they_hear_of_it(desk: Desk) -> None:
    desk.tell(APP)
    desk.kept()
    kill = KillApplication(application_id="a", actor=Actor(user="op", scheduler_admin=True))
    assert desk.hear(kill, ref="r") == []
    assert isinstance(said(desk.kept())[-1], Answer)


def test_what_is_repeated_waits_for_what_is_not_durable_yet(desk: Desk) -> None:
    desk.tell(NODES)
    assert desk.hear(Repeat()) == []
    again = desk.kept()
    assert [one.header.seq for one in again] == [0, 1]


def test_steps_that_nobody_hears_of_wait_for_one_that_somebody_does(desk: Desk) -> None:
    desk.tell(NODES)
    desk.tell(APP)
    desk.kept()
    desk.schedule()
    before = len(desk.disk.steps)
    desk.tell(ask("k"))
    assert placed(desk.schedule()) == []
    assert len(desk.disk.steps) > before
    assert placed(desk.kept()) == ["k"]


def test_a_disk_that_cannot_keep_up_stops_decisions(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.tell(NODES)
    desk.tell(APP)
    monkeypatch.setattr(rm_channel, "UNKEPT_BYTES_MAX", 1)
    desk.tell(ask("k"))
    assert desk.worker.deadline > desk.now
    desk.kept()
    assert desk.worker.deadline <= desk.now


def test_a_full_disk_is_complained_of_and_what_waits_goes_out_later(desk: Desk) -> None:
    desk.tell(NODES)
    assert desk.journal(NotKept(problem="no space left")) == []
    told = "no results are sent, as the journal cannot be written: no space left; this is tried again each second"
    assert desk.worker.host.warnings == [told]
    assert kinds(desk.kept()) == ["NodeResponse"]
    assert desk.worker.host.announcements[-1] == "the journal can be written again, and results are sent"


def test_a_worker_that_lost_its_journal_to_another_says_nothing_any_more(desk: Desk) -> None:
    desk.tell(NODES)
    desk.journal(NotKept(problem="epoch 6 has it", fenced=True))
    assert "epoch 6" in desk.worker.fatal_error
    assert desk.kept() == []
    assert desk.hear(Repeat()) == []
    assert desk.tick() == []


# Snapshots ------------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_taken_when_enough_has_been_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rm_channel, "SNAPSHOT_BYTES", 1000)
    desk = Desk()
    busy(desk)
    assert desk.disk.snapshots
    assert len(desk.disk.snapshots) == 1  # one at a time
    desk.journal(SnapshotTaken(number=desk.disk.snapshots[0]))
    desk.now += 10_000
    busy(desk)
    assert len(desk.disk.snapshots) == 2


def test_workers_that_are_killed_early_take_a_snapshot_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the steps of a partition whose workers never live long would grow, and its recovery with them."""
    desk = Desk()
    busy(desk)
    desk.flush()
    monkeypatch.setattr(rm_channel, "SNAPSHOT_BYTES", sum(len(step.records) for step in desk.disk.steps))
    desk.restart()
    assert not desk.disk.snapshots
    desk.tell(ask("after"))
    assert len(desk.disk.snapshots) == 1


def test_the_next_snapshot_waits_longer_than_the_last_one_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rm_channel, "SNAPSHOT_BYTES", 1000)
    desk = Desk()
    busy(desk)
    desk.now += 100
    desk.journal(SnapshotTaken(number=desk.disk.snapshots[0]))
    busy(desk)
    assert len(desk.disk.snapshots) == 1
    desk.now += 10_000
    busy(desk)
    assert len(desk.disk.snapshots) == 2


def test_a_journal_that_is_full_is_emptied_by_a_snapshot(desk: Desk) -> None:
    desk.tell(NODES)
    desk.journal(NotKept(problem="journal-max is reached"))
    assert desk.disk.snapshots == [desk.disk.steps[-1].number]


def test_a_snapshot_that_failed_is_complained_of(desk: Desk) -> None:
    desk.journal(SnapshotTaken(number=3, problem="no space left"))
    assert desk.worker.host.warnings == ["no snapshot after step 3: no space left"]


def test_an_orderly_end_leaves_a_snapshot_after_the_last_step(desk: Desk) -> None:
    busy(desk)
    desk.tell(ask("last"))
    for one in desk.worker.stop(desk.now):
        desk.disk.give(one)
    assert desk.disk.snapshots == [desk.disk.steps[-1].number]


# The end --------------------------------------------------------------------------------------------------------------


def retired(desk: Desk) -> None:
    """The partition has ended, and the RM knows all that came of that."""
    desk.tell(APP)
    desk.hear(RetirePartition())
    told = desk.kept()
    assert Retired() not in said(told)
    assert said(desk.hear(Ack(), ack=max(one.header.seq for one in told))) == [Retired()]


def test_a_worker_whose_partition_has_ended_leaves_no_snapshot(desk: Desk) -> None:
    retired(desk)
    assert desk.worker.stop(desk.now) == []


def test_one_whose_rm_has_not_acknowledged_that_does(desk: Desk) -> None:
    desk.tell(APP)
    desk.hear(RetirePartition())
    desk.kept()
    assert "TakeSnapshot" in kinds(desk.worker.stop(desk.now))


def test_one_that_dies_before_anybody_has_heard_that_it_ended_says_so_again(desk: Desk) -> None:
    retired(desk)
    last = desk.worker.host.channel.outbox.last
    desk.worker = desk.recovered()
    assert Retired() not in said([*desk.hear(RetirePartition()), *desk.kept()])
    assert Retired() in said([*desk.hear(Repeat(), ack=last), *desk.kept()])


def test_a_partition_that_has_ended_and_is_wanted_again_begins_anew(desk: Desk) -> None:
    """A new session of the RM may want the partition before the broker has heard that it ended."""
    retired(desk)
    desk.configure(rollout=2, session="session-2")
    assert desk.disk.steps[0].kind == "CommitConfig"
    assert desk.disk.steps[0].session is not None
    assert desk.disk.steps[0].session.session == "session-2"
    assert desk.worker.partition is not None
    assert not desk.worker.partition.applications
    assert not desk.worker.fatal_error


# The broker and the RM ------------------------------------------------------------------------------------------------


def test_nothing_is_placed_while_the_rm_is_away(desk: Desk) -> None:
    desk.tell(NODES)
    desk.tell(APP)
    desk.hear(Pause())
    desk.tell(ask("k"))
    assert placed([*desk.schedule(), *desk.kept()]) == []
    desk.hear(Repeat())
    assert "k" in placed([*desk.schedule(), *desk.kept()])


def test_a_broker_that_has_not_heard_the_hello_is_greeted(desk: Desk) -> None:
    assert desk.hear(Heartbeat(incarnation="1")) == []
    assert kinds(desk.hear(Heartbeat())) == ["Hello"]


def test_the_broker_at_a_new_connection_is_greeted_once_what_happened_before_is_durable(desk: Desk) -> None:
    lost = Incoming(BROKER, Header(kind=LINK_LOST), b"")
    desk.tell(NODES)
    assert desk.worker.handle(lost, desk.now) == []
    assert desk.worker.handle(lost, desk.now) == []
    assert kinds(desk.kept()) == ["NodeResponse", "Hello"]
    assert kinds(desk.worker.handle(lost, desk.now)) == ["Hello"]


def test_a_worker_without_a_partition_greets_the_broker_at_a_new_connection() -> None:
    idle = IdleWorker(Hello(role="worker"), heartbeat_s=1.0)
    assert kinds(idle.tick(0.0)) == ["Hello"]
    assert kinds(idle.handle(Incoming(BROKER, Header(kind=LINK_LOST), b""), 0.0)) == ["Hello"]


def test_a_hello_that_waits_for_the_disk_is_not_said_twice(desk: Desk) -> None:
    desk.tell(NODES)
    for _ in range(3):
        assert desk.hear(Heartbeat()) == []
    assert kinds(desk.kept()).count("Hello") == 1


def test_a_sign_of_life_waits_for_no_disk() -> None:
    worker = Worker(PartitionHost(partition=PARTITION, epoch=EPOCH), journalled=True, heartbeat_s=1.0)
    worker.handle(arrives(BROKER, PrepareConfig(rollout=1, config=config_of()), partition=PARTITION), NOW)
    assert worker.deadline <= NOW
    assert kinds(worker.tick(NOW)) == ["Heartbeat", "Append"]
    assert worker.deadline == NOW + 1.0
