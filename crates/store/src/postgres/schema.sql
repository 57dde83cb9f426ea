-- Texts are kept as bytes: PostgreSQL's own refuse NUL, and their order would depend on a locale. They are found by
-- their digest, because an index takes no key of more than a third of a page.

CREATE SCHEMA windlass;

CREATE TABLE windlass.meta (
    key   text  PRIMARY KEY,
    value bytea NOT NULL
);

-- Inserted when a session is opened, deleted when it is removed, never updated. Its state is its last version.
CREATE TABLE windlass.sessions (
    no       bigint PRIMARY KEY,
    name     bytea  NOT NULL,
    name_key bytea  NOT NULL UNIQUE,
    principal bytea                     -- whose it is; NULL: nobody's
);

-- The states of a session, one for each group that wrote to it, without gaps. A writer appends the version after the last one it
-- knows: the key refuses whoever is not at the end. Taking a session is a version, so a former owner is refused by it.
--
-- Old versions are deleted while the session's row is locked, but never a version that took the session: it is the one at which
-- the owner before it would go on. Those, and the last one, outlive the session for the same reason.
CREATE TABLE windlass.versions (
    session    bigint  NOT NULL,
    version    bigint  NOT NULL,        -- from 1
    fence      bigint  NOT NULL,        -- of its owner
    head       bigint  NOT NULL,        -- its last entry
    chain      bytea   NOT NULL,        -- the link of the row of that entry
    generation bigint  NOT NULL,        -- of the last record it put
    taken      boolean NOT NULL,        -- whether the session has another owner since this version
    PRIMARY KEY (session, version)
);

-- Sessions with their state.
CREATE VIEW windlass.seats AS
    SELECT s.no, s.name, s.name_key, s.principal, t.version, t.fence, t.head, t.chain, t.generation
    FROM windlass.sessions s CROSS JOIN LATERAL (
        SELECT * FROM windlass.versions WHERE session = s.no ORDER BY version DESC LIMIT 1
    ) t;

-- Hashes of the names of removed sessions, keyed by the store's secret: the names are not used again.
CREATE TABLE windlass.gone (
    key   bytea PRIMARY KEY,
    value bytea NOT NULL                -- a hash of name and principal
);

CREATE TABLE windlass.batches (
    no      bigint PRIMARY KEY,
    session bigint NOT NULL,
    lookup  bytea  NOT NULL UNIQUE,
    expired boolean NOT NULL DEFAULT false
);

-- What a session has is read when it is taken, so that no later batch of it is asked for; and when it is removed.
CREATE INDEX batches_of_sessions ON windlass.batches (session);

CREATE TABLE windlass.open_batches (
    session bigint NOT NULL,
    no      bigint NOT NULL,
    PRIMARY KEY (session, no)
);

CREATE TABLE windlass.journal (
    row     bigint PRIMARY KEY,         -- batch << 20 | row of the batch
    session bigint NOT NULL,
    first   bigint NOT NULL,            -- number of its first entry in the session
    count   bigint NOT NULL,
    before  bytea  NOT NULL,            -- the link of the session's row before this one
    link    bytea  NOT NULL,            -- hash of all of this row and of that link
    data    bytea  NOT NULL,
    UNIQUE (session, first)
);

-- Runs of a session's rows that expired; no two of a session touch. The rows before and after a run vouch for it.
CREATE TABLE windlass.gaps (
    session bigint NOT NULL,
    first   bigint NOT NULL,            -- number of the first entry that expired
    count   bigint NOT NULL,
    before  bytea  NOT NULL,            -- the link of the row before the run
    link    bytea  NOT NULL,            -- the link of its last row
    PRIMARY KEY (session, first)
);

CREATE TABLE windlass.chunks (
    piece  bigint PRIMARY KEY,          -- blob << 24 | piece of the blob
    digest bytea NOT NULL,
    data   bytea NOT NULL
);

-- Pieces are kept as they are: compressing each would cost more than it saves.
ALTER TABLE windlass.chunks ALTER COLUMN data SET STORAGE EXTERNAL;

-- The first call of each dedupe key.
CREATE TABLE windlass.marks (
    mark    bytea  PRIMARY KEY,
    session bigint NOT NULL,
    call    bigint NOT NULL             -- batch << 16 | place in the batch
);

-- Small rows by key that are not facts about a call.
CREATE TABLE windlass.records (
    space      bigint NOT NULL,
    owner      bigint NOT NULL,         -- the session; 0: the whole store
    key        bytea  NOT NULL,
    generation bigint NOT NULL,         -- counted by its session; for the whole store, by a sequence
    digest     bytea  NOT NULL,         -- of the value
    value      bytea  NOT NULL,
    PRIMARY KEY (space, owner, key)
);

-- A blob is found by its number, whichever session it belongs to.
CREATE INDEX records_of_blobs ON windlass.records (key) WHERE space = 16;

CREATE TABLE windlass.inbound (
    no       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session  bigint NOT NULL,
    key      bytea  NOT NULL,
    key_hash bytea  NOT NULL,
    digest   bytea  NOT NULL,           -- of the body, so that a repetition is known after it is gone
    body     bytea,                     -- NULL once adopted
    UNIQUE (session, key_hash)
);

CREATE INDEX inbound_waiting ON windlass.inbound (session, no) WHERE body IS NOT NULL;

-- One row for each group of a connection that writes, inserted in the group's transaction. When the answer to a COMMIT is
-- lost, the connection looks for its row, and inserts a void one if there is none: then the group can never be committed.
CREATE TABLE windlass.groups (
    writer bytea   NOT NULL,
    no     bigint  NOT NULL,            -- from 1
    void   boolean NOT NULL,
    at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (writer, no)
);

CREATE SEQUENCE windlass.session_no;
CREATE SEQUENCE windlass.batch_no;
CREATE SEQUENCE windlass.blob_no;
-- Of records of the whole store. Each connection takes a block, so a record's generations are distinct, and not in order.
CREATE SEQUENCE windlass.generation CACHE 1024;

-- The formats that the tables have had, oldest first. The current one is in `meta`.
CREATE TABLE windlass.migrations (
    format bigint PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT now(),
    role   text NOT NULL DEFAULT current_user
);
