"""Authentication and authorization: which RM ids the peers of the native port and of the gRPC port may act for.

**Native port.** The ZAP authenticator admits connections whose CURVE keys are on the allow-list. ZeroMQ asks it for
each connection (the ZAP protocol, <https://rfc.zeromq.org/spec/27/>, inside the process) and reports the connection's
key with every message; `find_objection` compares it with the RM in the message's header. ZeroMQ cannot close a
connection on request, so a key that is removed from the list is refused from its next message on, and its RM counts as
away once it has been silent for long enough. The list is checked every second. A list that is not valid changes
nothing, and the log names the wrong line. Logs name keys by their fingerprints.

**gRPC port.** A caller proves its identity with a client certificate, or not at all. An RM id that has a key of the
native port needs a certificate for that id over gRPC, so that no port grants more than another one for a weaker proof.
Other RM ids need a certificate only where the port asks for one. A certificate names RM ids as alternative names (DNS
or URI); without such names its common name counts. The files are checked for each new connection: a changed certificate
holds from then on, and open connections stay.

Not here: the format of the allow-list (`common/curve_keys.py`), answers to refused messages (`proxy.py`).
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import grpc
import zmq
from zmq.utils import z85

from common import curve_keys
from common.curve_keys import AllowList, AllowListError, KeyPair, fingerprint
from common.names import RM_ID, compile_rm_ids
from common.process_limits import LogLimit
from common.transport import CONTEXT, clock
from rmproxy.grpc_streams import StatusError, StatusKind

ZAP_ADDRESS: Final = "inproc://zeromq.zap.01"
DOMAIN: Final = "yunishard-native"

CHECK_EVERY_S: Final = 1.0
"""Seconds between two checks whether the allow-list has changed."""

REFUSALS_LOGGED_MAX: Final = 10
"""Refused connections that are logged in a minute; the next log line counts the others."""

ZAP_BATCH_MAX: Final = 64
"""Connections that are authenticated before other callbacks run."""

_log = logging.getLogger("core.rmproxy")


class ZapAuthenticator:
    """Authenticates connections of the native port; made and closed in a running event loop.

    Raises:
        OSError: the list cannot be used.
    """

    def __init__(self, pair: KeyPair, allowed: Path) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called after the list has changed."""
        self._rm_ids_named: set[str] = set()
        """RM ids and patterns in any list since the start."""
        self._pair = pair
        self._file = allowed
        self._stamp = _stamp(allowed)
        try:
            self._apply(_read(allowed))
        except AllowListError as error:
            raise OSError(f"{allowed}: {error}") from None
        self._problem = ""
        """Why the list could not be read at the latest attempt; empty if it could."""
        self._log_limit = LogLimit(REFUSALS_LOGGED_MAX)
        self._loop = asyncio.get_running_loop()
        self._socket: zmq.Socket[bytes] = CONTEXT.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ZAP_ADDRESS)
        self._loop.add_reader(self._socket.FD, self._authenticate)
        self._timer = self._loop.call_later(CHECK_EVERY_S, self._reload)

    def close(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._socket.FD)
        self._socket.unbind(ZAP_ADDRESS)  # closing frees the address only some time later, from another thread
        self._socket.close()

    # What the port asks ---------------------------------------------------------------------------------------------

    def secure(self, socket: "zmq.Socket[bytes]") -> None:
        """Make a socket accept only clients whose key is allowed in the ZAP domain; before it is bound."""
        socket.curve_server = True
        socket.curve_secretkey = self._pair.secret.encode()
        socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN.encode())
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

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

    # The list -------------------------------------------------------------------------------------------------------

    def _apply(self, new: AllowList) -> None:
        self._list = new
        self._rm_ids_named |= {rm_id for entry in new.values() for rm_id in entry.rm_ids}
        self._patterns_named = compile_rm_ids(sorted(one for one in self._rm_ids_named if "*" in one))

    def _reload(self) -> None:
        self._timer = self._loop.call_later(CHECK_EVERY_S, self._reload)
        try:
            stamp = _stamp(self._file)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            before = self._list
            self._apply(_read(self._file))
        except (AllowListError, OSError) as error:
            problem, self._problem = self._problem, str(error)
            if problem != self._problem:
                _log.warning("the allow-list is not usable, the previous one stays in force: %s: %s", self._file, error)
            return
        self._problem = ""
        gone = ", ".join(sorted(fingerprint(key) for key in before.keys() - self._list.keys()))
        _log.info("%s: keys allowed now: %d%s", self._file, len(self._list), gone and f", no longer {gone}")
        self.on_change()

    # ZAP ------------------------------------------------------------------------------------------------------------

    def _authenticate(self) -> None:
        """Answer all ZAP requests. The descriptor is edge-triggered, so this reads until nothing is left."""
        if self._socket.closed:
            return
        for _ in range(ZAP_BATCH_MAX):
            try:
                route, empty, version, request, domain, address, _, mechanism, *credentials = (
                    self._socket.recv_multipart(zmq.NOBLOCK)
                )
            except zmq.Again:
                return
            key = z85.encode(credentials[0]).decode() if mechanism == b"CURVE" and credentials else ""
            good = domain == DOMAIN.encode() and key in self._list
            if not good:
                peer = f"key {fingerprint(key)}" if key else "a connection without a key"
                if (more := self._log_limit.admit(clock())) is not None:
                    source = address.decode(errors="replace")
                    _log.warning("%s from %s is not on the allow-list%s", peer, source, more)
            verdict = (b"200", b"OK", key.encode()) if good else (b"400", b"not on the allow-list", b"")
            with suppress(zmq.ZMQError):  # the connection has closed
                self._socket.send_multipart([route, empty, version, request, *verdict, b""], zmq.NOBLOCK)
        self._loop.call_soon(self._authenticate)


def _stamp(file: Path) -> tuple[int, ...]:
    """Return values that change when the file is written or replaced."""
    found = file.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(file: Path) -> AllowList:
    with file.open("rb") as opened:
        text = opened.read(curve_keys.LIST_BYTES_MAX + 1)
    if len(text) > curve_keys.LIST_BYTES_MAX:
        raise AllowListError(f"line 1: more than {curve_keys.LIST_BYTES_MAX} bytes")
    try:
        return curve_keys.parse_allow_list(text.decode())
    except UnicodeDecodeError as error:
        number = text.count(b"\n", 0, error.start) + 1
        raise AllowListError(f"line {number}: not UTF-8 text") from None


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


def read_rm_ids(auth_context: Mapping[str, Iterable[bytes]]) -> tuple[str, ...] | None:
    """Return the RM ids in the certificate of a caller, from gRPC's authentication context; None without one."""
    if not auth_context.get("x509_pem_cert"):
        return None
    names = [name for kind in ("peer_dns", "peer_uri") for name in auth_context.get(kind, ())]
    names = names or list(auth_context.get("x509_common_name", ()))
    return tuple(dict.fromkeys(name.decode(errors="replace") for name in names))


def make_credentials(cert: Path, key: Path, client_ca: Path | None) -> grpc.ServerCredentials:
    """Return the credentials of the port, which follow changes of its certificate, its key, and the CA of clients.

    Raises:
        OSError: a file cannot be used.
    """
    files = [file for file in (cert, key, client_ca) if file is not None]
    known = list(map(_stamp, files))

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
            stamps = list(map(_stamp, files))
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
