"""Per-peer rate limiting of invalid messages and broker calls.

    answered --more than REFUSALS_MAX invalid messages in a row--> refused once for flooding --> not answered
       ^                                                                                           |
       +-----------------a valid message, or QUIET_S without an invalid one-----------------------+

Valid messages pass in any state. Calls, which cost the broker work, have a token bucket. Only PEERS_MAX peers are kept;
the peer that was seen longest ago is removed first. Not here: which messages are invalid (`proxy.py`), flow control of
valid ones (`rm_sessions.py`), authentication (`authentication.py`).
"""

from dataclasses import dataclass
from typing import Final, Literal

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
"""Peers whose state is kept."""

LINES_MAX: Final = 30
"""Log lines about floods in LINES_RESET_S: a client that reconnects is a new peer."""

LINES_RESET_S: Final = 60.0

Reply = Literal["reason", "flood", "none"]
"""How to answer an invalid message: with a refusal that gives the reason; with a last refusal, because there are too
many; or not at all."""


@dataclass(slots=True)
class _Peer:
    invalid: int = 0
    """Invalid messages in a row."""
    invalid_at: float = 0.0
    calls: float = CALLS_AT_ONCE
    """Calls that the peer may make now."""
    calls_at: float = 0.0


class RateLimiter:
    """Counters of each peer. Times are Unix seconds."""

    def __init__(self) -> None:
        self.log_lines: list[str] = []
        """Warnings to log; the caller clears them."""
        self._peers: dict[str, _Peer] = {}
        """The peer that was seen longest ago comes first."""
        self._lines = 0
        self._lines_since = 0.0

    def count_invalid(self, peer: str, problem: str, now: float) -> Reply:
        """Count an invalid message, and decide how to answer it."""
        state = self._state_of(peer, now)
        if now - state.invalid_at >= QUIET_S:
            state.invalid = 0
        state.invalid += 1
        state.invalid_at = now
        if state.invalid <= REFUSALS_MAX:
            return "reason"
        if state.invalid > REFUSALS_MAX + 1:
            return "none"
        if now - self._lines_since >= LINES_RESET_S:
            self._lines, self._lines_since = 0, now
        self._lines += 1
        if self._lines <= LINES_MAX:
            self.log_lines.append(f"{peer} floods the port and is not answered until it stops; the latest: {problem}")
        return "flood"

    def count_valid(self, peer: str) -> None:
        """Reset a peer's counter, as a valid message came."""
        state = self._peers.get(peer)
        if state is not None:
            state.invalid = 0

    def allow_call(self, peer: str, now: float) -> bool:
        """Return whether a peer may make a call now; if so, the call is counted."""
        state = self._state_of(peer, now)
        state.calls = min(CALLS_AT_ONCE, state.calls + max(0.0, now - state.calls_at) * CALLS_PER_S)
        state.calls_at = now
        if state.calls < 1:
            return False
        state.calls -= 1
        return True

    def _state_of(self, peer: str, now: float) -> _Peer:
        state = self._peers.pop(peer, None) or _Peer(calls_at=now)
        self._peers[peer] = state
        if len(self._peers) > PEERS_MAX:
            del self._peers[next(iter(self._peers))]
        return state
