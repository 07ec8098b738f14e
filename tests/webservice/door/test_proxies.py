"""Which proxies are believed, and whom they may name."""

from ipaddress import ip_network

import pytest

from webservice.door.person import Person
from webservice.door.proxies import Unbelievable, is_among, names_somebody, person_behind

NETWORKS = (ip_network("10.1.0.0/16"), ip_network("127.0.0.1"), ip_network("fd00::/8"))


@pytest.mark.parametrize("address", ["10.1.2.3", "127.0.0.1", "fd00::7", "::ffff:10.1.2.3", "fd00::1%eth0"])
def test_an_address_in_one_of_the_networks_is_a_proxy(address: str) -> None:
    assert is_among(NETWORKS, address)


@pytest.mark.parametrize("address", ["10.2.0.1", "127.0.0.2", "::1", "::ffff:10.2.0.1", "", "localhost", "10.1.2.3.4"])
def test_another_is_none(address: str) -> None:
    assert not is_among(NETWORKS, address)


def test_a_proxy_names_a_user_and_their_groups() -> None:
    assert person_behind([(b"x-forwarded-user", b" alice "), (b"x-forwarded-groups", b"ops, dev,,")]) == Person(
        "alice", ("ops", "dev")
    )
    assert person_behind([(b"x-forwarded-user", "älice".encode())]) == Person("älice")


@pytest.mark.parametrize("headers", [[], [(b"x-forwarded-user", b"")], [(b"x-forwarded-groups", b"ops")]])
def test_without_a_user_it_names_nobody(headers: list[tuple[bytes, bytes]]) -> None:
    assert person_behind(headers) is None


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
def test_what_may_have_come_from_somebody_else_is_not_believed(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Unbelievable):
        person_behind(headers)


def test_whether_somebody_is_named_is_seen_by_either_header() -> None:
    assert names_somebody([(b"x-forwarded-user", b"")])
    assert names_somebody([(b"x-forwarded-groups", b"ops")])
    assert not names_somebody([(b"x-forwarded-for", b"10.0.0.1")])
