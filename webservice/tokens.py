"""Whether a token is what it says it is: a JWT (RFC 7519) that one of our keys has signed, of now and for us.

The signature is looked at before anything else in the token counts. How it is signed is a property of the key, never
of the token. Nothing here is as slow as a look at a file, so a wrong token costs as little as a right one.

Not here: where keys come from (`key_file.py`), what its user may do (`entrance.py`).
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
from webservice.credentials import Person

TOKEN_BYTES_MAX: Final = 8 << 10
"""A longer one is refused unread."""

LEEWAY_S: Final = 30.0
"""How far clocks of others may be from ours."""

REASON_LENGTH_MAX: Final = 200
"""Characters of what is wrong with the claims of a token."""

READ: Final = "read"
"""The scope of who may look, and change nothing."""

_LATEST_S: Final = 253_402_300_799
"""The end of the year 9999; beyond that a number is no time."""

_Time = Annotated[float, msgspec.Meta(ge=0, le=_LATEST_S)]


class Wrong(Exception):
    """A token that does not count; the text says why, and holds nothing of the token."""


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str | None = None
    crit: list[str] | None = None
    """Extensions that must be understood; none is."""


class _Claims(msgspec.Struct, frozen=True):
    """By the names of RFC 7519; times in seconds since the epoch."""

    sub: str
    exp: _Time
    nbf: _Time | None = None
    iat: _Time | None = None
    iss: str | None = None
    aud: str | list[str] | None = None
    groups: list[str] = []
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a token must say besides who it is for; empty for an issuer that does not matter, and for no audience."""

    issuer: str = ""
    audience: str = ""


def bearer_of(token: str, keys: TokenKeys, *, terms: Terms, now: float) -> Person:
    """Whom a token stands for, at this time in seconds since the epoch.

    Raises:
        Wrong: it does not count.
    """
    claims = _claims(_payload(token, keys))
    if now > claims.exp + LEEWAY_S:
        raise Wrong("the token has expired")
    if claims.nbf is not None and now < claims.nbf - LEEWAY_S:
        raise Wrong("the token is not valid yet (nbf)")
    if claims.iat is not None and now < claims.iat - LEEWAY_S:
        raise Wrong("the token was issued in the future (iat): compare the clocks")
    if terms.issuer and claims.iss != terms.issuer:
        raise Wrong("the token is of another issuer (iss)")
    _check_audience(claims, terms.audience)
    for name in (claims.sub, *claims.groups):
        if not is_person(name):
            raise Wrong("the token names a user or group that can be none")
    return Person(claims.sub, tuple(claims.groups), READ in claims.scope.split())


def _check_audience(claims: _Claims, audience: str) -> None:
    named = [claims.aud] if isinstance(claims.aud, str) else claims.aud or []
    if audience and audience not in named:
        raise Wrong("the token is for another audience (aud)")
    if not audience and named:
        raise Wrong("the token is for an audience (aud), and none is set here")


def _payload(token: str, keys: TokenKeys) -> bytes:
    """What the token says, once its signature has been found right."""
    import jwt  # as `common/token_keys.py` does, so it is there already once there is a key

    if len(token) > TOKEN_BYTES_MAX:
        raise Wrong(f"the token has more than {TOKEN_BYTES_MAX} bytes")
    header = _header(token)
    if header.crit is not None:
        raise Wrong("the token demands what is not known here (crit)")
    key = keys.find(header.kid, header.alg)
    if key is None:
        raise Wrong("no key here has signed the token (kid, alg)")
    try:
        payload: object = jwt.PyJWS([key.algorithm]).decode(token, key.jwk, algorithms=[key.algorithm])
    except (jwt.PyJWTError, ValueError):
        raise Wrong("the signature of the token is wrong") from None
    if not isinstance(payload, bytes):
        raise Wrong("the token has no content")
    return payload


def _header(token: str) -> _Header:
    import jwt

    try:
        text = jwt.utils.base64url_decode(token.partition(".")[0])
        return msgspec.json.decode(text, type=_Header)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Wrong("it is no token (JWT)") from None


def _claims(payload: bytes) -> _Claims:
    try:
        return msgspec.json.decode(payload, type=_Claims)
    except msgspec.ValidationError as error:
        raise Wrong(f"the token does not say what it must: {_place(error)}") from None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise Wrong("the token does not hold JSON") from None


def _place(error: msgspec.ValidationError) -> str:
    """What is wrong, of which only the names of claims come from the token."""
    return ascii(str(error))[1:-1][:REASON_LENGTH_MAX]


LOOK_EVERY_S: Final = 1.0
"""However many tokens come, the file is looked at no more often."""

_log = logging.getLogger("core.rest")

_Sign = tuple[int, int, int, int] | None
"""By which a file that changed is known; None for one that is not there."""


class KeyFile:
    """A file of keys. While its newest content cannot be used, the keys before that hold.

    Raises:
        TokenKeyError: its first content cannot be used.
    """

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._sign = self._seen()
        self._keys = read_token_keys(file)
        self._looked_at = clock()

    def keys(self) -> TokenKeys:
        """The keys that hold now."""
        now = self._clock()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            sign = self._seen()
            if sign != self._sign:
                self._sign = sign
                self._read()
        return self._keys

    def _read(self) -> None:
        try:
            self._keys = read_token_keys(self._file)
        except TokenKeyError as error:
            _log.warning("the token keys are not usable, so the previous ones stay in force: %s: %s", self._file, error)
        else:
            _log.info("%s has changed; token keys in it: %d", self._file, len(self._keys.keys))

    def _seen(self) -> _Sign:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
