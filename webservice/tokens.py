"""Verifies bearer tokens: JSON Web Tokens (RFC 7519), signed with a key of the key file, valid now and for this
service.

The signature is verified before any claim counts. The algorithm is a property of the key, never of the token. All
checks are cheap, so an invalid token costs as little as a valid one. `KeyFile` reloads the keys when their file
changes; its format is in `common/token_keys.py`.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from common.names import is_person
from common.token_keys import TokenKeyError, TokenKeys, read_token_keys
from webservice.credentials import Identity

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
    """An invalid token; the text says why, and contains nothing of the token."""


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


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """The required issuer (empty: any) and audience (empty: none) of a token."""

    issuer: str = ""
    audience: str = ""


def verify_token(token: str, keys: TokenKeys, *, terms: TokenTerms, now: float) -> Identity:
    """The user that a token names, at this time in seconds since the epoch.

    Raises:
        InvalidToken: it is not valid.
    """
    claims = _claims(_payload(token, keys))
    if now > claims.exp + LEEWAY_S:
        raise InvalidToken("the token has expired")
    if claims.nbf is not None and now < claims.nbf - LEEWAY_S:
        raise InvalidToken("the token is not valid yet (nbf)")
    if claims.iat is not None and now < claims.iat - LEEWAY_S:
        raise InvalidToken("the token was issued in the future (iat): compare the clocks")
    if terms.issuer and claims.iss != terms.issuer:
        raise InvalidToken("the token is of another issuer (iss)")
    _check_audience(claims, terms.audience)
    for name in (claims.sub, *claims.groups):
        if not is_person(name):
            raise InvalidToken("the token names a user or group that can be none")
    return Identity(claims.sub, tuple(claims.groups), READ in claims.scope.split())


def _check_audience(claims: _Claims, audience: str) -> None:
    named = [claims.aud] if isinstance(claims.aud, str) else claims.aud or []
    if audience and audience not in named:
        raise InvalidToken("the token is for another audience (aud)")
    if not audience and named:
        raise InvalidToken("the token is for an audience (aud), and none is set here")


def _payload(token: str, keys: TokenKeys) -> bytes:
    """The payload of the token, after its signature was verified."""
    import jwt  # imported late, as in `common/token_keys.py`: only needed where there are keys

    if len(token) > TOKEN_BYTES_MAX:
        raise InvalidToken(f"the token has more than {TOKEN_BYTES_MAX} bytes")
    header = _header(token)
    if header.crit is not None:
        raise InvalidToken("the token demands what is not known here (crit)")
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


def _header(token: str) -> _Header:
    import jwt

    try:
        text = jwt.utils.base64url_decode(token.partition(".")[0])
        return msgspec.json.decode(text, type=_Header)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidToken("it is no token (JWT)") from None


def _claims(payload: bytes) -> _Claims:
    try:
        return msgspec.json.decode(payload, type=_Claims)
    except msgspec.ValidationError as error:
        raise InvalidToken(f"the token does not say what it must: {_describe(error)}") from None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise InvalidToken("the token does not hold JSON") from None


def _describe(error: msgspec.ValidationError) -> str:
    """The error in ASCII; only the names of claims come from the token."""
    return ascii(str(error))[1:-1][:REASON_LENGTH_MAX]


CHECK_EVERY_S: Final = 1.0
"""The file is checked for changes at most this often, however many tokens arrive."""

_log = logging.getLogger("core.rest")

_Signature = tuple[int, int, int, int] | None
"""Changes whenever the file does; None for a missing file."""


class KeyFile:
    """A file of keys. While its latest content is invalid, the previous keys stay in force.

    Raises:
        TokenKeyError: its content at the start is invalid.
    """

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._signature = self._stat()
        self._keys = read_token_keys(file)
        self._checked_at = clock()

    def keys(self) -> TokenKeys:
        """The keys in force."""
        now = self._clock()
        if now - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = now
            signature = self._stat()
            if signature != self._signature:
                self._signature = signature
                self._read()
        return self._keys

    def _read(self) -> None:
        try:
            self._keys = read_token_keys(self._file)
        except TokenKeyError as error:
            _log.warning("the token keys are not usable, so the previous ones stay in force: %s: %s", self._file, error)
        else:
            _log.info("%s has changed; token keys in it: %d", self._file, len(self._keys.keys))

    def _stat(self) -> _Signature:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
