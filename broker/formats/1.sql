-- Records of RMs as JSON objects, and the incarnation of the broker.
CREATE TABLE managers (rm TEXT NOT NULL PRIMARY KEY, facts TEXT NOT NULL) STRICT;
CREATE TABLE incarnations (number INTEGER NOT NULL) STRICT;
-- Texts of configurations, each once, apart from the versions that have them.
CREATE TABLE texts (
    digest TEXT NOT NULL PRIMARY KEY, -- SHA-256
    config BLOB NOT NULL
) STRICT;
CREATE TABLE versions (
    rm TEXT NOT NULL, number INTEGER NOT NULL, checksum TEXT NOT NULL, at_ns INTEGER NOT NULL, author TEXT NOT NULL,
    origin TEXT NOT NULL, base TEXT NOT NULL, size INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (rm, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX versions_of_text ON versions (digest);
