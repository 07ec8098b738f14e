"""Which ports other machines can reach, and whether they may: a port that is not secured stays on loopback unless the
operator says that the network can be trusted. And what the operator should know of those that may.

Not here: whether the files of a secured port can be used, and whether ports are free (`premises.py`).
"""

import socket
from collections.abc import Mapping
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
        if not secured(settings, port) and not _loopback(address):
            scheme = NATIVE_SCHEME if port == "native" else ""
            raise Unusable(
                f"{settings.source(port)}: {scheme}{address}: is not secured, and other machines can reach it; "
                f"{_ADVICE[port]}, or say --insecure if you trust the network"
            )


def warnings(settings: Settings) -> list[str]:
    """What may be started so, and that whoever starts it should know: a line for each."""
    found = []
    if not settings.web.auth and not _loopback(settings.rest):
        found.append(
            f"{settings.source('rest')}: {settings.rest}: whoever reaches this port may read all it has: queues, "
            "applications, users, configurations; --auth makes people say who they are (docs/security.md)"
        )
    if settings.web.auth and not settings.scheduler_admins:
        found.append(
            f"{settings.source('auth')}: nobody is a scheduler administrator, so nobody may change configurations over "
            "REST; name some by --scheduler-admins 'user,user group,group'"
        )
    return found


def _loopback(address: Address) -> bool:
    """Whether only this machine can reach it. A host that is not found is reached by nobody."""
    try:
        found = socket.getaddrinfo(address.host.strip("[]"), address.port, type=socket.SOCK_STREAM)
    except OSError:
        return True
    return all(ip_address(str(where[0]).partition("%")[0]).is_loopback for *_, where in found)
