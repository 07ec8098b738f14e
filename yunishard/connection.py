"""What a resource manager knows, for the core's state dump: asked for when somebody looks for a fault.

Not here: who may ask, and what else is in a state dump (`docs/rest.md`).
"""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

import zmq
from zmq.utils.monitor import recv_monitor_message

from common.curve_keys import ClientKeys, fingerprint
from common.rm_messages import STATE_DUMP_BYTES_MAX, StateDumpAnswered, StateDumpAsked
from common.session import SessionState
from common.wire import BODY_BYTES_MAX, NEVER, encode_frames
from yunishard.exceptions import KeyRefused
from yunishard.liveness import Pulse
from yunishard.session import READ_AHEAD_MESSAGES, Dialogue

StateDump = Callable[[], str | Awaitable[str]]
"""Gives what is of use for finding a fault, as the text of a JSON object. It is called in a thread of its own, so it
may take its time, though the core waits for two seconds only; what it gives to be awaited runs in the event loop. It is
never called again before it is done.
"""

WAITING_MAX: Final = 16
"""Questions that wait for the same function; to more the answer is that it is busy."""

Say = Callable[[str, StateDumpAnswered], None]
"""Called with a partition's normalised name and what is to be said to it."""


class StateDumps:
    """The questions that are being answered, one after the other, in the running event loop."""

    def __init__(self, state_dump: StateDump, say: Say) -> None:
        self._state_dump = state_dump
        self._say = say
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    def asked(self, partition: str, question: StateDumpAsked) -> None:
        """Answer this, in a while."""
        if len(self._tasks) >= WAITING_MAX:
            busy = "state_dump of the resource manager is busy with earlier questions"
            self._say(partition, StateDumpAnswered(question=question.question, problem=busy))
            return
        task = asyncio.get_running_loop().create_task(self._answer(partition, question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Nobody waits for the answers any more."""
        for task in tuple(self._tasks):
            task.cancel()

    async def _answer(self, partition: str, question: StateDumpAsked) -> None:
        async with self._turn:
            answered = await answer(question, self._state_dump)
        self._say(partition, answered)


async def answer(asked: StateDumpAsked, state_dump: StateDump) -> StateDumpAnswered:
    """What the function says, or why it says nothing."""
    try:
        found = await asyncio.to_thread(state_dump)
        text = found if isinstance(found, str) else await found
        size = len(text.encode())
    except Exception as error:  # the core gets an answer all the same, and people read the reason
        return _problem(asked, f"failed: {type(error).__name__}: {error}")
    if size > STATE_DUMP_BYTES_MAX:
        return _problem(asked, f"gave {size} bytes, at most {STATE_DUMP_BYTES_MAX} are taken")
    return StateDumpAnswered(question=asked.question, text=text)


def _problem(asked: StateDumpAsked, problem: str) -> StateDumpAnswered:
    told = f"state_dump of the resource manager {problem}".encode(errors="replace").decode()
    return StateDumpAnswered(question=asked.question, problem=told)


READ_AT_ONCE: Final = 256
"""Messages that are read before the event loop gets its turn."""

LINGER_MS: Final = 1_000
"""What was sent last may take this long to leave when the connection is closed."""

OPTIONS: Final[Mapping[zmq.SocketOption, int]] = {
    zmq.SocketOption.IMMEDIATE: 1,  # nothing waits for a connection that is not there, see above
    zmq.SocketOption.SNDHWM: 0,  # bounded by the windows of the protocol (`common/session.py`), so sending never waits
    zmq.SocketOption.RCVHWM: 1_000,
    zmq.SocketOption.MAXMSGSIZE: BODY_BYTES_MAX,
    zmq.SocketOption.LINGER: LINGER_MS,
    zmq.SocketOption.RECONNECT_IVL: 200,
    zmq.SocketOption.RECONNECT_IVL_MAX: 10_000,
    zmq.SocketOption.TCP_KEEPALIVE: 1,
    zmq.SocketOption.TCP_KEEPALIVE_IDLE: 30,
    zmq.SocketOption.TCP_KEEPALIVE_INTVL: 10,
    zmq.SocketOption.TCP_KEEPALIVE_CNT: 3,
}


HANG_UPS_MAX: Final = 3
"""Times that the first handshake with keys may break off; then the server's key is not what we think it is, as such a
server only hangs up."""

_EVENTS: Final = (
    zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.DISCONNECTED
    | zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
)


class Listener(Protocol):
    """Who speaks over a connection."""

    def connected(self) -> None:
        """There is a new connection: the first one, or the next after a break."""

    def received(self, frames: list[bytes]) -> None:
        """A message came."""

    def shut_out(self, reason: str) -> None:
        """The port does not take our key, or wants one, or is not the one whose key we have; nothing follows."""

    @property
    def hungry(self) -> bool:
        """Whether to read on. Once it has been False, the listener calls `look` when it is True again."""


class Connection:
    """A DEALER socket in the running event loop, with keys if there are any.

    Raises:
        ConnectionError: the address cannot be one.
    """

    def __init__(self, address: str, listener: Listener, keys: ClientKeys | None = None) -> None:
        self._address = address
        self._listener = listener
        self._keys = keys
        self._hang_ups: float = 0
        """Handshakes that broke off, none counts any more once one did not."""
        self._connected = False
        self._looking = False
        """A look is already due in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._open()
        except zmq.ZMQError as error:
            self._close_sockets()
            self._context.term()
            raise ConnectionError(f"{address!r} is no address ({error}): give one like tcp://127.0.0.1:9090") from None

    @property
    def closed(self) -> bool:
        return self._socket.closed

    def renew(self) -> None:
        """Begin again with another socket: the other end of this one says nothing, although it may still be there."""
        if self.closed:
            return
        self._unwatch()
        self._socket.set(zmq.LINGER, 0)
        self._close_sockets()
        self._open()

    def send(self, frames: Sequence[bytes]) -> None:
        """Send now or not at all: without a connection the message is dropped, `connected` tells when there is one."""
        if not self._connected or self.closed:
            return
        self.look()  # using the socket may swallow its descriptor's signal that something came
        if _readable(self._monitor):
            return  # the connection broke: what follows on the next one must begin with `connected`
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            self._connected = False

    def look(self) -> None:
        """See soon what has come."""
        if not self._looking and not self.closed:
            self._looking = True
            self._loop.call_soon(self._look)

    async def close(self) -> None:
        """Close once the last messages have left, or after `LINGER_MS`."""
        if self.closed:
            return
        self._unwatch()
        self._close_sockets()
        await asyncio.to_thread(self._context.term)

    # Private --------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._connected = False
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in OPTIONS.items():
            self._socket.set(option, value)
        if self._keys is not None:
            self._keys.apply(self._socket)
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        self._socket.connect(self._address)
        for socket in (self._socket, self._monitor):
            self._loop.add_reader(socket.fileno(), self._look)

    def _unwatch(self) -> None:
        for socket in (self._socket, self._monitor):
            self._loop.remove_reader(socket.fileno())

    def _look(self) -> None:
        """Take what has come. The descriptors only tell of changes, so this goes on until nothing is left."""
        self._looking = False
        self._watch()
        for _ in range(READ_AT_ONCE):
            if self.closed or not self._listener.hungry:
                return
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._listener.received(frames)
        self.look()

    def _watch(self) -> None:
        while not self.closed and _readable(self._monitor):
            message = recv_monitor_message(self._monitor, zmq.NOBLOCK)
            event = message["event"]
            self._connected = event == zmq.Event.HANDSHAKE_SUCCEEDED
            reason = self._shut_out(event, message["value"])
            if reason:
                self._listener.shut_out(reason)
            if self._connected:
                self._hang_ups = -math.inf
                self._socket.get(zmq.EVENTS)  # makes the socket notice that it can send now
                self._listener.connected()

    def _shut_out(self, event: int, value: int) -> str:
        """Why we will never get in, if this event says so. ZeroMQ itself would go on trying, or give up silently."""
        keys = self._keys
        if event == zmq.Event.HANDSHAKE_FAILED_AUTH and keys is not None:
            ours = fingerprint(keys.own.public)
            return f"our key {ours} is not on its allow-list (`yunishard keys allow` puts it there)"
        if event == zmq.Event.HANDSHAKE_FAILED_PROTOCOL and value == zmq.Event.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            return (
                "it takes only connections with keys (YUNISHARD_KEYS names the file of ours)"
                if keys is None
                else "it has no keys, and we want it to"
            )
        if event == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL and keys is not None:
            self._hang_ups += 1
            if self._hang_ups == HANG_UPS_MAX:
                return f"it hangs up: its key is not {fingerprint(keys.server)}, as our file says, or it has none"
        return ""

    def _close_sockets(self) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close()


def _readable(socket: zmq.Socket[bytes]) -> bool:
    events = socket.get(zmq.EVENTS)
    assert isinstance(events, int), events
    return bool(events & zmq.POLLIN)


_UNDER_WAY: Final[frozenset[SessionState]] = frozenset({"resuming", "leaving"})
"""States that an answer ends which should come soon."""

_log = logging.getLogger(__name__)


class Link:
    """Between one dialogue and the core at one address, in the running event loop.

    Raises:
        ConnectionError: the address cannot be one.
    """

    def __init__(
        self, address: str, dialogue: Dialogue, keys: ClientKeys | None, state_dump: StateDump | None = None
    ) -> None:
        self.address = address
        self.waiting = 0
        """How many wait for something that may be behind what nobody takes."""
        self.arrived = asyncio.Event()  # both only pulse: set and cleared at once, that wakes whoever waits just now
        self.room = asyncio.Event()
        self._dialogue = dialogue
        self._dumps = None if state_dump is None else StateDumps(state_dump, self._tell_state)
        self._pulse = Pulse(random.random)
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._connection = Connection(address, self, keys)

    def flush(self) -> None:
        """Send what the dialogue has to say."""
        now = self._loop.time()
        for outgoing in self._dialogue.to_send():
            self._connection.send(encode_frames(outgoing.header, outgoing.body))
            self._pulse.said(now)
        self._follow(now)

    def look(self) -> None:
        """Read on: there may be room, or somebody who waits."""
        self._connection.look()

    def wake(self) -> None:
        """Have everybody who waits see what has become of it."""
        _pulse(self.arrived)
        _pulse(self.room)

    async def close(self) -> None:
        """Close once the last messages have left."""
        if self._timer is not None:
            self._timer.cancel()
        if self._dumps is not None:
            self._dumps.close()
        await self._connection.close()

    # What the connection calls --------------------------------------------------------------------------------------

    @property
    def hungry(self) -> bool:
        """Whether the connection is to read on."""
        if self._dialogue.over is not None:
            return False
        return self._dialogue.backlog() < READ_AHEAD_MESSAGES or self.waiting > 0

    def connected(self) -> None:
        """The connection is there, for the first time or again."""
        if self._pulse.pausing:
            return  # it is spoken to when the pause is over
        self._dialogue.connected()
        self.flush()
        _pulse(self.arrived)  # who waits for an answer to what was sent before

    def received(self, frames: list[bytes]) -> None:
        """A message came."""
        self._pulse.heard(self._loop.time())
        room = self._dialogue.received(frames)
        self.flush()
        _pulse(self.arrived)
        if room:
            _pulse(self.room)
        for partition, question in self._dialogue.state_wanted():
            if self._dumps is not None:
                self._dumps.asked(partition, question)

    def shut_out(self, reason: str) -> None:
        """The port does not let us in."""
        rm_id = self._dialogue.session.rm_id
        self._dialogue.end(KeyRefused(f"{self.address} does not let {rm_id} in: {reason}"))
        self.wake()

    def _tell_state(self, partition: str, answered: StateDumpAnswered) -> None:
        self._dialogue.tell_state(partition, answered)
        self.flush()

    # Time -----------------------------------------------------------------------------------------------------------

    def _follow(self, now: float) -> None:
        """Let the pulse be as the dialogue is."""
        dialogue, pulse = self._dialogue, self._pulse
        if dialogue.over is not None:
            pulse.calling()
        elif dialogue.pause_s is not None:
            _log.warning("%s: %s is not ready: %s", dialogue.session.rm_id, self.address, dialogue.complaint)
            pulse.pause(dialogue.pause_s, now)
            dialogue.pause_s = None
        elif dialogue.session.state == "registering" and not pulse.pausing:
            pulse.calling()
        elif dialogue.session.resuming and not (pulse.pausing or pulse.attempting):
            pulse.trying(now)
        elif dialogue.session.state in _UNDER_WAY and not (pulse.pausing or pulse.attempting):
            if dialogue.session.state == "resuming":
                _log.warning("%s: resuming the session with %s", dialogue.session.rm_id, self.address)
            pulse.trying(now)
        elif dialogue.session.state == "open" and not (dialogue.session.resuming or pulse.is_talking):
            expects = dialogue.expects
            pulse.talking(expects.heartbeat_milli_seconds, expects.silence_milli_seconds, now)
        self._schedule()

    def _schedule(self) -> None:
        """Have a look at the pulse in time; one that comes too early sees that."""
        at = self._pulse.deadline
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = None if at == NEVER else self._loop.call_at(at, self._beat)

    def _beat(self) -> None:
        self._timer = None
        now = self._loop.time()
        match self._pulse.due(now, reading=self.hungry):
            case "heartbeat":
                outgoing = self._dialogue.session.heartbeat()
                self._connection.send(encode_frames(outgoing.header, outgoing.body))
            case "renew":
                _log.warning("%s: %s says nothing, connecting again", self._dialogue.session.rm_id, self.address)
                self._connection.renew()
                self._pulse.trying(now)
            case "again":
                self._pulse.trying(now)
                self.connected()
        self._schedule()


def _pulse(event: asyncio.Event) -> None:
    event.set()
    event.clear()
