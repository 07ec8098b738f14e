"""The leading broker's port with several hosts: `ipc://` for its own host, `tcp://` with CURVE for the others.

A host gets in if its key is on the allow-list in the directory of keys; all processes of a host use its one pair. Keys
change while the broker runs. When a key is removed from the list, its connections end, and those that have not sent
anything yet. When this host has a new pair, the port listens with that one: all connections of other hosts end, and are
made again once their supervisors have the new key from the lease of the leader.

Not here: the other end (`common/transport/cluster_connection.py`), authentication (`common/transport/zap.py`), the
files (`yunishard/cli/commands/cluster.py`).
"""

import asyncio
import errno
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from yunishard.common.settings import host_and_port
from yunishard.common.transport.cluster_connection import HEARTBEATS, KEYS_CHECK_S, join
from yunishard.common.transport.curve_keys import ALLOWED, KeyPair, fingerprint, host_file, read_pair
from yunishard.common.transport.event_loop import HANDSHAKE_MAX_MS, BrokerPort
from yunishard.common.transport.inbox import Wake
from yunishard.common.transport.zap import ZapAuthenticator

DOMAIN: Final = "yunishard-cluster"

BIND_AGAIN_S: Final = 0.05
"""Seconds between attempts to listen with a new pair: ZeroMQ frees an address some time after it was asked to."""

BIND_ATTEMPTS: Final = 20
"""Attempts after which the log names the reason why other hosts cannot connect."""

_EVENTS: Final = zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED

_log = logging.getLogger("core.broker")


class ClusterPort(BrokerPort):
    """The port of the leading broker. A process of any host has the same name however it is connected."""

    def __init__(self, address: str, *, wake: Wake, cluster_address: str, keys: Path) -> None:
        """Listen at the `ipc://` address and the cluster's address; `keys` is the directory with the keys of this host.

        Raises:
            OSError: an address cannot be bound, or a file of the keys cannot be used.
        """
        super().__init__(address, wake=wake)
        self._loop = asyncio.get_running_loop()
        self._file = host_file(keys)
        self._key_of: dict[int, str] = {}
        """Descriptor of each connection over `tcp://` to its key; empty before its first message."""
        self._known: set[bytes] = set()
        """Routing ids from which a message was received since the latest connection was accepted."""
        self._monitor = self.raw.get_monitor_socket(_EVENTS)
        self._loop.add_reader(self._monitor.FD, self._read_events)
        self._read_events()  # the descriptor signals only what comes after everything was read
        self._timer: asyncio.TimerHandle | None = None
        self._zap: ZapAuthenticator | None = None
        try:
            self._zap = zap = ZapAuthenticator(
                read_pair(self._file), keys / ALLOWED, domain=DOMAIN, log=_log, is_keyless=True
            )
            zap.on_change = self._end_removed
            self.cluster_address = self._find_address(zap, cluster_address)
        except OSError:
            self.close()
            raise
        self._timer = self._loop.call_later(KEYS_CHECK_S, self._check_pair, zap)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._monitor.FD)
        self.raw.disable_monitor()
        self._monitor.close(linger=0)
        super().close()
        if self._zap is not None:
            self._zap.close()

    # Listening --------------------------------------------------------------------------------------------------------

    def _find_address(self, zap: ZapAuthenticator, address: str) -> str:
        """Listen at the first address of the name that this machine has; return it with the port's number."""
        host, port = host_and_port(address)
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for *_, where in found:
            try:
                return self._bind(zap, join(str(where[0]), str(port)))
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
        raise OSError(errno.EADDRNOTAVAIL, f"cannot listen on {address}: this machine does not have its address")

    def _bind(self, zap: ZapAuthenticator, address: str) -> str:
        """Listen with the present pair. Options hold for addresses that are bound later, and the guard of descriptors
        may bind the `ipc://` address again, which has no keys.
        """
        options = {**HEARTBEATS, zmq.HANDSHAKE_IVL: HANDSHAKE_MAX_MS, zmq.IPV6: int("[" in address)}
        zap.secure(self.raw)
        for option, value in options.items():
            self.raw.setsockopt(option, value)
        try:
            self.raw.bind(address)
        except zmq.ZMQError as error:
            raise OSError(error.errno, f"cannot listen on {address}: {zmq.strerror(error.errno or 0)}") from error
        finally:
            self.raw.curve_server = False
        return bytes(self.raw.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()

    def _check_pair(self, zap: ZapAuthenticator) -> None:
        """Listen with the new pair if the host has one. An unusable file changes nothing."""
        self._timer = self._loop.call_later(KEYS_CHECK_S, self._check_pair, zap)
        with suppress(OSError):
            pair = read_pair(self._file)
            if pair != zap.pair:
                _log.info("%s: the host has a new key, %s", self._file, fingerprint(pair.public))
                self.raw.unbind(self.cluster_address)
                self._listen_with(zap, pair)

    def _listen_with(self, zap: ZapAuthenticator, pair: KeyPair, attempt: int = 1) -> None:
        assert self._timer is not None
        self._timer.cancel()
        zap.pair = pair
        try:
            self._bind(zap, self.cluster_address)
            self._timer = self._loop.call_later(KEYS_CHECK_S, self._check_pair, zap)
        except OSError as error:
            if attempt == BIND_ATTEMPTS:
                _log.warning("no other host can connect, which is tried again: %s", error)
            self._timer = self._loop.call_later(BIND_AGAIN_S, self._listen_with, zap, pair, attempt + 1)

    # Connections ------------------------------------------------------------------------------------------------------

    def _read(self) -> tuple[zmq.Frame, list[bytes]] | None:
        found = super()._read()
        if found is not None and (identity := found[0].bytes) not in self._known:
            self._known.add(identity)
            with suppress(zmq.ZMQError):  # a process of this host has no key
                self._key_of[int(found[0].get(zmq.SRCFD))] = str(found[0].get("User-Id"))
        return found

    def _read_events(self) -> None:
        while True:
            try:
                event = recv_monitor_message(self._monitor, zmq.NOBLOCK)
            except zmq.Again:
                return
            if event["event"] == zmq.Event.DISCONNECTED:
                self._key_of.pop(event["value"], None)
                continue
            self._known.clear()
            if event["endpoint"].startswith(b"tcp:"):
                self._key_of[event["value"]] = ""

    def _end_removed(self) -> None:
        """End all connections whose key is not allowed any more, or not known yet: a process connects again."""
        zap = self._zap
        for descriptor, key in self._key_of.items():
            if zap is not None and not zap.is_allowed(key):
                self._end(descriptor)

    def _end(self, descriptor: int) -> None:
        """Shut down a connection. ZeroMQ finds that it has ended, and closes its descriptor. If it has done so already,
        another connection may have the number: that is made again.
        """
        port = host_and_port(self.cluster_address)[1]
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.getsockname()[1] == port:
                connection.shutdown(socket.SHUT_RDWR)
