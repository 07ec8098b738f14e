"""Deliberate defects: what the simulation must find, as a test of the simulation itself.

Each takes the place of one method of a machine, of the session or of the disk while a seed runs. Not here: how soon
each is found (`test_mutations.py` asks for it).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from tests.sim.disk import SimulatedJournal
from tests.sim.faults import ANY, Traits, often
from yunishard.broker import leases, rm_sessions
from yunishard.broker.config_rollout import ConfigChange, ConfigChanges
from yunishard.broker.leases import RecoveryState
from yunishard.broker.registry import Registry, RmSession, WorkerSlot, build_answer
from yunishard.broker.routing import BrokerMachine
from yunishard.broker.state import BrokerState
from yunishard.common.messages.control_messages import AbortConfig, CommitConfig, Hello
from yunishard.common.messages.journal_messages import TICK, Step
from yunishard.common.messages.kinds import Header, News
from yunishard.common.messages.query_messages import EndSession
from yunishard.common.messages.session import EncodedMessage, Outbox, Session
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing
from yunishard.common.names import BROKER
from yunishard.partition_worker import partition_host, views, worker
from yunishard.partition_worker.engine.operator_marks import NodeCounts
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.recording import collect_changes
from yunishard.partition_worker.rm_channel import OutboxBarrier, RMChannel
from yunishard.partition_worker.worker import Worker
from yunishard.rmproxy.proxy import Proxy

Defect = Callable[[], Iterator[None]]


def replaced(owner: object, name: str, other: object) -> Iterator[None]:
    """While this is open, the method of this name is another one."""
    before = getattr(owner, name)
    setattr(owner, name, other)
    try:
        yield
    finally:
        setattr(owner, name, before)


def skip_acknowledgements() -> Iterator[None]:
    """An RM's session thinks that it has acknowledged, now and then, and has not."""
    before = Session.acknowledgements

    def acknowledgements(session: Session) -> list[EncodedMessage]:
        due = before(session)
        return [one for one in due if one.header.ack % 5]

    return replaced(Session, "acknowledgements", acknowledgements)


def acknowledge_too_early() -> Iterator[None]:
    """A worker acknowledges a command that it refuses because one before it is missing."""
    before = RMChannel.check_order

    def untimely(lane: RMChannel, header: Header) -> list[Outgoing] | None:
        if header.seq > lane.received + 1:
            lane.received = header.seq
            return [lane.acknowledge()]
        return before(lane, header)

    return replaced(RMChannel, "check_order", untimely)


def fence_nobody() -> Iterator[None]:
    """The journal takes what an earlier worker writes, and the broker what it says."""
    before = BrokerMachine._slot_of_sender

    def leased(switch: BrokerMachine, incoming: Incoming) -> WorkerSlot | None:
        return before(switch, incoming) or switch.registry.slots.get(incoming.header.partition)

    for _ in replaced(BrokerMachine, "_slot_of_sender", leased):
        yield from replaced(SimulatedJournal, "fenced", False)


def tell_before_durable() -> Iterator[None]:
    """What a worker says does not wait for the disk."""

    def passed(recorder: OutboxBarrier, sends: list[Outgoing], now: float, *, more: bool = False) -> list[Outgoing]:
        return [*recorder.flush(), *sends]

    return replaced(OutboxBarrier, "hold_or_send", passed)


def lose_one_of_the_outbox() -> Iterator[None]:
    """What was said last is not repeated when somebody resumes."""
    before = Outbox.unacknowledged

    def unacknowledged(outbox: Outbox) -> Iterator[tuple[int, str, bytes]]:
        return iter(list(before(outbox))[:-1])

    return replaced(Outbox, "unacknowledged", unacknowledged)


def forget_time() -> Iterator[None]:
    """A worker does not write down that time passed, nor what it decided then."""

    before = Worker._record_step

    def record_step(worker: Worker, kind: str, now: float, *, has_number: bool = False) -> None:
        if kind == TICK and worker.partition is not None:
            worker.host.channel.drain_sent()
            collect_changes(worker.partition)
        else:
            before(worker, kind, now, has_number=has_number)

    return replaced(Worker, "_record_step", record_step)


def drop_resume_wanted() -> Iterator[None]:
    """The proxy does not pass on that an RM is to resume."""
    before = Proxy._handle_core

    def handle_core(front: Proxy, incoming: Incoming, now: float) -> list[Outgoing]:
        return [one for one in before(front, incoming, now) if one.header.kind != "ResumeWanted"]

    return replaced(Proxy, "_handle_core", handle_core)


def take_again() -> Iterator[None]:
    """What was seen is taken as new."""

    check, receive = RMChannel.check_order, Session._receive_news

    def check_order(lane: RMChannel, header: Header) -> list[Outgoing] | None:
        lane.received = min(lane.received, max(header.seq - 1, 0)) if header.seq else lane.received
        return check(lane, header)

    def receive_news(session: Session, header: Header, message: News) -> News | None:
        lanes = session._lanes_of(header.partition)
        lanes.received = min(lanes.received, header.seq - 1) if header.seq else lanes.received
        return receive(session, header, message)

    for _ in replaced(RMChannel, "check_order", check_order):
        yield from replaced(Session, "_receive_news", receive_news)


def commit_before_recorded() -> Iterator[None]:
    """The broker carries a configuration out, and has it recorded afterwards."""
    before = ConfigChanges._decide

    def decide(changes: ConfigChanges, change: ConfigChange) -> list[Outgoing]:
        sends = before(changes, change)
        return [*change.build_outcome(changes._state.registry, CommitConfig), *sends] if sends else []

    return replaced(ConfigChanges, "_decide", decide)


def commit_to_all_but_one() -> Iterator[None]:
    """A configuration is carried out in all partitions except the last."""
    before = ConfigChange.build_outcome

    def build(change: ConfigChange, registry: Registry, outcome: type[CommitConfig | AbortConfig]) -> list[Outgoing]:
        sends = before(change, registry, outcome)
        return sends[:-1] if outcome is CommitConfig and len(sends) > 1 else sends

    return replaced(ConfigChange, "build_outcome", build)


def repeat_after_recovery() -> Iterator[None]:
    """A worker that recovered says once more, under a new number, what it had said last."""
    before = Worker.recover

    def recover(worker: Worker, snapshot: Iterable[bytes] | None, steps: list[Step]) -> int:
        last = before(worker, snapshot, steps)
        outbox = worker.host.channel.outbox
        for sent in [one for step in steps for one in step.told][-1:]:
            outbox.add(sent.kind, sent.body)
        return last

    return replaced(Worker, "recover", recover)


def place_while_reporting() -> Iterator[None]:
    """A partition places before its RM has reported what runs."""
    return replaced(Partition, "_may_schedule", True)


def place_while_away() -> Iterator[None]:
    """A worker does not heed that its RM is away."""
    before = Worker._handle_control

    def aside(worker: Worker, incoming: Incoming) -> list[Outgoing]:
        return [] if incoming.header.kind == "Pause" else before(worker, incoming)

    return replaced(Worker, "_handle_control", aside)


def keep_the_life() -> Iterator[None]:
    """A partition that lost everything begins anew as if nobody had heard of it."""
    before = leases.classify_worker

    def classify_worker(owner: RmSession, seat: WorkerSlot, header: Header, hello: Hello) -> RecoveryState:
        state = before(owner, seat, header, hello)
        return RecoveryState.UNBEGUN if state is RecoveryState.LOST else state

    return replaced(leases, "classify_worker", classify_worker)


def trust_the_journal() -> Iterator[None]:
    """After a broker restart, a worker whose journal has an earlier session or life counts as not begun, and notices
    nothing any more once it has begun.
    """
    before, compared = leases.classify_worker, RMChannel.find_loss

    def classify_worker(owner: RmSession, seat: WorkerSlot, header: Header, hello: Hello) -> RecoveryState:
        state = before(owner, seat, header, hello)
        other = (header.session, header.life) != (owner.session, owner.generation(header.partition))
        trusted = other and header.session and not hello.problem and not seat.has_sent
        return RecoveryState.UNBEGUN if state is RecoveryState.LOST and trusted else state

    def lost(lane: RMChannel, header: Header, acknowledged: int = 0) -> str:
        return compared(lane, header, acknowledged) if lane.suspended else ""

    for _ in replaced(leases, "classify_worker", classify_worker):
        for _ in replaced(worker, "RESUMED_IN_VAIN_MAX", 1 << 60):
            yield from replaced(RMChannel, "find_loss", lost)


def forget_what_was_acknowledged() -> Iterator[None]:
    """A worker does not notice that its journal is older than what its RM has received and had acknowledged."""

    def lost(lane: RMChannel, header: Header, acknowledged: int = 0) -> str:
        return ""

    return replaced(RMChannel, "find_loss", lost)


def answer_before_durable() -> Iterator[None]:
    """News wait for the disk, acknowledgements of commands do not."""
    before = OutboxBarrier.hold_or_send

    def passed(recorder: OutboxBarrier, sends: list[Outgoing], now: float, *, more: bool = False) -> list[Outgoing]:
        early = [one for one in sends if one.to == BROKER and one.header.kind == "Received"]
        return [*before(recorder, [one for one in sends if one not in early], now, more=more), *early]

    return replaced(OutboxBarrier, "hold_or_send", passed)


def handle_poison_for_ever() -> Iterator[None]:
    """A worker is given a message again, however many workers it has ended."""
    return replaced(partition_host, "ATTEMPTS_MAX", NEVER)


def answer_operators_before_durable() -> Iterator[None]:
    """News wait for the disk, answers to operators do not."""
    before = OutboxBarrier.hold_or_send

    def passed(recorder: OutboxBarrier, sends: list[Outgoing], now: float, *, more: bool = False) -> list[Outgoing]:
        early = [one for one in sends if one.to == BROKER and one.header.kind == "Answer"]
        return [*before(recorder, [one for one in sends if one not in early], now, more=more), *early]

    return replaced(OutboxBarrier, "hold_or_send", passed)


def forget_marks_between_sessions() -> Iterator[None]:
    """A partition that starts empty for a new session, or because it has lost something, has no marks of operators."""
    return replaced(Partition, "inherit_marks", lambda partition, before: None)


def cordon_without_draining() -> Iterator[None]:
    """A drain asks for no releases, and counts what runs as if it had."""
    for _ in replaced(Partition, "drain_node", Partition.cordon_node):
        yield from replaced(views, "count_on_node", lambda node: NodeCounts())


def keep_ended_sessions() -> Iterator[None]:
    """An operator is told that a session has ended, and it continues."""

    def answer(state: BrokerState, changes: ConfigChanges, incoming: Incoming, request: EndSession) -> list[Outgoing]:
        rm, ref = incoming.header.rm, incoming.header.ref
        return [build_answer(incoming.source, ref, 200 if rm in state.registry.sessions else 404, b"{}")]

    return replaced(rm_sessions, "handle_end", answer)


DEFECTS: Final[dict[Defect, Traits]] = {
    skip_acknowledgements: often("link is clogged"),
    acknowledge_too_early: often(
        "worker dies", "broker dies", "supervisor dies", "RM is cut off", "link is clogged", deaths_per_message=0.005
    ),
    fence_nobody: often("supervisor dies", "worker loses its lease", "disk is slow", spares=2, act_max_s=0.2),
    tell_before_durable: often("worker dies", "disk is slow"),
    answer_before_durable: often("worker dies", "disk is slow"),
    lose_one_of_the_outbox: ANY,
    forget_time: ANY,
    drop_resume_wanted: often("worker dies", "broker dies", "proxy dies"),
    take_again: often("RM is cut off"),
    commit_before_recorded: often("record is full", rms=2, watched=True),
    commit_to_all_but_one: ANY,
    repeat_after_recovery: ANY,
    place_while_reporting: often("RM dies", "journal is lost", rms=4, act_max_s=0.2, pause_s=2.0),
    place_while_away: often("process stands still", "RM is cut off"),
    keep_the_life: often("journal is lost"),
    handle_poison_for_ever: often("command is poison"),
    trust_the_journal: often("journal goes back"),
    forget_what_was_acknowledged: often("journal goes back"),
    answer_operators_before_durable: often("worker dies", "disk is slow", rms=4),
    forget_marks_between_sessions: often("RM dies", "journal is lost", rms=4, pause_s=2.0),
    cordon_without_draining: often(rms=4, act_max_s=2.0),
    keep_ended_sessions: often(),
}
"""Each with the traits of the worlds that show it soon: most need faults that few seeds choose together, and a drain
without releases shows where little else ends what runs.
"""


@contextmanager
def injected(defect: Defect) -> Iterator[None]:
    """While this is open, the system has a defect."""
    yield from defect()
