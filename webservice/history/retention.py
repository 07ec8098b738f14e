"""What of the history is forgotten: what is too old, and where it is too large the oldest of everything.

Rows are deleted in slices, the oldest first and a bounded number of them at a time, so that whoever writes is never
kept waiting for long; the rest goes another time. The room becomes free within the file, which so grows no further, and
is given back to the disk in pieces too.

Not here: when this is done (`keeping.py`).
"""

from typing import Final

from webservice.history.schema import TIMED
from webservice.history.store import Store, explained

SLICE_ROWS: Final = 2_000
"""Deleted by one statement: some ten milliseconds."""

SLICES_MAX: Final = 25
"""At a time, which is after each writing: more than comes in, so the bounds hold under a flood as well."""

FREE_PAGES_MAX: Final = 2_000
"""Pages of 4 KiB that are given back to the disk at a time."""

PARTS: Final = 64
"""Where there is too much, what is in the oldest one of so many equal parts of the whole time goes first."""

PART_MIN_NS: Final = 60 * 10**9


def tidy(store: Store, *, bytes_max: int, age_max_ns: int, now_ns: int) -> None:
    """Forget what is due, as much as may be done at a time.

    Raises:
        HistoryDamaged, HistoryUnusable: as the store says.
    """
    left = _forget(store, now_ns - age_max_ns, SLICES_MAX)
    while left and used_bytes(store) > bytes_max and (oldest := _oldest(store)) is not None:
        part_ns = max((now_ns - oldest) // PARTS, PART_MIN_NS)
        left = _forget(store, oldest + part_ns, left, bytes_max=bytes_max)
    if file_bytes(store) > bytes_max:
        with explained():
            store.file.executescript(f"PRAGMA incremental_vacuum({FREE_PAGES_MAX})")  # `execute` frees one page only


def used_bytes(store: Store) -> int:
    """What the rows take; what is free within the file is not counted."""
    return (_pragma(store, "page_count") - _pragma(store, "freelist_count")) * _pragma(store, "page_size")


def file_bytes(store: Store) -> int:
    """What the file takes on the disk, but for SQLite's log."""
    return _pragma(store, "page_count") * _pragma(store, "page_size")


def _pragma(store: Store, name: str) -> int:
    with explained():
        value: int = store.file.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def _oldest(store: Store) -> int | None:
    """The time of the oldest row of all."""
    with explained():
        times = [store.file.execute(f"SELECT min(at) FROM {table}").fetchone()[0] for table in TIMED]  # noqa: S608
    return min((at for at in times if at is not None), default=None)


def _forget(store: Store, before_ns: int, slices: int, *, bytes_max: int = 0) -> int:
    """Delete what is older than this, in so many slices at most, and no more than is needed for so few bytes; how many
    slices are left.
    """
    for table in TIMED:
        deleted = SLICE_ROWS
        while deleted == SLICE_ROWS and slices:
            if bytes_max and used_bytes(store) <= bytes_max:
                return slices
            with explained():
                deleted = store.file.execute(
                    f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE at < ? ORDER BY at LIMIT ?)",  # noqa: S608
                    (before_ns, SLICE_ROWS),
                ).rowcount
            slices -= deleted > 0
    return slices
