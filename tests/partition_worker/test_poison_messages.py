"""A message that ended the worker twice is set aside: refused and rejected item by item; what follows is served."""

from collections.abc import Callable

import msgspec
import pytest

from tests.attempts import MemoryAttempts, WorkerKilled
from tests.machines import PARTITION, arrives, config_of, said
from tests.partition_worker.bench import APP, NODES, NOW, ask
from tests.partition_worker.start import CONFIGURE
from yunishard.common.messages.control_messages import ConfigVote, PrepareConfig, Repeat
from yunishard.common.messages.journal_messages import Append, Kept, Step
from yunishard.common.messages.kinds import Command, Message
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.messages.rm_messages import (
    NODE_CREATE,
    NODE_UPDATE,
    UPDATE_ITEMS_MAX,
    Allocation,
    AllocationRequest,
    AllocationResponse,
    ApplicationResponse,
    NodeInfo,
    NodeRequest,
    NodeResponse,
    Refused,
    SyncBegin,
    SyncDone,
    SyncEnd,
)
from yunishard.common.messages.wire import Incoming, Outgoing, WireError, decode_body, encode_body
from yunishard.common.names import BROKER, JOURNAL
from yunishard.partition_worker import partition_host, queries, rm_channel
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.worker import Worker

DEADLY = "deadly"
"""An allocation key, node or application that ends whoever looks at it."""


class Lives:
    """One worker after the other, with a journal that keeps everything at once."""

    def __init__(self) -> None:
        self.attempts = MemoryAttempts()
        self.steps: list[Step] = []
        self.deaths = 0
        self.seq = 0
        self.worker = self._begin()
        for message, _ in CONFIGURE:
            self.take(arrives(BROKER, message, partition=PARTITION))

    def new_worker(self) -> Worker:
        return Worker(PartitionHost(partition=PARTITION, epoch=1), journalled=True, attempts=self.attempts)

    def _begin(self) -> Worker:
        worker = self.new_worker()
        worker.recover(None, self.steps)
        return worker

    def restart(self) -> None:
        """The next worker, to which the resource manager has resumed its session."""
        self.attempts = self.attempts.successor()
        self.worker = self._begin()
        self.worker.handle(arrives(BROKER, Repeat(), partition=PARTITION), NOW)

    def take(self, incoming: Incoming) -> list[Message]:
        """What is said in the end, however often the worker dies before."""
        return self.outlive(lambda: self.worker.handle(incoming, NOW))

    def outlive(self, act: Callable[[], list[Outgoing]]) -> list[Message]:
        """What is said in the end if each worker that dies is followed by another one, which does the same."""
        while True:
            try:
                sends = act()
            except WorkerKilled:
                self.deaths += 1
                assert self.deaths < 10, "it is given the same message again and again"
                self.restart()
                continue
            return said(self._durable(sends))

    def _durable(self, sends: list[Outgoing]) -> list[Outgoing]:
        recorder = self.worker.barrier
        assert recorder is not None
        told: list[Outgoing] = []
        for one in [*sends, *recorder.flush()]:
            if one.to != JOURNAL:
                told.append(one)
                continue
            append = decode_body(Append, one.body)
            if append.fresh:
                self.steps.clear()
            self.steps += [msgspec.msgpack.decode(step, type=Step) for step in append.steps]
        return told + self.worker.handle(arrives(JOURNAL, Kept(number=recorder.last)), NOW)

    def tell(self, command: Message) -> list[Message]:
        """The next numbered command."""
        self.seq += 1
        return self.take(arrives(BROKER, command, partition=PARTITION, seq=self.seq))

    @property
    def partition(self) -> Partition:
        assert self.worker.partition is not None
        return self.worker.partition


@pytest.fixture
def lives(monkeypatch: pytest.MonkeyPatch) -> Lives:
    apply = Partition.apply

    def deadly(self: Partition, command: Command, now: float) -> list[Effect]:
        if DEADLY in str(command):
            raise WorkerKilled
        return apply(self, command, now)

    monkeypatch.setattr(Partition, "apply", deadly)
    return Lives()


def refusals(told: list[Message]) -> list[Refused]:
    return [one for one in told if isinstance(one, Refused)]


def test_an_update_that_ends_the_worker_twice_is_refused_and_later_ones_are_served(lives: Lives) -> None:
    lives.tell(NODES)
    lives.tell(APP)
    told = lives.tell(ask("k1", DEADLY))
    assert lives.deaths == 2
    [refused] = refusals(told)
    assert (refused.code, refused.seq) == ("poison", 3)
    assert refused.reason.startswith("AllocationRequest of ")
    assert refused.reason.endswith(
        f"ended the worker of partition {PARTITION} 2 times while it was handled: it was quarantined and has no effect"
    )
    [rejected] = [one for one in told if isinstance(one, AllocationResponse)]
    assert [(one.allocation_key, one.reason) for one in rejected.rejected_allocations] == [
        ("k1", refused.reason),
        (DEADLY, refused.reason),
    ]
    assert lives.partition.allocations == {}
    lives.tell(ask("k2"))
    assert list(lives.partition.allocations) == ["k2"]
    assert lives.deaths == 2


def test_a_command_that_ends_the_worker_while_it_is_decoded_is_refused_as_a_whole(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As decoding takes too much memory, for example."""

    def deadly(kind: type[Message], body: bytes) -> Message:
        if kind is AllocationRequest and DEADLY.encode() in body:
            raise WorkerKilled
        return decode_body(kind, body)

    monkeypatch.setattr(partition_host, "decode_body", deadly)
    lives.tell(NODES)
    lives.tell(APP)
    told = lives.tell(ask(DEADLY))
    assert lives.deaths == 4
    assert [one.code for one in refusals(told)] == ["poison"]
    assert not [one for one in told if isinstance(one, AllocationResponse)]
    lives.tell(ask("k2"))
    assert list(lives.partition.allocations) == ["k2"]
    assert lives.deaths == 4


def test_the_end_of_a_report_is_answered_so_that_its_rm_reports_again(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = Partition.apply

    def deadly(self: Partition, command: Command, now: float) -> list[Effect]:
        if isinstance(command, SyncEnd):
            raise WorkerKilled
        return apply(self, command, now)

    monkeypatch.setattr(Partition, "apply", deadly)
    lives.tell(SyncBegin())
    told = lives.tell(SyncEnd())
    assert lives.deaths == 2
    [refused] = refusals(told)
    assert [one.problem for one in told if isinstance(one, SyncDone)] == [refused.reason]
    assert lives.partition.report is not None


def test_an_update_with_too_many_items_is_refused_as_a_whole() -> None:
    """As it would have been if it had not ended the worker: nobody is sent millions of rejections."""
    update = AllocationRequest(allocations=[Allocation(allocation_key="k")] * (UPDATE_ITEMS_MAX + 1))
    with pytest.raises(WireError, match="at most"):
        partition_host.decode_command("AllocationRequest", encode_body(update))


def test_rejections_come_in_messages_of_bounded_length(lives: Lives) -> None:
    keys = [f"k{number}" for number in range(rm_channel.ITEMS_MAX)]
    told = lives.tell(ask(*keys, DEADLY))
    assert [len(one.rejected_allocations) for one in told if isinstance(one, AllocationResponse)] == [len(keys), 1]


def test_the_reason_names_the_partition_as_its_rm_does() -> None:
    incoming = arrives(BROKER, ask("k1"), partition="a_b_default~3")
    why = partition_host.describe_reason(incoming.header, incoming.body, "a_b_default~3")
    assert "the worker of partition a_b_default 2 times" in why


def test_its_rejections_are_a_step_and_are_sent_again_after_a_recovery(lives: Lives) -> None:
    lives.tell(APP)
    told = lives.tell(ask(DEADLY))
    assert lives.worker.host.poisons == 1
    lives.restart()
    lane = lives.worker.host.channel
    assert (lane.received, lane.outbox.last) == (2, 2)
    assert lives.worker.host.poisons == 0, "it counts since the process started"
    assert lives.steps[-1].kind == "AllocationRequest"
    again = said(lives.worker.handle(arrives(BROKER, Repeat(), partition=PARTITION), NOW))
    assert again[-1] == next(one for one in told if isinstance(one, AllocationResponse))


def test_the_same_message_is_refused_at_once_in_another_session_too(lives: Lives) -> None:
    lives.tell(ask(DEADLY))
    assert lives.deaths == 2
    lives.restart()
    for message, _ in CONFIGURE:
        lives.take(arrives(BROKER, message, partition=PARTITION, session="session-2"))
    told = lives.take(arrives(BROKER, ask(DEADLY), partition=PARTITION, session="session-2", seq=1))
    assert [one.code for one in refusals(told)] == ["poison"]
    assert lives.deaths == 2


def test_only_what_is_new_is_rejected(lives: Lives) -> None:
    lives.tell(NODES)
    infos = [
        NodeInfo(node_id="n1", action=NODE_CREATE),
        NodeInfo(node_id=DEADLY, action=NODE_CREATE),
        NodeInfo(node_id="n3", action=NODE_UPDATE),
    ]
    told = lives.tell(NodeRequest(nodes=infos))
    [response] = [one for one in told if isinstance(one, NodeResponse)]
    assert [one.node_id for one in response.rejected] == [DEADLY]
    assert [node.node_id for node in lives.partition.nodes] == ["n1"]


def test_applications_are_rejected_by_id(lives: Lives) -> None:
    application = msgspec.structs.replace(APP.new[0], application_id=DEADLY)
    told = lives.tell(msgspec.structs.replace(APP, new=[*APP.new, application]))
    [response] = [one for one in told if isinstance(one, ApplicationResponse)]
    assert [one.application_id for one in response.rejected] == ["a", DEADLY]


def test_one_death_is_an_accident(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    lives.tell(APP)
    apply = Partition.apply
    deaths = 0

    def once(self: Partition, command: Command, now: float) -> list[Effect]:
        nonlocal deaths
        deaths += 1
        if deaths == 1:
            raise WorkerKilled
        return apply(self, command, now)

    for number in range(3):
        deaths = 0
        monkeypatch.setattr(Partition, "apply", once)
        assert not refusals(lives.tell(ask(f"k{number}")))
        assert lives.attempts.ended == {}
    assert len(lives.partition.allocations) == 3


def test_a_question_that_ends_the_worker_is_answered_with_the_reason(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = queries.answer_partition_query

    def deadly(partition: Partition, rm: str, query: Query, large: list[queries.LargeAnswer] | None = None) -> Answer:
        if query.what == "nodes":
            raise WorkerKilled
        return answer(partition, rm, query, large)

    monkeypatch.setattr(queries, "answer_partition_query", deadly)
    [answered] = lives.take(arrives(BROKER, Query(what="nodes", name="default"), ref="1"))
    assert isinstance(answered, Answer)
    assert (answered.status, lives.deaths) == (500, 2)
    assert b"ended the worker" in answered.body
    [answered] = lives.take(arrives(BROKER, Query(what="health", name="default"), ref="2"))
    assert isinstance(answered, Answer)
    assert b'"poison":"Query of ' in answered.body


def test_a_configuration_that_ends_the_worker_gets_a_no(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    def deadly(*_: object) -> list[str]:
        raise WorkerKilled

    monkeypatch.setattr(Partition, "objections", deadly)
    [vote] = lives.take(arrives(BROKER, PrepareConfig(rollout=2, config=config_of(), live=True), partition=PARTITION))
    assert isinstance(vote, ConfigVote)
    assert (vote.rollout, lives.deaths) == (2, 2)
    assert "ended the worker" in vote.reason


def test_each_is_handed_to_the_shell_once(lives: Lives) -> None:
    lives.tell(ask(DEADLY))
    [kept] = lives.worker.poisons
    assert (kept.message.number, kept.message.header.kind) == (0, "AllocationRequest")
    assert DEADLY.encode() in kept.message.body
    lives.tell(ask(DEADLY))
    assert lives.worker.poisons == [kept]
    assert lives.worker.host.poisons == 2
