"""The system under chaos: a real `yunishard up` on one state directory, whose processes are found, stopped and killed.

Not here: which of them, and when (`conductor.py`).
"""

import contextlib
import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from tests.conformance.rest import Rest
from tests.deploy.system import Up, free_ports, gone, up

ROLES: Final = ("broker", "rmproxy", "webservice", "partition_worker")
SUPERVISOR: Final = "supervisor"
LEASE: Final = "3s"
"""Short, so that a worker that is stopped for longer loses its partition to another one."""

STOPPED_MAX_S: Final = 6.0


class System:
    """Started, and started again, by `revive`; killed at the end of the `with` block."""

    def __init__(self, folder: Path, *, spares: int) -> None:
        self.folder = folder
        self.state = folder / "state"
        self._arguments = (
            "--state",
            str(self.state),
            "--lease-timeout",
            LEASE,
            "--silence",
            "2s",
            "--spare-workers",
            str(spares),
        )
        native, grpc, rest = free_ports(3)
        self._ports = (
            "--native",
            f"tcp://127.0.0.1:{native}",
            "--grpc",
            f"127.0.0.1:{grpc}",
            "--rest",
            f"127.0.0.1:{rest}",
        )
        self._running = ExitStack()
        self.starts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def revive(self, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
        """Start it, or start it again where it was; `arguments` and environment variables hold for this start."""
        self.kill()
        self.starts += 1
        logs = self.folder / f"start-{self.starts}"
        logs.mkdir()
        command = (*self._arguments, *self._ports, *arguments)
        self.up: Up = self._running.enter_context(up(*command, folder=logs, variables=variables))
        endpoints = self.up.announced()
        self.native = endpoints["native"]
        self.rest = Rest(endpoints["rest"])

    def kill(self) -> None:
        """Kill all of its processes at once."""
        self._running.close()

    def processes(self) -> dict[str, list[int]]:
        """Who runs, by role."""
        found: dict[str, list[int]] = {SUPERVISOR: [self.up.process.pid]}
        for number, command in self.up.children.items():
            role = next((role for role in ROLES if f" {role} " in command), "")
            if role:
                found.setdefault(role, []).append(number)
        return found

    def signal(self, number: int, what: signal.Signals) -> bool:
        """Whether it was there to be signalled."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, what)
            return not gone(number) or what is signal.SIGKILL
        return False

    @property
    def dead(self) -> bool:
        """Whether the supervisor is gone."""
        return self.up.process.poll() is not None

    @property
    def last_words(self) -> str:
        return self.up.errors[-6000:]
