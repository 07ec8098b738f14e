"""The command line says where to listen."""

import argparse
from pathlib import Path

import pytest

from common.acl import Acl
from common.token_keys import write_secret
from tests.webservice.fakes import people
from webservice.__main__ import access_control_of, acl, host_and_port, options, startup_of
from webservice.authz import AccessControl
from webservice.calls import HistoryFile, Startup
from webservice.views import SettingView


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:9080", ("127.0.0.1", 9080)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:80", ("::1", 80)),
        (":80", ("", 80)),
    ],
)
def test_an_address_has_two_parts(text: str, parts: tuple[str, int]) -> None:
    assert host_and_port(text) == parts


@pytest.mark.parametrize("text", ["", "9080", "host", "host:", "host:x", "host:65536", "host:-1", "::1:80", "host:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"HOST:PORT|in brackets"):
        host_and_port(text)


def test_administrators_are_a_list_as_in_a_queue() -> None:
    assert acl("alice,bob ops") == Acl(users=frozenset({"alice", "bob"}), groups=frozenset({"ops"}))
    assert acl("") == Acl()


def test_a_list_of_three_parts_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="multiple spaces"):
        acl("a b c")


def startup(*words: str) -> Startup:
    return startup_of(options().parse_args(["--broker", "ipc://b", "--rest", ":0", *words]))


def test_without_more_nothing_is_kept_and_nothing_else_is_served() -> None:
    found = startup()
    assert (found.settings, found.history, found.web_root, found.debug, found.cors) == ((), None, None, False, ())


def test_the_routes_know_what_they_need_of_the_command_line(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text('[{"name":"rest","value":"a:1","source":"--rest"}]')
    history = ("--history", "/h", "--history-max", "1000", "--history-age", "60")
    web = ("--web-root", "/ui", "--debug", "--cors=https://a,http://b", "--default-rm=a")
    found = startup("--settings", str(settings), *history, *web)
    assert found.settings == (SettingView("rest", "a:1", "--rest"),)
    assert found.history == HistoryFile(Path("/h"), 1000, 60.0)
    assert (found.web_root, found.debug, found.cors) == (Path("/ui"), True, ("https://a", "http://b"))
    assert found.default_rm == "a"


def guard(*words: str) -> AccessControl:
    return access_control_of(options().parse_args(["--broker", "ipc://b", "--rest", ":0", *words]), people())


def test_without_more_the_door_is_open_and_nothing_is_written_down() -> None:
    found = guard()
    assert (found.authorizer.is_off, found.cors.named_only, found.audit) == (True, False, None)


def test_each_way_closes_the_door(tmp_path: Path) -> None:
    write_secret(tmp_path / "keys")
    for words in (
        ("--auth=token", f"--auth-keys={tmp_path / 'keys'}"),
        ("--auth=certificate",),
        ("--auth=proxy", "--auth-proxy=::1,10.0.0.0/8"),
    ):
        found = guard(*words, "--audit", str(tmp_path / "audit.log"))
        assert (found.authorizer.is_off, found.cors.named_only) == (False, True)
        assert found.cors.credentials is ("token" not in words[0])
        assert found.audit is not None


def test_keys_of_tokens_that_cannot_be_used_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"^{tmp_path / 'none'}: cannot be read: no such file or directory$"):
        guard("--auth=token", f"--auth-keys={tmp_path / 'none'}")
