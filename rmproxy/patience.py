"""How much nonsense the proxy puts up with from one peer, so that it costs neither memory, nor time, nor log.

    answered --REFUSALS_MAX wrong messages in a row--> told that it floods, once --> not answered
       ^                                                                                  |
       +-----------------a right one, or QUIET_S without a wrong one----------------------+

What is right passes all the same. Calls, which make the broker work, have a pace. What is known of a peer is bounded
and forgotten, oldest first: then it is treated as one that nobody has heard of. Not here: what is wrong (`front.py`),
how much of what is right may be under way (`credit.py`), who may connect at all (`doorkeeper.py`).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

REFUSALS_MAX: Final = 32
"""Wrong messages in a row that are answered one by one."""

QUIET_S: Final = 1.0
"""Who has said nothing wrong for so long is answered again."""

CALLS_AT_ONCE: Final = 32
"""Calls that a peer may make in one breath."""

CALLS_PER_S: Final = 2.0
"""Calls that it may go on making."""

CALL_RETRY_S: Final = 1.0
"""After so long without a call a peer may make one again; at least 1 / CALLS_PER_S."""

CALL_LIMIT: Final = (
    f"rate limit: one connection (over gRPC one RM) may make {CALLS_AT_ONCE} calls at once and {CALLS_PER_S:g} a "
    f"second after that; try again in {CALL_RETRY_S:g} s"
)
"""The reason for refusing a call beyond these limits."""

REFUSALS_LIMIT: Final = (
    f"rate limit: more than {REFUSALS_MAX} invalid messages or refused calls in a row from one connection; no more of "
    f"them are answered until a valid message, or {QUIET_S:g} s without any; the latest: "
)
"""Begins the last refusal before invalid messages are not answered any more."""

PEERS_MAX: Final = 1024
"""Peers of which anything is remembered."""

LOG_EVERY_S: Final = 60.0
"""A peer is complained about in the log at most that often."""

LINES_MAX: Final = 30
"""All peers together are complained about at most so often in that time: who connects anew is a new peer."""


class Answer(Enum):
    """What a wrong message deserves."""

    REASON = "reason"
    """A refusal that says what is wrong."""
    FLOOD = "flood"
    """A last one that says that there are too many."""
    NONE = "none"


@dataclass(slots=True)
class _Peer:
    wrong: int = 0
    """Wrong messages in a row."""
    wrong_at: float = 0.0
    calls: float = CALLS_AT_ONCE
    """That it may make now."""
    calls_at: float = 0.0
    logged_at: float = -LOG_EVERY_S


class Patience:
    """What is remembered of peers that tried it. Times are Unix seconds."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        """For the log; whoever writes them clears them."""
        self._peers: dict[str, _Peer] = {}
        """The one that was looked at longest ago comes first."""
        self._lines = 0
        self._lines_since = 0.0

    def wrong(self, peer: str, what: str, now: float) -> Answer:
        """Something wrong came: how to answer it."""
        known = self._known(peer, now)
        if now - known.wrong_at >= QUIET_S:
            known.wrong = 0
        known.wrong += 1
        known.wrong_at = now
        if known.wrong <= REFUSALS_MAX:
            return Answer.REASON
        self._complain(peer, known, what, now)
        return Answer.FLOOD if known.wrong == REFUSALS_MAX + 1 else Answer.NONE

    def right(self, peer: str) -> None:
        """Something came that goes on to the core."""
        known = self._peers.get(peer)
        if known is not None:
            known.wrong = 0

    def may_call(self, peer: str, now: float) -> bool:
        """Whether it may make one more call now."""
        known = self._known(peer, now)
        known.calls = min(CALLS_AT_ONCE, known.calls + max(0.0, now - known.calls_at) * CALLS_PER_S)
        known.calls_at = now
        if known.calls < 1:
            return False
        known.calls -= 1
        return True

    def _known(self, peer: str, now: float) -> _Peer:
        known = self._peers.pop(peer, None) or _Peer(calls_at=now)
        self._peers[peer] = known
        if len(self._peers) > PEERS_MAX:
            del self._peers[next(iter(self._peers))]
        return known

    def _complain(self, peer: str, known: _Peer, what: str, now: float) -> None:
        if now - known.logged_at < LOG_EVERY_S:
            return
        known.logged_at = now
        if now - self._lines_since >= LOG_EVERY_S:
            self._lines, self._lines_since = 0, now
        self._lines += 1
        if self._lines <= LINES_MAX:
            self.complaints.append(f"{peer} floods the port, it is not answered until it stops; the latest: {what}")
