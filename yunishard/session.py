"""What a resource manager says, and what it makes of what it hears: the machine that `manager.py` waits for.

`common/session.py` numbers, repeats and acknowledges. This adds what only the SDK has: a consumer that takes its time.
News are kept as they came until it asks for them, and only then count as received. So a slow consumer slows the core,
and what a broken connection finds in the buffer can be dropped, because the core sends it again.

Every call may leave messages to send; `to_send` hands them out. Not here: sockets, clocks, waiting.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, get_args

from common.config.model import compute_checksum
from common.messages import Command, Header
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
    SyncEnd,
    UpdateConfiguration,
    add_counts,
    count_reported,
)
from common.session import (
    ACK_EVERY_MESSAGES,
    WINDOW_MESSAGES,
    EncodedMessage,
    Session,
    SessionState,
    split_by_partition,
)
from common.wire import WireError, decode_body, decode_header
from yunishard.exceptions import (
    Closed,
    ConfigurationRefused,
    OutcomeUnknown,
    RegistrationRefused,
    ResyncFailed,
    SessionLost,
)
from yunishard.results import Predicate, Result, answer, with_partition


@dataclass(slots=True)
class Sync:
    """One report."""

    partition: str
    """Normalised name."""
    counts: SyncEnd = field(default_factory=SyncEnd)
    """What was said so far."""
    outcome: SyncDone | ResyncFailed | None = None

    @property
    def swept(self) -> SyncDone | None:
        """What the core had and the report did not, by id; None until that is known."""
        return self.outcome if isinstance(self.outcome, SyncDone) else None


@dataclass(slots=True)
class _Lane:
    begun: Sync | None = None
    ended: deque[Sync] = field(default_factory=deque)
    """Those without an answer, oldest first."""
    heard: int = 0
    """Number of the last answer in the partition's present life."""


class Syncs:
    """All of one session."""

    def __init__(self) -> None:
        self._lanes: dict[str, _Lane] = {}
        """By partition; none for one of which nothing has been reported in its present life, or that is none."""

    def __bool__(self) -> bool:
        """Whether a report is under way, so that what is said counts."""
        return any(lane.begun is not None for lane in self._lanes.values())

    def partitions(self) -> list[str]:
        """Those of which anything was reported."""
        return list(self._lanes)

    def begin(self, partition: str) -> Sync:
        """A report begins; one that has not ended never will."""
        lane = self._lanes.setdefault(partition, _Lane())
        lane.begun = Sync(partition)
        return lane.begun

    def count(self, partition: str, command: Command) -> None:
        """Something was said to a partition."""
        lane = self._lanes.get(partition)
        if lane is not None and lane.begun is not None:
            lane.begun.counts = add_counts(lane.begun.counts, count_reported(command))

    def end(self, sync: Sync) -> None:
        """The report is complete."""
        if sync.outcome is not None:
            return
        lane = self._lanes[sync.partition]
        if lane.begun is not sync:
            sync.outcome = ResyncFailed(f"{sync.partition}: another report was begun before this one was complete")
            return
        lane.begun = None
        lane.ended.append(sync)

    def answered(self, partition: str, seq: int, done: SyncDone) -> None:
        """The partition says what came of the oldest report; 0 is the number of one that nobody keeps."""
        lane = self._lanes.get(partition)
        if lane is None or not lane.ended or 0 < seq <= lane.heard:
            return
        lane.heard = max(lane.heard, seq)
        lane.ended.popleft().outcome = ResyncFailed(f"{partition}: {done.problem}") if done.problem else done
        if not (seq or lane.begun or lane.ended):
            del self._lanes[partition]

    def fail(self, partition: str, reason: str) -> None:
        """What was reported to this partition is forgotten."""
        lane = self._lanes.pop(partition, None)
        if lane is not None:
            for sync in (*lane.ended, *((lane.begun,) if lane.begun else ())):
                sync.outcome = ResyncFailed(f"{partition}: {reason}")


Outcome = ConfigurationUpdated | Exception


@dataclass(slots=True)
class _Change:
    """Another configuration that was asked for."""

    request: UpdateConfiguration
    sent: bool = False
    outcome: Outcome | None = None
    """None until there is an answer, or until it is known that there may be none."""


class Changes:
    """What somebody waits for, by the reference that the answer will repeat."""

    def __init__(self, request: RegisterResourceManager) -> None:
        self._request: Final = request
        self._changes: dict[str, _Change] = {}
        self._made = 0
        self._checksum = ""
        """Of the configuration that we believe in force; empty if the core did not say."""
        self._extra_config = request.extra_config
        """What was sent last: it holds until something else is sent."""

    def __contains__(self, reference: str) -> bool:
        return reference in self._changes

    def ask(self, text: str, extra_config: dict[str, str] | None) -> str:
        """One more, not sent yet; the reference for `outcome`."""
        if extra_config is not None:
            self._extra_config = extra_config
        self._made += 1
        reference = f"configuration-{self._made}"
        self._changes[reference] = _Change(
            UpdateConfiguration(
                rm_id=self._request.rm_id,
                policy_group=self._request.policy_group,
                config=text,
                extra_config=self._extra_config,
            )
        )
        return reference

    def sent(self, session: Session) -> list[EncodedMessage]:
        """What is to be sent now, as the session is open; once."""
        due = [(reference, change) for reference, change in self._changes.items() if not change.sent]
        for _, change in due:
            change.sent = True
        return [session.update_configuration(change.request, ref=reference) for reference, change in due]

    def outcome(self, reference: str) -> Outcome | None:
        """What became of a change, or None as long as that may still be heard."""
        return self._changes[reference].outcome

    def drop(self, reference: str) -> None:
        """Nobody waits for this change any more."""
        del self._changes[reference]

    def answered(self, reference: str, message: ConfigurationUpdated) -> bool:
        """Another configuration is in force; whether that answers a change of ours."""
        self._checksum = message.checksum
        change = self._changes.get(reference)
        if change is not None:
            change.outcome = message
        return change is not None

    def refused(self, reference: str, refused: Refused) -> None:
        """This change was not made."""
        self._changes[reference].outcome = ConfigurationRefused(refused)

    def resumed(self, registered: Registered) -> ConfigurationUpdated | None:
        """The configuration may have changed while nobody could tell us: as we asked before the break, or by others;
        in that case this says so.
        """
        known, self._checksum = self._checksum, registered.checksum
        changed = bool(known and registered.checksum) and known != registered.checksum
        now = ConfigurationUpdated(checksum=registered.checksum, partitions=registered.partitions)
        for change in self._changes.values():
            if not change.sent or change.outcome is not None:
                continue
            if changed and compute_checksum(change.request.config) == registered.checksum:
                change.outcome = now
            else:
                change.outcome = OutcomeUnknown(
                    f"{self._request.rm_id}: the connection broke before the core answered: look which "
                    "configuration it has (`yunishard config get`), or send this one again"
                )
        ours = any(change.outcome is now for change in self._changes.values())
        return now if changed and not ours else None


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
        self._to_send: list[EncodedMessage] = []
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

    def to_send(self) -> list[EncodedMessage]:
        """What is to be sent now, in this order."""
        due, self._to_send = self._to_send, []
        return due

    # The program ----------------------------------------------------------------------------------------------------

    def update(self, command: Command) -> None:
        """Say it: now, or once the session has been resumed."""
        if self._syncs:
            for partition, part in split_by_partition(self.session.rm_id, command).items():
                self._syncs.count(partition, part)
        self._to_send += [one for one in self.session.update(command) if self.session.is_open(one.header.partition)]

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

    def resume(self, partition: str = "") -> None:
        """Ask for everything that was not taken; with a partition only for its messages."""
        if self.over is not None:
            return
        call = self.session.resume(partition, ref=f"resume {partition}" if partition else "resume")
        self._behind = self._behind and bool(call.header.partition)
        kept = (one for one in self._to_send if call.header.partition not in ("", one.header.partition))
        self._to_send = [*kept, call]

    def received(self, frames: list[bytes]) -> bool:
        """Keep news for the consumer, act on everything else at once; whether an update may have room now."""
        try:
            header = decode_header(frames)
            if header.kind in _CONSUMED and header.session == self.session.session:
                self._buffer.append((header, frames[2]))
                if header.kind == "SyncDone" and header.life == self.session.life(header.partition):
                    self._syncs.answered(header.partition, header.seq, decode_body(SyncDone, frames[2]))
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
            case Registered() if header.partition:
                self._to_send += self.session.repeated(header.partition)
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
                # a journal that went back may say something else under the same numbers
                self._drop_news(header.partition)
                if self.session.is_open(header.partition):
                    self.resume(header.partition)
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
            case "gap" if self.session.is_open(header.partition):  # else it resumes: all behind the gap is refused
                self.resume(header.partition)
            case "window":
                self._behind = True
                if not self._buffer:
                    self.resume()  # all that could be acknowledged is
            case code if code in _TRY_AGAIN or not self.session.is_open(header.partition):
                pass  # to a call that has its answer
            case _:
                self._buffer.append(with_partition(Result(header.partition, refused)))

    def _ignored(self, partition: str, message: ReleasesIgnored) -> None:
        """Pass it on to the consumer, unless that is far behind: then it is dropped, as it may be lost anyway."""
        if len(self._buffer) < READ_AHEAD_MESSAGES:
            self._buffer.append(with_partition(Result(partition, message)))

    def _drop_news(self, partition: str = "") -> None:
        """Drop the unread news of all partitions or of one, as the core sends them again when they resume."""
        self._buffer = deque(
            item for item in self._buffer if isinstance(item, Result) or partition not in ("", _partition(item))
        )

    def _say(self, outgoing: EncodedMessage) -> None:
        if self.session.is_open(outgoing.header.partition):
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
        if not self.session.is_open(partition):
            return  # it is asked for already
        self._faults[partition] = self._faults.get(partition, 0) + 1
        if self._faults[partition] > FAULTS_MAX:
            self.end(self._lost(f"it sends what cannot be followed: {error}"))
        else:
            self.resume(partition)

    def _lost(self, reason: str) -> SessionLost:
        return SessionLost(
            f"{self._request.rm_id}: session with the core lost ({reason}): connect again, report everything"
        )


def _partition(item: Result | tuple[Header, bytes]) -> str:
    return item.partition if isinstance(item, Result) else item[0].partition
