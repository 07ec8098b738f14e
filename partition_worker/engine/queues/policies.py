"""What the properties of a queue mean, and which of them its children inherit.

A bad value is not an error: it means the default. Not here: which values are bad
(`common/config/properties.py`), limits and ACLs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from common.config.properties import delay_s, priority_offset

ApplicationSort = Literal["fifo", "fair"]
PreemptionPolicy = Literal["default", "fence", "disabled"]

PREEMPTION_DELAY_S: Final = 30.0


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


def policies(properties: Mapping[str, str], *, leaf: bool) -> Policies:
    """Read properties; some count only on a leaf."""
    preemption = properties.get("preemption.policy", "").lower()
    return Policies(
        application_sort="fair" if properties.get("application.sort.policy") == "fair" else "fifo",
        priority_sort=properties.get("application.sort.priority", "").lower() != "disabled",
        priority_fence=properties.get("priority.policy", "").lower() == "fence",
        priority_offset=priority_offset(properties.get("priority.offset", "")) or 0,
        preemption="fence" if preemption == "fence" else "disabled" if preemption == "disabled" else "default",
        preemption_delay_s=(delay_s(properties.get("preemption.delay", "")) if leaf else None) or PREEMPTION_DELAY_S,
        quota_preemption_delay_s=delay_s(properties.get("quota.preemption.delay", "")) or 0.0,
    )


def inherited(parent: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The properties of a configured queue: its parent's as far as they are passed on, under its own."""
    passed = dict(parent)
    if "priority.policy" in passed:
        passed["priority.policy"] = "default"
    if "priority.offset" in passed:
        passed["priority.offset"] = "0"
    if passed.get("preemption.policy", "disabled").lower() != "disabled":
        passed["preemption.policy"] = "default"
    return {**passed, **own}
