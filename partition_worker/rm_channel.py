"""The message channel between a partition and its RM: numbering, retransmission, building messages, outbox barrier.

Effects of one sort and one cause become one message. Accepted and rejected applications come first, then application
state changes: each was true before the effects that depend on it. Without that, a batch of a thousand releases would
become two thousand messages.

The outbox barrier appends steps to the journal, and holds outgoing messages until the steps before them are durable:

    step --a message follows from it, or LAZY_STEPS_MAX--> appended --Kept--> durable: held messages are sent

Every input that changes the partition is a step. A step without an outgoing message (a timer that only cleaned up, a
search without a result) is appended with the next step that has one: if a crash loses it, no peer can detect that. All
outgoing messages pass through the barrier in order, so nothing is ever sent that a crash can take back.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Final, TypeVar

from msgspec.structs import replace

from yunishard.common.messages import rm_messages
from yunishard.common.messages.control_messages import GroupsWanted
from yunishard.common.messages.journal_messages import Append, Kept, NotKept, SentMessage, Step, TakeSnapshot
from yunishard.common.messages.kinds import Control, Header, Message, News
from yunishard.common.messages.rm_messages import Received
from yunishard.common.messages.session import BACKLOG_MAX_MESSAGES, Outbox
from yunishard.common.messages.wire import Outgoing, encode_body, make_outgoing
from yunishard.common.names import BROKER, JOURNAL
from yunishard.partition_worker.engine.effects import Effect, IgnoredRelease, LogLine, Part


class RMChannel:
    """Numbered messages from and to the RM in one session; without a session while the partition runs nothing."""

    def __init__(self, *, partition: str, epoch: int, rm: str = "", session: str = "", life: int = 0) -> None:
        self.partition: Final = partition
        self.epoch: Final = epoch
        self.rm: Final = rm
        self.session: Final = session
        self.life: Final = life
        self.received = 0
        """The number of the last command whose effect is in the state."""
        self.outbox = Outbox()
        self._sent: list[SentMessage] = []
        self.suspended_after: int | None = None
        """The number of the last message in the journal, while the state comes from it and the RM has not resumed. The
        journal may be an older one, or lack its end: the RM may have received other messages under the same numbers.
        """

    @property
    def suspended(self) -> bool:
        """Whether nothing is sent until the RM has resumed."""
        return self.suspended_after is not None

    @property
    def backlog_full(self) -> bool:
        """Whether so many messages are unacknowledged that commands are refused."""
        return len(self.outbox) >= BACKLOG_MAX_MESSAGES

    # Incoming messages ----------------------------------------------------------------------------------------------

    def accept(self, header: Header) -> bool:
        """Whether a message belongs to this session and generation; if so, process its acknowledgement.

        Numbers of an earlier generation do not count: the RM sent the message before it was informed that the partition
        had restarted, and will repeat it.
        """
        if not self.session or header.session != self.session or (header.seq and header.life != self.life):
            return False
        if header.life == self.life:
            self.outbox.acknowledge(header.ack)
        return True

    def find_loss(self, header: Header, acknowledged: int = 0) -> str:
        """Describe messages that the RM has received from this partition, or commands that the partition has
        acknowledged, that are missing here; empty if there are none. `acknowledged` is the number of the RM's last
        acknowledged command.
        """
        if header.session != self.session or header.life != self.life:
            return ""
        sent = self.outbox.last if self.suspended_after is None else self.suspended_after
        if header.ack > sent:
            return f"the resource manager has received {header.ack} messages, the journal has {sent}"
        if acknowledged > self.received:
            return f"{acknowledged} commands of the resource manager were acknowledged, the journal has {self.received}"
        return ""

    def check_order(self, header: Header) -> list[Outgoing] | None:
        """Answer a command that must not be applied now; None for one that is next."""
        if self.backlog_full:
            reason = f"{len(self.outbox)} messages wait to be acknowledged: acknowledge them before you send more"
            return [self.refuse(header, "window", reason)]
        if header.seq in (0, self.received + 1):
            return None
        if header.seq <= self.received:
            return [self.acknowledge()]
        reason = f"message {header.seq} came after {self.received}: resume to send what is missing"
        return [self.refuse(header, "gap", reason)]

    # Outgoing messages ----------------------------------------------------------------------------------------------

    def send_numbered(self, messages: Iterable[News]) -> list[Outgoing]:
        """Number messages and keep them until they are acknowledged. Nothing is sent while the channel is suspended."""
        sends: list[Outgoing] = []
        for message in messages:
            kind, body = type(message).__name__, encode_body(message)
            seq = self.outbox.add(kind, body)
            self._sent.append(SentMessage(seq, kind, body))
            if not self.suspended:
                sends.append(Outgoing(BROKER, self.make_header(kind, seq), body))
        return sends

    def send_unnumbered(self, message: Message, ref: str = "") -> Outgoing:
        """Send a message that is not acknowledged, and not retransmitted if it is lost."""
        return make_outgoing(BROKER, message, self.make_header(type(message).__name__, ref=ref))

    def acknowledge(self, ref: str = "") -> Outgoing:
        return self.send_unnumbered(rm_messages.Received(), ref)

    def refuse(self, header: Header, code: str, reason: str) -> Outgoing:
        refused = rm_messages.Refused(code=code, reason=reason, seq=header.seq)
        return self.send_unnumbered(refused, "" if header.seq else header.ref)

    def retransmit(self) -> list[Outgoing]:
        """Acknowledge the RM's commands, and repeat everything that the RM has not acknowledged."""
        waiting = self.outbox.unacknowledged()
        return [
            self.acknowledge(),
            *(Outgoing(BROKER, self.make_header(kind, seq), body) for seq, kind, body in waiting),
        ]

    def drain_sent(self) -> list[SentMessage]:
        """Return the messages that were numbered since the last call."""
        sent, self._sent = self._sent, []
        return sent

    def make_header(self, kind: str, seq: int = 0, ref: str = "") -> Header:
        return Header(
            kind=kind,
            rm=self.rm,
            partition=self.partition,
            session=self.session,
            seq=seq,
            ack=self.received,
            epoch=self.epoch,
            ref=ref,
            life=self.life,
        )


# From effects to messages ---------------------------------------------------------------------------------------------

ITEMS_MAX: Final = 10_000
"""Entries in one message; more become several messages."""

_PLACES: Final[dict[type[Part], tuple[str, News, str]]] = {
    rm_messages.AcceptedNode: ("nodes", rm_messages.NodeResponse(), "accepted"),
    rm_messages.RejectedNode: ("nodes", rm_messages.NodeResponse(), "rejected"),
    rm_messages.AcceptedApplication: ("applications", rm_messages.ApplicationResponse(), "accepted"),
    rm_messages.RejectedApplication: ("applications", rm_messages.ApplicationResponse(), "rejected"),
    rm_messages.UpdatedApplication: ("states", rm_messages.ApplicationResponse(), "updated"),
    rm_messages.Allocation: ("new", rm_messages.AllocationResponse(), "new"),
    rm_messages.AllocationRelease: ("released", rm_messages.AllocationResponse(), "released"),
    rm_messages.RejectedAllocation: ("rejected", rm_messages.AllocationResponse(), "rejected_allocations"),
    rm_messages.EventRecord: ("events", rm_messages.EventResponse(), "events"),
    rm_messages.UpdateContainerSchedulingState: ("scheduling", rm_messages.SchedulingStateResponse(), "updated"),
    rm_messages.SyncDone: ("sync", rm_messages.SyncDone(), ""),
}
"""The sort of each part, the empty message of this sort, and its field for the part."""

_UNNUMBERED: Final = (LogLine, GroupsWanted, rm_messages.PredicatesAsked, IgnoredRelease)
"""Parts that are not for the RM, or that are sent to it without a number."""

_FIRST: Final = {"applications": 0, "states": 1}
"""Sorts that come before the rest, in this order."""

_P = TypeVar("_P")


def build_messages(effects: Iterable[Effect]) -> Iterator[News]:
    """Build the numbered messages for the effects of one input or of a batch of decisions."""
    runs: list[tuple[int, str, int, list[Part]]] = []
    sort, cause, parts = "", 0, list[Part]()
    for effect in effects:
        part = effect.part
        place = _PLACES.get(type(part))
        if place is None:
            assert isinstance(part, _UNNUMBERED), part
            continue
        if place[0] != sort or effect.cause != cause:
            sort, cause, parts = place[0], effect.cause, []
            runs.append((_FIRST.get(sort, len(_FIRST)), sort, cause, parts))
        parts.append(part)
    runs.sort(key=itemgetter(0))
    for (sort, cause), same_sort in groupby(runs, key=itemgetter(1, 2)):
        parts = [*chain.from_iterable(run[3] for run in same_sort)]
        for start in range(0, len(parts), ITEMS_MAX):
            fields: dict[str, list[Part]] = {}
            for kind, same in groupby(parts[start : start + ITEMS_MAX], key=type):
                _, message, field = _PLACES[kind]
                fields.setdefault(field, []).extend(same)
            if sort == "sync":
                yield from (replace(part, cause=cause) for part in fields[""] if isinstance(part, rm_messages.SyncDone))
            else:
                yield replace(message, cause=cause, **fields)


def select_parts(effects: Iterable[Effect], kind: type[_P]) -> list[_P]:
    """Return the parts of one kind."""
    return [effect.part for effect in effects if isinstance(effect.part, kind)]


# Outbox barrier -------------------------------------------------------------------------------------------------------

LAZY_STEPS_MAX: Final = 256
"""Steps without an outgoing message that are not appended yet."""

PATIENT_BYTES: Final = 64 << 10
"""Bytes of steps that wait for the decisions that follow at once, if their only messages are acknowledgements. Writing
more takes the disk longer than the decisions take, so it starts.
"""

NEWS_BYTES: Final = 4 << 10
"""The same for steps with other messages, such as the first ask of an application, which starts it. The decisions that
follow from so little take little time.
"""

UNKEPT_BYTES_MAX: Final = 16 << 20
"""Bytes on their way to the disk, beyond which the partition does not schedule. The window of its RM bounds the
commands that it still receives.
"""

SNAPSHOT_BYTES: Final = 16 << 20
"""Bytes of steps since the last snapshot, after which the next one is due: about 30,000 allocations."""

REST: Final = 9
"""Pause before the next snapshot, as a multiple of the last one's duration, so that snapshots use a tenth of a
processor. A partition with more changes takes longer to recover.
"""


class OutboxBarrier:
    """Steps on their way to the journal, and messages that wait for them.

    `last` is the number of the latest step, `kept` that of the latest durable one; each held message waits for a step
    after `kept`. `problem` is the reason while nothing becomes durable. If not `journalled`, nothing is ever held.
    """

    def __init__(self, last: int = 0, *, journalled: bool = True, step_bytes: int = 0) -> None:
        self.journalled = journalled
        self.last = last
        self.kept = last
        self.problem = ""
        self.urgent = False
        """Whether steps have to be appended now, unless more follow at once."""
        self.pending_bytes = 0
        """Bytes of steps that were appended and are not durable."""
        self._lazy: list[bytes] = []
        self._fresh = False
        """Whether the first of these starts with an empty partition."""
        self._news = False
        """Whether messages other than acknowledgements wait for these."""
        self.held: deque[tuple[int, Outgoing]] = deque()
        """Messages with the steps that they wait for."""
        self._pending: deque[tuple[int, int]] = deque()
        """Last number and bytes of each append that is not durable."""
        self._bytes_since_snapshot = step_bytes  # also of earlier workers, or one that never lives long has none
        self._taking_snapshot = False
        self._snapshot_started = self._snapshot_after = 0.0
        """When the last snapshot was started, and when the next one may."""

    def record_step(self, step: Step, *, fresh: bool = False) -> None:
        """Record an input that changed the partition; its number is the one after `last`."""
        self.last = step.number
        if fresh:
            self._lazy, self._fresh, self._bytes_since_snapshot = [], True, 0
        self._lazy.append(encode_body(step))

    def hold_or_send(self, sends: Sequence[Outgoing], now: float, *, more: bool = False) -> list[Outgoing]:
        """Return what is sent now: appends to the journal, then the messages that need not wait for them.

        If `more` follows at once, a few steps wait for it: the decision about an ask becomes durable with the ask, in
        one transaction. A held acknowledgement is dropped if another message in the same transaction repeats it.
        """
        out: list[Outgoing] = []
        for one in sends:
            if self.last <= self.kept or one.to != BROKER or one.header.kind == "Heartbeat":
                out.append(one)
                continue
            if self._lazy:
                self.urgent, self._news = True, self._news or not _only_acknowledges(one.header)
                appended = self.last - len(self._lazy)
                if self.held and self.held[-1][0] > appended and _supersedes(one.header, self.held[-1][1].header):
                    self.held.pop()
            self.held.append((self.last, one))
        self.urgent = self.urgent or self._fresh or len(self._lazy) >= LAZY_STEPS_MAX
        patient = not self._fresh and sum(map(len, self._lazy)) < (NEWS_BYTES if self._news else PATIENT_BYTES)
        if not self.urgent or (more and patient):
            return out
        steps = self.flush()
        if self._bytes_since_snapshot >= SNAPSHOT_BYTES and now >= self._snapshot_after:
            steps += self.request_snapshot(now)
        return [*steps, *out]

    def flush(self) -> list[Outgoing]:
        """Append the steps that are not appended yet."""
        if not self._lazy:
            return []
        steps, first = self._lazy, self.last - len(self._lazy) + 1
        size = sum(map(len, steps))
        append = Append(steps=steps, first=first, fresh=self._fresh)
        self._lazy = []
        self._fresh = self.urgent = self._news = False
        self._pending.append((self.last, size))
        self.pending_bytes += size
        self._bytes_since_snapshot += size
        return [make_outgoing(JOURNAL, append)]

    def request_snapshot(self, now: float) -> list[Outgoing]:
        """Request a snapshot of the partition after the last step, unless one is being taken."""
        if self._taking_snapshot:
            return []
        steps = self.flush()
        self._taking_snapshot, self._snapshot_started = True, now
        self._bytes_since_snapshot = 0
        return [*steps, make_outgoing(JOURNAL, TakeSnapshot(number=self.last))]

    def drop_superseded(self) -> None:
        """Drop held messages to the RM, as it is about to receive everything again that it has not acknowledged. So it
        receives them in order, and once, however often it resumes while the disk stands still.
        """
        self.held = deque(one for one in self.held if issubclass(Message.kinds[one[1].header.kind], Control))

    # From the journal -----------------------------------------------------------------------------------------------

    def handle_kept(self, message: Kept) -> list[Outgoing]:
        """Return the messages whose steps are durable now."""
        self.kept, self.problem = max(self.kept, message.number), ""
        while self._pending and self._pending[0][0] <= self.kept:
            self.pending_bytes -= self._pending.popleft()[1]
        out: list[Outgoing] = []
        while self.held and self.held[0][0] <= self.kept:
            out.append(self.held.popleft()[1])
        return out

    def handle_not_kept(self, message: NotKept, now: float) -> list[Outgoing]:
        """Request a snapshot, which may free room on the disk; if another worker has the partition, drop everything."""
        self.problem = message.problem
        if message.fenced:
            self.held.clear()
            return []
        return self.request_snapshot(now)

    def handle_snapshot_taken(self, now: float) -> None:
        self._taking_snapshot = False
        self._snapshot_after = now + REST * (now - self._snapshot_started)


def _only_acknowledges(header: Header) -> bool:
    return header.kind == Received.__name__ and not header.ref


def _supersedes(later: Header, earlier: Header) -> bool:
    """Whether the earlier message only acknowledges, and the later one does so too, in the same session."""
    acknowledges = later.seq > 0 or later.kind == Received.__name__
    same = (earlier.session, earlier.life) == (later.session, later.life)
    return acknowledges and same and _only_acknowledges(earlier)
