"""A connection to the leading broker of several hosts, which is made again whenever it breaks.

    connecting --handshake--> up --the connection breaks--> paused --pause--> connecting
        └────────── refused, or no handshake in ATTEMPT_MAX_S ──────┘

Messages in flight are lost when a connection breaks, although both processes live. Each connection therefore has a
socket of its own, without ZeroMQ's reconnection: nothing that was queued for an earlier connection reaches a later one.
Over `tcp://` both ends prove their CURVE keys. ZMTP heartbeats find a link that is cut, within HEARTBEAT_MS +
SILENCE_MS; they are answered by ZeroMQ's own thread, so a process that computes for long keeps its connection.

The key files are read for each attempt, and checked each KEYS_CHECK_S: a process whose host has a new pair connects
again with that.

Not here: messages (`event_loop.py`), the keys of the broker's port, and who is allowed there (`zap.py`).
"""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from yunishard.common.messages.wire import BrokerAddress
from yunishard.common.text_formats import describe_file_error
from yunishard.common.transport.curve_keys import ClientKeys, KeyPair, fingerprint, host_file, read_pair

ATTEMPT_MAX_S: Final = 5.0
"""Seconds that an attempt to connect may take, with the resolution of the name and the handshake."""

PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0
"""Seconds between attempts to connect; each pause is twice as long as the one before."""

HEARTBEAT_MS: Final = 1000
"""Time between two ZMTP heartbeats of each end."""

SILENCE_MS: Final = 2000
"""Time after a heartbeat without any byte from the other end, after which the connection counts as broken."""

KEYS_CHECK_S: Final = 1.0
"""Seconds between two checks whether the files of the keys have changed."""

HEARTBEATS: Final = {
    zmq.HEARTBEAT_IVL: HEARTBEAT_MS,
    zmq.HEARTBEAT_TIMEOUT: SILENCE_MS,
    zmq.HEARTBEAT_TTL: HEARTBEAT_MS + SILENCE_MS,
}
"""Options of a socket at either end of a connection between hosts."""

_FAILURES: Final = (
    zmq.Event.CLOSED,
    zmq.Event.DISCONNECTED,
    zmq.Event.HANDSHAKE_FAILED_AUTH,
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL,
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL,
)
_EVENTS: Final = sum((zmq.Event.HANDSHAKE_SUCCEEDED, *_FAILURES))

Socket = zmq.Socket[bytes]

_log = logging.getLogger("core.rpc")


class ClusterConnection:
    """Keeps a process connected to a broker until it is closed; made and closed in a running event loop."""

    def __init__(
        self,
        broker: BrokerAddress,
        keys: Path,
        *,
        new_socket: Callable[[], Socket],
        on_up: Callable[[Socket], None],
        on_down: Callable[[Socket], None],
    ) -> None:
        """`keys` is the directory with the pair of this host. `on_up` is called with the socket of each connection that
        is established, and `on_down` before that socket is closed.
        """
        self.is_up = False
        self._broker = broker
        self._keys = keys
        self._new_socket, self._on_up, self._on_down = new_socket, on_up, on_down
        self._loop = asyncio.get_running_loop()
        self._socket: Socket | None = None
        self._pair: KeyPair | None = None
        """The pair with which the present connection was made; None over `ipc://`."""
        self._attempts = 0
        """Attempts since the latest connection that was up."""
        self._problem = ""
        """Why the latest attempt failed, as it was logged."""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle = self._loop.call_soon(self._attempt)

    def close(self, linger_ms: int = 0) -> None:
        """Close; what is queued may still be sent for this time."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._close_socket(linger_ms)

    def _attempt(self) -> None:
        self._attempts += 1
        text = f"no answer within {ATTEMPT_MAX_S:g} s"
        self._timer = self._loop.call_later(ATTEMPT_MAX_S, self._fail, text)
        self._task = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        broker = self._broker
        try:
            addresses = await resolve(broker.address)
            self._pair = read_pair(host_file(self._keys)) if broker.key else None
            self._open(addresses[self._attempts % len(addresses)])
        except OSError as error:
            self._fail(describe_file_error(error) if isinstance(error, socket.gaierror) else str(error))

    def _open(self, address: str) -> None:
        one = self._socket = self._new_socket()
        try:
            one.setsockopt(zmq.RECONNECT_IVL, -1)
            one.setsockopt(zmq.IPV6, int("[" in address))
            if self._pair is not None:
                ClientKeys(self._pair, self._broker.key).apply(one)
                for option, value in HEARTBEATS.items():
                    one.setsockopt(option, value)
            monitor = one.get_monitor_socket(_EVENTS)
            self._loop.add_reader(monitor.FD, self._read_events)
            one.connect(address)
        except zmq.ZMQError as error:
            raise OSError(f"cannot connect: {zmq.strerror(error.errno or 0)}") from error
        self._read_events()

    def _read_events(self) -> None:
        """Read all events: the descriptor signals changes only."""
        one = self._socket
        while one is not None and one is self._socket:
            try:
                message = recv_monitor_message(one.get_monitor_socket(), zmq.NOBLOCK)
            except zmq.Again:
                return
            event = message["event"]
            if event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self._go_up(one)
            elif event in _FAILURES:
                self._fail(self._explain(event))

    def _explain(self, event: int) -> str:
        if self.is_up:
            return "the connection broke"
        if event == zmq.Event.CLOSED:
            return "nothing listens there"
        if self._pair is None:
            return "the handshake failed"
        if event == zmq.Event.HANDSHAKE_FAILED_AUTH:
            return f"key {fingerprint(self._pair.public)} of this host is not allowed there"
        return f"the handshake failed: its key may not be {fingerprint(self._broker.key)}"

    def _go_up(self, one: Socket) -> None:
        if self._problem:
            _log.info("connected to the broker at %s", self._broker.address)
        self.is_up, self._attempts, self._problem = True, 0, ""
        self._timer.cancel()
        self._timer = self._loop.call_later(KEYS_CHECK_S, self._check_keys)
        self._on_up(one)

    def _check_keys(self) -> None:
        """Connect again if the host has another pair. An unusable file changes nothing until the next attempt."""
        self._timer = self._loop.call_later(KEYS_CHECK_S, self._check_keys)
        if self._pair is None:
            return
        try:
            pair = read_pair(host_file(self._keys))
        except OSError:
            return
        if pair != self._pair:
            _log.info("the host has a new key, %s: connecting again", fingerprint(pair.public))
            self._try_again()

    def _fail(self, problem: str) -> None:
        """Give up this connection or attempt, and make another attempt."""
        if problem != self._problem:
            _log.warning("no connection to the broker at %s: %s", self._broker.address, problem)
        self._problem = problem
        self._try_again()

    def _try_again(self) -> None:
        """Close the socket, and make another attempt after a pause."""
        self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task(self._loop):
            self._task.cancel()
        self._task = None
        self._close_socket()
        pause_s = min(PAUSE_MIN_S * 2 ** min(self._attempts, 10), PAUSE_MAX_S)
        self._timer = self._loop.call_later(pause_s, self._attempt)

    def _close_socket(self, linger_ms: int = 0) -> None:
        one, self._socket = self._socket, None
        if one is None:
            return
        if self.is_up:
            self.is_up = False
            self._on_down(one)
        monitor = one.get_monitor_socket()
        self._loop.remove_reader(monitor.FD)
        one.disable_monitor()
        monitor.close(linger=0)
        one.close(linger_ms)


async def resolve(address: str) -> Sequence[str]:
    """Return the same address with the IP addresses of its host; at least one.

    Raises:
        OSError: the name is not found.
    """
    scheme, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    if scheme != "tcp" or is_ip(host):
        return [address]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(join(str(where[0]), port) for *_, where in found))


def is_ip(host: str) -> bool:
    """Whether a host is given as an IP address, maybe in brackets."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def join(host: str, port: str) -> str:
    """Return a native address; an IPv6 address gets brackets."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
