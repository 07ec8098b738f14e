"""Ports that speak TLS: files that cannot be used are refused before anything starts, and good ones are really used."""

import json
import ssl
import subprocess
import urllib.request
from pathlib import Path

import grpc
import pytest

from common.settings import SettingsError
from deploy.preflight import prepare
from deploy.settings import resolve_settings
from rmproxy.si import scheduler_pb2 as pb
from rmproxy.si.scheduler_pb2_grpc import SchedulerStub
from tests.deploy.certificates import self_signed
from tests.deploy.system import FREE_PORTS, up
from yunishard.cli import main

FREE = {"native": "tcp://127.0.0.1:0", "grpc": "127.0.0.1:0", "rest": "127.0.0.1:0", "ephemeral": "true"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two pairs of certificate and key."""
    folder = tmp_path_factory.mktemp("tls")
    self_signed(folder)
    self_signed(folder, "client")
    return folder


def refusal(**flags: str | Path) -> str:
    given = {name.replace("_", "-"): str(value) for name, value in flags.items()}
    with pytest.raises(SettingsError) as refused, prepare(resolve_settings({**FREE, **given}, {})):
        pass
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_files_that_belong_together_are_taken(files: Path) -> None:
    flags = {
        "grpc-tls-cert": files / "server.pem",
        "grpc-tls-key": files / "server.key",
        "grpc-tls-client-ca": files / "client.pem",
    }
    with prepare(resolve_settings({**FREE, **{name: str(path) for name, path in flags.items()}}, {})):
        pass


def test_a_file_that_is_not_there_is_named(files: Path) -> None:
    told = refusal(rest_tls_cert=files / "server.pem", rest_tls_key=files / "none")
    assert told == f"--rest-tls-key: {files / 'none'}: cannot be read: no such file or directory"


def test_a_key_of_another_certificate_is_refused(files: Path) -> None:
    told = refusal(rest_tls_cert=files / "server.pem", rest_tls_key=files / "client.key")
    cert, key = files / "server.pem", files / "client.key"
    assert told == f"--rest-tls-cert: {cert}: does not belong to the key {key} (--rest-tls-key)"


def test_files_that_are_no_certificates_are_refused(files: Path, tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("hello")
    told = refusal(grpc_tls_cert=nonsense, grpc_tls_key=files / "server.key")
    assert told.endswith("are no certificate and key in PEM form")
    pair = {"grpc_tls_cert": files / "server.pem", "grpc_tls_key": files / "server.key"}
    assert refusal(**pair, grpc_tls_client_ca=nonsense).endswith("holds no certificate in PEM form")


def test_a_key_with_a_password_is_refused(files: Path, tmp_path: Path) -> None:
    key = tmp_path / "secret.key"
    command = f"openssl ec -in {files / 'server.key'} -aes256 -passout pass:secret -out {key}"
    subprocess.run(command.split(), check=True, capture_output=True)
    told = refusal(rest_tls_cert=files / "server.pem", rest_tls_key=key)
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
