import asyncio
import base64
import os
import ssl
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from yunishard.kubernetes_shim import kubeconfig
from yunishard.kubernetes_shim.kubeconfig import Access, AccessError, find_access, read_kubeconfig


def make_certificate() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return builder.sign(key, hashes.SHA256()).public_bytes(encoding), private


def write(folder: Path, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Path:
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(content))
    return path


def refresh(access: Access, now: float, *, refused: bool = False) -> str:
    asyncio.run(access.refresh(now, refused=refused))
    return access.token


def test_a_token_and_a_namespace(tmp_path: Path) -> None:
    access = read_kubeconfig([write(tmp_path, user={"token": "secret"})])
    assert (access.server, access.namespace, refresh(access, 0.0)) == ("https://api:6443", "team", "secret")
    assert access.tls is not None
    assert access.tls.verify_mode == ssl.CERT_REQUIRED


def test_certificates_in_files_and_as_data(tmp_path: Path) -> None:
    certificate, key = make_certificate()
    (tmp_path / "ca").write_bytes(certificate)
    (tmp_path / "key").write_bytes(key)
    path = write(
        tmp_path,
        cluster={"certificate-authority": "ca", "tls-server-name": "other"},
        user={"client-certificate-data": base64.b64encode(certificate).decode(), "client-key": "key"},
    )
    access = read_kubeconfig([path])
    assert access.tls is not None
    assert access.tls.cert_store_stats()["x509"] == 1
    assert access.tls_server_name == "other"


def test_a_token_file_is_read_again_each_minute(tmp_path: Path) -> None:
    path = write(tmp_path, user={"tokenFile": "token"})
    (tmp_path / "token").write_text("one\n")
    access = read_kubeconfig([path])
    assert refresh(access, 100.0) == "one"
    (tmp_path / "token").write_text("two\n")
    assert refresh(access, 100.0 + kubeconfig.TOKEN_FILE_S - 1) == "one"
    assert refresh(access, 100.0 + kubeconfig.TOKEN_FILE_S) == "two"


def plugin(code: str) -> dict[str, Any]:
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": ["-c", code]}}


def test_a_plugin_is_called_again_when_its_credentials_expire_or_are_refused(tmp_path: Path) -> None:
    end = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    code = f"""
import json, os, pathlib
assert json.loads(os.environ["KUBERNETES_EXEC_INFO"])["kind"] == "ExecCredential"
calls = pathlib.Path({str(tmp_path / "calls")!r})
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
print(json.dumps({{"status": {{"token": calls.read_text(), "expirationTimestamp": {end!r}}}}}))
"""
    access = read_kubeconfig([write(tmp_path, user=plugin(code))])
    assert refresh(access, 0.0) == "x"
    assert refresh(access, 3000.0) == "x"
    assert refresh(access, 3000.0, refused=True) == "xx"
    assert refresh(access, 3600.0 + 3000.0) == "xxx"


def test_a_certificate_of_a_plugin_is_used_from_then_on(tmp_path: Path) -> None:
    certificate, key = (part.decode() for part in make_certificate())
    status = {"clientCertificateData": certificate, "clientKeyData": key}
    code = f"import json; print(json.dumps({{'status': {status!r}}}))"
    access = read_kubeconfig([write(tmp_path, user=plugin(code))])
    before = access.tls
    assert refresh(access, 0.0) == ""
    assert access.tls is not None
    assert access.tls is not before, "open connections have the former certificate"


def test_a_plugin_runs_once_for_requests_that_need_it_together(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    expired = datetime.now(UTC).isoformat()
    code = f"""
import json
with open({str(calls)!r}, "a") as file:
    file.write("x")
print(json.dumps({{"status": {{"token": "t", "expirationTimestamp": {expired!r}}}}}))
"""
    access = read_kubeconfig([write(tmp_path, user=plugin(code))])

    async def ask() -> None:
        await asyncio.gather(*(access.refresh(10.0) for _ in range(5)), access.refresh(10.0, refused=True))
        assert calls.read_text() == "x"
        await access.refresh(10.5)
        await access.refresh(10.5, refused=True)
        assert calls.read_text() == "x"
        await access.refresh(11.0)
        assert calls.read_text() == "xx"

    asyncio.run(ask())


def test_a_plugin_does_not_survive_its_caller(tmp_path: Path) -> None:
    started = tmp_path / "started"
    code = f"import os, pathlib, time; pathlib.Path({str(started)!r}).write_text(str(os.getpid())); time.sleep(600)"
    access = read_kubeconfig([write(tmp_path, user=plugin(code))])

    async def cancel() -> None:
        asking = asyncio.create_task(access.refresh(0.0))
        while not (started.exists() and started.read_text()):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(cancel())
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (plugin("import sys; sys.exit('not logged in')"), r"failed \(1\): not logged in"),
        (plugin("print('hello')"), "did not answer with an ExecCredential"),
        (plugin("""print('{"status": {"clientKeyData": "x"}}')"""), "neither a token nor a client certificate"),
        ({"exec": {"command": "/nonexistent/login"}}, "exec plug-in /nonexistent/login cannot be started"),
        ({"tokenFile": "missing"}, "missing: the token cannot be read"),
    ],
)
def test_credentials_that_cannot_be_had(tmp_path: Path, user: dict[str, Any], expected: str) -> None:
    access = read_kubeconfig([write(tmp_path, user=user)])
    with pytest.raises(AccessError, match=expected):
        refresh(access, 0.0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda folder: write(folder, cluster={"server": "api:6443"}), "must begin with https://, got 'api:6443'"),
        (lambda folder: write(folder, user={"username": "u"}), "username is not supported: use a client certificate"),
        (lambda folder: write(folder, user={"auth-provider": {"name": "x"}}), "auth-provider is not supported"),
        (lambda folder: write(folder, cluster={"proxy-url": "http://p"}), "proxy-url is not supported"),
        (lambda folder: write(folder, cluster={"certificate-authority": "no"}), "no: a certificate or key cannot be"),
        (lambda folder: write(folder, cluster={"certificate-authority-data": "?"}), "is not base64"),
        (lambda folder: write(folder, user={"client-certificate-data": "eA=="}), "cannot be used"),
        (lambda folder: _write_text(folder, "users: 3"), "not a kubeconfig"),
        (lambda folder: _write_text(folder, "{"), "not a kubeconfig"),
        (lambda folder: _write_text(folder, "current-context: x"), "'x' is not among the contexts: none"),
        (lambda folder: _write_text(folder, "a: b"), "this is not a kubeconfig, or it has no current-context"),
        (lambda folder: folder / "missing", "missing: the kubeconfig cannot be read: no such file"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, change: Callable[[Path], Path], expected: str) -> None:
    with pytest.raises(AccessError, match=expected):
        read_kubeconfig([change(tmp_path)])


def _write_text(folder: Path, text: str) -> Path:
    (folder / "config").write_text(text)
    return folder / "config"


def test_missing_entries_are_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace("cluster: c", "cluster: d"))
    with pytest.raises(AccessError, match="context 'here': there is no cluster 'd'"):
        read_kubeconfig([path])
    path = write(tmp_path)
    path.write_text(path.read_text().replace("user: u", "user: v"))
    with pytest.raises(AccessError, match="context 'here': there is no user 'v'"):
        read_kubeconfig([path])


def test_of_several_files_the_first_entry_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    one, two = write(first, user={"token": "one"}), write(second, user={"token": "two"})
    assert read_kubeconfig([one, two]).token == "one"
    assert find_access({"KUBECONFIG": f"{two}{os.pathsep}{one}"}).token == "two"


def test_the_service_account_of_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(AccessError, match=r"ca\.crt"):
        find_access(environment)
    (tmp_path / "ca.crt").write_bytes(make_certificate()[0])
    (tmp_path / "token").write_text("secret")
    (tmp_path / "namespace").write_text("yunikorn")
    access = find_access(environment)
    assert (access.server, access.namespace) == ("https://[fd00::1]:443", "yunikorn")
    assert refresh(access, 0.0) == "secret"


def test_certificates_without_extensions_that_python_requires_from_3_13_on_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = ssl.create_default_context

    def create_strict(**arguments: Any) -> ssl.SSLContext:
        context = create(**arguments)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", create_strict)
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    certificate = make_certificate()[0]
    (tmp_path / "ca.crt").write_bytes(certificate)
    in_pod = find_access({"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    outside = read_kubeconfig([write(tmp_path, cluster={"certificate-authority": "ca.crt"})])
    for access in (in_pod, outside):
        assert access.tls is not None
        assert not access.tls.verify_flags & ssl.VERIFY_X509_STRICT
        assert access.tls.verify_mode is ssl.CERT_REQUIRED


def test_nothing_is_configured(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"set KUBECONFIG, write .*config, or run in a pod"):
        find_access({"HOME": str(tmp_path)})
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube", user={"token": "mine"})
    assert find_access({"HOME": str(tmp_path)}).token == "mine"
