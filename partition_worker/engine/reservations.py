"""How a node comes to be kept for an ask, and how that ends.

A node is kept for one ask, or for several of which each can run nowhere else. Whoever made others go keeps in addition,
at its queues, the room that they left: nobody else below a queue with a maximum gets it. So what was freed for an ask
waits for it.

Not here: who deserves a reservation (`cycle/descent.py`), using it (`cycle/reserved_asks.py`).
"""

from common import event_codes
from common.resources import fits
from partition_worker.engine import happenings
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.books import Books
from partition_worker.engine.nodes.node import Node, Reservation
from partition_worker.engine.queues import headroom


def reserve(books: Books, application: Application, ask: Allocation, node: Node) -> Reservation:
    """Keep the node for the ask, in place of another one that is kept for it."""
    if ask.reserved:
        before = application.reservations[ask.key]
        if before.node is node:
            return before
        cancel(books, before)
    assert ask.key in application.requests, ask.key
    reservation = Reservation(ask, node, application.queue, created=books.now, rank=books.reserved.next_rank())
    assert all(reservation.for_required_node and other.for_required_node for other in node.reservations.values()), (
        node.node_id
    )
    ask.reserved = True
    application.reservations[ask.key] = reservation
    application.asks.regroup(ask)
    node.reservations[ask.key] = reservation
    books.fleet.kept(node)
    books.reserved.add(reservation)
    happenings.reservation(books, node.node_id, event_codes.ADD, ask)
    books.readiness.touch_application(application)
    return reservation


def cancel(books: Books, reservation: Reservation) -> None:
    """The node is kept for this ask no longer."""
    ask, node = reservation.ask, reservation.node
    application = books.applications[ask.application_id]
    ask.reserved = False
    del application.reservations[ask.key]
    del node.reservations[ask.key]
    happenings.reservation(books, node.node_id, event_codes.REMOVE, ask)
    books.reserved.drop(reservation)
    if reservation.keeps:
        headroom.no_longer_keep(reservation.leaf, reservation.keeps)
        reservation.keeps = {}
        for called in books.preemptions.settled(ask):
            if called in books.applications:
                books.readiness.touch_application(books.applications[called])
    if ask.key in application.requests:
        application.asks.regroup(ask)
    if not node.reservations:
        books.fleet.unkept(node)
    books.readiness.touch_application(application)
    books.readiness.relieve()


def resized(books: Books, reservation: Reservation) -> None:
    """The ask wants other amounts now; its node is kept for it as long as it can ever take them."""
    if not fits(reservation.node.capacity, reservation.ask.resources):
        cancel(books, reservation)
        return
    if reservation.keeps:
        headroom.no_longer_keep(reservation.leaf, reservation.keeps)
        headroom.keep(reservation.leaf, reservation.ask.resources)
    books.reserved.amend(reservation, reservation.ask.need, reservation.ask.resources if reservation.keeps else {})
    books.readiness.relieve()  # other nodes may have room for what it wants now


def node_resized(books: Books, node: Node) -> None:
    """The node has another capacity; it is kept no longer for those who can never run there."""
    for reservation in tuple(node.reservations.values()):
        if not fits(node.capacity, reservation.ask.resources):
            cancel(books, reservation)
    books.reserved.nudge(node)


def clear(books: Books, node: Node) -> None:
    """Nobody keeps the node any longer for whom another one would do."""
    for reservation in tuple(node.reservations.values()):
        if not reservation.for_required_node:
            cancel(books, reservation)


def vacate(books: Books, node: Node) -> None:
    """Nobody keeps the node any longer: it goes."""
    for reservation in tuple(node.reservations.values()):
        cancel(books, reservation)


def expire(books: Books) -> None:
    """End the reservations that have lasted for as long as they may; their asks may reserve anew, after others."""
    while books.reserved.deadline <= books.now:
        oldest = books.reserved.oldest
        assert oldest is not None
        cancel(books, oldest)


def keep_room(books: Books, reservation: Reservation) -> None:
    """The queues of an ask for which others have to go keep the room that these leave."""
    assert not reservation.keeps, reservation.ask.key
    books.reserved.amend(reservation, reservation.need, reservation.ask.resources)
    headroom.keep(reservation.leaf, reservation.keeps)
