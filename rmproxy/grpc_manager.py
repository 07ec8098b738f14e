"""RMs that are connected over gRPC: their registration, and their session with the core.

    none --register--> registering --Registered--> registered --register, Refused--> registered, as it was
                          |                          |--register, Registered or no answer--> the next one, or none
                          +--Refused, no answer--> none <--the session was lost, leave--+

A gRPC RM is a native RM whose SDK (`common/messages/session.py`) runs inside the proxy. gRPC has neither sequence
numbers nor acknowledgements, so `GrpcRm` holds the session, acknowledges messages, resumes after a restart behind the
proxy, and queues responses until a stream writes them. Memory is bounded without dropping anything: commands wait while
their partition has too many unacknowledged ones, and results are not acknowledged while too many responses are queued,
so that the partitions of this RM stop allocating. A registration continues to its end if its caller goes.

Not here: streams (`grpc_streams.py`), calls (`grpc_scheduler_service.py`, `grpc_admin_service.py`).
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from msgspec import structs

from yunishard.common.messages import rm_messages
from yunishard.common.messages.control_messages import ManagerAway
from yunishard.common.messages.kinds import Command, Header, Message
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.messages.session import RETRIABLE, EncodedMessage, Session, split_by_partition
from yunishard.common.messages.wire import Incoming, Outgoing, WireError, decode_body, encode_body
from yunishard.rmproxy import grpc_conversion
from yunishard.rmproxy.grpc_conversion import Response, Update
from yunishard.rmproxy.grpc_streams import (
    CallLimits,
    Feed,
    ResponseQueue,
    RmStream,
    Status,
    StatusError,
    StatusKind,
    enter,
    make_refusal_status,
)
from yunishard.rmproxy.proxy import GRPC

RESPONSES_QUEUED_MAX: Final = 1024
RESPONSES_QUEUED_BYTES_MAX: Final = 16 << 20
"""Queued responses of an RM, above which results are not acknowledged to the core, and updates of the RM are not read.
The core may then still send one window for each partition (`common/messages/session.py`)."""

QUESTIONS_QUEUED_MAX: Final = 256
"""Questions about predicates that wait to be read; one more ends the stream. A partition sends one at a time."""

STREAMLESS_S: Final = 60.0
"""Seconds without any stream after which an RM counts as away: no ask of it is allocated until it opens one."""

ACKNOWLEDGE_S: Final = 0.01
"""Delay of acknowledgements; shorter than any partition takes to fill a window."""

RESUME_RETRY_S: Final = 1.0
"""Pause before another attempt to resume, where the core was too busy to answer."""


class SessionLostError(Exception):
    """The states of the core and this RM differ: the RM has to register again."""


class GrpcRm:
    """One registration of one RM: its session with the core, its streams, and the responses that wait for them."""

    def __init__(
        self,
        request: rm_messages.RegisterResourceManager | None,
        session: Session,
        deliver: Callable[[Incoming], None],
    ) -> None:
        """Without a request, the RM continues a session that was at another proxy."""
        self.session: Final = session
        self.status: Status | None = None
        """Status with which the registration ended; None while it is in force."""
        self.ended: Final = asyncio.Event()
        self.answered: Final = asyncio.Event()
        """Set when the core has answered the registration, or it ended."""
        self.concluded: Final = asyncio.Event()
        """Set when the registry has acted on the answer."""
        self.event_streams = 0
        """Open streams of events."""
        self.event_turn: Final = asyncio.Semaphore(1)
        """Of queries for events."""
        self.feeds: Final[set[Feed]] = set()
        """Open streams of scheduling states."""
        self._questions: Feed | None = None
        """The stream of questions about predicates, if one is open."""
        self._source = GRPC + session.rm_id
        self._deliver = deliver
        self._request = request
        self._queues: dict[type[Response], ResponseQueue] = {
            kind: ResponseQueue(on_written=self._continue_after_write, on_stream_end=self._start_absence_timer)
            for kind in (rm_messages.NodeResponse, rm_messages.ApplicationResponse, rm_messages.AllocationResponse)
        }
        self._room = asyncio.Event()
        """Set when commands may have been acknowledged, or responses written."""
        self._acknowledging: asyncio.TimerHandle | None = None
        """Set while an acknowledgement is due."""
        self._absence: asyncio.TimerHandle | None = None
        """Set while the RM has no stream and is not away."""
        self._away = False
        self._retry: asyncio.TimerHandle | None = None
        """Set while an attempt to resume is scheduled."""
        self._calls = 0
        self._pending_answers: dict[str, asyncio.Future[Message]] = {}
        """Calls and queries without an answer, by reference."""

    # To the core ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register, or take over the session; `answered` is set when the core has answered."""
        if self._request is None:
            self._send(self.session.take_over())
        else:
            self._send(self.session.register(self._request))

    async def update(self, command: Update) -> None:
        """Send an update to its partitions, once their windows have room and the RM has read its responses."""
        for part in grpc_conversion.split_request(command):
            parts = split_by_partition(self.session.normalise, part)
            while self.session.state != "open" or self._congested or any(map(self.session.is_full, parts)):
                self._room.clear()
                await self._room.wait()
            self._send(*(self.session.number(name, part) for name, part in parts.items()))

    async def reconfigure(self, request: rm_messages.UpdateConfiguration) -> Message:
        """Request another configuration; return the core's answer."""
        return await self._answer(lambda ref: self.session.update_configuration(request, ref=ref))

    async def leave(self, reason: str) -> Message:
        """Leave permanently; return the core's answer. If the core refuses, the RM stays."""
        answer = await self._answer(lambda ref: self.session.leave(reason, ref=ref))
        if isinstance(answer, rm_messages.Refused):
            self._resume()
        return answer

    async def ask(self, partition: str, query: Query) -> Answer:
        """Query one of the RM's partitions.

        Raises:
            WireError: the reply is not an answer.
            StatusError: the registration is over.
        """
        header = Header(kind="Query", rm=self.session.rm_id, partition=partition, session=self.session.session)
        answer = await self._answer(lambda ref: EncodedMessage(structs.replace(header, ref=ref), encode_body(query)))
        if not isinstance(answer, Answer):
            raise WireError(f"expected an answer, got {answer}")
        return answer

    async def _answer(self, build: Callable[[str], EncodedMessage]) -> Message:
        """Send a call or query with a new reference, and wait for its answer."""
        if self.status is not None:
            raise StatusError(self.status)
        ref = self._reference()
        self._pending_answers[ref] = asyncio.get_running_loop().create_future()
        try:
            self._send(build(ref))
            return await self._pending_answers[ref]
        finally:
            del self._pending_answers[ref]

    def _reference(self) -> str:
        self._calls += 1
        return f"{self.session.session}-{self._calls}"

    def _send(self, *messages: EncodedMessage) -> None:
        for one in messages:
            self._deliver(Incoming(source=self._source, header=one.header, body=one.body))

    # From the core --------------------------------------------------------------------------------------------------

    def receive(self, header: Header, body: bytes) -> None:
        """Handle a message of the core to this session.

        Raises:
            SessionLostError: the message cannot be used, or the core lost state of this RM.
        """
        try:
            if header.kind == Answer.__name__:
                self._settle(header.ref, decode_body(Answer, body))
                return
            before, message = self.session.state, self.session.receive(header, body)
        except WireError as error:
            self._recover(header.partition, error)
            return
        self._room.set()
        self._schedule_acknowledgement()
        answered = message is not None and self._settle(header.ref, message)
        if isinstance(message, rm_messages.Left):
            self._finish(StatusKind.LEFT.make(rm_id=self.session.rm_id))
            for stream in self._list_streams():
                stream.half_close()  # they end once all responses are written
        if message is None or answered:
            return
        match message:
            case rm_messages.NodeResponse() | rm_messages.ApplicationResponse() | rm_messages.AllocationResponse():
                self._queue_response(header.partition, message)
            case rm_messages.PredicatesAsked() if self._questions is not None:
                self._questions.put(grpc_conversion.write_question(header.partition, message))
            case rm_messages.SchedulingStateResponse():
                for feed in self.feeds:
                    feed.put(grpc_conversion.write_scheduling_states(header.partition, message))
            case rm_messages.Registered() if header.partition:
                self._send(*self.session.retransmissions(header.partition))
            case rm_messages.Registered():
                self.answered.set()
                self._send(*self.session.retransmissions())
                if self._away:  # a restarted broker has no record of that
                    self._send_away()
                else:
                    self._start_absence_timer()
            case rm_messages.ResumeWanted() if self._away:
                self._resume()
            case rm_messages.ResumeWanted() if header.partition != self.session.resuming or not header.partition:
                self._resume(header.partition)
            case rm_messages.Goodbye(retry_after_milli_seconds=retry_ms):
                self._end_streams(replace(StatusKind.STOPPING.make(), retry_s=retry_ms / 1000))
            case rm_messages.PartitionRestarted(reason=reason):
                suffix = f": {reason}" if reason else ""
                raise SessionLostError(f"partition {header.partition} was restarted and lost its state{suffix}")
            case rm_messages.Refused() if before == "open" and self.session.state == "away":
                self._resume()  # the core refused to resume one partition alone
            case rm_messages.Refused() if header.ref and self.session.state != "refused":
                return  # the caller does not wait any more
            case rm_messages.Refused():
                self._handle_refusal(header, message)
            case _:
                return  # the scheduler interface has no message for it

    def _queue_response(self, partition: str, response: Response) -> None:
        try:
            self._queues[type(response)].extend(grpc_conversion.split_response(response))
        except ValueError as error:  # a number beyond the range of protobuf
            raise SessionLostError(f"partition {partition} sent a message that gRPC cannot carry: {error}") from error

    def _recover(self, partition: str, error: WireError) -> None:
        """Resume after a missing or unreadable message, at most FAULTS_MAX times."""
        if self.session.count_fault(partition):
            raise SessionLostError(f"partition {partition} sends messages that cannot be used: {error}")
        if self.session.is_open(partition):
            self._resume(partition)

    def _settle(self, ref: str, message: Message) -> bool:
        """Pass an answer to the caller that waits for it; return whether one does."""
        future = self._pending_answers.get(ref)
        if future is None or future.done():
            return False
        future.set_result(message)
        return True

    def _handle_refusal(self, header: Header, refused: rm_messages.Refused) -> None:
        """Handle the refusal of a registration, a resumption or an update."""
        if not self.answered.is_set():
            self.end_registration(make_refusal_status(refused.code, refused.reason))
        elif refused.code in RETRIABLE or refused.code == "window":
            if self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(RESUME_RETRY_S, self._resume)
        elif refused.seq and refused.code in ("gap", "unknown-session"):
            if self.session.is_open(header.partition):
                self._resume(header.partition if refused.code == "gap" else "")
        elif refused.code == "poison":
            command = self.session.find_unacknowledged(header, refused.seq)
            if command is not None and not _only_adds(command):  # additions are rejected by separate responses
                text = f"the core quarantined an update that ends or changes something: {refused.reason}"
                raise SessionLostError(text)
        elif refused.seq:
            raise SessionLostError(f"the core refused an update: {refused.reason}")
        else:
            raise SessionLostError(refused.reason)

    def _resume(self, partition: str = "") -> None:
        """Ask the core to resume all partitions or one: both sides retransmit what the other has not acknowledged."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self.status is not None:
            return
        if not self.answered.is_set():
            self.start()
        else:
            self._send(self.session.resume(partition, ref=self._reference()))

    @property
    def _congested(self) -> bool:
        """Whether the queued responses exceed a limit."""
        queues = self._queues.values()
        is_long = sum(map(len, queues)) >= RESPONSES_QUEUED_MAX
        return is_long or sum(queue.size for queue in queues) >= RESPONSES_QUEUED_BYTES_MAX

    def _schedule_acknowledgement(self) -> None:
        """Schedule one acknowledgement for all messages until then; a command to the partition carries it, too."""
        if self._acknowledging is None and self.status is None:
            self._acknowledging = asyncio.get_running_loop().call_later(ACKNOWLEDGE_S, self._acknowledge)

    def _acknowledge(self) -> None:
        self._acknowledging = None
        is_late = self.session.acknowledges_late and any(map(len, self._queues.values()))
        if not (self._congested or is_late):  # a kept session acknowledges what is written
            self._send(*self.session.acknowledgements())

    def _continue_after_write(self) -> None:
        """Continue with waiting updates and acknowledgements, as a response was written."""
        self._room.set()
        self._schedule_acknowledgement()

    # Streams --------------------------------------------------------------------------------------------------------

    def bind_stream(self, kind: type[Response], stream: RmStream) -> None:
        """Write responses of this kind on this stream; the stream that had them ends."""
        if self._absence is not None:
            self._absence.cancel()
            self._absence = None
        queue = self._queues[kind]
        if queue.stream is not None:
            queue.stream.end(StatusKind.TAKEN_OVER.make(rm_id=self.session.rm_id))
        queue.bind(stream)
        if self._away:
            self._away = False
            self._resume()

    def _list_streams(self) -> list[RmStream]:
        return [queue.stream for queue in self._queues.values() if queue.stream is not None]

    def _start_absence_timer(self) -> None:
        """Start the timer after which the RM counts as away, if it has no stream left."""
        if self._absence is None and not (self._list_streams() or self._away or self.status):
            self._absence = asyncio.get_running_loop().call_later(STREAMLESS_S, self._report_away)

    def _report_away(self) -> None:
        self._absence, self._away = None, True
        self._send_away()

    def _send_away(self) -> None:
        header = Header(kind=ManagerAway.__name__, rm=self.session.rm_id, session=self.session.session)
        self._send(EncodedMessage(header, encode_body(ManagerAway())))

    # Predicates and scheduling states -------------------------------------------------------------------------------

    def open_questions(self) -> Feed:
        """Pass questions about predicates to a new stream; the one that had them ends.

        Raises:
            StatusError: the RM evaluates no predicates, or its registration is over.
        """
        rm_id = self.session.rm_id
        if self._request is not None and rm_messages.PREDICATES not in self._request.capabilities:
            raise StatusError(StatusKind.NOT_CAPABLE.make(rm_id=rm_id, capability=rm_messages.PREDICATES))
        if self.status is not None:
            raise StatusError(self.status)
        if self._questions is not None:
            self._questions.end(StatusKind.TAKEN_OVER.make(rm_id=rm_id))
        self._questions = Feed(most=QUESTIONS_QUEUED_MAX)
        return self._questions

    def close_questions(self, feed: Feed) -> None:
        """Pass no more questions to a stream that has ended."""
        if self._questions is feed:
            self._questions = None

    def answer_question(self, partition: str, answer: rm_messages.PredicatesAnswered) -> None:
        """Send the answer to a question, unless the session is interrupted: later it is of no use."""
        name = self.session.normalise(partition)
        if name in self.session.partitions and self.session.is_open(name):
            self._send(self.session.encode_unnumbered(name, answer))

    # The end --------------------------------------------------------------------------------------------------------

    def end_registration(self, status: Status) -> None:
        """End this registration and its streams, and discard queued responses. The first status holds.

        The core is notified that the RM is away, and ignores that if another registration has replaced this one.
        """
        core_holds_state = self.session.state in ("open", "resuming", "away")
        if self.status is None and self.answered.is_set() and core_holds_state:
            self._send_away()
        self._finish(status)
        self._end_streams(status)
        for queue in self._queues.values():
            queue.clear()

    def _finish(self, status: Status) -> None:
        self.status = self.status or status
        self.answered.set()
        self.ended.set()
        for future in self._pending_answers.values():
            if not future.done():
                future.set_exception(StatusError(self.status))
        for feed in (*self.feeds, *([self._questions] if self._questions is not None else ())):
            feed.end(self.status)
        for timer in (self._absence, self._acknowledging):
            if timer is not None:
                timer.cancel()
        self._absence = self._acknowledging = None

    def _end_streams(self, status: Status) -> None:
        for stream in self._list_streams():
            stream.end(status)


def _only_adds(command: Command) -> bool:
    """Return whether an update only creates nodes, submits applications or asks."""
    match command:
        case rm_messages.NodeRequest(nodes=nodes):
            return all(one.action in rm_messages.NODE_CREATIONS for one in nodes)
        case rm_messages.ApplicationRequest(remove=remove):
            return not remove
        case rm_messages.AllocationRequest(releases=releases):
            return not releases.allocations_to_release
    return False


# Registry ------------------------------------------------------------------------------------------------------------

REGISTRATION_S: Final = 60.0
"""Seconds that a registration may take, during which the core starts a worker for each partition."""


class GrpcRegistry:
    """All RMs that are registered over gRPC. Once it is stopping it refuses all calls."""

    def __init__(self, deliver: Callable[[Incoming], None], new_session: Callable[[], str] = secrets.token_hex) -> None:
        self.limits: Final = CallLimits()
        self._deliver = deliver
        self._new_session = new_session
        self._stopping = False
        self._registered: dict[str, GrpcRm] = {}
        """RM id to its registration, which stays until the core has accepted the next one."""
        self._registering: dict[str, GrpcRm] = {}
        """RM id to the registration that the core has not answered."""
        self._outcomes: set[asyncio.Task[None]] = set()
        """Tasks that wait for the answers to these."""

    def receive(self, message: Outgoing) -> None:
        """Handle a message of the proxy's machine to the peer `grpc:<rm-id>`."""
        rm_id, header = message.to.removeprefix(GRPC), message.header
        for rms in (self._registering, self._registered):
            rm = rms.get(rm_id)
            if rm is not None and rm.session.session == header.session:
                try:
                    rm.receive(header, message.body)
                except SessionLostError as error:
                    rm.end_registration(StatusKind.SESSION_LOST.make(reason=error))
                if rm.status is not None and self._registered.get(rm_id) is rm:
                    del self._registered[rm_id]
                return
        if header.kind == rm_messages.Registered.__name__:  # too late: this session has ended here
            away = Header(kind=ManagerAway.__name__, rm=rm_id, session=header.session)
            self._deliver(Incoming(message.to, away, encode_body(ManagerAway())))

    async def register(
        self, request: rm_messages.RegisterResourceManager, *, keeps_session: bool = False, peer: str = ""
    ) -> GrpcRm:
        """Register an RM, or register it again. With `keeps_session` it may continue at another proxy; `peer` is the
        caller, whose registrations are counted.

        Raises:
            StatusError: the registration failed.
        """
        self._check_ready(request.rm_id)
        session = Session(rm_id=request.rm_id, session=self._new_session())
        session.acknowledges_late = keeps_session
        return await self._start(GrpcRm(request, session, self._deliver), peer)

    async def find_or_take_over(self, rm_id: str, request: str, session: str, *, peer: str = "") -> GrpcRm:
        """Return the RM with this id, and take its session over if it was at another proxy, or at this one before a
        restart. `session` is the key of its session; empty if the caller gives none.

        Raises:
            StatusError: it is not registered, not yet, or has another session.
        """
        rm = self._registered.get(rm_id)
        if session and (rm is None or rm.session.session != session):
            starting = self._registering.get(rm_id)
            if starting is None or starting.session.session != session:
                self._check_ready(rm_id)
                taken_over = Session(rm_id=rm_id, session=session)
                taken_over.acknowledges_late = True
                starting = GrpcRm(None, taken_over, self._deliver)
                await self._start(starting, peer)
            else:  # another stream of the RM takes it over already
                await starting.concluded.wait()
        return self.find(rm_id, request)

    async def _start(self, rm: GrpcRm, peer: str) -> GrpcRm:
        calls = self.limits.registrations
        enter(calls, peer, "registrations")
        self._registering[rm.session.rm_id] = rm
        rm.start()
        outcome = asyncio.create_task(self._await_answer(rm))
        self._outcomes.add(outcome)
        outcome.add_done_callback(self._outcomes.discard)
        outcome.add_done_callback(lambda _: calls.leave(peer))
        await asyncio.shield(outcome)
        if rm.status is not None:
            raise StatusError(rm.status)
        return rm

    def find(self, rm_id: str, request: str) -> GrpcRm:
        """Return the RM with this id; `request` is the kind of request for an error message.

        Raises:
            StatusError: it is not registered, or not yet.
        """
        self._check_ready(rm_id)
        rm = self._registered.get(rm_id)
        if rm is None:
            raise StatusError(StatusKind.UNREGISTERED.make(request=request, rm_id=rm_id))
        return rm

    def _check_ready(self, rm_id: str) -> None:
        if self._stopping:
            raise StatusError(StatusKind.STOPPING.make())
        if rm_id in self._registering:
            raise StatusError(StatusKind.IN_PROGRESS.make(rm_id=rm_id))

    def stop(self, status: Status) -> None:
        """End all registrations, and refuse calls from now on."""
        self._stopping = True
        for rm in (*self._registering.values(), *self._registered.values()):
            rm.end_registration(status)

    async def _await_answer(self, rm: GrpcRm) -> None:
        """Conclude a registration. If it was refused, the earlier one stays; otherwise the earlier one ends.

        It ends without an answer, too, because the core may have replaced the earlier session.
        """
        try:
            async with asyncio.timeout(REGISTRATION_S):
                await rm.answered.wait()
        except TimeoutError:
            rm.end_registration(StatusKind.UNANSWERED.make(waited_s=REGISTRATION_S))
        rm_id = rm.session.rm_id
        del self._registering[rm_id]
        if rm.session.state != "refused" and (earlier := self._registered.pop(rm_id, None)) is not None:
            earlier.end_registration(StatusKind.REGISTERED_AGAIN.make(rm_id=rm_id))
        if rm.status is None:
            self._registered[rm_id] = rm
        rm.concluded.set()
