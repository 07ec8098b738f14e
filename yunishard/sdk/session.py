"""The client's side of one session with the core: which messages to send, and what each received message means.

`common/messages/session.py` numbers, acknowledges and retransmits messages. This module adds a buffer of results, which
count as received only when the program takes them. So a slow program slows the core down, and after a lost connection
the buffer can be dropped, because the core sends its messages again.

Each call may add messages to send; `take_outgoing` returns them. `Liveness` decides when a heartbeat or another attempt
to resume is due. Not here: sockets, clocks, waiting (`connection.py`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Literal

from yunishard.common.config.model import compute_checksum
from yunishard.common.messages import rm_messages
from yunishard.common.messages import session as common_session
from yunishard.common.messages.kinds import Command, Header
from yunishard.common.messages.rm_messages import count_reported
from yunishard.common.messages.wire import NEVER, WireError, decode_body, decode_header
from yunishard.sdk import exceptions
from yunishard.sdk.items import Predicate, PreemptionPredicate, Result, Update, answer_predicates, complete_result


@dataclass(slots=True)
class Sync:
    """A full report of one partition."""

    partition: str
    """Normalised name."""
    counts: rm_messages.SyncEnd = field(default_factory=rm_messages.SyncEnd)
    """Number of items sent in the report."""
    outcome: rm_messages.SyncDone | exceptions.ResyncFailed | None = None
    """None until the core has answered."""
    is_complete: bool = False
    """Whether the whole report was sent."""

    @property
    def swept(self) -> rm_messages.SyncDone | None:
        """Ids of everything that the core removed, as it was not in the report; None until the core has answered."""
        return self.outcome if isinstance(self.outcome, rm_messages.SyncDone) else None


@dataclass(slots=True)
class ConfigurationChange:
    """A requested change of the configuration."""

    reference: str
    """Identifies the answer."""
    request: rm_messages.UpdateConfiguration
    is_sent: bool = False
    outcome: rm_messages.ConfigurationUpdated | Exception | None = None
    """None until there is an answer, or until an answer can no longer arrive."""


READ_AHEAD_MESSAGES: Final = common_session.WINDOW_MESSAGES
"""Size of the buffer, in messages, at which reading stops. While a caller waits, reading continues: the answer may be
behind buffered messages, and the windows of the core's partitions bound the buffer in any case."""

STATE_DUMPS_WAITING_MAX: Final = 16
"""Requests for a state dump that wait; further ones are answered with an error."""

_BUFFERED: Final = (
    *("NodeResponse", "ApplicationResponse", "AllocationResponse"),
    *("EventResponse", "SchedulingStateResponse", "SyncDone"),
)
"""Kinds that count as received when the program takes them."""

_SESSION_ENDS: Final = frozenset({"superseded", "forbidden"})
"""Refusals that end the session: another session replaced this one, or the key may not be used for this RM any more."""


class ClientSession:
    """One session with the core, from its registration until `end_reason` is set."""

    def __init__(
        self,
        request: rm_messages.RegisterResourceManager,
        session: str,
        predicate: Predicate | None = None,
        preemption_predicate: PreemptionPredicate | None = None,
    ) -> None:
        self.protocol: Final = common_session.Session(rm_id=request.rm_id, session=session)
        self.end_reason: Exception | None = None
        """Why the session has ended; None while it continues."""
        self.pause_s: float | None = None
        """Pause that the core requested before the next attempt, at least; the driver resets it to None."""
        self.pause_reason = ""
        """Why the core requested it, until the next answer."""
        self.registered: rm_messages.Registered | None = None
        """The last answer to a registration or resumption; has the intervals of heartbeats."""
        self._request = request
        self._predicate = predicate
        self._preemption_predicate = preemption_predicate
        self._leave_reason: str | None = None
        """Set once the RM leaves."""
        self._syncs: list[Sync] = []
        """Full reports without an outcome, oldest first."""
        self._sync_answers: dict[str, tuple[int, int]] = {}
        """Partition to the generation and the number of its last answer to a report."""
        self._changes: dict[str, ConfigurationChange] = {}
        """Configuration changes that a caller waits for, by reference."""
        self._change_numbers = count(1)
        self._extra_config = request.extra_config
        """As sent last."""
        self._checksum = ""
        """Of the configuration in force; empty if the core did not send it."""
        self._outgoing: list[common_session.EncodedMessage] = []
        self.buffer: deque[Result | tuple[Header, bytes]] = deque()
        """Everything that the program has not taken: undecoded messages of the kinds in `_BUFFERED`, and results."""
        self._unacknowledged = 0
        """Results taken since the last acknowledgement."""
        self._is_window_closed = False
        """Whether the core refused updates because results were not acknowledged."""
        self.state_dump_requests: deque[tuple[str, rm_messages.StateDumpAsked]] = deque()
        """Requests for a state dump with their partitions; the driver removes and answers them."""

    def take_outgoing(self) -> list[common_session.EncodedMessage]:
        """Return the messages to send now, in order."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    # The program ----------------------------------------------------------------------------------------------------

    def send_update(self, command: Command, body: bytes = b"") -> None:
        """Send an update: now, or once the session is resumed. `body` is the encoded command, if the caller has it."""
        for partition, part in common_session.split_by_partition(self.protocol.normalise, command).items():
            for sync in self._syncs:
                if sync.partition == partition and not sync.is_complete:
                    sync.counts = count_reported(sync.counts, part)
            self._send_if_open(self.protocol.number(partition, part, body if part is command else b""))

    def begin_sync(self, partition: str, reason: str) -> Sync:
        """Begin a full report of a partition (its normalised name); it replaces one that is not complete."""
        self._send_if_open(self.protocol.number(partition, rm_messages.SyncBegin(reason=reason)))
        incomplete = [one for one in self._syncs if one.partition == partition and not one.is_complete]
        self._fail_syncs(incomplete, "another report was opened before this one was complete")
        sync = Sync(partition)
        self._syncs.append(sync)
        return sync

    def end_sync(self, sync: Sync) -> None:
        """Complete a full report; its `outcome` is set when the core has answered, or already if it failed."""
        if sync.outcome is None:
            sync.is_complete = True
            self._send_if_open(self.protocol.number(sync.partition, sync.counts))

    def leave(self, reason: str) -> None:
        """Leave the core permanently: now, or on the next connection."""
        self._leave_reason = reason
        self._outgoing.append(self.protocol.leave(reason))

    def request_configuration(self, text: str, extra_config: dict[str, str] | None) -> ConfigurationChange:
        """Request another configuration: now, or once the session is resumed."""
        if extra_config is not None:
            self._extra_config = extra_config
        own, extra = self._request, self._extra_config
        request = rm_messages.UpdateConfiguration(own.rm_id, own.policy_group, config=text, extra_config=extra)
        change = ConfigurationChange(f"configuration-{next(self._change_numbers)}", request)
        self._changes[change.reference] = change
        self._send_changes()
        return change

    def discard_change(self, change: ConfigurationChange) -> None:
        """Stop waiting for a change of the configuration. A later answer is a result like any other."""
        del self._changes[change.reference]

    def answer_state_dump(self, partition: str, answer: rm_messages.StateDumpAnswered) -> None:
        """Answer a request for a state dump, unless the session is interrupted: later the answer is of no use."""
        self._send_if_open(self.protocol.encode_unnumbered(partition, answer))

    def next_result(self) -> Result | None:
        """Return the next result, or None. The call confirms that the program has handled the results before."""
        if self._unacknowledged >= common_session.ACK_EVERY_MESSAGES:
            self.acknowledge()
        while self.buffer:
            item = self.buffer.popleft()
            result = item if isinstance(item, Result) else self._decode(*item)
            if result is not None:
                self._unacknowledged += 1
                return result
        self.acknowledge()
        return None

    def acknowledge(self) -> None:
        """Acknowledge the results that the program has taken."""
        self._unacknowledged = 0
        if self.protocol.state != "open":
            return
        due = self.protocol.acknowledgements()
        if due and self._is_window_closed:
            self.resume()  # acknowledges, and retransmits what the core refused
        else:
            self._outgoing += due

    def end(self, reason: Exception) -> None:
        """End the session; the first reason holds."""
        self.end_reason = self.end_reason or reason

    # The connection -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start or continue the session on a new connection."""
        self.pause_reason = ""
        if self.end_reason is not None:
            self._outgoing = []
        elif self.registered is None:
            self._outgoing = [self.protocol.register(self._request)]
        elif self._leave_reason is not None:
            self._outgoing = [self.protocol.leave(self._leave_reason)]
        else:
            self._drop_undecoded()
            self.resume()

    def resume(self, partition: str = "") -> None:
        """Ask the core to resume one partition or all: both sides retransmit what the other has not acknowledged."""
        if self.end_reason is not None:
            return
        call = self.protocol.resume(partition, ref=f"resume {partition}" if partition else "resume")
        self._is_window_closed = self._is_window_closed and bool(call.header.partition)
        kept = (one for one in self._outgoing if call.header.partition not in ("", one.header.partition))
        self._outgoing = [*kept, call]

    def receive(self, frames: list[bytes]) -> None:
        """Buffer a result, or handle any other message."""
        try:
            header = decode_header(frames)
            if header.kind in _BUFFERED and header.session == self.protocol.session:
                self.buffer.append((header, frames[2]))
                if header.kind == "SyncDone" and header.life == self.protocol.generation(header.partition):
                    self._complete_sync(header, decode_body(rm_messages.SyncDone, frames[2]))
                self.protocol.receive_acknowledgement(header)
            else:
                self._handle(header, frames[2])
        except WireError as error:
            self._recover("", error)

    # Private --------------------------------------------------------------------------------------------------------

    def _handle(self, header: Header, body: bytes) -> None:
        before = self.protocol.state
        message = self.protocol.receive(header, body)
        match message:
            case rm_messages.Registered() if header.partition:
                self._outgoing += self.protocol.retransmissions(header.partition)
            case rm_messages.Registered():
                self.pause_reason, self.registered = "", message
                self._reconcile_changes(message)
                self._outgoing += self.protocol.retransmissions()
                self._send_changes()
            case rm_messages.ConfigurationUpdated():
                self._checksum = message.checksum
                if not self._settle_change(header.ref, message):
                    self.buffer.append(Result("", message))
                removed = [one for one in self._syncs if one.partition not in message.partitions]
                self._fail_syncs(removed, "this partition is not configured any more")
            case rm_messages.ResumeWanted():
                self._drop_undecoded(header.partition)  # a recovered worker may reuse the numbers of these messages
                if self.protocol.is_open(header.partition):
                    self.resume(header.partition)
            case rm_messages.Goodbye() if before != self.protocol.state:
                self.pause_s, self.pause_reason = message.retry_after_milli_seconds / 1000, message.reason
                self.buffer.append(Result("", message))
            case rm_messages.Left():
                if self._leave_reason is None:
                    self.end(self._session_lost("the core gave up waiting for this RM"))
                else:
                    self.end(exceptions.Closed(f"{self._request.rm_id}: this resource manager has left the core"))
            case rm_messages.Refused():
                self._handle_refusal(header, message, before)
            case rm_messages.PredicatesAsked() if self._predicate is not None and self.protocol.state == "open":
                verdicts = answer_predicates(message, self._predicate, self._preemption_predicate)
                self._outgoing.append(self.protocol.encode_unnumbered(header.partition, verdicts))
            case rm_messages.StateDumpAsked() if len(self.state_dump_requests) < STATE_DUMPS_WAITING_MAX:
                self.state_dump_requests.append((header.partition, message))
            case rm_messages.StateDumpAsked():
                problem = "state_dump of the resource manager is busy with earlier questions"
                answer = rm_messages.StateDumpAnswered(question=message.question, problem=problem)
                self.answer_state_dump(header.partition, answer)
            case rm_messages.ReleasesIgnored() if len(self.buffer) < READ_AHEAD_MESSAGES:
                self.buffer.append(complete_result(Result(header.partition, message)))  # not numbered: may be dropped
            case rm_messages.PartitionRestarted():
                failed = [one for one in self._syncs if one.partition == header.partition]
                self._fail_syncs(failed, "the partition lost its state meanwhile, report everything again")
                self.buffer = deque(item for item in self.buffer if _partition_of(item) != header.partition)
                self.buffer.append(Result(header.partition, message))
            case _:
                pass  # an acknowledgement, or a message to an earlier session

    def _handle_refusal(self, header: Header, refused: rm_messages.Refused, before: str) -> None:
        """Handle the refusal of a registration, resumption or leave, of a configuration, or of an update."""
        code, is_open = refused.code, self.protocol.is_open(header.partition)
        if before == "open" and self.protocol.state == "away":
            self.resume()  # the core refused to resume one partition alone
        elif self.protocol.state == "refused":
            if code in common_session.RETRIABLE:
                self.pause_s, self.pause_reason = 0.0, refused.reason
            elif before == "registering":
                self.end(exceptions.RegistrationRefused(refused.reason))
            else:
                self.end(self._session_lost(refused.reason, code))
        elif code in _SESSION_ENDS:
            self.end(self._session_lost(refused.reason, code))
        elif code == "unknown-session" and self.protocol.state == "open":
            self.resume()  # only the proxy may have been restarted
        elif self._settle_change(header.ref, exceptions.ConfigurationRefused(refused)):
            pass
        elif code == "gap" and is_open:  # otherwise it resumes, and the core refuses everything behind the gap
            self.resume(header.partition)
        elif code == "window":
            self._is_window_closed = True
            if not self.buffer:
                self.resume()  # all results are acknowledged
        elif is_open and code not in common_session.RETRIABLE:
            self.buffer.append(complete_result(Result(header.partition, refused)))

    def _complete_sync(self, header: Header, done: rm_messages.SyncDone) -> None:
        """Set the outcome of the oldest report that has none, unless the core sends the answer again."""
        sync = next((one for one in self._syncs if one.is_complete and one.partition == header.partition), None)
        number = (header.life, header.seq)
        if sync is None or (header.seq and number <= self._sync_answers.get(header.partition, (0, 0))):
            return
        if header.seq:
            self._sync_answers[header.partition] = number
        sync.outcome = exceptions.ResyncFailed(f"{sync.partition}: {done.problem}") if done.problem else done
        self._syncs = [one for one in self._syncs if one.outcome is None]

    def _fail_syncs(self, failed: list[Sync], reason: str) -> None:
        for sync in failed:
            sync.outcome = exceptions.ResyncFailed(f"{sync.partition}: {reason}")
        self._syncs = [one for one in self._syncs if one.outcome is None]

    def _send_changes(self) -> None:
        """Send the requested changes of the configuration that are not sent yet, if the session is open."""
        for change in self._changes.values() if self.protocol.state == "open" else ():
            if not change.is_sent:
                change.is_sent = True
                self._outgoing.append(self.protocol.update_configuration(change.request, ref=change.reference))

    def _settle_change(self, reference: str, outcome: rm_messages.ConfigurationUpdated | Exception) -> bool:
        """Set the outcome of a change; return whether this client waits for a change with this reference."""
        change = self._changes.get(reference)
        if change is not None:
            change.outcome = outcome
        return change is not None

    def _reconcile_changes(self, registered: rm_messages.Registered) -> None:
        """Settle the changes that had no answer when the connection was lost.

        The configuration in force is a result if it changed meanwhile and no change of this client did that.
        """
        known, self._checksum = self._checksum, registered.checksum
        is_changed = bool(known and registered.checksum) and known != registered.checksum
        update = rm_messages.ConfigurationUpdated(checksum=registered.checksum, partitions=registered.partitions)
        is_ours = False
        for change in self._changes.values():
            if not change.is_sent or change.outcome is not None:
                continue
            if is_changed and compute_checksum(change.request.config) == registered.checksum:
                change.outcome, is_ours = update, True
            else:
                change.outcome = exceptions.OutcomeUnknown(
                    f"{self._request.rm_id}: the connection was lost before the core answered: check which "
                    "configuration is in force (`yunishard config get`), or send this one again"
                )
        if is_changed and not is_ours:
            self.buffer.append(Result("", update))

    def _drop_undecoded(self, partition: str = "") -> None:
        """Drop buffered messages of one partition or all, as the core sends them again after a resumption."""
        self.buffer = deque(
            item for item in self.buffer if isinstance(item, Result) or partition not in ("", _partition_of(item))
        )

    def _send_if_open(self, message: common_session.EncodedMessage) -> None:
        if self.protocol.is_open(message.header.partition):
            self._outgoing.append(message)

    def _decode(self, header: Header, body: bytes) -> Result | None:
        try:
            news = self.protocol.receive(header, body)
        except WireError as error:
            self._recover(header.partition, error)
            return None
        if not isinstance(news, Update):
            return None  # a duplicate, or a `SyncDone`
        return complete_result(Result(header.partition, news))

    def _recover(self, partition: str, error: WireError) -> None:
        """Resume after a missing or unreadable message, at most FAULTS_MAX times."""
        if self.protocol.count_fault(partition):
            self.end(self._session_lost(f"the core sends messages that cannot be used: {error}"))
        elif self.protocol.is_open(partition):
            self.resume(partition)

    def _session_lost(self, reason: str, code: str = "") -> exceptions.SessionLost:
        lost = exceptions.SessionLost(
            f"{self._request.rm_id}: session with the core lost ({reason}): connect again and report everything"
        )
        lost.code = code
        return lost


def _partition_of(item: Result | tuple[Header, bytes]) -> str:
    return item.partition if isinstance(item, Result) else item[0].partition


# Liveness -----------------------------------------------------------------------------------------------------------

BACKOFF_S: Final = 1.0
BACKOFF_MAX_S: Final = 32.0
"""Seconds to wait for the answer to an attempt before the next one: at first, and at most."""

SEVERAL_MAX_S: Final = 10.0
"""With several addresses, the maximum is BACKOFF_MAX_S for all of them together, but at least this for each, as a core
may need a while to answer."""

MOVE_GAP_S: Final = 0.2
"""Shortest time between attempts at two addresses."""

JITTER: Final = 0.25
"""Largest random extension of a pause, as a part of it."""

Action = Literal["nothing", "heartbeat", "reconnect", "retry"]
"""The next action: `reconnect` is an attempt on a new connection, to the next address if there are several; `retry` is
one on the present connection."""


class Liveness:
    """Timers of one session, in seconds of any one clock; `random` returns numbers from 0 to 1.

        open --silence--> attempting <--unanswered-- attempting     open: a heartbeat when nothing else was sent or
          ^                 |    |                                  received
          +----answered-----+    +--asked to wait--> paused         paused: the core requested it; then one more attempt

    The pauses between attempts double from BACKOFF_S to BACKOFF_MAX_S. Each is longer by a random part, so that many
    RMs do not return at the same moment.

    With several addresses, attempts are made in rounds of one attempt at each address. An address that fails or asks
    for a pause is left at once for the next one of the round, so only the end of a round has a pause, and the pauses
    double from round to round.
    """

    def __init__(self, random: Callable[[], float], *, addresses: int = 1) -> None:
        self._random = random
        self._addresses = addresses
        self._left = 0
        """Addresses of this round without an attempt."""
        self._moved_at = -NEVER
        """Time of the last attempt at another address."""
        self._pause_max_s = BACKOFF_MAX_S if addresses == 1 else max(SEVERAL_MAX_S, BACKOFF_MAX_S / addresses)
        self._heartbeat_s = self._silence_s = NEVER
        self.sent_at = self.received_at = self._heartbeat_at = 0.0
        """When anything was sent, anything was received, a heartbeat was due."""
        self._pause_s = BACKOFF_S
        """Seconds between the next attempt and the one after it, without the random part."""
        self._next_at = NEVER
        """Time of the next attempt; NEVER while open, and while an answer may take any time."""
        self.state: Literal["open", "attempting", "paused", "suspended"] = "suspended"
        """In `paused`, nothing may be sent before `deadline`."""

    @property
    def deadline(self) -> float:
        """When to call `next_action`."""
        if self.state != "open":
            return self._next_at
        heartbeat_at = max(min(self.sent_at, self.received_at), self._heartbeat_at) + self._heartbeat_s
        return min(heartbeat_at, self.received_at + self._silence_s)

    def open(self, heartbeat_ms: int, silence_ms: int, now: float) -> None:
        """The core answered, and expects these intervals; 0 turns a timer off."""
        self._heartbeat_s = heartbeat_ms / 1000 or NEVER
        self._silence_s = silence_ms / 1000 or NEVER
        self.sent_at = self.received_at = self._heartbeat_at = now
        self._pause_s, self._next_at, self.state = BACKOFF_S, NEVER, "open"
        self._left = self._addresses - 1

    def suspend(self) -> None:
        """Turn all timers off: the answer to the present call may take any time."""
        self._next_at, self.state = NEVER, "suspended"

    def start_attempt(self, now: float) -> None:
        """An attempt was made; the next one follows without an answer in time."""
        self._next_at, self.state = now + self._backoff_s(), "attempting"

    def start_move(self, now: float) -> None:
        """An attempt at the next address was made."""
        self._left = (self._left or self._addresses) - 1
        self._moved_at = now
        self.start_attempt(now)

    def fail(self, now: float) -> None:
        """The connection to one of several addresses broke, or could not be made."""
        if self.state == "paused":
            return
        if self._left:
            self._next_at = max(now, self._moved_at + MOVE_GAP_S)
        elif self.state != "attempting":  # otherwise the rest of the attempt's time is the pause
            self._next_at = now + self._backoff_s()
        self.state = "attempting"

    def pause(self, seconds: float, now: float) -> None:
        """The core requested a pause of at least so long. Another address may be ready earlier."""
        if self._left:
            self._next_at, self.state = max(now, self._moved_at + MOVE_GAP_S), "attempting"
        else:
            self._next_at, self.state = now + max(self._backoff_s(), seconds), "paused"

    def next_action(self, now: float, *, reading: bool = True) -> Action:
        """Return what to do now. `reading` is whether messages were read at all.

        The core is given the time by which this call is late, as a suspended process does not receive messages.
        """
        if now < self.deadline:
            return "nothing"
        if self.state != "open":
            return "retry" if self.state == "paused" and self._addresses == 1 else "reconnect"
        self.received_at = now if not reading else min(now, self.received_at + now - self.deadline)
        if now >= self.received_at + self._silence_s:
            return "reconnect"
        self._heartbeat_at = now
        return "heartbeat"

    def _backoff_s(self) -> float:
        seconds = self._pause_s
        if not self._left:
            self._pause_s = min(2 * seconds, self._pause_max_s)
        return seconds * (1 + JITTER * self._random())
