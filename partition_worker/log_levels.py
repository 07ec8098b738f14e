"""How much a worker logs, as its RM's settings say: `log.level`, and `log.<logger>.level` for one and all below it.

Where the RM says nothing the level counts with which the process was started. Not here: what the settings mean
(`common/extra_config.py`).
"""

import logging
from collections.abc import Mapping
from typing import Final

from common.extra_config import base_level, logger_levels

CORE: Final = "core"
"""The logger above all of ours."""

_PYTHON_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
"""From -1 on; what is more severe comes last."""


class LogLevels:
    """What the settings have set, so that it can be taken back when they no longer say it."""

    def __init__(self) -> None:
        self._settings: Mapping[str, str] = {}
        self._set: dict[str, int] = {}

    def follow(self, settings: Mapping[str, str]) -> None:
        """Let these settings count; costs nothing while they are the same map."""
        if settings is self._settings:
            return
        self._settings = settings
        base = base_level(settings)
        wanted = logger_levels(settings) if base is None else {CORE: base, **logger_levels(settings)}
        for name in self._set.keys() - wanted.keys():
            logging.getLogger(name).setLevel(logging.NOTSET)
        for name, level in wanted.items():
            logging.getLogger(name).setLevel(_python_level(level))
        self._set = wanted


def _python_level(level: int) -> int:
    return _PYTHON_LEVELS[level + 1] if level + 1 < len(_PYTHON_LEVELS) else logging.CRITICAL
