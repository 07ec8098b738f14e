"""Which ports other machines can reach, and whether they may: a port that is not secured stays on loopback unless the
operator says that the network can be trusted. And what the operator should know of those that may.

Not here: whether the files of a secured port can be used, and whether ports are free (`premises.py`).
"""

import socket
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final

from deploy.settings import Settings
from deploy.values import NATIVE_SCHEME, Address, Unusable

_ADVICE: Final[Mapping[str, str]] = {
    "native": "give it keys (--native-keys, see `yunishard keys --help`) or an address such as 127.0.0.1",
    "grpc": "give it a certificate (--grpc-tls-cert, --grpc-tls-key) or an address such as 127.0.0.1",
    "rest": "give it a certificate (--rest-tls-cert, --rest-tls-key) or an address such as 127.0.0.1",
}


def secured(settings: Settings, port: str) -> bool:
    """Whether nobody on the way can read or change what is said at this port: `native`, `grpc` or `rest`."""
    return {"native": settings.native_keys, "grpc": settings.grpc_tls, "rest": settings.rest_tls}[port] is not None


def check_exposure(settings: Settings) -> None:
    """See that no port is open to other machines by mistake.

    Raises:
        Unusable: with the first one that is.
    """
    if settings.insecure:
        return
    for port, address in (("native", settings.native), ("grpc", settings.grpc), ("rest", settings.rest)):
        if address is not None and not secured(settings, port) and not _loopback(address):
            scheme = NATIVE_SCHEME if port == "native" else ""
            raise Unusable(
                f"{settings.source(port)}: {scheme}{address}: is not secured, and other machines can reach it; "
                f"{_ADVICE[port]}, or say --insecure if you trust the network"
            )


def warnings(settings: Settings) -> list[str]:
    """Settings that are valid but may not be intended: a line for each, with what to change."""
    found = [*_rm_port_warnings(settings), *_rest_warnings(settings)]
    if settings.web.auth and not settings.scheduler_admins:
        found.append(
            f"{settings.source('auth')}: nobody is a scheduler administrator, so nobody may change configurations over "
            "REST; name some by --scheduler-admins 'user,user group,group'"
        )
    return found


def _rm_port_warnings(settings: Settings) -> Iterator[str]:
    """Ports at which a client can take the id of an RM with less proof than at the other one, or with none."""
    native, grpc = settings.native, settings.grpc
    if native is None and grpc is None:
        yield (
            f"{settings.source('native')}, {settings.source('grpc')}: both are off, so no resource manager can register"
        )
    has_keys = settings.native_keys is not None
    has_certificates = settings.grpc_tls is not None and settings.grpc_tls.client_ca is not None
    if native is not None and not has_keys:
        where = f"{settings.source('native')}: {NATIVE_SCHEME}{native}"
        if grpc is not None and has_certificates:
            yield (
                f"{where}: a client without a key can take any RM id here, also one that has a certificate for gRPC; "
                "give the port keys (--native-keys) or close it (--native off)"
            )
        elif not _loopback(native):
            yield f"{where}: a client on the network can take any RM id; give the port keys (--native-keys)"
    if grpc is not None and not has_certificates:
        where = f"{settings.source('grpc')}: {grpc}"
        if has_keys:
            yield (
                f"{where}: a client without a certificate can take any RM id that has no native key; ask for "
                "certificates (--grpc-tls-client-ca) or close the port (--grpc off)"
            )
        elif not _loopback(grpc):
            yield f"{where}: a client on the network can take any RM id; ask for certificates (--grpc-tls-client-ca)"


def _rest_warnings(settings: Settings) -> Iterator[str]:
    rest = settings.rest
    if rest is None or settings.web.auth:
        return
    where = f"{settings.source('rest')}: {rest}"
    if not _loopback(rest):
        yield (
            f"{where}: whoever reaches this port may read all it has: queues, applications, users, configurations; "
            "--auth makes people say who they are (docs/security.md)"
        )
    elif settings.native_keys is not None or (settings.grpc_tls is not None and settings.grpc_tls.client_ca):
        yield (
            f"{where}: resource managers need keys or certificates, but every user of this machine may read all that "
            "this port has; --auth makes people say who they are (docs/security.md), --rest off closes it"
        )


def _loopback(address: Address) -> bool:
    """Whether only this machine can reach it. A host that is not found is reached by nobody."""
    try:
        found = socket.getaddrinfo(address.host.strip("[]"), address.port, type=socket.SOCK_STREAM)
    except OSError:
        return True
    return all(ip_address(str(where[0]).partition("%")[0]).is_loopback for *_, where in found)
