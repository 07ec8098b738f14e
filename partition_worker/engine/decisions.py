"""What the cycle may decide, as values: checked before they are made, carried out afterwards (`cycle/cycle.py`)."""

from dataclasses import dataclass

from partition_worker.engine.applications.allocation import Allocation
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.reservation import Reservation
from partition_worker.engine.nodes.node import Node


@dataclass(frozen=True, slots=True)
class Allocate:
    """Give this ask that node."""

    application: Application
    ask: Allocation
    node: Node


@dataclass(frozen=True, slots=True)
class Replace:
    """Let this ask take the place of that placeholder, on its node or on another one."""

    application: Application
    ask: Allocation
    placeholder: Allocation
    node: Node


@dataclass(frozen=True, slots=True)
class Release:
    """Let go the placeholders that this ask of their group is too large for."""

    application: Application
    ask: Allocation
    placeholders: tuple[Allocation, ...]


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep that node for this ask."""

    application: Application
    ask: Allocation
    node: Node


@dataclass(frozen=True, slots=True)
class Preempt:
    """Ask the RM to let the victims go, and keep the node for this ask; reservations in the way end."""

    application: Application
    ask: Allocation
    node: Node
    victims: tuple[Allocation, ...]
    cancels: tuple[Reservation, ...] = ()
