"""A real control plane without kubelets: its processes, its certificates, and its API for tests.

It listens on fixed ports, so tests run in a network namespace of their own (`__main__.py`).
"""

import ipaddress
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.kubernetes.build import find_binaries

Json = dict[str, Any]

SERVER: Final = "https://127.0.0.1:6443"
ETCD: Final = "http://127.0.0.1:2379"

WAIT_MAX_S: Final = 30.0
POLL_S: Final = 0.02

NODE_RESOURCES: Final = {"cpu": "8", "memory": "32Gi", "pods": "110"}

COLLECTIONS: Final = {
    "configmaps": "api/v1",
    "csidrivers": "apis/storage.k8s.io/v1",
    "csistoragecapacities": "apis/storage.k8s.io/v1",
    "daemonsets": "apis/apps/v1",
    "deployments": "apis/apps/v1",
    "events": "apis/events.k8s.io/v1",
    "leases": "apis/coordination.k8s.io/v1",
    "namespaces": "api/v1",
    "nodes": "api/v1",
    "persistentvolumeclaims": "api/v1",
    "persistentvolumes": "api/v1",
    "pods": "api/v1",
    "priorityclasses": "apis/scheduling.k8s.io/v1",
    "storageclasses": "apis/storage.k8s.io/v1",
}
"""Plural to group and version."""


def eventually(holds: Callable[[], object], *, within_s: float = WAIT_MAX_S, what: str = "") -> None:
    """Wait until it holds; fail after the time."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"still not so after {within_s} s: {what}"
        time.sleep(POLL_S)


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager and KWOK, and requests to them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        write_certificates(folder)
        self.kubeconfig.write_text(yaml.safe_dump(_build_kubeconfig(folder)))
        self._tls = ssl.create_default_context(cafile=folder / "ca.crt")
        self._tls.load_cert_chain(folder / "admin.crt", folder / "admin.key")
        transport = httpx.HTTPTransport(verify=self._tls, retries=3)  # a server that was killed resumes no TLS session
        self._http = httpx.Client(base_url=SERVER, transport=transport, timeout=60.0)

    # Processes --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.start_process("etcd")
        eventually(lambda: _answers(f"{ETCD}/health"), what="etcd")
        self.start_process("kube-apiserver")
        self.wait_until_ready()
        for name in ("kube-controller-manager", "kwok"):
            self.start_process(name)

    def wait_until_ready(self) -> None:
        """Each attempt has a connection of its own: on early ones, the server requests no client certificate."""
        eventually(lambda: _answers(f"{SERVER}/readyz", self._tls), what="kube-apiserver")

    def start_process(self, name: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [str(find_binaries() / name), *_FLAGS[name]]
            words = [word.format(folder=self.folder) for word in command]
            self._processes[name] = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        self._http.close()
        for name in list(self._processes):
            self.kill(name)

    # Requests ---------------------------------------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json", user: str = ""
    ) -> Json:
        """Send a request, as this user with all rights if there is one, and return the answer."""
        groups = ("system:masters",) if user else ()
        answer = self.send(method, path, body, content_type=content_type, user=user, groups=groups)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        found: Json = answer.json()
        return found

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        user: str = "",
        groups: Sequence[str] = (),
        extra: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request, as this user if there is one, whatever the answer is."""
        headers = [("Content-Type", content_type)]
        if user:
            headers += [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]
            headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for key, value in (extra or {}).items()]
        return self._http.request(method, path, json=body, headers=headers)

    def create(self, plural: str, body: Json, *, user: str = "") -> Json:
        return self.request("POST", _path(plural, body["metadata"].get("namespace", "")), body, user=user)

    def create_all(self, plural: str, bodies: list[Json]) -> list[Json]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda body: self.create(plural, body), bodies))

    def list(self, plural: str, namespace: str = "") -> "list[Json]":
        found: list[Json] = self.request("GET", _path(plural, namespace))["items"]
        return found

    def get(self, plural: str, name: str, namespace: str = "") -> Json | None:
        answer = self._http.get(_path(plural, namespace, name))
        return None if answer.status_code == 404 else answer.json()

    def patch(self, plural: str, name: str, body: Json, namespace: str = "", *, subresource: str = "") -> Json:
        path = "/".join(filter(None, (_path(plural, namespace, name), subresource)))
        return self.request("PATCH", path, body, content_type="application/merge-patch+json")

    def delete(self, plural: str, name: str, namespace: str = "") -> None:
        self.request("DELETE", _path(plural, namespace, name))

    def delete_all(self, plural: str, namespace: str = "") -> None:
        self.request("DELETE", _path(plural, namespace), {"gracePeriodSeconds": 0})

    # What tests need often --------------------------------------------------------------------------------------------

    def create_nodes(self, count: int, *, first: int = 1, resources: Json | None = None, **changes: Any) -> "list[str]":
        bodies = [build_node(f"node-{number}", resources, **changes) for number in range(first, first + count)]
        self.create_all("nodes", bodies)
        return [body["metadata"]["name"] for body in bodies]

    def create_namespace(self, name: str, annotations: dict[str, str] | None = None) -> None:
        self.create("namespaces", {"metadata": {"name": name, "annotations": annotations or {}}})

    def place_of(self, pod: Json) -> str:
        """The node of a pod; empty if it has none or is gone."""
        found = self.get("pods", pod["metadata"]["name"], pod["metadata"]["namespace"])
        return "" if found is None else str(found["spec"].get("nodeName", ""))

    def wait_until_bound(self, pods: "list[Json]", *, within_s: float = WAIT_MAX_S) -> "list[str]":
        """Wait until all these pods have nodes, and return those."""
        namespace = pods[0]["metadata"]["namespace"]
        names = [pod["metadata"]["name"] for pod in pods]
        places: dict[str, str] = {}

        def are_bound() -> bool:
            for pod in self.list("pods", namespace):
                places[pod["metadata"]["name"]] = pod["spec"].get("nodeName", "")
            return all(places.get(name) for name in names)

        eventually(are_bound, within_s=within_s, what=f"{names[:5]} have no node")
        return [places[name] for name in names]

    def find_condition(self, pod: Json, kind: str = "PodScheduled") -> Json:
        found = self.get("pods", pod["metadata"]["name"], pod["metadata"]["namespace"]) or {"status": {}}
        return next((one for one in found["status"].get("conditions", ()) if one["type"] == kind), {})


def build_pod(name: str, namespace: str = "default", *, app: str = "", **changes: Any) -> Json:
    """A pod of our scheduler with 100m and 64Mi. `labels`, `annotations` and `requests` are what they say, all others
    are fields of the specification.
    """
    metadata: Json = {"name": name, "namespace": namespace, "labels": changes.pop("labels", {})}
    metadata["annotations"] = changes.pop("annotations", {})
    if app:
        metadata["labels"] = {"applicationId": app, **metadata["labels"]}
    requests = changes.pop("requests", {"cpu": "100m", "memory": "64Mi"})
    container: Json = {"name": "main", "image": "none", "resources": {"requests": requests}}
    if "ports" in changes:
        container["ports"] = changes.pop("ports")
    spec: Json = {"schedulerName": "yunikorn", "terminationGracePeriodSeconds": 0, "containers": [container], **changes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def build_node(name: str, resources: Json | None = None, **changes: Any) -> Json:
    labels = {"kubernetes.io/hostname": name, **changes.pop("labels", {})}
    metadata = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    amounts = resources or NODE_RESOURCES
    return {"metadata": metadata, "spec": changes, "status": {"allocatable": amounts, "capacity": amounts}}


@contextmanager
def run_control_plane(folder: Path) -> Iterator[ControlPlane]:
    plane = ControlPlane(folder)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


def _path(plural: str, namespace: str = "", name: str = "") -> str:
    parts = [COLLECTIONS[plural], *(["namespaces", namespace] if namespace else []), plural, name]
    return "/" + "/".join(filter(None, parts))


def _answers(url: str, tls: ssl.SSLContext | bool = True) -> bool:
    try:
        return httpx.get(url, verify=tls).status_code == 200
    except httpx.TransportError:
        return False


_FLAGS: Final[dict[str, tuple[str, ...]]] = {
    "etcd": (
        "--data-dir={folder}/etcd",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={4 << 30}",
    ),
    "kube-apiserver": (
        f"--etcd-servers={ETCD}",
        "--secure-port=6443",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        "--tls-cert-file={folder}/apiserver.crt",
        "--tls-private-key-file={folder}/apiserver.key",
        "--client-ca-file={folder}/ca.crt",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file={folder}/sa.pub",
        "--service-account-signing-key-file={folder}/sa.key",
        "--service-cluster-ip-range=10.0.0.0/16",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--disable-admission-plugins=ServiceAccount",
    ),
    "kube-controller-manager": (
        "--kubeconfig={folder}/kubeconfig",
        "--leader-elect=false",
        "--service-account-private-key-file={folder}/sa.key",
        "--root-ca-file={folder}/ca.crt",
        "--kube-api-qps=1000",
        "--kube-api-burst=1000",
        "--controllers=*,-node-ipam-controller,-node-route-controller,-cloud-node-lifecycle-controller",
    ),
    "kwok": (
        "--kubeconfig={folder}/kubeconfig",
        "--manage-all-nodes=true",
        "--node-ip=10.200.0.1",
        "--cidr=10.201.0.0/16",
        "--node-lease-duration-seconds=40",
    ),
}


# Certificates ---------------------------------------------------------------------------------------------------------


def write_certificates(folder: Path) -> None:
    """Write the certificates of the control plane and of its administrator."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = ec.generate_private_key(ec.SECP256R1())
    issuer = _name("test-ca")
    _write(folder, "ca", authority, _certify(issuer, issuer, authority, authority, is_authority=True))
    addresses = [x509.IPAddress(ipaddress.ip_address(one)) for one in ("127.0.0.1", "10.0.0.1")]
    names = [*addresses, x509.DNSName("localhost"), x509.DNSName("kubernetes.default.svc")]
    for file, subject in (("apiserver", _name("kube-apiserver")), ("admin", _name("admin", "system:masters"))):
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder, file, key, _certify(subject, issuer, key, authority, names=names))
    accounts = rsa.generate_private_key(65537, 2048)
    (folder / "sa.key").write_bytes(_encode_key(accounts))
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "sa.pub").write_bytes(accounts.public_key().public_bytes(serialization.Encoding.PEM, public))


def _name(common_name: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.append(x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def certify_user(folder: Path, name: str, lifetime_s: float) -> tuple[str, str]:
    """A client certificate of an administrator for so long, and its key, in PEM."""
    authority = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name, "system:masters")
    found = _certify(subject, _name("test-ca"), key, authority, lifetime=timedelta(seconds=lifetime_s))
    return found.public_bytes(serialization.Encoding.PEM).decode(), _encode_key(key).decode()


def _certify(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    authority: ec.EllipticCurvePrivateKey,
    *,
    names: list[x509.GeneralName] | None = None,
    is_authority: bool = False,
    lifetime: timedelta = timedelta(days=3650),
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + lifetime)
    builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority, hashes.SHA256())


def _encode_key(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    (folder / f"{name}.key").write_bytes(_encode_key(key))
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _build_kubeconfig(folder: Path) -> Json:
    user = {"client-certificate": str(folder / "admin.crt"), "client-key": str(folder / "admin.key")}
    cluster = {"server": SERVER, "certificate-authority": str(folder / "ca.crt")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "admin", "user": user}],
    }
