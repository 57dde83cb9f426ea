-- Integers inside and keys that mostly grow, so that a commit dirties few pages however old the file is.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    no       INTEGER PRIMARY KEY,
    name     TEXT    NOT NULL UNIQUE,
    fence    INTEGER NOT NULL,
    head     INTEGER NOT NULL,          -- its last entry
    last_row INTEGER,                   -- the journal row of that entry
    chain    BLOB    NOT NULL,          -- the link of that row
    open     INTEGER NOT NULL,          -- a sum over its open batches, which vouches for the set of them
    seal     INTEGER NOT NULL           -- a hash of all of this but the name
) STRICT;

CREATE TABLE batches (
    no      INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    lookup  BLOB    NOT NULL,           -- no two have the same: the writer sees to it
    seal    INTEGER NOT NULL            -- a hash of all of this
) STRICT;

-- The index of the batches by their look-ups. It is filled in runs, so that neighbours share a page; a batch after the
-- one in meta's 'indexed' may be missing.
CREATE TABLE lookups (
    part INTEGER NOT NULL,              -- the first half of the look-up
    no   INTEGER NOT NULL,
    PRIMARY KEY (part, no)
) STRICT, WITHOUT ROWID;

-- A table of its own: closing a batch deletes from this small one and leaves the large one alone.
CREATE TABLE open_batches (
    session INTEGER NOT NULL,
    no      INTEGER NOT NULL,
    PRIMARY KEY (session, no)
) STRICT, WITHOUT ROWID;

CREATE TABLE journal (
    row     INTEGER PRIMARY KEY,        -- batch << 20 | row of the batch: a batch is one range, no index is needed
    session INTEGER NOT NULL,
    first   INTEGER NOT NULL,           -- number of its first entry in the session
    count   INTEGER NOT NULL,
    prev    INTEGER,                    -- the session's row before this one
    link    BLOB    NOT NULL,           -- hash of all of this row and of the link of the one before it
    data    BLOB    NOT NULL
) STRICT;

CREATE TABLE chunks (
    piece  INTEGER PRIMARY KEY,         -- blob << 24 | piece of the blob
    digest BLOB NOT NULL,               -- of the key and the data
    data   BLOB NOT NULL
) STRICT;

CREATE TABLE inbound (
    no      INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    key     TEXT    NOT NULL,
    digest  BLOB    NOT NULL,           -- of session, key and body, so that a repetition is known after the body is gone
    body    BLOB,                       -- NULL once adopted
    UNIQUE (session, key)
) STRICT;

CREATE INDEX inbound_waiting ON inbound (session, no) WHERE body IS NOT NULL;
