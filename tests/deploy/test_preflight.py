"""Checks before anything starts, with real files and ports."""

import json
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from tests.deploy.certificates import self_signed
from tests.deploy.system import FREE_PORTS, up
from yunishard.cli.main import main
from yunishard.common.settings import SETTINGS, EffectiveSetting, Settings, SettingsError, read_settings
from yunishard.common.transport.curve_keys import read_public, write_pair
from yunishard.common.transport.token_keys import write_secret
from yunishard.deploy import preflight
from yunishard.deploy.preflight import check_cluster_keys, check_exposure, check_native_keys, find_warnings, prepare
from yunishard.deploy.settings import resolve_settings
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub

FREE = {"native": "tcp://127.0.0.1:0", "grpc": "127.0.0.1:0", "rest": "127.0.0.1:0"}


@pytest.fixture
def taken() -> Iterator[int]:
    """A port where someone listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def asked(**flags: str) -> Settings:
    return resolve_settings({**FREE, **({} if "state" in flags else {"ephemeral": "true"}), **flags}, {})


def refusal(settings: Settings) -> str:
    with pytest.raises(SettingsError) as refused, prepare(settings):
        pass
    line = str(refused.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(("option", "scheme"), [("native", "tcp://"), ("grpc", ""), ("rest", "")])
def test_a_port_in_use_is_refused(taken: int, option: str, scheme: str) -> None:
    address = f"{scheme}127.0.0.1:{taken}"
    assert refusal(asked(**{option: address})) == (
        f"--{option}: {address}: address already in use; stop what listens there, "
        f"or choose another port (--{option} {scheme}127.0.0.1:0 takes any free one)"
    )


def test_two_options_with_the_same_port_are_refused() -> None:
    own = "127.8.7.6"  # no other test uses this address, so the port stays free
    with socket.create_server((own, 0)) as server:
        port = server.getsockname()[1]
    line = refusal(asked(grpc=f"{own}:{port}", rest=f"{own}:{port}"))
    assert line == f"--rest: {own}:{port}: --grpc has the same; give each its own"


def test_an_address_of_another_machine_is_refused() -> None:
    assert "give an address of this machine" in refusal(asked(rest="192.0.2.1:0", insecure="true"))


def test_a_host_that_does_not_exist_is_refused() -> None:
    assert "give an address of this machine" in refusal(asked(rest="no.such.host.invalid:0"))


def test_ports_are_free_again_after_the_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with prepare(asked(rest=f"127.0.0.1:{port}")), socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: no such file or directory"),
        (b"\xff\xfe", "cannot be read: not UTF-8 text (byte 0)"),
        (b"partitions: {", ""),
        (b"partitions:\n  - name: default\n    queues:\n      - name: root\n        shape: round\n", "line 5"),
        (
            b"partitions:\n  - placementrules:\n      - name: fixd\n    queues:\n      - name: a\n",
            "unknown rule name specified fixd",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "queues.yaml"
    if content is not None:
        file.write_bytes(content)
    line = refusal(asked(config=str(file)))
    assert line.startswith(f"--config: {file}: ")
    assert reason in line


def test_a_queue_that_moves_between_partitions_is_refused_only_if_that_is_enforced(tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(
        "partitions:\n"
        "  - {name: one, queues: [{name: a, queues: [{name: x}]}, {name: b}]}\n"
        "  - {name: two, queues: [{name: a}, {name: b, queues: [{name: x}]}]}\n"
    )
    with prepare(asked(config=str(file))):
        pass
    assert "queue x is below root.b" in refusal(asked(config=str(file), **{"queues.same-hierarchy": "enforce"}))


def test_the_processes_get_the_settings_in_a_file() -> None:
    settings = asked(**{"scheduler-admins": "ann"})
    with prepare(settings) as (effective, state):
        found = read_settings(state.settings)
        assert found == effective
        assert [one.name for one in found.effective] == list(SETTINGS)
        assert (
            EffectiveSetting("scheduler-admins", "ann", "--scheduler-admins", "--scheduler-admins") in found.effective
        )
        assert found.state == state.folder


def test_a_port_that_other_machines_can_reach_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    assert "is not secured" in refusal(asked(grpc="0.0.0.0:0", state=str(tmp_path / "state")))
    assert not (tmp_path / "state").exists()


def test_a_plug_in_that_is_not_installed_is_refused() -> None:
    assert refusal(asked(predicates="racks")) == "--predicates: no plug-in 'racks' is installed; there are: none"


def test_a_web_root_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with prepare(asked(**{"web-root": str(tmp_path)})):
        pass
    missing = tmp_path / "none"
    assert refusal(asked(**{"web-root": str(missing)})).startswith(f"--web-root: {missing}: is no directory; ")


def test_keys_of_tokens_are_tried_before_anything_is_made(tmp_path: Path) -> None:
    file, state = tmp_path / "keys", tmp_path / "state"

    def line() -> str:
        return refusal(asked(**{"auth": "token", "auth-keys": str(file), "state": str(state)}))

    assert line().startswith(f"--auth-keys: {file}: cannot be read: no such file or directory; `yunishard token --new")
    file.write_text("{}")
    assert "no JWKS" in line()
    file.unlink()
    write_secret(file)
    file.chmod(0o644)
    assert "others may read" in line()
    assert not state.exists()
    file.chmod(0o600)
    with prepare(asked(**{"auth": "token", "auth-keys": str(file), "state": str(state)})):
        pass


def test_more_partitions_than_there_are_descriptors_for_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(preflight, "raise_descriptor_limit", lambda: 1024)
    problem = (
        "--partitions-max: 500 partitions may need 1756 file descriptors in one process, and the hard limit is 1024; "
        "raise it (`ulimit -Hn`, LimitNOFILE= of a systemd unit, `--ulimit nofile=` of a container), or choose at most "
        "256 partitions"
    )
    assert refusal(asked(**{"partitions-max": "500"})) == problem
    with prepare(asked()):
        assert caplog.messages == [problem]  # the default is more than most systems use
    with prepare(asked(**{"partitions-max": "256"})):
        pass
    assert "or choose at most 246 partitions" in refusal(asked(**{"partitions-max": "500", "spare-workers": "10"}))
    monkeypatch.setattr(preflight, "raise_descriptor_limit", lambda: 200)
    assert refusal(asked(**{"partitions-max": "1"})).endswith("`--ulimit nofile=` of a container)")


FREE_TLS = {"native": "tcp://127.0.0.1:0", "grpc": "127.0.0.1:0", "rest": "127.0.0.1:0", "ephemeral": "true"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two pairs of certificate and key."""
    folder = tmp_path_factory.mktemp("tls")
    self_signed(folder)
    self_signed(folder, "client")
    return folder


def refused_tls(**flags: str | Path) -> str:
    given = {name.replace("_", "-"): str(value) for name, value in flags.items()}
    with pytest.raises(SettingsError) as refused, prepare(resolve_settings({**FREE_TLS, **given}, {})):
        pass
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_files_that_belong_together_are_taken(files: Path) -> None:
    flags = {
        "grpc-tls-cert": files / "server.pem",
        "grpc-tls-key": files / "server.key",
        "grpc-tls-client-ca": files / "client.pem",
    }
    with prepare(resolve_settings({**FREE_TLS, **{name: str(path) for name, path in flags.items()}}, {})):
        pass


def test_a_file_that_is_not_there_is_named(files: Path) -> None:
    told = refused_tls(rest_tls_cert=files / "server.pem", rest_tls_key=files / "none")
    assert told == f"--rest-tls-key: {files / 'none'}: cannot be read: no such file or directory"


def test_a_key_of_another_certificate_is_refused(files: Path) -> None:
    told = refused_tls(rest_tls_cert=files / "server.pem", rest_tls_key=files / "client.key")
    cert, key = files / "server.pem", files / "client.key"
    assert told == f"--rest-tls-cert: {cert}: does not belong to the key {key} (--rest-tls-key)"


def test_files_that_are_no_certificates_are_refused(files: Path, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("hello")
    told = refused_tls(grpc_tls_cert=nonsense, grpc_tls_key=files / "server.key")
    assert told.endswith("are no certificate and key in PEM form")
    pair = {"grpc_tls_cert": files / "server.pem", "grpc_tls_key": files / "server.key"}
    assert refused_tls(**pair, grpc_tls_client_ca=nonsense).endswith("holds no certificate in PEM form")


def test_a_key_with_a_password_is_refused(files: Path, tmp_path: Path) -> None:
    key = tmp_path / "secret.key"
    command = f"openssl ec -in {files / 'server.key'} -aes256 -passout pass:secret -out {key}"
    subprocess.run(command.split(), check=True, capture_output=True)
    told = refused_tls(rest_tls_cert=files / "server.pem", rest_tls_key=key)
    assert told == f"--rest-tls-key: {key}: has a password; give a key without one"


@pytest.mark.processes
def test_rest_speaks_tls_and_the_commands_trust_the_authority_that_is_named(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cert, key = files / "server.pem", files / "server.key"
    with up(
        "--ephemeral", *FREE_PORTS, "--rest-tls-cert", str(cert), "--rest-tls-key", str(key), folder=tmp_path
    ) as system:
        rest = system.announced()["rest"]
        assert rest.startswith("https://127.0.0.1:")
        with urllib.request.urlopen(
            f"{rest}/ws/v1/partitions", context=ssl.create_default_context(cafile=cert), timeout=10
        ) as answer:
            assert answer.status == 200
        with pytest.raises(OSError, match=r"[Ee]mpty|closed|reset|violation|disconnected|EOF"):
            urllib.request.urlopen(f"{rest.replace('https', 'http')}/ws/v1/partitions", timeout=10)
        assert main(["settings", "--rest", rest, "--ca", str(cert), "--json"]) == 0
        shown = {entry["name"]: entry["value"] for entry in json.loads(capsys.readouterr().out)}
        assert shown["rest-tls-cert"] == str(cert)
        (tmp_path / "queues.yaml").write_text("partitions: [{queues: [{name: root}]}]")
        put = ["config", "put", str(tmp_path / "queues.yaml"), "--rm", "rm-9", "--if-match", "*"]
        assert main([*put, "--rest", rest, "--ca", str(cert)]) == 1
        assert "RM rm-9" in capsys.readouterr().err, "who asks was found, and may change what is there"
        assert main(["settings", "--rest", rest]) == 2
        assert "is not trusted" in capsys.readouterr().err
        assert system.stop() == 0


@pytest.mark.processes
def test_grpc_speaks_tls_and_lets_only_known_clients_in(files: Path, tmp_path: Path) -> None:
    server, key, client = (files / name for name in ("server.pem", "server.key", "client.pem"))
    tls = ("--grpc-tls-cert", str(server), "--grpc-tls-key", str(key), "--grpc-tls-client-ca", str(client))
    known = grpc.ssl_channel_credentials(server.read_bytes(), (files / "client.key").read_bytes(), client.read_bytes())
    request = pb.RegisterResourceManagerRequest(rmID="localhost")  # as the certificate says
    with up("--ephemeral", *FREE_PORTS, *tls, folder=tmp_path) as system:
        address = system.announced()["grpc"]
        with grpc.secure_channel(address, known) as channel:
            SchedulerStub(channel).RegisterResourceManager(request, timeout=30)
        for credentials in (None, grpc.ssl_channel_credentials(server.read_bytes())):
            with (
                grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address) as channel,
                pytest.raises(grpc.RpcError) as refused,
            ):
                SchedulerStub(channel).RegisterResourceManager(request, timeout=10)
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert system.stop() == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Keys as `yunishard keys` makes them."""
    public, _ = write_pair(tmp_path, "server")
    (tmp_path / "allowed").write_text(f"{read_public(public)} rm-1\n")
    return tmp_path


def key_settings(**flags: Path) -> Settings:
    given = {name.replace("_", "-"): str(value) for name, value in flags.items()}
    return resolve_settings(given, {"XDG_STATE_HOME": "/xdg"})


def test_without_them_nothing_is_checked() -> None:
    check_native_keys(key_settings())


def test_a_directory_or_the_file_in_it_names_the_keys(folder: Path) -> None:
    check_native_keys(key_settings(native_keys=folder))
    check_native_keys(key_settings(native_keys=folder / "server.key_secret"))


def test_the_list_may_be_elsewhere(folder: Path) -> None:
    other = (folder / "allowed").rename(folder / "other")
    check_native_keys(key_settings(native_keys=folder, native_allowed=other))


def test_a_port_with_keys_may_be_open_to_all(folder: Path) -> None:
    flags = {"native": "tcp://0.0.0.0:9090", "native-keys": str(folder)}
    check_exposure(resolve_settings(flags, {"XDG_STATE_HOME": "/xdg"}))


def _unlink(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_unlink("server.key_secret"), "--native-keys: {folder}/server.key_secret: cannot be read: no such file"),
        (
            _unlink("allowed"),
            "--native-allowed: {folder}/allowed: cannot be read: no such file or directory; `yunishard",
        ),
        (
            lambda folder: (folder / "server.key_secret").chmod(0o644),
            "--native-keys: {folder}/server.key_secret: others can read this secret key (mode 644): chmod 600",
        ),
        (
            lambda folder: (folder / "server.key").rename(folder / "server.key_secret"),
            "--native-keys: {folder}/server.key_secret: holds no secret key",
        ),
        (
            lambda folder: (folder / "allowed").write_text("\nrm-1\n"),
            "--native-allowed: {folder}/allowed: line 2: expected",
        ),
        (
            lambda folder: (folder / "allowed").write_bytes(b"\xff"),
            "--native-allowed: {folder}/allowed: line 1: not UTF-8 text",
        ),
    ],
    ids=["no key", "no list", "open key", "public key", "broken list", "binary list"],
)
def test_files_that_the_port_could_not_use_are_refused_before_anything_starts(
    spoil: Callable[[Path], object], reason: str, folder: Path
) -> None:
    spoil(folder)
    with pytest.raises(SettingsError) as refused:
        check_native_keys(key_settings(native_keys=folder))
    assert str(refused.value).startswith(reason.format(folder=folder))
    assert "\n" not in str(refused.value)


def test_a_list_needs_keys(folder: Path) -> None:
    with pytest.raises(SettingsError, match="--native-allowed: needs --native-keys too"):
        check_native_keys(key_settings(native_allowed=folder / "allowed"))


HOME = {"XDG_STATE_HOME": "/xdg"}
TLS = {"grpc-tls-cert": "c", "grpc-tls-key": "k", "rest-tls-cert": "c", "rest-tls-key": "k"}


def refused_exposure(**flags: str) -> str:
    """Why these settings are refused; empty if they are not."""
    try:
        check_exposure(resolve_settings({name.replace("_", "-"): text for name, text in flags.items()}, HOME))
    except SettingsError as unusable:
        return str(unusable)
    return ""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]", "no.such.host.invalid"])
def test_on_loopback_every_port_may_be_open(host: str) -> None:
    assert refused_exposure(native=f"tcp://{host}:1", grpc=f"{host}:2", rest=f"{host}:3") == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "[::]", "[2001:db8::1]"])
@pytest.mark.parametrize(("port", "scheme"), [("native", "tcp://"), ("grpc", ""), ("rest", "")])
def test_elsewhere_a_port_that_is_not_secured_is_refused(host: str, port: str, scheme: str) -> None:
    line = refused_exposure(**{port: f"{scheme}{host}:1"})
    assert line.startswith(f"--{port}: {scheme}{host}:1: is not secured, and other machines can reach it; give ")
    assert line.endswith(", or use --insecure if you trust the network")
    assert refused_exposure(**{port: f"{scheme}{host}:1", "insecure": "true"}) == ""


def test_a_port_with_tls_is_secured() -> None:
    assert refused_exposure(grpc="0.0.0.0:1", rest="0.0.0.0:2", **TLS) == ""
    assert refused_exposure(grpc="0.0.0.0:1", rest="0.0.0.0:2", rest_tls_cert="c", rest_tls_key="k").startswith(
        "--grpc: "
    )


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


# Several hosts --------------------------------------------------------------------------------------------------------


@pytest.fixture
def hosts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The keys of two hosts."""
    assert main(["cluster", "init", str(tmp_path / "keys"), "a", "b"]) == 0
    capsys.readouterr()
    return tmp_path / "keys"


def host(hosts: Path, address: str = "tcp://127.0.0.1:9094") -> Settings:
    flags = {"host-name": "a", "cluster-address": address, "cluster-keys": str(hosts / "a")}
    return asked(store="postgresql://x@localhost/y?connect_timeout=1&host=/nowhere", **flags)


def _overwrite(hosts: Path) -> None:
    (hosts / "a" / "allowed").write_bytes((hosts / "b" / "host.key").read_bytes())


def _swap(hosts: Path) -> None:
    assert main(["cluster", "rotate", str(hosts), "a"]) == 0
    new = read_public(hosts / "a" / "host.key")
    lines = (hosts / "b" / "allowed").read_text().splitlines()
    (hosts / "a" / "allowed").write_text("\n".join(line for line in lines if new not in line))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda hosts: (hosts / "a" / "host.key_secret").unlink(), "host.key_secret: cannot be read: no such file"),
        (lambda hosts: (hosts / "a" / "host.key_secret").chmod(0o644), "host.key_secret: others can read"),
        (lambda hosts: (hosts / "a" / "allowed").unlink(), "allowed: cannot be read: no such file"),
        (_overwrite, "allowed: line 3: expected a public key"),
        (_swap, "is not in {hosts}/a/allowed; copy both to this host again"),
    ],
)
def test_keys_between_hosts_that_cannot_be_used_are_refused(
    spoil: Callable[[Path], object], reason: str, hosts: Path
) -> None:
    check_cluster_keys(host(hosts))
    spoil(hosts)
    line = refusal(host(hosts))
    assert line.startswith("--cluster-keys: ")
    assert reason.format(hosts=hosts) in line


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("tcp://0.0.0.0:9094", "no other host can connect to 0.0.0.0 as address; give a real one"),
        ("tcp://[::]:9094", "no other host can connect to :: as address; give a real one"),
        ("tcp://127.0.0.1:0", "no other host can connect to port 0; give a real one"),
        ("tcp://192.0.2.1:9094", "give an address of this machine that the other hosts reach"),
        ("tcp://no-such-host.invalid:9094", "give an address of this machine that the other hosts reach"),
    ],
)
def test_an_address_for_other_hosts_that_they_cannot_use_is_refused(
    address: str, reason: str, hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "_check_store", lambda _: None)
    line = refusal(host(hosts, address))
    assert line.startswith(f"--cluster-address: {address}: ")
    assert line.endswith(reason)


def test_an_address_for_other_hosts_that_is_in_use_is_refused(
    taken: int, hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "_check_store", lambda _: None)
    address = f"tcp://127.0.0.1:{taken}"
    reason = "address already in use; stop what listens there, or choose another port"
    assert refusal(host(hosts, address)) == f"--cluster-address: {address}: {reason}"
