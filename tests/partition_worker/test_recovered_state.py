"""A recovered worker has the state that was recorded, whatever wrote it, and continues when the RM has resumed."""

import math
from collections.abc import Callable

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from tests.invariants import check
from tests.machines import PARTITION, SESSION, arrives, config_of, said
from tests.partition_worker.bench import APP, EPOCH, NODES, ask, placed
from tests.partition_worker.desk import Desk, busy, kinds
from tests.partition_worker.engine.predicates.plugins import Broken, Rack
from tests.recorded import snapshot as content_of
from yunishard.common.messages.control_messages import (
    CommitConfig,
    GroupsFound,
    GroupsWanted,
    Hello,
    PrepareConfig,
    Repeat,
    RetirePartition,
    Settings,
)
from yunishard.common.messages.journal_messages import Append
from yunishard.common.messages.query_messages import Actor, Answer, KillApplication, Query
from yunishard.common.messages.rm_messages import (
    EVENTS,
    PREDICATES,
    Ack,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    NodeInfo,
    NodeRequest,
    PredicatesAnswered,
    PredicatesAsked,
    SyncBegin,
    SyncDone,
    SyncEnd,
    Verdict,
)
from yunishard.common.messages.wire import decode_body
from yunishard.common.names import BROKER, JOURNAL
from yunishard.common.node_sort_policies import NODE_SORT_POLICIES, score_bin_packing
from yunishard.partition_worker import recovery
from yunishard.partition_worker.engine.predicates.predicate import TOLERATIONS, Predicate
from yunishard.partition_worker.engine.state import Tuning
from yunishard.partition_worker.engine.user_resolution import User
from yunishard.partition_worker.partition_host import GROUPS
from yunishard.partition_worker.recovery import JournalDamaged
from yunishard.partition_worker.worker import RESUMED_IN_VAIN_MAX, Worker


@pytest.fixture
def desk() -> Desk:
    return Desk()


def state_of(worker: Worker) -> dict[str, object]:
    """Everything that a recovery has to bring back."""
    host, channel = worker.host, worker.host.channel
    return {
        "session": (channel.rm, channel.session, channel.life, host.session.rollout),
        "prepared": host.session.prepared,
        "retiring": host.session.retiring,
        "settings": (host.session.settings, host.session.capabilities, host.extra),
        "received": channel.received,
        "numbered": channel.outbox.last,
        "unacknowledged": channel.outbox.unacknowledged(),
        "step": worker.barrier.last,
        "partition": host.partition and content_of(host.partition),
        "applied": host.partition
        and (
            host.partition.tracking,
            host.partition.auditor.every_s,
            host.partition.nodes.predicates.asks_manager,
        ),
    }


def test_a_recovered_worker_has_the_same_state_and_sends_the_same(desk: Desk) -> None:
    busy(desk)
    after = desk.recovered()
    before = desk.worker
    again = after.handle(arrives(BROKER, Repeat(), ack=5), desk.now)
    assert [(one.header.seq, one.body) for one in again] == [
        (one.header.seq, one.body) for one in desk.hear(Repeat(), ack=5)
    ]
    assert state_of(after) == state_of(before)
    asked = Query(what="nodes")
    [then], [now] = said(after.handle(arrives(BROKER, asked), desk.now)), said(desk.hear(asked))
    assert isinstance(then, Answer)
    assert isinstance(now, Answer)
    assert then.body == now.body


GONE = AllocationRelease(partition_name=PARTITION, application_id="a", allocation_key="k1", termination_type=1)
SETTINGS = {"event.trackingEnabled": "false", "health.checkInterval": "7s", "log.core.scheduler.level": "DEBUG"}

HISTORY: tuple[Callable[[Desk], object], ...] = (
    lambda desk: desk.hear(Settings(values=SETTINGS, capabilities=[EVENTS, "flight"])),
    lambda desk: desk.tell(NODES),
    lambda desk: desk.tell(APP),
    lambda desk: desk.tell(ask("k1", "k2", "k3")),
    lambda desk: desk.schedule(),
    lambda desk: desk.hear(Ack(), ack=3),
    lambda desk: desk.tell(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=[GONE]))),
    lambda desk: desk.hear(PrepareConfig(rollout=2, config=config_of(WIDER), live=True)),
    lambda desk: desk.hear(CommitConfig(rollout=2)),
    lambda desk: desk.hear(Settings(values={"event.ringBufferCapacity": "77"}, capabilities=[EVENTS])),
    lambda desk: desk.hear(PrepareConfig(rollout=3, config=config_of(), live=True)),
    lambda desk: desk.tell(ask("k4")),
)
"""The RM's settings, capabilities, two live roll-outs, one of which is only prepared, and news with and without
acknowledgement.
"""

ACKNOWLEDGES = 5
"""Position of the acknowledgement."""

WIDER = """
partitions:
  - name: default
    queues: [{name: root, submitacl: "*", queues: [{name: batch}, {name: more}]}]
"""


@pytest.mark.parametrize("position", [None, *range(len(HISTORY) + 1)])
def test_everything_comes_back_from_steps_from_a_snapshot_and_from_both(desk: Desk, position: int | None) -> None:
    """The snapshot is taken before the input at this position; None: there are only steps."""
    for number, happens in enumerate(HISTORY):
        if number == position:
            desk.take_snapshot()
        happens(desk)
    if position == len(HISTORY):
        desk.take_snapshot()
        assert desk.disk.steps == []
    desk.kept()
    before, after = state_of(desk.worker), state_of(desk.recovered())
    assert after == before
    assert desk.worker.host.session.prepared is not None
    assert before["numbered"] == 7
    assert [number for number, _, _ in desk.worker.host.channel.outbox.unacknowledged()] == [4, 5, 6, 7]
    hello = desk.recovered().make_hello()
    assert decode_body(Hello, hello.body) == Hello(role="worker", rollout=2, prepared=3, recovered=True)


@pytest.mark.parametrize("position", range(len(HISTORY)))
def test_it_comes_back_after_each_input(desk: Desk, position: int) -> None:
    for happens in HISTORY[: position + 1]:
        happens(desk)
    desk.flush()
    found, expected = state_of(desk.recovered()), state_of(desk.worker)
    if position == ACKNOWLEDGES:  # it is no step, as the RM says it again when it resumes
        del found["unacknowledged"], expected["unacknowledged"]
    assert found == expected


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_partition_that_retires_still_does_so_after_a_recovery(desk: Desk, snapshot: bool) -> None:
    desk.tell(APP)
    desk.hear(RetirePartition())
    desk.kept()
    if snapshot:
        desk.take_snapshot()
    after = desk.recovered()
    assert state_of(after) == state_of(desk.worker)
    assert after.host.session.retiring
    assert after.partition is not None
    assert after.partition.retired


def test_exactly_the_unacknowledged_messages_are_sent_again(desk: Desk) -> None:
    busy(desk)
    sent = {number: (kind, body) for number, kind, body in desk.worker.host.channel.outbox.unacknowledged()}
    last = desk.worker.host.channel.outbox.last
    for ack in (5, last - 1, last):
        _, *again = desk.recovered().handle(arrives(BROKER, Repeat(), ack=ack), desk.now)
        expected = {number: one for number, one in sent.items() if number > ack}
        assert {one.header.seq: (one.header.kind, one.body) for one in again} == expected
        assert {one.header.epoch for one in again} <= {EPOCH + 1}


def test_no_step_is_written_for_an_input_that_changes_nothing(desk: Desk) -> None:
    busy(desk)
    before = desk.worker.barrier.last
    desk.tick()
    desk.hear(Ack(), ack=6)
    assert desk.worker.barrier.last == before


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


def test_messages_under_other_numbers_are_not_accepted(desk: Desk) -> None:
    busy(desk)
    told = next(index for index, step in enumerate(desk.disk.steps) if step.told)
    first = desk.disk.steps[told].told[0]
    seq = first.number
    desk.disk.steps[told] = replace(desk.disk.steps[told], told=[replace(first, number=seq + 1)])
    problem = f"step {desk.disk.steps[told].number} has message {seq + 1} to the RM after {seq - 1}"
    with pytest.raises(JournalDamaged, match=problem):
        desk.recovered()


def test_a_missing_step_is_not_accepted(desk: Desk) -> None:
    busy(desk)
    missing = desk.disk.steps.pop(5).number
    with pytest.raises(JournalDamaged, match=f"step {missing + 1} comes after step {missing - 1}"):
        desk.recovered()


@pytest.mark.parametrize("order", ["again", "backwards"])
def test_steps_in_another_order_are_not_accepted(desk: Desk, order: str) -> None:
    busy(desk)
    one, other = desk.disk.steps[3:5]
    desk.disk.steps[3:5] = [one, one] if order == "again" else [other, one]
    found, last = (one.number, one.number) if order == "again" else (other.number, one.number - 1)
    with pytest.raises(JournalDamaged, match=f"^step {found} comes after step {last}$"):
        desk.recovered()


def test_steps_that_do_not_follow_the_snapshot_are_not_accepted(desk: Desk) -> None:
    desk.tell(NODES)
    desk.take_snapshot()
    last = desk.worker.barrier.last
    desk.tell(APP)
    desk.tell(ask("k"))
    desk.kept()
    del desk.disk.steps[0]
    with pytest.raises(JournalDamaged, match=f"^step {last + 2} comes after step {last}$"):
        desk.recovered()


UNKNOWN = [{"record": "Licence", "name": "matlab"}]


def test_records_of_a_step_that_are_cut_off_or_unknown_are_not_accepted(desk: Desk) -> None:
    busy(desk)
    index, step = next((index, step) for index, step in enumerate(desk.disk.steps) if step.kind == "NodeRequest")
    whole = bytes(step.records)
    spoilt = [(whole[:length], "Input data was truncated") for length in range(len(whole))]
    spoilt.append((msgspec.msgpack.encode(UNKNOWN), r"Invalid value 'Licence' - at `\$\[0\].record`"))
    for records, problem in spoilt:
        desk.disk.steps[index] = replace(step, records=Raw(records))
        with pytest.raises(JournalDamaged, match=f"^step {step.number} cannot be decoded: {problem}"):
            desk.recovered()


def test_a_snapshot_that_is_cut_off_or_has_unknown_records_is_not_accepted(desk: Desk) -> None:
    busy(desk)
    desk.take_snapshot()
    whole = desk.disk.content
    assert whole is not None
    head = 4 + int.from_bytes(whole[:4])
    more = msgspec.msgpack.encode(UNKNOWN)
    spoilt = [(whole[:length], "") for length in range(len(whole)) if length != head]
    spoilt.append((whole + len(more).to_bytes(4) + more, r"Invalid value 'Licence' - at `\$\[0\].record`"))
    for content, problem in spoilt:
        desk.disk.content = content
        why = problem or ("it is cut off" if content else "Input data was truncated")
        with pytest.raises(JournalDamaged, match=f"^the snapshot cannot be decoded: {why}$"):
            desk.recovered()


@pytest.mark.parametrize("records", [1, 3])
def test_a_snapshot_may_have_many_pieces(desk: Desk, monkeypatch: pytest.MonkeyPatch, records: int) -> None:
    monkeypatch.setattr(recovery, "PIECE_RECORDS", records)
    busy(desk)
    desk.take_snapshot()
    assert state_of(desk.recovered()) == state_of(desk.worker)


def test_a_partition_that_begins_anew_needs_nothing_of_before(desk: Desk) -> None:
    busy(desk)
    desk.configure(rollout=2, session="session-2")
    assert [step.kind for step in desk.disk.steps] == ["CommitConfig"]
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
    received = desk.worker.host.channel.received
    assert kinds([*desk.tell(NODES, ack=1_000), *desk.kept()]) == ["Hello"]  # not the second message once more
    assert desk.worker.host.channel.received == received
    assert desk.schedule() == []


def test_a_vote_is_remembered() -> None:
    desk = Desk(running=False)
    desk.hear(PrepareConfig(rollout=7, config=config_of()))
    desk.kept()
    after = desk.recovered()
    after.handle(arrives(BROKER, CommitConfig(rollout=7), partition=PARTITION), desk.now)
    assert after.partition is not None


# A report that is interrupted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_report_that_a_restart_interrupts_is_answered_with_a_problem_and_the_next_one_ends_it(
    desk: Desk, snapshot: bool
) -> None:
    for command in (NODES, APP, ask("gone")):
        desk.tell(command)
    desk.tell(SyncBegin(reason="it has restarted"))
    desk.kept()
    if snapshot:
        desk.take_snapshot()
    desk.restart()
    desk.tell(NODES)
    desk.tell(ask("k"))
    assert placed([*desk.schedule(), *desk.kept()]) == [], "not all of the report may have arrived"
    desk.tell(SyncEnd(nodes=1, allocations=1))
    [done] = [message for message in said(desk.kept()) if isinstance(message, SyncDone)]
    assert done == SyncDone(problem="the worker of the partition was started again during the report", cause=done.cause)
    assert list(desk.partition.allocations) == ["gone", "k"]
    desk.tell(SyncBegin())
    for update in (NODES, APP, ask("k")):
        desk.tell(update)
    desk.tell(SyncEnd(nodes=1, applications=1, allocations=1))
    [done] = [message for message in said(desk.kept()) if isinstance(message, SyncDone)]
    assert done == SyncDone(allocations=["gone"], cause=done.cause)
    assert desk.partition.report is None
    desk.restart()
    assert desk.partition.report is None
    desk.schedule()
    assert list(desk.partition.applications["a"].allocations) == ["k"]


def test_a_report_is_still_interrupted_after_another_restart(desk: Desk) -> None:
    desk.tell(SyncBegin())
    for _ in range(2):
        desk.restart()
    desk.tell(SyncEnd())
    [done] = [message for message in said(desk.kept()) if isinstance(message, SyncDone)]
    assert done.problem == "the worker of the partition was started again during the report"


# Group lookups --------------------------------------------------------------------------------------------------------

LOOKUPS = """
partitions:
  - name: default
    usergroupresolver: {type: os}
    queues: [{name: root, submitacl: "*", queues: [{name: batch}]}]
"""


@pytest.mark.parametrize("snapshot", [False, True])
def test_a_submission_that_waits_for_a_group_lookup_still_waits_with_its_asks_and_the_lookup_is_requested_again(
    desk: Desk, snapshot: bool
) -> None:
    desk.configure(LOOKUPS, rollout=2, session=SESSION, life=1)
    for command in (NODES, APP, ask("k")):
        desk.tell(command, life=1)
    desk.kept()
    if snapshot:
        desk.take_snapshot()
    before = state_of(desk.worker)
    desk.worker = desk.recovered()
    assert state_of(desk.worker) == before
    found = arrives(GROUPS, GroupsFound(user="u", groups=["dev"]), rm="", session="")
    assert desk.worker.handle(found, desk.now) == [], "it is the answer to the former worker"
    sends = desk.hear(Repeat(), life=1)
    assert [decode_body(GroupsWanted, one.body) for one in sends if one.to == GROUPS] == [GroupsWanted(user="u")]
    desk.worker.handle(found, desk.now)
    assert placed([*desk.schedule(), *desk.kept()]) == ["k"]
    assert desk.partition.applications["a"].user == User("u", ("dev",))


# Predicates -----------------------------------------------------------------------------------------------------------


def questions(desk: Desk) -> list[int]:
    """The numbers of the questions that the RM is asked now."""
    sends = [*desk.schedule(), *desk.kept()]
    return [one.question for one in said(sends) if isinstance(one, PredicatesAsked)]


def test_a_question_after_a_recovery_has_a_new_number(desk: Desk) -> None:
    """Or the answer to another question would count, which is on its way. Questions are no steps."""
    desk.hear(Settings(values={}, capabilities=[PREDICATES]))
    for command in (NODES, APP, ask("k")):
        desk.tell(command)
    asked = questions(desk)
    for number in range(6):
        desk.restart()
        asked += questions(desk)
        if number % 2:
            desk.now += 9
            desk.tell(ask(f"k{number}"))
            asked += questions(desk)
    assert len(asked) > 6
    assert len(set(asked)) == len(asked)


def test_an_answer_to_a_question_before_the_recovery_does_not_count(desk: Desk) -> None:
    desk.hear(Settings(values={}, capabilities=[PREDICATES]))
    for command in (NODES, APP, ask("k")):
        desk.tell(command)
    [before] = questions(desk)
    desk.restart()
    [after] = questions(desk)
    yes = Verdict(allocation_key="k", node_id="n1", allocate=True)
    desk.hear(PredicatesAnswered(question=before, verdicts=[yes]))
    assert placed([*desk.schedule(), *desk.kept()]) == []
    desk.hear(PredicatesAnswered(question=after, verdicts=[yes]))
    assert placed([*desk.schedule(), *desk.kept()]) == ["k"]


# Another release, other plug-ins and other options --------------------------------------------------------------------


def tagged(key: str, tags: dict[str, str], *, vcore: int = 1) -> AllocationRequest:
    amounts = {"vcore": vcore}
    one = Allocation(allocation_key=key, application_id="a", resource_per_alloc=amounts, allocation_tags=tags)
    return AllocationRequest(allocations=[one])


RACKS = NodeRequest(
    nodes=[
        NodeInfo(node_id=f"n{n}", action=1, schedulable_resource={"vcore": 10 * n}, attributes={"rack": f"r{n}"})
        for n in range(1, 5)
    ]
)


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("plugins", [[], [Rack()], [Broken(reading=True)], [Broken(), Rack()]])
def test_a_recovery_does_not_depend_on_plug_ins_options_and_node_sort_policies(
    monkeypatch: pytest.MonkeyPatch, snapshot: bool, plugins: list[Predicate]
) -> None:
    desk = Desk(plugins=[Rack()])
    desk.tell(RACKS)
    desk.tell(APP)
    for number in range(12):
        desk.tell(tagged(f"k{number}", {"rack": f"r{number % 4 + 1}"} if number % 2 else {}))
        desk.schedule()
    desk.tell(tagged("waits", {"rack": "none"}))
    desk.tell(tagged("large", {}, vcore=39))
    desk.now += 5
    desk.schedule()
    desk.flush()
    desk.kept()
    assert [one.ask.key for one in desk.partition.reservation_index.by_rank.values()] == ["large"]
    if snapshot:
        desk.take_snapshot()
    monkeypatch.setitem(NODE_SORT_POLICIES, "fair", score_bin_packing)
    options = Tuning(reservation_delay_s=math.inf, preemption_pause_s=9.0, preemption_threshold=0.9, asks_max=3)
    after = desk.recovered(plugins=plugins, tuning=options)
    assert after.partition is not None
    check(after.partition)
    assert state_of(after) == state_of(desk.worker)
    assert len(after.partition.applications["a"].allocations) == 12
    after.handle(arrives(BROKER, Repeat()), desk.now)
    while after.deadline <= desk.now:
        after.tick(desk.now)
        check(after.partition)
    assert len(after.partition.applications["a"].allocations) == (13 if plugins == [] else 12)


def test_an_ask_whose_tags_a_new_plug_in_cannot_read_waits(desk: Desk) -> None:
    """It may not run on any node; the other asks are placed."""
    for command in (RACKS, APP, tagged("wrong", {"rack": ""}), tagged("right", {"rack": "r2"})):
        desk.take(command)
    desk.kept()
    desk.worker = desk.recovered(plugins=[Rack()])
    desk.hear(Repeat())
    assert placed([*desk.schedule(), *desk.kept()]) == ["right"]
    [wrong] = desk.partition.applications["a"].requests.values()
    refusals = desk.partition.nodes.predicates.refusals(wrong.shape, desk.partition.nodes)
    assert refusals == {"tag rack: name one": 4}


def test_an_allocation_that_was_reported_with_unreadable_tags_comes_back(desk: Desk) -> None:
    """It is accepted where it runs."""
    report = tagged("runs", {TOLERATIONS: "=="})
    report.allocations[0] = replace(report.allocations[0], node_id="n1")
    for command in (NODES, APP, report):
        desk.tell(command)
    desk.kept()
    after = desk.recovered()
    assert state_of(after) == state_of(desk.worker)
    assert after.partition is not None
    assert list(after.partition.applications["a"].allocations) == ["runs"]
