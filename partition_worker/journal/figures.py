"""Figures of the journal: its size, its transactions, its snapshots, and what the last start made of it.

They name their partition themselves. Not here: the steps that wait for it (`partition_worker/answers/own_figures.py`).
"""

import time
from collections.abc import Iterator
from typing import Final

from common.families import Family, distribution, gauge
from partition_worker.journal.writer import Journal

_LABELS: Final = ("partition",)


def families(journal: Journal, partition: str, *, replayed: int, recovery_s: float) -> Iterator[Family]:
    """All of them; `replayed` steps were played again at the start, and all of that took so many seconds."""

    def one(name: str, what: str, value: float) -> Family:
        return gauge(f"yunishard_{name}", what, _LABELS, [((partition,), value)])

    what = "What the journal takes on the disk with its snapshots, in bytes. Worry near the setting journal-max."
    yield one("journal_size_bytes", what, journal.size_bytes())
    yield distribution(
        "yunishard_journal_commit_seconds",
        "Seconds that a transaction took until it was on the disk; what it has is told only then. Worry if most take "
        "more than 0.05: the disk is slow, and so is everything that is told.",
        _LABELS,
        [((partition,), journal.commits)],
    )
    what = (
        "Seconds since the latest snapshot, or since the process began as long as it has taken none. One is due by "
        "what has come since, so a high age alone is no reason to worry."
    )
    yield one("journal_snapshot_age_seconds", what, round(time.monotonic() - journal.snapshot_at, 3))
    what = "Seconds that this snapshot took, 0 for none. Worry near 60, where it fails."
    yield one("journal_snapshot_seconds", what, round(journal.snapshot_took_s, 6))
    yield one("recovery_steps", "Steps that were played again when this process started.", replayed)
    what = "Seconds that it took to go on from the journal when this process started, in which nothing was placed."
    yield one("recovery_seconds", what, round(recovery_s, 6))
