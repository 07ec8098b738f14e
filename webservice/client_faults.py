"""What clients do wrong, in the log: a few lines a minute, so that nobody can fill it.

uvicorn writes a line for each request that is none, and a traceback where a client has gone in the middle. Defects of
ours are other exceptions, and always logged whole. Not here: what the client is told (`http1.py`).
"""

import logging
from typing import Final

import h11

LINES_MAX: Final = 10
"""Lines in a minute; how many there were beside them is said with the next one."""

_MINUTE_S: Final = 60.0


class ClientFaults(logging.Filter):
    """For the logger of uvicorn."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = 0.0
        self._said = 0
        self._unsaid = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            if not isinstance(error, h11.ProtocolError):
                return True
            record.exc_info, record.msg, record.args = None, "%s", (f"an answer cannot be given: {error}",)
        if record.created - self._begun >= _MINUTE_S:
            self._begun, self._said = record.created, 0
        self._said += 1
        if self._said > LINES_MAX:
            self._unsaid += 1
            return False
        if self._unsaid:
            record.msg, record.args = "%s (and %d more)", (record.getMessage(), self._unsaid)
            self._unsaid = 0
        return True
