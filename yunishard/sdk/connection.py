"""Drives a session with the core in an asyncio event loop: the socket, the timers, and requests for a state dump.

Not here: what to send, what a message means, and when to reconnect (`session.py`).
"""

import asyncio
import logging
import math
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from typing import Final, NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from yunishard.common.messages.rm_messages import STATE_DUMP_BYTES_MAX, StateDumpAnswered, StateDumpAsked
from yunishard.common.messages.session import EncodedMessage
from yunishard.common.messages.wire import BODY_BYTES_MAX, NEVER, encode_frames
from yunishard.common.transport.curve_keys import ClientKeys, fingerprint
from yunishard.sdk.exceptions import ConnectFailed, KeyRefused
from yunishard.sdk.items import Result
from yunishard.sdk.session import READ_AHEAD_MESSAGES, ClientSession, Liveness

StateDump = Callable[[], str | Awaitable[str]]
"""Returns the state of the RM as the text of a JSON object. It is called in a thread of its own, one call at a time. It
may block, though the core waits for two seconds only. An awaitable that it returns runs in the event loop."""


async def call_state_dump(asked: StateDumpAsked, state_dump: StateDump) -> StateDumpAnswered:
    """Call the function; return its text, or the reason why there is none."""
    try:
        found = await asyncio.to_thread(state_dump)
        text = found if isinstance(found, str) else await found
        size = len(text.encode())
    except Exception as error:  # a fault of the program must not end the connection
        problem = f"failed: {type(error).__name__}: {error}"
    else:
        if size <= STATE_DUMP_BYTES_MAX:
            return StateDumpAnswered(question=asked.question, text=text)
        problem = f"gave {size} bytes, at most {STATE_DUMP_BYTES_MAX} are taken"
    problem = f"state_dump of the resource manager {problem}".encode(errors="replace").decode()
    return StateDumpAnswered(question=asked.question, problem=problem)


READS_MAX: Final = 256
"""Messages that are read before other tasks of the event loop run."""

OPTIONS: Final[Mapping[zmq.SocketOption, int]] = {
    zmq.SocketOption.IMMEDIATE: 1,  # queue nothing for a connection that does not exist
    zmq.SocketOption.SNDHWM: 0,  # the windows (`common/messages/session.py`) bound it, so sending never waits
    zmq.SocketOption.RCVHWM: 1_000,
    zmq.SocketOption.MAXMSGSIZE: BODY_BYTES_MAX,
    zmq.SocketOption.LINGER: 1_000,  # milliseconds for the last messages when the connection is closed
    zmq.SocketOption.RECONNECT_IVL: 200,
    zmq.SocketOption.RECONNECT_IVL_MAX: 10_000,
    zmq.SocketOption.TCP_KEEPALIVE: 1,
    zmq.SocketOption.TCP_KEEPALIVE_IDLE: 30,
    zmq.SocketOption.TCP_KEEPALIVE_INTVL: 10,
    zmq.SocketOption.TCP_KEEPALIVE_CNT: 3,
}

SEVERAL_OPTIONS: Final[Mapping[zmq.SocketOption, int]] = {
    zmq.SocketOption.RECONNECT_IVL: -1,  # the next attempt is at another address
    zmq.SocketOption.HEARTBEAT_IVL: 1_000,  # detects a host that is lost during a registration, too
    zmq.SocketOption.HEARTBEAT_TIMEOUT: 3_000,
}
"""Further options if there are several addresses."""

HANG_UPS_MAX: Final = 3
"""Times that the first handshake with keys may break off. A server with another key than expected only hangs up."""

_log = logging.getLogger(__name__)


ADDRESS: Final = re.compile(r"tcp://[^\s/,]+:[0-9]{1,5}|ipc://[^\s,]+")
"""Addresses that are certainly valid for ZeroMQ."""


class Endpoint(NamedTuple):
    """An address of the core, and the keys for it."""

    address: str
    keys: ClientKeys | None = None


class SessionDriver:
    """Drives one session over a DEALER socket to the core, at one of its addresses at a time."""

    def __init__(self, endpoints: Sequence[Endpoint], session: ClientSession, state_dump: StateDump | None) -> None:
        self.endpoints = endpoints
        self._turn = 0
        """Index of the present endpoint."""
        self.changed = asyncio.Event()
        """Set and cleared at once when the state of the session may have changed, which wakes all waiting tasks."""
        self.session = session
        self._state_dump = state_dump
        self._dumping: asyncio.Task[None] | None = None
        """Answers requests for a state dump, one after the other."""
        self._liveness = Liveness(random.random, addresses=len(endpoints))
        self._timer: asyncio.Handle | None = None
        self._timer_at = NEVER
        """When it runs. uvloop's handle of a time that has come does not have it."""
        self._waiting = 0
        """Tasks in `wait_until`."""
        self._hang_ups: dict[str, float] = {}
        """Address to the handshakes that broke off there; minus infinity once a handshake has succeeded."""
        self._refusals: dict[str, str] = {}
        """Address to the reason why no handshake will succeed there, since the last one that did."""
        self._is_connected = False
        self._is_read_scheduled = False

    def open(self) -> None:
        """Connect, in the running event loop.

        Raises:
            ConnectFailed: an address is invalid.
        """
        for address, _ in self.endpoints if self._has_several else ():
            if not ADDRESS.fullmatch(address):
                raise _describe_invalid(address)
        self._loop = asyncio.get_running_loop()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=len(self.endpoints))
        try:
            self._open_socket()
        except zmq.ZMQError:
            self._close_sockets()
            self._context.term()
            raise _describe_invalid(self.address) from None
        if self._has_several:
            self._liveness.start_move(self._loop.time())
            self._schedule_timer()

    @property
    def address(self) -> str:
        """The present address."""
        return self.endpoints[self._turn].address

    @property
    def _has_several(self) -> bool:
        return len(self.endpoints) > 1

    # The program ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the reason for the end of the session, if it has ended."""
        reason = self.session.end_reason
        if reason is not None:
            raise copy(reason)  # a new exception for each caller, or their tracebacks would be joined

    async def wait_until(self, holds: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Wait until the condition holds or the session ends.

        Meanwhile messages are read even if the buffer of results is full, as the awaited answer may be behind them.

        Raises:
            TimeoutError: so many seconds have passed.
            Exception: the session has ended.
        """
        async with asyncio.timeout(timeout_s):
            while not holds():
                self.check()
                self._waiting += 1
                self._read_soon()
                try:
                    await self.changed.wait()
                finally:
                    self._waiting -= 1

    def flush(self) -> None:
        """Send the messages of the session."""
        now = self._loop.time()
        for outgoing in self.session.take_outgoing():
            self._send(outgoing)
            self._liveness.sent_at = now
        self._follow_session(now)

    def next_result(self) -> Result | None:
        """Return the next result of the session, if there is one, and read on if the buffer was full.

        Raises:
            Exception: the session has ended.
        """
        self.check()
        was_reading = self.is_reading
        result = self.session.next_result()
        self.flush()
        if not was_reading:
            self._read_soon()
        if result is None:
            self.check()
        return result

    def _read_soon(self) -> None:
        """Read messages in the next turn of the event loop; to be called when `is_reading` may have become True."""
        if not self._is_read_scheduled and not self._socket.closed:
            self._is_read_scheduled = True
            self._loop.call_soon(self._read)

    @property
    def is_reading(self) -> bool:
        """Whether messages are read."""
        if self.session.end_reason is not None:
            return False
        return len(self.session.buffer) < READ_AHEAD_MESSAGES or self._waiting > 0

    def end(self, reason: Exception) -> None:
        """End the session, and wake all waiting tasks."""
        self.session.end(reason)
        self._wake()

    async def close(self) -> None:
        """Close once the last messages have left, or after the linger time."""
        if self._timer is not None:
            self._timer.cancel()
        if self._dumping is not None:
            self._dumping.cancel()
        if not self._context.closed:
            self._close_sockets()
            await asyncio.to_thread(self._context.term)

    # The socket -----------------------------------------------------------------------------------------------------

    def _open_socket(self) -> None:
        self._is_connected = False
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in OPTIONS.items():
            self._socket.set(option, value)
        for option, value in SEVERAL_OPTIONS.items() if self._has_several else ():
            self._socket.set(option, value)
        # A thread for each address: it looks names up, and waits up to a minute for a resolver that does not answer.
        self._socket.set(zmq.SocketOption.AFFINITY, 1 << self._turn)
        address, keys = self.endpoints[self._turn]
        if keys is not None:
            keys.apply(self._socket)
        self._monitor = self._socket.get_monitor_socket()
        self._socket.connect(address)
        for socket in (self._socket, self._monitor):
            self._loop.add_reader(socket.fileno(), self._read)

    def _reconnect(self) -> None:
        """Replace the socket by one to the next address. The peer of the present one does not answer, although the
        connection may still exist.
        """
        self._close_sockets(linger_ms=0)
        self._turn = (self._turn + 1) % len(self.endpoints)
        self._liveness.start_move(self._loop.time())
        try:
            self._open_socket()
        except zmq.ZMQError as error:
            _log.warning("%s: %s: %s", self.session.protocol.rm_id, self.address, error)
            self._close_sockets(linger_ms=0)
            self._liveness.fail(self._loop.time())

    def _lose_connection(self) -> None:
        """Close the socket after its connection broke or could not be made, and turn to the next address soon."""
        self._close_sockets(linger_ms=0)
        self._liveness.fail(self._loop.time())
        self._schedule_timer()

    def _send(self, message: EncodedMessage) -> None:
        """Send, or drop the message if there is no connection: the session continues on the next one."""
        if not self._is_connected or self._socket.closed:
            return
        self._read_soon()  # using the socket may reset the descriptor, which signals received messages
        if _is_readable(self._monitor):
            return  # the connection broke: the first message on the next one must be that of `ClientSession.start`
        try:
            self._socket.send_multipart(encode_frames(message.header, message.body), zmq.NOBLOCK)
        except zmq.Again:
            self._is_connected = False

    def _read(self) -> None:
        """Read all messages, as the descriptors signal changes only."""
        self._is_read_scheduled = False
        self._handle_socket_events()
        for _ in range(READS_MAX):
            if self._socket.closed or not self.is_reading:
                return
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._receive(frames)
        self._read_soon()

    def _handle_socket_events(self) -> None:
        while not self._socket.closed and _is_readable(self._monitor):
            message = recv_monitor_message(self._monitor, zmq.NOBLOCK)
            event = message["event"]
            self._is_connected = event == zmq.Event.HANDSHAKE_SUCCEEDED
            if reason := self._find_key_refusal(event, message["value"]):
                self._refusals[self.address] = f"{self.address} does not let {self.session.protocol.rm_id} in: {reason}"
                if len(self._refusals) == len(self.endpoints):
                    self.end(KeyRefused("; ".join(self._refusals.values())))
            if self._is_connected:
                self._hang_ups[self.address] = -math.inf
                self._refusals.clear()
                self._socket.get(zmq.EVENTS)  # the socket can send only after this
                self._start_session()
            elif self._has_several and event in (zmq.Event.CLOSED, zmq.Event.DISCONNECTED):
                self._lose_connection()

    def _find_key_refusal(self, event: int, value: int) -> str:
        """Return why no handshake with the present address will ever succeed; empty if one may. ZeroMQ would try
        again, or give up silently.
        """
        address, keys = self.endpoints[self._turn]
        if event == zmq.Event.HANDSHAKE_FAILED_AUTH and keys is not None:
            own = fingerprint(keys.own.public)
            return f"our key {own} is not on its allow-list (`yunishard keys allow` puts it there)"
        if event == zmq.Event.HANDSHAKE_FAILED_PROTOCOL and value == zmq.Event.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            if keys is not None:
                return "it has no keys, and we want it to"
            return "it takes only connections with keys (YUNISHARD_KEYS names the file of ours)"
        if event == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL and keys is not None:
            self._hang_ups[address] = self._hang_ups.get(address, 0) + 1
            if self._hang_ups[address] == HANG_UPS_MAX:
                return f"it hangs up: its key is not {fingerprint(keys.server)}, as in our file, or it has none"
        return ""

    def _close_sockets(self, linger_ms: int = OPTIONS[zmq.SocketOption.LINGER]) -> None:
        self._is_connected = False
        if self._socket.closed:
            return
        for socket in (self._socket, self._monitor):
            self._loop.remove_reader(socket.fileno())
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_ms)

    # The session ----------------------------------------------------------------------------------------------------

    def _start_session(self) -> None:
        """Start or continue the session on a new connection, unless the core requested a pause."""
        if self._liveness.state != "paused":
            self.session.start()
            self.flush()
            self._wake()

    def _receive(self, frames: list[bytes]) -> None:
        self._liveness.received_at = self._loop.time()
        self.session.receive(frames)
        self.flush()
        self._wake()
        if self.session.state_dump_requests and (self._dumping is None or self._dumping.done()):
            self._dumping = self._loop.create_task(self._answer_state_dumps())

    async def _answer_state_dumps(self) -> None:
        requests = self.session.state_dump_requests
        while requests and self._state_dump is not None:
            partition, asked = requests[0]
            answer = await call_state_dump(asked, self._state_dump)
            requests.popleft()
            self.session.answer_state_dump(partition, answer)
            self.flush()

    def _wake(self) -> None:
        self.changed.set()
        self.changed.clear()

    # Time -----------------------------------------------------------------------------------------------------------

    def _follow_session(self, now: float) -> None:
        """Adapt the timers to the state of the session."""
        session, protocol, liveness = self.session, self.session.protocol, self._liveness
        if session.end_reason is not None:
            liveness.suspend()
        elif session.pause_s is not None:
            _log.warning("%s: %s is not ready: %s", protocol.rm_id, self.address, session.pause_reason)
            liveness.pause(session.pause_s, now)
            session.pause_s = None
        elif protocol.state == "registering" and self._is_connected and liveness.state != "paused":
            liveness.suspend()
        elif protocol.resuming or protocol.state in ("resuming", "leaving"):
            if liveness.state not in ("paused", "attempting"):
                if protocol.state == "resuming":
                    _log.warning("%s: resuming the session with %s", protocol.rm_id, self.address)
                liveness.start_attempt(now)
        elif not self._is_connected or protocol.state != "open" or liveness.state == "open":
            pass
        elif registered := session.registered:
            liveness.open(registered.heartbeat_milli_seconds, registered.silence_milli_seconds, now)
        self._schedule_timer()

    def _schedule_timer(self) -> None:
        at = self._liveness.deadline
        if self._timer is not None:
            if self._timer_at <= at:
                return  # it finds that nothing is due, and schedules the next one
            self._timer.cancel()
        self._timer, self._timer_at = None if at == NEVER else self._loop.call_at(at, self._run_timer), at

    def _run_timer(self) -> None:
        self._timer = None
        if self.session.end_reason is not None:
            return
        now = self._loop.time()
        match self._liveness.next_action(now, reading=self.is_reading):
            case "heartbeat":
                self._send(self.session.protocol.heartbeat())
            case "reconnect":
                before, rm_id = self.address, self.session.protocol.rm_id
                self._reconnect()
                if self._has_several:
                    _log.warning("%s: trying %s instead of %s", rm_id, self.address, before)
                else:
                    _log.warning("%s: no answer from %s, reconnecting", rm_id, before)
            case "retry":
                self._liveness.start_attempt(now)
                self._start_session()
        self._schedule_timer()


def _describe_invalid(address: str) -> ConnectFailed:
    return ConnectFailed(f"{address!r} is not an address: it must be tcp://HOST:PORT")


def _is_readable(socket: zmq.Socket[bytes]) -> bool:
    events = socket.get(zmq.EVENTS)
    assert isinstance(events, int), events
    return bool(events & zmq.POLLIN)
