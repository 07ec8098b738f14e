"""A system of processes to measure, as `yunishard up` starts it, on ports of its own and gone at the end.

Not here: what is measured.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def system(*options: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The supervisor's process id, and the endpoints by the names under which it announces them."""
    ports = ["--native", "tcp://127.0.0.1:0", "--grpc", "127.0.0.1:0", "--rest", "127.0.0.1:0"]
    command = [sys.executable, "-P", "-m", "deploy", "--ephemeral", "--log-level", "warning", *ports, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own
        assert process.stdout is not None
        announced: dict[str, str] = {}
        for line in process.stdout:
            name, _, where = line.strip().partition(" ")
            if name == "ready":
                break
            announced[name] = where.strip()
        try:
            yield process.pid, announced
        finally:
            process.terminate()
