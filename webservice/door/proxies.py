"""Whom a proxy in front of us says that somebody is, and whether that proxy is one to believe.

Not here: what else proxies say of a request (`webservice/same_site.py`).
"""

import ipaddress
from collections.abc import Sequence
from typing import Final

from common.names import is_person
from webservice.door.person import Person

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
