-- The format of the store, in one row. A host whose release knows only earlier formats does not start.
CREATE TABLE store_format (number integer NOT NULL);
INSERT INTO store_format VALUES (1);

-- Partition journals. A row is locked in every transaction that changes a journal, which checks the epoch.
CREATE TABLE journals (
    partition text PRIMARY KEY,
    epoch bigint NOT NULL,
    begins bigint NOT NULL DEFAULT 1,         -- the first step that is needed
    snapshot bigint NOT NULL DEFAULT 0,       -- the step after which the snapshot was taken; 0 without a snapshot
    snapshot_epoch bigint NOT NULL DEFAULT 0, -- the epoch that wrote it
    last bigint NOT NULL DEFAULT 0            -- the latest step
) WITH (fillfactor = 50); -- room for updates in place

-- One row for each group commit: all of its steps.
CREATE TABLE steps (
    partition text NOT NULL,
    first bigint NOT NULL,
    last bigint NOT NULL,
    content bytea NOT NULL, -- a MessagePack array of the encoded steps
    checksum bigint NOT NULL,
    PRIMARY KEY (partition, last)
);
ALTER TABLE steps ALTER COLUMN content SET STORAGE EXTERNAL; -- not compressed

-- Snapshots in pieces. Only the one that `journals` names counts.
CREATE TABLE snapshots (
    partition text NOT NULL,
    number bigint NOT NULL,
    epoch bigint NOT NULL,
    piece integer NOT NULL,
    content bytea NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (partition, number, epoch, piece)
);
ALTER TABLE snapshots ALTER COLUMN content SET STORAGE EXTERNAL;

-- Who leads. The epoch is checked in every transaction of the holder.
CREATE TABLE leases (
    name text PRIMARY KEY,
    epoch bigint NOT NULL,
    writes bigint NOT NULL DEFAULT 0 -- transactions under this epoch, to find out the outcome of the last one
) WITH (fillfactor = 50);

-- RMs with their configurations, and versions of configurations.
CREATE TABLE managers (rm text PRIMARY KEY, facts text NOT NULL, config bytea NOT NULL);
CREATE TABLE versions (
    rm text NOT NULL,
    number bigint NOT NULL,
    checksum text NOT NULL,
    at_ns bigint NOT NULL,
    author text NOT NULL,
    origin text NOT NULL,
    base text NOT NULL,
    config bytea NOT NULL,
    position bigint GENERATED ALWAYS AS IDENTITY, -- the order in which RMs became known
    PRIMARY KEY (rm, number)
);
