"""The two systems that are compared, each behind the scheduler interface and REST.

The reference has to be started afresh for every trace: it cannot register the same resource manager twice. Ours begins
with empty partitions when a resource manager registers again, so one is enough for many traces.
"""

import contextlib
import fcntl
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import grpc

from tests.conformance.items import Item
from tests.conformance.play import CONNECT_S
from tests.conformance.rest import Rest
from tests.conformance.state import Json
from tests.conformance.wires import GrpcWire
from tests.deploy.system import FREE_PORTS, Up, up
from tests.differential.documents import Documents, PlayWithDocuments
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub

CONFIG_PATH: Final = "/ws/v1/config?rm="
ORACLE_GRPC: Final = "127.0.0.1:3333"
ORACLE_REST: Final = "http://127.0.0.1:9080"
ORACLE_CONTROL: Final = "http://127.0.0.1:3334"
ORACLE_STOP_S: Final = 10.0
COMPLAINTS: Final = ("Traceback", "died", "AssertionError")
"""Words that a system in order never logs."""


class Broken(Exception):
    """A trace did not get to its end; with what the system had to say."""


def bring_loopback_up() -> None:
    """In a new network even the loopback interface is down."""
    up_and_running, set_flags = 0x1 | 0x40, 0x8914
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", up_and_running))


class _OracleRest(Rest):
    """The reference's REST cannot change configurations: whoever serves it has an address for that."""

    def __init__(self) -> None:
        super().__init__(ORACLE_REST)
        self._control = Rest(ORACLE_CONTROL)

    def ask(self, path: str, *, post: str | None = None) -> tuple[int, str]:
        if path.startswith(CONFIG_PATH):
            return self._control.ask(f"/config?rm={path.removeprefix(CONFIG_PATH)}", post=post)
        return super().ask(path, post=post)


def played_by_oracle(binary: Path, steps: list[Item]) -> Json:
    """What a fresh reference records.

    Raises:
        Broken: it did not get to the end.
    """
    with (
        tempfile.TemporaryFile("w+") as log,  # nobody reads it meanwhile: the reference would wait for room in a pipe
        subprocess.Popen(
            [binary, "-grpc", ORACLE_GRPC, "-control", ORACLE_CONTROL.removeprefix("http://")],
            stdout=subprocess.DEVNULL,
            stderr=log,
        ) as process,
    ):
        try:
            recorded = _recorded(steps, ORACLE_GRPC, _OracleRest(), ORACLE_REST)
            if process.poll() is None:
                return recorded
            raise Broken("the reference ended before the trace did")
        except (OSError, LookupError, ValueError, grpc.RpcError, grpc.FutureTimeoutError) as error:
            log.seek(0)
            raise Broken(f"{error!r}\n{log.read()[-3000:]}") from error
        finally:
            process.kill()


@dataclass
class Ours:
    """This system, running."""

    system: Up
    addresses: dict[str, str]

    def played(self, steps: list[Item]) -> Json:
        """What fresh partitions record.

        Raises:
            Broken: it did not get to the end, or the system complains.
        """
        before = len(self.system.errors)
        try:
            recorded = _recorded(steps, self.addresses["grpc"], Rest(self.addresses["rest"]), self.addresses["rest"])
        except (OSError, LookupError, ValueError, grpc.RpcError, grpc.FutureTimeoutError) as error:
            raise Broken(f"{error!r}\n{self.system.errors[before:][-6000:]}") from error
        said = self.system.errors[before:]
        if any(word in said for word in COMPLAINTS):
            raise Broken(said[-6000:])
        return recorded


@contextlib.contextmanager
def ours() -> Iterator[Ours]:
    """A fresh system of ours. As in the reference, an application may reserve all nodes, so that the rest can be
    compared (docs/compatibility.md).
    """
    with (
        tempfile.TemporaryDirectory(prefix="differential-") as folder,
        up("--ephemeral", "--reservation-share", "100", *FREE_PORTS, folder=Path(folder)) as system,
    ):
        yield Ours(system, system.announced())
        system.stop()


def _recorded(steps: list[Item], address: str, rest: Rest, whole: str) -> Json:
    with grpc.insecure_channel(address, options=[("grpc.initial_reconnect_backoff_ms", 50)]) as channel:
        grpc.channel_ready_future(channel).result(timeout=CONNECT_S)
        play = PlayWithDocuments(partial(GrpcWire, SchedulerStub(channel)), rest, Documents(whole))
        try:
            for step in steps:
                play.step(step)
        finally:
            play.close()
    return play.recorded
