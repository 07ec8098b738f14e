"""Whom somebody has said and shown to be, however they did.

Not here: how (`tokens.py`, `certificates.py`, `proxies.py`), what they may do (`entrance.py`).
"""

import ipaddress
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from common.names import is_person


@dataclass(frozen=True, slots=True)
class Person:
    """A user with their groups; `read_only` if they have come only to look, whatever they may do otherwise."""

    user: str
    groups: tuple[str, ...] = ()
    read_only: bool = False


USER_URI: Final = "yunishard:user:"
"""What an alternative name begins with that says who the user is, whatever the common name is."""

EXTENSION: Final = "yunishard.certificate"
"""Extension of the scope of a request: its `shown` is the `Certificate` of the connection, or None."""


class _Peer(msgspec.Struct, frozen=True):
    """What the module `ssl` knows of a certificate, by its names."""

    subject: tuple[tuple[tuple[str, str], ...], ...] = ()
    subjectAltName: tuple[tuple[str, object], ...] = ()  # noqa: N815 - its name


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a certificate says of its owner."""

    common_names: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


def certificate_of(peer: object) -> Certificate | None:
    """What the module `ssl` says of the other end; None if it has shown no certificate."""
    if not peer:
        return None
    found = msgspec.convert(peer, _Peer)
    subject = [pair for parts in found.subject for pair in parts]
    return Certificate(
        common_names=tuple(text for kind, text in subject if kind == "commonName"),
        units=tuple(text for kind, text in subject if kind == "organizationalUnitName"),
        uris=tuple(text for kind, text in found.subjectAltName if kind == "URI" and isinstance(text, str)),
    )


def owner_of(certificate: Certificate) -> Person | None:
    """Whom it stands for: its URI `yunishard:user:NAME`, or without one its common name; its units are the groups. None
    if it names nobody, several, or who can be nobody.
    """
    users = [uri.removeprefix(USER_URI) for uri in certificate.uris if uri.startswith(USER_URI)]
    users = users or list(certificate.common_names)
    if len(users) != 1 or not all(map(is_person, (*users, *certificate.units))):
        return None
    return Person(users[0], certificate.units)


Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Headers = Sequence[tuple[bytes, bytes]]
"""As they came, with names in lower case."""

USER: Final = b"x-forwarded-user"
GROUPS: Final = b"x-forwarded-groups"


class Unbelievable(Exception):
    """What is said of somebody must not be believed; the text says why."""


def is_among(networks: Sequence[Network], address: str) -> bool:
    """Whether an address lies in one of the networks; one of IPv4 that arrived over IPv6, too."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)


def names_somebody(headers: Headers) -> bool:
    """Whether a request says that it is sent for somebody."""
    return any(name in (USER, GROUPS) for name, _ in headers)


def person_behind(headers: Headers) -> Person | None:
    """Whom a proxy sends a request for; None if it does not say so.

    Raises:
        Unbelievable: it says it twice, so that somebody else may have said it first, or names nobody that can be.
    """
    user, groups = _only(headers, USER), _only(headers, GROUPS)
    if not user:
        return None
    names = tuple(filter(None, (name.strip() for name in groups.split(","))))
    if not all(map(is_person, (user, *names))):
        raise Unbelievable("the proxy names a user or group that can be none")
    return Person(user, names)


def _only(headers: Headers, wanted: bytes) -> str:
    found = [value for name, value in headers if name == wanted]
    if len(found) > 1:
        raise Unbelievable(f"the header {wanted.decode()} is there twice: the proxy must replace what its clients send")
    try:
        return found[0].decode().strip() if found else ""
    except UnicodeDecodeError:
        raise Unbelievable(f"the header {wanted.decode()} is not UTF-8") from None


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
