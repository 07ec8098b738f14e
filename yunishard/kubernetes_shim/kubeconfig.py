"""How the shim reaches an API server: a kubeconfig file, or the service account of the pod that it runs in.

`find_access` reads the address, certificates and credentials; `Access.refresh` reads again what changes while the
process runs: a token file each minute, because Kubernetes replaces the tokens of service accounts, and the answer of an
`exec` plug-in when it expires or the API server refuses it.

Not here: requests (`client.py`).
"""

import asyncio
import base64
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import yaml

from yunishard.common.process.folders import make_temporary_folder

TOKEN_FILE_S: Final = 60.0
"""Seconds after which a token file is read again."""

EXEC_S_MAX: Final = 60.0
"""Seconds that a plug-in for credentials may take; then it is killed, and the request fails."""

EXPIRES_EARLY_S: Final = 60.0
"""Seconds before the end of a plug-in's credentials at which it is called again."""

REREAD_S: Final = 1.0
"""Seconds between two readings of credentials. Requests that were refused meanwhile are repeated with what was read."""

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the token, the certificates and the namespace of a pod's service account are."""


class AccessError(Exception):
    """The API server cannot be reached with what is configured; the text names the file and the entry."""


# The file -------------------------------------------------------------------------------------------------------------


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, rename="camel"):
    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: list[str] | None = None
    env: list[_Variable] | None = None


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    exec: _Exec | None = None
    auth_provider: dict[str, object] | None = None
    username: str = ""


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _Entry(msgspec.Struct):
    name: str
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)
    user: _User = msgspec.field(default_factory=_User)
    context: _Context = msgspec.field(default_factory=_Context)


class _File(msgspec.Struct, rename={"current_context": "current-context"}):
    current_context: str = ""
    clusters: list[_Entry] | None = None
    users: list[_Entry] | None = None
    contexts: list[_Entry] | None = None


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


class _ExecAnswer(msgspec.Struct):
    status: _ExecStatus


# Access ---------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Access:
    """The address of an API server, and the credentials for it."""

    server: str
    namespace: str
    """Of the service account or of the context; empty if neither names one."""
    tls: ssl.SSLContext | None = None
    token: str = ""
    tls_server_name: str | None = None
    token_path: Path | None = None
    plugin: _Exec | None = None
    build_tls: Callable[[], ssl.SSLContext] | None = None
    """Builds the context for a certificate of the plug-in."""
    _read_at: float = float("-inf")
    _refresh_at: float = 0.0
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def refresh(self, now: float, *, refused: bool = False) -> None:
        """Read the credentials again if they are due at this time of a monotonic clock, or were refused.

        Raises:
            AccessError: the token file or the plug-in cannot be used.
        """
        if now < self._refresh_at and not refused:
            return
        async with self._reading:  # one plug-in at a time, however many requests need its answer
            if now < (self._read_at + REREAD_S if refused else self._refresh_at):
                return
            self._read_at = now
            await self._read(now)

    async def _read(self, now: float) -> None:
        if self.token_path is not None:
            self.token = _read_text(self.token_path, "the token").strip()
            self._refresh_at = now + TOKEN_FILE_S
        elif self.plugin is not None:
            status = await _run_plugin(self.plugin)
            self.token = status.token
            if status.client_certificate_data and self.build_tls is not None:
                # Not the present context: its connections stay open with the former certificate.
                self.tls = self.build_tls()
                load_pair(self.tls, status.client_certificate_data.encode(), status.client_key_data.encode())
            lifetime_s = _find_lifetime(status)
            self._refresh_at = now + max(lifetime_s - EXPIRES_EARLY_S, lifetime_s / 2, REREAD_S)
        else:
            self._refresh_at = float("inf")


def find_access(environment: Mapping[str, str], path: Path | None = None) -> Access:
    """Return the access by a kubeconfig file (this one, or one that `KUBECONFIG` names), by the service account of the
    pod, or by `~/.kube/config`, in this order.

    Raises:
        AccessError: there is none, or it cannot be used.
    """
    if path is not None:
        return read_kubeconfig([path])
    if listed := environment.get("KUBECONFIG", ""):
        return read_kubeconfig([Path(one) for one in listed.split(os.pathsep) if one])
    if host := environment.get("KUBERNETES_SERVICE_HOST", ""):
        return _read_service_account(host, environment.get("KUBERNETES_SERVICE_PORT", "443"))
    default = Path(environment.get("HOME", "/")) / ".kube" / "config"
    if default.exists():
        return read_kubeconfig([default])
    raise AccessError(f"no API server is configured: set KUBECONFIG, write {default}, or run in a pod")


def read_kubeconfig(paths: list[Path]) -> Access:
    """Return the access of the current context. Of several files, the first entry of a name counts.

    Raises:
        AccessError: a file or an entry is missing, or cannot be used.
    """
    files = [_parse_file(path) for path in reversed(paths)]  # of a name, the first entry of the first file counts
    current = next((file.current_context for file in reversed(files) if file.current_context), "")
    clusters = {one.name: one.cluster for file in files for one in reversed(file.clusters or ())}
    users = {one.name: one.user for file in files for one in reversed(file.users or ())}
    contexts = {one.name: one.context for file in files for one in reversed(file.contexts or ())}
    where = os.pathsep.join(map(str, paths))
    if not current:
        raise AccessError(f"{where}: this is not a kubeconfig, or it has no current-context")
    if (context := contexts.get(current)) is None:
        known = ", ".join(reversed(contexts)) or "none"
        raise AccessError(f"{where}: current-context {current!r} is not among the contexts: {known}")
    if (cluster := clusters.get(context.cluster)) is None:
        raise AccessError(f"{where}: context {current!r}: there is no cluster {context.cluster!r}")
    if (user := users.get(context.user)) is None:
        raise AccessError(f"{where}: context {current!r}: there is no user {context.user!r}")
    if not cluster.server.startswith(("http://", "https://")):
        raise AccessError(f"{where}: server of {context.cluster!r} must begin with https://, got {cluster.server!r}")
    unsupported = {"proxy-url": cluster.proxy_url, "auth-provider": user.auth_provider, "username": user.username}
    if found := next((name for name, value in unsupported.items() if value), ""):
        raise AccessError(f"{where}: {found} is not supported: use a client certificate, a token or exec")
    build_tls = partial(_build_tls, cluster, user) if cluster.server.startswith("https") else None
    return Access(
        server=cluster.server.rstrip("/"),
        namespace=context.namespace,
        token=user.token,
        tls=build_tls() if build_tls is not None else None,
        tls_server_name=cluster.tls_server_name or None,
        token_path=Path(user.token_file) if user.token_file else None,
        plugin=user.exec,
        build_tls=build_tls,
    )


def _parse_file(path: Path) -> _File:
    """Return the content of a file. Its relative paths begin at its folder."""
    text = _read_text(path, "the kubeconfig")
    try:
        file = msgspec.convert(yaml.load(text, yaml.CSafeLoader) or {}, _File)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise AccessError(f"{path}: not a kubeconfig: {' '.join(str(error).split())}") from None
    for cluster in (one.cluster for one in file.clusters or ()):
        cluster.certificate_authority = _resolve(path, cluster.certificate_authority)
    for user in (one.user for one in file.users or ()):
        user.client_certificate = _resolve(path, user.client_certificate)
        user.client_key = _resolve(path, user.client_key)
        user.token_file = _resolve(path, user.token_file)
    return file


def _resolve(kubeconfig: Path, name: str) -> str:
    return str(kubeconfig.parent / name) if name else ""


def _read_service_account(host: str, port: str) -> Access:
    host = f"[{host}]" if ":" in host else host
    namespace = SERVICE_ACCOUNT / "namespace"
    access = Access(server=f"https://{host}:{port}", namespace="", token_path=SERVICE_ACCOUNT / "token")
    access.namespace = namespace.read_text().strip() if namespace.exists() else ""
    try:
        access.tls = _relax(ssl.create_default_context(cafile=SERVICE_ACCOUNT / "ca.crt"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        text = f"the certificate authority of the pod's service account cannot be used: {reason}"
        raise AccessError(f"{SERVICE_ACCOUNT / 'ca.crt'}: {text}") from None
    return access


def _read_text(path: Path, what: str) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise AccessError(f"{path}: {what} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise AccessError(f"{path}: {what} is not text: {error}") from None


# Certificates ---------------------------------------------------------------------------------------------------------


def _relax(context: ssl.SSLContext) -> ssl.SSLContext:
    """Accept certificates that are correct, and lack extensions which Python requires from 3.13 on: other clients of
    Kubernetes do not, so there are clusters whose certificates have none. Chain, time and name are still verified.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _build_tls(cluster: _Cluster, user: _User) -> ssl.SSLContext:
    authority = _read_part(cluster.certificate_authority_data, cluster.certificate_authority)
    try:
        context = _relax(ssl.create_default_context(cadata=authority.decode() if authority else None))
    except (ssl.SSLError, ValueError) as error:
        raise AccessError(f"certificate-authority of {cluster.server} cannot be used: {error}") from None
    if cluster.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = _read_part(user.client_certificate_data, user.client_certificate)
    if certificate:
        load_pair(context, certificate, _read_part(user.client_key_data, user.client_key))
    return context


def _read_part(data: str, path: str) -> bytes:
    """Return what an entry has as base64, or in a file; empty without any."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except ValueError as error:
            raise AccessError(f"an entry `...-data` of the kubeconfig is not base64: {error}") from None
    return _read_text(Path(path), "a certificate or key").encode() if path else b""


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate and its key. Python takes it only from files: they are private, and there for a moment."""
    with make_temporary_folder("key") as folder:
        paths = folder / "certificate", folder / "key"
        for path, text in zip(paths, (certificate, key), strict=True):
            path.write_bytes(text)
        try:
            context.load_cert_chain(*paths)
        except ssl.SSLError as error:
            raise AccessError(f"the certificate and its key cannot be used: {error}") from None


# Plug-ins -------------------------------------------------------------------------------------------------------------


async def _run_plugin(plugin: _Exec) -> _ExecStatus:
    """Run a plug-in for credentials and return its answer.

    Raises:
        AccessError: it cannot be started, fails, takes too long, or answers something else.
    """
    question = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    variables = {one.name: one.value for one in plugin.env or ()}
    variables["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(question).decode()
    name = f"exec plug-in {plugin.command}"
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command,
            *(plugin.args or ()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **variables},
        )
    except OSError as error:
        raise AccessError(f"{name} cannot be started: {(error.strerror or str(error)).lower()}") from None
    try:
        async with asyncio.timeout(EXEC_S_MAX):
            answer, complaint = await process.communicate()
    except TimeoutError:
        raise AccessError(f"{name} did not answer within {EXEC_S_MAX:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        text = complaint.decode(errors="replace")[-500:].strip() or "it gives no reason"
        raise AccessError(f"{name} failed ({process.returncode}): {text}")
    try:
        status = msgspec.json.decode(answer, type=_ExecAnswer).status
    except msgspec.DecodeError as error:
        raise AccessError(f"{name} did not answer with an ExecCredential: {error}") from None
    if not (status.token or status.client_certificate_data):
        raise AccessError(f"{name} answered with neither a token nor a client certificate")
    return status


def _find_lifetime(status: _ExecStatus) -> float:
    """Return the seconds until the credentials of a plug-in expire; without an end they count until refused."""
    if status.expiration_timestamp is None:
        return float("inf")
    try:
        end = datetime.fromisoformat(status.expiration_timestamp)
    except ValueError:
        raise AccessError(f"expirationTimestamp {status.expiration_timestamp!r} is not a time in RFC 3339") from None
    return (end - datetime.now(end.tzinfo)).total_seconds()
