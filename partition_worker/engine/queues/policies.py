"""What the properties of a queue mean, and which of them its children inherit.

A bad value is not an error: it means the default. Not here: which values are bad
(`common/config/properties.py`), limits and ACLs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from common.config.properties import allocation_batch, back_off_after, delay_s, priority_offset
from common.node_sort_policies import parse_node_choice

ApplicationSort = Literal["fifo", "fair", "stateaware"]
PreemptionPolicy = Literal["default", "fence", "disabled"]

NODE_SORT: Final = "node.sort.policy"
ALLOCATION_BATCH: Final = "allocation.batch"
"""Properties of queues and, with the same meaning, tags of applications."""

POLICIES_MAX: Final = 1024
"""Different properties of which it is remembered what they mean: thousands of queues have the same ones."""

PREEMPTION_DELAY_S: Final = 30.0
BACK_OFF_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Policies:
    """The properties of one queue, read."""

    application_sort: ApplicationSort = "fifo"
    priority_sort: bool = True
    priority_fence: bool = False
    priority_offset: int = 0
    preemption: PreemptionPolicy = "default"
    preemption_delay_s: float = PREEMPTION_DELAY_S
    quota_preemption_delay_s: float = 0.0
    """0 is off."""
    back_off_after: int = 0
    """Asks of an application that fit no node before it is left alone for a while; 0 is never."""
    back_off_s: float = BACK_OFF_S
    node_sort: str | None = None
    """In which order nodes are tried; None is the partition's."""
    allocation_batch: int = 1
    """Asks of one kind that an application may get nodes for in one go."""


def policies(properties: Mapping[str, str], *, leaf: bool) -> Policies:
    """Read properties; some count only on a leaf."""
    return _read(tuple(properties.items()), leaf=leaf)


@lru_cache(POLICIES_MAX)
def _read(items: tuple[tuple[str, str], ...], *, leaf: bool) -> Policies:
    properties = dict(items)
    preemption = properties.get("preemption.policy", "").lower()
    return Policies(
        application_sort=_application_sort(properties.get("application.sort.policy", "")),
        priority_sort=properties.get("application.sort.priority", "").lower() != "disabled",
        priority_fence=properties.get("priority.policy", "").lower() == "fence",
        priority_offset=priority_offset(properties.get("priority.offset", "")) or 0,
        preemption="fence" if preemption == "fence" else "disabled" if preemption == "disabled" else "default",
        preemption_delay_s=(delay_s(properties.get("preemption.delay", "")) if leaf else None) or PREEMPTION_DELAY_S,
        quota_preemption_delay_s=delay_s(properties.get("quota.preemption.delay", "")) or 0.0,
        back_off_after=back_off_after(properties.get("application.unschedasks.backoff", "")) or 0,
        back_off_s=delay_s(properties.get("application.unschedasks.backoff.delay", "")) or BACK_OFF_S,
        node_sort=parse_node_choice(properties.get(NODE_SORT, "")),
        allocation_batch=allocation_batch(properties.get(ALLOCATION_BATCH, "")) or 1,
    )


def _application_sort(text: str) -> ApplicationSort:
    match text:
        case "fair" | "stateaware":
            return text
    return "fifo"


def passed_on(properties: Mapping[str, str]) -> dict[str, str]:
    """What a configured queue with these properties leaves to those below it, under their own."""
    passed = dict(properties)
    if "priority.policy" in passed:
        passed["priority.policy"] = "default"
    if "priority.offset" in passed:
        passed["priority.offset"] = "0"
    if passed.get("preemption.policy", "disabled").lower() != "disabled":
        passed["preemption.policy"] = "default"
    return passed
