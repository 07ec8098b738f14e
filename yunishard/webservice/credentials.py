"""Reads credentials: client certificates, headers of a trusted proxy, tokens, the kernel's table of TCP connections.

Pure parsing; `authn_authz.py` decides which credentials count.
"""

import ipaddress
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from yunishard.common.names import is_person

if TYPE_CHECKING:
    from yunishard.common.transport.token_keys import TokenKeys


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
"""Extension of an ASGI scope: its `owner` is the `Identity` in the client certificate of the connection, or None."""


class _PeerCertificate(msgspec.Struct, frozen=True):
    """A certificate as the module `ssl` describes it."""

    subject: tuple[tuple[tuple[str, str], ...], ...] = ()
    subjectAltName: tuple[tuple[str, object], ...] = ()  # noqa: N815 - its name


def certificate_owner(peer: object) -> Identity | None:
    """The user that a client certificate names, as the module `ssl` describes it after verification: by its URI
    `yunishard:user:NAME`, or without one by its common name; its units are the groups. None without a certificate, or
    if it names no user, several, or an invalid name.
    """
    found = msgspec.convert(peer or {}, _PeerCertificate)
    subject = [pair for parts in found.subject for pair in parts]
    units = tuple(text for kind, text in subject if kind == "organizationalUnitName")
    uris = [text for kind, text in found.subjectAltName if kind == "URI" and isinstance(text, str)]
    users = [uri.removeprefix(USER_URI) for uri in uris if uri.startswith(USER_URI)]
    users = users or [text for kind, text in subject if kind == "commonName"]
    if len(users) != 1 or not all(map(is_person, (*users, *units))):
        return None
    return Identity(users[0], units)


# Headers of a proxy ---------------------------------------------------------------------------------------------------

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Headers = Sequence[tuple[bytes, bytes]]
"""Undecoded, with names in lower case."""

USER: Final = b"x-forwarded-user"
GROUPS: Final = b"x-forwarded-groups"


class UntrustedHeaders(Exception):
    """Headers that name a user must not be trusted; the text is the reason."""


def parse_address(text: str) -> IpAddress:
    """The address in a text; an IPv4 address that is written as an IPv6 address is an IPv4 address.

    Raises:
        ValueError: the text is no address.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_among(networks: Sequence[Network], address: str) -> bool:
    """Whether an address is in one of the networks."""
    try:
        found = parse_address(address)
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
    user, groups = _read_single(headers, USER), _read_single(headers, GROUPS)
    if not user:
        return None
    names = tuple(filter(None, (name.strip() for name in groups.split(","))))
    if not all(map(is_person, (user, *names))):
        raise UntrustedHeaders("the proxy names a user or group that can be none")
    return Identity(user, names)


def _read_single(headers: Headers, wanted: bytes) -> str:
    found = [value for name, value in headers if name == wanted]
    if len(found) > 1:
        raise UntrustedHeaders(
            f"the header {wanted.decode()} is there twice: the proxy must replace what its clients send"
        )
    try:
        return found[0].decode().strip() if found else ""
    except UnicodeDecodeError:
        raise UntrustedHeaders(f"the header {wanted.decode()} is not UTF-8") from None


# Tokens: JSON Web Tokens (RFC 7519), signed with a key of the key file, valid now and for this service ----------------
#
# The signature is verified before any claim counts. The algorithm is a property of the key, never of the token. All
# checks are cheap, so an invalid token costs as little as a valid one.

TOKEN_BYTES_MAX: Final = 8 << 10
"""A longer token is refused unread."""

LEEWAY_S: Final = 30.0
"""Tolerated difference between the clocks of issuer and service."""

REASON_LENGTH_MAX: Final = 200
"""Characters of an error about the claims of a token."""

READ: Final = "read"
"""The scope of a token that may change nothing."""

_LATEST_S: Final = 253_402_300_799
"""The end of the year 9999; a larger number is not a time."""

_Time = Annotated[float, msgspec.Meta(ge=0, le=_LATEST_S)]


class InvalidToken(Exception):
    """An invalid token; the text is the reason, and contains nothing of the token."""


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str | None = None
    crit: list[str] | None = None
    """Critical extensions; none is supported."""


class _Claims(msgspec.Struct, frozen=True):
    """Claims by their names in RFC 7519; times in seconds since the epoch."""

    sub: str
    exp: _Time
    nbf: _Time | None = None
    iat: _Time | None = None
    iss: str | None = None
    aud: str | list[str] | None = None
    groups: list[str] = []
    scope: str = ""


def verify_token(token: str, keys: "TokenKeys", *, now: float, issuer: str = "", audience: str = "") -> Identity:
    """The user that a token names, at this time in seconds since the epoch.

    Args:
        issuer: The required issuer; empty for any.
        audience: The required audience; empty for none.

    Raises:
        InvalidToken: it is not valid.
    """
    claims = _parse_claims(_verify_signature(token, keys))
    if now > claims.exp + LEEWAY_S:
        raise InvalidToken("the token has expired")
    if claims.nbf is not None and now < claims.nbf - LEEWAY_S:
        raise InvalidToken("the token is not valid yet (nbf)")
    if claims.iat is not None and now < claims.iat - LEEWAY_S:
        raise InvalidToken("the token was issued in the future (iat): compare the clocks")
    if issuer and claims.iss != issuer:
        raise InvalidToken("the token is of another issuer (iss)")
    named = [claims.aud] if isinstance(claims.aud, str) else claims.aud or []
    if audience and audience not in named:
        raise InvalidToken("the token is for another audience (aud)")
    if not audience and named:
        raise InvalidToken("the token is for an audience (aud), and none is set here")
    for name in (claims.sub, *claims.groups):
        if not is_person(name):
            raise InvalidToken("the token names a user or group that can be none")
    return Identity(claims.sub, tuple(claims.groups), READ in claims.scope.split())


def _verify_signature(token: str, keys: "TokenKeys") -> bytes:
    """Verify the signature of a token. Returns its payload."""
    import jwt  # imported late, as in `common/transport/token_keys.py`: only needed where there are keys

    if len(token) > TOKEN_BYTES_MAX:
        raise InvalidToken(f"the token has more than {TOKEN_BYTES_MAX} bytes")
    try:
        header = msgspec.json.decode(jwt.utils.base64url_decode(token.partition(".")[0]), type=_Header)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidToken("it is no token (JWT)") from None
    if header.crit is not None:
        raise InvalidToken("the token demands an unsupported extension (crit)")
    key = keys.find(header.kid, header.alg)
    if key is None:
        raise InvalidToken("no key here has signed the token (kid, alg)")
    try:
        payload: object = jwt.PyJWS([key.algorithm]).decode(token, key.jwk, algorithms=[key.algorithm])
    except (jwt.PyJWTError, ValueError):
        raise InvalidToken("the signature of the token is wrong") from None
    if not isinstance(payload, bytes):
        raise InvalidToken("the token has no content")
    return payload


def _parse_claims(payload: bytes) -> _Claims:
    try:
        return msgspec.json.decode(payload, type=_Claims)
    except msgspec.ValidationError as error:  # only the names of claims come from the token
        reason = ascii(str(error))[1:-1][:REASON_LENGTH_MAX]
        raise InvalidToken(f"the token lacks required claims: {reason}") from None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidToken("the token does not contain JSON") from None


# The kernel's table of TCP connections (`/proc/net/tcp`, `/proc/net/tcp6`) --------------------------------------------
#
# An address is `HEX:PORT`; its 32-bit words are in the byte order of this machine. Only established connections with an
# owner count: closed sockets remain in the table as user 0, and must not count as root's.

_ESTABLISHED: Final = "01"
_NO_INODE: Final = "0"
_FIELDS_MIN: Final = 10
"""Number, local and remote address, state, queues, timer, retransmissions, user, timeout, inode."""

SocketEnd = tuple[IpAddress, int]
"""The address and the port of one end of a connection."""


def socket_owners(table: str, *, local: SocketEnd, remote: SocketEnd) -> list[int]:
    """The user IDs of all sockets with these ends, as seen from the local one; normally at most one."""
    mine, others, port = _format_end(*local), _format_end(*remote), f":{local[1]:04X} "
    found = []
    for fields in (line.split() for line in table.splitlines() if port in line):  # the table may be long
        is_open = len(fields) >= _FIELDS_MIN and fields[3] == _ESTABLISHED and fields[9] != _NO_INODE
        if is_open and fields[1] in mine and fields[2] in others:
            found.append(int(fields[7]))
    return found


def _format_end(address: IpAddress, port: int) -> set[str]:
    """The texts of an end in the tables, where an IPv4 address may also be written as an IPv6 address."""
    mapped = [ipaddress.IPv6Address(f"::ffff:{address}")] if address.version == 4 else []
    forms: list[IpAddress] = [address, *mapped]
    words = (struct.unpack(f"={len(form.packed) // 4}I", form.packed) for form in forms)
    return {"".join(f"{word:08X}" for word in one) + f":{port:04X}" for one in words}
