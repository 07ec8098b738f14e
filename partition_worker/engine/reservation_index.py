"""Index of all reservations, and of those that may be usable now, the candidates.

A reservation becomes a candidate when its node changes, and each one is checked when an unreserved node may take its
ask. Reservations of one leaf for equal amounts form a group, oldest first: if the queue has no room for the first
there is none for the others, and if the first is usable the others are not checked. So reservations that wait for
their queue cost one check for each group, however many nodes are reserved.

`reservations.py` makes and cancels reservations; `queue_traversal.py` uses them.
"""

from collections.abc import Iterable
from typing import Final

from common.messages import Resources
from common.wire import NEVER
from partition_worker.engine.allocation import Amounts, AskShape
from partition_worker.engine.nodes.node_index import Node, Reservation
from partition_worker.engine.sorted_items import Order

RESERVATION_MAX_S: Final = 7200.0
"""Maximum age of a reservation; then it ends, and its node is free for other asks."""

ReservationKey = tuple[int, Amounts, int, bool]
"""Rank of the leaf, amounts, the rank of a reservation for which its queues keep room, which is a group of its own, and
whether the asks require their nodes.
"""

_Groups = dict[ReservationKey, Order[Reservation]]
"""No group is empty."""


class ReservationIndex:
    """Every reservation, and those that may be usable now."""

    def __init__(self) -> None:
        self.by_rank: dict[int, Reservation] = {}
        """Every reservation, oldest first."""
        self.by_shape: dict[AskShape, _Groups] = {}
        """Reservations whose asks may run on any node."""
        self.candidates: _Groups = {}
        """Reservations whose nodes may have room."""
        self.ranks = 0
        """Number of reservations ever made."""
        self.has_candidates = False
        """Whether there is a new candidate since no reservation could be used."""
        self.checked_round = -1
        """The last retry round in which no reservation could be used."""

    @property
    def deadline(self) -> float:
        """When the oldest reservation ends, or NEVER."""
        return next(iter(self.by_rank.values())).created + RESERVATION_MAX_S if self.by_rank else NEVER

    def insert(self, reservation: Reservation) -> None:
        """Add a new reservation, as a candidate."""
        self.by_rank[reservation.rank] = reservation
        self._link(reservation)

    def remove(self, reservation: Reservation) -> None:
        """Remove a reservation that ended."""
        del self.by_rank[reservation.rank]
        self._unlink(reservation)

    def update(self, reservation: Reservation, shape: AskShape, keeps: Resources) -> None:
        """Set the ask shape of a reservation and the room that its queues keep for it. Its age stays."""
        self._unlink(reservation)
        reservation.shape, reservation.keeps = shape, keeps
        self._link(reservation)

    def add_candidates(self, reservations: Iterable[Reservation]) -> None:
        """Check these reservations again: their nodes changed."""
        for reservation in reservations:
            self.candidates.setdefault(_group_key(reservation), Order()).put(reservation, ())
            self.has_candidates = True

    def recheck_node(self, node: Node) -> None:
        """Check the reservations of a node that changed."""
        self.add_candidates(node.reservations.values())

    def remove_candidate(self, reservation: Reservation) -> None:
        """Do not check a reservation again before its node changes."""
        _remove_from_group(self.candidates, reservation)

    def is_check_due(self, retry_round: int) -> bool:
        """Whether any reservation may be usable in this retry round, if there are reservations."""
        return self.has_candidates or self.checked_round != retry_round

    def _link(self, reservation: Reservation) -> None:
        self.add_candidates((reservation,))
        if not reservation.for_required_node:
            groups = self.by_shape.setdefault(reservation.shape, {})
            groups.setdefault(_group_key(reservation), Order()).put(reservation, ())

    def _unlink(self, reservation: Reservation) -> None:
        self.remove_candidate(reservation)
        if not reservation.for_required_node:
            groups = self.by_shape[reservation.shape]
            _remove_from_group(groups, reservation)
            if not groups:
                del self.by_shape[reservation.shape]


def _group_key(reservation: Reservation) -> ReservationKey:
    rank = reservation.rank if reservation.keeps else 0
    return reservation.leaf.rank, reservation.shape.amounts, rank, reservation.for_required_node


def _remove_from_group(groups: _Groups, reservation: Reservation) -> None:
    key = _group_key(reservation)
    if key in groups:
        groups[key].drop(reservation)
        if not len(groups[key]):
            del groups[key]
