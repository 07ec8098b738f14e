"""Client certificates, headers of proxies, tokens, and the kernel's table of connections."""

import hashlib
import hmac
import json
import logging
import math
import sys
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.webservice.identities import (
    NOW,
    SECRET,
    SIGNERS,
    all_keys,
    ec_jwk,
    jwks,
    raw,
    rsa_jwk,
    rsa_key,
    secret_jwk,
    token,
)
from tests.webservice.socket_tables import HEAD, line
from yunishard.common.transport.token_keys import TokenKeyError, parse_token_keys
from yunishard.webservice.authn_authz import KeyFile
from yunishard.webservice.credentials import (
    LEEWAY_S,
    TOKEN_BYTES_MAX,
    Identity,
    InvalidToken,
    UntrustedHeaders,
    certificate_owner,
    claims_identity,
    is_among,
    parse_address,
    proxied_identity,
    socket_owners,
    verify_token,
)


def test_a_certificate_from_the_ssl_module_is_parsed() -> None:
    certificate = {
        "subject": ((("countryName", "DE"),), (("organizationalUnitName", "ops"), ("commonName", "alice"))),
        "issuer": ((("commonName", "our CA"),),),
        "version": 3,
        "subjectAltName": (
            ("DNS", "alice.example"),
            ("URI", "yunishard:user:alice"),
            ("DirName", ((("commonName", "mallory"),),)),
        ),
    }
    assert certificate_owner(certificate) == Identity("alice", ("ops",))


def peer(names: tuple[str, ...] = (), units: tuple[str, ...] = (), uris: tuple[str, ...] = ()) -> dict[str, object]:
    """A certificate as the module `ssl` describes it."""
    subject = [*(("commonName", name) for name in names), *(("organizationalUnitName", unit) for unit in units)]
    return {"subject": tuple((pair,) for pair in subject), "subjectAltName": tuple(("URI", uri) for uri in uris)}


def test_the_owner_is_the_common_name_and_the_groups_are_the_units() -> None:
    assert certificate_owner(peer(("alice",), ("ops", "dev"))) == Identity("alice", ("ops", "dev"))


def test_a_uri_of_ours_goes_before_the_common_name() -> None:
    uris = ("https://elsewhere.example", "yunishard:user:bob")
    assert certificate_owner(peer(("alice",), ("ops",), uris)) == Identity("bob", ("ops",))
    assert certificate_owner(peer((), (), uris)) == Identity("bob")


@pytest.mark.parametrize(
    "certificate",
    [
        None,
        {},
        peer(),
        peer(("alice", "bob")),
        peer(("",)),
        peer(("a\nb",)),
        peer(("alice",), ("o\x00ps",)),
        peer(("alice",), (), ("yunishard:user:",)),
        peer(("alice",), (), ("yunishard:user:a", "yunishard:user:b")),
    ],
)
def test_a_certificate_without_exactly_one_valid_user_has_no_owner(certificate: object) -> None:
    assert certificate_owner(certificate) is None


NETWORKS = (ip_network("10.1.0.0/16"), ip_network("127.0.0.1"), ip_network("fd00::/8"))


@pytest.mark.parametrize("address", ["10.1.2.3", "127.0.0.1", "fd00::7", "::ffff:10.1.2.3", "fd00::1%eth0"])
def test_an_address_in_one_of_the_networks_is_a_proxy(address: str) -> None:
    assert is_among(NETWORKS, address)


@pytest.mark.parametrize("address", ["10.2.0.1", "127.0.0.2", "::1", "::ffff:10.2.0.1", "", "localhost", "10.1.2.3.4"])
def test_another_is_none(address: str) -> None:
    assert not is_among(NETWORKS, address)


def test_a_proxy_names_a_user_and_their_groups() -> None:
    assert proxied_identity([(b"x-forwarded-user", b" alice "), (b"x-forwarded-groups", b"ops, dev,,")]) == Identity(
        "alice", ("ops", "dev")
    )
    assert proxied_identity([(b"x-forwarded-user", "älice".encode())]) == Identity("älice")


@pytest.mark.parametrize("headers", [[], [(b"x-forwarded-user", b"")], [(b"x-forwarded-groups", b"ops")]])
def test_without_a_user_headers_have_no_identity(headers: list[tuple[bytes, bytes]]) -> None:
    assert proxied_identity(headers) is None


@pytest.mark.parametrize(
    "headers",
    [
        [(b"x-forwarded-user", b"alice"), (b"x-forwarded-user", b"alice")],
        [(b"x-forwarded-user", b"alice"), (b"x-forwarded-groups", b"a"), (b"x-forwarded-groups", b"b")],
        [(b"x-forwarded-user", b"\xff")],
        [(b"x-forwarded-user", b"a\x1bb")],
        [(b"x-forwarded-user", b"x" * 257)],
        [(b"x-forwarded-user", b"alice"), (b"x-forwarded-groups", b"a\x00b")],
    ],
)
def test_headers_that_a_client_may_have_sent_are_refused(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(UntrustedHeaders):
        proxied_identity(headers)


def test_either_header_claims_an_identity() -> None:
    assert claims_identity([(b"x-forwarded-user", b"")])
    assert claims_identity([(b"x-forwarded-groups", b"ops")])
    assert not claims_identity([(b"x-forwarded-for", b"10.0.0.1")])


# As Linux wrote it on a machine that stores numbers with the lowest byte first.
RECORDED = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1525 1 00000000f2f0ff63 100 0 0 10 0
   1: 0100007F:2378 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 8123 1 000000001ac25b15 100 0 0 10 0
   2: 0100007F:2378 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 8125 1 00000000a7c0d5c1 20 4 30 10 -1
   3: 0100007F:9C40 0100007F:2378 01 00000000:00000000 02:000AF7DE 00000000  1001        0 8124 2 00000000c3fbd4cd 20 4 0 10 -1
   4: 0100007F:9C41 0100007F:2378 06 00000000:00000000 03:00001761 00000000     0        0 0 3 0000000036d2b9a4
"""  # noqa: E501
RECORDED6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:9C40 00000000000000000000000001000000:2378 01 00000000:00000000 00:00000000 00000000  1002        0 9001 1 00000000c3fbd4cd 20 4 0 10 -1
   1: 0000000000000000FFFF00000100007F:9C42 0000000000000000FFFF00000100007F:2378 01 00000000:00000000 00:00000000 00000000  1003        0 9002 1 00000000c3fbd4cd 20 4 0 10 -1
"""  # noqa: E501
OURS = ("127.0.0.1", 9080)
little_endian = pytest.mark.skipif(sys.byteorder != "little", reason="recorded on another kind of machine")


def found(table: str, theirs: tuple[str, int], ours: tuple[str, int] = OURS) -> list[int]:
    (their_address, their_port), (our_address, our_port) = theirs, ours
    local, remote = (parse_address(their_address), their_port), (parse_address(our_address), our_port)
    return socket_owners(table, local=local, remote=remote)


@little_endian
def test_the_owner_is_whose_own_end_it_is() -> None:
    assert found(RECORDED, ("127.0.0.1", 40000)) == [1001]
    assert found(RECORDED, OURS, ("127.0.0.1", 40000)) == [1000]


@little_endian
def test_a_closing_connection_has_no_owner() -> None:
    assert found(RECORDED, ("127.0.0.1", 40001)) == []


@little_endian
def test_ipv6_has_its_own_table() -> None:
    assert found(RECORDED6, ("::1", 40000), ("::1", 9080)) == [1002]
    assert found(RECORDED6, ("127.0.0.1", 40000)) == []


@little_endian
def test_an_ipv4_address_in_ipv6_clothes_is_the_same() -> None:
    assert found(RECORDED6, ("127.0.0.1", 40002)) == [1003]
    assert found(RECORDED6, ("::ffff:127.0.0.1", 40002), ("::ffff:127.0.0.1", 9080)) == [1003]
    assert found(RECORDED, ("::ffff:127.0.0.1", 40000), ("::ffff:127.0.0.1", 9080)) == [1001]


@pytest.mark.parametrize("state", ["02", "04", "05", "06", "07", "08", "09", "0A", "0B"])
def test_only_an_open_connection_counts(state: str) -> None:
    assert found(line(("127.0.0.1", 40000), OURS, uid=0, state=state), ("127.0.0.1", 40000)) == []


def test_a_socket_that_no_process_holds_does_not_count() -> None:
    assert found(line(("127.0.0.1", 40000), OURS, uid=0, inode=0), ("127.0.0.1", 40000)) == []


def test_neither_another_port_nor_another_address_will_do() -> None:
    table = "\n".join([HEAD, line(("127.0.0.2", 40000), OURS), line(("127.0.0.1", 40000), ("127.0.0.2", 9080))])
    assert found(table, ("127.0.0.1", 40000)) == []
    assert found(table, ("127.0.0.2", 40000)) == [1000]


def test_all_matching_owners_are_returned() -> None:
    twice = [line(("127.0.0.1", 40000), OURS, uid=uid) for uid in (7, 8)]
    assert found("\n".join(twice), ("127.0.0.1", 40000)) == [7, 8]


@pytest.mark.parametrize(
    "odd", ["", "x", "   1: 0100007F:9C40 0100007F:2378 01", "   1: ZZ:9C40 0:2378 01 0 0 0 0 0 1 2"]
)
def test_what_is_no_connection_is_passed_over(odd: str) -> None:
    table = "\n".join([odd, line(("127.0.0.1", 40000), OURS)])
    assert found(table, ("127.0.0.1", 40000)) == [1000]


def test_a_text_that_is_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match="testclient"):
        parse_address("testclient")


# Tokens ---------------------------------------------------------------------------------------------------------------

ALICE = Identity("alice", ("dev",))
CLAIMS = json.dumps({"sub": "root", "exp": NOW + 60}).encode()


def bearer(text: str, *, now: float = NOW, issuer: str = "", audience: str = "") -> Identity:
    return verify_token(text, all_keys(), now=now, issuer=issuer, audience=audience)


def refusal(text: str, *, now: float = NOW, issuer: str = "", audience: str = "") -> str:
    with pytest.raises(InvalidToken) as wrong:
        bearer(text, now=now, issuer=issuer, audience=audience)
    return str(wrong.value)


def signed(payload: bytes) -> str:
    """Any content, signed with our secret."""
    text = raw({"alg": "HS256", "kid": "own"}, payload)
    body = text.rpartition(".")[0]
    return body + "." + raw("", hmac.digest(SECRET, body.encode(), "sha256")).split(".")[1]


@pytest.mark.parametrize("algorithm", SIGNERS)
def test_a_token_of_each_algorithm_names_its_user(algorithm: str) -> None:
    assert bearer(token(algorithm)) == ALICE


def test_a_token_without_groups_names_only_a_user() -> None:
    assert bearer(token(groups=None)) == Identity("alice")


@pytest.mark.parametrize(
    ("scope", "read_only"), [("read", True), ("openid read", True), ("", False), ("openid", False), ("reader", False)]
)
def test_the_scope_read_is_for_looking_only(scope: str, read_only: bool) -> None:
    assert bearer(token(scope=scope)).read_only is read_only


def test_a_token_that_names_no_key_means_the_only_one_of_its_kind() -> None:
    text = jwt.encode({"sub": "alice", "exp": NOW + 9}, SECRET, "HS256")
    assert bearer(text).user == "alice"
    two = parse_token_keys(jwks(secret_jwk(), secret_jwk(bytes(32), kid="other")))
    with pytest.raises(InvalidToken, match="no key here"):
        verify_token(text, two, now=NOW)


@pytest.mark.parametrize("claim", ["sub", "exp"])
def test_a_token_without_a_user_or_an_end_does_not_count(claim: str) -> None:
    assert f"missing required field `{claim}`" in refusal(token(**{claim: None}))


def test_clocks_may_differ_a_little() -> None:
    end = int(NOW) + 3600
    assert bearer(token(), now=end + LEEWAY_S) == ALICE
    assert refusal(token(), now=end + LEEWAY_S + 1) == "the token has expired"
    assert bearer(token(nbf=NOW + LEEWAY_S)) == ALICE
    assert "not valid yet" in refusal(token(nbf=NOW + LEEWAY_S + 1))
    assert bearer(token(iat=NOW + LEEWAY_S)) == ALICE
    assert "in the future" in refusal(token(iat=NOW + LEEWAY_S + 1))


def test_an_issuer_that_is_set_is_the_only_one() -> None:
    assert bearer(token(iss="us"), issuer="us") == ALICE
    assert bearer(token(iss="them")) == ALICE
    for other in ("them", "US", None):
        assert "another issuer" in refusal(token(iss=other), issuer="us")


def test_an_audience_that_is_set_must_be_named_and_one_that_is_not_must_not() -> None:
    assert bearer(token(aud="us"), audience="us") == ALICE
    assert bearer(token(aud=["them", "us"]), audience="us") == ALICE
    for other in ("them", ["them"], [], None):
        assert "another audience" in refusal(token(aud=other), audience="us")
    assert "none is set here" in refusal(token(aud="us"))


@pytest.mark.parametrize(
    "more",
    [
        *({"exp": value} for value in ("1900000000", True, -1, 10**400, [], {}, 253_402_300_800)),
        *({"nbf": value} for value in ("0", -5, 10**30)),
        *({"sub": value} for value in ("", 7, ["alice"], "a\nb", "a\x1b[2J", "x" * 257, "\u202eecila", "\ud800")),
        *({"groups": value} for value in ("dev", [7], [""], ["a\tb"], {"dev": 1})),
        {"scope": ["read"]},
        {"aud": 7},
        {"iss": 7},
    ],
)
def test_a_claim_that_cannot_be_makes_the_token_wrong(more: dict[str, object]) -> None:
    claims = {"sub": "alice", "exp": NOW + 60, **more}
    assert refusal(signed(json.dumps(claims).encode())).isascii()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b'"alice"',
        b'{"sub":"alice","exp":1e999}',
        b'{"sub":"alice","exp":NaN}',
        b'{"sub":"alice","exp":Infinity}',
        b'{"sub":"\xff","exp":1900000000}',
        b'{"sub":"alice","exp":1900000000,"x":' + b"[" * 3000,
    ],
)
def test_content_that_is_no_set_of_claims_is_wrong(payload: bytes) -> None:
    refusal(signed(payload))


def test_claims_that_are_too_deep_for_this_python_are_wrong_and_nothing_worse() -> None:
    payload = b'{"sub":"root","exp":1900000000,"x":' + b"[" * 2500 + b"]" * 2500 + b"}"
    with suppress(InvalidToken):
        assert bearer(signed(payload)).user == "root"


@pytest.mark.parametrize("name", ["älice", "алиса", "愛", "a b", "o'neil", "x" * 256])
def test_a_name_may_have_any_letters_and_is_taken_as_it_is(name: str) -> None:
    assert bearer(token(sub=name, groups=[name])) == Identity(name, (name,))


# Attacks --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", "HS384", "RS512", "PS256", "ES384", "hs256", "HS256 "])
@pytest.mark.parametrize("key_id", ["own", "rsa", None])
def test_an_algorithm_that_is_no_key_s_does_not_count(alg: str, key_id: str | None) -> None:
    assert "no key here" in refusal(raw({"alg": alg, "kid": key_id}, CLAIMS))


@pytest.mark.parametrize("key_id", ["rsa", "ec", "ed", "own", None, ""])
def test_a_public_key_is_never_a_secret(key_id: str | None) -> None:
    public = rsa_key(2048).public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    body = raw({"alg": "HS256", "kid": key_id}, CLAIMS).rpartition(".")[0]
    for secret in (pem, pem.strip(), der, json.dumps(rsa_jwk()).encode(), b""):
        signature = hmac.digest(secret, body.encode(), hashlib.sha256)
        refusal(f"{body}.{raw('', signature).split('.')[1]}")


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "HS256", "kid": "../../dev/null"},
        {"alg": "HS256", "kid": "own' OR '1'='1"},
        {"alg": "HS256", "kid": ["own"]},
        {"alg": "HS256", "kid": 7},
        {"alg": "RS256", "kid": "own"},
        {"alg": ["HS256"]},
        {"kid": "own"},
        {"alg": "HS256", "kid": "own", "crit": ["exp"]},
        {"alg": "HS256", "kid": "own", "crit": []},
        {"alg": "HS256", "kid": "own", "b64": False, "crit": ["b64"]},
        {"alg": "RS256", "jwk": rsa_jwk(), "kid": "else"},
        {"alg": "RS256", "jku": "https://evil.example/jwks", "x5u": "https://evil.example", "kid": "else"},
        [],
        "HS256",
        None,
    ],
)
def test_a_header_that_wants_to_choose_does_not(header: object) -> None:
    body = raw(header, CLAIMS).rpartition(".")[0]
    refusal(f"{body}.{raw('', hmac.digest(SECRET, body.encode(), 'sha256')).split('.')[1]}")


@pytest.mark.parametrize("algorithm", SIGNERS)
def test_another_content_with_a_signature_that_was_right_is_wrong(algorithm: str) -> None:
    header, _, signature = token(algorithm).split(".")
    claims = token(algorithm, sub="root").split(".")[1]
    assert refusal(f"{header}.{claims}.{signature}") == "the signature of the token is wrong"


@pytest.mark.parametrize("text", ["", ".", "..", "...", "a.b.c", "alice", " ", "é.é.é", "e30.e30.", "\x00"])
def test_what_is_no_token_is_wrong(text: str) -> None:
    refusal(text)


def test_a_token_that_is_too_long_is_not_read() -> None:
    assert "more than 8192 bytes" in refusal("x" * (TOKEN_BYTES_MAX + 1))
    assert "more than 8192 bytes" in refusal(token(groups=["x" * 200] * 40))


def test_errors_contain_nothing_of_the_token() -> None:
    text = token("RS256")[:-9] + "AAAAAAAAA"
    assert not any(part[:8] in refusal(text) for part in text.split("."))


@settings(max_examples=300)
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin-1")))
def test_nothing_made_up_counts(text: str) -> None:
    refusal(text)


@settings(max_examples=300)
@given(st.sampled_from(sorted(SIGNERS)), st.integers(0, 10_000), st.integers(1, 255))
def test_a_token_with_one_letter_changed_is_wrong_or_the_same(algorithm: str, place: int, change: int) -> None:
    text = _TOKENS[algorithm]
    place %= len(text)
    changed = text[:place] + chr(ord(text[place]) ^ change) + text[place + 1 :]
    try:
        assert bearer(changed) == ALICE
    except InvalidToken:
        return
    raise AssertionError(f"a changed token counts: {changed}")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=500)
@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("exp", "nbf", "iat", "sub", "groups", "scope", "aud", "iss", "alg", "kid"), _JSON),
    )
)
def test_whatever_is_signed_names_a_person_or_is_wrong(claims: dict[str, object]) -> None:
    try:
        found = bearer(signed(json.dumps(claims).encode()))
    except InvalidToken:
        return
    end = claims["exp"]
    assert isinstance(end, int | float)
    assert NOW - LEEWAY_S <= end < math.inf
    assert found.user == claims["sub"]
    assert all(name.isprintable() and name for name in (found.user, *found.groups))


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk", "jku", "x5c", "zip"]), _JSON))
def test_no_header_makes_a_signature_right(header: dict[str, object]) -> None:
    refusal(raw(header, CLAIMS, b"x" * 32))


def test_a_key_of_one_kind_does_not_vouch_for_another() -> None:
    only = parse_token_keys(jwks(ec_jwk(kid="own"), rsa_jwk(kid="own")))
    with pytest.raises(InvalidToken, match="no key here"):
        verify_token(token(), only, now=NOW)


_TOKENS = {algorithm: token(algorithm) for algorithm in SIGNERS}


def ids(file: KeyFile) -> list[str]:
    return [key.id for key in file.keys().keys]


def test_another_content_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(jwks(rsa_jwk()))
    file = KeyFile(path)
    assert ids(file) == ["rsa"]
    path.write_bytes(jwks(rsa_jwk(kid="new"), rsa_jwk()))
    assert ids(file) == ["new", "rsa"]
    path.write_bytes(jwks(rsa_jwk(kid="newest")))
    assert ids(file) == ["newest"]


@pytest.mark.parametrize("broken", [b"", b'{"keys":[]}', None, jwks(secret_jwk())])
def test_the_previous_keys_stay_in_force_while_the_file_is_invalid(
    tmp_path: Path, broken: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "core.rest")
    path = tmp_path / "keys"
    path.write_bytes(jwks(rsa_jwk()))
    path.chmod(0o644)
    file = KeyFile(path)
    path.write_bytes(broken) if broken is not None else path.unlink()
    for _ in range(3):
        assert ids(file) == ["rsa"]
    [line] = caplog.messages
    assert line.startswith(f"the token keys are not usable, so the previous ones stay in force: {path}: ")
    path.write_bytes(jwks(rsa_jwk(kid="mended")))
    assert ids(file) == ["mended"]


def test_one_that_is_broken_from_the_beginning_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenKeyError, match="cannot be read"):
        KeyFile(tmp_path / "none")
