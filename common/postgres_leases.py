"""Leases of time in PostgreSQL: of several processes, the holder of the lease does what only one may do.

A lease ends unless its holder renews it. Each renewal changes `expires`; a process that wants the lease watches that,
and counts the time by its own monotonic clock (`lease_watch.py`), as the clock of a database may jump. It then acquires
the lease only if that renewal is still the latest. The epoch grows with every acquisition. The holder counts the time
from before it sent the statement, so that it stops no later than anyone considers the lease to have ended.

Not here: what holders do (`broker/election.py`, `webservice/history/`), and connections (`postgres.py`).
"""

from typing import Final

import msgspec

from common.lease_watch import RELEASED
from common.postgres import Connection

EXPIRES: Final = "extract(epoch FROM expires_at)::float8"
"""The column `expires`, by the clock of the database."""

LEFT_S: Final = "extract(epoch FROM expires_at - clock_timestamp())::float8"

_HELD: Final = f"SELECT holder, epoch, {LEFT_S}, endpoint, public_key, {EXPIRES}"


class HeldLease(msgspec.Struct, frozen=True):
    """A row of `leases`."""

    holder: str
    """The name of the host whose process has it; empty before the first one."""
    epoch: int
    left_s: float
    """Seconds until it expires by the clock of the database; of a lease that is wanted, its duration."""
    endpoint: str = ""
    """Where other hosts reach its holder."""
    public_key: str = ""
    """The holder's CURVE key."""
    expires: float = RELEASED
    """Identifies the latest renewal; RELEASED if the holder has released it."""


def read_lease(connection: Connection, name: str) -> HeldLease | None:
    """The lease of this name; None if it was never acquired."""
    row = connection.execute(f"{_HELD} FROM leases WHERE name = %s", (name,)).fetchone()
    return None if row is None else HeldLease(*msgspec.convert(row, tuple[str, int, float, str, str, float]))


def acquire_lease(connection: Connection, name: str, wanted: HeldLease, ended: float | None = None) -> int:
    """Take the lease if it was released, if it was that of an earlier process of the same holder, or if its latest
    renewal is the `ended` one; its new epoch, or 0.

    The epoch is at least that of `wanted`, and above all earlier ones; `left_s` is the duration.
    """
    row = connection.execute(
        "INSERT INTO leases AS held (name, holder, epoch, expires_at, endpoint, public_key) VALUES (%(name)s,"
        " %(holder)s, %(epoch)s, clock_timestamp() + make_interval(secs => %(left_s)s), %(endpoint)s, %(public_key)s)"
        " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = greatest(held.epoch + 1, excluded.epoch),"
        " expires_at = excluded.expires_at, endpoint = excluded.endpoint, public_key = excluded.public_key, writes = 0"
        " WHERE held.holder = excluded.holder OR extract(epoch FROM held.expires_at)::float8 IN (0, %(ended)s)"
        " RETURNING epoch",
        {"name": name, "ended": ended or RELEASED, **msgspec.structs.asdict(wanted)},
    ).fetchone()
    return msgspec.convert(row, tuple[int])[0] if row else 0


def renew_lease(connection: Connection, name: str, epoch: int, duration_s: float, *, public_key: str = "") -> bool:
    """Extend the lease of this epoch, with the holder's present key; whether it is still the latest."""
    row = connection.execute(
        "UPDATE leases SET expires_at = clock_timestamp() + make_interval(secs => %s), public_key = %s"
        " WHERE name = %s AND epoch = %s RETURNING epoch",
        (duration_s, public_key, name, epoch),
    ).fetchone()
    return row is not None


def release_lease(connection: Connection, name: str, epoch: int) -> None:
    """End the lease of this epoch at once, so that another process need not wait."""
    connection.execute("UPDATE leases SET expires_at = 'epoch' WHERE name = %s AND epoch = %s", (name, epoch))
