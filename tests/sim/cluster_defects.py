"""Deliberate defects of what a cluster rests on: the database, leases, links between hosts.

Not here: those of a single machine (`mutations.py`), how soon each is found (`test_cluster.py`).
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from tests.sim import candidate, database_journal, database_record
from tests.sim.database import OutcomeUnknown, Tables
from tests.sim.database_journal import DatabaseWriter
from tests.sim.faults import ANY, Traits, often
from tests.sim.host import Host
from tests.sim.mutations import Defect, replaced
from yunishard.broker.election import Election
from yunishard.common.messages import wire
from yunishard.common.messages.control_messages import LeasePolled, PollLease
from yunishard.common.messages.journal_messages import Append
from yunishard.common.names import BROKER


def omit_the_epoch() -> Iterator[None]:
    """No transaction checks the epoch of the worker or broker that makes it."""
    for _ in replaced(database_journal, "is_ours", lambda file, epoch: True):
        yield from replaced(database_record, "is_latest", lambda tables, epoch: True)


def guess_that_it_was_committed() -> Iterator[None]:
    """A worker takes a commit of unknown outcome for durable."""
    before = DatabaseWriter._finish

    def finish(writer: DatabaseWriter, batch: list[Append] | tuple[int, bytes], outcome: int | bool | OSError) -> None:
        if isinstance(outcome, OutcomeUnknown) and isinstance(batch, list):
            outcome = batch[-1].first + len(batch[-1].steps) - 1
            writer._journal.last, writer._journal.is_unsettled = outcome, False
        before(writer, batch, outcome)

    return replaced(DatabaseWriter, "_finish", finish)


def lead_after_the_lease() -> Iterator[None]:
    """A broker that leads does not stop when its lease ends, nor when another one has replaced it."""
    for _ in replaced(Election, "is_over", lambda election, now: False):
        yield from replaced(Election, "_end", lambda election, reason: None)


def lease_by_the_clock_of_the_host() -> Iterator[None]:
    """A standby takes the lease once that has ended by the clock of its host."""
    before = candidate.poll_lease

    def poll_lease(host: Host, unix_s: int, poll: PollLease, tables: Tables, now: float) -> LeasePolled:
        lease = tables.lease(BROKER)
        ended = lease.expires_at if lease.expires_at < now + host.skew_s else poll.ended
        return before(host, unix_s, replace(poll, ended=ended), tables, now)

    return replaced(candidate, "poll_lease", poll_lease)


def lease_by_the_clock_of_the_database() -> Iterator[None]:
    """A standby takes the lease once that has ended by the clock of the database."""
    before = candidate.poll_lease

    def poll_lease(host: Host, unix_s: int, poll: PollLease, tables: Tables, now: float) -> LeasePolled:
        lease = tables.lease(BROKER)
        ended = lease.expires_at if lease.expires_at < now else None
        return before(host, unix_s, replace(poll, ended=ended), tables, now)

    return replaced(candidate, "poll_lease", poll_lease)


def ignore_lost_links() -> Iterator[None]:
    """No process does anything when it has another connection."""
    return replaced(wire, "LINK_LOST", "nothing")


DEFECTS: Final[dict[Defect, Traits]] = {
    omit_the_epoch: often("worker loses its lease", "process stands still", hosts=2),
    guess_that_it_was_committed: often("worker dies", "database fails over", "database hangs"),
    lead_after_the_lease: often("process stands still", "host is cut off from the database"),
    lease_by_the_clock_of_the_host: ANY,
    lease_by_the_clock_of_the_database: often("database clock jumps"),
    ignore_lost_links: ANY,
}
"""Each with the traits of the worlds that show it soon."""
