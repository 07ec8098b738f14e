"""Whether a journal is whole, whether it leads to the same again, and what it comes to.

Not here: finding damage (`reading.py`), playing again (`partition_worker/worker.py`).
"""

import sys
from contextlib import closing
from typing import Final

import msgspec

from common.journal_messages import Step
from common.rm_messages import AllocationResponse
from common.wire import decoded
from partition_worker.journal.files import Files, JournalDamaged
from partition_worker.journal.reading import Reader, step_of
from partition_worker.recorder import Diverged
from partition_worker.remembered import RememberedWronglyError
from partition_worker.worker import Worker

LOOKS: Final = 3
"""How often to read a journal whose worker takes a snapshot meanwhile."""


class Sums(msgspec.Struct):
    """Of an application. What was told counts since the snapshot; what runs is after the last step."""

    allocated: int = 0
    released: int = 0
    running: int = 0


class Extent(msgspec.Struct, rename="camel"):
    """Of a journal that is whole."""

    partition: str
    steps: int
    last: int
    """The number of the latest step; 0 for none."""
    snapshot: int
    """The step after which it was taken; 0 for none."""
    snapshot_bytes: int

    def line(self) -> str:
        """The same for people."""
        steps = f"{self.steps} steps up to {self.last}" if self.steps else "no steps"
        base = f", and a snapshot of {self.snapshot_bytes} bytes after step {self.snapshot}" if self.snapshot else ""
        return f"{self.partition}: whole: {steps}{base}"


def verified(files: Files) -> Extent:
    """What is there, if it is whole.

    Raises:
        JournalDamaged, OSError: it is not.
    """
    with closing(Reader(files)) as reader:
        meta, snapshot = reader.snapshot()
        count = last = 0
        for row in reader.rows(reader.first()):
            step_of(row)
            count, last = count + 1, row.number
    return Extent(files.partition, count, last, meta.snapshot, len(snapshot or b""))


def played(files: Files, worker: Worker) -> list[Step]:
    """Let this worker be as the journal says; the steps that it played.

    Raises:
        JournalDamaged: also if they lead to something else than they did.
    """
    snapshot, steps = _consistent(files)
    try:
        worker.recover(snapshot, steps)
    except (Diverged, RememberedWronglyError) as error:
        raise JournalDamaged(str(error)) from error
    return steps


def _consistent(files: Files) -> tuple[bytes | None, list[Step]]:
    """The snapshot and the steps after it; a worker that runs may put another one in its place in between."""
    with closing(Reader(files)) as reader:
        for _ in range(LOOKS):
            meta, snapshot = reader.snapshot()
            steps = [step_of(row) for row in reader.rows(meta.begins)]
            if reader.meta().begins == meta.begins:
                return snapshot, steps
    raise OSError(f"{files.database}: its worker takes one snapshot after the other; try again")


def sums(files: Files, worker: Worker) -> tuple[int, dict[str, Sums]]:
    """From which step on, or 0 for none since the snapshot; by application, in order of its id.

    Raises:
        JournalDamaged, OSError: as `played`.
    """
    found: dict[str, Sums] = {}
    steps = played(files, worker)
    for step in steps:
        for _, kind, body in step.told:
            if kind != AllocationResponse.__name__:
                continue
            response = decoded(AllocationResponse, body)
            for allocation in response.new:
                found.setdefault(allocation.application_id, Sums()).allocated += 1
            for release in response.released:
                found.setdefault(release.application_id, Sums()).released += 1
    if worker.partition is not None:
        for application in worker.partition.applications.values():
            if application.allocations or application.application_id in found:
                found.setdefault(application.application_id, Sums()).running = len(application.allocations)
    return steps[0].number if steps else 0, dict(sorted(found.items()))


def show_sums(first: int, found: dict[str, Sums], *, as_json: bool) -> None:
    """Print them, with the total at the end."""
    total = Sums(*(sum(getattr(one, name) for one in found.values()) for name in Sums.__struct_fields__))
    if as_json:
        whole = {"firstStep": first, "applications": found, "total": total}
        sys.stdout.write(msgspec.json.encode(whole).decode() + "\n")
        return
    width = max(map(len, (*found, "application")))
    sys.stdout.write(f"{'application':<{width}}  {'allocated':>9}  {'released':>9}  {'running':>9}\n")
    for name, one in (*found.items(), ("total", total)):
        sys.stdout.write(f"{name:<{width}}  {one.allocated:>9}  {one.released:>9}  {one.running:>9}\n")
    counted = f"from step {first} on" if first else "since the snapshot, and there is no step after it"
    sys.stdout.write(f"allocated and released: {counted}; running: after the last step\n")
