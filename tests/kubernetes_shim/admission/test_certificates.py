"""The certificates of the admission controller, over years."""

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from yunishard.kubernetes_shim.admission import certificates
from yunishard.kubernetes_shim.admission.certificates import (
    AUTHORITY_RENEWAL_S,
    AUTHORITY_S,
    DAY_S,
    SERVER_RENEWAL_S,
    SERVER_S,
    ServerCertificate,
    create_server_certificate,
    join_certificates,
    read_authorities,
    renew_authorities,
)

NOW = 1_900_000_000.0
NAMES = ("hooks.yunikorn.svc", "127.0.0.1")


@pytest.fixture(scope="module")
def secret() -> dict[str, bytes]:
    return renew_authorities({}, NOW)


def load(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def is_signed_by(certificate: ServerCertificate, bundle: bytes) -> bool:
    """Whether one of these authorities has signed it."""
    leaf = load(certificate.certificate)
    issuers = [one for one in x509.load_pem_x509_certificates(bundle) if one.subject == leaf.issuer]
    if not issuers:
        return False
    leaf.verify_directly_issued_by(issuers[0])
    return True


def test_a_new_secret_gets_two_authorities_in_the_format_of_yunikorn(secret: dict[str, bytes]) -> None:
    assert sorted(secret) == ["cacert1.pem", "cacert2.pem", "cakey1.pem", "cakey2.pem"]
    assert secret["cakey1.pem"].startswith(b"-----BEGIN RSA PRIVATE KEY-----")
    first, second = read_authorities(secret, NOW)
    assert (first.ends_at - NOW, second.ends_at - NOW) == (AUTHORITY_S, 1.5 * AUTHORITY_S)
    assert renew_authorities(secret, NOW) == {}


def test_the_strict_rules_for_certificates_hold(secret: dict[str, bytes], tmp_path: Path) -> None:
    found = create_server_certificate(read_authorities(secret, NOW), NAMES, NOW)
    store = Store(x509.load_pem_x509_certificates(join_certificates(read_authorities(secret, NOW))))
    leaf = load(found.certificate)
    verifier = PolicyBuilder().store(store).time(leaf.not_valid_before_utc)
    verifier.build_server_verifier(x509.DNSName(NAMES[0])).verify(leaf, [])
    (tmp_path / "all").write_bytes(found.certificate + found.key)
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(tmp_path / "all")
    assert found.ends_at - NOW == SERVER_S


def test_only_one_of_two_authorities_that_end_is_replaced_at_once(secret: dict[str, bytes]) -> None:
    late = NOW + 1.5 * AUTHORITY_S - AUTHORITY_RENEWAL_S + 1
    assert sorted(renew_authorities(secret, NOW + AUTHORITY_S - AUTHORITY_RENEWAL_S)) == []
    assert sorted(renew_authorities(secret, NOW + AUTHORITY_S - AUTHORITY_RENEWAL_S + 1)) == [
        "cacert1.pem",
        "cakey1.pem",
    ]
    assert sorted(renew_authorities(secret, late)) == ["cacert1.pem", "cakey1.pem"]


@pytest.mark.parametrize("broken", [b"", b"text"])
@pytest.mark.parametrize("part", ["cacert2.pem", "cakey2.pem"])
def test_an_authority_that_cannot_be_read_is_replaced(secret: dict[str, bytes], part: str, broken: bytes) -> None:
    damaged = {**secret, part: broken}
    assert [one.slot for one in read_authorities(damaged, NOW)] == ["1"]
    assert sorted(renew_authorities(damaged, NOW)) == ["cacert2.pem", "cakey2.pem"]


def test_a_key_of_another_authority_does_not_count(secret: dict[str, bytes]) -> None:
    assert not read_authorities({"cacert1.pem": secret["cacert1.pem"], "cakey1.pem": secret["cakey2.pem"]}, NOW)


def test_the_certificate_of_the_server_is_due_before_its_end_and_when_something_changed(
    secret: dict[str, bytes],
) -> None:
    authorities = read_authorities(secret, NOW)
    found = create_server_certificate(authorities, NAMES, NOW)
    assert not found.is_due(authorities, NAMES, NOW + SERVER_S - SERVER_RENEWAL_S)
    assert found.is_due(authorities, NAMES, NOW + SERVER_S - SERVER_RENEWAL_S + 1)
    assert found.is_due(authorities, NAMES[:1], NOW)
    assert found.is_due(authorities[1:], NAMES, NOW)


def test_over_years_the_api_server_knows_the_authority_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_KEY_BITS", 1024)
    secret: dict[str, bytes] = renew_authorities({}, NOW)
    known = join_certificates(read_authorities(secret, NOW))
    server = create_server_certificate(read_authorities(secret, NOW), NAMES, NOW)
    replaced = 0
    for day in range(0, 3 * 365, 15):
        now = NOW + day * DAY_S
        changes = renew_authorities(secret, now)
        assert len(changes) in (0, 2)
        secret |= changes
        replaced += bool(changes)
        authorities = read_authorities(secret, now)
        if server.is_due(authorities, NAMES, now):
            server = create_server_certificate(authorities, NAMES, now)
            assert is_signed_by(server, known)  # also of an API server that has the previous configuration
        assert is_signed_by(server, join_certificates(authorities))
        assert server.ends_at > now + DAY_S
        known = join_certificates(authorities)
    assert replaced >= 4
