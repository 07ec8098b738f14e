"""The tables of the history.

    partitions    who was there, and up to where each has been read
    totals        a row for each partition and minute
    queues, users, groups    their usage, a row when it is another than before and one each hour
    applications  a row for each that has ended
    allocations   a row for each, from its beginning on
    gaps          what is not known
    reasons       why applications fail that have not ended yet

All but the first have `at`, the time by which a row is found and forgotten: that of a sample, of the end of an
application, of the beginning of an allocation (or its end, where the beginning is not known) or of a gap. Times are
Unix nanoseconds, resources and the like JSON.

Not here: what is done with them (`store.py`, `retention.py`, `reading.py`).
"""

from typing import Final

FORMAT: Final = 1
"""Of the file, in its `user_version`; another one with each change of the tables."""

_USAGE: Final = """(
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL,
    name TEXT NOT NULL, running INTEGER NOT NULL, allocated TEXT NOT NULL, pending TEXT NOT NULL
) STRICT"""

SCHEMA: Final = f"""
CREATE TABLE partitions (
    id INTEGER PRIMARY KEY, full_name TEXT NOT NULL UNIQUE, name TEXT NOT NULL, rm TEXT NOT NULL,
    instance TEXT NOT NULL DEFAULT '', next_event INTEGER NOT NULL DEFAULT 0,
    last_event_ns INTEGER NOT NULL DEFAULT 0, ended_ns INTEGER NOT NULL DEFAULT 0,
    sampled_ns INTEGER NOT NULL DEFAULT 0, unsure INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE totals (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL, running INTEGER NOT NULL,
    allocated INTEGER NOT NULL, released INTEGER NOT NULL, capacity TEXT NOT NULL, used TEXT NOT NULL
) STRICT;
CREATE TABLE queues {_USAGE};
CREATE TABLE users {_USAGE};
CREATE TABLE groups {_USAGE};
CREATE TABLE applications (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL, application TEXT NOT NULL,
    queue TEXT NOT NULL, user TEXT NOT NULL, groups TEXT NOT NULL, state TEXT NOT NULL,
    submitted INTEGER NOT NULL, started INTEGER NOT NULL, allocations INTEGER NOT NULL,
    message TEXT NOT NULL, used TEXT NOT NULL, UNIQUE (application, partition, at)
) STRICT;
CREATE TABLE allocations (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL, key TEXT NOT NULL,
    application TEXT NOT NULL, queue TEXT NOT NULL, user TEXT NOT NULL, node TEXT NOT NULL,
    resources TEXT NOT NULL, began INTEGER, ended INTEGER, how TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE UNIQUE INDEX running ON allocations (partition, key) WHERE ended IS NULL;
CREATE INDEX allocations_of ON allocations (application, partition);
CREATE TABLE gaps (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL, what TEXT NOT NULL,
    until INTEGER NOT NULL, missed INTEGER, reason TEXT NOT NULL
) STRICT;
CREATE TABLE reasons (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL, application TEXT NOT NULL,
    message TEXT NOT NULL, UNIQUE (application, partition)
) STRICT;
"""

TIMED: Final = ("totals", "queues", "users", "groups", "applications", "allocations", "gaps", "reasons")
"""The tables whose rows have a time; each has an index on it."""
