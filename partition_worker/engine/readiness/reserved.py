"""All reservations of a partition, and which of them are worth another look.

A reservation is looked at again when its node has more room (`nudge`), when somebody else may have gone out of its way
(`retry`), and whenever a node that is kept for nobody may take its ask; so what waits in vain costs nothing.

Not here: making, ending and using reservations (`reservations.py`).
"""

from collections.abc import Iterator
from typing import Final

from common.machine import NEVER
from partition_worker.engine.applications.reservation import Reservation
from partition_worker.engine.needs import Need
from partition_worker.engine.nodes.node import Node

RESERVATION_WAIT_S: Final = 3600.0
"""After twice as long a reservation ends, and its node is free for whoever comes first."""


class Reserved:
    """Every reservation, oldest first."""

    def __init__(self) -> None:
        self._all: dict[int, Reservation] = {}
        self._by_need: dict[Need, dict[int, Reservation]] = {}
        """Those whose ask any node would do for."""
        self._nudged: dict[int, Reservation] = {}
        self._blocked: dict[int, Reservation] = {}
        """Those that had no room with their queue, user or group, or may not start, when somebody looked."""
        self._ranks = 0
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
        self._ranks += 1
        return self._ranks

    def add(self, reservation: Reservation) -> None:
        """A new one, which is worth a look."""
        self._all[reservation.rank] = reservation
        self._nudged[reservation.rank] = reservation
        if not reservation.for_required_node:
            self._by_need.setdefault(reservation.need, {})[reservation.rank] = reservation

    def drop(self, reservation: Reservation) -> None:
        """One that ended."""
        del self._all[reservation.rank]
        self._nudged.pop(reservation.rank, None)
        self._blocked.pop(reservation.rank, None)
        need = reservation.need
        if not reservation.for_required_node:
            del self._by_need[need][reservation.rank]
            if not self._by_need[need]:
                del self._by_need[need]

    def nudge(self, node: Node) -> None:
        """What is on the node changed."""
        for reservation in node.reservations.values():
            self._nudged[reservation.rank] = reservation

    def retry(self) -> None:
        """Whatever had no room may have some."""
        self._nudged.update(self._blocked)
        self._blocked.clear()

    def nudged(self) -> list[Reservation]:
        """Those to look at because of their node or their queue, oldest first."""
        return [self._nudged[rank] for rank in sorted(self._nudged)] if self._nudged else []

    def block(self, reservation: Reservation) -> None:
        """It is not used, whatever its node has, before something is freed elsewhere."""
        self._nudged.pop(reservation.rank, None)
        self._blocked[reservation.rank] = reservation

    def settle(self, reservation: Reservation) -> None:
        """It is not used before its node changes."""
        self._nudged.pop(reservation.rank, None)

    def needs(self) -> Iterator[tuple[Need, tuple[Reservation, ...]]]:
        """The different needs for which any node would do, each with those who have it, oldest first."""
        for need, reservations in self._by_need.items():
            yield need, tuple(reservations.values())
