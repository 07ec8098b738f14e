"""Engine options, and bounds on what an RM can make a partition store and compute.

An object that exceeds a bound is refused with a reason that names the bound; existing objects are never affected.
Queues created for applications, task groups, users and groups are bounded with the objects that refer to them.

Placement work is bounded because an RM chooses the number and length of group names, and a configuration the number and
kind of rules. Rules count their work in units of about 25 ns, equal on all machines, as journals must replay exactly.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from common.config.placement_rules import Expression
from common.rm_messages import AddApplicationRequest, Allocation, NodeInfo

APPLICATIONS_MAX: Final = 200_000
"""Applications of a partition that have not ended, a few kilobytes each."""

NODES_MAX: Final = 100_000
"""Nodes of a partition."""

TEXT_MAX: Final = 512 << 10
"""Characters in the names, tags, attributes and groups of one ask, application or node: twice the limit of Kubernetes
for the annotations of a pod.
"""


def ask_objection(ask: Allocation, *, count: int, asks_max: int) -> str:
    """Why a partition with this many asks and allocations refuses another one; empty if it does not."""
    if count >= asks_max:
        return f"the partition has {asks_max} asks and allocations, the setting asks-max allows no more"
    size = len(ask.allocation_key) + len(ask.application_id) + len(ask.task_group_name)
    return _too_much(size + _text(ask.allocation_tags) + _lengths(ask.resource_per_alloc))


def application_objection(new: AddApplicationRequest, *, count: int) -> str:
    """Why a partition with this many applications refuses another one; empty if it does not."""
    if count >= APPLICATIONS_MAX:
        return f"the partition has {APPLICATIONS_MAX} applications, it takes no more"
    names = (new.application_id, new.queue_name, new.ugi.user, *new.ugi.groups, *new.placeholder_ask)
    return _too_much(_text(new.tags) + _lengths(names))


def node_objection(info: NodeInfo, *, count: int) -> str:
    """Why a partition with this many nodes refuses another one; empty if it does not."""
    if count >= NODES_MAX:
        return f"the partition has {NODES_MAX} nodes, it takes no more"
    return _too_much(len(info.node_id) + _text(info.attributes) + _lengths(info.schedulable_resource or {}))


def _too_much(size: int) -> str:
    return f"its texts have {size} characters, at most {TEXT_MAX} are allowed" if size > TEXT_MAX else ""


def _text(tags: Mapping[str, str]) -> int:
    return _lengths(tags) + _lengths(tags.values()) if tags else 0


def _lengths(texts: Iterable[str]) -> int:
    return sum(map(len, texts))


# Engine options -------------------------------------------------------------------------------------------------------

RESERVATION_DELAY_S: Final = 2.0
"""Seconds before an unschedulable ask may reserve a node."""

PREEMPTION_PAUSE_S: Final = 15.0
"""Seconds before an ask searches for victims again after a search without result."""

ASKS_MAX: Final = 2_000_000
"""Default for the asks and allocations of a partition: about 2 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Options of the engine."""

    reservation_delay_s: float = RESERVATION_DELAY_S
    """Infinite if reservations are disabled, except those for required nodes and after preemption."""
    preemption_pause_s: float = PREEMPTION_PAUSE_S
    preemption_threshold: float = 0.0
    """Fraction of the cluster, 0.0 to 1.0 of the most used resource type, that must be used before asks preempt. Asks
    with a required node and quota preemption ignore it.
    """
    asks_max: int = ASKS_MAX
    """Asks and allocations of a partition, including foreign ones; further ones are refused."""


DEFAULT: Final = Tuning()
"""The defaults of YuniKorn."""


# Placement work -------------------------------------------------------------------------------------------------------

UPDATE_WORK_MAX: Final = 100_000_000
"""Units for all applications of one update, two to three seconds at worst; further applications are rejected."""

APPLICATION_WORK_MAX: Final = 30_000_000
"""Units for one application, which is rejected beyond it. 1,000 groups of 30 characters and ten rules with usual
expressions take 5,000,000.
"""

_LOOKUP: Final = 3
"""Units for a name already matched in the same update."""

_MATCH: Final = 120
"""Units for a call of RE2, in addition to those for the name."""


class TooMuchWorkError(Exception):
    """A submission exceeds the placement work; the text is the reason for the RM."""


class Work:
    """The remaining work of one update, and the matches found in it."""

    def __init__(self, most: int = UPDATE_WORK_MAX) -> None:
        self._left = most
        self._left_for_one = APPLICATION_WORK_MAX
        self._found: dict[Expression, dict[str, bool]] = {}

    def begin_application(self) -> None:
        """Start the share of the next application."""
        self._left_for_one = APPLICATION_WORK_MAX

    def spend(self, units: int) -> None:
        """Count work before it is done. Raises TooMuchWorkError."""
        if units > self._left_for_one:
            raise TooMuchWorkError(
                f"its groups take the placement rules more than {APPLICATION_WORK_MAX} units of work: "
                "submit it with fewer or shorter groups"
            )
        if units > self._left:
            self._left = 0
            raise TooMuchWorkError(
                f"the applications of this update take the placement rules more than {UPDATE_WORK_MAX} units of work: "
                "submit fewer applications in one update, or with fewer groups"
            )
        self._left -= units
        self._left_for_one -= units

    def any_matches(self, expression: Expression, names: Iterable[str]) -> bool:
        """Whether the expression matches any of the names. Raises TooMuchWorkError, NameTooLongError."""
        found = self._found.setdefault(expression, {})
        for name in names:
            matches = found.get(name)
            if matches is None:
                # RE2 takes at most one step for each instruction and byte, 10 ns each where it cannot cache its states
                self.spend(_MATCH + len(name.encode(errors="replace")) * expression.size // 2)
                matches = found[name] = expression.found_in(name)
            else:
                self.spend(_LOOKUP)
            if matches:
                return True
        return False
