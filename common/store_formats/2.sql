-- Leases of time: one of several processes leads, until `expires_at` by the clock of the database.
ALTER TABLE leases
    ADD COLUMN holder text NOT NULL DEFAULT '',     -- the name of its host
    ADD COLUMN expires_at timestamptz NOT NULL DEFAULT '-infinity',
    ADD COLUMN endpoint text NOT NULL DEFAULT '',   -- where the other hosts reach it
    ADD COLUMN public_key text NOT NULL DEFAULT ''; -- its CURVE key

-- The hosts of the cluster. Each renews its own row.
CREATE TABLE hosts (
    name text PRIMARY KEY,
    id text NOT NULL, -- of its state directory, so that a second host of the same name is noticed
    address text NOT NULL,
    cores integer NOT NULL,
    memory_bytes bigint NOT NULL,
    release text NOT NULL,
    heartbeat timestamptz NOT NULL, -- by the clock of the database
    is_draining boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
