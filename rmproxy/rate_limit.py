"""Per-peer rate limiting of invalid messages and broker calls.

    answered --more than REFUSALS_MAX invalid messages in a row--> refused once for flooding --> not answered
       ^                                                                                           |
       +-----------------a valid message, or QUIET_S without an invalid one-----------------------+

Valid messages pass in any state. Calls, which cost the broker work, have a token bucket. Only PEERS_MAX peers are kept;
the peer that was seen longest ago is removed first. Not here: which messages are invalid (`proxy.py`), flow control of
valid ones (`rm_sessions.py`), authentication (`authentication.py`).
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeVar

REFUSALS_MAX: Final = 32
"""Invalid messages in a row that are answered one by one."""

QUIET_S: Final = 1.0
"""Seconds without an invalid message after which the peer's counter resets."""

CALLS_AT_ONCE: Final = 32
"""Calls that a peer may make at once."""

CALLS_PER_S: Final = 2.0
"""Calls per second that a peer may make after that."""

CALL_RETRY_S: Final = 1.0
"""Seconds without a call after which a peer may make one again; at least 1 / CALLS_PER_S."""

CALL_LIMIT: Final = (
    f"rate limit: one connection (over gRPC one RM) may make {CALLS_AT_ONCE} calls at once and {CALLS_PER_S:g} a "
    f"second after that; try again in {CALL_RETRY_S:g} s"
)
"""The reason for refusing a call beyond these limits."""

REFUSALS_LIMIT: Final = (
    f"rate limit: more than {REFUSALS_MAX} invalid messages or refused calls in a row from one connection; no more of "
    f"them are answered until a valid message, or {QUIET_S:g} s without any; the latest: "
)
"""Start of the last refusal before invalid messages are not answered any more."""

PEERS_MAX: Final = 1024
"""Peers whose invalid messages are counted, and peers whose calls are."""

LINES_MAX: Final = 30
"""Log lines about floods in LINES_RESET_S: a client that reconnects is a new peer."""

LINES_RESET_S: Final = 60.0

Reply = Literal["reason", "flood", "none"]
"""How to answer an invalid message: with a refusal that gives the reason; with a last refusal, because there are too
many; or not at all."""


@dataclass(slots=True)
class InvalidSeries:
    """Invalid messages in a row."""

    count: int = 0
    latest_at: float = 0.0


@dataclass(slots=True)
class _Bucket:
    """The token bucket of a peer's calls."""

    at: float
    calls: float = CALLS_AT_ONCE
    """Calls that the peer may make now."""


class RateLimiter:
    """Counters of each peer. Times are Unix seconds."""

    def __init__(self) -> None:
        self.log_lines: list[str] = []
        """Warnings to log; the caller clears them."""
        self.series: dict[str, InvalidSeries] = {}
        """By peer; a valid message removes the peer's. The peer whose invalid message is the oldest comes first."""
        self._buckets: dict[str, _Bucket] = {}
        """By peer; the peer whose call is the oldest comes first."""
        self._lines = 0
        self._lines_since = 0.0

    def count_invalid(self, peer: str, problem: str, now: float) -> Reply:
        """Count an invalid message, and decide how to answer it."""
        series = self.series.get(peer)
        if series is None or now - series.latest_at >= QUIET_S:
            series = InvalidSeries()
        _keep_last(self.series, peer, series)
        series.count += 1
        series.latest_at = now
        if series.count <= REFUSALS_MAX:
            return "reason"
        if series.count > REFUSALS_MAX + 1:
            return "none"
        if now - self._lines_since >= LINES_RESET_S:
            self._lines, self._lines_since = 0, now
        self._lines += 1
        if self._lines <= LINES_MAX:
            self.log_lines.append(f"{peer} floods the port and is not answered until it stops; the latest: {problem}")
        return "flood"

    def allow_call(self, peer: str, now: float) -> bool:
        """Return whether a peer may make a call now; if so, the call is counted."""
        bucket = self._buckets.get(peer) or _Bucket(now)
        _keep_last(self._buckets, peer, bucket)
        bucket.calls = min(CALLS_AT_ONCE, bucket.calls + max(0.0, now - bucket.at) * CALLS_PER_S)
        bucket.at = now
        if bucket.calls < 1:
            return False
        bucket.calls -= 1
        return True


_T = TypeVar("_T")


def _keep_last(table: dict[str, _T], peer: str, counter: _T) -> None:
    """Put a peer's counter last, and remove the first one if there are too many."""
    table.pop(peer, None)
    table[peer] = counter
    if len(table) > PEERS_MAX:
        del table[next(iter(table))]
