"""What a resource manager says, and what it makes of what it hears: the machine that `manager.py` waits for.

`common/session.py` numbers, repeats and acknowledges. This adds what only the SDK has: a consumer that takes its time.
News are kept as they came until it asks for them, and only then count as received. So a slow consumer slows the core,
and what a broken connection finds in the buffer can be dropped, because the core sends it again.

Every call may leave messages to send; `to_send` hands them out. Not here: sockets, clocks, waiting.
"""

from collections import deque
from typing import Final, get_args

from common.messages import Command, Header
from common.outbox import ACK_EVERY_MESSAGES, WINDOW_MESSAGES
from common.rm_messages import (
    AllocationResponse,
    ApplicationResponse,
    ConfigurationUpdated,
    EventResponse,
    Goodbye,
    Left,
    NodeResponse,
    PartitionRestarted,
    PredicatesAsked,
    Refused,
    Registered,
    RegisterResourceManager,
    ReleasesIgnored,
    ResumeWanted,
    SchedulingStateResponse,
    StateDumpAnswered,
    StateDumpAsked,
    SyncDone,
)
from common.session import Outgoing, Session, SessionState
from common.split import split
from common.wire import WireError, decoded, header_of
from yunishard.changes import Changes
from yunishard.failures import Closed, RegistrationRefused, SessionLost
from yunishard.predicates import Predicate, answer
from yunishard.results import Result, with_partition
from yunishard.syncs import Sync, Syncs

READ_AHEAD_MESSAGES: Final = WINDOW_MESSAGES
"""Messages that are kept for the consumer; then reading stops, unless an update waits: what it waits for may be behind
them, and the windows of the core's partitions bound them anyway."""

FAULTS_MAX: Final = 3
"""Times that a partition's news are asked for again because they could not be followed; then the session is over."""

_News = NodeResponse | ApplicationResponse | AllocationResponse | EventResponse | SchedulingStateResponse
_CONSUMED: Final = frozenset({*(kind.__name__ for kind in get_args(_News)), SyncDone.__name__})
"""The kinds that count as received when the consumer takes them, not before."""

_SESSION_ENDS: Final = frozenset({"superseded", "forbidden"})
"""The codes of refusals that say so: another session took this one's place, or we may not speak for it any more."""

_TRY_AGAIN: Final = frozenset({"busy", "flood"})
"""The codes of refusals after which the same call is right, a little later."""


class Dialogue:
    """One session with the core, from registration until it is `over`."""

    def __init__(self, request: RegisterResourceManager, *, session: str, predicate: Predicate | None = None) -> None:
        self.session = Session(rm_id=request.rm_id, session=session)
        self.over: Exception | None = None
        """Why nothing can be done any more; None while something can."""
        self._request = request
        self._predicate = predicate
        """What says where asks may run; None if the core is not to ask."""
        self.pause_s: float | None = None
        """That the core wants a pause before the next attempt, at least so long; whoever heeds it clears it."""
        self.left = False
        """Whether nothing is left of this resource manager in the core, as it wished."""
        self.complaint = ""
        """Why the core wants a pause, if it has said so."""
        self.expects = Registered(partitions=[])
        """What the core said last about heartbeats and the like."""
        self._entered = False
        """Whether the registration was answered with yes."""
        self._leaving: str | None = None
        """Why we leave; None as long as we stay."""
        self._syncs = Syncs()
        self._to_send: list[Outgoing] = []
        self._buffer: deque[Result | tuple[Header, bytes]] = deque()
        """What the consumer has not taken: messages of the kinds in `_CONSUMED` as they came, and ready results."""
        self._faults: dict[str, int] = {}
        """Partition to how often its news could not be followed, since the last that could."""
        self._taken = 0
        """Results taken since the last acknowledgement."""
        self._behind = False
        """Whether updates were refused because too little of what the core said was acknowledged."""
        self._changes = Changes(request)
        self._state_wanted: list[tuple[str, StateDumpAsked]] = []
        """Partitions that want to know what we know, and their questions, until somebody takes them."""

    def to_send(self) -> list[Outgoing]:
        """What is to be sent now, in this order."""
        due, self._to_send = self._to_send, []
        return due

    # The program ----------------------------------------------------------------------------------------------------

    def update(self, command: Command) -> None:
        """Say it: now, or once the session has been resumed."""
        if self._syncs:
            for partition, part in split(self.session.rm_id, command).items():
                self._syncs.count(partition, part)
        messages = self.session.update(command)
        if self.session.state == "open":
            self._to_send += messages

    def sync_begin(self, partition: str, reason: str) -> Sync:
        """From here on everything is reported that we have in this partition (its normalised name)."""
        self._say(self.session.sync_begin(partition, reason))
        return self._syncs.begin(partition)

    def sync_end(self, sync: Sync) -> None:
        """That was everything. What comes of it will be in `sync.outcome`, unless it is there already."""
        self._syncs.end(sync)
        if sync.outcome is None:
            self._say(self.session.sync_end(sync.partition, sync.counts))

    def leave(self, reason: str) -> None:
        """Go for good, now or on the next connection."""
        self._leaving = reason
        self._to_send.append(self.session.leave(reason))

    def change(self, text: str, extra_config: dict[str, str] | None) -> str:
        """Ask for another configuration, now or once the session has been resumed; the reference for `outcome`."""
        reference = self._changes.ask(text, extra_config)
        if self.session.state == "open":
            self._to_send += self._changes.sent(self.session)
        return reference

    def outcome(self, reference: str) -> ConfigurationUpdated | Exception | None:
        """What became of a change, or None as long as that may still be heard."""
        return self._changes.outcome(reference)

    def drop(self, reference: str) -> None:
        """Nobody waits for this change any more. What is still heard of it counts as news."""
        self._changes.drop(reference)

    def state_wanted(self) -> list[tuple[str, StateDumpAsked]]:
        """Partitions that want to know what we know, and their questions, once."""
        wanted, self._state_wanted = self._state_wanted, []
        return wanted

    def tell_state(self, partition: str, answered: StateDumpAnswered) -> None:
        """Answer such a question, if that is possible now; later it would be of no use."""
        self._say(self.session.say(partition, answered))

    def take(self) -> Result | None:
        """The next result, or None if there is nothing. Asking for it says that the one before has been dealt with."""
        if self._taken >= ACK_EVERY_MESSAGES:
            self.acknowledge()
        while self._buffer:
            item = self._buffer.popleft()
            result = item if isinstance(item, Result) else self._opened(*item)
            if result is not None:
                self._taken += 1
                return result
        self.acknowledge()
        return None

    def acknowledge(self) -> None:
        """Tell the core what has been taken."""
        self._taken = 0
        if self.session.state != "open":
            return
        due = self.session.acknowledgements()
        if due and self._behind:
            self.resume()  # which says what was received, and brings what was refused again
        else:
            self._to_send += due

    def backlog(self) -> int:
        """How many messages are kept for the consumer."""
        return len(self._buffer)

    def end(self, reason: Exception) -> None:
        """Nothing follows; the first reason stays."""
        self.over = self.over or reason

    # The connection -------------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """On a new connection the first message says who speaks."""
        self.complaint = ""
        if self.over is not None:
            self._to_send = []
        elif not self._entered:
            self._to_send = [self.session.register(self._request)]
        elif self._leaving is not None:
            self._to_send = [self.session.leave(self._leaving)]
        else:
            self._drop_news()
            self.resume()

    def resume(self) -> None:
        """Ask for everything that was not taken."""
        self._behind = False
        if self.over is None:
            self._to_send = [self.session.resume()]

    def received(self, frames: list[bytes]) -> bool:
        """Keep news for the consumer, act on everything else at once; whether an update may have room now."""
        try:
            header = header_of(frames)
            if header.kind in _CONSUMED and header.session == self.session.session:
                self._buffer.append((header, frames[2]))
                if header.kind == "SyncDone" and header.life == self.session.life(header.partition):
                    self._syncs.answered(header.partition, header.seq, decoded(SyncDone, frames[2]))
                return self.session.acknowledged(header)  # an update may wait for it
            self._act(header, frames[2])
        except WireError as error:
            self._fault("", error)
        return True

    # Private --------------------------------------------------------------------------------------------------------

    def _act(self, header: Header, body: bytes) -> None:
        before = self.session.state
        message = self.session.receive(header, body)
        self._faults.pop("", None)
        match message:
            case Registered():
                self._entered, self.complaint = True, ""
                self.expects = message
                if (changed := self._changes.resumed(message)) is not None:
                    self._buffer.append(Result("", changed))
                self._to_send += self.session.repeated()
                self._to_send += self._changes.sent(self.session)
            case ConfigurationUpdated():
                self._reconfigured(header.ref, message)
            case ResumeWanted():
                self._drop_news()  # a journal that went back may say something else under the same numbers
                if before == "open":
                    self.resume()
            case Goodbye() if before != self.session.state:
                self.pause_s, self.complaint = message.retry_after_milli_seconds / 1000, message.reason
                self._buffer.append(Result("", message))
            case Left():
                self._gone()
            case Refused() if self.session.state == "refused":
                self._turned_away(message, before)
            case Refused():
                self._refused(header, message)
            case PredicatesAsked() if self._predicate is not None and self.session.state == "open":
                self._to_send.append(self.session.say(header.partition, answer(message, self._predicate)))
            case StateDumpAsked():
                self._state_wanted.append((header.partition, message))
            case ReleasesIgnored():
                self._ignored(header.partition, message)
            case PartitionRestarted():
                self._forget(header.partition)
                self._buffer.append(Result(header.partition, message))
            case _:
                pass  # acknowledgements, and what an earlier session was meant to hear

    def _reconfigured(self, ref: str, message: ConfigurationUpdated) -> None:
        if not self._changes.answered(ref, message):
            self._buffer.append(Result("", message))
        for partition in self._syncs.partitions():
            if partition not in message.partitions:
                self._syncs.fail(partition, "this partition is not configured any more")

    def _turned_away(self, refused: Refused, asked: SessionState) -> None:
        """The core did not do what the session as a whole wanted: for now, or at all."""
        if refused.code in _TRY_AGAIN:
            self.pause_s, self.complaint = 0.0, refused.reason
        elif asked == "registering":
            self.end(RegistrationRefused(refused.reason))
        else:
            self.end(self._lost(refused.reason))

    def _gone(self) -> None:
        """Nothing is left of us: as we wished, or because we were away for too long."""
        self.left = self._leaving is not None
        wished = Closed(f"{self._request.rm_id}: this resource manager has left the core")
        self.end(wished if self.left else self._lost("it gave up waiting for us"))

    def _refused(self, header: Header, refused: Refused) -> None:
        """The session goes on, or may."""
        match refused.code:
            case code if code in _SESSION_ENDS:
                self.end(self._lost(refused.reason))
            case "unknown-session" if self.session.state == "open":
                self.resume()  # who speaks for us may have died, without the core behind it
            case _ if header.ref in self._changes:
                self._changes.refused(header.ref, refused)
            case "gap" if self.session.state == "open":  # else it is on its way: each update behind the gap is refused
                self.resume()
            case "window":
                self._behind = True
                if not self._buffer:
                    self.resume()  # all that could be acknowledged is
            case code if code in _TRY_AGAIN or self.session.state != "open":
                pass  # to a call that has its answer
            case _:
                self._buffer.append(with_partition(Result(header.partition, refused)))

    def _ignored(self, partition: str, message: ReleasesIgnored) -> None:
        """Pass it on to the consumer, unless that is far behind: then it is dropped, as it may be lost anyway."""
        if len(self._buffer) < READ_AHEAD_MESSAGES:
            self._buffer.append(with_partition(Result(partition, message)))

    def _drop_news(self) -> None:
        """Forget the news that nobody took: the core sends them again when we resume."""
        self._buffer = deque(item for item in self._buffer if isinstance(item, Result))

    def _say(self, outgoing: Outgoing) -> None:
        if self.session.state == "open":
            self._to_send.append(outgoing)

    def _forget(self, partition: str) -> None:
        """Drop what a partition said before it died and nobody took: none of it is true any more."""
        self._faults.pop(partition, None)
        self._syncs.fail(partition, "it lost what it knew meanwhile, report everything again")
        self._buffer = deque(item for item in self._buffer if _partition(item) != partition)

    def _opened(self, header: Header, body: bytes) -> Result | None:
        try:
            news = self.session.receive(header, body)
        except WireError as error:
            self._fault(header.partition, error)
            return None
        if not isinstance(news, _News):
            return None  # seen before
        self._faults.pop(header.partition, None)
        return with_partition(Result(header.partition, news))

    def _fault(self, partition: str, error: WireError) -> None:
        """What came cannot be followed: ask for it again, a few times."""
        if self.session.state != "open":
            return  # it is asked for already
        self._faults[partition] = self._faults.get(partition, 0) + 1
        if self._faults[partition] > FAULTS_MAX:
            self.end(self._lost(f"it sends what cannot be followed: {error}"))
        else:
            self.resume()

    def _lost(self, reason: str) -> SessionLost:
        return SessionLost(
            f"{self._request.rm_id}: session with the core lost ({reason}): connect again, report everything"
        )


def _partition(item: Result | tuple[Header, bytes]) -> str:
    return item.partition if isinstance(item, Result) else item[0].partition
