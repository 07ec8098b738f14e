"""The outbox barrier: append steps to the journal, and hold outgoing messages until the steps before them are durable.

    step --a message follows from it, or LAZY_STEPS_MAX--> appended --Kept--> durable: held messages are sent

Every input that changes the partition is a step. A step without an outgoing message (a timer that only cleaned up, a
search without a result) is appended with the next step that has one: if a crash loses it, no peer can detect that. All
outgoing messages pass through here in order, so nothing is ever sent that a crash can take back.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from common.journal_messages import Append, Kept, NotKept, Step, TakeSnapshot
from common.messages import Control, Header, Message
from common.names import BROKER, JOURNAL
from common.rm_messages import Received
from common.wire import Outgoing, encode_body, make_outgoing

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
"""Steps since the last snapshot, after which the next one is due: about 80,000 allocations in large commands, which are
replayed in about three seconds.
"""

SNAPSHOT_STEPS: Final = 20_000
"""The same as a number of steps: small ones take about a tenth of a millisecond each."""

REST: Final = 9
"""Pause before the next snapshot, as a multiple of the last one's duration, so that snapshots use a tenth of a
processor. A partition with more changes takes longer to recover.
"""

BYPASS: Final = frozenset({"Heartbeat"})
"""Kinds that are never held."""


class ReplayDiverged(Exception):
    """The replay of steps did not lead to the messages that were sent the first time."""


class OutboxBarrier:
    """Steps on their way to the journal, and messages that wait for them.

    `last` is the number of the latest step, `kept` that of the latest durable one; each held message waits for a step
    after `kept`. `problem` is the reason while nothing becomes durable. If not `journalled`, nothing is ever held.
    """

    def __init__(self, last: int = 0, *, journalled: bool = True) -> None:
        self.journalled = journalled
        self.last = last
        self.kept = last
        self.problem = ""
        self.urgent = False
        """Whether steps have to be appended now, unless more follow at once."""
        self.pending_bytes = 0
        """Bytes of steps that were appended and are not durable."""
        self._appended = last
        """The number of the latest step that was appended."""
        self._lazy: list[bytes] = []
        self._fresh = False
        """Whether the first of these starts with an empty partition."""
        self._news = False
        """Whether messages other than acknowledgements wait for these."""
        self._held: deque[tuple[int, Outgoing]] = deque()
        self._pending: deque[tuple[int, int]] = deque()
        """Last number and bytes of each append that is not durable."""
        self._bytes_since_snapshot = self._steps_since_snapshot = 0
        self._taking_snapshot = False
        self._snapshot_started = self._snapshot_after = 0.0
        """When the last snapshot was started, and when the next one may."""

    @property
    def disk_behind(self) -> bool:
        """Whether the partition must not schedule until the disk has caught up."""
        return self.pending_bytes >= UNKEPT_BYTES_MAX

    @property
    def held_messages(self) -> int:
        """The number of held messages."""
        return len(self._held)

    def record_step(self, step: Step, *, fresh: bool = False) -> None:
        """Record an input that changed the partition; its number is the one after `last`."""
        if not self.journalled:
            return
        self.last = step.number
        if fresh:
            self._lazy, self._fresh, self._bytes_since_snapshot, self._steps_since_snapshot = [], True, 0, 0
        self._lazy.append(encode_body(step))

    def hold_or_send(self, sends: Sequence[Outgoing], now: float, *, more: bool = False) -> list[Outgoing]:
        """Return what is sent now: appends to the journal, then the messages that need not wait for them.

        If `more` follows at once, a few steps wait for it: the decision about an ask becomes durable with the ask, in
        one transaction.
        """
        out: list[Outgoing] = []
        for one in sends:
            if self.last > self.kept and one.to == BROKER and one.header.kind not in BYPASS:
                self._hold(one)
            else:
                out.append(one)
        self.urgent = self.urgent or self._fresh or len(self._lazy) >= LAZY_STEPS_MAX
        patient = not self._fresh and sum(map(len, self._lazy)) < (NEWS_BYTES if self._news else PATIENT_BYTES)
        if not self.urgent or (more and patient):
            return out
        steps = self.flush()
        enough = self._bytes_since_snapshot >= SNAPSHOT_BYTES or self._steps_since_snapshot >= SNAPSHOT_STEPS
        if enough and now >= self._snapshot_after:
            steps += self.request_snapshot(now)
        return [*steps, *out]

    def _hold(self, one: Outgoing) -> None:
        """Hold a message. An acknowledgement is dropped if another message in the same transaction repeats it."""
        if self._lazy:
            self.urgent, self._news = True, self._news or not _only_acknowledges(one.header)
            if self._held and self._held[-1][0] > self._appended and _supersedes(one.header, self._held[-1][1].header):
                self._held.pop()
        self._held.append((self.last, one))

    def flush(self) -> list[Outgoing]:
        """Append the steps that are not appended yet."""
        if not self._lazy:
            return []
        steps, first = self._lazy, self.last - len(self._lazy) + 1
        size = sum(map(len, steps))
        append = Append(steps=steps, first=first, fresh=self._fresh)
        self._lazy, self._appended = [], self.last
        self._fresh = self.urgent = self._news = False
        self._pending.append((self.last, size))
        self.pending_bytes += size
        self._bytes_since_snapshot += size
        self._steps_since_snapshot += len(steps)
        return [make_outgoing(JOURNAL, append)]

    def request_snapshot(self, now: float) -> list[Outgoing]:
        """Request a snapshot of the partition after the last step, unless one is being taken."""
        if self._taking_snapshot:
            return []
        steps = self.flush()
        self._taking_snapshot, self._snapshot_started = True, now
        self._bytes_since_snapshot = self._steps_since_snapshot = 0
        return [*steps, make_outgoing(JOURNAL, TakeSnapshot(number=self.last))]

    def drop_superseded(self) -> None:
        """Drop held messages to the RM, as it is about to receive everything again that it has not acknowledged. So it
        receives them in order, and once, however often it resumes while the disk stands still.
        """
        self._held = deque(one for one in self._held if issubclass(Message.kinds[one[1].header.kind], Control))

    def is_holding(self, kind: str) -> bool:
        """Whether a message of this kind is held."""
        return any(one.header.kind == kind for _, one in self._held)

    # From the journal -----------------------------------------------------------------------------------------------

    def handle_kept(self, message: Kept) -> list[Outgoing]:
        """Return the messages whose steps are durable now."""
        self.kept, self.problem = max(self.kept, message.number), ""
        while self._pending and self._pending[0][0] <= self.kept:
            self.pending_bytes -= self._pending.popleft()[1]
        out: list[Outgoing] = []
        while self._held and self._held[0][0] <= self.kept:
            out.append(self._held.popleft()[1])
        return out

    def handle_not_kept(self, message: NotKept, now: float) -> list[Outgoing]:
        """Request a snapshot, which may free room on the disk; if another worker has the partition, drop everything."""
        self.problem = message.problem
        if message.fenced:
            self._held.clear()
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
