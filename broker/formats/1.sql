-- Versions of configurations.
CREATE TABLE versions (
    rm TEXT NOT NULL, number INTEGER NOT NULL, checksum TEXT NOT NULL, at_ns INTEGER NOT NULL, author TEXT NOT NULL,
    origin TEXT NOT NULL, base TEXT NOT NULL, config TEXT NOT NULL, PRIMARY KEY (rm, number)
) STRICT;
