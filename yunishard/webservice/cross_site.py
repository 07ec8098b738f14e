"""Protection against pages of other sites: which may read answers (CORS), and which requests they may not send.

A browser sends the requests of a page also to this machine, and a site may resolve its own name to the address of this
machine. So a request that changes something, or asks for a private answer, must name this server as its host, and its
origin, if the browser sends one, must be this server. Programs such as curl send no origin.

Without further settings every page may read what YuniKorn serves, as with YuniKorn itself. Once authentication is on,
or sites are named, only the named sites may; the answer then varies by origin, and has the header `Vary`.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

ANY: Final = "*"
"""Every origin, or every name of this server."""

_FORWARDED: Final = (
    *("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"),
    *("x-forwarded-user", "x-forwarded-groups"),
)
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z_.-]+)(?::[0-9]*)?")
_NEXT: Final = "Ask the address itself, such as http://127.0.0.1:PORT, from a terminal of this machine"


def explain_not_local(headers: Mapping[str, str], *, scheme: str, server: str) -> str:
    """Why a request is refused that changes something without authentication; empty if it is accepted. It must come
    from this machine, and not from a page of another site or through a proxy.

    Args:
        headers: By name in lower case.
        scheme: The scheme of the connection.
        server: The local address of the connection.
    """
    host = headers.get("host", "")
    if not _is_this_machine(_host_name(host), server):
        return f"Host {host!r} is not an address of this machine. {_NEXT}"
    reason = explain_foreign_page(headers, allowed=(f"{scheme}://{host}".lower(),))
    if reason:
        return f"{reason}. {_NEXT}"
    forwarded = [name for name in _FORWARDED if name in headers]
    if forwarded:
        return f"the header {forwarded[0]} shows that a proxy sent the request for an unknown user. {_NEXT}"
    return ""


def explain_foreign_page(headers: Mapping[str, str], *, allowed: Collection[str]) -> str:
    """Why a request that changes something is refused because a page sent it; empty if no page did, or an allowed one.

    Args:
        headers: By name in lower case.
        allowed: The origins whose pages may send it, in lower case.
    """
    origin = headers.get("origin")
    if origin is not None:
        return "" if origin.lower() in allowed else f"a page of {origin!r} may not change anything here"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "a page of another site may not change anything here"
    return ""


def is_known_host(host: str, names: Collection[str]) -> bool:
    """Whether a header `Host` names this server: an address, `localhost`, or a known name. A page of another site
    cannot send such a header (DNS rebinding).

    Args:
        host: With or without a port.
        names: Known names in lower case; `*` means every name.
    """
    if ANY in names:
        return True
    name = _host_name(host).lower().removesuffix(".")
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_name(host: str) -> str:
    """The name or address in a Host header, without its port; empty if it is malformed."""
    match = _HOST.fullmatch(host)
    return match.group(1).strip("[]") if match else ""


def _is_this_machine(name: str, server: str) -> bool:
    if name.lower().removesuffix(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
        return address.is_loopback or address == ipaddress.ip_address(server)
    except ValueError:
        return False


REQUEST_HEADERS: Final = "Authorization,Content-Type,Accept,If-Match,If-None-Match,X-Requested-With"
"""Headers that a page of a named site may send."""

ANSWER_HEADERS: Final = "ETag,Link,Location,Retry-After,WWW-Authenticate,X-Request-Id"
"""Headers of an answer that such a page may read, besides the ones that every page may read."""

PREFLIGHT_S: Final = 600
"""Seconds for which a browser may cache the answer to a preflight request."""


@dataclass(frozen=True, slots=True)
class Cors:
    """Which pages may read answers. `origins` is the setting `cors`; `is_open` means that authentication is off."""

    origins: tuple[str, ...] = ()
    is_open: bool = True
    credentials: bool = False
    """Whether browsers authenticate by themselves (certificate or proxy), and pages of named sites may rely on that."""

    @property
    def named_only(self) -> bool:
        """Whether only pages of named sites may read answers."""
        return not self.is_open or self.origins not in ((), (ANY,))

    def headers(self, origin: str | None, methods: Sequence[str], *, private: bool) -> Mapping[str, str]:
        """The CORS headers of an answer.

        Args:
            origin: Of the page that sent the request; None without one.
            methods: The methods of the path.
            private: Whether the route is not one of YuniKorn, or changes something.
        """
        if not self.named_only:
            found = {"Access-Control-Allow-Origin": ANY, "Access-Control-Allow-Methods": ", ".join(methods)}
            return {} if private else {**found, "Access-Control-Allow-Headers": _SENT_ANYWHERE}
        if origin is None or origin == ANY or origin.lower() not in self.origins or (private and self.is_open):
            return {"Vary": "Origin"}
        found = {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": ",".join(methods),
            "Access-Control-Allow-Headers": REQUEST_HEADERS,
            "Access-Control-Expose-Headers": ANSWER_HEADERS,
        }
        return {**found, "Access-Control-Allow-Credentials": "true"} if self.credentials else found

    def preflight(self, origin: str | None, methods: Sequence[str]) -> Mapping[str, str]:
        """The headers of an answer to a preflight request."""
        if not self.named_only:
            return {}
        found = self.headers(origin, methods, private=False)
        return {**found, "Access-Control-Max-Age": str(PREFLIGHT_S)} if len(found) > 1 else found


_SENT_ANYWHERE: Final = "X-Requested-With,Content-Type,Accept,Origin"
"""The value that YuniKorn sends."""
