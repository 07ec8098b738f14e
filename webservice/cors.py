"""Which pages of other sites may read what the API answers: the headers that tell their browsers (CORS).

Without anything said all may, as with YuniKorn, but for what is private. Once people have to say who they are, or sites
are named, only those that are named may; then an answer differs by who asks, and says so.

Not here: whether a page may change something (`same_site.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
