"""Queue policies: parse the properties of a queue, and select those its children inherit.

A value that cannot be parsed means the default; `common/config/properties.py` reports it.
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
"""A property of queues, and a tag of applications with the same meaning."""

POLICIES_MAX: Final = 1024
"""Cached parse results: thousands of queues have equal properties."""

PREEMPTION_DELAY_S: Final = 30.0
BACK_OFF_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Policies:
    """The parsed properties of one queue."""

    application_sort: ApplicationSort = "fifo"
    priority_sort: bool = True
    priority_fence: bool = False
    priority_offset: int = 0
    preemption: PreemptionPolicy = "default"
    preemption_delay_s: float = PREEMPTION_DELAY_S
    quota_preemption_delay_s: float = 0.0
    """0 disables it."""
    back_off_after: int = 0
    """Failed asks of an application after which it backs off; 0 is never."""
    back_off_s: float = BACK_OFF_S
    node_sort: str | None = None
    """The node sort policy; None is that of the partition."""
    allocation_batch: int = 1
    """Asks of one group that an application may allocate in a row."""


def policies(properties: Mapping[str, str], *, leaf: bool) -> Policies:
    """Parse properties; some only apply to a leaf."""
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
    """The properties that a configured queue passes on to its children."""
    passed = dict(properties)
    if "priority.policy" in passed:
        passed["priority.policy"] = "default"
    if "priority.offset" in passed:
        passed["priority.offset"] = "0"
    if passed.get("preemption.policy", "disabled").lower() != "disabled":
        passed["preemption.policy"] = "default"
    return passed
