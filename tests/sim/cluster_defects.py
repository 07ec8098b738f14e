"""Deliberate defects of what a cluster rests on: the database, leases, links between hosts.

Not here: those of a single machine (`mutations.py`), how soon each is found (`test_cluster.py`).
"""

from collections.abc import Iterator
from typing import Final

from common.journal_messages import Append
from tests.sim.database import OutcomeUnknown
from tests.sim.database_journal import DatabaseWriter
from tests.sim.mutations import Defect, replaced


def guess_that_it_was_committed() -> Iterator[None]:
    """A worker takes a commit of unknown outcome for durable."""
    before = DatabaseWriter._finish

    def finish(writer: DatabaseWriter, batch: list[Append] | tuple[int, bytes], outcome: int | bool | OSError) -> None:
        if isinstance(outcome, OutcomeUnknown) and isinstance(batch, list):
            outcome = batch[-1].first + len(batch[-1].steps) - 1
            writer._journal.last, writer._journal.is_unsettled = outcome, False
        before(writer, batch, outcome)

    return replaced(DatabaseWriter, "_finish", finish)


DEFECTS: Final[tuple[Defect, ...]] = (guess_that_it_was_committed,)
