"""Making a trace that disagrees shorter: parts are left out as long as it still does.

Pure: `disagree` plays. Not here: what is compared (`lane.py`).
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from tests.conformance.items import Item

RECORDS: Final = ("settle", "config", "validate", "events", "metrics", "rest")
"""Steps that record something, one thing each."""
LISTS: Final = ("items", "add", "remove")


def up_to_record(steps: list[Item], difference: str) -> list[Item]:
    """Without the steps after the record in which the first difference is (`[3]/rms/...`: the fourth)."""
    found = re.match(r"\[(\d+)\]", difference)
    if found is None:
        return steps
    records = [number for number, step in enumerate(steps) if next(iter(step)) in RECORDS]
    number = int(found[1])
    return steps[: records[number] + 1] if number < len(records) else steps


def shrunk(steps: list[Item], disagree: Callable[[list[Item]], bool], *, tries_max: int) -> list[Item]:
    """As few steps and items as `tries_max` attempts find; the first step (the registration) stays."""
    left = tries_max
    if not disagree(steps):
        return steps
    progress = True
    while progress and left > 0:
        progress = False
        for fewer in _smaller(steps):
            left -= 1
            if disagree(fewer):
                steps, progress = fewer, True
                break
            if left <= 0:
                break
    return steps


def _smaller(steps: list[Item]) -> Iterator[list[Item]]:
    """Every trace that is one cut smaller, the largest cuts first."""
    size = len(steps) // 2
    while size:
        for start in range(len(steps) - 1 - size, 0, -size):  # what comes late is least likely to matter
            yield steps[:start] + steps[start + size :]
        size //= 2
    for number, step in enumerate(steps):
        [(name, body)] = step.items()
        if not isinstance(body, dict):
            continue
        for key in LISTS:
            items = body.get(key, [])
            if len(items) > 1:
                for item in range(len(items)):
                    rest = [*items[:item], *items[item + 1 :]]
                    yield [*steps[:number], {name: {**body, key: rest}}, *steps[number + 1 :]]
