"""Which ports may be open to other machines."""

import pytest

from common.settings import SettingsError
from deploy.preflight import check_exposure, find_warnings
from deploy.settings import resolve_settings

HOME = {"XDG_STATE_HOME": "/xdg"}
TLS = {"grpc-tls-cert": "c", "grpc-tls-key": "k", "rest-tls-cert": "c", "rest-tls-key": "k"}


def refusal(**flags: str) -> str:
    """Why these settings are refused; empty if they are not."""
    try:
        check_exposure(resolve_settings({name.replace("_", "-"): text for name, text in flags.items()}, HOME))
    except SettingsError as unusable:
        return str(unusable)
    return ""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]", "no.such.host.invalid"])
def test_on_loopback_every_port_may_be_open(host: str) -> None:
    assert refusal(native=f"tcp://{host}:1", grpc=f"{host}:2", rest=f"{host}:3") == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "[::]", "[2001:db8::1]"])
@pytest.mark.parametrize(("port", "scheme"), [("native", "tcp://"), ("grpc", ""), ("rest", "")])
def test_elsewhere_a_port_that_is_not_secured_is_refused(host: str, port: str, scheme: str) -> None:
    line = refusal(**{port: f"{scheme}{host}:1"})
    assert line.startswith(f"--{port}: {scheme}{host}:1: is not secured, and other machines can reach it; give ")
    assert line.endswith(", or say --insecure if you trust the network")
    assert refusal(**{port: f"{scheme}{host}:1", "insecure": "true"}) == ""


def test_a_port_with_tls_is_secured() -> None:
    assert refusal(grpc="0.0.0.0:1", rest="0.0.0.0:2", **TLS) == ""
    assert refusal(grpc="0.0.0.0:1", rest="0.0.0.0:2", rest_tls_cert="c", rest_tls_key="k").startswith("--grpc: ")


def warned(**flags: str) -> list[str]:
    """The settings that a warning begins with."""
    given = {name.replace("_", "-"): text for name, text in flags.items()}
    return [line.partition(":")[0] for line in find_warnings(resolve_settings(given, HOME))]


def test_a_rest_port_that_tells_everybody_everything_is_warned_about() -> None:
    assert warned(rest="0.0.0.0:1", insecure="true") == ["--rest"]
    assert warned(rest="127.0.0.1:1") == []
    assert warned(rest="0.0.0.0:1", auth="token", auth_keys="k", scheduler_admins="ann") == []


KEYS = {"native_keys": "k"}
CERTIFICATES = {"grpc_tls_cert": "c", "grpc_tls_key": "k", "grpc_tls_client_ca": "a"}
NETWORK = {"native": "tcp://0.0.0.0:1", "grpc": "0.0.0.0:2", "rest": "127.0.0.1:3"}


@pytest.mark.parametrize(
    ("flags", "about"),
    [
        ({}, []),
        (KEYS, ["--grpc", "--rest"]),
        ({**KEYS, "grpc": "off"}, ["--rest"]),
        ({**KEYS, "grpc": "off", "rest": "off"}, []),
        ({**KEYS, **CERTIFICATES, "rest": "off"}, []),
        ({**KEYS, **CERTIFICATES, "auth": "token", "auth_keys": "k", "scheduler_admins": "ann"}, []),
        ({**CERTIFICATES, "rest": "off"}, ["--native"]),
        ({**CERTIFICATES, "native": "off", "rest": "off"}, []),
        ({**NETWORK, "insecure": "true"}, ["--native", "--grpc"]),
        ({**NETWORK, "insecure": "true", "native": "off"}, ["--grpc"]),
        ({**NETWORK, **KEYS, **CERTIFICATES, "rest": "off"}, []),
        ({"native": "off", "grpc": "off"}, ["--native, --grpc"]),
    ],
)
def test_ports_that_ask_for_less_than_others_are_warned_about(flags: dict[str, str], about: list[str]) -> None:
    assert warned(**flags) == about


def test_a_warning_says_what_can_happen_and_what_to_do() -> None:
    [grpc, _] = find_warnings(resolve_settings({"native-keys": "k"}, HOME))
    assert grpc == (
        "--grpc: 127.0.0.1:3333: a client without a certificate can take any RM id that has no native key; ask for "
        "certificates (--grpc-tls-client-ca) or close the port (--grpc off)"
    )


def test_a_system_that_nobody_may_administer_is_warned_about() -> None:
    assert warned(auth="token", auth_keys="k") == ["--auth"]
