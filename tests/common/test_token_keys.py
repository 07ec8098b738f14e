"""Which files of keys can be used, and what each key is for."""

import base64
import json
from pathlib import Path

import pytest

from tests.webservice.identities import ec_jwk, ed_jwk, jwks, rsa_jwk, secret_jwk
from yunishard.common.transport.token_keys import (
    KEY_FILE_BYTES_MAX,
    KEYS_MAX,
    TokenKeyError,
    parse_token_keys,
    read_token_keys,
    write_secret,
)


def refusal(text: bytes) -> str:
    with pytest.raises(TokenKeyError) as refused:
        parse_token_keys(text)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_each_kind_of_key_is_for_one_algorithm() -> None:
    found = parse_token_keys(jwks(secret_jwk(), rsa_jwk(), ec_jwk(), ed_jwk()))
    assert [(one.id, one.algorithm) for one in found.keys] == [
        ("own", "HS256"),
        ("rsa", "RS256"),
        ("ec", "ES256"),
        ("ed", "EdDSA"),
    ]
    assert found.secret is found.keys[0]


def test_a_key_is_found_by_id_and_algorithm_together() -> None:
    found = parse_token_keys(jwks(secret_jwk(), rsa_jwk(), rsa_jwk(kid="other")))
    assert found.find("rsa", "RS256") is found.keys[1]
    assert found.find(None, "HS256") is found.keys[0]
    assert [found.find(*of) for of in ((None, "RS256"), ("rsa", "HS256"), ("own", "RS256"), ("", "HS256"))] == [
        None
    ] * 4


def test_keys_for_something_else_are_passed_over() -> None:
    others = [
        rsa_jwk(use="enc"),
        rsa_jwk(alg="RSA-OAEP"),
        rsa_jwk(alg="RS512"),
        {"kty": "EC", "crv": "P-384"},
        {"kty": "X"},
    ]
    assert [one.id for one in parse_token_keys(jwks(*others, ed_jwk())).keys] == ["ed"]
    assert refusal(jwks(*others)) == "has no key for RS256, ES256, EdDSA, HS256"


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":7}', b"-----BEGIN", b"\xff", b"[" * 9000]
)
def test_what_is_no_jwks_is_refused(text: bytes) -> None:
    assert refusal(text) == 'no JWKS: expected JSON such as {"keys": [...]}'


def test_a_private_key_does_not_belong_here() -> None:
    assert "is a private key" in refusal(jwks(rsa_jwk(d="AQAB")))


@pytest.mark.parametrize(
    ("jwk", "reason"),
    [
        (secret_jwk(b"short"), "a secret of 5 bytes is too short, 32 are the least"),
        (secret_jwk(b""), "cannot be used"),
        (rsa_jwk(1024), "has 1024 bits, expected 2048 to 8192"),
        (rsa_jwk(n="!"), "cannot be used"),
        (ec_jwk(x=""), "cannot be used"),
        ({"kty": "RSA"}, "cannot be used"),
        ({"kty": 7}, "Expected `str`, got `int`"),
    ],
)
def test_a_key_that_cannot_be_used_is_named(jwk: dict[str, object], reason: str) -> None:
    assert refusal(jwks(secret_jwk(), jwk)).startswith("key 2: ")
    assert reason in refusal(jwks(secret_jwk(), jwk))


def test_two_keys_of_one_name_are_refused() -> None:
    assert refusal(jwks(rsa_jwk(), rsa_jwk())) == "has two keys for RS256 with the id 'rsa'"


def test_too_many_keys_are_refused() -> None:
    assert refusal(jwks(*({"kty": "X"} for _ in range(KEYS_MAX + 1)))) == "has 101 keys, 100 are the most"


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_secret_that_was_made_is_found_again_and_nobody_else_s(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key_id = write_secret(file)
    assert file.stat().st_mode & 0o777 == 0o600
    secret = read_token_keys(file).secret
    assert secret is not None
    assert secret.id == key_id
    [entry] = json.loads(file.read_text())["keys"]
    assert len(base64.urlsafe_b64decode(entry["k"] + "=")) == 32
    before = file.read_text()
    with pytest.raises(FileExistsError):
        write_secret(file)
    assert file.read_text() == before


def test_two_secrets_are_different(tmp_path: Path) -> None:
    assert write_secret(tmp_path / "a") != write_secret(tmp_path / "b")
    assert (tmp_path / "a").read_text() != (tmp_path / "b").read_text()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_secret_that_others_may_read_is_refused_and_public_keys_are_not(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "keys"
    file.write_bytes(jwks(secret_jwk()))
    file.chmod(mode)
    with pytest.raises(TokenKeyError, match="others may read"):
        read_token_keys(file)
    file.write_bytes(jwks(rsa_jwk()))
    assert read_token_keys(file).secret is None


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for file, reason in ((tmp_path / "none", "no such file"), (tmp_path, "is a directory")):
        with pytest.raises(TokenKeyError, match=f"cannot be read: {reason}"):
            read_token_keys(file)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(jwks(rsa_jwk()) + b" " * KEY_FILE_BYTES_MAX)
    with pytest.raises(TokenKeyError, match="larger than 256 KiB"):
        read_token_keys(file)
