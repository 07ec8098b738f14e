"""Differences that are meant: each is in docs/compatibility.md, which has the reasons.

Not here: what the generator avoids altogether, such as keys that two applications use.
"""

import json
import re
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
    return [line for line in found if not any(known.explains(line) for known in apply)]
