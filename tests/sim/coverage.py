"""What a run must have seen: every message that our processes say to each other, and every fault.

Not here: counting (`world.py`, `faults.py`).
"""

from collections.abc import Mapping
from typing import Final

from tests.sim.faults import CLUSTER_KINDS, KINDS
from yunishard.common.messages.kinds import Message

EXCLUDED: Final = {
    **dict.fromkeys(("Command", "News", "Call", "Reply", "Control"), "the direction of others, never sent itself"),
    "ProbeRecord": "once in 150 seeds; tests/processes/test_full_disk.py needs it every time",
    "ConfigVersion": "inside a ManagerRecord, never alone",
    "VersionEntry": "the part of a ConfigVersion that the broker holds",
    **dict.fromkeys(("RemoveVersions", "VersionsRemoved"), "above limits only; tests/broker/test_record_limits.py"),
}
"""Kinds that need not be seen, and why."""

CLUSTER_ONLY: Final = (
    "PollLease",
    "LeasePolled",
    "RecordHost",
    "HostRecorded",
    "HostLeaves",
    "RemoveJournal",
    "ReadHosts",
    "ChangeHosts",
)
"""Kinds that are seen only in a cluster."""

EXPECTED: Final = tuple(kind for kind in Message.kinds if kind not in EXCLUDED)


def missing(kinds: Mapping[str, int], faults: Mapping[str, int], *, cluster: bool = False) -> list[str]:
    """What was never seen."""
    messages = [kind for kind in EXPECTED if cluster or kind not in CLUSTER_ONLY]
    return [
        *(f"message {kind}" for kind in messages if not kinds.get(kind)),
        *(f"fault {kind!r}" for kind in (CLUSTER_KINDS if cluster else KINDS) if not faults.get(kind)),
    ]


def table(kinds: Mapping[str, int], faults: Mapping[str, int]) -> str:
    """How often everything was seen."""
    lines = [f"{count:>10}  {name}" for name, count in sorted(kinds.items())]
    lines += ["", *(f"{count:>10}  {name}" for name, count in sorted(faults.items()))]
    return "\n".join(lines)
