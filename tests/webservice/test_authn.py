"""Who stands at the door: which way counts, and what is told to those whom no way names."""

import asyncio
import grp
import os
import pwd
import socket
import sys
from ipaddress import ip_network
from pathlib import Path

import pytest

from common.acl import parse_acl
from common.query_messages import Actor
from tests.webservice.fakes import ADMIN, ALICE, CLIENT, SERVER, people
from tests.webservice.identities import NOW, jwks, secret_jwk, token
from tests.webservice.socket_tables import line
from webservice.auth import (
    CERTIFICATE,
    PROXY,
    TOKEN,
    Authenticator,
    KeyFile,
    LoopbackUsers,
    Unauthenticated,
    look_up_account,
)
from webservice.credentials import Certificate, Identity, TokenTerms, UntrustedHeaders
from webservice.views import RequestError

HERE = "127.0.0.1"
ALICE_CERTIFICATE = Certificate(("alice",))
BEARER = (b"authorization", f"Bearer {token()}".encode())
FORWARDED = (b"x-forwarded-user", b"carol")
BY_PROXY = Authenticator(proxies=(ip_network("10.0.0.0/8"),))
BY_CERTIFICATE = Authenticator(certificates=True)


@pytest.fixture
def by_token(tmp_path: Path) -> Authenticator:
    file = tmp_path / "keys"
    file.write_bytes(jwks(secret_jwk()))
    file.chmod(0o600)
    return Authenticator(keys=KeyFile(file), clock=lambda: NOW)


def stranger(door: Authenticator, *asked: object) -> str:
    with pytest.raises(Unauthenticated) as found:
        door.authenticate(*asked)
    return str(found.value)


def test_a_door_with_a_way_is_closed(by_token: Authenticator) -> None:
    assert Authenticator().is_off
    assert not any(door.is_off for door in (by_token, BY_CERTIFICATE, BY_PROXY))


@pytest.mark.parametrize("kind", [b"Bearer", b"bearer", b"BEARER", b"Bearer "])
def test_the_word_before_a_token_may_be_written_in_any_way(by_token: Authenticator, kind: bytes) -> None:
    headers = [(b"authorization", kind + b" " + token().encode())]
    assert by_token.authenticate(headers, HERE) == (Identity("alice", ("dev",)), TOKEN)


def test_two_tokens_are_none(by_token: Authenticator) -> None:
    assert "The token is invalid: it is no token" in stranger(by_token, [BEARER, BEARER], HERE)


def test_what_a_token_must_say_is_held_against_it(by_token: Authenticator) -> None:
    wanting = Authenticator(keys=by_token.keys, terms=TokenTerms(issuer="us"), clock=lambda: NOW)
    assert "another issuer" in stranger(wanting, [BEARER], HERE)


def test_another_kind_of_authorization_says_nothing(by_token: Authenticator) -> None:
    headers = [(b"authorization", b"Basic YWxpY2U6cw==")]
    assert stranger(by_token, headers, HERE).startswith("The caller is not authenticated. Authenticate by a token")


def test_ways_that_are_not_open_do_not_count(by_token: Authenticator) -> None:
    assert stranger(by_token, [], HERE, ALICE_CERTIFICATE)
    assert stranger(BY_CERTIFICATE, [BEARER], HERE)
    assert stranger(BY_PROXY, [BEARER], "10.0.0.1", ALICE_CERTIFICATE)


def test_each_way_names_its_person() -> None:
    assert BY_CERTIFICATE.authenticate([BEARER], HERE, ALICE_CERTIFICATE) == (
        Identity("alice"),
        CERTIFICATE,
    )
    assert BY_PROXY.authenticate([FORWARDED], "10.0.0.1") == (Identity("carol"), PROXY)


@pytest.mark.parametrize("address", [HERE, "::1", "11.0.0.1", ""])
def test_only_a_proxy_that_is_named_may_name_others_even_on_this_machine(address: str) -> None:
    for door in (BY_PROXY, BY_CERTIFICATE):
        with pytest.raises(UntrustedHeaders, match="is no proxy that may send X-Forwarded-User"):
            door.authenticate([FORWARDED], address, ALICE_CERTIFICATE)


def test_a_stranger_is_told_the_ways_that_there_are() -> None:
    assert stranger(BY_CERTIFICATE, [], HERE).endswith("Authenticate by a client certificate")
    assert stranger(BY_PROXY, [], HERE).endswith("Authenticate by the proxy in front of this port, where you log in")


def ask(who: LoopbackUsers, client: tuple[str, int] = CLIENT, server: tuple[str, int] = SERVER) -> Actor:
    try:
        return asyncio.run(who.find_owner(client, server))
    finally:
        who.close()


def test_a_local_user_is_known_with_all_groups() -> None:
    assert ask(people()) == ALICE


def test_who_runs_the_process_is_a_scheduler_administrator() -> None:
    assert ask(people(0)) == ADMIN


@pytest.mark.parametrize("text", ["alice", "bob,alice", "bob dev", "*", " dev"])
def test_so_is_everybody_on_the_list(text: str) -> None:
    assert ask(people(admins=parse_acl(text))).scheduler_admin


@pytest.mark.parametrize("text", ["", "bob", "bob ops", "dev"])
def test_others_are_not(text: str) -> None:
    assert not ask(people(admins=parse_acl(text))).scheduler_admin


@pytest.mark.parametrize("address", ["10.0.0.7", "::ffff:10.0.0.7", "fe80::1%eth0", "2001:db8::1", "testclient"])
def test_from_elsewhere_asks_nobody(address: str) -> None:
    with pytest.raises(RequestError, match="changes are accepted only from this machine"):
        ask(people(), (address, 40000))


def test_a_connection_that_is_not_there_is_nobody_s() -> None:
    with pytest.raises(RequestError, match=r"connection from 127\.0\.0\.1 port 40001 was not found"):
        ask(people(), ("127.0.0.1", 40001))


def test_a_connection_of_two_is_nobody_s() -> None:
    twice = [line(CLIENT, SERVER, uid=0), line(CLIENT, SERVER, uid=1000)]
    with pytest.raises(RequestError, match="was not found"):
        ask(people(tables=lambda: twice))


def test_without_tables_nobody_is_known() -> None:
    with pytest.raises(RequestError, match="was not found, which needs Linux"):
        ask(people(tables=list))


def test_a_table_that_cannot_be_read_is_told() -> None:
    def closed() -> list[str]:
        raise PermissionError(13, "Permission denied", "/proc/net/tcp")

    with pytest.raises(RequestError, match=r"cannot be looked up: .*Permission denied"):
        ask(people(tables=closed))


def test_an_account_that_cannot_be_read_is_told() -> None:
    def broken(uid: int) -> Identity:
        raise OSError(f"the directory is down for {uid}")

    who = LoopbackUsers(own_uid=0, tables=lambda: [line(CLIENT, SERVER, uid=1000)], account=broken)
    with pytest.raises(RequestError, match=r"of user 1000 cannot be looked up: the directory is down .*; try again"):
        ask(who)


def test_an_account_has_its_primary_group_first() -> None:
    entry = pwd.getpwuid(os.getuid())
    found = look_up_account(os.getuid())
    assert found.user == entry.pw_name
    assert found.groups[0] == grp.getgrgid(entry.pw_gid).gr_name


def test_a_user_without_an_account_is_a_number_in_no_group() -> None:
    found = look_up_account(2**31 - 7)
    assert (found.user, found.groups) == (str(2**31 - 7), ())


@pytest.mark.skipif(not Path("/proc/net/tcp").exists() or sys.platform != "linux", reason="Linux only")
def test_a_real_connection_is_the_user_s_who_opened_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = listener.getsockname()
        with socket.create_connection(server) as client:
            accepted, _ = listener.accept()
            with accepted:
                actor = ask(LoopbackUsers(), client.getsockname(), server)
    assert actor.user == look_up_account(os.getuid()).user
    assert actor.scheduler_admin


@pytest.mark.skipif(not Path("/proc/net/tcp").exists() or sys.platform != "linux", reason="Linux only")
def test_a_real_connection_that_was_closed_is_nobody_s() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = listener.getsockname()
        client = socket.create_connection(server)
        name = client.getsockname()
        accepted, _ = listener.accept()
        with accepted:
            client.close()
            with pytest.raises(RequestError):
                ask(LoopbackUsers(), name, server)
