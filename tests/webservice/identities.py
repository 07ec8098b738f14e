"""Keys and tokens of every algorithm, created once, and requests with them."""

import base64
import json
from collections.abc import Mapping
from functools import cache

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from yunishard.common.transport.token_keys import TokenKeys, parse_token_keys

NOW = 1_700_000_000.0
SECRET = bytes(range(32))

Jwk = dict[str, object]


def secret_jwk(secret: bytes = SECRET, **more: object) -> Jwk:
    return {"kty": "oct", "kid": "own", "k": base64.urlsafe_b64encode(secret).rstrip(b"=").decode(), **more}


@cache
def rsa_key(bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def rsa_jwk(bits: int = 2048, **more: object) -> Jwk:
    return {**jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key(bits).public_key(), as_dict=True), "kid": "rsa", **more}


def ec_jwk(**more: object) -> Jwk:
    return {**jwt.algorithms.ECAlgorithm.to_jwk(ec_key().public_key(), as_dict=True), "kid": "ec", **more}


def ed_jwk(**more: object) -> Jwk:
    return {**jwt.algorithms.OKPAlgorithm.to_jwk(ed_key().public_key(), as_dict=True), "kid": "ed", **more}


def jwks(*keys: Jwk) -> bytes:
    return json.dumps({"keys": keys}).encode()


@cache
def all_keys() -> TokenKeys:
    return parse_token_keys(jwks(secret_jwk(), rsa_jwk(), ec_jwk(), ed_jwk()))


SIGNERS: Mapping[str, str] = {"HS256": "own", "RS256": "rsa", "ES256": "ec", "EdDSA": "ed"}
"""The id of the key for each algorithm."""


def token(algorithm: str = "HS256", *, headers: dict[str, object] | None = None, **claims: object) -> str:
    """A token of alice that holds for an hour; a claim that is None is left out."""
    usual: dict[str, object] = {"sub": "alice", "exp": int(NOW) + 3600, "groups": ["dev"]}
    said = {name: value for name, value in (usual | claims).items() if value is not None}
    key = {"HS256": SECRET, "RS256": rsa_key(2048), "ES256": ec_key(), "EdDSA": ed_key()}[algorithm]
    return jwt.encode(said, key, algorithm, headers={"kid": SIGNERS[algorithm], **(headers or {})})


def raw(header: object, payload: bytes, signature: bytes = b"") -> str:
    """What looks like a token, put together by hand."""
    parts = (json.dumps(header).encode(), payload, signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
