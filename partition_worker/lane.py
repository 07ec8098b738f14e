"""Both directions between a partition and one session of its RM: who is spoken to, what was taken, what was told.

Numbering and repetition are `common/outbox.py`'s; here they get the headers of one partition. Not here: what a command
does (`replica.py`), and when it may be said (`recorder.py`).
"""

from collections.abc import Iterable
from typing import Final

from common.machine import Send, send
from common.messages import Header, News
from common.names import BROKER
from common.outbox import BACKLOG_MAX_MESSAGES, Arrival, Inbox, Outbox
from common.rm_messages import PredicatesAsked, Received, Refused, ReleasesIgnored, StateDumpAsked
from common.wire import body_of

Told = tuple[int, str, bytes]
"""Number, kind and body of news."""


class Lane:
    """The conversation. An empty `session` is that of a partition that runs nothing yet: nobody is spoken to."""

    def __init__(self, *, partition: str, epoch: int, rm: str = "", session: str = "", life: int = 0) -> None:
        self.partition: Final = partition
        self.epoch: Final = epoch
        self.rm: Final = rm
        self.session: Final = session
        self.life: Final = life
        self.inbox = Inbox()
        self.outbox = Outbox()
        self._told: list[Told] = []
        self._held_after: int | None = None

    @property
    def unconfirmed(self) -> bool:
        """Whether all this comes from a journal and the RM has not resumed since: the journal may have lost its end, or
        be an older one.
        """
        return self._held_after is not None

    def hold(self) -> None:
        """Send no news until the RM has resumed: the RM may have received others under the same numbers."""
        self._held_after = self.outbox.last

    def confirm(self) -> None:
        """The RM has resumed, and it knows nothing of this partition that is not here."""
        self._held_after = None

    @property
    def crowded(self) -> bool:
        """Whether so much waits for its acknowledgement that the RM is not answered any more."""
        return len(self.outbox) >= BACKLOG_MAX_MESSAGES

    # What comes -----------------------------------------------------------------------------------------------------

    def admits(self, header: Header) -> bool:
        """Whether a message is part of this conversation; if so its acknowledgement has been taken.

        A number of an earlier life was given before the RM heard that the partition began anew: it will say all that
        again.
        """
        if not self.session or header.session != self.session or (header.seq and header.life != self.life):
            return False
        if header.life == self.life:
            self.outbox.acknowledge(header.ack)
        return True

    def lost(self, header: Header, acknowledged: int = 0) -> str:
        """What the RM has received from this partition, or had acknowledged by it, that is not here; empty for nothing.
        `acknowledged` is the number of its last command of which it knows that it was taken.
        """
        if header.session != self.session or header.life != self.life:
            return ""
        told = self.outbox.last if self._held_after is None else self._held_after
        if header.ack > told:
            return f"the resource manager has received {header.ack} messages, the journal has {told}"
        if acknowledged > self.inbox.last:
            return (
                f"{acknowledged} commands of the resource manager were acknowledged, the journal has {self.inbox.last}"
            )
        return ""

    def untimely(self, header: Header) -> list[Send] | None:
        """What is said to a command that is not to be taken now; None for one that is."""
        if self.crowded:
            reason = f"{len(self.outbox)} messages wait to be acknowledged: acknowledge them before you send more"
            return [self.refusal(header, "window", reason)]
        if not header.seq:
            return None
        match self.inbox.arrival(header.seq):
            case Arrival.SEEN:
                return [self.received()]
            case Arrival.GAP:
                reason = f"message {header.seq} came after {self.inbox.last}: resume to send what is missing"
                return [self.refusal(header, "gap", reason)]
            case Arrival.NEXT:
                return None

    # What is said ---------------------------------------------------------------------------------------------------

    def tell(self, messages: Iterable[News]) -> list[Send]:
        """Numbered news, kept until they are acknowledged. What is held goes out when the RM resumes."""
        sends: list[Send] = []
        for message in messages:
            kind, body = type(message).__name__, body_of(message)
            seq = self.outbox.add(kind, body)
            self._told.append((seq, kind, body))
            if not self.unconfirmed:
                sends.append(Send(BROKER, self.header(kind, seq), body))
        return sends

    def ask(self, question: PredicatesAsked | StateDumpAsked) -> Send:
        """A question, which is not numbered: whoever needs an answer asks again if it is lost."""
        return send(BROKER, question, self.header(type(question).__name__))

    def inform(self, message: ReleasesIgnored) -> Send:
        """Send news without a number: the RM does not acknowledge it, and it is not repeated if it is lost."""
        return send(BROKER, message, self.header(type(message).__name__))

    def received(self, ref: str = "") -> Send:
        return send(BROKER, Received(), self.header("Received", ref=ref))

    def refusal(self, header: Header, code: str, reason: str) -> Send:
        mark = "" if header.seq else header.ref
        return send(BROKER, Refused(code=code, reason=reason, seq=header.seq), self.header("Refused", ref=mark))

    def again(self) -> list[Send]:
        """Everything that the RM has not acknowledged, after an acknowledgement of what it has said."""
        waiting = self.outbox.unacknowledged()
        return [self.received(), *(Send(BROKER, self.header(kind, seq), body) for seq, kind, body in waiting)]

    def taken(self) -> list[Told]:
        """What has been told since this was asked last, once."""
        told, self._told = self._told, []
        return told

    def header(self, kind: str, seq: int = 0, ref: str = "") -> Header:
        return Header(
            kind=kind,
            rm=self.rm,
            partition=self.partition,
            session=self.session,
            seq=seq,
            ack=self.inbox.last,
            epoch=self.epoch,
            ref=ref,
            life=self.life,
        )
