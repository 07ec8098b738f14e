"""Hosts of a cluster: `yunishard up` on a machine each, started, killed and watched from outside."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.cluster.network import Machine
from tests.conformance.rest import Rest
from tests.deploy.system import find_partitions
from yunishard.broker.candidacy import FILE

LEASE_S: Final = 3.0
"""The lease time of partitions and hosts; that of the leader is half of it."""

SETTINGS: Final = ("--lease-timeout", f"{LEASE_S:g}s", "--silence", "2s", "--grpc", "off", "--insecure")
NATIVE: Final = 9090
REST: Final = 9080
CLUSTER: Final = 9094

ROLES: Final = ("broker", "rmproxy", "webservice", "partition_worker")
SUPERVISOR: Final = "supervisor"

YUNISHARD: Final = Path(sys.executable).with_name("yunishard")

READY_MAX_S: Final = 60.0
STOP_MAX_S: Final = 40.0
POLL_S: Final = 0.02


class Host:
    """One host. Its machine keeps nothing but the state directory."""

    def __init__(
        self, machine: Machine, folder: Path, arguments: Sequence[str], *, sources: Path | None = None
    ) -> None:
        self.machine = machine
        self.sources = sources
        """Of an earlier commit, which it runs from its next start on; None for the present ones."""
        self.name = machine.name
        self._folder = folder / machine.name
        self._folder.mkdir()
        self._arguments = (
            *SETTINGS,
            *("--state", str(self._folder / "state")),
            *("--native", self.native, "--rest", f"0.0.0.0:{REST}"),
            *arguments,
        )
        self._up: subprocess.Popen[str] | None = None
        self._ready = threading.Event()
        self.rest = Rest(f"http://{machine.address}:{REST}")

    @property
    def native(self) -> str:
        return f"tcp://{self.machine.address}:{NATIVE}"

    @property
    def is_ready(self) -> bool:
        """Whether it has said so since its start."""
        return self._ready.is_set()

    @property
    def log(self) -> str:
        """What it has logged since the first start."""
        with suppress(FileNotFoundError):
            return (self._folder / "errors").read_text()
        return ""

    def start(self) -> None:
        """Start it; `wait` waits until it is ready."""
        self._ready = threading.Event()
        command = (sys.executable, "-P", "-m", "yunishard.deploy", *self._arguments)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("YUNISHARD_")}
        if self.sources is not None:
            environment["PYTHONPATH"] = str(self.sources)
        with (self._folder / "errors").open("a") as errors:
            self._up = self.machine.start(
                *command, output=errors, as_root=True, stdout=subprocess.PIPE, text=True, cwd=None, env=environment
            )
        threading.Thread(target=_read, args=(self._up, self._ready), daemon=True).start()

    def wait(self) -> None:
        """Wait until it is ready.

        Raises:
            OSError: it is not in time.
        """
        if not self._ready.wait(READY_MAX_S):
            raise OSError(f"host {self.name} is not ready:\n{self.log[-3000:]}")

    def stop(self) -> None:
        """Stop it in order.

        Raises:
            OSError: it did not end, or not in order.
        """
        assert self._up is not None
        [number] = self.processes()[SUPERVISOR]
        os.kill(number, signal.SIGTERM)
        status = self._up.wait(STOP_MAX_S)
        if status != 0:
            raise OSError(f"host {self.name} ended with status {status}:\n{self.log[-3000:]}")

    def copy_state(self, other: "Host") -> None:
        """Become a copy of another host, which may run."""
        shutil.copytree(
            other._folder / "state", self._folder / "state", ignore=shutil.ignore_patterns("*.sock", "*.new")
        )

    def read_tokens(self) -> set[int]:
        """The tokens of its lease that its state has, as in `broker/candidacy.py`."""
        return {int(word) for word in (self._folder / "state" / FILE).read_text(encoding="ascii").split()}

    def wait_for_end(self) -> int:
        """Wait until it has ended; the exit status.

        Raises:
            OSError: it does not end in time.
        """
        assert self._up is not None
        try:
            return self._up.wait(READY_MAX_S)
        except subprocess.TimeoutExpired:
            raise OSError(f"{self.name} does not end:\n{self.log[-3000:]}") from None

    def remove(self) -> None:
        """Turn its machine off and on, and remove all that it keeps."""
        self.crash()
        self.machine.boot()
        shutil.rmtree(self._folder)

    def crash(self) -> None:
        """Turn its machine off."""
        self.machine.crash()
        if self._up is not None:
            self._up.wait(STOP_MAX_S)

    def revive(self) -> None:
        """Turn its machine on if necessary, and start it if it does not run."""
        if not self.machine.is_on:
            self.machine.boot()
        if self._up is None or self._up.poll() is not None:
            self.start()

    def run(self, *words: str) -> str:
        """Run a command over REST that only a user of this machine may; what it prints.

        Raises:
            OSError: it failed.
        """
        return self.machine.run(YUNISHARD, *words, "--rest", f"http://127.0.0.1:{REST}", as_root=True)

    def processes(self) -> Mapping[str, list[int]]:
        """What runs, by role."""
        found: dict[str, list[int]] = {}
        for number, command in self._commands():
            role = (
                SUPERVISOR if " -m deploy " in command else next((r for r in ROLES if f" {r} " in f" {command} "), "")
            )
            if role:
                found.setdefault(role, []).append(number)
        return found

    def partitions(self) -> list[str]:
        """The partitions whose workers run here."""
        return find_partitions(command for _, command in self._commands())

    def _commands(self) -> list[tuple[int, str]]:
        found = [(number, command) for number, command in self.machine.processes() if "nsenter" not in command]
        return [(number, command.replace("-m yunishard.", "-m ")) for number, command in found]


def until(holds: Callable[[], bool], what: str, *, within_s: float = READY_MAX_S) -> float:
    """Wait until it holds; how long that took.

    Raises:
        OSError: it did not in time.
    """
    begun = time.monotonic()
    while not holds():
        if time.monotonic() > begun + within_s:
            raise OSError(f"after {within_s:g} s still not: {what}")
        time.sleep(POLL_S)
    return time.monotonic() - begun


def _read(up: "subprocess.Popen[str]", ready: threading.Event) -> None:
    assert up.stdout is not None
    with up.stdout:
        for line in up.stdout:
            if line == "ready\n":
                ready.set()
