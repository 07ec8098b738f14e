"""Authentication: who sent a request, by a token, a client certificate, a trusted proxy, or the owner of a loopback
connection.

`Authenticator` tries the methods that are switched on, one after the other; the first that identifies the caller
counts. Without any, everybody may read, and changes are for users of this machine: `LoopbackUsers` asks the kernel
which user owns the client's socket. What a caller may do is decided in `authz.py`.
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
    Identity,
    Network,
    UntrustedHeaders,
    certificate_owner,
    claims_identity,
    is_among,
    proxied_identity,
    socket_end,
    socket_owners,
)
from webservice.tokens import InvalidToken, KeyFile, TokenTerms, verify_token

TOKEN: Final = "token"  # noqa: S105 - the name of the method, no secret
CERTIFICATE: Final = "certificate"
PROXY: Final = "proxy"
LOOPBACK: Final = "loopback"
"""The methods, as the setting `auth` and the audit log name them. Loopback is the method without that setting."""

_BEARER: Final = "bearer "


class Unauthenticated(Exception):
    """The caller is unknown; the text says why and what to do, `reason` only why."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(f"{reason}. {advice}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller, and the method that identified them."""

    actor: Actor
    method: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request carries that may identify its sender."""

    headers: Headers
    address: str
    certificate: Certificate | None = None


@dataclass(frozen=True, slots=True)
class Authenticator:
    """The methods that are switched on; with none, callers need not authenticate."""

    keys: KeyFile | None = None
    """Keys of tokens; None if tokens do not count."""
    terms: TokenTerms = field(default_factory=TokenTerms)
    certificates: bool = False
    """Whether client certificates count. TLS has verified them."""
    proxies: tuple[Network, ...] = ()
    """Networks of trusted proxies."""
    clock: Callable[[], float] = time.time

    @property
    def is_off(self) -> bool:
        """Whether callers need not authenticate."""
        return self.keys is None and not self.certificates and not self.proxies

    def authenticate(self, credentials: Credentials) -> tuple[Identity, str]:
        """The caller, and the method that identifies them.

        Raises:
            Unauthenticated: nothing identifies them, or their token is invalid.
            UntrustedHeaders: a sender that is no trusted proxy names a user.
        """
        trusted = is_among(self.proxies, credentials.address)
        if claims_identity(credentials.headers) and not trusted:
            raise UntrustedHeaders(
                f"{credentials.address} is no proxy that may say for whom it asks (X-Forwarded-User,"
                " X-Forwarded-Groups); those are named by the setting auth-proxy"
            )
        token = _bearer_token(credentials.headers)
        if self.keys is not None and token is not None:
            try:
                return verify_token(token, self.keys.keys(), terms=self.terms, now=self.clock()), TOKEN
            except InvalidToken as error:
                raise Unauthenticated(f"The token is invalid: {error}", self._advice()) from None
        certificate = credentials.certificate if self.certificates else None
        owner = certificate_owner(certificate) if certificate is not None else None
        if owner is not None:
            return owner, CERTIFICATE
        proxied = proxied_identity(credentials.headers) if trusted else None
        if proxied is not None:
            return proxied, PROXY
        raise Unauthenticated("The caller is not authenticated", self._advice())

    def _advice(self) -> str:
        """How to authenticate, by each method that is switched on."""
        ways = []
        if self.keys is not None:
            ways.append("a token (`yunishard token` makes one) in the header `Authorization: Bearer TOKEN`")
        if self.certificates:
            ways.append("a client certificate")
        if self.proxies:
            ways.append("the proxy in front of this port, where you log in")
        return f"Authenticate by {', or '.join(ways)}"


def _bearer_token(headers: Headers) -> str | None:
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

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_NEXT: Final = "changes are taken only from this machine, over its loopback address: log in there and ask 127.0.0.1"


class UnknownUser(Exception):
    """The owner of a connection is unknown; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the operating system; the primary group comes first."""

    user: str
    groups: list[str]


def account(uid: int) -> Account:
    """The account of a user ID. One without an account is named by its number, which no access list can contain."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Account(str(uid), [])
    groups = []
    for gid in group_ids(entry.pw_name, entry.pw_gid):
        with suppress(KeyError):  # a group without a name cannot be on an access list
            groups.append(grp.getgrgid(gid).gr_name)
    return Account(entry.pw_name, groups)


def socket_tables() -> list[str]:
    """The kernel's tables of TCP connections; a missing table counts as empty."""
    texts = []
    for table in _TABLES:
        with suppress(FileNotFoundError):  # there is no IPv6, or this is not Linux
            texts.append(table.read_text(encoding="ascii"))
    return texts


class LoopbackUsers:
    """Identifies callers on this machine by the owner of their socket. Nothing that the request claims counts.

    Args:
        scheduler_admins: Who is a scheduler administrator, besides `own_uid`.
        own_uid: The user that this process runs as.
        tables: Returns the kernel's tables.
        account: Looks a user ID up.
    """

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

    async def find_owner(self, client: tuple[str, int], server: tuple[str, int]) -> Actor:
        """The user who owns the client end of a connection.

        Raises:
            UnknownUser: the connection comes from another machine, or its owner was not found.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(LOOK_UP_MAX_S):
                return await loop.run_in_executor(self._threads, self._look_up, client, server)
        except TimeoutError:
            text = f"the operating system did not look the caller up within {LOOK_UP_MAX_S:g} s; try again"
            raise UnknownUser(text) from None

    def close(self) -> None:
        """Start no more look-ups."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _look_up(self, client: tuple[str, int], server: tuple[str, int]) -> Actor:
        uid = self._owner(client, server)
        try:
            known = self._account(uid)
        except OSError as error:
            raise UnknownUser(f"the account of user {uid} cannot be looked up: {error}; try again") from None
        is_admin = uid == self._own_uid or self._admins.allows(known.user, known.groups)
        return Actor(user=known.user, groups=known.groups, scheduler_admin=is_admin)

    def _owner(self, client: tuple[str, int], server: tuple[str, int]) -> int:
        try:
            remote, local = socket_end(*client), socket_end(*server)
        except ValueError:
            raise UnknownUser(f"the request came from {client[0]!r}; {_NEXT}") from None
        if not remote.address.is_loopback:
            raise UnknownUser(f"the request came from {remote.address}; {_NEXT}")
        try:
            tables = self._tables()
        except OSError as error:
            raise UnknownUser(f"the owner of the connection cannot be looked up: {error}") from None
        found = [uid for table in tables for uid in socket_owners(table, local=remote, remote=local)]
        if len(found) != 1:
            raise UnknownUser(
                f"the owner of the connection from {remote.address} port {remote.port} was not found, which needs"
                " Linux and a client in the same network namespace that keeps its connection open; try again from there"
            )
        return found[0]
