"""People say who they are to a running system, by tokens and by certificates, and what they change is written down."""

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import httpx
import pytest

from tests.deploy.certificates import self_signed
from tests.deploy.system import FREE_PORTS, up
from yunishard.cli.main import main

pytestmark = pytest.mark.processes


def signed(folder: Path, name: str, subject: str) -> tuple[Path, Path]:
    """A certificate that the authority `people` in the folder has signed, and its key."""
    cert, key, request = (folder / f"{name}.{end}" for end in ("pem", "key", "csr"))
    authority = folder / "people"
    curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    for command in (
        f"openssl req -new {curve} -keyout {key} -out {request} -subj {subject}",
        f"openssl x509 -req -in {request} -CA {authority}.pem -CAkey {authority}.key -days 2 -out {cert}",
    ):
        subprocess.run(command.split(), check=True, capture_output=True)
    return cert, key


def asked(
    url: str, server: Path, *, certificate: tuple[Path, Path] | None = None, method: str = "GET", **headers: str
) -> tuple[int, bytes]:
    """Status and body of an answer."""
    context = ssl.create_default_context(cafile=server)
    if certificate:
        context.load_cert_chain(*certificate)
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_tokens_and_certificates_open_the_door_and_changes_are_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, key = self_signed(tmp_path)
    people, _ = self_signed(tmp_path, "people")
    alice = signed(tmp_path, "alice", "/OU=dev/CN=alice")
    root = signed(tmp_path, "root", "/OU=ops/CN=whoever")
    stranger = self_signed(tmp_path, "root-by-herself")
    keys, admin = tmp_path / "keys", tmp_path / "admin.token"
    assert main(["token", "--new-key", "--keys", str(keys)]) == 0
    capsys.readouterr()
    assert main(["token", "ann", "--groups", "ops", "--keys", str(keys)]) == 0
    admin.write_text(capsys.readouterr().out)
    options = (
        *("--state", str(tmp_path / "state"), "--rest-tls-cert", str(server), "--rest-tls-key", str(key)),
        *("--auth", "token,certificate", "--auth-keys", str(keys), "--rest-tls-client-ca", str(people)),
        *("--scheduler-admins", " ops", "--cors", "https://ui.example"),
    )
    with up(*FREE_PORTS, *options, folder=tmp_path) as system:
        rest = system.announced()["rest"]
        everything, settings = f"{rest}/ws/v1/partitions", f"{rest}/ws/v1/settings"
        assert asked(everything, server)[0] == 401
        assert asked(everything, server, Authorization=f"Bearer {admin.read_text().strip()}")[0] == 200
        assert asked(everything, server, certificate=alice)[0] == 200
        assert [asked(settings, server, certificate=one)[0] for one in (alice, root)] == [403, 200]
        with pytest.raises(OSError, match=r"alert|reset|closed|EOF|pipe"):
            asked(everything, server, certificate=stranger)
        kill = f"{rest}/ws/v1/partition/default/application/x/kill"
        assert asked(kill, server, certificate=alice, method="POST", Origin="https://evil.example")[0] == 403
        command = ["app", "kill", "x", "--partition", "p", "--rest", rest, "--ca", str(server)]
        assert main(command) == 1
        assert "authenticate with --token-file FILE" in capsys.readouterr().err
        assert main([*command, "--token-file", str(admin)]) == 1
        assert "Partition not found: p (partitions: none)" in capsys.readouterr().err
        assert system.stop() == 0
    log = tmp_path / "state" / "audit.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    found = [(one.get("user"), one.get("by"), one["outcome"], one.get("status")) for one in lines]
    assert found == [
        ("alice", "certificate", "refused", 403),
        (None, None, "refused", 401),
        ("ann", "token", "begun", None),
        ("ann", "token", "failed", 404),
    ]
    assert log.stat().st_mode & 0o777 == 0o600
    assert admin.read_text().strip() not in log.read_text() + system.errors


def test_private_answers_are_given_only_under_names_of_this_server(tmp_path: Path) -> None:
    options = ("--state", str(tmp_path / "state"), "--rest-hosts", "core.example")
    with up(*FREE_PORTS, *options, folder=tmp_path) as system:
        rest = system.announced()["rest"]
        hosts = ("core.example", "localhost:9080", "10.0.0.7", "evil.example")
        settings = [httpx.get(f"{rest}/ws/v1/settings", headers={"Host": host}).status_code for host in hosts]
        metrics = [httpx.get(f"{rest}/ws/v1/metrics", headers={"Host": host}).status_code for host in hosts]
        assert (settings, metrics) == ([200, 200, 200, 403], [200, 200, 200, 200])
        assert system.stop() == 0
    assert "Host evil.example is not a known name of this server" in system.errors
