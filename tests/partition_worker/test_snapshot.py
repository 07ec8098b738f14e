"""Nothing is told before it is durable, and whoever plays the journal again knows and says the same."""

import msgspec
import pytest
from msgspec.structs import replace

from common.control_messages import (
    CommitConfig,
    ConfigVote,
    Hello,
    Pause,
    PrepareConfig,
    Repeat,
    Retired,
    RetirePartition,
    Settings,
)
from common.journal_messages import Append, Kept, NotKept, SnapshotTaken, Step, TakeSnapshot
from common.messages import Message
from common.names import BROKER, JOURNAL
from common.query_messages import Actor, Answer, KillApplication, Query
from common.rm_messages import (
    Ack,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationResponse,
    Heartbeat,
    NodeResponse,
)
from common.wire import Incoming, Outgoing, decode_body, make_outgoing
from partition_worker import rm_channel
from partition_worker.partition_host import PartitionHost
from partition_worker.snapshot import ReplayDiverged
from partition_worker.worker import RESUMED_IN_VAIN_MAX, Worker
from tests.machines import PARTITION, SESSION, arrives, config_of, said
from tests.partition_worker.bench import APP, EPOCH, NODES, NOW, ask, placed


class Disk:
    """A journal in memory: what it was handed, and how far it says it is durable."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.snapshots: list[int] = []

    def give(self, one: Outgoing) -> None:
        match one.header.kind:
            case "Append":
                append = decode_body(Append, one.body)
                steps = [step_of(encoded) for encoded in append.steps]
                assert [step.number for step in steps] == list(range(append.first, append.first + len(steps)))
                self.steps = [*([] if append.fresh else self.steps), *steps]
            case "TakeSnapshot":
                self.snapshots.append(decode_body(TakeSnapshot, one.body).number)


def step_of(encoded: bytes) -> Step:
    return msgspec.msgpack.decode(encoded, type=Step)


class Desk:
    """A worker with such a journal. `now` goes on by itself only when a test says so."""

    def __init__(self, *, running: bool = True) -> None:
        self.worker = Worker(PartitionHost(partition=PARTITION, epoch=EPOCH), journalled=True)
        self.disk = Disk()
        self.now = NOW
        self.seq = 0
        if running:
            self.configure()

    def _out(self, sends: list[Outgoing]) -> list[Outgoing]:
        for one in sends:
            if one.to == JOURNAL:
                self.disk.give(one)
        return [one for one in sends if one.to != JOURNAL]

    def hear(self, message: Message, **fields: str | int) -> list[Outgoing]:
        """As the only message of a turn, so that a tick follows if it is due."""
        sends = self.worker.handle(arrives(BROKER, message, partition=PARTITION, **fields), self.now)
        assert self.worker.barrier is not None
        return self._out([*sends, *(self.worker.tick(self.now) if self.worker.barrier.urgent else [])])

    def take(self, command: Message) -> None:
        """The next command of the RM, which is handed over before anything is decided because of it."""
        self.seq += 1
        self._out(self.worker.handle(arrives(BROKER, command, partition=PARTITION, seq=self.seq), self.now))
        assert self.worker.barrier is not None
        self._out(self.worker.barrier.flush())

    def journal(self, message: Message) -> list[Outgoing]:
        one = make_outgoing(JOURNAL, message)
        return self._out(self.worker.handle(Incoming(JOURNAL, one.header, one.body), self.now))

    def kept(self) -> list[Outgoing]:
        return self.journal(Kept(number=self.disk.steps[-1].number if self.disk.steps else 0))

    def tell(self, command: Message, **fields: str | int) -> list[Outgoing]:
        self.seq += 1
        return self.hear(command, **{"seq": self.seq, **fields})

    def tick(self) -> list[Outgoing]:
        return self._out(self.worker.tick(self.now))

    def schedule(self) -> list[Outgoing]:
        sends: list[Outgoing] = []
        while self.worker.deadline <= self.now:
            sends += self.tick()
        return sends

    def configure(self, *, rollout: int = 1, session: str = SESSION, life: int = 0) -> list[Outgoing]:
        sends = self.hear(PrepareConfig(rollout=rollout, config=config_of()), session=session, life=life)
        sends += self.hear(CommitConfig(rollout=rollout), session=session, life=life)
        self.seq = 0
        return [*sends, *self.kept()]

    def recovered(self) -> Worker:
        """Another worker, from what is on the disk."""
        worker = Worker(PartitionHost(partition=PARTITION, epoch=EPOCH + 1), journalled=True)
        worker.recover(None, self.disk.steps)
        return worker


@pytest.fixture
def desk() -> Desk:
    return Desk()


def kinds(sends: list[Outgoing]) -> list[str]:
    return [one.header.kind for one in sends]


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
    assert desk.disk.steps[-1].header.kind == "AllocationRequest"
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


# Recovery -------------------------------------------------------------------------------------------------------------


def busy(desk: Desk) -> None:
    desk.hear(Settings(values={"event.trackingEnabled": "true"}))
    desk.tell(NODES)
    desk.tell(APP)
    for number in range(20):
        desk.tell(ask(f"k{number}"))
        desk.now += 0.25
        desk.schedule()
    desk.hear(Ack(), ack=5)
    desk.now += 100
    desk.schedule()
    desk.kept()


def test_a_recovered_worker_knows_and_says_the_same(desk: Desk) -> None:
    busy(desk)
    after = desk.recovered()
    before = desk.worker
    again = after.handle(arrives(BROKER, Repeat(), ack=5), desk.now)
    assert [(one.header.seq, one.body) for one in again] == [
        (one.header.seq, one.body) for one in desk.hear(Repeat(), ack=5)
    ]
    assert (after.partition and after.partition.next_change) == (before.partition and before.partition.next_change)
    assert after.host.settings == before.host.settings
    asked = Query(what="nodes")
    [then], [now] = said(after.handle(arrives(BROKER, asked), desk.now)), said(desk.hear(asked))
    assert isinstance(then, Answer)
    assert isinstance(now, Answer)
    assert then.body == now.body


def test_it_says_hello_with_what_it_runs(desk: Desk) -> None:
    busy(desk)
    hello = desk.recovered().make_hello()
    assert (hello.header.session, hello.header.life, hello.header.epoch) == (SESSION, 0, EPOCH + 1)
    assert decode_body(Hello, hello.body) == Hello(role="worker", rollout=1, recovered=True)


def test_it_goes_on_where_the_other_stopped(desk: Desk) -> None:
    busy(desk)
    after = desk.recovered()
    after.handle(arrives(BROKER, Repeat()), desk.now)
    assert kinds(after.handle(arrives(BROKER, ask("k19"), seq=desk.seq), desk.now)) == ["Received"]
    sends = after.handle(arrives(BROKER, ask("new"), seq=desk.seq + 1), desk.now)
    sends += after.tick(desk.now)
    assert [one.to for one in sends] == [JOURNAL]
    assert decode_body(Append, sends[0].body).first == desk.disk.steps[-1].number + 1


def test_a_journal_of_an_earlier_generation_stays_suspended(desk: Desk) -> None:
    """The RM resumes in a later generation: decisions on the older journal would reuse numbers of other messages."""
    busy(desk)
    after = desk.recovered()
    assert after.handle(arrives(BROKER, Repeat(), ack=5, life=3), desk.now) == []
    assert after.host.channel.suspended
    after.tick(desk.now + 100)
    assert after.host.channel.outbox.last == desk.worker.host.channel.outbox.last


def test_other_words_than_were_told_are_not_accepted(desk: Desk) -> None:
    busy(desk)
    told = next(index for index, step in enumerate(desk.disk.steps) if step.told)
    seq, kind, body = desk.disk.steps[told].told[0]
    desk.disk.steps[told] = replace(desk.disk.steps[told], told=[(seq, kind, body + b"x")])
    with pytest.raises(ReplayDiverged, match="other messages"):
        desk.recovered()


def test_a_missing_step_is_not_accepted(desk: Desk) -> None:
    busy(desk)
    del desk.disk.steps[5]
    with pytest.raises(ReplayDiverged, match="comes after step"):
        desk.recovered()


def test_a_partition_that_begins_anew_needs_nothing_of_before(desk: Desk) -> None:
    busy(desk)
    desk.configure(rollout=2, session="session-2")
    assert [step.header.kind for step in desk.disk.steps] == ["PrepareConfig", "CommitConfig"]
    assert desk.recovered().make_hello().header.session == "session-2"


def test_an_rm_that_has_heard_more_than_the_journal_has_starts_anew(desk: Desk) -> None:
    busy(desk)
    after = desk.recovered()
    heard = after.host.channel.outbox.last
    for message in (Repeat(), ask("k"), Ack()):
        sends = after.handle(arrives(BROKER, message, seq=desk.seq + 1, ack=heard + 1), desk.now)
        told = f"the resource manager has received {heard + 1} messages, the journal has {heard}"
        assert decode_body(Hello, sends[0].body).problem == told
    assert len(after.host.warnings) == 1
    after.handle(arrives(BROKER, PrepareConfig(rollout=2, config=config_of()), life=1), desk.now)
    after.handle(arrives(BROKER, CommitConfig(rollout=2), life=1), desk.now)
    assert decode_body(Hello, after.make_hello().body).problem == ""


def test_an_rm_whose_acknowledged_commands_the_journal_does_not_have_starts_anew(desk: Desk) -> None:
    """It has not received anything since, so that its own acknowledgement does not show it."""
    busy(desk)
    after = desk.recovered()
    taken = after.host.channel.received
    repeat = arrives(BROKER, Repeat(acknowledged=taken + 1), ack=after.host.channel.outbox.last)
    told = f"{taken + 1} commands of the resource manager were acknowledged, the journal has {taken}"
    assert decode_body(Hello, after.handle(repeat, desk.now)[0].body).problem == told


def test_no_command_is_taken_after_a_recovery_until_the_rm_has_resumed(desk: Desk) -> None:
    """One that was on its way says nothing about what the RM has received since, and what is told because of it would
    get numbers that the RM has seen already.
    """
    busy(desk)
    after = desk.recovered()
    command = arrives(BROKER, ask("new"), seq=desk.seq + 1)
    after.handle(command, desk.now)
    assert after.host.channel.received == desk.seq
    after.handle(arrives(BROKER, Repeat(), ack=5), desk.now)
    after.handle(command, desk.now)
    assert after.host.channel.received == desk.seq + 1


def test_time_does_not_pass_after_a_recovery_until_the_rm_has_resumed(desk: Desk) -> None:
    """If the journal is an older one, news of a timer would get numbers that the RM has seen already."""
    desk.tell(NODES)
    desk.tell(APP)
    desk.tell(ask("k"))
    desk.schedule()
    gone = AllocationRelease(partition_name=PARTITION, application_id="a", allocation_key="k", termination_type=1)
    desk.tell(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=[gone])))
    desk.kept()
    desk.worker = desk.recovered()
    told = desk.worker.host.channel.outbox.last
    desk.now += 3_600
    assert desk.worker.deadline > desk.now
    assert "ApplicationResponse" not in kinds([*desk.tick(), *desk.kept()])
    assert desk.worker.host.channel.outbox.last == told
    desk.hear(Repeat(), ack=told)
    assert "ApplicationResponse" in kinds([*desk.schedule(), *desk.kept()])


def test_an_administrator_has_to_wait_after_a_recovery_until_the_rm_has_resumed(desk: Desk) -> None:
    busy(desk)
    after = desk.recovered()
    kill = KillApplication(application_id="a", actor=Actor(user="root", scheduler_admin=True))
    [refused] = said(after.handle(arrives(BROKER, kill, ref="1"), desk.now))
    reason = b"the partition was started again, and waits for the resource manager to resume its session"
    assert refused == Answer(status=503, body=reason)


def test_news_of_another_configuration_after_a_recovery_wait_until_the_rm_has_resumed(desk: Desk) -> None:
    """They count as unsent: an RM that has received as many has received others."""
    busy(desk)
    desk.worker = desk.recovered()
    told = desk.worker.host.channel.outbox.last
    assert "ApplicationResponse" not in kinds([*desk.hear(RetirePartition()), *desk.kept()])
    assert desk.worker.host.channel.outbox.last > told
    *_, hello = [*desk.hear(Repeat(), ack=told + 1), *desk.kept()]
    assert decode_body(Hello, hello.body).problem.endswith(f"the journal has {told}")
    assert "ApplicationResponse" in kinds([*desk.hear(Repeat(), ack=told), *desk.kept()])


def test_an_rm_that_resumes_in_vain_again_and_again_starts_anew(desk: Desk) -> None:
    """Its release of the SDK does not say what was acknowledged."""
    busy(desk)
    after = desk.recovered()
    resume, later = arrives(BROKER, Repeat(), ack=5), arrives(BROKER, ask("k"), seq=desk.seq + 2)
    for _ in range(RESUMED_IN_VAIN_MAX):
        assert "Hello" not in kinds(after.handle(resume, desk.now))
        [refused] = after.handle(later, desk.now)
        assert refused.header.kind == "Refused"
    [hello] = after.handle(resume, desk.now)
    told = f"the resource manager does not send the commands after {desk.seq} again"
    assert decode_body(Hello, hello.body).problem == told


def test_an_rm_that_resumes_often_and_goes_on_each_time_does_not_start_anew(desk: Desk) -> None:
    busy(desk)
    for _ in range(2 * RESUMED_IN_VAIN_MAX):
        desk.hear(ask("k"), seq=desk.seq + 2)
        desk.hear(Repeat(), ack=5)
        desk.tell(ask("k"))
    assert desk.worker.problem == ""


def test_nothing_new_is_placed_after_a_recovery_until_the_rm_has_said_what_it_heard(desk: Desk) -> None:
    """Or it would take what is told under a number that the journal has lost for what it has heard already."""
    desk.tell(NODES)
    desk.tell(APP)
    desk.take(ask("k"))
    desk.kept()
    desk.worker = desk.recovered()
    assert placed([*desk.schedule(), *desk.kept()]) == []
    desk.hear(Repeat())
    assert placed([*desk.schedule(), *desk.kept()]) == ["k"]


def test_an_acknowledgement_of_what_was_never_told_changes_nothing_in_a_partition_that_began_here(desk: Desk) -> None:
    desk.tell(NODES, ack=1_000)
    assert "Hello" not in kinds(desk.kept())
    assert desk.worker.problem == ""


def test_an_rm_that_resumes_from_what_was_never_told_starts_anew_even_where_the_partition_began_here(
    desk: Desk,
) -> None:
    """The broker's record may have gone back, so that the partition began in a life that the RM knew already."""
    desk.tell(NODES)
    desk.kept()
    [hello] = desk.hear(Repeat(), ack=1_000)
    assert (
        decode_body(Hello, hello.body).problem == "the resource manager has received 1000 messages, the journal has 1"
    )


def test_a_vote_is_remembered() -> None:
    desk = Desk(running=False)
    desk.hear(PrepareConfig(rollout=7, config=config_of()))
    desk.kept()
    after = desk.recovered()
    after.handle(arrives(BROKER, CommitConfig(rollout=7), partition=PARTITION), desk.now)
    assert after.partition is not None


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


def test_a_snapshot_is_taken_after_so_many_small_steps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rm_channel, "SNAPSHOT_STEPS", 10)
    desk = Desk()
    busy(desk)
    assert len(desk.disk.snapshots) == 1


def test_the_next_snapshot_waits_longer_than_the_last_one_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rm_channel, "SNAPSHOT_STEPS", 10)
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
    assert desk.disk.steps[0].header.kind == "PrepareConfig"
    assert desk.disk.steps[0].header.session == "session-2"
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
