"""Authentication and authorization of REST requests.

`AccessControl` tries the methods that are on, one after the other (a token, a client certificate, a trusted proxy); the
first that identifies the caller counts. While none is on, every caller may read, and changes are for users of this
machine: `LoopbackUsers` asks the kernel for the user who owns the client's socket.

It decides by the access rule of a route whether the caller may use it. While authentication is on, every caller has to
authenticate, except for routes with the rule `ANYBODY`. It also refuses requests that a page of another site made the
caller's browser send. The worker of a partition decides which parts of it a caller may see.
"""

import asyncio
import grp
import logging
import os
import pwd
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final

from starlette.requests import Request

from yunishard.common.config.acl import NOBODY, Acl
from yunishard.common.group_ids import group_ids
from yunishard.common.messages.query_messages import Actor
from yunishard.common.process.folders import read_stamp
from yunishard.common.retries import LogLimit
from yunishard.common.settings import CERTIFICATE, PROXY, TOKEN
from yunishard.common.transport.token_keys import TokenKeyError, TokenKeys, read_token_keys
from yunishard.webservice import credentials
from yunishard.webservice.audit import AuditLog
from yunishard.webservice.credentials import CERTIFICATE_EXTENSION, Identity, UntrustedHeaders
from yunishard.webservice.cross_site import Cors, explain_foreign_page, explain_not_local, is_known_host
from yunishard.webservice.parameters import escape_for_log
from yunishard.webservice.router import Access, Route
from yunishard.webservice.views import RequestError

_log = logging.getLogger("core.rest")

LOOPBACK: Final = "loopback"
"""The method without the setting `auth`, as the audit log names it."""

_BEARER: Final = "bearer "


# Keys of tokens -------------------------------------------------------------------------------------------------------


class KeyFile:
    """A file of keys, checked for changes with each token. While its latest content is invalid, the previous keys stay
    in force.

    Raises:
        TokenKeyError: its content at the start is invalid.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._signature = self._stat()
        self._keys = read_token_keys(file)

    def keys(self) -> TokenKeys:
        """The keys in force."""
        signature = self._stat()
        if signature != self._signature:
            self._signature = signature
            try:
                self._keys = read_token_keys(self._file)
            except TokenKeyError as error:
                text = "the token keys are not usable, so the previous ones stay in force: %s: %s"
                _log.warning(text, self._file, error)
            else:
                _log.info("%s has changed; token keys in it: %d", self._file, len(self._keys.keys))
        return self._keys

    def _stat(self) -> tuple[int, ...] | None:
        """A value that changes whenever the file does; None for a missing file."""
        try:
            return read_stamp(self._file)
        except OSError:
            return None


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller, and the method that identified them."""

    actor: Actor
    method: str
    read_only: bool = False


def _find_bearer_token(headers: credentials.Headers) -> str | None:
    """The token in the header Authorization; None without the header, or for another scheme."""
    found = [value.decode("latin-1") for name, value in headers if name == b"authorization"]
    if len(found) > 1:
        return ""  # ambiguous, so it is checked as an invalid token
    if not found or not found[0].lower().startswith(_BEARER):
        return None
    return found[0][len(_BEARER) :].strip()


# Users of this machine ------------------------------------------------------------------------------------------------

LOOK_UP_MAX_S: Final = 5.0
"""Seconds for the operating system to look a user up; a directory service behind it may not answer."""

LOOK_UPS_MAX: Final = 2
"""Concurrent look-ups. They have their own threads, so that a slow one delays only changes."""

TABLE_READS_MAX: Final = 3
"""Readings of the kernel's tables until a connection is in them. The kernel writes a long table in several pieces, and
a piece leaves a connection out or repeats it if another one was closed or opened since the piece before.
"""

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_NEXT: Final = "changes are accepted only from this machine, over its loopback address: log in there and use 127.0.0.1"


def look_up_account(uid: int) -> Identity:
    """The user with this ID; the primary group comes first. A user without an account is named by the number, which no
    access list can contain.
    """
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Identity(str(uid))
    groups = []
    for gid in group_ids(entry.pw_name, entry.pw_gid):
        with suppress(KeyError):  # a group without a name cannot be on an access list
            groups.append(grp.getgrgid(gid).gr_name)
    return Identity(entry.pw_name, tuple(groups))


def read_socket_tables() -> list[str]:
    """The kernel's tables of TCP connections; a missing table counts as empty."""
    texts = []
    for table in _TABLES:
        with suppress(FileNotFoundError):  # there is no IPv6, or this is not Linux
            texts.append(table.read_text(encoding="ascii"))
    return texts


def _refuse_caller(reason: str) -> RequestError:
    return RequestError(403, f"The caller is unknown: {reason}")


@dataclass(slots=True, eq=False)
class LoopbackUsers:
    """Identifies callers on this machine by the owner of their socket. Nothing that the request claims counts."""

    admins: Acl = NOBODY
    """The scheduler administrators, besides `own_uid`."""
    _: KW_ONLY
    own_uid: int = field(default_factory=os.getuid)
    """The user that this process runs as."""
    tables: Callable[[], list[str]] = read_socket_tables
    """Returns the kernel's tables."""
    account: Callable[[int], Identity] = look_up_account
    """Looks a user ID up."""
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(LOOK_UPS_MAX, thread_name_prefix="accounts"), init=False
    )

    async def find_owner(self, client: tuple[str, int], server: tuple[str, int]) -> Actor:
        """The user who owns the client end of a connection.

        Raises:
            RequestError: 403, the connection comes from another machine, or its owner was not found.
        """
        try:
            async with asyncio.timeout(LOOK_UP_MAX_S):
                return await asyncio.get_running_loop().run_in_executor(self._threads, self._look_up, client, server)
        except TimeoutError:
            text = f"the operating system did not look the caller up within {LOOK_UP_MAX_S:g} s; try again"
            raise _refuse_caller(text) from None

    def close(self) -> None:
        """Start no more look-ups."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _look_up(self, client: tuple[str, int], server: tuple[str, int]) -> Actor:
        uid = self._find_uid(client, server)
        try:
            known = self.account(uid)
        except OSError as error:
            raise _refuse_caller(f"the account of user {uid} cannot be looked up: {error}; try again") from None
        is_admin = uid == self.own_uid or self.admins.allows(known.user, known.groups)
        return Actor(user=known.user, groups=list(known.groups), scheduler_admin=is_admin)

    def _find_uid(self, client: tuple[str, int], server: tuple[str, int]) -> int:
        try:
            remote, local = credentials.parse_address(client[0]), credentials.parse_address(server[0])
        except ValueError:
            raise _refuse_caller(f"the request came from {client[0]!r}; {_NEXT}") from None
        if not remote.is_loopback:
            raise _refuse_caller(f"the request came from {remote}; {_NEXT}")
        ends = {"local": (remote, client[1]), "remote": (local, server[1])}
        for _ in range(TABLE_READS_MAX):
            try:
                tables = self.tables()
            except OSError as error:
                raise _refuse_caller(f"the owner of the connection cannot be looked up: {error}") from None
            found = {uid for table in tables for uid in credentials.socket_owners(table, **ends)}
            if len(found) == 1:
                return found.pop()
        raise _refuse_caller(
            f"the owner of the connection from {remote} port {client[1]} was not found, which needs"
            " Linux and a client in the same network namespace that keeps its connection open; try again from there"
        )


# Authentication and authorization -------------------------------------------------------------------------------------

LOGGED_A_MINUTE_MAX: Final = 10
"""Log lines about refused requests; further ones are counted."""

HOST_LENGTH_MAX: Final = 255
"""Characters of a header `Host` that an error repeats; a valid name is not longer."""


@dataclass(slots=True, eq=False)
class AccessControl:
    """Identifies and authorizes callers. While no method of authentication is on, callers need not authenticate."""

    users: LoopbackUsers
    """Identifies users of this machine, while authentication is off."""
    _: KW_ONLY
    keys: KeyFile | None = None
    """Keys of tokens; None if tokens do not count."""
    issuer: str = ""
    """The required issuer of tokens; empty for any."""
    audience: str = ""
    """The required audience of tokens; empty for none."""
    certificates: bool = False
    """Whether client certificates count. TLS has verified them."""
    proxies: tuple[credentials.Network, ...] = ()
    """Networks of trusted proxies."""
    admins: Acl = NOBODY
    """The scheduler administrators, while authentication is on."""
    origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may use the API."""
    hosts: tuple[str, ...] = ()
    """Names of this server, in lower case."""
    audit: AuditLog | None = None
    """Records changes; None for no audit log."""
    clock: Callable[[], float] = time.time
    _log_limit: LogLimit = field(default_factory=lambda: LogLimit(LOGGED_A_MINUTE_MAX), init=False)

    @property
    def is_off(self) -> bool:
        """Whether every caller may read without authentication."""
        return self.keys is None and not self.certificates and not self.proxies

    @property
    def cors(self) -> Cors:
        """The pages that may read answers."""
        return Cors(self.origins, is_open=self.is_off, credentials=self.certificates or bool(self.proxies))

    async def identify(self, request: Request, headers: Mapping[str, str], route: Route) -> Caller | None:
        """The caller; None if the route does not need one. Header names are in lower case.

        Raises:
            RequestError: the caller is unknown.
        """
        if self.is_off:
            return await self._find_connection_owner(request, headers) if route.changes else None
        if route.access is Access.ANYBODY:
            return None
        address = request.client.host if request.client else ""
        extensions = request.scope.get("extensions") or {}
        certificate: object = extensions.get(CERTIFICATE_EXTENSION, {}).get("owner")
        assert certificate is None or isinstance(certificate, Identity)
        found, reason = None, "The caller is not authenticated"
        try:
            found = self.authenticate(request.scope["headers"], address, certificate)
        except UntrustedHeaders as error:
            self._log_refusal(request, str(error))
            raise RequestError(403, f"Refused: {error}") from None
        except credentials.InvalidToken as error:
            reason = f"The token is invalid: {error}"
        if found is None:
            self._log_refusal(request, reason)
            raise RequestError(401, f"{reason}. {self._advise()}")
        identity, method = found
        is_admin = self.admins.allows(identity.user, identity.groups)
        actor = Actor(user=identity.user, groups=list(identity.groups), scheduler_admin=is_admin)
        return Caller(actor, method, identity.read_only)

    def authenticate(
        self, headers: credentials.Headers, address: str, certificate: Identity | None = None
    ) -> tuple[Identity, str] | None:
        """The sender of a request with these headers from this address, and the method that identifies them; None if
        nothing does. `certificate` is the owner of the client certificate.

        Raises:
            InvalidToken: their token is invalid.
            UntrustedHeaders: a sender that is no trusted proxy names a user, or a proxy does so ambiguously.
        """
        trusted = credentials.is_among(self.proxies, address)
        if credentials.claims_identity(headers) and not trusted:
            raise UntrustedHeaders(
                f"{address} is no proxy that may send X-Forwarded-User or X-Forwarded-Groups; those are named by the"
                " setting auth-proxy"
            )
        token = _find_bearer_token(headers)
        if self.keys is not None and token is not None:
            keys, now = self.keys.keys(), self.clock()
            return credentials.verify_token(token, keys, now=now, issuer=self.issuer, audience=self.audience), TOKEN
        if self.certificates and certificate is not None:
            return certificate, CERTIFICATE
        proxied = credentials.proxied_identity(headers) if trusted else None
        return None if proxied is None else (proxied, PROXY)

    def _advise(self) -> str:
        """How to authenticate, by each method that is on."""
        ways = {
            "a token (`yunishard token` makes one) in the header `Authorization: Bearer TOKEN`": self.keys is not None,
            "a client certificate": self.certificates,
            "the proxy in front of this port, where you log in": bool(self.proxies),
        }
        return "Authenticate by " + ", or ".join(way for way, is_on in ways.items() if is_on)

    def authorize(self, request: Request, headers: Mapping[str, str], route: Route, caller: Caller | None) -> None:
        """Check that the caller may use the route, and that no page of another site made their browser send it.

        Raises:
            RequestError: 403.
        """
        if caller is None:
            return
        if route.changes and caller.method in (CERTIFICATE, PROXY):  # browsers send these by themselves
            scheme, host = request.scope["scheme"], headers.get("host", "")
            if caller.method == PROXY:
                scheme, host = headers.get("x-forwarded-proto", scheme), headers.get("x-forwarded-host", host)
            reason = explain_foreign_page(headers, allowed=(f"{scheme}://{host}".lower(), *self.origins))
            if reason:
                raise RequestError(403, f"Refused: {reason}")
        if route.access is Access.ADMINS and not caller.actor.scheduler_admin:
            raise RequestError(
                403,
                f"User {caller.actor.user!r} is not a scheduler administrator, and only they may do this."
                " Ask one of them, or to be named by the setting scheduler-admins",
            )
        if route.changes and caller.read_only:
            text = "The token is read-only (scope read): use one without that scope to change something"
            raise RequestError(403, text)

    def check_host(self, request: Request, headers: Mapping[str, str]) -> None:
        """Check that a request for a private answer names this server as its host.

        Without TLS and without `auth`, this is the only protection against a page whose site resolves its own name to
        this server's address (DNS rebinding): the browser would let that page read the answer.

        Raises:
            RequestError: 403, it names another host.
        """
        host = headers.get("host", "")
        if not self.is_off or request.scope["scheme"] != "http" or is_known_host(host, self.hosts):
            return
        shown = escape_for_log(host, length_max=HOST_LENGTH_MAX)
        self._log_refusal(request, f"Host {shown} is not a known name of this server")
        raise RequestError(
            403,
            f"Refused: Host {host[:HOST_LENGTH_MAX]!r} is not a known name of this server, so a page of another site"
            " may be asking (DNS rebinding). Ask by address, or name the host by the setting rest-hosts",
        )

    def _log_refusal(self, request: Request, reason: str) -> None:
        more = self._log_limit.admit(self.clock())
        if more is not None:
            path = escape_for_log(request.scope["raw_path"])
            host = request.client.host if request.client else "an unknown address"
            _log.info("refused: %s %s from %s: %s%s", request.method, path, host, reason, more)

    async def _find_connection_owner(self, request: Request, headers: Mapping[str, str]) -> Caller:
        client, server = request.scope.get("client"), request.scope.get("server")
        if client is None or server is None:
            raise RequestError(403, "Refused: it is not known where the request came from")
        reason = explain_not_local(headers, scheme=request.scope["scheme"], server=server[0])
        if reason:
            raise RequestError(403, f"Refused: {reason}")
        return Caller(await self.users.find_owner((client[0], client[1]), (server[0], server[1])), LOOPBACK)


def find_viewer(caller: Caller | None) -> Actor | None:
    """The actor whose view limits the answer; None for a caller who may see everything."""
    if caller is None or caller.method == LOOPBACK or caller.actor.scheduler_admin:
        return None
    return caller.actor
