"""Limits on the open calls of the gRPC port: in all, and for each peer.

    waiting for the client --first message--> registration, or a call of a registered RM --> open stream
        WaitingCalls                              OpenCalls (registrations)                     OpenCalls (streams)

The three have room of their own, so that calls that only wait keep no RM from registering. The update streams of a
registered RM are not counted: it has one of each kind, and a stream that was replaced ends in time
(`grpc_streams.STALLED_MAX_S`).

A peer is the owner of a client certificate, or else an address. Not here: how a call ends (`grpc_streams.py`), limits
on the rate of calls (`rate_limit.py`).
"""

import ipaddress
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

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
