"""Authorization: decides by the access rule of a route whether the caller of a request may use it.

While authentication is off, everybody may read, and changes are for users of this machine, identified by the kernel.
While it is on, every caller has to authenticate, except for routes with the rule `ANYBODY`. Also refuses requests that
a page of another site made the caller's browser send. What a caller sees of a partition is decided by its worker.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from common.acl import NOBODY, Acl
from common.query_messages import Actor
from webservice.audit import AuditLog
from webservice.authn import (
    CERTIFICATE,
    LOOPBACK,
    PROXY,
    Authenticator,
    Caller,
    Credentials,
    LoopbackUsers,
    Unauthenticated,
    UnknownUser,
)
from webservice.credentials import CERTIFICATE_EXTENSION, Certificate, UntrustedHeaders
from webservice.cross_site import Cors, explain_foreign_page, explain_not_local, is_known_host
from webservice.parameters import escape_for_log
from webservice.router import Access, Route
from webservice.views import RequestError

AUTHENTICATION_OFF: Final = Authenticator()

LOGGED_A_MINUTE_MAX: Final = 10
"""Log lines about refused requests; further ones are counted."""

HOST_LENGTH_MAX: Final = 255
"""Characters of a header `Host` that an error repeats; a valid name is not longer."""

_log = logging.getLogger("core.rest")


class Authorizer:
    """Identifies and authorizes callers.

    Args:
        users: Identifies users of this machine, while authentication is off.
        authenticator: The methods of authentication.
        admins: The scheduler administrators, while authentication is on.
        origins: Origins of other sites whose pages may use the API.
        hosts: Names of this server, in lower case.
    """

    def __init__(
        self,
        users: LoopbackUsers,
        authenticator: Authenticator = AUTHENTICATION_OFF,
        *,
        admins: Acl = NOBODY,
        origins: tuple[str, ...] = (),
        hosts: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._users = users
        self._authenticator = authenticator
        self._admins = admins
        self._origins = origins
        self._hosts = hosts
        self._clock = clock
        self._minute, self._logged, self._unlogged = 0, 0, 0
        """The minute of the latest refusal, and how many refusals of that minute are in the log, and are not."""

    @property
    def is_off(self) -> bool:
        """Whether everybody may read without authentication."""
        return self._authenticator.is_off

    async def identify(self, request: Request, headers: Mapping[str, str], route: Route) -> Caller | None:
        """The caller; None if the route does not need one. Header names are in lower case.

        Raises:
            RequestError: the caller is unknown.
        """
        if self._authenticator.is_off:
            return await self._connection_owner(request, headers) if route.changes else None
        return None if route.access is Access.ANYBODY else self._authenticated(request)

    def authorize(self, request: Request, headers: Mapping[str, str], route: Route, caller: Caller | None) -> None:
        """Check that the caller may use the route, and that no page of another site made their browser send it.

        Raises:
            RequestError: 403.
        """
        if caller is None:
            return
        if route.changes and caller.method in (CERTIFICATE, PROXY):  # browsers send these by themselves
            reason = explain_foreign_page(headers, allowed=self._own_origins(request, headers, caller))
            if reason:
                raise RequestError(403, f"Refused: {reason}")
        _require_right(caller, route)

    def check_host(self, request: Request, headers: Mapping[str, str]) -> None:
        """Check that a request for a private answer names this server as its host.

        Without TLS and without `auth`, this is the only protection against a page whose site resolves its own name to
        this server's address (DNS rebinding): the browser would let that page read the answer.

        Raises:
            RequestError: 403, it names another host.
        """
        host = headers.get("host", "")
        if not self.is_off or request.scope["scheme"] != "http" or is_known_host(host, self._hosts):
            return
        shown = escape_for_log(host, length_max=HOST_LENGTH_MAX)
        self._log_refusal(request, f"Host {shown} is not a known name of this server")
        raise RequestError(
            403,
            f"Refused: Host {host[:HOST_LENGTH_MAX]!r} is not a known name of this server, so a page of another site"
            " may be asking (DNS rebinding). Ask by address, or name the host by the setting rest-hosts",
        )

    def _authenticated(self, request: Request) -> Caller:
        client = request.client
        credentials = Credentials(request.scope["headers"], client.host if client else "", _certificate(request))
        try:
            identity, method = self._authenticator.authenticate(credentials)
        except Unauthenticated as error:
            self._log_refusal(request, error.reason)
            raise RequestError(401, str(error)) from None
        except UntrustedHeaders as reason:
            self._log_refusal(request, str(reason))
            raise RequestError(403, f"Refused: {reason}") from None
        is_admin = self._admins.allows(identity.user, identity.groups)
        actor = Actor(user=identity.user, groups=list(identity.groups), scheduler_admin=is_admin)
        return Caller(actor, method, identity.read_only)

    def _log_refusal(self, request: Request, reason: str) -> None:
        """Log a refusal, up to the bound of this minute."""
        minute = int(self._clock() // 60)
        if minute != self._minute:
            if self._unlogged:
                _log.info("requests refused in that minute besides those logged: %d", self._unlogged)
            self._minute, self._logged, self._unlogged = minute, 0, 0
        if self._logged == LOGGED_A_MINUTE_MAX:
            self._unlogged += 1
            return
        self._logged += 1
        path = escape_for_log(request.scope["raw_path"])
        host = request.client.host if request.client else "an unknown address"
        _log.info("refused: %s %s from %s: %s", request.method, path, host, reason)

    def _own_origins(self, request: Request, headers: Mapping[str, str], caller: Caller) -> tuple[str, ...]:
        """The origins whose pages may change something: this server, as the browser sees it, and the allowed ones."""
        scheme, host = request.scope["scheme"], headers.get("host", "")
        if caller.method == PROXY:
            scheme = headers.get("x-forwarded-proto", scheme)
            host = headers.get("x-forwarded-host", host)
        return (f"{scheme}://{host}".lower(), *self._origins)

    async def _connection_owner(self, request: Request, headers: Mapping[str, str]) -> Caller:
        client, server = request.scope.get("client"), request.scope.get("server")
        if client is None or server is None:
            raise RequestError(403, "Refused: it is not known where the request came from")
        reason = explain_not_local(headers, scheme=request.scope["scheme"], server=server[0])
        if reason:
            raise RequestError(403, f"Refused: {reason}")
        try:
            return Caller(await self._users.find_owner((client[0], client[1]), (server[0], server[1])), LOOPBACK)
        except UnknownUser as error:
            raise RequestError(403, f"The caller is unknown: {error}") from None


def _require_right(caller: Caller, route: Route) -> None:
    if route.access is Access.ADMINS and not caller.actor.scheduler_admin:
        raise RequestError(
            403,
            f"User {caller.actor.user!r} is not a scheduler administrator, and only they may do this."
            " Ask one of them, or to be named by the setting scheduler-admins",
        )
    if route.changes and caller.read_only:
        raise RequestError(403, "The token is read-only (scope read): use one without that scope to change something")


def _certificate(request: Request) -> Certificate | None:
    """The client certificate of the connection."""
    extensions = request.scope.get("extensions") or {}
    shown: object = extensions.get(CERTIFICATE_EXTENSION, {}).get("shown")
    assert shown is None or isinstance(shown, Certificate)
    return shown


def viewer_of(caller: Caller | None) -> Actor | None:
    """The actor whose view limits the answer; None for a caller who may see everything."""
    if caller is None or caller.method == LOOPBACK or caller.actor.scheduler_admin:
        return None
    return caller.actor


@dataclass(frozen=True, slots=True)
class AccessControl:
    """How requests are authorized, which other sites may read answers, and where changes are audited."""

    authorizer: Authorizer
    cors: Cors
    audit: AuditLog | None = None
    """None for no audit log."""
