"""Whom a client's certificate stands for."""

import pytest

from webservice.door.certificates import Certificate, certificate_of, owner_of
from webservice.door.person import Person


def test_what_ssl_says_of_a_certificate_is_understood() -> None:
    peer = {
        "subject": ((("countryName", "DE"),), (("organizationalUnitName", "ops"), ("commonName", "alice"))),
        "issuer": ((("commonName", "our CA"),),),
        "version": 3,
        "subjectAltName": (
            ("DNS", "alice.example"),
            ("URI", "yunishard:user:alice"),
            ("DirName", ((("commonName", "mallory"),),)),
        ),
    }
    assert certificate_of(peer) == Certificate(("alice",), ("ops",), ("yunishard:user:alice",))


@pytest.mark.parametrize("peer", [None, {}])
def test_without_one_there_is_none(peer: object) -> None:
    assert certificate_of(peer) is None


def test_the_owner_is_the_common_name_and_the_groups_are_the_units() -> None:
    assert owner_of(Certificate(("alice",), ("ops", "dev"))) == Person("alice", ("ops", "dev"))


def test_a_uri_of_ours_goes_before_the_common_name() -> None:
    uris = ("https://elsewhere.example", "yunishard:user:bob")
    assert owner_of(Certificate(("alice",), ("ops",), uris)) == Person("bob", ("ops",))
    assert owner_of(Certificate((), (), uris)) == Person("bob")


@pytest.mark.parametrize(
    "certificate",
    [
        Certificate(),
        Certificate(("alice", "bob")),
        Certificate(("",)),
        Certificate(("a\nb",)),
        Certificate(("alice",), ("o\x00ps",)),
        Certificate(("alice",), (), ("yunishard:user:",)),
        Certificate(("alice",), (), ("yunishard:user:a", "yunishard:user:b")),
    ],
)
def test_one_that_names_nobody_for_sure_stands_for_nobody(certificate: Certificate) -> None:
    assert owner_of(certificate) is None
