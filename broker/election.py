"""The machine that makes one broker of several hosts the leader, and stops it before another one can lead.

    standby --acquired--> leading --not renewed in time, or replaced--> over: the process ends, and starts as a standby
       |                     |
       +---------------------+--another system holds the lease of this host--> refused: the whole system ends

Every broker polls the lease `broker` of the store. A standby acquires it once it has ended; the leader renews it every
third of its duration. The leader counts the duration from before it asked, by its own monotonic clock, and ends
SAFETY of it early, so that it has stopped answering when the next one begins. Should a host sleep longer than that, the
epoch fences it: all of its writes fail.

Each poll renews the lease of the host first. If another system holds that, this broker does nothing but watch it: the
first renewal that it sees proves that the other one lives. If there is none for the duration, as the other one was
killed, it takes that lease.

All of this goes by the time that elapses in this process: the clock of the database may jump (`common/lease_watch.py`).

Not here: the leases in the store (`common/postgres/leases.py`, `candidacy.py`), the broker's decisions (`routing.py`).
"""

from typing import Final

from yunishard.broker.hosts import Hosts
from yunishard.common.lease_watch import LeaseWatch
from yunishard.common.messages.control_messages import STORE_SILENCE, LeasePolled, PollLease, Refusal, Rival
from yunishard.common.messages.wire import NEVER, BrokerAddress, Incoming, Machine, Outgoing, decode_body, make_outgoing
from yunishard.common.names import LEASE, LOCAL_HOST
from yunishard.common.text_formats import format_time

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

    def __init__(self, own: BrokerAddress, *, duration_s: float, host: str = LOCAL_HOST, address: str = "") -> None:
        """`address` is the one for other hosts; empty if they do not reach this one."""
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
        self.refused = ""
        """Why this whole system must not run; empty otherwise."""
        self.refusals: list[Refusal] = []
        """For the leader: the latest refusal of another machine for each host."""
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
        self._host, self._address = host, address
        self._watch, self._host_watch = LeaseWatch(duration_s), LeaseWatch(duration_s)
        """Of the lease of the leader, if that is another one, and of a rival's for this host."""
        self._heartbeats: dict[str, tuple[float, float]] = {}
        """For the leader: the latest heartbeat of each host in the store, and when this broker has first seen it."""
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
        poll = PollLease(
            epoch=self.epoch,
            duration_s=self._duration_s,
            ended=self._watch.find_ended(now),
            host_ended=self._host_watch.find_ended(now),
        )
        return [make_outgoing(LEASE, poll)]

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Apply the outcome of a poll."""
        polled, interval_s = decode_body(LeasePolled, incoming.body), self._duration_s / RENEWALS
        asked_at, self._asked_at = self._asked_at or now, None
        if polled.problem:
            self._warn(polled.problem)
            self._renewing_since, self.cut_off = NEVER, []
        elif polled.rival is not None:
            interval_s = min(interval_s, self._watch_rival(polled.rival, asked_at, now))
        elif polled.epoch and not self.epoch and now >= asked_at + self._usable_s:
            interval_s = 0.0  # connecting took too long; the next answer comes in time, as the connection is open now
        elif polled.epoch:
            self._lead(polled.epoch, asked_at)
            self._renewing_since, self.refusals = min(self._renewing_since, now), polled.refusals
            self._find_cut_off(polled.heartbeats, now)
        elif self.epoch:
            self._end(f"the broker of host {polled.holder} has replaced it")
        else:
            interval_s = min(interval_s, self._follow(polled, asked_at, now))
        if not polled.problem and polled.rival is None:
            self._host_watch = LeaseWatch(self._duration_s)
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

    def _find_cut_off(self, heartbeats: dict[str, float], now: float) -> None:
        """Find the hosts that have not polled although this broker has reached the store all the time."""
        before, silent_s = self._heartbeats, STORE_SILENCE * self._duration_s
        self._heartbeats = {
            host: before[host] if before.get(host, (None,))[0] == at else (at, now) for host, at in heartbeats.items()
        }
        if now >= self._renewing_since + silent_s:  # else the store was down for all
            self.cut_off = [host for host, (_, since) in self._heartbeats.items() if now >= since + silent_s]

    def _follow(self, polled: LeasePolled, asked_at: float, now: float) -> float:
        """Follow another leader; the seconds until its lease ends, unless it is renewed."""
        watch = self._watch
        watch.observe(polled.expires, polled.left_s, asked_at, now)
        is_alive = now < watch.ends and (watch.is_renewed or polled.left_s > 0)
        if is_alive and polled.endpoint and not self._address:
            self._refuse(
                f"host {polled.holder} at {polled.endpoint} leads the system of this store, and this host has no"
                " address at which others reach it: give it --cluster-address and --cluster-keys, or another --store"
            )
            return 0.0
        if polled.holder != self._holder:
            where = "" if polled.endpoint else ", and this host cannot reach it, as it has no cluster-address"
            self.notes.append(f"the broker of host {polled.holder} leads{where}; this one is a standby")
        self._holder, self._problem = polled.holder, ""
        if is_alive and polled.endpoint:
            self._announce(BrokerAddress(polled.endpoint, polled.public_key))
        return max(watch.ends - now, 0.0) + EXPIRED_S

    def _watch_rival(self, rival: Rival, asked_at: float, now: float) -> float:
        """Watch the other system that is this host; the seconds until its lease ends, unless it is renewed."""
        watch = self._host_watch
        watch.observe(rival.expires, rival.left_s, asked_at, now)
        if watch.is_renewed:
            self._refuse(_describe_rival(self._host, rival))
            return 0.0
        text = f"another system was host {self._host} last, on {rival.machine}: waiting until its lease ends"
        if text != self._problem:
            self.warnings.append(text)
        self._problem = text
        return max(watch.ends - now, 0.0) + EXPIRED_S

    def _refuse(self, reason: str) -> None:
        self.refused = self.lost = reason
        self.warnings.append(reason)

    def _announce(self, leader: BrokerAddress) -> None:
        if leader != self._leader:
            self.leaders.append(leader)
        self._leader = leader


def _describe_rival(host: str, rival: Rival) -> str:
    """Why this system must not run as this host, and what to do."""
    since = format_time(rival.since * 10**9)
    where = f" at {rival.address}" if rival.address else ""
    if rival.is_copy:
        what = "with the same host id: this machine or its state directory is a copy"
        remedy = (
            "stop one of them, or make this one another host, with an empty --state directory, --host-name,"
            " --cluster-address and keys of its own (`yunishard cluster init`)"
        )
    else:
        what = "with another state directory"
        remedy = "stop it, or choose another --host-name for this one"
    return f"host {host} runs on {rival.machine}{where} since {since}, {what}; {remedy}"


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
        for refusal in self._hosts.note_refusals(self._election.refusals):
            self._election.warnings.append(
                f"another machine was refused as host {refusal.host}, which runs already: {refusal.machine}"
                f"{', ' * bool(refusal.address)}{refusal.address}"
            )
        return sends

    def tick(self, now: float) -> list[Outgoing]:
        sends = self._election.tick(now) if self._election.deadline <= now else []
        if self._election.is_over(now) or self._broker.deadline > now:
            return sends
        return [*sends, *self._broker.tick(now)]
