"""The keys of bearer tokens, with which REST users authenticate: a JWKS file (RFC 7517).

Its entries are public keys of a token issuer, or secrets that `yunishard token` makes and signs with. The key alone
determines the algorithm of a signature, whatever the token's header contains: a public key is never used as a secret,
and a token without a signature is never valid.

Not here: tokens (`yunishard/webservice/credentials.py`, `yunishard/cli/commands/credentials.py`).
"""

import base64
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from yunishard.common.process.folders import is_exposed
from yunishard.common.transport.curve_keys import write_new

if TYPE_CHECKING:
    import jwt

KEY_FILE_BYTES_MAX: Final = 256 << 10
"""A larger file is refused: no issuer has so many keys."""

KEYS_MAX: Final = 100

SECRET_BYTES: Final = 32
"""Minimum length of a secret, and the length of new ones: that of the hash it signs with."""

RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192
"""A longer key would make the verification of tokens slow."""

SECRET: Final = "oct"  # noqa: S105 - the kind of key, no secret

ALGORITHMS: Final[Mapping[tuple[str, str], str]] = {
    ("RSA", ""): "RS256",
    ("EC", "P-256"): "ES256",
    ("OKP", "Ed25519"): "EdDSA",
    (SECRET, ""): "HS256",
}
"""By type of key and its curve."""


class TokenKeyError(ValueError):
    """A file of keys that cannot be used; the message is one line."""


class _Entry(msgspec.Struct, frozen=True):
    """The members of a key that are checked here, by the names of RFC 7517 and RFC 7518."""

    kty: str
    kid: str = ""
    alg: str = ""
    use: str = "sig"
    crv: str = ""
    d: str = ""
    """Of a private key."""


class _File(msgspec.Struct, frozen=True):
    keys: list[msgspec.Raw]


@dataclass(frozen=True, slots=True)
class TokenKey:
    """A key with its only algorithm."""

    id: str
    algorithm: str
    jwk: "jwt.PyJWK"


@dataclass(frozen=True, slots=True)
class TokenKeys:
    """All keys of a file, at least one; no two of one algorithm have the same id."""

    keys: tuple[TokenKey, ...]

    def find(self, key_id: str | None, algorithm: str) -> TokenKey | None:
        """Return the key for a token with this header. Without a key id it is the only key of the algorithm."""
        found = [one for one in self.keys if one.algorithm == algorithm and key_id in (None, one.id)]
        return found[0] if len(found) == 1 else None

    @property
    def secret(self) -> TokenKey | None:
        """Return the first key that signs, if any."""
        return next((one for one in self.keys if one.algorithm == ALGORITHMS[SECRET, ""]), None)


def parse_token_keys(text: bytes) -> TokenKeys:
    """Parse the text of a JWKS. Keys for other uses or algorithms are ignored: files of issuers have some.

    Raises:
        TokenKeyError: it is not a JWKS, or has no usable key, or an invalid one.
    """
    try:
        entries = msgspec.json.decode(text, type=_File).keys
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise TokenKeyError('no JWKS: expected JSON such as {"keys": [...]}') from None
    if len(entries) > KEYS_MAX:
        raise TokenKeyError(f"has {len(entries)} keys, {KEYS_MAX} are the most")
    found = [key for number, entry in enumerate(entries, 1) if (key := _key(bytes(entry), number)) is not None]
    if not found:
        raise TokenKeyError(f"has no key for {', '.join(ALGORITHMS.values())}")
    names = [(key.algorithm, key.id) for key in found]
    for name in names:
        if names.count(name) > 1:
            raise TokenKeyError(f"has two keys for {name[0]} with the id {name[1]!r}")
    return TokenKeys(tuple(found))


def _key(text: bytes, number: int) -> TokenKey | None:
    try:
        entry = msgspec.json.decode(text, type=_Entry)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TokenKeyError(f"key {number}: {error}") from None
    algorithm = ALGORITHMS.get((entry.kty, entry.crv))
    if algorithm is None or entry.alg not in ("", algorithm) or entry.use != "sig":
        return None
    if entry.d:
        raise TokenKeyError(f"key {number}: is a private key, which only the issuer may have: give the public one")
    import jwt

    try:
        jwk = jwt.PyJWK.from_json(text.decode(), algorithm)
    except (jwt.PyJWTError, ValueError) as error:
        raise TokenKeyError(f"key {number}: cannot be used: {error}") from None
    if weakness := _find_weakness(jwk):
        raise TokenKeyError(f"key {number}: {weakness}")
    return TokenKey(entry.kid, algorithm, jwk)


def _find_weakness(jwk: "jwt.PyJWK") -> str:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    key: object = jwk.key
    if isinstance(key, RSAPublicKey) and not RSA_BITS_MIN <= key.key_size <= RSA_BITS_MAX:
        return f"has {key.key_size} bits, expected {RSA_BITS_MIN} to {RSA_BITS_MAX}"
    if isinstance(key, bytes) and len(key) < SECRET_BYTES:
        return f"a secret of {len(key)} bytes is too short, {SECRET_BYTES} are the least"
    return ""


# Files ----------------------------------------------------------------------------------------------------------------


def read_token_keys(file: Path) -> TokenKeys:
    """Read the keys of a file. A file with a secret must be readable for its owner only.

    Raises:
        TokenKeyError: the message is one line without the path.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(KEY_FILE_BYTES_MAX + 1)
            status = os.fstat(opened.fileno())
    except OSError as error:
        raise TokenKeyError(f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(text) > KEY_FILE_BYTES_MAX:
        raise TokenKeyError(f"is larger than {KEY_FILE_BYTES_MAX >> 10} KiB")
    found = parse_token_keys(text)
    if found.secret is not None and is_exposed(status):
        raise TokenKeyError("holds a secret that others may read; make a new one, and keep it with mode 600")
    return found


def write_secret(file: Path) -> str:
    """Write a file with a new secret, which only this user may read; return the id of the key.

    Raises:
        FileExistsError: the file exists; it has not changed.
        OSError: it cannot be written.
    """
    key_id = secrets.token_hex(4)
    secret = base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).rstrip(b"=").decode()
    entry = {"kty": SECRET, "kid": key_id, "alg": ALGORITHMS[SECRET, ""], "use": "sig", "k": secret}
    write_new(file, 0o600, msgspec.json.encode({"keys": [entry]}).decode() + "\n")
    return key_id
