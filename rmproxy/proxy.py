"""The proxy's machine: routes messages between RMs and the broker, and keeps the sessions of RMs.

A peer (a native connection, or an RM of the gRPC port) registers an RM, and the session then belongs to that peer. The
proxy forwards what the peer sends for one of its partitions with the body unopened; it splits an update that names no
partition in its header, once.

    present --silence_s without a message--> away (ManagerAway, once) --any message--> asked to resume
       ^                                                                                     |
       +-----------------------------------Registered---------------------------------------+

A restarted broker (another `Heartbeat.incarnation`) does not have the messages in flight, nor has a broker at the other
end of a new connection (`LINK_LOST`), so the proxy tells every RM to resume. Not here: registration (the broker), flow
control (`rm_sessions.py`), rate limits (`rate_limit.py`), sockets, gRPC.
"""

from functools import partial
from typing import Final

from msgspec.structs import replace

from yunishard.common.messages import rm_messages, wire
from yunishard.common.messages.control_messages import Hello, ManagerAway, NodesAstray
from yunishard.common.messages.kinds import Command, Header, News
from yunishard.common.messages.query_messages import Answer
from yunishard.common.messages.session import WINDOW_BYTES, WINDOW_MESSAGES, split_by_partition
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, WireError, decode_body, encode_body, make_outgoing
from yunishard.common.names import BROKER, RMPROXY, normalise_partition_name
from yunishard.rmproxy import rate_limit
from yunishard.rmproxy.metrics import ProxyMetrics
from yunishard.rmproxy.rate_limit import RateLimiter
from yunishard.rmproxy.rm_sessions import GRPC, RmSession, make_ref, open_session

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

_CALLS: Final = frozenset({"RegisterResourceManager", "Resume", "UpdateConfiguration", "Leave"})
_SESSION_KINDS: Final = frozenset({*rm_messages.NUMBERED, *rm_messages.UNNUMBERED, "Heartbeat"})
"""Messages of a session's peer besides calls."""
_GRPC_ONLY: Final = frozenset({"ManagerAway", "Query"})
"""Messages about one of its RMs that only the gRPC port sends."""


class Proxy:
    """The machine: each message and each tick returns the messages to send."""

    def __init__(
        self, instance: str = "", *, heartbeat_s: float = NEVER, silence_s: float = SILENCE_S, label: str = RMPROXY
    ) -> None:
        """`instance` differs in each process, so that answers to calls of an earlier process match none of this one;
        `label` is the label `process` of the metrics.

        The proxy sends heartbeats every `heartbeat_s`; if that is NEVER, no RM counts as silent.
        """
        self.rate_limiter = RateLimiter()
        self.sessions: dict[str, RmSession] = {}
        """Registered RMs by id."""
        self.metrics = ProxyMetrics(self.sessions, label)
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
                self.metrics.count_refusal(one.body)
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
