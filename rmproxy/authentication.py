"""Authentication and authorization: which RM ids the peers of the native port and of the gRPC port may act for.

**Native port.** The ZAP authenticator (`common/transport/zap.py`) admits connections whose CURVE keys are on the
allow-list. ZeroMQ reports the connection's key with every message; `find_objection` compares it with the RM in the
message's header. ZeroMQ cannot close a connection on request, so a key that is removed from the list is refused from
its next message on, and its RM counts as away once it has been silent for long enough.

**gRPC port.** A caller proves its identity with a client certificate, or not at all. An RM id that has a key of the
native port needs a certificate for that id over gRPC, so that no port grants more than another one for a weaker proof.
Other RM ids need a certificate only where the port asks for one. A certificate names RM ids as alternative names (DNS
or URI); without such names its common name counts. The files are checked for each new connection: a changed certificate
holds from then on, and open connections stay.

Not here: the format of the allow-list (`common/transport/curve_keys.py`), answers to refused messages (`proxy.py`).
"""

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc

from yunishard.common.names import RM_ID, compile_rm_ids
from yunishard.common.process.folders import read_stamp
from yunishard.common.transport.curve_keys import AllowList, KeyPair, fingerprint
from yunishard.common.transport.zap import ZapAuthenticator
from yunishard.rmproxy.grpc_streams import StatusError, StatusKind

DOMAIN: Final = "yunishard-native"

_log = logging.getLogger("core.rmproxy")


class RmAuthenticator(ZapAuthenticator):
    """Authenticates connections of the native port; made and closed in a running event loop.

    Raises:
        OSError: the list cannot be used.
    """

    def __init__(self, pair: KeyPair, allowed: Path) -> None:
        self._rm_ids_named: set[str] = set()
        """RM ids and patterns in any list since the start."""
        super().__init__(pair, allowed, domain=DOMAIN, log=_log)

    def has_key_for(self, rm: str) -> bool:
        """Return whether the list has, or had since this process started, a key for this RM, so that its id needs one.
        Otherwise revoking a stolen key, or an editor that empties the file before it writes it, would open the id to
        every client.
        """
        if RM_ID.fullmatch(rm) is None:
            return False
        return rm in self._rm_ids_named or self._patterns_named.fullmatch(rm) is not None

    def find_objection(self, key: str, rm: str) -> str:
        """Return why the owner of this public key may not act for this RM; empty if it may."""
        entry = self._list.get(key)
        if entry is None:
            return f"key {fingerprint(key)} is not on the allow-list any more"
        return "" if entry.allows(rm) else f"key {fingerprint(key)} may not speak for RM {rm!r}"

    def _apply(self, new: AllowList) -> None:
        super()._apply(new)
        self._rm_ids_named |= {rm_id for entry in new.values() for rm_id in entry.rm_ids}
        self._patterns_named = compile_rm_ids(sorted(one for one in self._rm_ids_named if "*" in one))


# gRPC ---------------------------------------------------------------------------------------------------------------


class Authorizer:
    """Decides for each call and stream; asks `has_native_key` each time, as keys change while the proxy runs."""

    def __init__(self, has_native_key: Callable[[str], bool] = lambda _: False) -> None:
        """By default no RM has a native key: the native port takes connections without keys, or is off."""
        self._has_native_key = has_native_key

    def check(self, rm_id: str, certified: tuple[str, ...] | None) -> None:
        """Check that a caller may act for this RM; `certified` are the RM ids in its certificate, None without one.

        Raises:
            StatusError: the caller may not act for the RM.
        """
        if certified is None:
            if self._has_native_key(rm_id):
                raise StatusError(StatusKind.KEY_REQUIRED.make(rm_id=rm_id))
        elif rm_id not in certified:
            permitted = ", ".join(f'"{name}"' for name in certified) or "nobody"
            raise StatusError(StatusKind.NOT_PERMITTED.make(permitted=permitted, rm_id=rm_id))


def make_credentials(cert: Path, key: Path, client_ca: Path | None) -> grpc.ServerCredentials:
    """Return the credentials of the port, which follow changes of its certificate, its key, and the CA of clients.

    Raises:
        OSError: a file cannot be used.
    """
    files = [file for file in (cert, key, client_ca) if file is not None]
    known = list(map(read_stamp, files))

    def read() -> grpc.ServerCertificateConfiguration:
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # gRPC would refuse every client without an error
        trial.load_cert_chain(cert, key)
        if client_ca is not None:
            trial.load_verify_locations(client_ca)
        authorities = client_ca.read_bytes() if client_ca is not None else None
        return grpc.ssl_server_certificate_configuration([(key.read_bytes(), cert.read_bytes())], authorities)

    def reload() -> grpc.ServerCertificateConfiguration | None:
        """Return the certificates if a file has changed, else None; gRPC calls this for each new connection."""
        nonlocal known
        try:
            stamps = list(map(read_stamp, files))
            if stamps == known:
                return None
            known = stamps
            found = read()
        except OSError as error:
            _log.warning("the TLS files of the gRPC port are not usable, the previous ones stay in force: %s", error)
            return None
        _log.info("reloaded the TLS files of the gRPC port")
        return found

    return grpc.dynamic_ssl_server_credentials(
        read(),
        reload,  # type: ignore[arg-type]  # gRPC accepts None, its stubs do not
        require_client_authentication=client_ca is not None,
    )
