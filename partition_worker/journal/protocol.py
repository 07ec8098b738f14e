"""The protocols of a partition's journal and of the place where journals are stored, with the
implementations `sqlite_journal.py` and `postgres_journal.py` (`partition_worker/service.py` chooses one).

    Journals   the journals of all partitions: opens one under an epoch, and sets one aside that cannot be used
    Journal    the open journal of one partition: steps, snapshots, trimming, deletion

A `ReadableJournal` reads a journal beside its worker, for the command line.

Each method that changes a journal checks the epoch in the transaction that makes the change, so a worker whose lease
has moved changes nothing. `tests/partition_worker/journal/test_conformance.py` defines the details; every
implementation passes it, also the simulated disk.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from yunishard.common.messages.journal_messages import Step
from yunishard.partition_worker.recovery import JournalDamaged


class Fenced(OSError):
    """Another worker has the partition, under a later lease."""


class Statistics(NamedTuple):
    """The extent of a journal."""

    begins: int
    """The first step that is needed: after the snapshot, or the one that starts from an empty partition."""
    snapshot: int
    """The step after which the snapshot was taken; 0 without a snapshot."""
    last: int
    """The latest step; 0 without one. A snapshot may be recorded before the steps that it contains."""
    stored_bytes: int
    """Bytes of everything that is stored."""


class Journal(Protocol):
    """The journal of one partition, open under an epoch. The methods block, and are called by one thread at a time.

    A method that fails with OSError may be called again with the same arguments, possibly with further steps. If the
    outcome of a commit was unknown, that call finds it out, so nothing is stored twice. Unless a method states
    something else, it raises:

        Fenced: another worker has the partition. Nothing has changed.
        JournalDamaged: the contents cannot be used; a later attempt will not succeed.
        OSError: a later attempt may succeed; the text is the cause, such as a full disk.
    """

    has_garbage: bool
    """Whether `trim` may find something to delete; after an error of it, not until a snapshot is recorded."""

    def append(self, steps: Sequence[bytes], *, fresh: bool) -> int:
        """Store encoded steps, all or none, and return the number of the last one. They are durable on return. If they
        are `fresh`, no earlier step is needed any more. Steps that the snapshot contains are skipped.
        """

    def read_steps(self, first: int) -> Iterator[Step]:
        """The steps from this number on, each verified."""

    def write_snapshot(self, number: int, content: Iterable[bytes]) -> None:
        """Store a snapshot of the partition after this step, which counts once it is recorded. It may be called in a
        forked process, as it uses nothing that is open in this one.

        Raises:
            OSError: it cannot be written.
        """

    def record_snapshot(self, number: int) -> bool:
        """Replace the steps up to this number by the snapshot that was written. False if the partition has restarted
        since.
        """

    def read_snapshot(self) -> Iterator[bytes] | None:
        """The content of the recorded snapshot, verified, in pieces of any size; None without a snapshot."""

    def trim(self) -> None:
        """Delete some of the steps and snapshots that are no longer needed, in a short time."""

    def used_bytes(self) -> int:
        """Bytes of the steps, for the limit of a journal's size; free room that will be used again does not count."""

    def compact(self) -> None:
        """Delete everything that is no longer needed, and free its room at once."""

    def statistics(self) -> Statistics:
        """The present extent. May be called in any thread, and waits for no other method."""

    def delete(self) -> None:
        """Delete the journal of a partition that has ended, also what was set aside, and close it."""

    def close(self) -> None:
        """Release the journal. It stays open for others, and durable."""


class Extent(Protocol):
    """The steps of a journal, as `Statistics` describes them."""

    @property
    def begins(self) -> int:
        """The first step that is needed."""

    @property
    def snapshot(self) -> int:
        """The step after which the snapshot was taken; 0 without a snapshot."""

    @property
    def last(self) -> int:
        """The latest step; 0 without one."""


class ReadableJournal(Protocol):
    """A journal that is only read, also while a worker writes to it. The methods raise JournalDamaged or OSError."""

    def read_meta(self) -> Extent:
        """The present extent."""

    def open_snapshot(self) -> tuple[Extent, Iterator[bytes] | None]:
        """The extent, and the content of its snapshot in pieces."""

    def find_first(self) -> int:
        """The first step that is stored, needed or not."""

    def read_steps(self, first: int) -> Iterator[Step]:
        """The steps from this number on, each verified. Skips steps that a running worker deletes meanwhile."""

    def close(self) -> None:
        """Release it."""


class StepReader(ABC):
    """Reads the steps of a journal, open for reading or writing, in pages."""

    @abstractmethod
    def _read_page(self, first: int) -> tuple[int, int, Iterable[Step]]:
        """The first step that is needed, the last step, and some steps in order: from this one on or, if steps are
        stored together, from a few before. A running worker may delete and append steps: the first number is not older
        than the steps, and the second is not newer.
        """

    def read_steps(self, first: int) -> Iterator[Step]:
        """The steps from this number on, each verified. Skips steps that a running worker deletes meanwhile."""
        expected, last = first, first
        while expected <= last:
            begins, last, page = self._read_page(expected)
            start = expected
            for step in page:
                if step.number > max(expected, begins):
                    raise JournalDamaged(f"step {expected} is missing")
                if step.number >= expected:
                    yield step
                    expected = step.number + 1
            if expected == start:
                if max(expected, begins) <= last:
                    raise JournalDamaged(f"its steps from {expected} to {last} are missing")
                return


class Journals(Protocol):
    """The journals of all partitions."""

    def open(self, partition: str, epoch: int) -> Journal:
        """Open a partition's journal, or a new one. Workers of earlier epochs cannot change it from now on.

        Raises:
            Fenced: another worker has opened it under a later epoch.
            JournalDamaged: it is damaged, or of an earlier format that this release cannot read.
            OSError: it cannot be used now, or a later release wrote it; nothing has changed.
        """

    def epochs(self) -> dict[str, int]:
        """The partitions that have a journal, with the latest epoch of each.

        Raises:
            JournalDamaged: a journal cannot be read.
            OSError: they cannot be read now.
        """

    def set_aside(self, partition: str, epoch: int) -> str:
        """Set aside the journal of a partition that cannot be used, in place of an earlier one that was set aside; the
        next journal is new. Returns where it is, for an operator.

        Raises:
            Fenced: another worker has opened it under a later epoch.
            OSError: it cannot be set aside.
        """
