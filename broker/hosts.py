"""Hosts: which ones there are, what fits on each, and which can run workers.

    known from the store --Hello of its supervisor--> ready <--undrain--drain--> draining
                                                        |  ^
          silent for too long, left, or without the store  Heartbeat, or Hello
                                                        v  |
                                                       lost --an operator removes it--> not known any more

A new leader reads the hosts from the table `hosts` of the store, with the age of their last sign of life, so that it
need not wait again for one that was lost before. That age is by the clock of the database, which may have jumped, so
each host has RETURN_MAX_S to send Hello. The only host of an embedded system comes with its supervisor.

Not here: which partition runs where (`placement.py`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from msgspec import Struct

from yunishard.common.messages.control_messages import Hello, Refusal
from yunishard.common.messages.wire import NEVER
from yunishard.common.text_formats import format_count, format_time

RETURN_MAX_S: Final = 4.0
"""Seconds that a new leader gives a host to find it and send Hello, however long the host has been silent."""

FORGOTTEN_S: Final = 86400.0
"""Seconds without a sign of life after which a new leader does not list a host any more, unless it is draining."""

HostState = Literal["ready", "draining", "lost"]
HOST_STATES: Final[tuple[HostState, ...]] = get_args(HostState)


class HostRow(Struct, frozen=True, kw_only=True):
    """A host as the store has it."""

    name: str
    address: str = ""
    """Where the other hosts reach its broker."""
    cores: int = 1
    memory_bytes: int = 0
    release: str = ""
    age_s: float = 0.0
    """Seconds since its last sign of life, by the clock of the database."""
    is_draining: bool = False


@dataclass(slots=True)
class Host:
    """A host, as the leader sees it."""

    name: str
    supervisor: str = ""
    """The peer name of its supervisor; empty until it has sent Hello to this broker."""
    address: str = ""
    cores: int = 1
    memory_bytes: int = 0
    release: str = ""
    last_seen: float = 0.0
    worker_at: float = -NEVER
    """When the latest of its workers became idle."""
    is_draining: bool = False
    is_lost: bool = False
    """Whether it has been silent for too long, or has left."""
    is_cut_off: bool = False
    """Whether it does not reach the store, so that its workers cannot send anything."""
    is_forgotten: bool = False
    """Whether it is not known any more unless it sends Hello in time, as it was silent for FORGOTTEN_S."""
    refusal: Refusal | None = None
    """The latest other machine that was refused as this host, if that is not long ago."""

    @property
    def is_available(self) -> bool:
        """Whether it can run partitions."""
        return not (self.is_lost or self.is_cut_off or self.is_draining)

    @property
    def state(self) -> HostState:
        if self.is_lost or self.is_cut_off:
            return "lost"
        return "draining" if self.is_draining else "ready"

    @property
    def refused(self) -> str:
        """The latest other machine that was refused as this host; empty if there was none."""
        found = self.refusal
        if found is None:
            return ""
        where = f" at {found.address}" if found.address else ""
        count, at = format_count(found.count, "time"), format_time(int(found.at_s * 1e9))
        return f"{found.machine}{where}, {count}, last at {at}"


class Hosts:
    """All known hosts, by name."""

    def __init__(self) -> None:
        self._hosts: dict[str, Host] = {}

    def restore(self, rows: Iterable[HostRow], silent_max_s: float, now: float) -> None:
        """Add the hosts in the store. Those that stay silent are lost after RETURN_MAX_S, or once they have been silent
        for `silent_max_s`.
        """
        oldest = min(now, now + RETURN_MAX_S - silent_max_s)
        for row in rows:
            self._hosts[row.name] = Host(
                row.name,
                address=row.address,
                cores=max(1, row.cores),
                memory_bytes=row.memory_bytes,
                release=row.release,
                last_seen=max(oldest, now - max(0.0, row.age_s)),
                is_draining=row.is_draining,
                is_forgotten=row.age_s >= FORGOTTEN_S and not row.is_draining,
            )

    def remove(self, name: str) -> None:
        """Discard a host that an operator has removed; one that is not known is no error."""
        self._hosts.pop(name, None)

    def find(self, name: str) -> Host | None:
        return self._hosts.get(name)

    def all(self) -> Collection[Host]:
        return self._hosts.values()

    def list_available(self) -> list[Host]:
        """The hosts that can get partitions."""
        return [one for one in self._hosts.values() if one.is_available and not one.is_forgotten]

    def is_available(self, name: str) -> bool:
        """Whether this is a host that can run partitions."""
        host = self._hosts.get(name)
        return host is not None and host.is_available

    def greet(self, supervisor: str, hello: Hello, now: float) -> Host:
        """Note the Hello of a supervisor."""
        host = self._hosts.setdefault(hello.host, Host(hello.host))
        host.supervisor, host.last_seen, host.is_lost, host.is_forgotten = supervisor, now, False, False
        host.address, host.release = hello.address, hello.release
        host.cores, host.memory_bytes = max(1, hello.cores), hello.memory_bytes
        return host

    def mark_seen(self, supervisor: str, now: float) -> Host | None:
        """Note a heartbeat of a supervisor; None if it has not sent Hello to this broker."""
        host = next((one for one in self._hosts.values() if one.supervisor == supervisor), None)
        if host is not None:
            host.last_seen, host.is_lost = now, False
        return host

    def mark_left(self, name: str) -> Host | None:
        """Note that a host stops, and counts again from its next Hello; None if it is not known, or has left."""
        host = self._hosts.get(name)
        if host is None or (host.is_lost and not host.supervisor):
            return None
        host.is_lost, host.supervisor = True, ""
        return host

    def mark_cut_off(self, names: Collection[str]) -> list[str]:
        """Note which hosts do not reach the store; the result has those that did before."""
        found = [one.name for one in self._hosts.values() if one.name in names and not (one.is_cut_off or one.is_lost)]
        for host in self._hosts.values():
            host.is_cut_off = host.name in names
        return found

    def find_silent(self, silent_max_s: float, now: float) -> list[Host]:
        """Mark the hosts as lost that have been silent for so long; the result has those that were not before. The only
        host is never lost, as nothing could take its place.
        """
        if len(self._hosts) == 1:
            return []
        silent = [one for one in self._hosts.values() if not one.is_lost and now - one.last_seen >= silent_max_s]
        for host in silent:
            host.is_lost = True
            if host.is_forgotten:
                del self._hosts[host.name]
        return [host for host in silent if not host.is_forgotten]

    def note_refusals(self, refusals: Iterable[Refusal]) -> list[Refusal]:
        """Note the latest other machine that was refused as each host; the result has those that are new."""
        latest = {one.host: one for one in refusals}
        before = [one.refusal for one in self._hosts.values()]
        for host in self._hosts.values():
            host.refusal = latest.get(host.name)
        return [one.refusal for one in self._hosts.values() if one.refusal is not None and one.refusal not in before]

    def extend_deadlines(self, seconds: float, now: float) -> None:
        """Extend all timeouts by a time in which the broker did not run."""
        for host in self._hosts.values():
            host.last_seen = min(now, host.last_seen + seconds)
