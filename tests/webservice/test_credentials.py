"""Owners of client certificates, headers of proxies, and the kernel's table of connections."""

import sys
from ipaddress import ip_network

import pytest

from tests.webservice.socket_tables import HEAD, line
from webservice.credentials import (
    Identity,
    UntrustedHeaders,
    certificate_owner,
    claims_identity,
    is_among,
    proxied_identity,
    socket_end,
    socket_owners,
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
    return socket_owners(table, local=socket_end(*theirs), remote=socket_end(*ours))


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
        socket_end("testclient", 1)
