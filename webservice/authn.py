"""Who stands at the door: the ways to say who one is, one after the other, and the first that says something counts.

Not here: the ways themselves (`tokens.py`, `certificates.py`, `proxies.py`), what somebody may do (`entrance.py`).
"""

import asyncio
import grp
import os
import pwd
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from common.acl import NOBODY, Acl
from common.group_ids import group_ids
from common.query_messages import Actor
from webservice.credentials import (
    Certificate,
    Headers,
    Network,
    Person,
    Unbelievable,
    end_of,
    is_among,
    names_somebody,
    owner_of,
    owners,
    person_behind,
)
from webservice.tokens import KeyFile, Terms, Wrong, bearer_of

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


LOOK_UP_MAX_S: Final = 5.0
"""How long the operating system may take to say who somebody is; a directory service behind it may not answer."""

LOOK_UPS_MAX: Final = 2
"""At the same time, in threads of their own, so that a slow one delays only those who want to change something."""

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_NEXT: Final = "changes are taken only from this machine, over its loopback address: log in there and ask 127.0.0.1"


class Nobody(Exception):
    """Who asks is not known; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user as the operating system knows them; the primary group comes first."""

    user: str
    groups: list[str]


def account(uid: int) -> Account:
    """The account of a user id; one without an account is called by its number, which no list can name."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Account(str(uid), [])
    groups = []
    for gid in group_ids(entry.pw_name, entry.pw_gid):
        with suppress(KeyError):  # a group without a name cannot be on a list
            groups.append(grp.getgrgid(gid).gr_name)
    return Account(entry.pw_name, groups)


def socket_tables() -> list[str]:
    """What the kernel says of all connections now; a table that there is not, is empty."""
    texts = []
    for table in _TABLES:
        with suppress(FileNotFoundError):  # there is no IPv6, or this is not Linux
            texts.append(table.read_text(encoding="ascii"))
    return texts


class People:
    """Tells who asks. `own_uid` is the user this process runs as, who is always a scheduler administrator."""

    def __init__(
        self,
        scheduler_admins: Acl = NOBODY,
        *,
        own_uid: int | None = None,
        tables: Callable[[], list[str]] = socket_tables,
        account: Callable[[int], Account] = account,
    ) -> None:
        self._admins = scheduler_admins
        self._own_uid = os.getuid() if own_uid is None else own_uid
        self._tables = tables
        self._account = account
        self._threads = ThreadPoolExecutor(LOOK_UPS_MAX, thread_name_prefix="people")

    async def actor(self, client: tuple[str, int], server: tuple[str, int]) -> Actor:
        """Who holds the other end of a connection.

        Raises:
            Nobody: it comes from elsewhere, or its owner was not found.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(LOOK_UP_MAX_S):
                return await loop.run_in_executor(self._threads, self._look_up, client, server)
        except TimeoutError:
            raise Nobody(f"the operating system did not say within {LOOK_UP_MAX_S:g} s who asks; try again") from None

    def close(self) -> None:
        """Start no more look-ups."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _look_up(self, client: tuple[str, int], server: tuple[str, int]) -> Actor:
        uid = self._owner(client, server)
        try:
            known = self._account(uid)
        except OSError as error:
            raise Nobody(f"the account of user {uid} cannot be looked up: {error}; try again") from None
        is_admin = uid == self._own_uid or self._admins.allows(known.user, known.groups)
        return Actor(user=known.user, groups=known.groups, scheduler_admin=is_admin)

    def _owner(self, client: tuple[str, int], server: tuple[str, int]) -> int:
        try:
            theirs, ours = end_of(*client), end_of(*server)
        except ValueError:
            raise Nobody(f"the request came from {client[0]!r}; {_NEXT}") from None
        if not theirs.address.is_loopback:
            raise Nobody(f"the request came from {theirs.address}; {_NEXT}")
        try:
            tables = self._tables()
        except OSError as error:
            raise Nobody(f"the owner of the connection cannot be looked up: {error}") from None
        found = [uid for table in tables for uid in owners(table, local=theirs, remote=ours)]
        if len(found) != 1:
            raise Nobody(
                f"the owner of the connection from {theirs.address} port {theirs.port} was not found, which needs Linux"
                " and a client in the same network namespace that keeps its connection open; try again from there"
            )
        return found[0]
