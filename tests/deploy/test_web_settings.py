"""What only the web service is told: each value, and what belongs together."""

from pathlib import Path

import pytest

from common.settings import Settings, SettingsError
from deploy.settings import resolve_settings

HOME = {"XDG_STATE_HOME": "/xdg"}
TLS = {"rest-tls-cert": "c", "rest-tls-key": "k", "rest-tls-client-ca": "ca"}


def web(**flags: str) -> Settings:
    return resolve_settings({name.replace("_", "-"): text for name, text in flags.items()}, HOME)


def refusal(**flags: str) -> str:
    with pytest.raises(SettingsError) as refused:
        web(**flags)
    return str(refused.value)


def test_without_anything_nobody_says_who_they_are_and_the_history_is_kept() -> None:
    settings = web()
    assert (settings.auth, settings.auth_keys, settings.auth_proxy, settings.cors) == ((), None, (), ())
    assert (settings.history, settings.history_max_bytes, settings.history_age_s) == (True, 1024**3, 30 * 86400)
    assert (settings.default_rm, settings.web_root, settings.debug) == ("", None, False)


def test_every_setting_can_be_given() -> None:
    settings = web(
        auth="proxy, certificate,token",
        auth_keys="/keys",
        auth_issuer="us",
        auth_audience="yunishard",
        auth_proxy="127.0.0.1, 10.0.0.0/8,::1",
        cors="https://UI.example, http://localhost:8080,https://[::1]",
        rest_hosts="Core.example., yunishard",
        history="no",
        history_max="64MiB",
        history_age="48h",
        default_rm="rm-1",
        web_root="/ui",
        debug="yes",
        **TLS,
    )
    expected = {
        "auth": ("token", "certificate", "proxy"),
        "auth_keys": Path("/keys"),
        "auth_issuer": "us",
        "auth_audience": "yunishard",
        "auth_proxy": ("127.0.0.1", "10.0.0.0/8", "::1"),
        "cors": ("https://ui.example", "http://localhost:8080", "https://[::1]"),
        "rest_hosts": ("core.example", "yunishard"),
        "history": False,
        "history_max_bytes": 64 << 20,
        "history_age_s": 48 * 3600,
        "default_rm": "rm-1",
        "web_root": Path("/ui"),
        "debug": True,
    }
    assert {name: getattr(settings, name) for name in expected} == expected


def test_without_auth_every_page_may_be_allowed() -> None:
    assert web(cors="*").cors == ("*",)


def test_every_name_may_be_one_of_the_rest_port() -> None:
    assert web(rest_hosts="*").rest_hosts == ("*",)
    assert web().rest_hosts == ()


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"auth": "password"}, "--auth: expected off, or some of token, certificate, proxy, got 'password'"),
        ({"auth": "off,token"}, "--auth: expected off, or some of token, certificate, proxy, got 'off,token'"),
        ({"auth": "token"}, "--auth: token needs --auth-keys too"),
        ({"auth": "certificate"}, "--auth: certificate needs --rest-tls-client-ca too"),
        ({"auth": "proxy"}, "--auth: proxy needs --auth-proxy too"),
        ({"auth_keys": "k"}, "--auth-keys: needs --auth token too"),
        ({"auth_issuer": "us"}, "--auth-issuer: needs --auth token too"),
        ({"auth_audience": "us"}, "--auth-audience: needs --auth token too"),
        ({"auth_proxy": "::1", "auth": "token", "auth_keys": "k"}, "--auth-proxy: needs --auth proxy too"),
        (TLS, "--rest-tls-client-ca: needs --auth certificate too"),
        (
            {"auth": "proxy", "auth_proxy": "localhost"},
            "--auth-proxy: expected addresses or networks, as in 127.0.0.1,10.1.0.0/16, got 'localhost'",
        ),
        (
            {"auth": "proxy", "auth_proxy": "10.0.0.1/8"},
            "--auth-proxy: expected addresses or networks, as in 127.0.0.1,10.1.0.0/16, got '10.0.0.1/8'",
        ),
        (
            {"cors": "ui.example"},
            "--cors: expected origins such as https://ui.example:8443, or *, got 'ui.example'",
        ),
        ({"cors": "https://a,*"}, "--cors: expected origins such as https://ui.example:8443, or *, got 'https://a,*'"),
        (
            {"cors": "https://a/"},
            "--cors: expected origins such as https://ui.example:8443, or *, got 'https://a/'",
        ),
        (
            {"cors": "*", "auth": "proxy", "auth_proxy": "::1"},
            "--cors: * would let every page use what --auth protects; name the sites instead, as in https://ui.example",
        ),
        (
            {"rest_hosts": "core.example:9080"},
            "--rest-hosts: expected host names without a port such as core.example, or *, got 'core.example:9080'",
        ),
        (
            {"rest_hosts": "*,a"},
            "--rest-hosts: expected host names without a port such as core.example, or *, got '*,a'",
        ),
        ({"history_max": "1MiB"}, "--history-max: 1MiB is too little, 16 MiB is the least"),
        ({"history_age": "59m"}, "--history-age: 59m is too short, 1h is the least"),
        ({"default_rm": "rm 1"}, "--default-rm: expected the id of a resource manager, such as rm-1, got 'rm 1'"),
        (
            {"default_rm": "rm-1", "allowed_rms": "test-*"},
            "--default-rm: 'rm-1' may not register: --allowed-rms does not name it",
        ),
        ({"history": "maybe"}, "--history: expected true or false, got 'maybe'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(flags: dict[str, str], line: str) -> None:
    assert refusal(**flags) == line
