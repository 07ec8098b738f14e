"""Index of all reservations, and of those that may be usable now.

A reservation is checked again when its node has more room (`nudge`), and whenever an unreserved node may take its
ask. Reservations of one leaf with equal needs share a *line*, oldest first: if the queue has no room for the first
there is none for the others, and if the first is usable the others are not checked. So reservations that wait for
their queue cost one check for each line, however many nodes are reserved.

`reservations.py` makes, cancels and uses reservations.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from common.messages import Resources
from common.wire import NEVER
from partition_worker.engine.ask_shapes import Amounts, AskShape
from partition_worker.engine.nodes.node import Node, Reservation
from partition_worker.engine.order import Order

RESERVATION_WAIT_S: Final = 3600.0
"""After twice as long a reservation ends, and its node is free for whoever comes first."""


class _Line(NamedTuple):
    """Reservations with the same name have room with their queue, or none has."""

    leaf: int
    """Its rank."""
    amounts: Amounts
    own: int
    """The rank of the reservation if its queue keeps room for it, so that it has a line for itself; 0 otherwise."""


class ReservationIndex:
    """Every reservation, oldest first."""

    def __init__(self) -> None:
        self._all: dict[int, Reservation] = {}
        self._by_need: dict[AskShape, dict[_Line, Order[Reservation]]] = {}
        """Those whose ask any node would do for."""
        self._nudged: dict[_Line, Order[Reservation]] = {}
        """Those whose node may have room."""
        self.ranks = 0
        """How many there ever were."""
        self.stale = False
        """Whether any was nudged since none could be used."""
        self.seen = -1
        """The last relief after which none of them could be used."""

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Reservation]:
        return iter(self._all.values())

    @property
    def deadline(self) -> float:
        """When the oldest ends, or NEVER."""
        oldest = next(iter(self._all.values()), None)
        return NEVER if oldest is None else oldest.created + 2 * RESERVATION_WAIT_S

    @property
    def oldest(self) -> Reservation | None:
        return next(iter(self._all.values()), None)

    def next_rank(self) -> int:
        self.ranks += 1
        return self.ranks

    def add(self, reservation: Reservation) -> None:
        """A new one, which is worth a look."""
        self._all[reservation.rank] = reservation
        self._enter(reservation)

    def drop(self, reservation: Reservation) -> None:
        """One that ended."""
        del self._all[reservation.rank]
        self._leave(reservation)

    def amend(self, reservation: Reservation, shape: AskShape, keeps: Resources) -> None:
        """Its ask needs this now, and its queues keep this for it. It is as old as it was."""
        self._leave(reservation)
        reservation.shape, reservation.keeps = shape, keeps
        self._enter(reservation)

    def nudge(self, node: Node) -> None:
        """What is on the node changed."""
        for reservation in node.reservations.values():
            self._nudge(reservation)

    def settle(self, reservation: Reservation) -> None:
        """It is not used before its node changes."""
        _take(self._nudged, _line(reservation), reservation)

    def worth_a_look(self, retry_round: int) -> bool:
        """Whether any may be usable, after so many reliefs."""
        return len(self._all) > 0 and (self.stale or self.seen != retry_round)

    def relieved(self, retry_round: int) -> bool:
        """Whether anything was freed since none could be used."""
        return self.seen != retry_round

    def rest(self, retry_round: int) -> None:
        """None can be used as things are."""
        self.seen, self.stale = retry_round, False

    def nudged(self) -> list[Order[Reservation]]:
        """The lines of those whose node may have room."""
        return list(self._nudged.values())

    def needs(self) -> Iterator[tuple[AskShape, list[Order[Reservation]]]]:
        """The different needs for which any node would do, each with the lines of those who have it."""
        for shape, lines in self._by_need.items():
            yield shape, list(lines.values())

    def recall(
        self,
        reservations: Iterable[Reservation],
        *,
        by_need: Iterable[Reservation],
        nudged: Iterable[Reservation],
        ranks: int,
        stale: bool,
        seen: int,
    ) -> None:
        """Go on where one was that is remembered (`engine/memory`), all in the orders that they had."""
        self._all = {one.rank: one for one in reservations}
        for one in by_need:
            self._by_need.setdefault(one.shape, {}).setdefault(_line(one), Order()).put(one, ())
        for one in nudged:
            self._nudge(one)
        self.ranks, self.stale, self.seen = ranks, stale, seen

    # Private --------------------------------------------------------------------------------------------------------

    def _enter(self, reservation: Reservation) -> None:
        self._nudge(reservation)
        if not reservation.for_required_node:
            lines = self._by_need.setdefault(reservation.shape, {})
            lines.setdefault(_line(reservation), Order()).put(reservation, ())

    def _leave(self, reservation: Reservation) -> None:
        shape, line = reservation.shape, _line(reservation)
        _take(self._nudged, line, reservation)
        if not reservation.for_required_node:
            _take(self._by_need[shape], line, reservation)
            if not self._by_need[shape]:
                del self._by_need[shape]

    def _nudge(self, reservation: Reservation) -> None:
        self._nudged.setdefault(_line(reservation), Order()).put(reservation, ())
        self.stale = True


def _line(reservation: Reservation) -> _Line:
    own = reservation.rank if reservation.keeps else 0
    return _Line(reservation.leaf.rank, reservation.shape.amounts, own)


def _take(lines: dict[_Line, Order[Reservation]], line: _Line, reservation: Reservation) -> None:
    """Take it out of its line, if it is in; no line is empty."""
    members = lines.get(line)
    if members is not None:
        members.drop(reservation)
        if not len(members):
            del lines[line]
