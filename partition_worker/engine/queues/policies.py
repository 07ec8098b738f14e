"""What the properties of a queue mean, and which of them its children inherit.

A bad value is not an error: it means the default. Not here: which properties a file may hold (any), limits and ACLs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from common.durations import seconds

ApplicationSort = Literal["fifo", "fair"]
PreemptionPolicy = Literal["default", "fence", "disabled"]

PREEMPTION_DELAY_S: Final = 30.0
_INT32: Final = range(-(2**31), 2**31)


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
        priority_offset=_offset(properties.get("priority.offset", "")),
        preemption="fence" if preemption == "fence" else "disabled" if preemption == "disabled" else "default",
        preemption_delay_s=_delay(properties, "preemption.delay", PREEMPTION_DELAY_S) if leaf else PREEMPTION_DELAY_S,
        quota_preemption_delay_s=_delay(properties, "quota.preemption.delay", 0.0),
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


def _offset(text: str) -> int:
    value = int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else 0
    return value if value in _INT32 else 0


def _delay(properties: Mapping[str, str], name: str, default: float) -> float:
    delay = seconds(properties.get(name, ""))
    return delay if delay is not None and delay > 0 else default
