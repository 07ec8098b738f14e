"""What goes through the proxy, counted from outside of its machine: messages and bytes of each RM, refusals by code.

Bodies of what is routed are never opened, so messages are counted and not what is in them. Only RMs that are
registered have counts of their own, and lose them when they go: anybody may call himself anything.

Not here: what is refused and why (`front.py`), figures of the process.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from common.families import Family, counter, gauge
from common.machine import Delivery, Send
from common.names import BROKER
from common.outbox import WINDOW_MESSAGES
from common.rm_messages import Refused
from common.wire import decoded
from rmproxy.front import Front
from rmproxy.seats import GRPC

CODES: Final = ("flood", "forbidden", "malformed", "no-partition", "unknown-kind", "unknown-session", "window")
"""Of refusals that the proxy itself says; they are told from the beginning, those of others when they occur."""


@dataclass(slots=True)
class _Passed:
    """What has passed in one direction."""

    messages: int = 0
    size: int = 0
    """Bytes of bodies."""

    def add(self, body: bytes) -> None:
        self.messages += 1
        self.size += len(body)


class Counting:
    """The proxy's machine, and what has gone through it since the process began."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._passed: dict[tuple[str, str], _Passed] = {}
        """By RM and direction."""
        self._refused: Counter[str] = Counter(dict.fromkeys(CODES, 0))

    @property
    def deadline(self) -> float:
        return self._front.deadline

    def handle(self, delivery: Delivery, now: float) -> list[Send]:
        sends = self._front.handle(delivery, now)
        if delivery.source != BROKER:
            self._count(delivery.header.rm, "in", delivery.body)
        return self._counted(sends)

    def tick(self, now: float) -> list[Send]:
        return self._counted(self._front.tick(now))

    def families(self) -> Iterator[Family]:
        """All figures of what goes through."""
        seats = self._front.seats
        self._passed = {key: passed for key, passed in self._passed.items() if key[0] in seats}
        yield self._sessions()
        what = "Messages of resource managers (in) and to them (out), whatever they carry."
        passed = self._passed.items()
        samples = [(key, float(one.messages)) for key, one in passed]
        yield counter("yunishard_rmproxy_messages_total", what, ("rm", "direction"), samples)
        what = "Bytes of the bodies of these messages."
        samples = [(key, float(one.size)) for key, one in passed]
        yield counter("yunishard_rmproxy_bytes_total", what, ("rm", "direction"), samples)
        yield counter(
            "yunishard_rmproxy_refusals_total",
            "Messages that were refused, by code (docs/protocol.md). Worry about a rate that stays up: a resource "
            "manager does something wrong again and again, or (window, flood) sends more than it may.",
            ("code",),
            [((code,), count) for code, count in self._refused.items()],
        )
        yield from self._windows()

    def _sessions(self) -> Family:
        seats = self._front.seats.values()
        grpc = sum(seat.peer.startswith(GRPC) for seat in seats)
        what = "Resource managers that are registered, by the port that they came to."
        return gauge(
            "yunishard_rmproxy_sessions", what, ("port",), [(("native",), len(seats) - grpc), (("grpc",), grpc)]
        )

    def _windows(self) -> Iterator[Family]:
        under_way = [
            ((rm, partition), lane.under_way)
            for rm, seat in self._front.seats.items()
            for partition, lane in seat.lanes.items()
        ]
        yield gauge(
            "yunishard_rmproxy_window_messages",
            f"Commands on their way to the partition that it has not acknowledged; at {WINDOW_MESSAGES} more are "
            "refused. Worry if it stays up: the partition does not get to them.",
            ("rm", "partition"),
            [(labels, messages) for labels, (messages, _) in under_way],
        )
        what = "The same in bytes of their bodies, with updates that have no number; at 16 MiB more are refused."
        samples = [(labels, float(size)) for labels, (_, size) in under_way]
        yield gauge("yunishard_rmproxy_window_bytes", what, ("rm", "partition"), samples)

    def _counted(self, sends: list[Send]) -> list[Send]:
        for one in sends:
            if one.to != BROKER:
                self._count(one.header.rm, "out", one.body)
                if one.header.kind == Refused.__name__:
                    self._refused[decoded(Refused, one.body).code] += 1
        return sends

    def _count(self, rm: str, direction: str, body: bytes) -> None:
        if rm in self._front.seats:
            self._passed.setdefault((rm, direction), _Passed()).add(body)
