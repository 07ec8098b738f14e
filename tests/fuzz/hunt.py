"""The real system with somebody mad at every port, and a good resource manager beside them.

Not here: what is sent (`streams.py`) and how (`senders.py`).
"""

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import zmq

from tests.deploy.system import FREE_PORTS, Up, up
from tests.fuzz.senders import items, send_all
from tests.fuzz.streams import GOOD, Item
from tests.fuzz.watch import CORE, Watch
from tests.processes.peer import Peer
from yunishard.common.transport.curve_keys import read_pair, read_public, write_pair

BARE: Final = ("--ephemeral", "--spare-workers", "0")
"""So that every worker is called by its partition."""

PLAIN: Final = ("native", "native-2", "inner", "grpc", "rest")
"""What is sent to a system without keys; another name of a port is another sender with a seed of its own."""

WATCHED: Final = {**CORE, "the good one's worker": f"partition_worker {GOOD}_default#"}
KEYED: Final = ("curve",)
WORST_S: Final = 10.0
"""What the good one may wait for an allocation and its release, at the worst."""

USUAL_S: Final = 2.0
"""The same, of half of them. Whoever sends takes both cores, and the core gets what is left."""

STILL_S: Final = 90.0
"""A sender that gets nothing away for so long has found something that hangs."""

KEPT: Final = 3_000
"""Items that are saved of each sender when something goes wrong: what was sent last."""


class HuntError(Exception):
    """Something is not as it should be; the text says what, and where the items are that led to it."""


@dataclass
class Outcome:
    """How it went."""

    sent: int = 0
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)
    """Of the good one, for an allocation and its release."""
    grown: str = ""


class _Sender:
    """A process that sends, and how far it is."""

    def __init__(self, name: str, address: str, count: int, seed: int, keys: Path | None) -> None:
        self.name = name
        self.seed = seed
        self.sent = 0
        self.at = time.monotonic()
        command = [sys.executable, "-m", "tests.fuzz.senders", name.partition("-")[0], address, str(count), str(seed)]
        self.process = subprocess.Popen(
            [*command, *([str(keys)] if keys is not None else [])],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self._follower = threading.Thread(target=self._follow, daemon=True)
        self._follower.start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.sent, self.at = int(line), time.monotonic()

    def end(self) -> int:
        """Have it end, if it has not; its status."""
        self.process.kill()
        status = self.process.wait()
        self._follower.join()
        return status

    @property
    def still(self) -> bool:
        return time.monotonic() - self.at > STILL_S

    def last(self) -> list[Item]:
        """What it sent last, made again."""
        found: list[Item] = []
        sent = 0
        for item in items(self.name.partition("-")[0], self.seed):
            found.append(item)
            sent += item.count
            if sent > self.sent + 2_000:
                return found[-KEPT:]
        return found


@dataclass(frozen=True)
class _Scene:
    """A system with a good resource manager, and where its ports are."""

    running: Up
    good: Peer
    addresses: dict[str, str]
    keys: Path | None


def plain(counts: Mapping[str, int], seed: int) -> Outcome:
    """Without keys: to all ports.

    Raises:
        HuntError: with what went wrong.
    """
    with _without_keys() as scene:
        return _hunt(scene, counts, seed)


def keyed(counts: Mapping[str, int], seed: int) -> Outcome:
    """To the native port with keys: somebody whose key is good, for another resource manager.

    Raises:
        HuntError: with what went wrong.
    """
    with _with_keys() as scene:
        return _hunt(scene, counts, seed)


@contextlib.contextmanager
def _without_keys() -> Iterator[_Scene]:
    options = (*BARE, "--allowed-rms", f"{GOOD},mad-0,mad-1,mad-g")
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder, _scene(Path(folder), options, None) as scene:
        yield scene


@contextlib.contextmanager
def _with_keys() -> Iterator[_Scene]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        keys = Path(folder) / "keys"
        keys.mkdir()
        for name in ("server", "mad", GOOD):
            write_pair(keys, name)
        allowed = ((read_public(keys / "mad.key"), "mad-0"), (read_public(keys / f"{GOOD}.key"), GOOD))
        (keys / "allowed").write_text("".join(f"{key} {ids}\n" for key, ids in allowed))
        with _scene(Path(folder), (*BARE, "--native-keys", str(keys)), keys) as scene:
            yield scene


@contextlib.contextmanager
def _scene(folder: Path, options: Sequence[str], keys: Path | None) -> Iterator[_Scene]:
    with up(*options, *FREE_PORTS, folder=folder) as running:
        addresses = _addresses(running)
        with _good(addresses["native"], keys) as good:
            yield _Scene(running, good, addresses, keys)


def _hunt(scene: _Scene, counts: Mapping[str, int], seed: int) -> Outcome:
    running, good = scene.running, scene.good
    watch = Watch(running, WATCHED)
    begun = time.monotonic()
    senders = [
        _Sender(name, scene.addresses[name.partition("-")[0]], count, seed + number, scene.keys)
        for number, (name, count) in enumerate(counts.items())
    ]
    outcome = Outcome()
    try:
        while any(one.process.poll() is None for one in senders):
            outcome.waits.append(_works(good))
            problem = watch.problem() or _late(outcome.waits[-1])
            problem = problem or ", ".join(f"{one.name} does not get on" for one in senders if one.still)
            if problem:
                raise HuntError(problem)
        for one in senders:
            if one.end() or one.sent < counts[one.name]:
                raise HuntError(f"sender {one.name} ended with {one.process.returncode} after {one.sent}")
        outcome.sent, outcome.seconds = sum(one.sent for one in senders), time.monotonic() - begun
        _works(good)
        watch.files_closed()
        outcome.grown = watch.figures()
        problem = watch.problem() or _late(sorted(outcome.waits)[len(outcome.waits) // 2], USUAL_S)
        if problem or running.stop() != 0:
            raise HuntError(problem or "it did not stop in order")
    except (HuntError, AssertionError) as error:
        log = running.errors
        for one in senders:
            one.end()
        raise HuntError(f"{error}\n{log[-3000:]}\n{save(senders)}") from error
    finally:
        for one in senders:
            one.end()
    return outcome


def _works(good: Peer) -> float:
    """How long the good one waits."""
    begun = time.monotonic()
    good.works()
    return time.monotonic() - begun


def _late(wait_s: float, most_s: float = WORST_S) -> str:
    return f"the good one waited for {wait_s:.1f} s" if wait_s > most_s else ""


def _addresses(running: Up) -> dict[str, str]:
    endpoints = running.announced()
    broker = next(command for command in running.children.values() if "-m broker" in command)
    return {
        "native": endpoints["native"],
        "curve": endpoints["native"],
        "grpc": endpoints["grpc"],
        "rest": endpoints["rest"].removeprefix("http://"),
        "inner": "ipc://" + broker.split("ipc://")[1].split()[0],
    }


@contextlib.contextmanager
def _good(address: str, keys: Path | None) -> Iterator[Peer]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        if keys is not None:
            pair = read_pair(keys / f"{GOOD}.key_secret")
            socket.curve_serverkey = read_public(keys / "server.key").encode()
            socket.curve_publickey, socket.curve_secretkey = pair.public.encode(), pair.secret.encode()
        socket.connect(address)
        peer = Peer(socket, GOOD)
        peer.furnish()
        yield peer


# Replays --------------------------------------------------------------------------------------------------------------


class Saved(msgspec.Struct):
    """What was sent to a port last."""

    port: str
    items: list[Item]


def save(senders: list[_Sender]) -> str:
    """Write down what was sent last, and how to send it again."""
    lines = []
    for one in senders:
        with tempfile.NamedTemporaryFile(prefix=f"fuzz-{one.name}-", suffix=".msgpack", delete=False) as file:
            file.write(msgspec.msgpack.encode(Saved(one.name.partition("-")[0], one.last())))
        lines.append(f"python -m tests.fuzz --replay {file.name}")
    return "what was sent last, to be sent again one port at a time:\n" + "\n".join(lines)


def replay(file: Path) -> str:
    """Send it again to a new system; what goes wrong, empty for nothing."""
    saved = msgspec.msgpack.decode(file.read_bytes(), type=Saved)
    with _with_keys() if saved.port in KEYED else _without_keys() as scene:
        watch = Watch(scene.running, WATCHED)
        count = sum(one.count for one in saved.items)
        send_all(saved.port, scene.addresses[saved.port], iter(saved.items), count, scene.keys)
        scene.good.works()
        return watch.problem()
