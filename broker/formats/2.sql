-- Records of RMs as JSON objects, and the incarnation of the broker.
CREATE TABLE managers (rm TEXT NOT NULL PRIMARY KEY, facts TEXT NOT NULL) STRICT;
CREATE TABLE incarnations (number INTEGER NOT NULL) STRICT;
