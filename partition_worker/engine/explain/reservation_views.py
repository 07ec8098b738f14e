"""The reservations in an explanation: the node, the ask for which it is reserved, and when that ends at the latest."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from yunishard.common.rest.explain import ReservationView
from yunishard.common.text_formats import format_count
from yunishard.common.units import format_seconds
from yunishard.partition_worker.engine.nodes.node_index import Node, Reservation
from yunishard.partition_worker.engine.reservations import end_of
from yunishard.partition_worker.engine.state import PartitionState

RESERVATIONS_MAX: Final = 5
"""Reservations in an explanation, the first ones that were found."""


def describe_end(state: PartitionState, reservation: Reservation, now: float) -> str:
    """Return how long a reservation lasts at most, in words."""
    return f"for another {format_seconds(max(0.0, end_of(state, reservation) - now))} at most"


def describe_ask(key: str, application_id: str) -> str:
    """Return the words for an ask that holds a node. A comma follows them wherever they are used, so that another ask,
    the application of which begins with the same characters, is not taken for it where they are replaced.
    """
    return f"ask {key} of {application_id}"


def view_reservation(state: PartitionState, reservation: Reservation, now: float) -> ReservationView:
    """Return the view of a reservation."""
    ask = reservation.ask
    return ReservationView(
        node=reservation.node.node_id,
        application=ask.application_id,
        ask=ask.key,
        until=int(end_of(state, reservation) * 1e9),
        text=f"reserved for {describe_ask(ask.key, ask.application_id)}, {describe_end(state, reservation, now)}",
    )


def describe_holder(state: PartitionState, node: Node, now: float) -> str:
    """Return for which ask a reserved node is reserved, and how long; several that require it are counted."""
    first, *others = node.reservations.values()
    text = view_reservation(state, first, now).text
    return f"{text}, and for {format_count(len(others), 'other ask')} that require it" if others else text


def view_reservations(state: PartitionState, nodes: Iterable[Node], now: float) -> list[ReservationView]:
    """Return the views of the first reservations of these nodes."""
    found = (one for node in nodes for one in node.reservations.values())
    return [view_reservation(state, one, now) for one in islice(found, RESERVATIONS_MAX)]
