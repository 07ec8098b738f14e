"""The form in which answers are compared: what is different in every run is a token, what has no order is sorted.

Times that the scenario itself gives are facts and stay. Not here: comparing (`compare.py`).
"""

import json
from typing import Final, TypeAlias

Document: TypeAlias = "dict[str, Document] | list[Document] | str | int | float | bool | None"

TIMES: Final = frozenset(
    {
        "startTime",
        "lastStateTransitionTime",
        "timestamp",
        "timestampNano",
        "finishedTime",
        "submissionTime",
        "requestTime",
        "allocationTime",
        "lastOccurrence",
        "time",
    }
)
"""Keys of times, in milliseconds or nanoseconds."""

ORDERED: Final = frozenset({"stateLog", "allocationLog", "EventRecords", "HealthChecks", "utilization", "groups"})
"""Keys of lists whose order means something."""

FAMILIES: Final = "yunikorn_"
"""How the names of metrics begin that are compared: the reference has others of its process, and so have we."""

NEVER_MS: Final = -62_135_596_800_000
GIVEN_S: Final = range(1_699_000_000, 1_701_000_001)
"""Times that the scenario says, in Unix seconds."""

STATUSES: Final = "Only following active statuses are allowed: "
"""How an error begins that lists statuses, in no order."""


def document(text: str, *, ordered: bool = False) -> Document:
    """A JSON document; `ordered` where every list has an order."""
    return _canonical(json.loads(text), ordered=ordered)


def stream(text: str) -> Document:
    """A document in each line."""
    return [document(line) for line in text.splitlines()]


def series(text: str) -> Document:
    """Metrics: the kind of each family, and the value of each series. How long something took is not compared."""
    found: dict[str, Document] = {}
    timed: tuple[str, ...] = ()
    for line in text.splitlines():
        if line.startswith(f"# TYPE {FAMILIES}"):
            _, _, name, kind = line.split(" ")
            found[name] = kind
            timed = (f"{name}_sum", f"{name}_bucket") if kind == "histogram" else ()
        elif line.startswith(FAMILIES) and line.partition("{")[0].partition(" ")[0] not in timed:
            labelled, _, value = line.rpartition(" ")
            found[labelled] = float(value)
    return found


def _canonical(value: Document, *, ordered: bool, key: str = "") -> Document:
    match value:
        case dict():
            return {name: _member(name, one, value, ordered=ordered) for name, one in sorted(value.items())}
        case list():
            items = [_canonical(one, ordered=ordered) for one in value]
            return items if ordered or key in ORDERED else sorted(items, key=_sort_key)
        case str() if value.startswith(STATUSES):
            return STATUSES + ",".join(sorted(value.removeprefix(STATUSES).split(",")))
    return value


def _sort_key(value: Document) -> str:
    return json.dumps(value, sort_keys=True)


def _member(name: str, value: Document, owner: dict[str, Document], *, ordered: bool) -> Document:
    if name == "InstanceUUID":
        return "<uuid>"
    if name in ("backoffDeadline", "CreatedAt"):
        return "<time>"
    if name == "Name" and "CreatedAt" in owner:
        return "<host>"
    if name in TIMES and isinstance(value, int):
        return _time(value)
    return _canonical(value, ordered=ordered, key=name)


def _time(value: int) -> Document:
    if value in (0, NEVER_MS):
        return value
    for unit, token in ((1_000_000_000, "<ns>"), (1000, "<ms>")):
        seconds = value // unit
        if seconds in GIVEN_S:
            return value
        if 1_500_000_000 <= seconds <= 4_000_000_000:
            return token
    return value
