"""Reports the state of the system to the service manager that started it, as `sd_notify(3)` describes.

With `Type=notify`, `systemctl start` returns once the system is ready. With `WatchdogSec=`, systemd restarts a
supervisor whose event loop hangs. Without NOTIFY_SOCKET in the environment, nothing is sent.
"""

import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

ALIVE_S: Final = 1.0
"""Seconds between two reports that the supervisor is alive. WatchdogSec= should be several times as long."""

_log = logging.getLogger("core.supervisor")


class ServiceManager:
    """The socket of the service manager, if there is one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._alive_at = 0.0
        """When the next report that the supervisor is alive is due."""

    def send(self, state: str) -> None:
        """Report a state. The system works without its service manager, so an error is only logged."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as end:
                end.sendto(state.encode(), self._address)
        except OSError as error:
            _log.warning("the service manager at NOTIFY_SOCKET cannot be reached: %s", os.strerror(error.errno or 0))

    def report_alive(self, now: float) -> None:
        """Report that the event loop runs, if that is due."""
        if now >= self._alive_at:
            self._alive_at = now + ALIVE_S
            self.send("WATCHDOG=1")
