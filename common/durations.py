"""Durations as people write them in queue properties and settings: `1h30m`, `1.5s`, `500ms`."""

import re
from typing import Final

_UNIT_S: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TERM: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"([+-]?)((?:{_TERM.pattern})+|0)")


def seconds(text: str) -> float | None:
    """The duration in seconds, or None if the text is not one."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    total = sum(float(number) * _UNIT_S[unit] for number, unit in _TERM.findall(match[2]))
    return -total if match[1] == "-" else total
