"""Differences that are meant: each is in docs/compatibility.md, which has the reasons.

Not here: what the generator avoids altogether, such as keys that two applications use.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from common.event_codes import APP_COMPLETED
from tests.conformance.items import Item


@dataclass(frozen=True)
class Known:
    """Differences that `explains` recognises, in traces with such a step."""

    why: str
    explains: Callable[[str], bool]
    step: Callable[[str, Item], bool]
    has_consequences: bool = False
    """Whether everything differs in the records after such a difference, and in its own."""


def _is_usage(line: str) -> bool:
    return re.match(r"\[\d+\]/partitions/default/(users|groups)/", line) is not None


def _releases_everything(name: str, body: Item) -> bool:
    return name == "release" and any("key" not in item for item in body.get("items", []))


def _is_completed_left_out(line: str) -> bool:
    found = re.match(r"\[\d+\]/rms/rm-1/appStates/[\w-]+: expected (\[.*\]), got (\[.*\])$", line)
    if found is None:
        return False
    theirs, mine = ([one for one in json.loads(text) if one != "Completed"] for text in found.groups())
    return theirs == mine


def _is_completed_shown(line: str) -> bool:
    """In documents: as a state of the history of an application, or as a figure."""
    if re.search(r"/metrics/body/\S+state=\"completed\"\}", line):
        return True
    theirs, _, mine = line.partition(", got ")
    return "/events/batch/body/EventRecords/2 " in line and _COMPLETED in theirs and _COMPLETED not in mine


_COMPLETED: Final = f'"eventChangeDetail": {APP_COMPLETED}'


def _is_new_application(line: str) -> bool:
    """A series of new applications that is higher than the reference's by those that it rejected."""
    found = re.search(r"/metrics/body/yunikorn_queue_app\{.*state=\"new\"\}: expected (-?\d+)\S*, got (\d+|null)", line)
    return found is not None and int(found[1]) < int(found[2].replace("null", "0"))


def _is_peak(line: str) -> bool:
    return "/maxUsedResource" in line


def _resizes(name: str, body: Item) -> bool:
    """New asks are stamped (`draft.py`); these are not new."""
    return name == "asks" and any("tags" not in item for item in body["items"])


def _is_late_refusal(line: str) -> bool:
    """Asks that only this system refuses."""
    found = re.search(r"/rms/rm-1/rejectedAsks: expected (\[.*\]), got (\[.*\])$", line)
    return found is not None and set(json.loads(found[1])) < set(json.loads(found[2]))


def _is_further_preemption(line: str) -> bool:
    """Releases that only this system asks for, all of them by preemption."""
    found = re.search(r"/rms/rm-1/released: expected (\[.*\]), got (\[.*\])$", line)
    if found is None:
        return False
    theirs, mine = (Counter(json.loads(text)) for text in found.groups())
    return not theirs - mine and all(one.endswith(" PREEMPTED_BY_SCHEDULER") for one in mine - theirs)


def _may_preempt(name: str, body: Item) -> bool:
    return name == "asks" and any(
        one.get("preemptOther") or "yunikorn.apache.org/requiredNode" in one.get("tags", {}) for one in body["items"]
    )


def _submits_hard_gang(name: str, body: Item) -> bool:
    return name == "apps" and any(app.get("gangStyle") == "Hard" for app in body.get("add", []))


def _removes_application(name: str, body: Item) -> bool:
    return name == "apps" and bool(body.get("remove"))


KNOWN: Final = (
    Known("the most that an application used does not count what grows in place", _is_peak, _resizes),
    Known(
        "releasing everything of an application while asks wait leaves its use with its user for ever",
        _is_usage,
        _releases_everything,
    ),
    Known(
        "rejected applications are subtracted from the new ones of their queue",
        _is_new_application,
        lambda name, body: name == "apps",
    ),
    Known(
        "a hard gang that timed out, and waits for the RM to confirm releases, takes new asks",
        _is_late_refusal,
        _submits_hard_gang,
        has_consequences=True,
    ),
    Known(
        "a guarantee, or a required node, is given up for larger victims, a full cluster or a lost room",
        _is_further_preemption,
        _may_preempt,
        has_consequences=True,
    ),
    Known(
        "an application that is removed while it only asks is told to have Completed as well",
        lambda line: _is_completed_left_out(line) or _is_completed_shown(line),
        _removes_application,
    ),
)


def unexplained(steps: list[Item], found: Iterable[str]) -> list[str]:
    """The differences that nothing here explains."""
    apply = [
        known for known in KNOWN if any(known.step(name, body) for step in steps for name, body in step.items() if body)
    ]
    lines = list(found)
    causes = [line for line in lines if any(known.has_consequences and known.explains(line) for known in apply)]
    end = min((_record_of(line) for line in causes), default=math.inf)
    return [line for line in lines if _record_of(line) < end and not any(known.explains(line) for known in apply)]


def _record_of(line: str) -> int:
    """The number of the record that a line is about; -1 for none."""
    found = re.match(r"\[(\d+)\]", line)
    return -1 if found is None else int(found[1])
