"""The keys of tokens as their file has them now: looked at again and again, so that a change needs no restart.

Not here: what is in such a file (`common/token_keys.py`).
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from common.token_keys import TokenKeyError, TokenKeys, read_token_keys

LOOK_EVERY_S: Final = 1.0
"""However many tokens come, the file is looked at no more often."""

_log = logging.getLogger("core.rest")

_Sign = tuple[int, int, int, int] | None
"""By which a file that changed is known; None for one that is not there."""


class KeyFile:
    """A file of keys. While its newest content cannot be used, the keys before that hold.

    Raises:
        TokenKeyError: its first content cannot be used.
    """

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._sign = self._seen()
        self._keys = read_token_keys(file)
        self._looked_at = clock()

    def keys(self) -> TokenKeys:
        """The keys that hold now."""
        now = self._clock()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            sign = self._seen()
            if sign != self._sign:
                self._sign = sign
                self._read()
        return self._keys

    def _read(self) -> None:
        try:
            self._keys = read_token_keys(self._file)
        except TokenKeyError as error:
            _log.warning("the token keys are not usable, so the previous ones stay in force: %s: %s", self._file, error)
        else:
            _log.info("%s has changed; token keys in it: %d", self._file, len(self._keys.keys))

    def _seen(self) -> _Sign:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
