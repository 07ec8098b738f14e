"""Who may connect to the native port when it has keys, and whom each key may speak for.

ZeroMQ asks for each connection (the ZAP protocol, <https://rfc.zeromq.org/spec/27/>, inside the process) and gets its
answer from the allow-list. Then it names the connection's key with every message, and `objection` compares that with
the resource manager in the message's header. So a key that is taken off the list is refused from its next message on,
although ZeroMQ cannot be told to end its connection; its resource manager counts as away once it has been silent for
long enough.

The list is looked at every second. One that cannot be used changes nothing, and the log says which line is wrong. Keys
are logged by their fingerprints. Not here: what a list looks like (`common/allowed_keys.py`), what follows from a
refusal (`front.py`).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import zmq
from zmq.utils import z85

from common.allowed_keys import LIST_BYTES_MAX, AllowList, AllowListError, allow_list
from common.driver import clock
from common.keys import Pair, fingerprint, guard
from common.names import RM_ID
from common.rm_ids import matching
from common.transport import CONTEXT

ZAP_ADDRESS: Final = "inproc://zeromq.zap.01"
DOMAIN: Final = "yunishard-native"

LOOK_EVERY_S: Final = 1.0
"""How often the allow-list is looked at."""

REFUSALS_LOGGED_MAX: Final = 10
"""Refused connections that are logged in a minute; how many there were beside them is logged with the next one."""

RM_IDS_NAMED_MAX: Final = 100_000
"""RM ids and patterns that are remembered as having, or having had, a key. Beyond, every id counts as one that has."""

ZAP_AT_ONCE: Final = 64
"""Connections that are judged before anything else gets its turn."""

_MINUTE_S: Final = 60.0
_MECHANISM: Final = b"CURVE"

_Stamp = tuple[int, int, int]

_log = logging.getLogger("core.rmproxy")


class Doorkeeper:
    """Answers for the native port; made and closed in a running event loop.

    Raises:
        OSError: the list cannot be used.
    """

    def __init__(self, pair: Pair, allowed: Path, *, look_every_s: float = LOOK_EVERY_S) -> None:
        self.on_change: Callable[[], None] = _nothing
        """Called after the list has changed."""
        self._rm_ids_named: set[str] = set()
        """RM ids and patterns in any list since the start; at most RM_IDS_NAMED_MAX and those of one list more."""
        self._pair = pair
        self._look_every_s = look_every_s
        self._file = allowed
        self._stamp = _stamp(allowed)
        try:
            self._take(_read(allowed))
        except AllowListError as error:
            raise OSError(f"{allowed}: {error}") from None
        self._complaints = Complaints()
        self._loop = asyncio.get_running_loop()
        self._socket: zmq.Socket[bytes] = CONTEXT.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(ZAP_ADDRESS)
        self._loop.add_reader(self._socket.FD, self._judge)
        self._timer = self._loop.call_later(look_every_s, self._look)

    def close(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._socket.FD)
        self._socket.unbind(ZAP_ADDRESS)  # closing frees the address only some time later, from another thread
        self._socket.close()

    # What the port asks ---------------------------------------------------------------------------------------------

    def secure(self, socket: "zmq.Socket[bytes]") -> None:
        """Set the port up, before it listens."""
        guard(socket, self._pair, domain=DOMAIN)

    def fingerprint(self, key: str) -> str:
        """How people call this public key."""
        return self._fingerprints.get(key) or fingerprint(key)

    def has_key_for(self, rm: str) -> bool:
        """Whether the list has a key for this resource manager, or had one since this process started, so that the id
        cannot be taken without one. Otherwise revoking a stolen key, or an editor that empties the file before it
        writes it, would open the id to every client.
        """
        if RM_ID.fullmatch(rm) is None:
            return False
        return rm in self._rm_ids_named or self._patterns_named.fullmatch(rm) is not None

    def objection(self, key: str, rm: str) -> str:
        """Why whoever holds this public key may not speak for this resource manager; empty if they may."""
        if self._list.admits(key, rm):
            return ""
        if key not in self._list.entries:
            return f"key {fingerprint(key)} is not on the allow-list any more"
        return f"key {fingerprint(key)} may not speak for RM {rm!r}"

    # The list -------------------------------------------------------------------------------------------------------

    def _take(self, new: AllowList) -> None:
        self._list = new
        if len(self._rm_ids_named) <= RM_IDS_NAMED_MAX:
            self._rm_ids_named |= {rm_id for entry in new.entries.values() for rm_id in entry.rm_ids}
        everyone = len(self._rm_ids_named) > RM_IDS_NAMED_MAX
        self._patterns_named = matching(["*"] if everyone else sorted(one for one in self._rm_ids_named if "*" in one))
        self._fingerprints = {key: fingerprint(key) for key in new.entries}

    def _look(self) -> None:
        self._timer = self._loop.call_later(self._look_every_s, self._look)
        try:
            stamp = _stamp(self._file)
            if stamp == self._stamp:
                return
            self._stamp = stamp
            before = self._list.entries
            self._take(_read(self._file))
        except (AllowListError, OSError) as error:
            if self._complaints.is_new(str(error)):
                _log.warning("the allow-list is not usable, the previous one stays in force: %s: %s", self._file, error)
            return
        self._complaints.mended()
        gone = ", ".join(sorted(fingerprint(key) for key in before.keys() - self._list.entries.keys()))
        _log.info("%s: keys allowed now: %d%s", self._file, len(self._list.entries), gone and f", no longer {gone}")
        self.on_change()

    # ZAP ------------------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """Answer what has been asked. The descriptor only tells of changes, so this goes on until nothing is left."""
        for _ in range(ZAP_AT_ONCE):
            try:
                route, empty, version, request, domain, address, _, mechanism, *credentials = (
                    self._socket.recv_multipart(zmq.NOBLOCK)
                )
            except zmq.Again:
                return
            key = z85.encode(credentials[0]).decode() if mechanism == _MECHANISM and credentials else ""
            good = domain == DOMAIN.encode() and key in self._list.entries
            if not good and self._complaints.may_log(clock()):
                more = f" (and {self._complaints.unsaid()} more)" if self._complaints.swallowed else ""
                who = f"key {fingerprint(key)}" if key else "a connection without a key"
                _log.warning("%s from %s is not on the allow-list%s", who, address.decode(errors="replace"), more)
            verdict = (b"200", b"OK", key.encode()) if good else (b"400", b"not on the allow-list", b"")
            with suppress(zmq.ZMQError):  # who asked is gone
                self._socket.send_multipart([route, empty, version, request, *verdict, b""], zmq.NOBLOCK)
        self._loop.call_soon(self._judge_again)

    def _judge_again(self) -> None:
        if not self._socket.closed:
            self._judge()


class Complaints:
    """What has been said already, so that strangers cannot fill the log."""

    def __init__(self) -> None:
        self.swallowed = 0
        """Refusals that were not logged."""
        self._last = ""
        self._begun = 0.0
        self._logged = 0

    def is_new(self, problem: str) -> bool:
        """Whether this problem of the list is another one than the last."""
        known, self._last = self._last, problem
        return problem != known

    def mended(self) -> None:
        self._last = ""

    def may_log(self, now: float) -> bool:
        """Whether one more refusal may be logged."""
        if now - self._begun >= _MINUTE_S:
            self._begun, self._logged = now, 0
        self._logged += 1
        if self._logged <= REFUSALS_LOGGED_MAX:
            return True
        self.swallowed += 1
        return False

    def unsaid(self) -> int:
        """How many were not logged; they are told now."""
        count, self.swallowed = self.swallowed, 0
        return count


def _nothing() -> None:
    """Nobody else depends on the list."""


def _stamp(file: Path) -> _Stamp:
    """What changes when somebody writes the file or puts another in its place."""
    found = file.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(file: Path) -> AllowList:
    with file.open("rb") as opened:
        text = opened.read(LIST_BYTES_MAX + 1)
    if len(text) > LIST_BYTES_MAX:
        raise AllowListError(f"line 1: more than {LIST_BYTES_MAX} bytes")
    try:
        return allow_list(text.decode())
    except UnicodeDecodeError as error:
        number = text.count(b"\n", 0, error.start) + 1
        raise AllowListError(f"line {number}: not UTF-8 text") from None
