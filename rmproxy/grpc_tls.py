"""TLS of the gRPC port: its certificate, and the RM ids that a client's certificate is for.

A client's certificate names the RMs that it may speak for among its alternative names (DNS or URI), each in full; one
without such names has its common name for that. The files are looked at for each new connection: what is new in them
holds from then on, connections that are open stay as they are.

Not here: what a caller may do with these ids (`grpc_authz.py`), whether files can be used when the system starts
(`deploy/premises.py`).
"""

import logging
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import grpc

_CERTIFICATE: Final = "x509_pem_cert"
_ALTERNATIVE_NAMES: Final = ("peer_dns", "peer_uri")
_COMMON_NAME: Final = "x509_common_name"

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_log = logging.getLogger("core.rmproxy")


def permitted(context: grpc.aio.ServicerContext[_Request, _Response]) -> tuple[str, ...] | None:
    """The RM ids that the client's certificate is for; None if the port asks for no certificate."""
    return names_in(context.auth_context())


def names_in(shown: Mapping[str, Iterable[bytes]]) -> tuple[str, ...] | None:
    """The same of what gRPC says about the other side of a connection."""
    if not shown.get(_CERTIFICATE):
        return None
    names = [name for kind in _ALTERNATIVE_NAMES for name in shown.get(kind, ())] or shown.get(_COMMON_NAME, ())
    return tuple(dict.fromkeys(name.decode(errors="replace") for name in names))


class TlsFiles:
    """The files of the port's certificate, its key, and whoever signs the certificates of clients."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        self._files = [file for file in (cert, key, client_ca) if file is not None]
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._stamps: list[tuple[int, int, int]] = []

    def credentials(self) -> grpc.ServerCredentials:
        """What the port shows of itself, and whom it lets in.

        Raises:
            OSError: a file cannot be used.
        """
        self._stamps = self._looked()
        return grpc.dynamic_ssl_server_credentials(
            self._read(),
            self._renewed,  # type: ignore[arg-type]  # None is fine with gRPC, if not with its stubs
            require_client_authentication=self._client_ca is not None,
        )

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called for each new connection: what is new, or None to go on as before."""
        try:
            stamps = self._looked()
            if stamps == self._stamps:
                return None
            self._stamps = stamps
            read = self._read()
        except OSError as error:
            _log.warning("the TLS files of the gRPC port are not usable, the previous ones stay in force: %s", error)
            return None
        _log.info("the TLS files of the gRPC port were read again")
        return read

    def _looked(self) -> list[tuple[int, int, int]]:
        """What changes when somebody writes a file or puts another in its place."""
        found = [file.stat() for file in self._files]
        return [(one.st_mtime_ns, one.st_size, one.st_ino) for one in found]

    def _read(self) -> grpc.ServerCertificateConfiguration:
        trial = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # gRPC would refuse every client without a word
        trial.load_cert_chain(self._cert, self._key)
        if self._client_ca is not None:
            trial.load_verify_locations(self._client_ca)
        authorities = self._client_ca.read_bytes() if self._client_ca is not None else None
        return grpc.ssl_server_certificate_configuration(
            [(self._key.read_bytes(), self._cert.read_bytes())], authorities
        )
