"""Reads credentials: client certificates, the headers of a trusted proxy, the kernel's table of TCP connections.

Pure parsing. Tokens are in `tokens.py`; which credentials count is decided in `authn.py`.
"""

import ipaddress
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from common.names import is_person


@dataclass(frozen=True, slots=True)
class Identity:
    """A user with their groups; `read_only` if they may not change anything with these credentials."""

    user: str
    groups: tuple[str, ...] = ()
    read_only: bool = False


# Client certificates --------------------------------------------------------------------------------------------------

USER_URI: Final = "yunishard:user:"
"""Prefix of an alternative name that names the user, whatever the common name is."""

CERTIFICATE_EXTENSION: Final = "yunishard.certificate"
"""Extension of an ASGI scope: its `shown` is the `Certificate` of the connection, or None."""


class _PeerCertificate(msgspec.Struct, frozen=True):
    """A certificate as the module `ssl` describes it."""

    subject: tuple[tuple[tuple[str, str], ...], ...] = ()
    subjectAltName: tuple[tuple[str, object], ...] = ()  # noqa: N815 - its name


@dataclass(frozen=True, slots=True)
class Certificate:
    """The names in a client certificate."""

    common_names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


def parse_certificate(peer: object) -> Certificate | None:
    """The names in a certificate that the module `ssl` has verified; None if the client sent none."""
    if not peer:
        return None
    found = msgspec.convert(peer, _PeerCertificate)
    subject = [pair for parts in found.subject for pair in parts]
    return Certificate(
        common_names=tuple(text for kind, text in subject if kind == "commonName"),
        units=tuple(text for kind, text in subject if kind == "organizationalUnitName"),
        uris=tuple(text for kind, text in found.subjectAltName if kind == "URI" and isinstance(text, str)),
    )


def certificate_owner(certificate: Certificate) -> Identity | None:
    """The user that a certificate names: by its URI `yunishard:user:NAME`, or without one by its common name; its units
    are the groups. None if it names no user, several, or an invalid name.
    """
    users = [uri.removeprefix(USER_URI) for uri in certificate.uris if uri.startswith(USER_URI)]
    users = users or list(certificate.common_names)
    if len(users) != 1 or not all(map(is_person, (*users, *certificate.units))):
        return None
    return Identity(users[0], certificate.units)


# Headers of a proxy ---------------------------------------------------------------------------------------------------

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Headers = Sequence[tuple[bytes, bytes]]
"""Undecoded, with names in lower case."""

USER: Final = b"x-forwarded-user"
GROUPS: Final = b"x-forwarded-groups"


class UntrustedHeaders(Exception):
    """Headers that name a user must not be trusted; the text says why."""


def is_among(networks: Sequence[Network], address: str) -> bool:
    """Whether an address is in one of the networks; also an IPv4 address that is written as an IPv6 address."""
    try:
        found = _plain(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return False
    return any(found in network for network in networks)


def claims_identity(headers: Headers) -> bool:
    """Whether the headers name a user or groups."""
    return any(name in (USER, GROUPS) for name, _ in headers)


def proxied_identity(headers: Headers) -> Identity | None:
    """The user for whom a trusted proxy sends a request; None if it names none.

    Raises:
        UntrustedHeaders: a header is there twice, so a client may have sent the first one; or a name is invalid.
    """
    user, groups = _single(headers, USER), _single(headers, GROUPS)
    if not user:
        return None
    names = tuple(filter(None, (name.strip() for name in groups.split(","))))
    if not all(map(is_person, (user, *names))):
        raise UntrustedHeaders("the proxy names a user or group that can be none")
    return Identity(user, names)


def _single(headers: Headers, wanted: bytes) -> str:
    found = [value for name, value in headers if name == wanted]
    if len(found) > 1:
        raise UntrustedHeaders(
            f"the header {wanted.decode()} is there twice: the proxy must replace what its clients send"
        )
    try:
        return found[0].decode().strip() if found else ""
    except UnicodeDecodeError:
        raise UntrustedHeaders(f"the header {wanted.decode()} is not UTF-8") from None


# The kernel's table of TCP connections (`/proc/net/tcp`, `/proc/net/tcp6`) --------------------------------------------
#
# An address is `HEX:PORT`; its 32-bit words are in the byte order of this machine. Only established connections with an
# owner count: closed sockets remain in the table as user 0, and must not be taken for root's.

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_ESTABLISHED: Final = "01"
_NO_INODE: Final = "0"
_WORD_DIGITS: Final = 8
_FIELDS_MIN: Final = 10
"""Number, local and remote address, state, queues, timer, retransmissions, user, timeout, inode."""


@dataclass(frozen=True, slots=True)
class SocketEnd:
    """One end of a connection; an IPv4 address that is written as an IPv6 address is an IPv4 address."""

    address: IpAddress
    port: int


def socket_end(address: str, port: int) -> SocketEnd:
    """The end of this address and port.

    Raises:
        ValueError: the text is no address.
    """
    return SocketEnd(_plain(ipaddress.ip_address(address.partition("%")[0])), port)


def socket_owners(table: str, *, local: SocketEnd, remote: SocketEnd) -> list[int]:
    """The user IDs of all sockets with these ends, as seen from the local one; normally at most one."""
    between = _connections(table, local.port, remote.port)
    return [user for mine, other, user in between if (mine, other) == (local, remote)]


def _connections(table: str, local_port: int, remote_port: int) -> Iterator[tuple[SocketEnd, SocketEnd, int]]:
    """The connections between two ports. Other lines are not parsed: the table may be long."""
    ports = (f":{local_port:04X} ", f":{remote_port:04X} ")
    for line in table.splitlines():
        if ports[0] not in line or ports[1] not in line:
            continue
        fields = line.split()
        if len(fields) < _FIELDS_MIN or fields[3] != _ESTABLISHED or fields[9] == _NO_INODE:
            continue
        try:
            yield _parse_end(fields[1]), _parse_end(fields[2]), int(fields[7])
        except ValueError:
            continue  # not a connection


def _parse_end(text: str) -> SocketEnd:
    digits, _, port = text.partition(":")
    words = (digits[start : start + _WORD_DIGITS] for start in range(0, len(digits), _WORD_DIGITS))
    packed = b"".join(int(word, 16).to_bytes(4, sys.byteorder) for word in words)
    return SocketEnd(_plain(ipaddress.ip_address(packed)), int(port, 16))


def _plain(address: IpAddress) -> IpAddress:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
