"""What a native peer that went mad sends: good messages with something wrong in them, in an order that makes no sense.

Everything follows from a `random.Random`, which may be Hypothesis's. Not here: sockets (`senders.py`).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from tests.fuzz.examples import CONFIG, TWO_PARTITIONS, Frames, Voice
from tests.fuzz.words import NUMBERS, TEXTS, Tree, bitten, confused, encoded, odd, read, sprinkled
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import UNNUMBERED, UPDATES
from yunishard.common.messages.wire import PROTOCOL

PROTOCOLS: Final = (
    b"",
    b"YSH0",
    b"YSH2",
    b"YSH1\0",
    b"ysh1",
    b"GET / HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)
KIND, RM, PARTITION, SESSION, SEQ, ACK, EPOCH, REF, LIFE = range(9)
"""Places in a header."""

RARE: Final = frozenset({"Leave", "SyncBegin", "SyncEnd", "Pause", "RetirePartition"})
"""Kinds after which there is little left to be mad about."""

RARE_IN: Final = 5
FRAMES_MAX: Final = 12
FRAME_BYTES_MAX: Final = 32_768
REGISTER_EVERY: Final = 400
"""Messages after which a mad peer begins a new session: then its partitions begin from empty."""

FURNISH_EVERY: Final = 40
"""Messages after which it says something sensible, so that there is something to be mad about."""


class Mad:
    """Somebody who speaks as `voice`, knows the names of `others`, and has messages to mutate."""

    def __init__(self, rng: random.Random, voice: Voice, *, others: Sequence[Voice] = (), heard: Sequence[Frames] = ()):
        self.voice = voice
        self._rng = rng
        self._others = others
        self._kinds = [*voice.everything()]
        self._updates = [frames for frames in self._kinds if _kind(frames) in (*UPDATES, *UNNUMBERED)]
        self._kinds = [frames for frames in self._kinds for _ in range(1 if _kind(frames) in RARE else RARE_IN)]
        self._heard = list(heard)
        self._past: list[Frames] = []
        self._seq = 0
        self._mutators: tuple[Callable[[Frames], Frames], ...] = (
            self._bitten_header, self._bitten_body, self._bitten_body, self._spliced, self._confused_header,
            self._swapped_header, self._confused_body, self._confused_body, self._confused_body, self._sensible_body,
            self._sensible_body, self._sensible_body, self._wrong_count, self._wrong_protocol, self._other_voice,
            self._other_number, self._other_kind, self._long_partition,
        )  # fmt: skip

    def furnishings(self) -> list[Frames]:
        """A registration, and something to be mad about."""
        config = self._rng.choice((CONFIG, TWO_PARTITIONS))
        return [self.voice.registers(config), *self._sensible()]

    def stream(self) -> Iterator[tuple[Frames, bool]]:
        """Without end; and which of it is right, and should go where it belongs."""
        while True:
            for _ in range(REGISTER_EVERY // FURNISH_EVERY):
                yield from ((frames, True) for frames in self._sensible())
                for _ in range(FURNISH_EVERY):
                    yield self.mutated(), False
            yield from ((frames, True) for frames in self.furnishings())

    def mutated(self) -> Frames:
        """One message with one to three things wrong."""
        frames = self._base()
        for _ in range(self._rng.choice((1, 1, 1, 2, 3))):
            frames = self._rng.choice(self._mutators)(frames)
        frames = [one[:FRAME_BYTES_MAX] for one in frames]
        self._past.append(frames)
        if len(self._past) > 50:
            self._past.pop(self._rng.randrange(50))
        return frames

    # Where it begins ------------------------------------------------------------------------------------------------

    def _base(self) -> Frames:
        choice = self._rng.random()
        if choice < 0.65:
            return self._rng.choice(self._updates)
        if choice < 0.72 and self._past:
            return self._rng.choice(self._past)  # said before
        if choice < 0.82 and self._heard:
            return self._rng.choice(self._heard)
        return self._rng.choice(self._kinds)

    def _sensible(self) -> list[Frames]:
        """An application and an ask, and a node."""
        rng, voice = self._rng, self.voice
        partition = rng.choice(("", voice.partition))
        n, app, key = f"n{rng.randrange(9)}", f"app{rng.randrange(9)}", f"k{rng.randrange(99)}"
        node = {"nodeID": n, "action": 1, "schedulableResource": {"vcore": 10, "memory": 2**30}}
        new = {"applicationID": app, "queueName": rng.choice(("root.batch", "root.small")), "ugi": {"user": "alice"}}
        ask = {"allocationKey": key, "applicationID": app, "resourcePerAlloc": {"vcore": 1}}
        bodies: list[tuple[str, Tree]] = [
            ("NodeRequest", {"nodes": [node]}),
            ("ApplicationRequest", {"new": [new]}),
            ("AllocationRequest", {"allocations": [ask]}),
        ]
        return [[PROTOCOL, encoded(voice.header(kind, partition=partition)), encoded(body)] for kind, body in bodies]

    # What goes wrong ------------------------------------------------------------------------------------------------

    def _bitten_header(self, frames: Frames) -> Frames:
        return _with(frames, 1, bitten(self._rng, frames[1] if len(frames) > 1 else b""))

    def _bitten_body(self, frames: Frames) -> Frames:
        return _with(frames, 2, bitten(self._rng, frames[2] if len(frames) > 2 else b""))

    def _spliced(self, frames: Frames) -> Frames:
        other = self._rng.choice(self._kinds)
        if len(frames) < 3 or self._rng.random() < 0.3:
            return _with(frames, 2, other[2])
        first, second = frames[2], other[2]
        return _with(
            frames, 2, first[: self._rng.randrange(len(first) + 1)] + second[self._rng.randrange(len(second) + 1) :]
        )

    def _confused_header(self, frames: Frames) -> Frames:
        return self._with_header(frames, lambda header: confused(self._rng, header))

    def _swapped_header(self, frames: Frames) -> Frames:
        def swapped(header: list[Tree]) -> Tree:
            one, other = self._rng.randrange(len(header)), self._rng.randrange(len(header))
            header[one], header[other] = header[other], header[one]
            return header

        return self._with_header(frames, swapped)

    def _confused_body(self, frames: Frames) -> Frames:
        return _with(frames, 2, encoded(confused(self._rng, read(frames[2] if len(frames) > 2 else b""))))

    def _sensible_body(self, frames: Frames) -> Frames:
        """Well-formed, so that it comes as far as anything."""
        return _with(frames, 2, encoded(sprinkled(self._rng, read(frames[2] if len(frames) > 2 else b""))))

    def _wrong_count(self, frames: Frames) -> Frames:
        match self._rng.randrange(4):
            case 0:
                return frames[: self._rng.randrange(1, 3)]
            case 1:
                return [*frames, *frames][:FRAMES_MAX]
            case 2:
                return [b"", *frames]
        return [self._rng.randbytes(self._rng.randrange(30)) for _ in range(self._rng.randrange(1, FRAMES_MAX))]

    def _wrong_protocol(self, frames: Frames) -> Frames:
        return [self._rng.choice(PROTOCOLS), *frames[1:]]

    def _other_voice(self, frames: Frames) -> Frames:
        """Whose it is, wholly or in part."""
        if not self._others:
            return frames
        other = self._rng.choice(self._others)
        fields = self._rng.choice(
            (
                {RM: other.rm},
                {RM: other.rm, SESSION: other.session},
                {RM: other.rm, SESSION: other.session, PARTITION: other.partition},
                {PARTITION: other.partition},
                {SESSION: other.session},
            )
        )
        return self._with_fields(frames, fields)

    def _other_number(self, frames: Frames) -> Frames:
        """Again, too early, out of order, of another life."""
        self._seq += self._rng.choice((0, 1, 1, 1, 2))
        numbers = [one for one in NUMBERS if isinstance(one, int)]
        fields = {
            SEQ: self._rng.choice((self._seq, self._seq, 0, 1, self._rng.choice(numbers))),
            ACK: self._rng.choice((0, 0, 0, 0, 0, 1, self._seq, self._rng.choice(numbers))),
            LIFE: self._rng.choice((0, 0, 0, self._rng.choice(numbers))),
        }
        return self._with_fields(frames, fields)

    def _other_kind(self, frames: Frames) -> Frames:
        kinds = (*UPDATES, *map(_kind, self._kinds), "Malformed", "Forbidden", "Tick", "News", "", "?" * 200)
        return self._with_fields(frames, {KIND: self._rng.choice(kinds)})

    def _long_partition(self, frames: Frames) -> Frames:
        names = (*TEXTS, "p" * 3_900, "\xff" * 1_900, f"{self.voice.rm}_{'x' * 900}", f"[{self.voice.rm}]default")
        field = self._rng.choice((PARTITION, PARTITION, RM, SESSION, REF))
        return self._with_fields(frames, {field: self._rng.choice(names)})

    def _with_fields(self, frames: Frames, fields: dict[int, Tree]) -> Frames:
        def changed(header: list[Tree]) -> Tree:
            return [fields.get(at, value) for at, value in enumerate(header)]

        return self._with_header(frames, changed)

    def _with_header(self, frames: Frames, change: Callable[[list[Tree]], Tree]) -> Frames:
        header = read(frames[1]) if len(frames) > 1 else []
        return _with(frames, 1, encoded(change(header) if isinstance(header, list) and header else odd(self._rng)))


def said(frames: Frames) -> Header | None:
    """The header, if the frames are a message with one."""
    try:
        return msgspec.msgpack.decode(frames[1], type=Header) if len(frames) == 3 else None
    except (ValueError, RecursionError):
        return None


def _kind(frames: Frames) -> str:
    header = said(frames)
    assert header is not None
    return header.kind


def _with(frames: Frames, at: int, data: bytes) -> Frames:
    """The frames with this one in place of that."""
    return [*frames[:at], data, *frames[at + 1 :]]
