"""The settings that an RM sends for itself (`extraConfig`): their names, and the meaning of their texts.

Each map of texts replaces the previous one as a whole. Keys are exact; unknown ones belong to the RM and are ignored. A
bad value is not an error: the default applies. A bad log level is ignored.

Not here: the effects of the settings, the settings of the system itself (`common/settings.py`).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct, convert
from msgspec.structs import asdict

from yunishard.common.messages.kinds import INT64_MAX
from yunishard.common.text_formats import UINT_MAX, parse_duration

LEVELS: Final[Mapping[str, int]] = {
    "debug": -1,
    "": 0,
    "info": 0,
    "warn": 1,
    "warning": 1,
    "error": 2,
    "dpanic": 3,
    "panic": 4,
    "fatal": 5,
}
"""Names of log levels, in any case, to their numbers."""

ROOT_LEVEL: Final = "log.level"

_INT: Final = re.compile(r"[+-]?[0-9]{1,20}")
_LOGGER: Final = re.compile(r"log\.(?P<logger>.+)\.level")


class ExtraConfig(Struct, frozen=True, kw_only=True):
    """The settings in force."""

    event_tracking_enabled: bool = True
    event_request_capacity: int = 1000
    """Events kept for the RM until they are sent."""
    event_ring_buffer_capacity: int = 100_000
    """Events kept for REST."""
    event_max_streams: int = 100
    """0 for none."""
    event_max_streams_per_host: int = 15
    """0 for none."""
    event_rest_response_size: int = 10_000
    """Events in one answer."""
    health_check_interval_s: float = 30.0
    """0 for checks on request only."""


DEFAULTS: Final = ExtraConfig()


class Effective(Struct, frozen=True):
    """A setting with its value in force, for operators; `sent` is false if that is the default."""

    key: str
    value: str
    sent: bool


def read(values: Mapping[str, str]) -> ExtraConfig:
    """Return the settings in force when these values were sent."""
    found = {field: parse(values.get(key, "")) for key, (field, parse) in _SETTINGS.items()}
    return convert({field: value for field, value in found.items() if value is not None}, ExtraConfig)


def effective(values: Mapping[str, str]) -> Iterator[Effective]:
    """Yield every known setting with its value in force, then the levels of loggers that were sent."""
    in_force: dict[str, bool | float] = asdict(read(values))
    for key, (field, parse) in _SETTINGS.items():
        value = in_force[field]
        text = str(value).lower() if isinstance(value, int) else f"{value:g}s"
        yield Effective(key, text, sent=key in values and parse(values[key]) is not None)
    root = base_level(values)
    yield Effective(ROOT_LEVEL, _level_name(root or LEVELS["info"]), sent=root is not None)
    for logger, level in sorted(logger_levels(values).items()):
        yield Effective(f"log.{logger}.level", _level_name(level), sent=True)


def is_known(key: str) -> bool:
    """Whether a setting has this key."""
    return key in _SETTINGS or key == ROOT_LEVEL or _LOGGER.fullmatch(key) is not None


def is_readable(key: str, text: str) -> bool:
    """Whether a text is a value of a known setting; another one has no effect."""
    parse = _SETTINGS[key][1] if key in _SETTINGS else _parse_level
    return parse(text) is not None


def base_level(values: Mapping[str, str]) -> int | None:
    """Return the level of all loggers without a level of their own, if one was sent: -1 (debug) to 5 (fatal)."""
    return _parse_level(values[ROOT_LEVEL]) if ROOT_LEVEL in values else None


def logger_levels(values: Mapping[str, str]) -> dict[str, int]:
    """Return the levels that were sent for loggers."""
    found = {}
    for key, text in values.items():
        match = _LOGGER.fullmatch(key)
        level = _parse_level(text)
        if match and level is not None and ".." not in key and " " not in key:
            found[match["logger"]] = level
    return found


# The meaning of one text; None if it has none -------------------------------------------------------------------------


def _parse_flag(text: str) -> bool | None:
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    return False if text in ("0", "f", "F", "FALSE", "false", "False") else None


def _parse_count(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,20}", text) and int(text) <= UINT_MAX else None


def _parse_capacity(text: str) -> int | None:
    return _parse_count(text) or None


def _parse_interval(text: str) -> float | None:
    found = parse_duration(text)
    is_too_long = found is not None and abs(found) > INT64_MAX / 1e9  # the reference counts nanoseconds
    return None if found is None or is_too_long else max(found, 0.0)


def _parse_level(text: str) -> int | None:
    if _INT.fullmatch(text):
        return min(max(int(text), LEVELS["debug"]), LEVELS["fatal"])
    return LEVELS.get(text.lower())


def _level_name(level: int) -> str:
    return next(name for name, number in LEVELS.items() if number == level and name)


_SETTINGS: Final[Mapping[str, tuple[str, Callable[[str], bool | float | None]]]] = {
    "event.trackingEnabled": ("event_tracking_enabled", _parse_flag),
    "event.requestCapacity": ("event_request_capacity", _parse_capacity),
    "event.ringBufferCapacity": ("event_ring_buffer_capacity", _parse_capacity),
    "event.maxStreams": ("event_max_streams", _parse_count),
    "event.maxStreamsPerHost": ("event_max_streams_per_host", _parse_count),
    "event.RESTResponseSize": ("event_rest_response_size", _parse_capacity),
    "health.checkInterval": ("health_check_interval_s", _parse_interval),
}
