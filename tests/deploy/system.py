"""A running `yunishard up` for tests: starts it, reads what it says, looks at its processes, and never leaves one
behind."""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

WAIT_MAX_S = 30.0
POLL_S = 0.02

FREE_PORTS = ("--native", "tcp://127.0.0.1:0", "--grpc", "127.0.0.1:0", "--rest", "127.0.0.1:0")

_SERVES = re.compile(r"partition_worker (\S+)#\d+$")
"""The title of a worker with a partition."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at, and that no connection is given by chance: they are needed again at each start."""
    first = random.randrange(10_000, 30_000)
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        for port in range(first, 32_000):
            listener = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                listener.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"fewer than {count} free ports from {first} on")


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until it holds; fail after WAIT_MAX_S."""
    deadline = time.monotonic() + WAIT_MAX_S
    while not holds():
        assert time.monotonic() < deadline, f"still not so after {WAIT_MAX_S} s"
        time.sleep(POLL_S)


class Up:
    """The supervisor, and what can be seen of it from outside."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self.process = process
        self._errors = errors

    def announced(self) -> dict[str, str]:
        """The endpoints, once it is ready."""
        assert self.process.stdout is not None
        lines = []
        for line in self.process.stdout:
            lines.append(line.rstrip("\n"))
            if lines[-1] == "ready":
                return dict(line.split() for line in lines[:-1])
        raise AssertionError(f"never ready: {lines}\n{self.errors}")

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    @property
    def children(self) -> dict[int, str]:
        """Process ids and command lines, or titles, between blanks, of what it started and is still there."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == self.process.pid:
                    found[int(folder.name)] = (
                        (folder / "cmdline").read_text().replace("\0", " ").strip().replace("-m yunishard.", "-m ")
                    )
        return {number: f" {command} " for number, command in found.items() if command}  # a zombie has no command

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until it holds; fail when that takes too long or the supervisor is gone."""
        eventually(lambda: self.process.poll() is not None or holds())
        assert self.process.returncode is None, self.errors

    def child(self, words: str) -> int:
        """The process whose command line has these words."""
        [number] = [number for number, command in self.children.items() if words in command]
        return number

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """The supervisor itself does nothing meanwhile."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def says(self, words: str) -> bool:
        return words in self.errors

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=WAIT_MAX_S)


def find_partitions(commands: Iterable[str]) -> list[str]:
    """The partitions of the workers among processes, by their titles."""
    return sorted(match[1] for command in commands if (match := _SERVES.search(command.strip())))


def gone(number: int) -> bool:
    """Whether a process has ended, with all its threads, and so has closed its files. A zombie counts as ended."""
    try:
        threads = list(Path(f"/proc/{number}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return True
    return all(map(_has_ended, threads))


def _has_ended(thread: Path) -> bool:
    """Whether one thread has ended; it may do so while its process lives."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextlib.contextmanager
def up(
    *arguments: str,
    folder: Path,
    module: str = "yunishard.deploy",
    program: Sequence[str] = (),
    cwd: Path | None = None,
    prefix: Sequence[str] = (),
    stdin: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> Iterator[Up]:
    """Start it with these arguments and environment variables; `folder` is for its logs and home, `program` is an
    installed one instead of the module, and `prefix` is a command that becomes it.
    """
    errors = folder / "errors"
    hidden = ("YUNISHARD_", "TMPDIR")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environment.update(variables or {})
    with (
        # The tests end it by SIGKILL, after which only the next start removes its temporary directory.
        tempfile.TemporaryDirectory(prefix="up-") as temporary,
        errors.open("w") as stderr,
        subprocess.Popen(
            [*prefix, *(program or (sys.executable, "-P", "-m", module)), *arguments],
            cwd=cwd,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={
                "TMPDIR": temporary,
                **environment,
                "FAKES": str(folder),
                "HOME": str(folder),
                "XDG_STATE_HOME": str(folder / "state"),
            },
        ) as process,
    ):
        running = Up(process, errors)
        try:
            yield running
        finally:
            children = running.children
            if process.poll() == 0:
                assert not os.listdir(temporary), "an orderly stop leaves no temporary files"
            process.kill()
            for number in children:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(number, signal.SIGKILL)  # with whoever writes a snapshot for it
            eventually(lambda: all(map(gone, children)))
