"""Who may use which route: whoever a request shows its sender to be is held against the rule of the route.

Where the door is open everybody may read, and changes are for the operating-system users whom the kernel names. Else
everybody has to say who they are, except where the route's rule wants nobody's name.
Not here: how people say who they are (`door.py`, `people.py`), what of a partition they see (its worker knows).
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from common.acl import NOBODY, Acl
from common.query_messages import Actor
from webservice.access import Access
from webservice.audit import AuditLog
from webservice.authn import CERTIFICATE, LOOPBACK, PROXY, Asked, Caller, Door, Nobody, People, Stranger
from webservice.calls import ApiRoute, Changing
from webservice.credentials import EXTENSION, Certificate, Unbelievable
from webservice.cross_site import Cors, foreign_page, is_known_host, objection
from webservice.parameters import written
from webservice.views import RequestError

OPEN: Final = Door()

TOLD_A_MINUTE_MAX: Final = 10
"""Lines in the log about people who were not let in; the others are counted."""

HOST_LENGTH_MAX: Final = 255
"""Characters of a header `Host` that a refusal repeats; a name has no more."""

_log = logging.getLogger("core.rest")


class Entrance:
    """Lets people in. `origins` are those of pages that may use the API, `hosts` the names of this server in lower
    case, `admins` the scheduler administrators where the door is not open.
    """

    def __init__(
        self,
        people: People,
        door: Door = OPEN,
        *,
        admins: Acl = NOBODY,
        origins: tuple[str, ...] = (),
        hosts: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._people = people
        self._door = door
        self._admins = admins
        self._origins = origins
        self._hosts = hosts
        self._clock = clock
        self._minute, self._told, self._untold = 0, 0, 0
        """The minute in which somebody was not let in the last time, and how many of that are in the log and not."""

    @property
    def is_open(self) -> bool:
        """Whether everybody may read without saying who they are."""
        return self._door.is_open

    async def caller(self, request: Request, headers: Mapping[str, str], route: ApiRoute) -> Caller | None:
        """Who asks, as far as this route wants to know it; None if it does not. `headers` by name in lower case.

        Raises:
            RequestError: it is not known who asks.
        """
        if self._door.is_open:
            return await self._owner(request, headers) if isinstance(route.answer, Changing) else None
        return None if route.access is Access.ANYBODY else self._known(request)

    def admit(self, request: Request, headers: Mapping[str, str], route: ApiRoute, caller: Caller | None) -> None:
        """See that who asks may use the route, and that no page of somebody else has made their browser ask.

        Raises:
            RequestError: it is not so.
        """
        if caller is None:
            return
        if isinstance(route.answer, Changing) and caller.way in (CERTIFICATE, PROXY):  # browsers send these themselves
            reason = foreign_page(headers, allowed=self._own(request, headers, caller))
            if reason:
                raise RequestError(403, f"Refused: {reason}")
        _require_right(caller, route)

    def check_host(self, request: Request, headers: Mapping[str, str]) -> None:
        """Check that a request for a private answer names this server as its host.

        Without TLS and without `auth`, nothing else keeps a page from reading it that gave its own name our address
        (DNS rebinding): to the browser the answer is the page's own.

        Raises:
            RequestError: 403, it names another host.
        """
        host = headers.get("host", "")
        if not self._door.is_open or request.scope["scheme"] != "http" or is_known_host(host, self._hosts):
            return
        self._tell(request, f"Host {written(host, length_max=HOST_LENGTH_MAX)} is not a known name of this server")
        raise RequestError(
            403,
            f"Refused: Host {host[:HOST_LENGTH_MAX]!r} is not a known name of this server, so a page of another site"
            " may be asking (DNS rebinding). Ask by address, or name the host by the setting rest-hosts",
        )

    def _known(self, request: Request) -> Caller:
        client = request.client
        asked = Asked(request.scope["headers"], client.host if client else "", _certificate(request))
        try:
            person, way = self._door.person(asked)
        except Stranger as stranger:
            self._tell(request, stranger.reason)
            raise RequestError(401, str(stranger)) from None
        except Unbelievable as reason:
            self._tell(request, str(reason))
            raise RequestError(403, f"Refused: {reason}") from None
        is_admin = self._admins.allows(person.user, person.groups)
        actor = Actor(user=person.user, groups=list(person.groups), scheduler_admin=is_admin)
        return Caller(actor, way, person.read_only)

    def _tell(self, request: Request, reason: str) -> None:
        """Log that somebody was not let in, but not without end."""
        minute = int(self._clock() // 60)
        if minute != self._minute:
            if self._untold:
                _log.info("requests refused in that minute besides those logged: %d", self._untold)
            self._minute, self._told, self._untold = minute, 0, 0
        if self._told == TOLD_A_MINUTE_MAX:
            self._untold += 1
            return
        self._told += 1
        what = written(request.scope["raw_path"])
        host = request.client.host if request.client else "an unknown address"
        _log.info("refused: %s %s from %s: %s", request.method, what, host, reason)

    def _own(self, request: Request, headers: Mapping[str, str], caller: Caller) -> tuple[str, ...]:
        """The origins whose pages may change something: ours, as the browser sees it, and those that are allowed."""
        scheme, host = request.scope["scheme"], headers.get("host", "")
        if caller.way == PROXY:
            scheme = headers.get("x-forwarded-proto", scheme)
            host = headers.get("x-forwarded-host", host)
        return (f"{scheme}://{host}".lower(), *self._origins)

    async def _owner(self, request: Request, headers: Mapping[str, str]) -> Caller:
        client, server = request.scope.get("client"), request.scope.get("server")
        if client is None or server is None:
            raise RequestError(403, "Refused: it is not known where the request came from")
        reason = objection(headers, scheme=request.scope["scheme"], server=server[0])
        if reason:
            raise RequestError(403, f"Refused: {reason}")
        try:
            return Caller(await self._people.actor((client[0], client[1]), (server[0], server[1])), LOOPBACK)
        except Nobody as nobody:
            raise RequestError(403, f"It is not known who asks: {nobody}") from None


def _require_right(caller: Caller, route: ApiRoute) -> None:
    if route.access is Access.ADMINS and not caller.actor.scheduler_admin:
        raise RequestError(
            403,
            f"User {caller.actor.user!r} is not a scheduler administrator, and only they may do this."
            " Ask one of them, or to be named by the setting scheduler-admins",
        )
    if isinstance(route.answer, Changing) and caller.read_only:
        raise RequestError(403, "The token is only for looking (scope read): use one without it to change something")


def _certificate(request: Request) -> Certificate | None:
    """The one that its connection came with."""
    extensions = request.scope.get("extensions") or {}
    shown: object = extensions.get(EXTENSION, {}).get("shown")
    assert shown is None or isinstance(shown, Certificate)
    return shown


def viewer_of(caller: Caller | None) -> Actor | None:
    """Whose view of the partitions the answer is; None for that of one who may see everything."""
    if caller is None or caller.way == LOOPBACK or caller.actor.scheduler_admin:
        return None
    return caller.actor


@dataclass(frozen=True, slots=True)
class Guard:
    """Who is let in, whose pages may read, and where changes are written down; None for nowhere."""

    entrance: Entrance
    cors: Cors
    audit: AuditLog | None = None
