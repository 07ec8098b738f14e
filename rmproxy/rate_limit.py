"""Limits for each peer: the rate of invalid messages and of calls to the broker, and the open calls of the gRPC port.

    answered --more than REFUSALS_MAX invalid messages in a row--> refused once for flooding --> not answered
       ^                                                                                           |
       +-----------------a valid message, or QUIET_S without an invalid one-----------------------+

Valid messages pass in any state. Calls, which cost the broker work, have a token bucket. Only PEERS_MAX peers are kept;
the peer that was seen longest ago is removed first. Not here: which messages are invalid (`proxy.py`), flow control of
valid ones (`proxy.py`), authentication (`authentication.py`).
"""

import ipaddress
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from yunishard.common.retries import LogLimit

# Rates --------------------------------------------------------------------------------------------------------------

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
"""Log lines about floods in a minute: a client that reconnects is a new peer."""

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
        self._log_limit = LogLimit(LINES_MAX)

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
        if (more := self._log_limit.admit(now)) is not None:
            text = f"{peer} floods the port{more} and is not answered until it stops; the latest: {problem}"
            self.log_lines.append(text)
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


# Open calls of the gRPC port ------------------------------------------------------------------------------------------
#
#   waiting for the client --first message--> registration, or a call of a registered RM --> open stream
#       WaitingCalls                              OpenCalls (registrations)                     OpenCalls (streams)
#
# Each of the three has a limit in all and for each peer, and room of its own, so that calls that only wait keep no RM
# from registering. The update streams of a registered RM are not counted: it has one of each kind, and a stream that
# was replaced ends in time (`grpc_streams.STALLED_MAX_S`). A peer is the owner of a client certificate, or else an
# address.

WAITING_MAX: Final = 1024
WAITING_OF_PEER_MAX: Final = 256
"""Calls and streams whose RM is not known, because their first message has not arrived: in all, and of one peer. For a
further one the oldest of that peer ends, or of the peer with the most. The new one stays, so that waiting calls never
keep another client out, also if both have the same address."""

REGISTRATIONS_MAX: Final = 1024
REGISTRATIONS_OF_PEER_MAX: Final = 256
"""Registrations, and sessions that are taken over, that the core has not answered: in all, and of one peer. A further
one is refused."""

STREAMS_MAX: Final = 4096
STREAMS_OF_PEER_MAX: Final = 1024
"""Open calls of `yunishard.v1.Admin`: in all, and of one peer. A further one is refused."""

IPV6_PEER_BITS: Final = 64
"""Bits of an IPv6 address that identify a peer: a client usually has the other ones to itself."""


def identify_peer(address: str, certified: tuple[str, ...] | None) -> str:
    """Return the peer of a call: the names in its certificate, else its address without the port.

    >>> identify_peer("ipv4:10.0.0.7:4711", None), identify_peer("ipv4:10.0.0.7:4711", ("prod",))
    ('10.0.0.7', 'certificate for prod')
    >>> identify_peer("ipv6:%5B2001:db8:0:1:a:b:c:d%5D:4711", None), identify_peer("ipv6:[::ffff:10.0.0.7]:4711", None)
    ('2001:db8:0:1::', '10.0.0.7')
    >>> identify_peer("unix:", None)
    'unix:'
    """
    if certified:
        return f"certificate for {','.join(certified)}"
    host, _, _ = address.partition(":")[2].rpartition(":")
    host = host.removeprefix("%5B").removeprefix("[").removesuffix("%5D").removesuffix("]").partition("%")[0]
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, IPV6_PEER_BITS), strict=False).network_address)
    return host


class WaitingCalls:
    """Calls that wait for their client, oldest first, of which the oldest ends for a further one."""

    def __init__(self, most: int = WAITING_MAX, most_of_peer: int = WAITING_OF_PEER_MAX) -> None:
        self._most = most
        self._most_of_peer = most_of_peer
        self._calls: dict[str, dict[int, Callable[[], None]]] = {}
        """Of each peer: a number for each call, to what ends it."""
        self._count = self._number = 0

    def __len__(self) -> int:
        return self._count

    @contextmanager
    def hold(self, peer: str, end: Callable[[], None]) -> Iterator[None]:
        """Count a call while it waits; `end` is called, once, if another one needs the room."""
        if len(self._calls.get(peer, ())) >= self._most_of_peer:
            self._end_oldest(peer)
        elif self._count >= self._most:
            self._end_oldest(max(self._calls, key=lambda one: len(self._calls[one])))
        self._number += 1
        number = self._number
        self._calls.setdefault(peer, {})[number] = end
        self._count += 1
        try:
            yield
        finally:
            self._remove(peer, number)

    def _end_oldest(self, peer: str) -> None:
        number = next(iter(self._calls[peer]))
        end = self._calls[peer][number]
        self._remove(peer, number)
        end()

    def _remove(self, peer: str, number: int) -> None:
        calls = self._calls.get(peer)
        if calls is not None and calls.pop(number, None) is not None:
            self._count -= 1
            if not calls:
                del self._calls[peer]


class OpenCalls:
    """The numbers of open calls, of which a further one is refused."""

    def __init__(self, most: int, most_of_peer: int) -> None:
        self.most = most
        self.most_of_peer = most_of_peer
        self._calls: dict[str, int] = {}
        """Of each peer that has one."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def enter(self, peer: str) -> bool:
        """Return whether a peer may make another call; if so, it counts until `leave`."""
        mine = self._calls.get(peer, 0)
        if mine >= self.most_of_peer or self._count >= self.most:
            return False
        self._calls[peer] = mine + 1
        self._count += 1
        return True

    def leave(self, peer: str) -> None:
        """Count a call no more."""
        self._calls[peer] -= 1
        self._count -= 1
        if not self._calls[peer]:
            del self._calls[peer]
