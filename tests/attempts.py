"""Attempts to handle a message (`partition_worker/partition_host.py`), for tests: as in the file, without a file."""

from collections.abc import Mapping, Set


class WorkerKilled(BaseException):
    """The process is gone in the middle of what it does."""


class MemoryAttempts:
    """Those of one worker. What is in `deadly` ends every worker that begins it."""

    def __init__(self, ended: Mapping[bytes, int] | None = None, deadly: Set[bytes] = frozenset()) -> None:
        self.ended = dict(ended or {})
        self.deadly = deadly
        self._current = b""

    def begin_attempt(self, identity: bytes) -> None:
        self._current = identity
        if identity in self.deadly:
            raise WorkerKilled(identity.hex())

    def end_attempt(self) -> None:
        self.ended.pop(self._current, None)
        self._current = b""

    def pause_attempt(self) -> None:
        self._current = b""

    def count_deaths(self, identity: bytes) -> int:
        return self.ended.get(identity, 0)

    def successor(self) -> "MemoryAttempts":
        """Those of the next worker, which looks at what this one has left."""
        ended = dict(self.ended)
        if self._current:
            ended[self._current] = ended.get(self._current, 0) + 1
        return MemoryAttempts(ended, self.deadly)
