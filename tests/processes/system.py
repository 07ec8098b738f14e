"""A running system under attack: where it listens, and whether all of its processes are still the same; and commands
that ask it, each in a process of its own.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.deploy.system import Up


class System:
    def __init__(self, up: Up, endpoints: dict[str, str]) -> None:
        self.up = up
        self.native = endpoints["native"]
        self.grpc = endpoints["grpc"]
        self.rest = endpoints["rest"].removeprefix("http://")

    @contextmanager
    def unharmed(self, *, leaving: bool = False) -> Iterator[None]:
        """No process that was there before ends meanwhile; but workers may, where a resource manager was `leaving`."""
        before = self.up.children
        yield
        assert self.up.process.poll() is None, self.up.errors
        lost = before.keys() - self.up.children.keys()
        lost = {number for number in lost if not (leaving and " partition_worker " in before[number])}
        assert not lost, f"{[before[number] for number in lost]} died\n{self.up.errors[-4000:]}"


MAIN = "import sys; from yunishard.cli.main import main; sys.exit(main())"
"""The program of a command in a process of its own."""


def run(rest: str, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-c", MAIN, *words]
    environment = {**os.environ, "YUNISHARD_URL": rest, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
