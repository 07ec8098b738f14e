-- The tables of the history (`store.py` explains them).
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
CREATE TABLE queues (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL,
    name TEXT NOT NULL, running INTEGER NOT NULL, allocated TEXT NOT NULL, pending TEXT NOT NULL
) STRICT;
CREATE TABLE users (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL,
    name TEXT NOT NULL, running INTEGER NOT NULL, allocated TEXT NOT NULL, pending TEXT NOT NULL
) STRICT;
CREATE TABLE groups (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, partition INTEGER NOT NULL,
    name TEXT NOT NULL, running INTEGER NOT NULL, allocated TEXT NOT NULL, pending TEXT NOT NULL
) STRICT;
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
CREATE INDEX totals_at ON totals (at);
CREATE INDEX queues_at ON queues (at);
CREATE INDEX users_at ON users (at);
CREATE INDEX groups_at ON groups (at);
CREATE INDEX applications_at ON applications (at);
CREATE INDEX allocations_at ON allocations (at);
CREATE INDEX gaps_at ON gaps (at);
CREATE INDEX reasons_at ON reasons (at);
