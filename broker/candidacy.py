"""The shell of a broker's election: the lease of the host in the store, and one thread that polls it and that of the
leader.

A poll also renews the host's row in `hosts`: its heartbeat shows the leader, and the next one, that the host reaches
the store. A broker whose lease is over ends its process at once, without waiting for threads that may hang
in the store; the supervisor starts it again, as a standby. If another system holds the lease of the host, the whole
system ends.

Not here: when to poll, and what follows (`election.py`).
"""

import asyncio
import logging
import os
import secrets
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from yunishard.broker.election import RENEWALS, Election
from yunishard.common.lease_watch import RELEASED
from yunishard.common.messages.control_messages import REFUSAL_SHOWN_S, LeasePolled, PollLease, Refusal, Rival
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import BrokerAddress, Incoming, Outgoing, decode_body, encode_body
from yunishard.common.names import BROKER, LEASE, OFF
from yunishard.common.postgres.connection import Connection, Database
from yunishard.common.postgres.leases import (
    EXPIRES,
    LEFT_S,
    HeldLease,
    acquire_lease,
    read_lease,
    release_lease,
    renew_lease,
)
from yunishard.common.process.limits import measure_capacity
from yunishard.common.process.logs import log_lines
from yunishard.common.process.main import Arguments, Life
from yunishard.common.settings import Settings
from yunishard.common.transport.curve_keys import host_file, read_pair, write_new
from yunishard.common.transport.event_loop import Transport, drive
from yunishard.common.transport.inbox import ThreadEndpoint

# The lease of the host ------------------------------------------------------------------------------------------------
#
# Of several systems with the name of one host only one is that host. A copy of a state directory, a clone of a machine
# and a restored snapshot of one have the name, the id and the keys of the host. Each renewal therefore writes another
# random token, and the state directory keeps it:
#
#   the row has a token of ours   no other system has renewed the lease since we did: renew it
#   another token                 another system holds it: a `Rival`, which the machine watches (`election.py`)
#
# So a process that restarts, even after `kill -9`, continues at once, and a copy does not, as it has an earlier token.

FILE: Final = "host-lease"
"""In the state directory: the tokens that this system may have written last."""

TOKENS_MAX: Final = 64
"""Tokens that are kept: the last one that is known to be durable, and one of each start since, as its outcome may be
unknown. If there are more, a restart has to wait until its own lease has ended."""

ID_FILE: Final = "host-id"
"""In the state directory: the host's id, which is drawn once."""

_PREFIX: Final = "host "
_REFUSED: Final = "refused "
"""Before the name of the host, in the name of its rows in `leases`."""


class HostFacts(NamedTuple):
    """A host as it describes itself."""

    name: str
    id: str
    """Of its state directory; distinguishes two hosts to which the same name was given."""
    address: str
    """Where other hosts reach its broker; empty if they do not."""
    cores: int
    memory_bytes: int


def read_host_facts(settings: Settings) -> HostFacts:
    """Read the facts of this host.

    Raises:
        OSError: the state directory cannot be used.
    """
    address = "" if settings.cluster_address == OFF else settings.cluster_address
    return HostFacts(settings.host_name, _read_id(settings.state), address, *measure_capacity())


def _read_id(state: Path | None) -> str:
    new = uuid.uuid4().hex
    if state is None:
        return new
    try:
        write_new(state / ID_FILE, 0o600, new)
    except FileExistsError:
        return (state / ID_FILE).read_text(encoding="ascii")
    return new


class HostLease:
    """The lease of one host, for one thread."""

    def __init__(self, host: HostFacts, state: Path | None) -> None:
        self._host = host
        self._file = None if state is None else state / FILE
        self._tokens: list[int] = []
        self._is_pending = False
        """Whether the last token was tried and is not known to be durable: it is tried again. A commit that waits for
        the standby may take effect long after its connection was given up."""
        if self._file is not None:
            with suppress(FileNotFoundError, ValueError):  # a file that was cut off is like none
                self._tokens = [int(word) for word in self._file.read_text(encoding="ascii").split()]

    def renew(self, connection: Connection, poll: PollLease) -> Rival | None:
        """Renew or acquire the lease, in a transaction; the system that holds it if that is another one.

        Raises:
            OSError: it has changed meanwhile.
        """
        name, holder = _PREFIX + self._host.name, f"{self._host.id} {_describe_machine(connection)}"
        query = f"SELECT holder, epoch, writes, endpoint, {EXPIRES}, {LEFT_S} FROM leases WHERE name = %s"  # noqa: S608
        if (row := connection.execute(query, (name,)).fetchone()) is None:
            connection.execute("INSERT INTO leases (name, epoch) VALUES (%s, 0) ON CONFLICT (name) DO NOTHING", (name,))
            row = connection.execute(query, (name,)).fetchone()
        held, since, token, address, expires, left_s = msgspec.convert(row, tuple[str, int, int, str, float, float])
        is_ours = token in self._tokens
        if expires != RELEASED and not is_ours and expires != poll.host_ended:
            identity, _, machine = held.partition(" ")
            is_copy = identity == self._host.id
            return Rival(machine=machine, address=address, since=since, expires=expires, left_s=left_s, is_copy=is_copy)
        if not self._is_pending:
            self._tokens, self._is_pending = [*self._tokens, secrets.randbits(62)][-TOKENS_MAX:], True
            self._keep_tokens()
        changed = connection.execute(  # without a lock before, which a stopped rival would hold
            "UPDATE leases SET holder = %s, writes = %s, endpoint = %s,"  # noqa: S608
            " epoch = CASE WHEN %s THEN epoch ELSE extract(epoch FROM clock_timestamp())::bigint END,"
            " expires_at = clock_timestamp() + make_interval(secs => %s)"
            f" WHERE name = %s AND writes = %s AND {EXPIRES} = %s",
            (
                *(holder, self._tokens[-1], self._host.address, is_ours and expires != RELEASED, poll.duration_s),
                *(name, token, expires),
            ),
        )
        if not changed.rowcount:
            raise OSError(f"another process has just changed the lease of host {self._host.name}")
        return None

    def confirm(self) -> None:
        """Note that the latest renewal is durable."""
        self._tokens, self._is_pending = self._tokens[-1:], False

    def _keep_tokens(self) -> None:
        if self._file is None:
            return
        new = self._file.with_suffix(".new")
        with suppress(OSError):  # without it, a restart waits until its own lease has ended
            new.write_text(" ".join(map(str, self._tokens)), encoding="ascii")
            new.replace(self._file)

    def release(self, connection: Connection) -> None:
        """End the lease now, so that another system may be this host at once."""
        connection.execute(
            "UPDATE leases SET expires_at = 'epoch' WHERE name = %s AND writes = ANY(%s)",
            (_PREFIX + self._host.name, self._tokens),
        )


def _describe_machine(connection: Connection) -> str:
    """The name of this machine, and its address in the network of the store."""
    with closing(socket.socket(fileno=os.dup(connection.fileno()))) as opened:
        address = opened.getsockname()
    return f"{socket.gethostname()} ({address[0]})" if isinstance(address, tuple) else socket.gethostname()


# Refusals -------------------------------------------------------------------------------------------------------------


def record_refusal(database: Database, host: HostFacts) -> None:
    """Record for operators that this machine was refused as this host.

    Raises:
        OSError: the store cannot be used.
    """
    with database.transaction() as connection:
        connection.execute(
            "INSERT INTO leases AS known (name, epoch, writes, holder, endpoint, expires_at)"
            " VALUES (%s, 0, 1, %s, %s, clock_timestamp()) ON CONFLICT (name) DO UPDATE SET writes = known.writes + 1,"
            " holder = excluded.holder, endpoint = excluded.endpoint, expires_at = excluded.expires_at",
            (_REFUSED + host.name, _describe_machine(connection), host.address),
        )


def read_refusals(connection: Connection) -> list[Refusal]:
    """The latest refusal for each host, by the name of the host."""
    rows = connection.execute(
        f"SELECT name, holder, endpoint, writes, {EXPIRES} FROM leases"  # noqa: S608
        " WHERE name LIKE %s AND expires_at > clock_timestamp() - make_interval(secs => %s) ORDER BY name",
        (f"{_REFUSED}%", REFUSAL_SHOWN_S),
    ).fetchall()
    return [
        Refusal(host=name.removeprefix(_REFUSED), machine=machine, address=address, count=count, at_s=at_s)
        for name, machine, address, count, at_s in msgspec.convert(rows, list[tuple[str, str, str, int, float]])
    ]


def delete_host(connection: Connection, name: str) -> None:
    """Delete a host, with its lease and what was refused."""
    connection.execute("DELETE FROM leases WHERE name = ANY(%s)", ([_PREFIX + name, _REFUSED + name],))
    connection.execute("DELETE FROM hosts WHERE name = %s", (name,))


# The election ---------------------------------------------------------------------------------------------------------

RELEASE: Final = version("yunishard")

LEADER_DURATION: Final = 1 / 2
"""Duration of the leader's lease as a part of `lease-timeout`: the next leader is there in time to notice, at the end
of that timeout, that the workers of a lost host are gone."""

EXIT_STATUS: Final = 75
"""Of a leader whose lease is over."""

T = TypeVar("T")

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
        host = read_host_facts(settings)
        own = BrokerAddress(arguments.broker.address)
        self.election = Election(own, host=host.name, address=host.address, duration_s=duration_s)
        self.notes = (self.election.leaders, self.election.notes, self.election.warnings)
        """Lists that `write_notes` empties."""
        self._wire = wire
        self._life = life
        self._poller = LeasePoller(
            settings.store,
            host,
            HostLease(host, settings.state),
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

    async def hold_lease(self, work: asyncio.Task[T]) -> T:
        """Renew the lease until this work is done, which the leader does before it opens its port."""
        done = asyncio.Event()

        def settle(_: asyncio.Task[T]) -> None:
            done.set()
            self._wire.wake()

        work.add_done_callback(settle)
        notes = (self.election.notes, self.election.warnings)
        await drive(self.election, self._wire, done, notes=notes, write_notes=self._log_notes)
        return await work

    def write_notes(self) -> None:
        """Log, and report another leader to the supervisor. Ends the process if the lease is over."""
        self._log_notes()
        while self.election.leaders:
            self._life.leads(self.election.leaders.pop(0))

    def _log_notes(self) -> None:
        log_lines(_log, {logging.INFO: self.election.notes, logging.WARNING: self.election.warnings})
        if self.election.refused:
            self._poller.record_refusal()
            self._life.refuse(self.election.refused)
        if self.election.lost:
            os._exit(EXIT_STATUS)

    def close(self) -> None:
        """Release the leases, so that a standby and another system with this name need not wait until they end."""
        self._poller.release(self.election.epoch)
        self._poller.close()


class LeasePoller(ThreadEndpoint):
    """Polls the lease for one broker, on a connection of its own: the record's may wait for a slow write."""

    def __init__(
        self,
        store: str,
        host: HostFacts,
        lease: HostLease,
        keys: Path | None,
        *,
        answer_max_s: float,
        wake: Callable[[], None],
    ) -> None:
        """`keys` is the directory with the keys of this host; None if no other host reaches it. A server that is silent
        for `answer_max_s` counts as hung: the next poll uses another connection, and has to come in time.

        Raises:
            OSError: the keys cannot be used.
        """
        super().__init__("lease", wake=wake)
        self._database = Database(store, "lease", answer_max_s=answer_max_s)
        self._host = host
        self._lease = lease
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
            if rival := self._lease.renew(connection, poll):
                return LeasePolled(rival=rival)
            write_host(connection, host)
            if poll.epoch:
                is_ours = renew_lease(connection, BROKER, poll.epoch, poll.duration_s, public_key=self._key)
                epoch = poll.epoch if is_ours else 0
            else:
                # Not less than the time, so that epochs grow even if an old copy of the database is restored.
                wanted = HeldLease(host.name, int(time.time()), poll.duration_s, host.address, self._key)
                epoch = acquire_lease(connection, BROKER, wanted, poll.ended)
            held = None if epoch else read_lease(connection, BROKER)
            heartbeats = read_heartbeats(connection) if epoch else {}
            refusals = read_refusals(connection) if epoch else []
        self._lease.confirm()
        if held is None:
            return LeasePolled(epoch=epoch, heartbeats=heartbeats, refusals=refusals)
        return LeasePolled(
            holder=held.holder,
            endpoint=held.endpoint,
            public_key=held.public_key,
            expires=held.expires,
            left_s=held.left_s,
        )

    def release(self, epoch: int) -> None:
        """End the leases of this host and of this epoch now; needs a running loop."""
        self.run(partial(self._release, epoch))

    def _release(self, epoch: int) -> None:
        try:
            with self._database.transaction() as connection:
                self._lease.release(connection)
                if epoch:
                    release_lease(connection, BROKER, epoch)
        except OSError as error:
            _log.warning("the leases of this host could not be released, so they end by themselves: %s", error)

    def record_refusal(self) -> None:
        """Record that this machine was refused as this host. It blocks, as the process ends after that; the thread is
        idle, as the refusal follows from its answer.
        """
        try:
            record_refusal(self._database, self._host)
        except OSError as error:
            _log.warning("the refusal could not be recorded for operators: %s", error)

    def close(self) -> None:
        super().close()
        self._database.close()


def read_heartbeats(connection: Connection) -> dict[str, float]:
    """The latest poll of each host, by the clock of the database. A poll changes it, whatever that clock does."""
    rows = connection.execute("SELECT name, extract(epoch FROM heartbeat)::float8 FROM hosts").fetchall()
    return dict(msgspec.convert(rows, list[tuple[str, float]]))


def write_host(connection: Connection, host: HostFacts) -> None:
    """Write the row of this host with a new heartbeat."""
    connection.execute(
        "INSERT INTO hosts (name, id, address, cores, memory_bytes, release, heartbeat) VALUES"
        " (%(name)s, %(id)s, %(address)s, %(cores)s, %(memory_bytes)s, %(release)s, clock_timestamp())"
        " ON CONFLICT (name) DO UPDATE SET id = excluded.id, address = excluded.address, cores = excluded.cores,"
        " memory_bytes = excluded.memory_bytes, release = excluded.release, heartbeat = excluded.heartbeat",
        {**host._asdict(), "release": RELEASE},
    )
