"""Who stands at the door: the ways to say who one is, one after the other, and the first that says something counts.

Not here: the ways themselves (`tokens.py`, `certificates.py`, `proxies.py`), what somebody may do (`entrance.py`).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from common.query_messages import Actor
from webservice.door.certificates import Certificate, owner_of
from webservice.door.key_file import KeyFile
from webservice.door.person import Person
from webservice.door.proxies import Headers, Network, Unbelievable, is_among, names_somebody, person_behind
from webservice.door.tokens import Terms, Wrong, bearer_of

TOKEN: Final = "token"  # noqa: S105 - the way, no secret
CERTIFICATE: Final = "certificate"
PROXY: Final = "proxy"
LOOPBACK: Final = "loopback"
"""Nobody has to say who they are: the kernel does, of connections from this machine (`people.py`)."""

_BEARER: Final = "bearer "


class Stranger(Exception):
    """It is not known who asks; the text says why, and what to do, `reason` only why."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}. {advice}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and how that is known."""

    actor: Actor
    way: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request shows of who sent it."""

    headers: Headers
    address: str
    certificate: Certificate | None = None


@dataclass(frozen=True, slots=True)
class Door:
    """How people may say who they are; open to everybody if there is no way."""

    keys: KeyFile | None = None
    """Of tokens; None if tokens do not count."""
    terms: Terms = field(default_factory=Terms)
    certificates: bool = False
    """Whether those that TLS has found right count."""
    proxies: tuple[Network, ...] = ()
    """Whose word counts."""
    clock: Callable[[], float] = time.time

    @property
    def is_open(self) -> bool:
        """Whether nobody has to say who they are."""
        return self.keys is None and not self.certificates and not self.proxies

    def person(self, asked: Asked) -> tuple[Person, str]:
        """Who asks, and by which way that is known.

        Raises:
            Stranger: nothing says so, or a token that does not count.
            Unbelievable: somebody says so who must not.
        """
        trusted = is_among(self.proxies, asked.address)
        if names_somebody(asked.headers) and not trusted:
            raise Unbelievable(
                f"{asked.address} is no proxy that may say for whom it asks (X-Forwarded-User, X-Forwarded-Groups);"
                " those are named by the setting auth-proxy"
            )
        token = _token(asked.headers)
        if self.keys is not None and token is not None:
            try:
                return bearer_of(token, self.keys.keys(), terms=self.terms, now=self.clock()), TOKEN
            except Wrong as wrong:
                raise Stranger(f"The token does not count: {wrong}", self._advice()) from None
        owner = owner_of(asked.certificate) if self.certificates and asked.certificate else None
        if owner is not None:
            return owner, CERTIFICATE
        behind = person_behind(asked.headers) if trusted else None
        if behind is not None:
            return behind, PROXY
        raise Stranger("It is not known who asks", self._advice())

    def _advice(self) -> str:
        """What to do, by each way that there is."""
        ways = []
        if self.keys is not None:
            ways.append("a token (`yunishard token` makes one) in the header `Authorization: Bearer TOKEN`")
        if self.certificates:
            ways.append("a client certificate")
        if self.proxies:
            ways.append("the proxy in front of this port, where you log in")
        return f"Say so by {', or '.join(ways)}"


def _token(headers: Headers) -> str | None:
    """What follows `Bearer` in the header Authorization; None if there is none, or another kind of it."""
    found = [value.decode("latin-1") for name, value in headers if name == b"authorization"]
    if len(found) > 1:
        return ""  # which of them counts, nobody can say; as a token it is none
    if not found or not found[0].lower().startswith(_BEARER):
        return None
    return found[0][len(_BEARER) :].strip()
