"""A host as it describes itself to others of the same store, and its lease there, so that of several systems with the
name of one host only one is that host.

A copy of a state directory, a clone of a machine and a restored snapshot of one have the name, the id and the keys of
the host. Each renewal therefore writes another random token, and the state directory keeps it:

    the row has a token of ours   no other system has renewed the lease since we did: renew it
    another token                 another system holds it: a `Rival`, which the machine watches (`election.py`)

So a process that restarts, even after `kill -9`, continues at once, and a copy does not, as it has an earlier token.

Not here: whether the rival is alive, and what follows (`election.py`).
"""

import os
import secrets
import socket
import uuid
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from yunishard.common.lease_watch import RELEASED
from yunishard.common.messages.control_messages import REFUSAL_SHOWN_S, PollLease, Refusal, Rival
from yunishard.common.names import OFF
from yunishard.common.postgres.connection import Connection, Database
from yunishard.common.postgres.leases import EXPIRES, LEFT_S
from yunishard.common.process.limits import measure_capacity
from yunishard.common.settings import Settings
from yunishard.common.transport.curve_keys import write_new

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
