"""The whole system as machines in one process, with somebody in it who went mad and a resource manager beside them that
must not notice.

Where the madness comes in:

    native     a connection to the native port
    process    a process of ours that the broker knows nothing of
    words      the worker of one of the mad RM's partitions, to the broker
    worker     the broker, to that worker: bodies that nobody has opened on their way, and everything else

Not here: what they say (`frames.py`), sockets (`hunt.py`).
"""

import random
from collections.abc import Iterator
from typing import Final

from tests.fuzz.examples import Frames, Voice
from tests.fuzz.frames import Mad
from tests.world import PROXY, World
from tests.world_rm import RM
from yunishard.common.messages.control_messages import Repeat
from yunishard.common.messages.wire import Outgoing, decode_incoming
from yunishard.common.names import BROKER
from yunishard.rmproxy.rate_limit import LINES_MAX, REFUSALS_MAX

GOOD: Final = Voice("good", "s1", "good_default")
MAD: Final = Voice("mad", "s-mad", "mad_default")
NEIGHBOUR: Final = Voice("mad-2", "s-mad", "good_default")
"""Knows whom it might disturb, and not their session."""

PEER: Final = "native:mad"
PLACES: Final = ("native", "process", "words", "worker")
_CHECKED: Final = frozenset({"PrepareConfig"})
"""What the broker has looked through before it says it."""

LOOK_S: Final = 2.0
"""Of the world's time between two looks: calls have their pace."""

ROUND: Final = 50
"""Messages after which everything may settle, and everything is looked at."""


class Arena:
    """A world with a good and a mad resource manager in it."""

    def __init__(self, seed: int = 0) -> None:
        self.world = World(seed)
        self.good = RM(GOOD.rm, session=GOOD.session)
        self._keys = 0
        self._refused_in_a_row = 0
        self._complaints = 0
        self._began = self.world.now
        self.world.join(self.good)
        self.world.settle()
        self.world.carry(self.good.peer, self.good.furnish("default", nodes=1, vcore=2))
        self.world.settle()

    def hit(self, place: str, frames: Frames) -> None:
        """Let these frames arrive."""
        world = self.world
        if place == "native":
            sends = world.machine(PROXY).handle(decode_incoming(PEER, frames), world.now)
            self._count(sends)
            world.carry(PROXY, sends)
        elif place == "worker":
            worker, incoming = world.workers.get(MAD.partition), decode_incoming(BROKER, frames)
            if worker is not None and incoming.header.kind not in _CHECKED:
                world.carry(self._worker_name(), worker.handle(incoming, world.now))
        else:
            source = "mad" if place == "process" else self._worker_name()
            world.carry(BROKER, world.machine(BROKER).handle(decode_incoming(source, frames), world.now))

    def look(self) -> None:
        """Everything that is under way arrives; then all books are right and the good one is served."""
        if MAD.partition in self.world.workers:
            self.hit("worker", MAD.says(Repeat()))  # whoever was told to pause goes on
        self._settle()
        self.world.now += LOOK_S
        self._refused_in_a_row = 0
        self._keys += 1
        key = f"good-{self._keys}"
        for sends, heard in (
            (self.good.ask("default", key), self.good.allocated),
            (self.good.release("default", key), self.good.released),
        ):
            before = len(heard)
            self.world.carry(self.good.peer, sends)
            self._settle()
            assert heard[before:] == [f"{GOOD.partition}/{key}"], heard[before:]
        assert not self.good.refusals, self.good.refusals
        assert self._complaints <= LINES_MAX * (1 + (self.world.now - self._began) / 60), "the log fills"

    def _settle(self) -> None:
        self.world.settle()
        front = self.world.machine(PROXY)
        self._complaints += len(front.rate_limiter.log_lines)  # type: ignore[attr-defined]
        front.rate_limiter.log_lines.clear()  # type: ignore[attr-defined]

    def _count(self, sends: list[Outgoing]) -> None:
        """Nobody is answered more than once, nor for ever."""
        refusals = [one for one in sends if one.to == PEER and one.header.kind == "Refused"]
        assert len(refusals) <= 1, refusals
        self._refused_in_a_row = self._refused_in_a_row + 1 if refusals else 0
        assert self._refused_in_a_row <= REFUSALS_MAX + 1

    def _worker_name(self) -> str:
        return self.world.peers.get(MAD.partition, "worker/0")


def furnished(mad: Mad) -> Arena:
    """One in which the mad one has begun."""
    arena = Arena()
    for frames in mad.furnishings():
        arena.hit("native", frames)
        arena.look()
    return arena


def attack(place: str, rng: random.Random, count: int) -> Iterator[tuple[str, Frames]]:
    """So many messages there, looked at once in a while. What is sent where is told before it has an effect."""
    mad = Mad(rng, MAD, others=(NEIGHBOUR,))
    arena = furnished(mad)
    for number, (frames, right) in zip(range(1, count + 1), mad.stream(), strict=False):
        where = "native" if right else place
        yield where, frames
        arena.hit(where, frames)
        if number % ROUND == 0 or number == count:
            arena.look()
