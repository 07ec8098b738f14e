"""What the cycle may decide, as values: checked before they are made, carried out afterwards (`cycle/cycle.py`)."""

from typing import NamedTuple

from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.nodes.node import Node, Reservation


class Allocate(NamedTuple):
    """Give this ask that node."""

    application: Application
    ask: Allocation
    node: Node


class Replace(NamedTuple):
    """Let this ask take the place of that placeholder, on its node or on another one."""

    application: Application
    ask: Allocation
    placeholder: Allocation
    node: Node


class Release(NamedTuple):
    """Let go the placeholders that this ask of their group is too large for."""

    application: Application
    ask: Allocation
    placeholders: tuple[Allocation, ...]


class Reserve(NamedTuple):
    """Keep that node for this ask."""

    application: Application
    ask: Allocation
    node: Node


class Preempt(NamedTuple):
    """Ask the RM to let the victims go, and keep the node for this ask; reservations in the way end."""

    application: Application
    ask: Allocation
    node: Node
    victims: tuple[Allocation, ...]
    cancels: tuple[Reservation, ...] = ()
