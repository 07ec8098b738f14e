"""Closes the ports for RMs while this host has no connection to the leading broker of several hosts.

A host may be cut off from the other hosts while its RMs still reach it. After a while without a connection, longer
than another broker needs to take over, the proxy sends `Goodbye` and refuses connections, so that RMs with several
addresses, clients of gRPC and load balancers turn to another host. When the connection is back, the ports open again.

Not here: how the ports are closed (`common/transport/event_loop.py`, `grpc_scheduler_service.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

CHECK_EVERY_S: Final = 0.5
"""Seconds between two checks of the connection."""

NO_BROKER: Final = "this host has no connection to the leading broker"

_log = logging.getLogger("core.rmproxy")


class Link(Protocol):
    """The connection to the leading broker."""

    @property
    def is_up(self) -> bool:
        """Whether it exists now."""


class Port(Protocol):
    """A port for RMs."""

    def pause(self) -> None:
        """Refuse connections until `resume`."""

    def resume(self) -> None:
        """Accept connections again.

        Raises:
            OSError: the address cannot be bound now.
        """


class PortGate:
    """Pauses the ports when the connection has been down for `patience_s`, and resumes them when it is up again. It
    calls `on_close` with the reason one check earlier: ZeroMQ ends the connections of a paused port, and an RM may lose
    what it has not read yet. Made and closed in a running event loop.
    """

    def __init__(
        self, link: Link, ports: Sequence[Port], *, patience_s: float, on_close: Callable[[str], None]
    ) -> None:
        self._link = link
        self._ports = ports
        self._patience_s = patience_s
        self._on_close = on_close
        self._is_open = True
        self._has_dismissed = False
        """Whether `on_close` was called, and the connection has been down since."""
        self._loop = asyncio.get_running_loop()
        self._up_at = self._loop.time()
        """When the connection was last up, or the start."""
        self._timer = self._loop.call_later(CHECK_EVERY_S, self._check)

    def close(self) -> None:
        """Check no more."""
        self._timer.cancel()

    def _check(self) -> None:
        self._timer = self._loop.call_later(CHECK_EVERY_S, self._check)
        now = self._loop.time()
        down_s = now - self._up_at
        if self._link.is_up:
            self._up_at, self._has_dismissed = now, False
            if not self._is_open:
                self._try_to_open(down_s)
        elif self._is_open and self._has_dismissed:
            self._is_open = False
            _log.warning("%s for %.0f s: the ports for RMs are closed until there is one", NO_BROKER, down_s)
            for port in self._ports:
                port.pause()
        elif self._is_open and down_s >= self._patience_s:
            self._has_dismissed = True
            self._on_close(NO_BROKER)

    def _try_to_open(self, down_s: float) -> None:
        try:
            for port in self._ports:
                port.resume()
        except OSError as error:
            _log.warning("the ports for RMs cannot be opened yet: %s", error)
            return
        self._is_open = True
        _log.info("connected to the leading broker: the ports for RMs are open again, after %.0f s", down_s)
