"""The kernel's table of TCP connections (`/proc/net/tcp`, `/proc/net/tcp6`): to which user a socket belongs.

An address is `HEX:PORT`, its 32-bit words printed as this machine stores numbers. Only connections that are open at
both ends and have an owner count: what a process has closed lingers on as user 0, and must not be taken for root's.
Not here: reading the files (`people.py`).
"""

import ipaddress
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_ESTABLISHED: Final = "01"
_NO_INODE: Final = "0"
_WORD_DIGITS: Final = 8
_FIELDS_MIN: Final = 10
"""Number, local and remote address, state, queues, timer, retransmissions, user, timeout, inode."""


@dataclass(frozen=True, slots=True)
class End:
    """One end of a connection; an IPv4 address is one, even where it is written as an IPv6 address."""

    address: IpAddress
    port: int


def end_of(address: str, port: int) -> End:
    """The end that a text names.

    Raises:
        ValueError: the text is no address.
    """
    return End(_plain(ipaddress.ip_address(address.partition("%")[0])), port)


def owners(table: str, *, local: End, remote: End) -> list[int]:
    """The users of all sockets with these two ends, as seen from the local one; never more than one if all is well."""
    between = _connections(table, local.port, remote.port)
    return [user for mine, theirs, user in between if (mine, theirs) == (local, remote)]


def _connections(table: str, local_port: int, remote_port: int) -> Iterator[tuple[End, End, int]]:
    """The connections between two ports; other lines are not looked into, for there may be a great many."""
    ports = (f":{local_port:04X} ", f":{remote_port:04X} ")
    for line in table.splitlines():
        if ports[0] not in line or ports[1] not in line:
            continue
        fields = line.split()
        if len(fields) < _FIELDS_MIN or fields[3] != _ESTABLISHED or fields[9] == _NO_INODE:
            continue
        try:
            yield _end(fields[1]), _end(fields[2]), int(fields[7])
        except ValueError:
            continue  # not a connection


def _end(text: str) -> End:
    digits, _, port = text.partition(":")
    words = (digits[start : start + _WORD_DIGITS] for start in range(0, len(digits), _WORD_DIGITS))
    packed = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    return End(_plain(ipaddress.ip_address(packed)), int(port, 16))


def _plain(address: IpAddress) -> IpAddress:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
