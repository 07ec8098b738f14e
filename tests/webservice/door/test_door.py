"""Who stands at the door: which way counts, and what is told to those whom no way names."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from tests.webservice.door.identities import NOW, jwks, secret_jwk, token
from webservice.door.certificates import Certificate
from webservice.door.door import CERTIFICATE, PROXY, TOKEN, Asked, Door, Stranger
from webservice.door.key_file import KeyFile
from webservice.door.person import Person
from webservice.door.proxies import Unbelievable
from webservice.door.tokens import Terms

HERE = "127.0.0.1"
ALICE = Certificate(("alice",))
BEARER = (b"authorization", f"Bearer {token()}".encode())
FORWARDED = (b"x-forwarded-user", b"carol")
BY_PROXY = Door(proxies=(ip_network("10.0.0.0/8"),))
BY_CERTIFICATE = Door(certificates=True)


@pytest.fixture
def by_token(tmp_path: Path) -> Door:
    file = tmp_path / "keys"
    file.write_bytes(jwks(secret_jwk()))
    file.chmod(0o600)
    return Door(keys=KeyFile(file), clock=lambda: NOW)


def stranger(door: Door, asked: Asked) -> str:
    with pytest.raises(Stranger) as found:
        door.person(asked)
    return str(found.value)


def test_a_door_with_a_way_is_closed(by_token: Door) -> None:
    assert Door().is_open
    assert not any(door.is_open for door in (by_token, BY_CERTIFICATE, BY_PROXY))


@pytest.mark.parametrize("kind", [b"Bearer", b"bearer", b"BEARER", b"Bearer "])
def test_the_word_before_a_token_may_be_written_in_any_way(by_token: Door, kind: bytes) -> None:
    asked = Asked([(b"authorization", kind + b" " + token().encode())], HERE)
    assert by_token.person(asked) == (Person("alice", ("dev",)), TOKEN)


def test_two_tokens_are_none(by_token: Door) -> None:
    assert "The token does not count: it is no token" in stranger(by_token, Asked([BEARER, BEARER], HERE))


def test_what_a_token_must_say_is_held_against_it(by_token: Door) -> None:
    wanting = Door(keys=by_token.keys, terms=Terms(issuer="us"), clock=lambda: NOW)
    assert "another issuer" in stranger(wanting, Asked([BEARER], HERE))


def test_another_kind_of_authorization_says_nothing(by_token: Door) -> None:
    asked = Asked([(b"authorization", b"Basic YWxpY2U6cw==")], HERE)
    assert stranger(by_token, asked).startswith("It is not known who asks. Say so by a token")


def test_ways_that_are_not_open_do_not_count(by_token: Door) -> None:
    assert stranger(by_token, Asked([], HERE, ALICE))
    assert stranger(BY_CERTIFICATE, Asked([BEARER], HERE))
    assert stranger(BY_PROXY, Asked([BEARER], "10.0.0.1", ALICE))


def test_each_way_names_its_person() -> None:
    assert BY_CERTIFICATE.person(Asked([BEARER], HERE, ALICE)) == (Person("alice"), CERTIFICATE)
    assert BY_PROXY.person(Asked([FORWARDED], "10.0.0.1")) == (Person("carol"), PROXY)


@pytest.mark.parametrize("address", [HERE, "::1", "11.0.0.1", ""])
def test_only_a_proxy_that_is_named_may_name_others_even_on_this_machine(address: str) -> None:
    for door in (BY_PROXY, BY_CERTIFICATE):
        with pytest.raises(Unbelievable, match="is no proxy that may say for whom it asks"):
            door.person(Asked([FORWARDED], address, ALICE))


def test_a_stranger_is_told_the_ways_that_there_are() -> None:
    assert stranger(BY_CERTIFICATE, Asked([], HERE)).endswith("Say so by a client certificate")
    assert stranger(BY_PROXY, Asked([], HERE)).endswith("Say so by the proxy in front of this port, where you log in")
