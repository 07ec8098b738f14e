"""The message channel between a partition and its RM: numbering, retransmission, building messages, state dumps.

Effects of one sort and one cause become one message. Accepted and rejected applications come first, then application
state changes: each was true before the effects that depend on it. Without that, a batch of a thousand releases would
become two thousand messages.

The RM's state dump is requested when a query asks for it:

    Query(what="rm-state") --StateDumpAsked--> waits --StateDumpAnswered, or ANSWER_MAX_S--> Answer

This changes nothing in the partition, so the journal has no record of it: if the worker ends, the broker answers the
queries. Requests have numbers of their own, and an answer without a waiting query is ignored.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, TypeVar

import msgspec
from msgspec.json import decode, encode
from msgspec.structs import replace

from common import rm_messages
from common.control_messages import GroupsWanted
from common.messages import Header, News
from common.names import BROKER
from common.query_messages import Answer
from common.session import BACKLOG_MAX_MESSAGES, Arrival, Inbox, Outbox
from common.wire import NEVER, Incoming, Outgoing, WireError, decode_body, encode_body, make_outgoing
from partition_worker.engine.state import Effect, IgnoredRelease, LogLine, Part

SentMessage = tuple[int, str, bytes]
"""Number, kind and body of a message to the RM."""


class RMChannel:
    """Numbered messages from and to the RM in one session; without a session while the partition runs nothing."""

    def __init__(self, *, partition: str, epoch: int, rm: str = "", session: str = "", life: int = 0) -> None:
        self.partition: Final = partition
        self.epoch: Final = epoch
        self.rm: Final = rm
        self.session: Final = session
        self.life: Final = life
        self.inbox = Inbox()
        self.outbox = Outbox()
        self._sent: list[SentMessage] = []
        self._suspended_after: int | None = None

    @property
    def suspended(self) -> bool:
        """Whether the state comes from a journal and the RM has not resumed since. The journal may be an older one, or
        lack its end.
        """
        return self._suspended_after is not None

    def suspend(self) -> None:
        """Send nothing until the RM has resumed: it may have received other messages under the same numbers."""
        self._suspended_after = self.outbox.last

    def resume(self) -> None:
        """Send again: the RM has resumed, and has received nothing that is missing here."""
        self._suspended_after = None

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
        sent = self.outbox.last if self._suspended_after is None else self._suspended_after
        if header.ack > sent:
            return f"the resource manager has received {header.ack} messages, the journal has {sent}"
        if acknowledged > self.inbox.last:
            return (
                f"{acknowledged} commands of the resource manager were acknowledged, the journal has {self.inbox.last}"
            )
        return ""

    def check_order(self, header: Header) -> list[Outgoing] | None:
        """Answer a command that must not be applied now; None for one that is next."""
        if self.backlog_full:
            reason = f"{len(self.outbox)} messages wait to be acknowledged: acknowledge them before you send more"
            return [self.refuse(header, "window", reason)]
        if not header.seq:
            return None
        match self.inbox.classify(header.seq):
            case Arrival.SEEN:
                return [self.acknowledge()]
            case Arrival.GAP:
                reason = f"message {header.seq} came after {self.inbox.last}: resume to send what is missing"
                return [self.refuse(header, "gap", reason)]
            case Arrival.NEXT:
                return None

    # Outgoing messages ----------------------------------------------------------------------------------------------

    def send_numbered(self, messages: Iterable[News]) -> list[Outgoing]:
        """Number messages and keep them until they are acknowledged. Nothing is sent while the channel is suspended."""
        sends: list[Outgoing] = []
        for message in messages:
            kind, body = type(message).__name__, encode_body(message)
            seq = self.outbox.add(kind, body)
            self._sent.append((seq, kind, body))
            if not self.suspended:
                sends.append(Outgoing(BROKER, self.make_header(kind, seq), body))
        return sends

    def send_unnumbered(
        self, message: rm_messages.PredicatesAsked | rm_messages.StateDumpAsked | rm_messages.ReleasesIgnored
    ) -> Outgoing:
        """Send a message that the RM does not acknowledge, and that is not retransmitted if it is lost."""
        return make_outgoing(BROKER, message, self.make_header(type(message).__name__))

    def acknowledge(self, ref: str = "") -> Outgoing:
        return make_outgoing(BROKER, rm_messages.Received(), self.make_header("Received", ref=ref))

    def refuse(self, header: Header, code: str, reason: str) -> Outgoing:
        ref = "" if header.seq else header.ref
        refused = rm_messages.Refused(code=code, reason=reason, seq=header.seq)
        return make_outgoing(BROKER, refused, self.make_header("Refused", ref=ref))

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
            ack=self.inbox.last,
            epoch=self.epoch,
            ref=ref,
            life=self.life,
        )


# From effects to messages ---------------------------------------------------------------------------------------------

ITEMS_MAX: Final = 10_000
"""Entries in one message; more become several messages."""

_SORT: Final[dict[type[Part], str]] = {
    rm_messages.AcceptedNode: "nodes",
    rm_messages.RejectedNode: "nodes",
    rm_messages.AcceptedApplication: "applications",
    rm_messages.RejectedApplication: "applications",
    rm_messages.UpdatedApplication: "states",
    rm_messages.Allocation: "new",
    rm_messages.AllocationRelease: "released",
    rm_messages.RejectedAllocation: "rejected",
    rm_messages.EventRecord: "events",
    rm_messages.UpdateContainerSchedulingState: "scheduling states",
    rm_messages.SyncDone: "sync",
}

_UNNUMBERED: Final = (LogLine, GroupsWanted, rm_messages.PredicatesAsked, IgnoredRelease)
"""Parts that are not for the RM, or that are sent to it without a number."""

_FIRST: Final = {"applications": 0, "states": 1}
"""Sorts that come before the rest, in this order."""

_P = TypeVar("_P")


def build_messages(effects: Iterable[Effect]) -> Iterator[News]:
    """Build the numbered messages for the effects of one input or of a batch of decisions."""
    sent = [effect for effect in effects if not isinstance(effect.part, _UNNUMBERED)]
    sent.sort(key=lambda effect: _FIRST.get(_SORT[type(effect.part)], len(_FIRST)))
    for (sort, cause), group in groupby(sent, key=lambda effect: (_SORT[type(effect.part)], effect.cause)):
        parts = [effect.part for effect in group]
        for start in range(0, len(parts), ITEMS_MAX):
            yield _build(sort, cause, parts[start : start + ITEMS_MAX])


def select_parts(effects: Iterable[Effect], kind: type[_P]) -> list[_P]:
    """Return the parts of one kind."""
    return [effect.part for effect in effects if isinstance(effect.part, kind)]


def collect_ignored_releases(effects: Sequence[Effect]) -> rm_messages.ReleasesIgnored | None:
    """Build the message about releases that had no effect; None if all had one.

    It is not numbered, and so not in the journal: a journal of an earlier release leads to the same numbered messages.
    """
    found = select_parts(effects, IgnoredRelease)
    if not found:
        return None
    listed = found[: rm_messages.RELEASES_IGNORED_MAX]
    return rm_messages.ReleasesIgnored(
        ignored=[replace(one.release, message=one.reason) for one in listed], more=len(found) - len(listed)
    )


def _build(sort: str, cause: int, parts: list[Part]) -> News:
    def only(kind: type[_P]) -> list[_P]:
        return [part for part in parts if isinstance(part, kind)]

    match sort:
        case "nodes":
            accepted, rejected = only(rm_messages.AcceptedNode), only(rm_messages.RejectedNode)
            return rm_messages.NodeResponse(accepted=accepted, rejected=rejected, cause=cause)
        case "applications":
            return rm_messages.ApplicationResponse(
                accepted=only(rm_messages.AcceptedApplication),
                rejected=only(rm_messages.RejectedApplication),
                cause=cause,
            )
        case "states":
            return rm_messages.ApplicationResponse(updated=only(rm_messages.UpdatedApplication), cause=cause)
        case "new":
            return rm_messages.AllocationResponse(new=only(rm_messages.Allocation), cause=cause)
        case "released":
            return rm_messages.AllocationResponse(released=only(rm_messages.AllocationRelease), cause=cause)
        case "rejected":
            rejections = only(rm_messages.RejectedAllocation)
            return rm_messages.AllocationResponse(rejected_allocations=rejections, cause=cause)
        case "scheduling states":
            states = only(rm_messages.UpdateContainerSchedulingState)
            return rm_messages.SchedulingStateResponse(updated=states, cause=cause)
        case "events":
            return rm_messages.EventResponse(events=only(rm_messages.EventRecord), cause=cause)
    (done,) = only(rm_messages.SyncDone)
    return replace(done, cause=cause)


# State dumps ----------------------------------------------------------------------------------------------------------

ANSWER_MAX_S: Final = 2.0
"""Seconds after which the RM's answer is no longer awaited."""

WAITING_MAX: Final = 8
"""Queries that wait for the RM at once; the next one fails."""

NO_DUMP: Final[Mapping[str, str]] = {"empty": "Resource Manager did not register callback"}
"""The answer for an RM without the capability: YuniKorn's text."""


class StateDumpRequests:
    """The queries that wait for the RM's state dump. `deadline` is the time at which the oldest one fails."""

    def __init__(self) -> None:
        self._last = 0
        """The number of the latest request."""
        self._waiting: dict[int, tuple[float, Header]] = {}
        """By number of the request: its deadline and the header of the answer, oldest first."""

    @property
    def deadline(self) -> float:
        return min((deadline for deadline, _ in self._waiting.values()), default=NEVER)

    def request(
        self, channel: RMChannel, capabilities: list[str], reply: Header, now: float, *, obstacle: str
    ) -> Outgoing:
        """Return the request to the RM; or the answer at once, if the RM has no such capability, there is an
        `obstacle`, or too many queries wait.
        """
        if rm_messages.STATE_DUMP not in capabilities:
            return _document(NO_DUMP, reply)
        if obstacle:
            return _document({"Error": obstacle}, reply)
        if len(self._waiting) >= WAITING_MAX:
            return _document({"Error": f"{WAITING_MAX} others wait for the resource manager's answer already"}, reply)
        self._last += 1
        self._waiting[self._last] = (now + ANSWER_MAX_S, reply)
        milli_seconds = int(ANSWER_MAX_S * 1000)
        return channel.send_unnumbered(
            rm_messages.StateDumpAsked(question=self._last, deadline_milli_seconds=milli_seconds)
        )

    def handle_answer(self, channel: RMChannel, incoming: Incoming) -> list[Outgoing]:
        """Answer the query that waits for this answer of the RM."""
        header = incoming.header
        if header.life != channel.life or not channel.accept(header):
            return []
        try:
            answered = decode_body(rm_messages.StateDumpAnswered, incoming.body)
        except WireError as error:
            return [channel.refuse(header, "malformed", str(error))]
        waiting = self._waiting.pop(answered.question, None)
        return [] if waiting is None else [_answer(answered, waiting[1])]

    def expire(self, now: float) -> list[Outgoing]:
        """Answer the queries that have waited too long."""
        late = [number for number, (deadline, _) in self._waiting.items() if deadline <= now]
        error = {"Error": f"the resource manager did not answer within {ANSWER_MAX_S:g} s"}
        return [_document(error, self._waiting.pop(number)[1]) for number in late]


def _answer(answered: rm_messages.StateDumpAnswered, reply: Header) -> Outgoing:
    text, problem = answered.text.encode(), answered.problem
    if not problem and len(text) > rm_messages.STATE_DUMP_BYTES_MAX:
        problem = (
            f"the resource manager's answer has {len(text)} bytes, at most {rm_messages.STATE_DUMP_BYTES_MAX} are taken"
        )
    if not problem:
        try:
            decode(text, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, RecursionError) as error:
            problem = f"the resource manager's answer is no JSON object: {error}"
    if problem:
        return _document({"Error": problem}, reply)
    return make_outgoing(BROKER, Answer(status=200, body=text), reply)


def _document(found: Mapping[str, str], reply: Header) -> Outgoing:
    return make_outgoing(BROKER, Answer(status=200, body=encode(found)), reply)
