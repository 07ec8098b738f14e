"""Whether a request that changes something, or asks for a private answer, may come from a web page of somebody else.

A browser sends what any page tells it to, also to this machine, and a page may even give its own name this machine's
address. So such a request must name this machine by an address, and if a browser says on whose behalf it asks, that
must be us. Programs such as curl say nothing of the kind. Not here: who asks (`people.py`).
"""

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_FORWARDED: Final = (
    *("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip"),
    *("x-forwarded-user", "x-forwarded-groups"),
)
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z_.-]+)(?::[0-9]*)?")
ANY_HOST: Final = "*"
"""In a list of names of this server: every name is one of them."""

_NEXT: Final = "Ask the address itself, such as http://127.0.0.1:PORT, from a terminal of this machine"


def objection(headers: Mapping[str, str], *, scheme: str, server: str) -> str:
    """Why such a request is not taken; empty if it is.

    Args:
        headers: By name in lower case.
        scheme: `http` or `https`, as the connection is.
        server: The address of this machine at which the request arrived.
    """
    host = headers.get("host", "")
    if not _is_this_machine(_host_name(host), server):
        return f"Host {host!r} is not an address of this machine. {_NEXT}"
    reason = foreign_page(headers, allowed=(f"{scheme}://{host}".lower(),))
    if reason:
        return f"{reason}. {_NEXT}"
    forwarded = [name for name in _FORWARDED if name in headers]
    if forwarded:
        return f"the header {forwarded[0]} says that a proxy asks for somebody who is not known here. {_NEXT}"
    return ""


def foreign_page(headers: Mapping[str, str], *, allowed: Collection[str]) -> str:
    """Why a page may not have sent such a request that changes something; empty if it may, or no page did.

    Args:
        headers: By name in lower case.
        allowed: The origins whose pages may, in lower case.
    """
    origin = headers.get("origin")
    if origin is not None:
        return "" if origin.lower() in allowed else f"a page of {origin!r} may not change anything here"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return "a page of another site may not change anything here"
    return ""


def is_known_host(host: str, names: Collection[str]) -> bool:
    """Whether a header `Host` names this server, so that no page can have sent it by giving its own name our address
    (DNS rebinding): an address, `localhost`, or a known name.

    Args:
        host: With or without a port.
        names: In lower case; `*` stands for every name.
    """
    if ANY_HOST in names:
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
    """The name or address in a Host header, without its port; empty if it cannot be read."""
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


ANY: Final = "*"

SENT: Final = "Authorization,Content-Type,Accept,If-Match,If-None-Match,X-Requested-With"
"""Headers that a page of a named site may send."""

READ: Final = "ETag,Link,Location,Retry-After,WWW-Authenticate,X-Request-Id"
"""Headers of an answer that it may read, besides those that every page may."""

PREFLIGHT_S: Final = 600
"""How long a browser may remember what it was told before a request."""


@dataclass(frozen=True, slots=True)
class Cors:
    """Whose pages may read. `origins` are those of the setting, `is_open` says that nobody has to say who they are."""

    origins: tuple[str, ...] = ()
    is_open: bool = True
    credentials: bool = False
    """Whether people are known by what their browser sends by itself, which a named site may then rely on."""

    @property
    def named_only(self) -> bool:
        """Whether only the sites named may read."""
        return not self.is_open or self.origins not in ((), (ANY,))

    def headers(self, origin: str | None, methods: Sequence[str], *, private: bool) -> Mapping[str, str]:
        """What to add to an answer.

        Args:
            origin: Of the page that asks; None if none does.
            methods: That the path has.
            private: Whether the answer is none that YuniKorn has, or that to a change.
        """
        allowed = ",".join(methods) if self.named_only else ", ".join(methods)
        if not self.named_only:
            found = {"Access-Control-Allow-Origin": ANY, "Access-Control-Allow-Methods": allowed}
            return {} if private else {**found, "Access-Control-Allow-Headers": _SENT_ANYWHERE}
        if origin is None or origin == ANY or origin.lower() not in self.origins or (private and self.is_open):
            return {"Vary": "Origin"}
        found = {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": allowed,
            "Access-Control-Allow-Headers": SENT,
            "Access-Control-Expose-Headers": READ,
        }
        return {**found, "Access-Control-Allow-Credentials": "true"} if self.credentials else found

    def preflight(self, origin: str | None, methods: Sequence[str]) -> Mapping[str, str]:
        """What a browser wants to know before it sends a request for a page."""
        if not self.named_only:
            return {}
        found = self.headers(origin, methods, private=False)
        return {**found, "Access-Control-Max-Age": str(PREFLIGHT_S)} if len(found) > 1 else found


_SENT_ANYWHERE: Final = "X-Requested-With,Content-Type,Accept,Origin"
"""As YuniKorn says it."""
