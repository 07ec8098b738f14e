"""Whom a client's certificate stands for. That one of our authorities has signed it, TLS has seen.

Not here: the connection it came with (`webservice/http1.py`).
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from common.names import is_person
from webservice.door.person import Person

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
