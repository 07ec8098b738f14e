"""The certificates of the admission controller: its own authorities, kept in a secret, and the server's certificate.

The API server trusts the webhooks through the authorities in their configuration, so no certificate manager is needed.
There are two, with different ends: one is replaced in time, while the certificate of the server is still by the other
one, so at no moment the API server meets an authority that it has not read yet. The names in the secret and the format
are those of YuniKorn's admission controller, which therefore can use the secret, too.

The current time is an argument (seconds since 1970), but keys are random.

Not here: when to look (`controller.py`), the configuration of the webhooks (`registrations.py`).
"""

import ipaddress
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY_S: Final = 86400.0

AUTHORITY_S: Final = 365 * DAY_S
"""Seconds that an authority is valid. The second one of a new secret gets half as much again."""

AUTHORITY_RENEWAL_S: Final = 120 * DAY_S
"""Seconds before the end of an authority when it is replaced."""

SERVER_S: Final = 90 * DAY_S
"""Seconds that the server's certificate is valid: less than the rest of an authority that is not replaced yet."""

SERVER_RENEWAL_S: Final = 30 * DAY_S
"""Seconds before the end of the server's certificate when it is replaced."""

_BACKDATED_S: Final = 3600.0
"""Seconds before its creation from which a certificate is valid, for clocks that are behind."""

_SLOTS: Final = ("1", "2")
_KEY_BITS: Final = 2048


class Authority(NamedTuple):
    """An authority, as in the secret."""

    slot: str
    certificate: bytes
    """In PEM."""
    key: bytes
    begins_at: float
    ends_at: float


class ServerCertificate(NamedTuple):
    """The certificate of the server with its key, in PEM, and the authority that signed it."""

    certificate: bytes
    key: bytes
    authority: Authority
    names: tuple[str, ...]
    ends_at: float

    def is_due(self, authorities: Sequence[Authority], names: Sequence[str], now: float) -> bool:
        """Whether it has to be replaced, because it ends soon, or the authority or a name has changed."""
        return self.ends_at - now < SERVER_RENEWAL_S or self.authority not in authorities or self.names != tuple(names)


def read_authorities(secret: Mapping[str, bytes], now: float) -> list[Authority]:
    """Return the valid authorities of a secret, without those that cannot be read or are not valid now."""
    return [one for slot in _SLOTS if (one := _read_authority(secret, slot)) and one.begins_at <= now < one.ends_at]


def renew_authorities(secret: Mapping[str, bytes], now: float) -> dict[str, bytes]:
    """Return the parts of the secret to replace: an authority that ends soon, and all that are missing."""
    valid = read_authorities(secret, now)
    missing = set(_SLOTS) - {one.slot for one in valid}
    due = [one for one in valid if one.ends_at - now < AUTHORITY_RENEWAL_S]
    if due and not missing:
        missing = {min(due, key=lambda one: one.ends_at).slot}  # the other one continues to sign
    found: dict[str, bytes] = {}
    for slot in sorted(missing):
        is_staggered = len(missing) == len(_SLOTS) and slot == _SLOTS[-1]
        authority = _create_authority(slot, AUTHORITY_S * (1.5 if is_staggered else 1.0), now)
        found |= {_certificate_name(slot): authority.certificate, _key_name(slot): authority.key}
    return found


def join_certificates(authorities: Sequence[Authority]) -> bytes:
    """Return what the API server has to trust."""
    return b"".join(one.certificate for one in authorities)


def create_server_certificate(authorities: Sequence[Authority], names: Sequence[str], now: float) -> ServerCertificate:
    """Return a new certificate for a server with these DNS names and IP addresses.

    The authority that is valid for longest so far signs it: the API server has certainly read that one. It must not
    end before the certificate, unless there is none but that.
    """
    lasting = [one for one in authorities if one.ends_at - now >= SERVER_S] or list(authorities)
    signer = min(lasting, key=lambda one: (one.begins_at, one.slot))
    key, ends_at = _create_key(), min(now + SERVER_S, signer.ends_at)
    issuer = x509.load_pem_x509_certificate(signer.certificate)
    builder = (
        _begin_certificate(_common_name("yunishard admission controller"), key.public_key(), now, ends_at)
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(list(map(_parse_name, names))), critical=False)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            ),
            critical=False,
        )
    )
    certificate = builder.sign(_load_key(signer.key), hashes.SHA256())
    return ServerCertificate(_encode(certificate), _encode_key(key), signer, tuple(names), ends_at)


def _certificate_name(slot: str) -> str:
    return f"cacert{slot}.pem"


def _key_name(slot: str) -> str:
    return f"cakey{slot}.pem"


def _read_authority(secret: Mapping[str, bytes], slot: str) -> Authority | None:
    """Return the authority in a slot; None if there is none, or its parts cannot be read or do not fit together."""
    pem, key = secret.get(_certificate_name(slot), b""), secret.get(_key_name(slot), b"")
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        if _load_key(key).public_key() != certificate.public_key():
            return None
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return None
    begins_at, ends_at = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    return Authority(slot, pem, key, begins_at, ends_at)


def _create_authority(slot: str, seconds: float, now: float) -> Authority:
    key, name = _create_key(), _common_name(f"yunishard admission controller authority {slot}")
    public = key.public_key()
    certificate = (
        _begin_certificate(name, public, now, now + seconds)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(slot, _encode(certificate), _encode_key(key), now, now + seconds)


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _begin_certificate(
    subject: x509.Name, public: rsa.RSAPublicKey, begins_at: float, ends_at: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(begins_at - _BACKDATED_S, UTC))
        .not_valid_after(datetime.fromtimestamp(ends_at, UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_encipherment=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _parse_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _create_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)


def _load_key(pem: bytes) -> rsa.RSAPrivateKey:
    """Raises ValueError or TypeError."""
    # Testing the primes takes 0.1 s each time, and a damaged key does not fit to its certificate.
    key = serialization.load_pem_private_key(pem, password=None, unsafe_skip_rsa_key_validation=True)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise TypeError("expected a key of RSA")
    return key


def _encode(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _encode_key(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
