"""Playing a committed trace to a system of its own, and comparing what it records with what the reference did."""

import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import grpc
import yaml

from tests.captures.system import System
from tests.conformance.items import Item
from tests.conformance.rest import Rest
from tests.conformance.state import Json
from tests.conformance.steps import Play
from tests.conformance.virtual import VirtualClock, VirtualRest, VirtualWire
from tests.conformance.wires import Dial, GrpcWire, NativeWire
from tests.deploy.system import FREE_PORTS, up
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub

HERE: Final = Path(__file__).parent
TRACES: Final = {path.stem: path for path in sorted((HERE / "traces").glob("*.yaml"))}
GOLDEN: Final = HERE / "golden"
CONNECT_S: Final = 20.0


class Unplayable(Exception):
    """A trace did not get to its end, or the system not to its own in order; with what the system had to say."""


def differences_of(name: str, *, native: bool = False) -> list[str]:
    """What differs between a trace on a system with real processes, over gRPC or over the native protocol, and on the
    reference; each a place with both values.

    Raises:
        Unplayable: there is nothing to compare.
    """
    return list(differences(_golden(name), _played(name, native=native)))


def virtual_differences_of(name: str) -> list[str]:
    """The same on a system in this process, under a virtual clock."""
    system = System({}, manual=False)
    play = Play(partial(VirtualWire, system), VirtualRest(system), VirtualClock(system))
    for step in _steps(name):
        play.step(step)
    return list(differences(_golden(name), play.recorded))


def _golden(name: str) -> Json:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def _steps(name: str) -> list[Item]:
    steps: list[Item] = yaml.safe_load(TRACES[name].read_text())["steps"]
    return steps


def _played(name: str, *, native: bool) -> Json:
    """What the trace records."""
    steps = _steps(name)
    with (
        tempfile.TemporaryDirectory(prefix="conformance-") as folder,
        up("--ephemeral", *FREE_PORTS, folder=Path(folder)) as system,
    ):
        addresses = system.announced()
        try:
            recorded = (_recorded_natively if native else _recorded)(steps, addresses)
        except (OSError, LookupError, grpc.RpcError, grpc.FutureTimeoutError) as error:
            raise Unplayable(f"{error!r}\n{system.errors}") from error
        status = system.stop()
        if status:
            raise Unplayable(f"the system ended with status {status}\n{system.errors}")
    return recorded


def _recorded(steps: list[Item], addresses: dict[str, str]) -> Json:
    with grpc.insecure_channel(addresses["grpc"]) as channel:
        grpc.channel_ready_future(channel).result(timeout=CONNECT_S)
        return _all_steps(steps, partial(GrpcWire, SchedulerStub(channel)), addresses)


def _recorded_natively(steps: list[Item], addresses: dict[str, str]) -> Json:
    return _all_steps(steps, partial(NativeWire, addresses["native"]), addresses)


def _all_steps(steps: list[Item], dial: Dial, addresses: dict[str, str]) -> Json:
    play = Play(dial, Rest(addresses["rest"]))
    try:
        for step in steps:
            play.step(step)
    finally:
        play.close()
    return play.recorded


def differences(expected: Json, actual: Json, place: str = "") -> Iterator[str]:
    """Each difference with its place. What is not there counts as null."""
    match expected, actual:
        case dict(), dict():
            for key in sorted({*expected, *actual}):
                yield from differences(expected.get(key), actual.get(key), f"{place}/{key}")
        case list(), list() if len(expected) == len(actual):
            for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
                yield from differences(one, other, f"{place}[{number}]")
        case _ if expected != actual:
            yield f"{place}: expected {json.dumps(expected)}, got {json.dumps(actual)}"
