"""Authentication: which method counts, the owners of loopback connections, and the log of refusals."""

import asyncio
import grp
import logging
import os
import pwd
import socket
import sys
from ipaddress import ip_network
from pathlib import Path

import pytest

from tests.webservice.fakes import ADMIN, ALICE, CLIENT, SERVER, FakeLink, loopback_users, request
from tests.webservice.identities import NOW, jwks, secret_jwk, token
from tests.webservice.socket_tables import line
from yunishard.common.config.acl import parse_acl
from yunishard.common.messages.query_messages import Actor
from yunishard.common.settings import CERTIFICATE, PROXY, TOKEN
from yunishard.webservice.authn_authz import LOGGED_A_MINUTE_MAX, AccessControl, KeyFile, LoopbackUsers, look_up_account
from yunishard.webservice.credentials import Identity, InvalidToken
from yunishard.webservice.views import RequestError

HERE = "127.0.0.1"
ALICE_CERTIFICATE = Identity("alice")
BEARER = {"Authorization": f"Bearer {token()}"}


def by_proxy() -> AccessControl:
    return AccessControl(loopback_users(), proxies=(ip_network("10.0.0.0/8"),))


def by_certificate() -> AccessControl:
    return AccessControl(loopback_users(), certificates=True)


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    file = tmp_path / "keys"
    file.write_bytes(jwks(secret_jwk()))
    file.chmod(0o600)
    return KeyFile(file)


@pytest.fixture
def by_token(keys: KeyFile) -> AccessControl:
    return AccessControl(loopback_users(), keys=keys, clock=lambda: NOW)


def refusal(
    control: AccessControl,
    headers: dict[str, str],
    address: str = HERE,
    certificate: Identity | None = None,
    *,
    status: int = 401,
) -> str:
    answer = request(
        FakeLink(), "/ws/v1/clusters", headers=headers, client=(address, 40000), shown=certificate, control=control
    )
    assert answer.status_code == status
    return str(answer.json()["message"])


def test_with_a_method_callers_must_authenticate(by_token: AccessControl) -> None:
    assert AccessControl(loopback_users()).is_off
    assert not any(control.is_off for control in (by_token, by_certificate(), by_proxy()))


@pytest.mark.parametrize("kind", [b"Bearer", b"bearer", b"BEARER", b"Bearer "])
def test_the_word_before_a_token_may_be_written_in_any_way(by_token: AccessControl, kind: bytes) -> None:
    headers = [(b"authorization", kind + b" " + token().encode())]
    assert by_token.authenticate(headers, HERE) == (Identity("alice", ("dev",)), TOKEN)


def test_two_tokens_are_none(by_token: AccessControl) -> None:
    bearer = (b"authorization", f"Bearer {token()}".encode())
    with pytest.raises(InvalidToken, match="it is no token"):
        by_token.authenticate([bearer, bearer], HERE)


def test_what_a_token_must_say_is_held_against_it(keys: KeyFile) -> None:
    wanting = AccessControl(loopback_users(), keys=keys, issuer="us", clock=lambda: NOW)
    assert refusal(wanting, BEARER).startswith("The token is invalid: the token is of another issuer (iss). Auth")


def test_another_authorization_scheme_does_not_count(by_token: AccessControl) -> None:
    text = "The caller is not authenticated. Authenticate by a token"
    assert refusal(by_token, {"Authorization": "Basic YWxpY2U6cw=="}).startswith(text)


def test_ways_that_are_not_open_do_not_count(by_token: AccessControl) -> None:
    assert refusal(by_token, {}, HERE, ALICE_CERTIFICATE)
    assert refusal(by_certificate(), BEARER)
    assert refusal(by_proxy(), BEARER, "10.0.0.1", ALICE_CERTIFICATE)


def test_each_way_names_its_person() -> None:
    assert by_certificate().authenticate([], HERE, ALICE_CERTIFICATE) == (Identity("alice"), CERTIFICATE)
    assert by_proxy().authenticate([(b"x-forwarded-user", b"carol")], "10.0.0.1") == (Identity("carol"), PROXY)


@pytest.mark.parametrize("address", [HERE, "::1", "11.0.0.1", ""])
def test_only_a_proxy_that_is_named_may_name_others_even_on_this_machine(address: str) -> None:
    for control in (by_proxy(), by_certificate()):
        text = refusal(control, {"X-Forwarded-User": "carol"}, address, ALICE_CERTIFICATE, status=403)
        assert text.startswith(f"Refused: {address} is no proxy that may send X-Forwarded-User")


def test_an_unauthenticated_caller_gets_the_methods_that_are_on(keys: KeyFile) -> None:
    proxy = "the proxy in front of this port, where you log in"
    assert refusal(by_certificate(), {}).endswith("Authenticate by a client certificate")
    assert refusal(by_proxy(), {}).endswith(f"Authenticate by {proxy}")
    both = AccessControl(loopback_users(), certificates=True, proxies=(ip_network("10.0.0.0/8"),))
    assert refusal(both, {}).endswith(f"Authenticate by a client certificate, or {proxy}")


def ask(who: LoopbackUsers, client: tuple[str, int] = CLIENT, server: tuple[str, int] = SERVER) -> Actor:
    try:
        return asyncio.run(who.find_owner(client, server))
    finally:
        who.close()


def test_a_local_user_is_known_with_all_groups() -> None:
    assert ask(loopback_users()) == ALICE


def test_who_runs_the_process_is_a_scheduler_administrator() -> None:
    assert ask(loopback_users(0)) == ADMIN


@pytest.mark.parametrize("text", ["alice", "bob,alice", "bob dev", "*", " dev"])
def test_listed_users_and_groups_are_scheduler_administrators(text: str) -> None:
    assert ask(loopback_users(admins=parse_acl(text))).scheduler_admin


@pytest.mark.parametrize("text", ["", "bob", "bob ops", "dev"])
def test_others_are_not(text: str) -> None:
    assert not ask(loopback_users(admins=parse_acl(text))).scheduler_admin


@pytest.mark.parametrize("address", ["10.0.0.7", "::ffff:10.0.0.7", "fe80::1%eth0", "2001:db8::1", "testclient"])
def test_a_connection_from_another_machine_has_no_owner(address: str) -> None:
    with pytest.raises(RequestError, match="changes are accepted only from this machine"):
        ask(loopback_users(), (address, 40000))


def test_an_unlisted_connection_has_no_owner() -> None:
    with pytest.raises(RequestError, match=r"connection from 127\.0\.0\.1 port 40001 was not found"):
        ask(loopback_users(), ("127.0.0.1", 40001))


def test_a_connection_with_two_owners_has_none() -> None:
    twice = [line(CLIENT, SERVER, uid=0), line(CLIENT, SERVER, uid=1000)]
    with pytest.raises(RequestError, match="was not found"):
        ask(loopback_users(tables=lambda: twice))


def test_without_tables_connections_have_no_owner() -> None:
    with pytest.raises(RequestError, match="was not found, which needs Linux"):
        ask(loopback_users(tables=list))


def test_an_unreadable_table_is_an_error() -> None:
    def closed() -> list[str]:
        raise PermissionError(13, "Permission denied", "/proc/net/tcp")

    with pytest.raises(RequestError, match=r"cannot be looked up: .*Permission denied"):
        ask(loopback_users(tables=closed))


def test_a_connection_that_one_reading_of_the_table_left_out_is_found_by_the_next() -> None:
    readings = [[""], [line(CLIENT, SERVER, uid=1000)]]
    found = ask(loopback_users(tables=lambda: readings.pop(0)))
    assert found.user == ask(loopback_users(tables=lambda: [line(CLIENT, SERVER, uid=1000)])).user
    assert not readings


def test_an_account_that_cannot_be_looked_up_is_an_error() -> None:
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
def test_a_real_connection_that_was_closed_has_no_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = listener.getsockname()
        client = socket.create_connection(server)
        name = client.getsockname()
        accepted, _ = listener.accept()
        with accepted:
            client.close()
            with pytest.raises(RequestError):
                ask(LoopbackUsers(), name, server)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_refusals_are_logged_without_secrets_and_up_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "core.rest")
    clock = Clock()
    control = AccessControl(loopback_users(), certificates=True, clock=clock)
    secret = token()

    def knock() -> None:
        headers = {"Authorization": f"Bearer {secret}", "X-Forwarded-User": "root"}
        assert request(FakeLink(), "/ws/v1/clusters?a=%0A", headers=headers, control=control).status_code == 403

    for _ in range(LOGGED_A_MINUTE_MAX + 3):
        knock()
    assert len(caplog.messages) == LOGGED_A_MINUTE_MAX
    assert caplog.messages[0].startswith("refused: GET /ws/v1/clusters from 127.0.0.1: 127.0.0.1 is no proxy ")
    clock.now += 60
    knock()
    assert caplog.messages[LOGGED_A_MINUTE_MAX].endswith(" (and 3 more)")
    assert len(caplog.messages) == LOGGED_A_MINUTE_MAX + 1
    assert not any(part in "".join(caplog.messages) for part in secret.split("."))


def test_a_refused_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "core.rest")
    control = AccessControl(loopback_users(), certificates=True)
    path = "/ws/v1/partition/default/schedule"
    assert request(FakeLink(), path, "POST", control=control).status_code == 401
    assert caplog.messages == [f"refused: POST {path} from 127.0.0.1: The caller is not authenticated"]
