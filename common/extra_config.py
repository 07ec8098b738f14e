"""The settings that a resource manager sends for itself (`extraConfig`): which there are, and what their texts mean.

A map of text to text replaces the one before, whole. Keys are exact; others belong to the resource manager and are
passed by. A bad value is no error: the default holds, and a bad level is as good as none.

Not here: what the settings change (whoever uses them), the settings of the system itself (`yunishard up --help`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from common.text_formats import UINT_MAX, parse_duration

INT64_MAX: Final = 2**63 - 1
DURATION_MAX_S: Final = INT64_MAX / 1e9
"""Longer ones do not fit into the nanoseconds that the reference counts."""

DEBUG: Final = -1
INFO: Final = 0
LEVEL_MAX: Final = 5
LEVELS: Final[Mapping[str, int]] = {
    "debug": DEBUG,
    "": INFO,
    "info": INFO,
    "warn": 1,
    "warning": 1,
    "error": 2,
    "dpanic": 3,
    "panic": 4,
    "fatal": LEVEL_MAX,
}
"""Names of log levels, in any case, to their numbers."""

ROOT_LEVEL: Final = "log.level"

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_UINT: Final = re.compile(r"[0-9]{1,20}")
_INT: Final = re.compile(r"[+-]?[0-9]{1,20}")
_LOGGER: Final = re.compile(r"log\.(?P<logger>.+)\.level")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraConfig:
    """The settings as they are in force."""

    event_tracking_enabled: bool = True
    event_request_capacity: int = 1000
    """Events kept for the resource manager until they are sent."""
    event_ring_buffer_capacity: int = 100_000
    """Events kept for those who ask over REST."""
    event_max_streams: int = 100
    """0 for none."""
    event_max_streams_per_host: int = 15
    """0 for none."""
    event_rest_response_size: int = 10_000
    """Events in one answer."""
    health_check_interval_s: float = 30.0
    """0 for no checks but those that are asked for."""


DEFAULTS: Final = ExtraConfig()


@dataclass(frozen=True, slots=True)
class Effective:
    """A setting for people: its value in force, and whether that was sent or is the default."""

    key: str
    value: str
    sent: bool


def read(values: Mapping[str, str]) -> ExtraConfig:
    """The settings in force when these were sent."""

    def sent(key: str) -> str:
        return values.get(key, "")  # an empty text is a bad value of each kind

    return ExtraConfig(
        event_tracking_enabled=_or(_flag(sent("event.trackingEnabled")), DEFAULTS.event_tracking_enabled),
        event_request_capacity=_or(_positive(sent("event.requestCapacity")), DEFAULTS.event_request_capacity),
        event_ring_buffer_capacity=_or(
            _positive(sent("event.ringBufferCapacity")), DEFAULTS.event_ring_buffer_capacity
        ),
        event_max_streams=_or(_count(sent("event.maxStreams")), DEFAULTS.event_max_streams),
        event_max_streams_per_host=_or(_count(sent("event.maxStreamsPerHost")), DEFAULTS.event_max_streams_per_host),
        event_rest_response_size=_or(_positive(sent("event.RESTResponseSize")), DEFAULTS.event_rest_response_size),
        health_check_interval_s=_or(_interval_s(sent("health.checkInterval")), DEFAULTS.health_check_interval_s),
    )


def effective(values: Mapping[str, str]) -> Iterator[Effective]:
    """Yield every setting that the core knows, with what is in force; then those of loggers that were sent."""
    now = read(values)
    known: tuple[tuple[str, str, Callable[[str], float | None]], ...] = (
        ("event.trackingEnabled", str(now.event_tracking_enabled).lower(), _flag),
        ("event.requestCapacity", str(now.event_request_capacity), _positive),
        ("event.ringBufferCapacity", str(now.event_ring_buffer_capacity), _positive),
        ("event.maxStreams", str(now.event_max_streams), _count),
        ("event.maxStreamsPerHost", str(now.event_max_streams_per_host), _count),
        ("event.RESTResponseSize", str(now.event_rest_response_size), _positive),
        ("health.checkInterval", f"{now.health_check_interval_s:g}s", _interval_s),
        (ROOT_LEVEL, _level_name(level_for("", values)), _level),
    )
    for key, value, meaning in known:
        yield Effective(key, value, sent=key in values and meaning(values[key]) is not None)
    for logger, level in sorted(logger_levels(values).items()):
        yield Effective(f"log.{logger}.level", _level_name(level), sent=True)


def level_for(logger: str, values: Mapping[str, str]) -> int:
    """The level of a logger, from -1 (debug) to 5 (fatal): that of the longest name it is or lies under."""
    levels = logger_levels(values)
    while logger:
        if logger in levels:
            return levels[logger]
        logger = logger.rpartition(".")[0]
    return _or(_level(values.get(ROOT_LEVEL, "")), INFO)


def base_level(values: Mapping[str, str]) -> int | None:
    """The level of all loggers that no other setting covers, if one was sent."""
    return _level(values[ROOT_LEVEL]) if ROOT_LEVEL in values else None


def logger_levels(values: Mapping[str, str]) -> dict[str, int]:
    """Logger to level, for all keys that name one."""
    found = {}
    for key, text in values.items():
        match = _LOGGER.fullmatch(key)
        level = _level(text)
        if match and level is not None and ".." not in key and " " not in key:
            found[match["logger"]] = level
    return found


# The meaning of one text, or None if it has none ----------------------------------------------------------------------


def _or(found: _T | None, default: _T) -> _T:
    return default if found is None else found


def _flag(text: str) -> bool | None:
    return text in _TRUE if text in _TRUE | _FALSE else None


def _count(text: str) -> int | None:
    return int(text) if _UINT.fullmatch(text) and int(text) <= UINT_MAX else None


def _positive(text: str) -> int | None:
    return _count(text) or None


def _interval_s(text: str) -> float | None:
    found = parse_duration(text)
    return None if found is None or abs(found) > DURATION_MAX_S else max(found, 0.0)


def _level(text: str) -> int | None:
    if _INT.fullmatch(text):
        return min(max(int(text), DEBUG), LEVEL_MAX)
    return LEVELS.get(text.lower())


def _level_name(level: int) -> str:
    return next(name for name, number in LEVELS.items() if number == level and name)
