"""The ZAP authenticator: admits connections whose CURVE keys are on an allow-list.

ZeroMQ asks it for each connection to a port with keys (the ZAP protocol, <https://rfc.zeromq.org/spec/27/>, inside the
process), and reports the connection's key with every message. The list is checked every second. A list that is not
valid changes nothing, and the log names the wrong line. Logs name keys by their fingerprints.

Not here: the format of the allow-list (`curve_keys.py`); open connections whose key is removed from the list: the
native port refuses their messages (`rmproxy/authentication.py`), the broker's ends them (`broker/cluster_port.py`).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import zmq
from zmq.utils import z85

from yunishard.common.process.folders import read_stamp
from yunishard.common.retries import LogLimit
from yunishard.common.transport import curve_keys
from yunishard.common.transport.curve_keys import AllowList, AllowListError, KeyPair, fingerprint
from yunishard.common.transport.event_loop import CONTEXT, clock

ZAP_ADDRESS: Final = "inproc://zeromq.zap.01"

CHECK_EVERY_S: Final = 1.0
"""Seconds between two checks whether the allow-list has changed."""

REFUSALS_LOGGED_MAX: Final = 10
"""Refused connections that are logged in a minute; the next log line counts the others."""

ZAP_BATCH_MAX: Final = 64
"""Connections that are authenticated before other callbacks run."""


class ZapAuthenticator:
    """Authenticates connections of one port; made and closed in a running event loop. A process has one at most.

    Raises:
        OSError: the list cannot be used.
    """

    def __init__(
        self, pair: KeyPair, allowed: Path, *, domain: str, log: logging.Logger, is_keyless: bool = False
    ) -> None:
        """`domain` is the ZAP domain of the port. With `is_keyless`, the port also has addresses without keys; an
        address with keys refuses connections without one before it asks here.
        """
        self.on_change: Callable[[], None] = lambda: None
        """Called after the list has changed."""
        self.pair = pair
        self._file = allowed
        self._domain = domain.encode()
        self._is_keyless = is_keyless
        self._log = log
        self._stamp = read_stamp(allowed)
        try:
            self._apply(curve_keys.parse_allow_list(curve_keys.read_allow_list(allowed)))
        except AllowListError as error:
            raise OSError(f"{allowed}: {error}") from None
        self._problem = ""
        """Why the list could not be read at the latest attempt; empty if it could."""
        self._log_limit = LogLimit(REFUSALS_LOGGED_MAX)
        self._loop = asyncio.get_running_loop()
        self._socket: zmq.Socket[bytes] = CONTEXT.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ZAP_ADDRESS)
        self._loop.add_reader(self._socket.FD, self._authenticate)
        self._timer = self._loop.call_later(CHECK_EVERY_S, self._reload)

    def close(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._socket.FD)
        self._socket.unbind(ZAP_ADDRESS)  # closing frees the address only some time later, from another thread
        self._socket.close()

    def secure(self, socket: "zmq.Socket[bytes]") -> None:
        """Make a socket accept only clients whose key is allowed in the ZAP domain; before it is bound."""
        socket.curve_server = True
        socket.curve_secretkey = self.pair.secret.encode()
        socket.setsockopt(zmq.ZAP_DOMAIN, self._domain)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def is_allowed(self, key: str) -> bool:
        """Whether this public key is on the list."""
        return key in self._list

    def _apply(self, new: AllowList) -> None:
        self._list = new

    def _reload(self) -> None:
        self._timer = self._loop.call_later(CHECK_EVERY_S, self._reload)
        try:
            stamp = read_stamp(self._file)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            before = self._list
            self._apply(curve_keys.parse_allow_list(curve_keys.read_allow_list(self._file)))
        except (AllowListError, OSError) as error:
            problem, self._problem = self._problem, str(error)
            if problem != self._problem:
                self._log.warning(
                    "the allow-list is not usable, the previous one stays in force: %s: %s", self._file, error
                )
            return
        self._problem = ""
        gone = ", ".join(sorted(fingerprint(key) for key in before.keys() - self._list.keys()))
        self._log.info("%s: keys allowed now: %d%s", self._file, len(self._list), gone and f", no longer {gone}")
        self.on_change()

    def _authenticate(self) -> None:
        """Answer all ZAP requests. The descriptor is edge-triggered, so this reads until nothing is left."""
        if self._socket.closed:
            return
        for _ in range(ZAP_BATCH_MAX):
            try:
                route, empty, version, request, domain, address, _, mechanism, *credentials = (
                    self._socket.recv_multipart(zmq.NOBLOCK)
                )
            except zmq.Again:
                return
            key = z85.encode(credentials[0]).decode() if mechanism == b"CURVE" and credentials else ""
            is_keyless = self._is_keyless and mechanism == b"NULL"
            good = domain == self._domain and (key in self._list or is_keyless)
            if not good:
                peer = f"key {fingerprint(key)}" if key else "a connection without a key"
                if (more := self._log_limit.admit(clock())) is not None:
                    source = address.decode(errors="replace")
                    self._log.warning("%s from %s is not on the allow-list%s", peer, source, more)
            verdict = (b"200", b"OK", key.encode()) if good else (b"400", b"not on the allow-list", b"")
            with suppress(zmq.ZMQError):  # the connection has closed
                self._socket.send_multipart([route, empty, version, request, *verdict, b""], zmq.NOBLOCK)
        self._loop.call_soon(self._authenticate)
