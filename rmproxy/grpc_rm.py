"""A resource manager that speaks gRPC, as the proxy sees it: a native RM whose SDK (`common/session.py`) sits here.

gRPC has neither numbers nor acknowledgements, so this side of the proxy keeps the RM's session with the core,
acknowledges for it, resumes for it when something behind the proxy began anew, and holds what the core says until a
stream takes it. Memory stays bounded without dropping anything: commands wait while their partition has too much
unacknowledged, and results are no longer acknowledged while too many wait here, upon which the partitions of this RM
stop allocating.

Not here: streams (`grpc_stream.py`), who is registered (`grpc_registry.py`), and what people may ask for besides
(`grpc_admin.py`).
"""

import asyncio
from collections.abc import Callable
from typing import Final

from common.control_messages import ManagerAway
from common.machine import Delivery
from common.messages import Command, Header, Message
from common.query_messages import Answer, Query
from common.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    Goodbye,
    Left,
    NodeRequest,
    NodeResponse,
    PartitionRestarted,
    Refused,
    Registered,
    RegisterResourceManager,
    ResumeWanted,
    UpdateConfiguration,
)
from common.session import Outgoing, Session
from common.split import split
from common.wire import WireError, body_of, decoded
from rmproxy import grpc_endings as endings
from rmproxy.grpc_endings import EndedError, Ending
from rmproxy.grpc_pieces import Response, Update, requests, responses
from rmproxy.grpc_stream import ResponseQueue, RmStream

PEER: Final = "grpc:"
"""A gRPC RM is the peer `grpc:<rm-id>` of the proxy's machine."""

RESPONSES_QUEUED_MAX: Final = 1024
RESPONSES_QUEUED_BYTES_MAX: Final = 16 << 20
"""Responses that may wait for an RM's streams before the core is no longer told that they arrived, and the RM's updates
are no longer read. What the core may still send then is a window for each partition (`common/outbox.py`)."""

STREAMLESS_S: Final = 60.0
"""An RM without any stream for so long counts as away: nothing is placed for it until it opens one."""

ACKNOWLEDGE_S: Final = 0.01
"""How long the core may wait to hear that news have arrived: no partition says a whole window of them meanwhile."""

RESUME_AGAIN_S: Final = 1.0
"""The pause before asking once more whether the session goes on, where the core was too busy to say."""

_TRY_AGAIN: Final = frozenset({"busy", "flood", "window"})
"""Refusals after which the same is right, a little later."""

FAULTS_MAX: Final = 3
"""Times that a partition's news are asked for again because they could not be followed; then the session is over."""

_MENDED: Final = frozenset({"gap", "unknown-session"})
"""Refusals of an update that going on mends, or shows to be final."""

_OURS: Final = ("open", "resuming", "away")
"""States of the session in which the core has something of this RM."""


def session_of(reference: str) -> str:
    """The session of the RM that made up this reference of a call or question."""
    return reference.rpartition("-")[0]


class SessionLostError(Exception):
    """The core and this RM no longer agree on what was said: the RM has to register again."""


class GrpcRm:
    """One registration of one RM: its session with the core, its streams, and the responses that wait for them."""

    def __init__(
        self, *, rm_id: str, session: str, deliver: Callable[[Delivery], None], streamless_s: float = STREAMLESS_S
    ) -> None:
        self.session: Final = Session(rm_id=rm_id, session=session)
        self.ending: Ending | None = None
        """How it ended, if it has; for a registration in progress that is its answer."""
        self.ended: Final = asyncio.Event()
        self.answered: Final = asyncio.Event()
        """Set when the registration has come to something."""
        self._source = PEER + rm_id
        self._deliver = deliver
        self._request: RegisterResourceManager | None = None
        self._queues: dict[type[Response], ResponseQueue] = {
            kind: ResponseQueue(drained=self._drained, left=self._left)
            for kind in (NodeResponse, ApplicationResponse, AllocationResponse)
        }
        self._room = asyncio.Event()
        """Set when commands may have been acknowledged, or responses written."""
        self._acknowledging: asyncio.TimerHandle | None = None
        """Set while there may be something to acknowledge."""
        self._streamless_s = streamless_s
        self._absence: asyncio.TimerHandle | None = None
        """Set while the RM has no stream and is not away."""
        self._away = False
        self._again: asyncio.TimerHandle | None = None
        """Set while the session is to be resumed after a pause."""
        self._faults: dict[str, int] = {}
        """Partition to how often its news could not be followed, since the last that could."""
        self._calls = 0
        self._asked: dict[str, asyncio.Future[Message]] = {}
        """Calls and questions without an answer, by their reference."""

    # To the core ----------------------------------------------------------------------------------------------------

    def register(self, request: RegisterResourceManager) -> None:
        """Say it to the core; `answered` tells when its word on it has come."""
        self._request = request
        self._say(self.session.register(request))

    async def update(self, command: Update) -> None:
        """Say it to the partitions concerned, once all have room for it and the RM has read what it was told."""
        for part in requests(command):
            parts = split(self.session.rm_id, part)
            while self.session.state != "open" or self._congested or any(map(self.session.partition_full, parts)):
                self._room.clear()
                await self._room.wait()
            for outgoing in self.session.numbered(parts):
                self._say(outgoing)

    async def reconfigure(self, request: UpdateConfiguration) -> Message:
        """Another configuration: what the core says to it."""
        ref = self._reference()
        return await self._answer(ref, self.session.update_configuration(request, ref=ref))

    async def leave(self, reason: str) -> Message:
        """Go for good: what the core says to it. If that is no, the RM goes on as before."""
        ref = self._reference()
        answer = await self._answer(ref, self.session.leave(reason, ref=ref))
        if isinstance(answer, Refused):
            self._resume()
        return answer

    async def ask(self, partition: str, query: Query) -> Answer:
        """The answer of one of the RM's partitions.

        Raises:
            WireError: there is something else in place of the answer.
            EndedError: the registration is over.
        """
        ref = self._reference()
        rm, session = self.session.rm_id, self.session.session
        header = Header(kind=Query.__name__, rm=rm, partition=partition, session=session, ref=ref)
        answer = await self._answer(ref, Outgoing(header, body_of(query)))
        if not isinstance(answer, Answer):
            raise WireError(f"expected an answer, got {answer}")
        return answer

    async def _answer(self, ref: str, outgoing: Outgoing) -> Message:
        if self.ending is not None:  # nobody would answer
            raise EndedError(self.ending)
        self._asked[ref] = asyncio.get_running_loop().create_future()
        try:
            self._say(outgoing)
            return await self._asked[ref]
        finally:
            del self._asked[ref]

    def _reference(self) -> str:
        self._calls += 1
        return f"{self.session.session}-{self._calls}"

    def _say(self, outgoing: Outgoing) -> None:
        self._deliver(Delivery(source=self._source, header=outgoing.header, body=outgoing.body))

    # From the core --------------------------------------------------------------------------------------------------

    def receive(self, header: Header, body: bytes) -> None:
        """Take what the core says to this session.

        Raises:
            SessionLostError: nothing can be made of it, or the core lost what this RM told it.
        """
        if header.kind == Answer.__name__:
            self._settle(header.ref, _answer_in(body))
            return
        try:
            message = self.session.receive(header, body)
        except WireError as error:
            self._mend(header.partition, error)
            return
        if message is not None:
            self._faults.pop(header.partition, None)
        self._room.set()
        self._acknowledge_soon()
        answered = message is not None and self._settle(header.ref, message)
        if isinstance(message, Left):
            self._flush()
        if message is None or answered:
            return
        match message:
            case NodeResponse() | ApplicationResponse() | AllocationResponse():
                try:
                    self._queues[type(message)].extend(responses(message))
                except ValueError as error:  # a number that protobuf has no room for
                    text = f"partition {header.partition} says what cannot be passed on: {error}"
                    raise SessionLostError(text) from error
            case Registered():
                self._registered()
            case ResumeWanted():
                self._resume()
            case Goodbye(retry_after_milli_seconds=retry_ms):
                self._end_streams(endings.stopping(retry_ms / 1000))
            case PartitionRestarted(reason=reason):
                why = f": {reason}" if reason else ""
                raise SessionLostError(f"partition {header.partition} was restarted and lost what it knew{why}")
            case Refused() if header.ref and self.session.state != "refused":
                return  # who asked does not wait any more
            case Refused():
                self._refused(header, message)
            case _:
                return  # the scheduler interface has no word for it

    def _mend(self, partition: str, error: WireError) -> None:
        """Something is missing or cannot be read: ask for it again, a few times."""
        if self.session.state != "open":
            return  # it is asked for already
        self._faults[partition] = self._faults.get(partition, 0) + 1
        if self._faults[partition] > FAULTS_MAX:
            raise SessionLostError(f"partition {partition} says what cannot be followed: {error}")
        self._resume()

    def _settle(self, ref: str, message: Message) -> bool:
        """Pass an answer on to who asked; whether somebody did."""
        asked = self._asked.get(ref)
        if asked is None or asked.done():
            return False
        asked.set_result(message)
        return True

    def _registered(self) -> None:
        """The RM is in, or in again."""
        self.answered.set()
        for outgoing in self.session.repeated():
            self._say(outgoing)
        if self._away:  # who has forgotten that learns it now
            self._tell_away()
        elif self._streamless:
            self._left()

    def _refused(self, header: Header, refused: Refused) -> None:
        """No to the registration, to going on, or to an update."""
        if not self.answered.is_set():
            self.end(endings.refused(refused.code, refused.reason))
        elif refused.code in _TRY_AGAIN:
            if self._again is None:
                self._again = asyncio.get_running_loop().call_later(RESUME_AGAIN_S, self._resume)
        elif refused.seq and refused.code in _MENDED:
            if self.session.state == "open":
                self._resume()
        elif refused.code == "poison":
            command = self.session.waiting(header, refused.seq)
            if command is not None and not _only_adds(command):  # what it adds is rejected by responses of its own
                why = f"the core set aside an update that ends or changes something: {refused.reason}"
                raise SessionLostError(why)
        elif refused.seq:
            raise SessionLostError(f"the core refused an update: {refused.reason}")
        else:
            raise SessionLostError(refused.reason)

    def _resume(self) -> None:
        """Something is missing, on either side: both say again what the other does not have."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self.ending is not None:
            return
        if self._request is not None and not self.answered.is_set():
            self._say(self.session.register(self._request))
        else:
            self._say(self.session.resume(ref=self._reference()))

    @property
    def _congested(self) -> bool:
        """Whether so much waits for a stream that nothing more is acknowledged or taken."""
        count = size = 0
        for queue in self._queues.values():
            count += len(queue)
            size += queue.size
        return count >= RESPONSES_QUEUED_MAX or size >= RESPONSES_QUEUED_BYTES_MAX

    def _acknowledge_soon(self) -> None:
        """Once for all that arrives meanwhile, unless a command goes to the same partition, which says it too."""
        if self._acknowledging is None and self.ending is None:
            self._acknowledging = asyncio.get_running_loop().call_later(ACKNOWLEDGE_S, self._acknowledge)

    def _acknowledge(self) -> None:
        self._acknowledging = None
        if not self._congested:
            for outgoing in self.session.acknowledgements():
                self._say(outgoing)

    def _drained(self) -> None:
        """A response is on its way."""
        self._room.set()
        self._acknowledge_soon()

    # Streams --------------------------------------------------------------------------------------------------------

    def bind(self, kind: type[Response], stream: RmStream) -> None:
        """Let responses of this sort go out on this stream; the one that had them ends."""
        if self._absence is not None:
            self._absence.cancel()
            self._absence = None
        queue = self._queues[kind]
        if queue.stream is not None:
            queue.stream.end(endings.taken_over(self.session.rm_id))
        queue.bind(stream)
        if self._away:
            self._away = False
            self._resume()

    @property
    def _streamless(self) -> bool:
        return all(queue.stream is None for queue in self._queues.values())

    def _left(self) -> None:
        """A stream is over. The RM may open the next one in good time."""
        if self._streamless and self._absence is None and not self._away and self.ending is None:
            self._absence = asyncio.get_running_loop().call_later(self._streamless_s, self._went)

    def _went(self) -> None:
        self._absence, self._away = None, True
        self._tell_away()

    def _tell_away(self) -> None:
        header = Header(kind=ManagerAway.__name__, rm=self.session.rm_id, session=self.session.session)
        self._say(Outgoing(header, body_of(ManagerAway())))

    # The end --------------------------------------------------------------------------------------------------------

    def end(self, ending: Ending) -> None:
        """This registration is over: its streams end, and what was queued is forgotten. The first ending holds.

        The core is told that nobody speaks for it any more, which means nothing where another one has taken its place.
        """
        if self.ending is None and self.answered.is_set() and self.session.state in _OURS:
            self._tell_away()
        self._over(ending)
        self._end_streams(ending)
        for queue in self._queues.values():
            queue.clear()

    def _flush(self) -> None:
        """The RM went, as it wished: its streams end once everything is written."""
        self._over(endings.left(self.session.rm_id))
        for queue in self._queues.values():
            if queue.stream is not None:
                queue.stream.half_close()

    def _over(self, ending: Ending) -> None:
        self.ending = self.ending or ending
        self.answered.set()
        self.ended.set()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(EndedError(self.ending))
        for timer in (self._absence, self._acknowledging):
            if timer is not None:
                timer.cancel()
        self._absence = self._acknowledging = None

    def _end_streams(self, ending: Ending) -> None:
        for queue in self._queues.values():
            if queue.stream is not None:
                queue.stream.end(ending)


def _answer_in(body: bytes) -> Message:
    """What a partition answered; if it cannot be read, that."""
    try:
        return decoded(Answer, body)
    except WireError as error:
        return Refused(code="malformed", reason=str(error))


def _only_adds(command: Command) -> bool:
    """Whether an update creates, submits and asks, and does nothing else."""
    match command:
        case NodeRequest(nodes=nodes):
            return all(one.action in (NODE_CREATE, NODE_CREATE_DRAIN) for one in nodes)
        case ApplicationRequest(remove=remove):
            return not remove
        case AllocationRequest(releases=releases):
            return not releases.allocations_to_release
    return False
