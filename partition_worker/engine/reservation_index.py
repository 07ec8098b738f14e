"""Index of all reservations, and of those that may be usable now, the candidates.

A reservation becomes a candidate when its node changes, and each one is checked when an unreserved node may take its
ask. Reservations of one leaf for equal amounts form a group, those of the highest priority first and of equals the
oldest: if the queue has no room for the first there is none for the others, and if the first is usable the others are
not checked. So reservations that wait for room in the cluster cost one check for each group, however many nodes are
reserved.

A reservation that its queue, user or group has no room for ends. Only what grew is checked: `grown` has the queues
with a maximum, and `charged` the limits, of which the usage grew while reservations depend on them.

`reservations.py` makes and cancels reservations; `queue_traversal.py` uses them.
"""

from collections.abc import Iterable

from yunishard.common.messages.kinds import Resources
from yunishard.partition_worker.engine.allocation import AskShape
from yunishard.partition_worker.engine.amounts import Amounts
from yunishard.partition_worker.engine.nodes.node_index import Node, Reservation
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.sorted_items import Order
from yunishard.partition_worker.engine.user_limits import QueueUsage

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
        """Every reservation, oldest first: ranks grow, and a restored partition inserts in their order. Their maximum
        age is the same, so the first one reaches it first.
        """
        self.keeping: Order[Reservation] = Order()
        """Those that keep room after a preemption, the oldest preemption first."""
        self.by_shape: dict[AskShape, _Groups] = {}
        """Reservations whose asks may run on any node."""
        self.candidates: _Groups = {}
        """Reservations whose nodes may have room."""
        self.below: dict[int, _Groups] = {}
        """By the rank of a queue other than the root, the groups in it and below it."""
        self.shares: dict[str, dict[int, Reservation]] = {}
        """By application, its reservations that count toward its share of the nodes, by rank."""
        self.share_max = 0
        """How many of them an application may have, as of the last check."""
        self.grown: dict[int, Queue] = {}
        """Queues with a maximum of which the usage grew, by rank: the reservations below them are checked."""
        self.charged: dict[int, None] = {}
        """Ranks of usages with a limit that grew: the reservations of those charged there are checked."""
        self.has_new_limits = True
        """Whether all reservations are checked: a maximum or a limit may be lower than before."""
        self.ranks = 0
        """Number of reservations ever made."""
        self.has_candidates = False
        """Whether there is a new candidate since no reservation could be used."""
        self.checked_round = -1
        """The last retry round in which no reservation could be used."""

    def insert(self, reservation: Reservation) -> None:
        """Add a new reservation, as a candidate."""
        self.by_rank[reservation.rank] = reservation
        self._link(reservation)

    def remove(self, reservation: Reservation) -> None:
        """Remove a reservation that ended."""
        del self.by_rank[reservation.rank]
        self._unlink(reservation)

    def update(self, reservation: Reservation, shape: AskShape, keeps: Resources, keeps_since: float) -> None:
        """Set the ask shape of a reservation, and the room that its queues keep for it. Its age stays."""
        self._unlink(reservation)  # first, as these fields are the keys of its groups
        reservation.shape, reservation.keeps, reservation.keeps_since = shape, keeps, keeps_since
        self._link(reservation)

    def add_candidates(self, reservations: Iterable[Reservation]) -> None:
        """Check these reservations again: their nodes changed."""
        for reservation in reservations:
            _add_to_group(self.candidates, reservation)
            self.has_candidates = True

    def recheck_node(self, node: Node) -> None:
        """Check the reservations of a node that changed."""
        self.add_candidates(node.reservations.values())

    def remove_candidate(self, reservation: Reservation) -> None:
        """Do not check a reservation again before its node changes."""
        _remove_from_group(self.candidates, reservation)

    def note_growth(self, leaf: Queue, limits: Iterable[QueueUsage] = ()) -> None:
        """Note that the usage of a leaf, and of these limits, grew: reservations may be useless now."""
        for queue in leaf.ancestry():
            if queue.maximum is not None and queue.rank in self.below:
                self.grown[queue.rank] = queue
        for level in limits:
            self.charged[level.rank] = None

    def _link(self, reservation: Reservation) -> None:
        self.add_candidates((reservation,))
        for queue in reservation.leaf.ancestry()[:-1]:  # not the root: a full cluster ends no reservation
            _add_to_group(self.below.setdefault(queue.rank, {}), reservation)
        if reservation.counts_toward_share:
            self.shares.setdefault(reservation.ask.application_id, {})[reservation.rank] = reservation
        if reservation.after_preemption:
            self.keeping.put(reservation, (reservation.keeps_since,))
        if not reservation.for_required_node:
            _add_to_group(self.by_shape.setdefault(reservation.shape, {}), reservation)

    def _unlink(self, reservation: Reservation) -> None:
        self.remove_candidate(reservation)
        for queue in reservation.leaf.ancestry()[:-1]:
            groups = self.below[queue.rank]
            _remove_from_group(groups, reservation)
            if not groups:
                del self.below[queue.rank]
        if reservation.counts_toward_share:
            share = self.shares[reservation.ask.application_id]
            del share[reservation.rank]
            if not share:
                del self.shares[reservation.ask.application_id]
        self.keeping.drop(reservation)
        if not reservation.for_required_node:
            groups = self.by_shape[reservation.shape]
            _remove_from_group(groups, reservation)
            if not groups:
                del self.by_shape[reservation.shape]


def _group_key(reservation: Reservation) -> ReservationKey:
    rank = reservation.rank if reservation.keeps else 0  # with kept room of its own, what queues have left differs
    return reservation.leaf.rank, reservation.shape.amounts, rank, reservation.for_required_node


def _add_to_group(groups: _Groups, reservation: Reservation) -> None:
    groups.setdefault(_group_key(reservation), Order()).put(reservation, (-reservation.ask.priority,))


def _remove_from_group(groups: _Groups, reservation: Reservation) -> None:
    key = _group_key(reservation)
    if key in groups:
        groups[key].drop(reservation)
        if not len(groups[key]):
            del groups[key]
