"""The shell of a broker's election: one thread polls the lease of the leader in the store.

A poll also renews the host's row in `hosts`: its heartbeat shows operators and the next leader that the host reaches
the store. A broker whose lease is over ends its process at once, without waiting for threads that may hang
in the store; the supervisor starts it again, as a standby.

Not here: when to poll, and what follows (`election.py`).
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from broker.election import RENEWALS, Election
from common.control_messages import STORE_SILENCE, LeasePolled, PollLease
from common.curve_keys import host_file, read_pair
from common.host_facts import HostFacts, read_host_facts
from common.inbox import ThreadEndpoint
from common.logs import log_lines
from common.messages import Header
from common.names import BROKER, LEASE
from common.postgres import Connection, Database
from common.postgres_leases import HeldLease, acquire_lease, read_lease, release_lease, renew_lease
from common.process import Arguments, Life
from common.transport import Transport, drive
from common.wire import BrokerAddress, Incoming, Outgoing, decode_body, encode_body

RELEASE: Final = version("yunishard")

LEADER_DURATION: Final = 1 / 2
"""Duration of the leader's lease as a part of `lease-timeout`: the next leader is there in time to notice, at the end
of that timeout, that the workers of a lost host are gone."""

EXIT_STATUS: Final = 75
"""Of a leader whose lease is over."""

_log = logging.getLogger("core.broker")


class Candidacy:
    """The part of this process in the election."""

    def __init__(self, arguments: Arguments, wire: Transport, life: Life) -> None:
        """Stand for election with the settings of this host.

        Raises:
            OSError: the state directory or the keys cannot be used.
        """
        settings = arguments.settings
        duration_s = LEADER_DURATION * settings.lease_timeout_s
        self.election = Election(BrokerAddress(arguments.broker.address), duration_s=duration_s)
        self.notes = (self.election.leaders, self.election.notes, self.election.warnings)
        """Lists that `write_notes` empties."""
        self._wire = wire
        self._life = life
        self._poller = LeasePoller(
            settings.store,
            read_host_facts(settings),
            settings.cluster_keys,
            answer_max_s=duration_s / RENEWALS,
            wake=partial(wire.wake, LEASE),
        )
        wire.add(LEASE, self._poller)

    async def win(self) -> bool:
        """Be a standby until this broker leads; False if the process has to stop first."""
        settled = asyncio.Event()

        def settle() -> None:
            settled.set()
            self._wire.wake()

        def write_notes() -> None:
            if self.election.epoch:
                settle()  # it is reported as the leader once its port is open
            else:
                self.write_notes()

        self._life.on_stop(settle)
        await drive(self.election, self._wire, settled, notes=self.notes, write_notes=write_notes)
        return bool(self.election.epoch)

    def write_notes(self) -> None:
        """Log, and report another leader to the supervisor. Ends the process if the lease is over."""
        log_lines(_log, {logging.INFO: self.election.notes, logging.WARNING: self.election.warnings})
        if self.election.lost:
            os._exit(EXIT_STATUS)
        while self.election.leaders:
            self._life.leads(self.election.leaders.pop(0))

    def close(self) -> None:
        """Release the lease, so that a standby need not wait until it ends."""
        if self.election.epoch:
            self._poller.release(self.election.epoch)
        self._poller.close()


class LeasePoller(ThreadEndpoint):
    """Polls the lease for one broker, on a connection of its own: the record's may wait for a slow write."""

    def __init__(
        self, store: str, host: HostFacts, keys: Path | None, *, answer_max_s: float, wake: Callable[[], None]
    ) -> None:
        """`keys` is the directory with the keys of this host; None if no other host reaches it. A server that is silent
        for `answer_max_s` counts as hung: the next poll uses another connection, and has to come in time.

        Raises:
            OSError: the keys cannot be used.
        """
        super().__init__("lease", wake=wake)
        self._database = Database(store, "lease", answer_max_s=answer_max_s)
        self._host = host
        self._keys = keys
        self._key = ""
        """The public key of this host, which other hosts expect of its broker."""
        self._read_key()

    def send(self, message: Outgoing) -> None:
        """Poll; needs a running loop."""
        self.run(partial(self._answer, decode_body(PollLease, message.body)))

    def _read_key(self) -> None:
        if self._keys is not None:
            self._key = read_pair(host_file(self._keys)).public

    def _answer(self, poll: PollLease) -> Incoming:
        try:
            polled = self._poll(poll)
        except OSError as error:
            polled = LeasePolled(problem=str(error))
        return Incoming(LEASE, Header(kind="LeasePolled"), encode_body(polled))

    def _poll(self, poll: PollLease) -> LeasePolled:
        host = self._host
        with suppress(OSError):  # the one before holds until the file can be used again
            self._read_key()
        with self._database.transaction() as connection:
            if problem := renew_host(connection, host, poll.duration_s):
                return LeasePolled(problem=problem)
            if poll.epoch:
                is_ours = renew_lease(connection, BROKER, poll.epoch, poll.duration_s, public_key=self._key)
                epoch = poll.epoch if is_ours else 0
            else:
                # Not less than the time, so that epochs grow even if an old copy of the database is restored.
                wanted = HeldLease(host.name, int(time.time()), poll.duration_s, host.address, self._key)
                epoch = acquire_lease(connection, BROKER, wanted)
            held = None if epoch else read_lease(connection, BROKER)
            silent = find_silent_hosts(connection, STORE_SILENCE * poll.duration_s) if epoch else []
        if held is None:
            return LeasePolled(epoch=epoch, silent_hosts=silent)
        return LeasePolled(holder=held.holder, endpoint=held.endpoint, public_key=held.public_key, left_s=held.left_s)

    def release(self, epoch: int) -> None:
        """End the lease of this epoch now; needs a running loop."""
        self.run(partial(self._release, epoch))

    def _release(self, epoch: int) -> None:
        try:
            with self._database.autocommit() as connection:
                release_lease(connection, BROKER, epoch)
        except OSError as error:
            _log.warning("the lease of the leader could not be released, so it ends by itself: %s", error)

    def close(self) -> None:
        super().close()
        self._database.close()


def find_silent_hosts(connection: Connection, silent_s: float) -> list[str]:
    """The hosts that have not polled for so long."""
    query = "SELECT name FROM hosts WHERE heartbeat < clock_timestamp() - make_interval(secs => %s)"
    return [str(name) for (name,) in connection.execute(query, (silent_s,)).fetchall()]


def renew_host(connection: Connection, host: HostFacts, duration_s: float) -> str:
    """Write the row of this host with a new heartbeat; the reason if another host of this name has one, at most twice
    as old as this duration.
    """
    row = connection.execute(
        "INSERT INTO hosts AS known (name, id, address, cores, memory_bytes, release, heartbeat) VALUES"
        " (%(name)s, %(id)s, %(address)s, %(cores)s, %(memory_bytes)s, %(release)s, clock_timestamp())"
        " ON CONFLICT (name) DO UPDATE SET id = excluded.id, address = excluded.address, cores = excluded.cores,"
        " memory_bytes = excluded.memory_bytes, release = excluded.release, heartbeat = excluded.heartbeat"
        " WHERE known.id = excluded.id"
        " OR known.heartbeat < clock_timestamp() - make_interval(secs => %(silent_s)s) RETURNING name",
        {**host._asdict(), "release": RELEASE, "silent_s": 2 * duration_s},
    ).fetchone()
    if row:
        return ""
    other = "another system uses this store as host"
    return f"{other} {host.name}: stop it, or choose another --host-name for this one"
