"""The outbox barrier: append steps to the journal, and hold outgoing messages until the steps before them are durable.

    step --a message follows from it, or LAZY_STEPS_MAX--> appended --Kept--> durable: held messages are sent

Every input that changes the partition is a step. A step without an outgoing message (a timer that only cleaned up, a
search without a result) is appended with the next step that has one: if a crash loses it, no peer can detect that. All
outgoing messages pass through here in order, so nothing is ever sent that a crash can take back.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from common.journal_messages import TICK, Append, Kept, NotKept, Step, TakeSnapshot
from common.messages import Control, Header, Message
from common.names import BROKER, JOURNAL
from common.rm_messages import Received
from common.wire import Outgoing, encode_body, make_outgoing
from partition_worker.partition_host import SentMessage

LAZY_STEPS_MAX: Final = 256
"""Steps that nobody heard of and that are not handed over yet."""

PATIENT_BYTES: Final = 64 << 10
"""Steps that wait for the decisions that follow at once, if nobody hears more of them than that they have come. More
than that takes the disk longer than to decide takes us, so it begins."""

NEWS_BYTES: Final = 4 << 10
"""The same where somebody hears more of them, as of the first ask of an application, which starts it. What follows from
so little is decided soon."""

UNKEPT_BYTES_MAX: Final = 16 << 20
"""Steps on their way to the disk. Beyond it the partition decides nothing until the disk has caught up; what its RM may
still send is bounded by its window."""

SNAPSHOT_BYTES: Final = 16 << 20
"""Steps since the last snapshot, after which the next one is due: about 80,000 allocations in large commands, which are
played again in about three seconds.
"""

SNAPSHOT_STEPS: Final = 20_000
"""The same as a number of steps: small ones cost about a tenth of a millisecond each."""

REST: Final = 9
"""How many times longer than a snapshot took the next one has to wait, so that they take a tenth of a processor. A
partition in which more happens than that takes longer to recover."""

BYPASS: Final = frozenset({"Heartbeat"})
"""What may be said at any time."""


class ReplayDiverged(Exception):
    """Steps that were played again did not lead to the words that were said the first time."""


class OutboxBarrier:
    """Steps on their way to the journal, and messages that wait for them.

    `last` is the number of the latest step, `kept` that of the latest durable one; everything held waits for a number
    between them. `problem` says why nothing becomes durable, while that is so.
    """

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.kept = last
        self.problem = ""
        self._handed = last
        """The number of the latest step that was handed over."""
        self._lazy: list[bytes] = []
        self._fresh = False
        """Whether the first of these begins from an empty partition."""
        self._urgent = False
        """Whether somebody waits for what is not handed over."""
        self._news = False
        """Whether for more than an acknowledgement."""
        self._held: deque[tuple[int, Outgoing]] = deque()
        self._unkept: deque[tuple[int, int]] = deque()
        """(last number, bytes) of what was handed over and is not durable."""
        self._unkept_bytes = 0
        self._since_snapshot = 0
        """Bytes of steps that were handed over since the last snapshot was begun."""
        self._steps_since_snapshot = 0
        self._snapping = False
        self._snapping_since = self._snapshot_after = 0.0
        """When the last snapshot was begun, and before when the next one is not."""

    @property
    def disk_behind(self) -> bool:
        """Whether the disk has to catch up before anything more is decided."""
        return self._unkept_bytes >= UNKEPT_BYTES_MAX

    @property
    def pending_bytes(self) -> int:
        """Of steps that were handed over and are not durable."""
        return self._unkept_bytes

    @property
    def urgent(self) -> bool:
        """Whether steps have to be handed over now, unless there is more to come at once."""
        return self._urgent

    @property
    def held_messages(self) -> int:
        """How many messages wait to be said."""
        return len(self._held)

    def record_step(
        self,
        *,
        at: float,
        source: str = "",
        header: Header | None = None,
        body: bytes = b"",
        budget: int = 0,
        told: Sequence[SentMessage] = (),
        acknowledged: int = 0,
        fresh: bool = False,
    ) -> None:
        """Something changed the partition: a message of this header, or time that passed."""
        self.last += 1
        step = Step(
            number=self.last,
            at=at,
            source=source,
            header=header or Header(kind=TICK),
            body=body,
            budget=budget,
            told=list(told),
            acknowledged=acknowledged,
        )
        if fresh:
            self._lazy, self._fresh, self._since_snapshot, self._steps_since_snapshot = [], True, 0, 0
        self._lazy.append(encode_body(step))

    def hold_or_send(self, sends: Sequence[Outgoing], now: float, *, more: bool = False) -> list[Outgoing]:
        """What goes out now of what the machine wants to say: steps to the journal first, and nothing for the broker
        that has to wait for them. If there is `more` to come at once, a few steps wait for it: what is decided because
        of an ask becomes durable with it, in one transaction.
        """
        out: list[Outgoing] = []
        for one in sends:
            if self.last > self.kept and one.to == BROKER and one.header.kind not in BYPASS:
                self._hold(one)
            else:
                out.append(one)
        self._urgent = self._urgent or self._fresh or len(self._lazy) >= LAZY_STEPS_MAX
        if not self._urgent or (more and self._patient):
            return out
        steps = self.flush()
        if self._snapshot_due(now):
            steps += self.request_snapshot(now)
        return [*steps, *out]

    @property
    def _patient(self) -> bool:
        """Whether nobody minds if what is not handed over waits for a few decisions."""
        return not self._fresh and sum(map(len, self._lazy)) < (NEWS_BYTES if self._news else PATIENT_BYTES)

    def _hold(self, one: Outgoing) -> None:
        """Until it is durable. A mere acknowledgement goes where news follow in the same transaction: they have it."""
        if self._lazy:
            self._urgent, self._news = True, self._news or not _only_acknowledges(one.header)
            if self._held and self._held[-1][0] > self._handed and _superseded(self._held[-1][1].header, one.header):
                self._held.pop()
        self._held.append((self.last, one))

    def flush(self) -> list[Outgoing]:
        """Hand over what is not handed over yet."""
        if not self._lazy:
            return []
        steps, first = self._lazy, self.last - len(self._lazy) + 1
        size = sum(map(len, steps))
        append = Append(steps=steps, first=first, fresh=self._fresh)
        self._lazy, self._handed = [], self.last
        self._fresh = self._urgent = self._news = False
        self._unkept.append((self.last, size))
        self._unkept_bytes += size
        self._since_snapshot += size
        self._steps_since_snapshot += len(steps)
        return [make_outgoing(JOURNAL, append)]

    def request_snapshot(self, now: float) -> list[Outgoing]:
        """Have one taken of the partition as it is now, after the last step; nothing if one is being taken."""
        if self._snapping:
            return []
        steps = self.flush()
        self._snapping, self._snapping_since = True, now
        self._since_snapshot = self._steps_since_snapshot = 0
        return [*steps, make_outgoing(JOURNAL, TakeSnapshot(number=self.last))]

    def _snapshot_due(self, now: float) -> bool:
        enough = self._since_snapshot >= SNAPSHOT_BYTES or self._steps_since_snapshot >= SNAPSHOT_STEPS
        return enough and not self._snapping and now >= self._snapshot_after

    def drop_superseded(self) -> None:
        """The RM is about to be told everything again that it has not acknowledged. What waits to be told to it goes
        with that: in order, and once however often the RM asks while the disk stands still.
        """
        self._held = deque(one for one in self._held if issubclass(Message.kinds[one[1].header.kind], Control))

    def is_holding(self, kind: str) -> bool:
        """Whether something of this kind waits to be said."""
        return any(one.header.kind == kind for _, one in self._held)

    # From the journal -----------------------------------------------------------------------------------------------

    def handle_kept(self, message: Kept) -> list[Outgoing]:
        """What may be said now."""
        self.kept, self.problem = max(self.kept, message.number), ""
        while self._unkept and self._unkept[0][0] <= self.kept:
            self._unkept_bytes -= self._unkept.popleft()[1]
        out: list[Outgoing] = []
        while self._held and self._held[0][0] <= self.kept:
            out.append(self._held.popleft()[1])
        return out

    def handle_not_kept(self, message: NotKept, now: float) -> list[Outgoing]:
        """Nothing is durable for now, and a snapshot may make room; or never again, and then nothing of it may ever be
        said.
        """
        self.problem = message.problem
        if message.fenced:
            self._held.clear()
            return []
        return self.request_snapshot(now)

    def handle_snapshot_taken(self, now: float) -> None:
        """The next one may be taken after a while."""
        self._snapping = False
        self._snapshot_after = now + REST * (now - self._snapping_since)


def _only_acknowledges(header: Header) -> bool:
    return header.kind == Received.__name__ and not header.ref


def _superseded(earlier: Header, later: Header) -> bool:
    """Whether the earlier one only acknowledges, and the later one does so too, in the same conversation."""
    acknowledges = later.seq > 0 or later.kind == Received.__name__
    same = (earlier.session, earlier.life) == (later.session, later.life)
    return acknowledges and same and _only_acknowledges(earlier)
