"""Leases of time in PostgreSQL: of several processes, the holder of the lease does what only one may do.

A lease ends unless its holder renews it. Each renewal changes `expires`; a process that wants the lease watches that,
and counts the time by its own monotonic clock (`common/lease_watch.py`), as the clock of a database may jump. It then
acquires the lease only if that renewal is still the latest. The epoch grows with every acquisition. The holder counts
the time from before it sent the statement, so that it stops no later than anyone considers the lease to have ended.

Not here: what holders do (`broker/election.py`, `yunishard/webservice/history/`), and connections (`connection.py`).
"""

from typing import Final

import msgspec

from yunishard.common.lease_watch import RELEASED
from yunishard.common.messages.kinds import INT64_MAX
from yunishard.common.names import NUMBERS_PER_INCARNATION
from yunishard.common.postgres.connection import Connection

EXPIRES: Final = "extract(epoch FROM expires_at)::float8"
"""The column `expires`, by the clock of the database."""

LEFT_S: Final = "extract(epoch FROM expires_at - clock_timestamp())::float8"

_HELD: Final = f"SELECT holder, epoch, {LEFT_S}, endpoint, public_key, {EXPIRES}"


EPOCH_MAX: Final = INT64_MAX // NUMBERS_PER_INCARNATION - 1
"""Largest epoch of a lease: the numbers that its holder assigns fit into 64 bits. A lease with a larger one is not
acquired, with the reason, until an operator corrects it."""


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

    The epoch is at least that of `wanted`, and above all earlier ones; `left_s` is the duration. Raises OSError in the
    transaction if the epoch would be above EPOCH_MAX.
    """
    row = connection.execute(
        "INSERT INTO leases AS held (name, holder, epoch, expires_at, endpoint, public_key) VALUES (%(name)s,"
        " %(holder)s, %(epoch)s, clock_timestamp() + make_interval(secs => %(left_s)s), %(endpoint)s, %(public_key)s)"
        " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = greatest(least(held.epoch, %(max)s) + 1,"
        " excluded.epoch),"
        " expires_at = excluded.expires_at, endpoint = excluded.endpoint, public_key = excluded.public_key, writes = 0"
        " WHERE held.holder = excluded.holder OR extract(epoch FROM held.expires_at)::float8 IN (0, %(ended)s)"
        " RETURNING epoch",
        {"name": name, "ended": ended or RELEASED, "max": EPOCH_MAX, **msgspec.structs.asdict(wanted)},
    ).fetchone()
    epoch = msgspec.convert(row, tuple[int])[0] if row else 0
    if epoch > EPOCH_MAX:
        reason = f"the lease {name} of the store has an epoch above {EPOCH_MAX}, which no process has had"
        raise OSError(f"{reason}: UPDATE leases SET epoch = 0 WHERE name = '{name}'")  # noqa: S608 - a text
    return epoch


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
