"""How much a worker logs, as its RM's settings say: `log.level`, and `log.<logger>.level` for one and all below it.

Where the RM says nothing the level counts with which the process was started. Only our own loggers can be set, and not
any number of them: Python never forgets a logger. Not here: what the settings mean (`common/extra_config.py`).
"""

import logging
from collections.abc import Mapping
from typing import Final

from common.extra_config import base_level, logger_levels

CORE: Final = "core"
"""The logger above all of ours."""

LOGGERS_MAX: Final = 100
"""Loggers that a worker knows by name from settings, for as long as it lives; there are about ten."""

NAME_LENGTH_MAX: Final = 100
"""Characters of such a name: Python keeps a placeholder for each part of it."""

_PYTHON_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
"""From -1 on; what is more severe comes last."""


class LogLevels:
    """What the settings have set, so that it can be taken back when they no longer say it."""

    def __init__(self) -> None:
        self._settings: Mapping[str, str] = {}
        self._set: dict[str, int] = {}
        self._known: set[str] = set()
        """Every logger that was ever set; at most LOGGERS_MAX."""

    def follow(self, settings: Mapping[str, str]) -> None:
        """Let these settings count; costs nothing while they are the same map."""
        if settings is self._settings:
            return
        self._settings = settings
        base = base_level(settings)
        named = {name: level for name, level in logger_levels(settings).items() if self._may_set(name)}
        wanted = named if base is None else {CORE: base, **named}
        for name in self._set.keys() - wanted.keys():
            logging.getLogger(name).setLevel(logging.NOTSET)
        for name, level in wanted.items():
            logging.getLogger(name).setLevel(_python_level(level))
        self._set = wanted

    def _may_set(self, name: str) -> bool:
        ours = f"{name}.".startswith(f"{CORE}.") and len(name) <= NAME_LENGTH_MAX
        if ours and len(self._known) < LOGGERS_MAX:
            self._known.add(name)
        return name in self._known


def _python_level(level: int) -> int:
    return _PYTHON_LEVELS[level + 1] if level + 1 < len(_PYTHON_LEVELS) else logging.CRITICAL
