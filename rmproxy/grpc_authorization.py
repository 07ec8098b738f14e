"""Authorization of gRPC callers (which RM ids a caller may act for), and the TLS certificates of the gRPC port.

A caller proves its identity with a client certificate, or not at all. An RM id that has a key of the native port needs
a certificate for that id over gRPC, so that no port grants more than another one for a weaker proof. Other RM ids need
a certificate only where the port asks for one.

A client certificate names RM ids as alternative names (DNS or URI); without such names its common name counts. The
files are checked for each new connection: a changed certificate holds from then on, and open connections stay.

Not here: the allow-list of native keys (`zap_authenticator.py`), checks at system start (`deploy/premises.py`).
"""

import logging
import ssl
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import grpc

from rmproxy import grpc_status
from rmproxy.grpc_status import StatusError


def no_native_keys(_: str) -> bool:
    """Report that the RM has no native key: the native port takes connections without keys, or is off."""
    return False


class Authorizer:
    """Decides for each call and stream; asks `has_native_key` each time, as keys change while the proxy runs."""

    def __init__(self, has_native_key: Callable[[str], bool] = no_native_keys) -> None:
        self._has_native_key = has_native_key

    def check(self, rm_id: str, certified: tuple[str, ...] | None) -> None:
        """Check that a caller may act for this RM; `certified` are the RM ids in its certificate, None without one.

        Raises:
            StatusError: the caller may not act for the RM.
        """
        if certified is None:
            if self._has_native_key(rm_id):
                raise StatusError(grpc_status.key_required(rm_id))
        elif rm_id not in certified:
            raise StatusError(grpc_status.not_permitted(rm_id, certified))


# TLS -----------------------------------------------------------------------------------------------------------------

_CERTIFICATE: Final = "x509_pem_cert"
_ALTERNATIVE_NAMES: Final = ("peer_dns", "peer_uri")
_COMMON_NAME: Final = "x509_common_name"

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_log = logging.getLogger("core.rmproxy")


def permitted_rm_ids(context: grpc.aio.ServicerContext[_Request, _Response]) -> tuple[str, ...] | None:
    """Return the RM ids in the certificate of a call's client; None without a certificate."""
    return read_rm_ids(context.auth_context())


def read_rm_ids(auth_context: Mapping[str, Iterable[bytes]]) -> tuple[str, ...] | None:
    """Return the RM ids in gRPC's authentication context of a connection; None without a certificate."""
    if not auth_context.get(_CERTIFICATE):
        return None
    names = [name for kind in _ALTERNATIVE_NAMES for name in auth_context.get(kind, ())] or auth_context.get(
        _COMMON_NAME, ()
    )
    return tuple(dict.fromkeys(name.decode(errors="replace") for name in names))


class TlsFiles:
    """The files of the port's certificate, its key, and the CA of client certificates."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        self._files = [file for file in (cert, key, client_ca) if file is not None]
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._stamps: list[tuple[int, int, int]] = []

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of the port, which follow changes of the files.

        Raises:
            OSError: a file cannot be used.
        """
        self._stamps = self._stat_files()
        return grpc.dynamic_ssl_server_credentials(
            self._read(),
            self._reload,  # type: ignore[arg-type]  # gRPC accepts None, its stubs do not
            require_client_authentication=self._client_ca is not None,
        )

    def _reload(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificates if a file has changed, else None; gRPC calls this for each new connection."""
        try:
            stamps = self._stat_files()
            if stamps == self._stamps:
                return None
            self._stamps = stamps
            read = self._read()
        except OSError as error:
            _log.warning("the TLS files of the gRPC port are not usable, the previous ones stay in force: %s", error)
            return None
        _log.info("reloaded the TLS files of the gRPC port")
        return read

    def _stat_files(self) -> list[tuple[int, int, int]]:
        """Return values that change when a file is written or replaced."""
        found = [file.stat() for file in self._files]
        return [(one.st_mtime_ns, one.st_size, one.st_ino) for one in found]

    def _read(self) -> grpc.ServerCertificateConfiguration:
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # gRPC would refuse every client without an error
        trial.load_cert_chain(self._cert, self._key)
        if self._client_ca is not None:
            trial.load_verify_locations(self._client_ca)
        authorities = self._client_ca.read_bytes() if self._client_ca is not None else None
        return grpc.ssl_server_certificate_configuration(
            [(self._key.read_bytes(), self._cert.read_bytes())], authorities
        )
