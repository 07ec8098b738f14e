"""Look up the groups of users in the operating system, in a few threads of the worker's process.

A lookup may query a directory over the network and take any time. Each is answered within LOOKUP_MAX_S: a thread that
hangs is not waited for, not even when the process ends, and if all threads hang, the waiting lookups fail with that
reason. An unexpected error fails only its own lookup.

Rejected: starting `id` for each user, which costs a process for each of them.
"""

import asyncio
import grp
import logging
import pwd
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from yunishard.common.group_ids import group_ids
from yunishard.common.messages.control_messages import GroupsFound, GroupsWanted
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, encode_body
from yunishard.partition_worker.partition_host import GROUPS

LOOKUP_MAX_S: Final = 5.0
"""Time limit of a lookup, from its request."""

THREADS: Final = 4
"""Concurrent lookups."""

WANTED_MAX: Final = 10_000
"""Maximum of unanswered lookups; the next one fails."""

NAME_LENGTH_MAX: Final = 256
"""Maximum length of a user name: no system has longer ones."""

_log = logging.getLogger("core.scheduler.ugm")


class LookupFailed(Exception):
    """A lookup without result; the RM receives the text."""


def look_up_groups(user: str) -> list[str]:
    """Return the groups of a user, the primary one first. A group without a name in UTF-8 is represented by its number.

    Raises:
        LookupFailed: the user is unknown, or the system's lookup fails.
    """
    if len(user) > NAME_LENGTH_MAX:
        raise LookupFailed(f"user: a name has at most {NAME_LENGTH_MAX} characters, not {len(user)}")
    try:
        primary = pwd.getpwnam(user).pw_gid
        return list(dict.fromkeys(_name(gid) for gid in (primary, *group_ids(user, primary))))
    except KeyError as error:
        raise LookupFailed(f"user: unknown user {user}") from error
    except (OSError, ValueError) as error:
        raise LookupFailed(f"user: looking up {user!r} failed: {error}") from error


def _name(gid: int) -> str:
    """The name of a group, or its number if the name is not UTF-8 (surrogates in Python), which no message can hold."""
    try:
        name = grp.getgrgid(gid).gr_name
        name.encode()
    except (KeyError, UnicodeEncodeError):
        return str(gid)
    return name


def _problem(user: str, problem: str) -> bytes:
    return encode_body(GroupsFound(user=user, problem=problem.encode(errors="replace").decode()))


class GroupLookup:
    """An endpoint that takes GroupsWanted and answers each with one GroupsFound."""

    def __init__(
        self,
        *,
        wake: Callable[[], None],
        lookup: Callable[[str], list[str]] = look_up_groups,
        limit_s: float = LOOKUP_MAX_S,
    ) -> None:
        self._wake = wake
        self._lookup = lookup
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._answers: deque[Incoming] = deque()
        self._running: dict[str, asyncio.TimerHandle] = {}
        """The users whose lookup is not answered yet, with the timer of its time limit."""
        self._threads = 0
        self._waiting = SimpleQueue[tuple[str, asyncio.TimerHandle]]()
        """Lookups that no thread has started yet. A thread skips those that have expired."""

    def send(self, message: Outgoing) -> None:
        user = decode_body(GroupsWanted, message.body).user
        if user in self._running:
            return  # one answer is enough
        if max(len(self._running), self._waiting.qsize()) >= WANTED_MAX:
            self._answer(_problem(user, f"looking up the groups of user {user}: {WANTED_MAX} lookups wait already"))
            return
        self._running[user] = timer = self._loop.call_later(self._limit_s, self._expire, user)
        self._waiting.put((user, timer))
        if self._threads < THREADS:
            try:
                threading.Thread(target=self._run_lookups, name=f"groups-{self._threads + 1}", daemon=True).start()
                self._threads += 1
            except RuntimeError as error:  # the other threads do the work, or the time limit expires
                _log.warning("no thread for looking up groups: %s", error)

    def receive(self) -> Incoming | None:
        return self._answers.popleft() if self._answers else None

    def _expire(self, user: str) -> None:
        problem = f"looking up the groups of user {user} took longer than {self._limit_s:g} s"
        self._finish(user, self._running[user], _problem(user, problem))

    def _finish(self, user: str, timer: asyncio.TimerHandle, body: bytes) -> None:
        """Answer, unless this lookup is answered already: the user may have been requested again since."""
        if self._running.get(user) is timer:
            del self._running[user]
            timer.cancel()
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        self._answers.append(Incoming(GROUPS, Header(kind="GroupsFound"), body))
        self._wake()

    # In the threads -------------------------------------------------------------------------------------------------

    def _run_lookups(self) -> None:
        while True:
            user, timer = self._waiting.get()
            if self._running.get(user) is not timer:
                continue
            try:
                body = encode_body(GroupsFound(user=user, groups=self._lookup(user)))
            except LookupFailed as error:
                body = _problem(user, str(error))
            except Exception as error:  # any error must be answered, also of the encoding
                _log.warning("looking up the groups of user %s failed", ascii(user), exc_info=True)
                body = _problem(user, f"looking up the groups of user {user} failed: {type(error).__name__}: {error}")
            try:
                self._loop.call_soon_threadsafe(self._finish, user, timer, body)
            except RuntimeError:
                return  # the event loop has ended, and the process ends
