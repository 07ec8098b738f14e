"""The proxy's machine: routes messages between RMs and the broker, and keeps the sessions of RMs.

A peer (a native connection, or an RM of the gRPC port) registers an RM, and the session then belongs to that peer. The
proxy forwards what the peer sends for one of its partitions with the body unopened; it splits an update that names no
partition in its header, once.

    present --silence_s without a message--> away (ManagerAway, once) --any message--> asked to resume
       ^                                                                                     |
       +-----------------------------------Registered---------------------------------------+

A restarted broker (another `Heartbeat.incarnation`) does not have the messages in flight, nor has a broker at the other
end of a new connection (`LINK_LOST`), so the proxy tells every RM to resume. Not here: registration (the broker), rate
limits (`rate_limit.py`), sockets, gRPC.
"""

from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec.structs import replace

from yunishard.common.messages import rm_messages, wire
from yunishard.common.messages.control_messages import Hello, ManagerAway, NodesAstray
from yunishard.common.messages.kinds import Command, Header, Message, News
from yunishard.common.messages.query_messages import Answer
from yunishard.common.messages.rm_messages import QUESTIONS, ConfigurationUpdated, Registered
from yunishard.common.messages.session import WINDOW, WINDOW_BYTES, WINDOW_MESSAGES, split_by_partition
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, WireError, decode_body, encode_body, make_outgoing
from yunishard.common.names import BROKER, RMPROXY, normalise_partition_name
from yunishard.rmproxy import rate_limit
from yunishard.rmproxy.rate_limit import RateLimiter

# Sessions and flow control --------------------------------------------------------------------------------------------
#
# Flow control bounds what an RM may have in flight to each of its partitions. It needs only headers and sizes. A
# numbered command is in flight until an acknowledgement of it passes on its way back; an update without a number, until
# its partition confirms it by its `ref`. Beyond the window the proxy refuses. An `Ack` passes if it acknowledges
# something new that passed; an answer, if there was a question. So the windows of both directions bound everything that
# passes. The partition detects gaps and repetitions. A resumption resets the window, because commands in flight are
# then retransmitted; the rate of resumptions is limited (`rate_limit.py`).

GRPC: Final = "grpc:"
"""Prefix of gRPC peers. They are in this process, and the gRPC port itself reports when an RM is away."""

UNNUMBERED_BYTES: Final = 1 << 20
"""Updates without a number in flight to a partition, with `HEADER_BYTES` for each; a larger one may pass alone."""

HEADER_BYTES: Final = 512
"""Cost of a message besides its body."""

LEAVING_MAX: Final = 256
"""Removed partitions of an RM whose last messages may still pass. Beyond it the oldest is dropped, and ends without an
acknowledgement of its RM."""

_MARK: Final = "unnumbered "
_DIGITS_MAX: Final = 9


class PartitionWindow:
    """The messages in flight between one session and one partition."""

    __slots__ = ("_acknowledged", "_highest_seq", "_in_flight", "_questions", "_size", "_unnumbered", "born", "life")

    def __init__(self, *, life: int = 0, born: int = 0) -> None:
        self.life = life
        """The partition's generation, to which sequence numbers belong."""
        self.born = born
        """The generation in which the RM got this partition; commands of an earlier one were meant for none."""
        self._highest_seq = self._acknowledged = self._questions = 0
        """Of messages from the partition: the last number, the last acknowledged one, questions without an answer."""
        self.resume()

    def resume(self) -> None:
        """Reset the window: both sides retransmit what is in flight."""
        self._in_flight: deque[tuple[int, int]] = deque()
        """Number and size."""
        self._size = self._unnumbered = self._acknowledged = 0

    @property
    def in_flight(self) -> int:
        """Numbered commands to the partition that are not acknowledged."""
        return len(self._in_flight)

    # From the RM ----------------------------------------------------------------------------------------------------

    def admit_command(self, header: Header, size: int) -> bool:
        """Return whether a command may pass now; if so, it counts as in flight."""
        if header.seq:
            if WINDOW.is_reached(len(self._in_flight), self._size):
                return False
            self._in_flight.append((header.seq, size))
            self._size += size
            return True
        cost = size + HEADER_BYTES
        if self._unnumbered and self._unnumbered + cost > UNNUMBERED_BYTES:
            return False
        self._unnumbered += cost
        return True

    def admit_ack(self, ack: int) -> bool:
        """Return whether an `Ack` acknowledges something new."""
        if not self._acknowledged < ack <= self._highest_seq:
            return False
        self._acknowledged = ack
        return True

    def admit_answer(self) -> bool:
        """Return whether the partition waits for an answer; if so, it is counted."""
        if not self._questions:
            return False
        self._questions -= 1
        return True

    # From the partition ---------------------------------------------------------------------------------------------

    def count_message(self, header: Header) -> None:
        """Update the window from a message of the partition."""
        if header.life != self.life:
            return
        if header.seq > self._highest_seq:
            self._highest_seq = header.seq
        in_flight, ack = self._in_flight, header.ack
        while in_flight and in_flight[0][0] <= ack:
            self._size -= in_flight.popleft()[1]
        if header.kind in QUESTIONS:
            self._questions += 1
        elif header.ref and header.ref.startswith(_MARK):
            size = header.ref.removeprefix(_MARK)
            if size.isdecimal() and len(size) <= _DIGITS_MAX:
                self._unnumbered = max(0, self._unnumbered - int(size))


@dataclass(slots=True)
class RmSession:
    """One RM's session: which peer it belongs to, its partitions, and when its last message came."""

    rm: str
    peer: str
    session: str
    last_message_at: float
    """Unix seconds."""
    windows: dict[str, PartitionWindow]
    """All and only its partitions, by normalised name."""
    messages_in: int = 0
    messages_out: int = 0
    """Messages of the RM and to it, for the metrics; later sessions of the RM continue the numbers."""
    leaving: dict[str, PartitionWindow] = field(default_factory=dict)
    """Partitions that were removed from the configuration and may still send last messages."""
    is_away: bool = False
    """Whether the RM was reported to the broker as silent; until the session is resumed."""
    resume_requested: bool = False
    """Whether the RM was requested to resume since it is away."""
    heartbeat_answered_at: float = 0.0

    def make_header(self, kind: str, ref: str = "") -> Header:
        """Make the header of a message about the whole session."""
        return Header(kind=kind, rm=self.rm, session=self.session, ref=ref)

    def build_message(self, message: Message) -> Outgoing:
        """Build a message to the RM about the whole session."""
        return make_outgoing(self.peer, message, self.make_header(type(message).__name__))

    def window_of(self, partition: str) -> PartitionWindow:
        """Return the window of a partition that sent a message; a partition that the RM no longer has gets one, too."""
        window = self.windows.get(partition) or self.leaving.get(partition)
        if window is None:
            window = self.leaving[partition] = PartitionWindow()
            if len(self.leaving) > LEAVING_MAX:
                del self.leaving[next(iter(self.leaving))]
        return window

    def restart_partition(self, header: Header) -> None:
        """Start a new window for the generation in the header; nothing sent to an earlier one counts."""
        before = self.windows.get(header.partition)
        if before is not None and header.life > before.life:
            self.windows[header.partition] = PartitionWindow(life=header.life, born=before.born)

    def change_partitions(self, updated: ConfigurationUpdated) -> None:
        """Apply a new set of partitions: those that stay keep their windows, removed ones may send last messages."""
        before = self.windows
        self.windows = {name: _window(before.get(name), updated.lives.get(name, 0)) for name in updated.partitions}
        for name, window in before.items():
            if name not in self.windows:
                self.leaving[name] = window
        for name in [*(name for name in self.leaving if name in self.windows), *list(self.leaving)[:-LEAVING_MAX]]:
            self.leaving.pop(name, None)


def open_session(peer: str, header: Header, registered: Registered, before: RmSession | None, now: float) -> RmSession:
    """Open or resume the session in the header, with empty windows: commands in flight are retransmitted."""
    known = before.windows if before is not None and before.session == header.session else {}
    windows = {name: _window(known.get(name), registered.lives.get(name, 0)) for name in registered.partitions}
    for window in windows.values():
        window.resume()
    session = RmSession(rm=header.rm, peer=peer, session=header.session, last_message_at=now, windows=windows)
    if before is not None:
        session.messages_in, session.messages_out = before.messages_in, before.messages_out
    return session


def make_ref(header: Header, size: int) -> str:
    """Return the `ref` under which a command travels on. Its partition repeats it to confirm one without a number."""
    return "" if header.seq else f"{_MARK}{size + HEADER_BYTES}"


def _window(before: PartitionWindow | None, life: int) -> PartitionWindow:
    if before is None:
        return PartitionWindow(life=life, born=life)
    return before if before.life == life else PartitionWindow(life=life, born=before.born)


# The machine ----------------------------------------------------------------------------------------------------------

CALLS_MAX: Final = 4096
"""Calls that may wait for the broker. Beyond it the oldest is dropped: its caller gets no answer and may ask again."""

NAME_MAX: Final = 128
"""Characters of an RM id or session in a header, so that a header never outgrows its limit on the way."""

REASON_BYTES_MAX: Final = 500
"""Length of a reason that arrived as bytes, which a client may have made up."""

SILENCE_S: Final = 3.0
"""Default for the seconds without a message after which an RM counts as away."""

RETRY_AFTER_MS: Final = 1000
"""How long RMs should wait before they reconnect, when the proxy stops in order."""

REFUSAL_CODES: Final = ("flood", "forbidden", "malformed", "no-partition", "unknown-kind", "unknown-session", "window")
"""Codes of the proxy's own refusals, which the metrics have from the start; other codes once they occur."""

_CALLS: Final = frozenset({"RegisterResourceManager", "Resume", "UpdateConfiguration", "Leave"})
_SESSION_KINDS: Final = frozenset({*rm_messages.NUMBERED, *rm_messages.UNNUMBERED, "Heartbeat"})
"""Messages of a session's peer besides calls."""
_GRPC_ONLY: Final = frozenset({"ManagerAway", "Query"})
"""Messages about one of its RMs that only the gRPC port sends."""


class Proxy:
    """The machine: each message and each tick returns the messages to send."""

    def __init__(self, instance: str = "", *, heartbeat_s: float = NEVER, silence_s: float = SILENCE_S) -> None:
        """`instance` differs in each process, so that answers to calls of an earlier process match none of this one.

        The proxy sends heartbeats every `heartbeat_s`; if that is NEVER, no RM counts as silent.
        """
        self.rate_limiter = RateLimiter()
        self.sessions: dict[str, RmSession] = {}
        """Registered RMs by id."""
        self.refused = Counter(dict.fromkeys(REFUSAL_CODES, 0))
        """Refusals to RMs by code since the start."""
        self._instance = instance
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self.deadline = NEVER if heartbeat_s == NEVER else 0.0
        """When the next heartbeat is due."""
        self._incarnation: str | None = ""
        """Of the broker; empty until its first heartbeat, and None until the first one on a new connection."""
        self._calls: dict[str, tuple[str, Header]] = {}
        """Calls that the broker has not answered: our number to the peer and the original header."""
        self._call_count = 0

    def hello(self) -> Outgoing:
        """Return the first message to the broker."""
        return make_outgoing(BROKER, Hello(role=RMPROXY))

    def goodbye(self, reason: str = "the core is stopping") -> list[Outgoing]:
        """Return the last messages to all RMs, when the process stops in order or closes its ports for a while."""
        goodbye = rm_messages.Goodbye(reason=reason, retry_after_milli_seconds=RETRY_AFTER_MS)
        return [session.build_message(goodbye) for session in self.sessions.values()]

    def tick(self, now: float) -> list[Outgoing]:
        """Send a heartbeat to the broker, and report RMs that have become silent.

        A process that was suspended finds no new messages, which does not make the RMs silent: the time by which this
        tick is late does not count. An RM whose resumption waits for the broker is not reported, as the broker would
        handle the report after the resumption.
        """
        if now < self.deadline:
            return []
        late = now - self.deadline if self.deadline else 0.0
        self.deadline = now + self._heartbeat_s
        sends = [make_outgoing(BROKER, rm_messages.Heartbeat())]
        resuming = {(header.rm, header.session) for _, header in self._calls.values() if header.kind == "Resume"}
        for session in self.sessions.values():
            session.last_message_at = min(now, session.last_message_at + late)
            is_silent = now - session.last_message_at >= self._silence_s
            is_known = session.is_away or (session.rm, session.session) in resuming
            if is_silent and not (is_known or session.peer.startswith(GRPC)):
                session.is_away, session.resume_requested = True, False
                sends.append(make_outgoing(BROKER, ManagerAway(), session.make_header("ManagerAway")))
        return sends

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        if incoming.source == BROKER:
            return self._count_outgoing(self._handle_core(incoming, now))
        sends = self._handle_rm(incoming, now)
        session = self.sessions.get(incoming.header.rm)
        if session is not None:
            session.messages_in += 1
        return self._count_outgoing(sends)

    def _count_outgoing(self, sends: list[Outgoing]) -> list[Outgoing]:
        """Count the messages that go to RMs; return all of them."""
        for one in sends:
            if one.to == BROKER:
                continue
            session = self.sessions.get(one.header.rm)
            if session is not None:
                session.messages_out += 1
            if one.header.kind == "Refused":
                with suppress(WireError):  # the body is a worker's, which the proxy passes on unread
                    self.refused[decode_body(rm_messages.Refused, one.body).code] += 1
        return sends

    # From RMs -------------------------------------------------------------------------------------------------------

    def _handle_rm(self, incoming: Incoming, now: float) -> list[Outgoing]:
        header = incoming.header
        if header.kind not in _SESSION_KINDS:
            return self._handle_call(incoming, now)
        session = self._session_of(incoming)
        if session is None:
            if header.kind == "Heartbeat":
                return []  # its registration is in progress, or it will miss the reply and resume
            reason = f'received {header.kind}, but RmID="{header.rm}" not registered'
            return self._refuse(incoming, "unknown-session", reason, now)
        session.last_message_at = now
        sends = self._forward(incoming, session, now)
        if sends and sends[-1].to == BROKER:
            self.rate_limiter.series.pop(incoming.source, None)
        if session.is_away and not session.resume_requested:
            session.resume_requested = True
            wanted = rm_messages.ResumeWanted(reason="no message of this resource manager arrived for a while")
            sends.insert(0, session.build_message(wanted))
        return sends

    def _session_of(self, incoming: Incoming) -> RmSession | None:
        """Return the session that a message belongs to; None if its sender has no such session."""
        session = self.sessions.get(incoming.header.rm)
        if session is None or session.session != incoming.header.session or session.peer != incoming.source:
            return None
        return session

    def _handle_call(self, incoming: Incoming, now: float) -> list[Outgoing]:
        header = incoming.header
        if header.kind in _CALLS:
            if len(header.rm) > NAME_MAX or len(header.session) > NAME_MAX:
                reason = f"RM id and session have at most {NAME_MAX} characters"
                return self._refuse(incoming, "malformed", reason, now)
            if not self.rate_limiter.allow_call(incoming.source, now):
                return self._refuse(incoming, "flood", rate_limit.CALL_LIMIT, now)
            return self._forward_call(incoming)
        if header.kind in (wire.MALFORMED, wire.FORBIDDEN):
            reason = incoming.body[:REASON_BYTES_MAX].decode(errors="replace")
            code = "forbidden" if header.kind == wire.FORBIDDEN else "malformed"
            return self._refuse(incoming, code, reason, now)
        session = self._session_of(incoming)
        if header.kind in _GRPC_ONLY and incoming.source.startswith(GRPC) and session is not None:
            if header.kind == "Query":
                return self._forward_call(incoming)
            return [Outgoing(BROKER, session.make_header("ManagerAway"), incoming.body)]
        return self._refuse(incoming, "unknown-kind", f"an RM does not send {header.kind!r}", now)

    def _forward_call(self, incoming: Incoming) -> list[Outgoing]:
        """Forward a call under a number of our own, by which its answer is matched."""
        header = incoming.header
        self._call_count += 1
        number = f"{self._instance}{self._call_count}"
        self._calls[number] = (incoming.source, header)
        if len(self._calls) > CALLS_MAX:
            del self._calls[next(iter(self._calls))]
        return [Outgoing(BROKER, replace(_reply_to(header.kind, header), ref=number), incoming.body)]

    def _forward(self, incoming: Incoming, session: RmSession, now: float) -> list[Outgoing]:
        header = incoming.header
        if header.kind == "Heartbeat":  # replies to heartbeats are rate-limited
            if self._heartbeat_s != NEVER and now - session.heartbeat_answered_at < self._heartbeat_s / 4:
                return []
            session.heartbeat_answered_at = now
            return [session.build_message(rm_messages.Heartbeat())]
        if not header.partition:
            return self._split(incoming, session, now)
        partition = header.partition
        window = session.windows.get(partition)
        if window is None:
            partition = normalise_partition_name(header.rm, partition)
            window = session.windows.get(partition) or session.leaving.get(partition)
        if header.kind in rm_messages.UNNUMBERED:
            if window is None or header.life != window.life:
                return []  # not expected any more
            due = window.admit_ack(header.ack) if header.kind == "Ack" else window.admit_answer()
            return [Outgoing(BROKER, _readdress(header, partition), incoming.body)] if due else []
        if window is None or partition not in session.windows:
            return self._refuse_items(incoming, partition, now)
        if header.seq and header.life != window.life:
            if header.life >= window.born:
                return []  # sent before the RM learned of the partition's restart: it will report everything again
            anew = Incoming(incoming.source, replace(header, seq=0, life=window.life), incoming.body)
            return self._refuse_items(anew, partition, now)
        if not window.admit_command(header, len(incoming.body)):
            reason = "too many messages are in flight: wait for acknowledgements"
            return self._refuse(incoming, "window", reason, now)
        return [Outgoing(BROKER, _readdress(header, partition, make_ref(header, len(incoming.body))), incoming.body)]

    def _split(self, incoming: Incoming, session: RmSession, now: float) -> list[Outgoing]:
        header = incoming.header
        if header.kind not in rm_messages.UPDATES or header.seq:
            reason = f"{header.kind} belongs to one partition: name it"
            if header.seq:
                reason = "a numbered update belongs to one partition: name it in the header, or send the number 0"
            return self._refuse(incoming, "no-partition", reason, now)
        try:
            command = decode_body(rm_messages.UPDATES[header.kind], incoming.body)
        except WireError as error:
            return self._refuse(incoming, "malformed", str(error), now)
        sends: list[Outgoing] = []
        for partition, part in split_by_partition(partial(normalise_partition_name, header.rm), command).items():
            own = Incoming(incoming.source, _readdress(header, partition), encode_body(part))
            sends += self._forward(own, session, now)
        return sends

    def _refuse_items(self, incoming: Incoming, partition: str, now: float) -> list[Outgoing]:
        """Refuse the items of a command for a partition that does not exist, and acknowledge the command. The broker
        counts the nodes among them.
        """
        header = incoming.header
        first: list[Outgoing] = []
        answer: News = rm_messages.Received()
        try:
            command = decode_body(rm_messages.NUMBERED[header.kind], incoming.body)
            answer = refuse_items(command, partition)
            if (ignored := report_ignored_releases(command, partition)) is not None:
                first = [make_outgoing(incoming.source, ignored, _answer_to(header, "ReleasesIgnored"))]
        except WireError as error:
            first = self._refuse(incoming, "malformed", str(error), now)
            if not header.seq:
                return first
        if isinstance(answer, rm_messages.NodeResponse):
            count = NodesAstray(count=len(answer.rejected))
            first = [make_outgoing(BROKER, count, Header(kind="NodesAstray", rm=header.rm, session=header.session))]
        own = _answer_to(header, type(answer).__name__, ack=header.seq)
        return [*first, make_outgoing(incoming.source, answer, own)]

    # From the core --------------------------------------------------------------------------------------------------

    def _handle_core(self, incoming: Incoming, now: float) -> list[Outgoing]:
        header = incoming.header
        if header.kind == "Echo":
            return [Outgoing(BROKER, header, incoming.body)]
        if header.kind == "Heartbeat":
            return self._handle_heartbeat(decode_body(rm_messages.Heartbeat, incoming.body).incarnation)
        if header.kind == wire.LINK_LOST:
            self._incarnation = None
            return self._begin_again("the connection to the core was lost")
        call = self._calls.pop(header.ref, None) if header.ref else None
        if header.kind == "Registered":
            return self._register(incoming, call, now) if call else []
        if call and header.kind in ("Refused", "Answer", "Left"):
            session = self.sessions.get(call[1].rm)
            if header.kind == "Left" and session is not None and session.session == call[1].session:
                del self.sessions[session.rm]
            return [Outgoing(call[0], _reply_to(header.kind, call[1]), incoming.body)]
        session = self.sessions.get(header.rm)
        if session is None or session.session != header.session:
            return []
        if header.kind == "SessionMoved":
            del self.sessions[header.rm]
            return []
        if header.kind == "ConfigurationUpdated":
            session.change_partitions(decode_body(rm_messages.ConfigurationUpdated, incoming.body))
            own = session.make_header("ConfigurationUpdated", ref=call[1].ref if call else "")
            return [Outgoing(session.peer, own, incoming.body)]  # on the RM's present connection
        if header.kind in rm_messages.NUMBERED:  # returned by the broker: the partition was removed meanwhile
            return self._refuse_items(Incoming(session.peer, header, incoming.body), header.partition, now)
        if header.partition:
            if header.kind == "PartitionRestarted":
                session.restart_partition(header)
            else:
                session.window_of(header.partition).count_message(header)
            return [Outgoing(session.peer, replace(header, ref="") if header.ref else header, incoming.body)]
        if header.kind == "Left" or (
            header.kind == "Refused" and not decode_body(rm_messages.Refused, incoming.body).seq
        ):
            if header.ref:
                return []  # for a call of an earlier proxy, or one that was dropped
            del self.sessions[header.rm]  # the session has ended: another one replaced it, or it expired
        return [Outgoing(session.peer, header, incoming.body)]

    def _handle_heartbeat(self, incarnation: str) -> list[Outgoing]:
        """Detect a restarted broker."""
        before, self._incarnation = self._incarnation, incarnation
        if before in (None, incarnation) or not (before or self.sessions):
            return []  # the first heartbeat; RMs that are registered already may have registered with an earlier broker
        return self._begin_again("the core restarted")

    def _begin_again(self, reason: str) -> list[Outgoing]:
        """Messages in flight may be lost, so the proxy introduces itself again, refuses all calls in progress with
        `busy`, and tells all RMs to resume.

        A configuration change gets no answer: its RM sees the outcome when it resumes.
        """
        sends = [self.hello()]
        for peer, header in self._calls.values():
            if header.kind == "Query":
                sends.append(make_outgoing(peer, Answer(status=503, body=reason.encode()), _reply_to("Answer", header)))
            elif header.kind != "UpdateConfiguration":
                refused = rm_messages.Refused(code="busy", reason=f"{reason}: try again")
                sends.append(make_outgoing(peer, refused, _reply_to("Refused", header)))
        self._calls.clear()
        wanted = rm_messages.ResumeWanted(reason=reason)
        return [*sends, *(session.build_message(wanted) for session in self.sessions.values())]

    def _register(self, incoming: Incoming, call: tuple[str, Header], now: float) -> list[Outgoing]:
        header = incoming.header
        peer, request = call
        registered = decode_body(rm_messages.Registered, incoming.body)
        before = self.sessions.get(header.rm)
        if header.partition:
            if before is not None and before.session == header.session:
                before.window_of(header.partition).resume()
            return [Outgoing(peer, _reply_to("Registered", request), incoming.body)]
        self.sessions[header.rm] = open_session(peer, header, registered, before, now)
        watched = self._heartbeat_s != NEVER
        extended = replace(
            registered,
            heartbeat_milli_seconds=int(self._heartbeat_s * 1000) if watched else 0,
            silence_milli_seconds=int(self._silence_s * 1000) if watched else 0,
            window_messages=WINDOW_MESSAGES,
            window_bytes=WINDOW_BYTES,
        )
        sends = [make_outgoing(peer, extended, _reply_to("Registered", request))]
        if before is not None and before.session != header.session:
            superseded = rm_messages.Refused(code="superseded", reason=f"RM {header.rm!r} registered again")
            sends.append(before.build_message(superseded))
        return sends

    def _refuse(self, incoming: Incoming, code: str, reason: str, now: float) -> list[Outgoing]:
        """Refuse a message, unless its sender is over the rate limit."""
        header = incoming.header
        if not incoming.source.startswith(GRPC):  # gRPC callers wait for their answers, and gRPC limits their number
            match self.rate_limiter.count_invalid(incoming.source, f"{code}: {reason}", now):
                case "none":
                    return []
                case "flood":
                    code, reason = "flood", rate_limit.REFUSALS_LIMIT + reason
        answer = Header(kind="Refused", rm=header.rm, session=header.session, ref=header.ref)
        return [make_outgoing(incoming.source, rm_messages.Refused(code=code, reason=reason, seq=header.seq), answer)]


def _reply_to(kind: str, call: Header) -> Header:
    """Return the header of the answer to a call. Queries and resumptions may be about one partition."""
    partition = call.partition if call.kind in ("Query", "Resume") else ""
    return Header(kind=kind, rm=call.rm, partition=partition, session=call.session, ref=call.ref)


def _answer_to(header: Header, kind: str, *, ack: int = 0) -> Header:
    """Return the header of the proxy's answer to a command for a partition that does not exist."""
    return replace(header, kind=kind, seq=0, ack=ack, epoch=0, ref="")


def _readdress(header: Header, partition: str, ref: str = "") -> Header:
    """Return the header under which a message travels on: without a lease, and without the sender's reference."""
    if header.partition == partition and not (header.epoch or header.ref or ref):
        return header
    return replace(header, partition=partition, epoch=0, ref=ref)


# Unknown partitions -------------------------------------------------------------------------------------------------
#
# No worker receives a command for a partition that does not exist, so the proxy answers each item as a partition would.
# Items whose failure a partition does not report (removals, changes of nodes) are ignored here too; releases are
# reported without a number, as a partition reports releases without effect.


def refuse_items(command: Command, partition: str) -> News:
    """Return the answer to a command for a partition that does not exist."""
    match command:
        case rm_messages.NodeRequest():
            reason = f"failed to find partition {partition} for new node"
            names = [one.node_id for one in command.nodes if one.action in rm_messages.NODE_CREATIONS]
            nodes = [rm_messages.RejectedNode(node_id=name, reason=f"{reason} {name}") for name in names]
            return rm_messages.NodeResponse(rejected=nodes) if nodes else rm_messages.Received()
        case rm_messages.ApplicationRequest() if command.new:
            reason = f"to partition {partition}, partition doesn't exist"
            applications = [
                rm_messages.RejectedApplication(
                    application_id=name, reason=f"Failed to add application {name} {reason}"
                )
                for name in (one.application_id for one in command.new)
            ]
            return rm_messages.ApplicationResponse(rejected=applications)
        case rm_messages.AllocationRequest() if command.allocations:
            reason = f"Failed to find partition {partition}, for application"
            allocations = [
                rm_messages.RejectedAllocation(
                    allocation_key=key, application_id=name, reason=f"{reason} {name} and allocation {key}"
                )
                for key, name in ((one.allocation_key, one.application_id) for one in command.allocations)
            ]
            return rm_messages.AllocationResponse(rejected_allocations=allocations)
        case rm_messages.SyncEnd():
            return rm_messages.SyncDone(problem=f"failed to find partition {partition}")
    return rm_messages.Received()


def report_ignored_releases(command: Command, partition: str) -> rm_messages.ReleasesIgnored | None:
    """Return the report about the releases of a command for a partition that does not exist; None if it has none."""
    releases = command.releases.allocations_to_release if isinstance(command, rm_messages.AllocationRequest) else []
    if not releases:
        return None
    reason, most = f"partition {partition} does not exist", rm_messages.RELEASES_IGNORED_MAX
    ignored = [replace(one, message=reason) for one in releases[:most]]
    return rm_messages.ReleasesIgnored(ignored=ignored, more=len(releases) - len(ignored))
