"""The machine that makes one broker of several hosts the leader, and stops it before another one can lead.

    standby --acquired--> leading --not renewed in time, or replaced--> over: the process ends, and starts as a standby

Every broker polls the lease `broker` of the store. A standby acquires it once it has ended; the leader renews it every
third of its duration. The leader counts the duration from before it asked, by its own monotonic clock, and ends
SAFETY of it early, so that it has stopped answering when the next one begins. Should a host sleep longer than that, the
epoch fences it: all of its writes fail.

Not here: the lease in the store (`common/postgres_leases.py`), the broker's decisions (`routing.py`).
"""

from typing import Final

from broker.hosts import Hosts
from common.control_messages import STORE_SILENCE, LeasePolled, PollLease
from common.names import LEASE
from common.wire import NEVER, BrokerAddress, Incoming, Machine, Outgoing, decode_body, make_outgoing

RENEWALS: Final = 3
"""Polls in the duration of a lease."""

SAFETY: Final = 1 / 6
"""The part of the duration that the leader leaves unused."""

EXPIRED_S: Final = 0.05
"""A standby polls again this long after the lease of the leader has ended."""


class Election:
    """One broker's part in the election. `own` is the address at which the processes of its host reach it.

    The shell logs `notes` and `warnings` and clears them.
    """

    def __init__(self, own: BrokerAddress, *, duration_s: float) -> None:
        self.deadline = 0.0
        """When to call `tick`."""
        self.epoch = 0
        """Of the acquired lease; 0 in a standby."""
        self.leaders: list[BrokerAddress] = []
        """Where the processes of this host reach the leader, if that has changed; the shell takes it away."""
        self.cut_off: list[str] = []
        """For the leader: hosts that do not reach the store, although this one did all the time."""
        self.lost = ""
        """Why this broker does not lead any more; empty otherwise."""
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self._own = own
        self._duration_s = duration_s
        self._usable_s = duration_s * (1 - SAFETY)
        self._ends = NEVER
        """When the leader stops answering."""
        self._asked_at: float | None = None
        """When the poll that is under way was sent."""
        self._renewing_since = NEVER
        """Since when this leader has reached the store without a failure."""
        self._holder = ""
        self._leader: BrokerAddress | None = None
        self._problem = ""

    def is_over(self, now: float) -> bool:
        """Whether this broker has led and must not any more."""
        if self.epoch and not self.lost and now >= self._ends:
            self._end(f"its lease could not be renewed for {self._usable_s:.1f} s")
        return bool(self.lost)

    def tick(self, now: float) -> list[Outgoing]:
        if self.is_over(now) or self._asked_at is not None:
            self.deadline = self._ends if not self.lost else NEVER
            return []
        self._asked_at, self.deadline = now, self._ends
        return [make_outgoing(LEASE, PollLease(epoch=self.epoch, duration_s=self._duration_s))]

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Apply the outcome of a poll."""
        polled, interval_s = decode_body(LeasePolled, incoming.body), self._duration_s / RENEWALS
        asked_at, self._asked_at = self._asked_at or now, None
        if polled.problem:
            self._warn(polled.problem)
            self._renewing_since, self.cut_off = NEVER, []
        elif polled.epoch and not self.epoch and now >= asked_at + self._usable_s:
            interval_s = 0.0  # connecting took too long; the next answer comes in time, as the connection is open now
        elif polled.epoch:
            self._lead(polled.epoch, asked_at)
            self._renewing_since = min(self._renewing_since, now)
            if now >= self._renewing_since + STORE_SILENCE * self._duration_s:  # else the store was down for all
                self.cut_off = polled.silent_hosts
        elif self.epoch:
            self._end(f"the broker of host {polled.holder} has replaced it")
        else:
            self._follow(polled)
            interval_s = min(interval_s, max(polled.left_s, 0.0) + EXPIRED_S)
        self.deadline = min(self._ends, max(now, asked_at + interval_s))
        return []

    def _end(self, reason: str) -> None:
        self.lost = f"this broker does not lead any more: {reason}"
        self.warnings.append(self.lost)

    def _warn(self, problem: str) -> None:
        if problem != self._problem:
            self.warnings.append(f"the lease of the leader cannot be {'renewed' if self.epoch else 'read'}: {problem}")
        self._problem = problem

    def _lead(self, epoch: int, asked_at: float) -> None:
        if not self.epoch:
            self.notes.append(f"this broker leads, under epoch {epoch}")
        self.epoch, self._problem = epoch, ""
        self._announce(self._own)
        self._ends = asked_at + self._usable_s

    def _follow(self, polled: LeasePolled) -> None:
        if polled.holder != self._holder:
            where = "" if polled.endpoint else ", and this host cannot reach it, as it has no cluster-address"
            self.notes.append(f"the broker of host {polled.holder} leads{where}; this one is a standby")
        self._holder, self._problem = polled.holder, ""
        if polled.left_s > 0 and polled.endpoint:
            self._announce(BrokerAddress(polled.endpoint, polled.public_key))

    def _announce(self, leader: BrokerAddress) -> None:
        if leader != self._leader:
            self.leaders.append(leader)
        self._leader = leader


class ElectedBroker:
    """A leader's machine: the broker's, until its lease is over. Then it answers nothing."""

    def __init__(self, broker: Machine, election: Election, hosts: Hosts) -> None:
        """`hosts` are those of the broker."""
        self._broker = broker
        self._election = election
        self._hosts = hosts

    @property
    def deadline(self) -> float:
        return NEVER if self._election.lost else min(self._broker.deadline, self._election.deadline)

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        if self._election.is_over(now):
            return []
        if incoming.source != LEASE:
            return self._broker.handle(incoming, now)
        sends = self._election.handle(incoming, now)
        for host in self._hosts.mark_cut_off(self._election.cut_off):
            self._election.warnings.append(f"host {host} does not reach the store: its partitions move to other hosts")
        return sends

    def tick(self, now: float) -> list[Outgoing]:
        sends = self._election.tick(now) if self._election.deadline <= now else []
        if self._election.is_over(now) or self._broker.deadline > now:
            return sends
        return [*sends, *self._broker.tick(now)]
