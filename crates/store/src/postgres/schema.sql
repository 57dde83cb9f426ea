-- Texts are kept as bytes: PostgreSQL's own refuse NUL, and their order would depend on a locale. They are found by
-- their digest, because an index takes no key of more than a third of a page.

CREATE SCHEMA windlass;

CREATE TABLE windlass.meta (
    key   text  PRIMARY KEY,
    value bytea NOT NULL
);

CREATE TABLE windlass.sessions (
    no       bigint PRIMARY KEY,
    name     bytea  NOT NULL,
    name_key bytea  NOT NULL UNIQUE,
    fence    bigint NOT NULL,
    head     bigint NOT NULL,           -- its last entry
    chain    bytea  NOT NULL            -- the link of the row of that entry
) WITH (fillfactor = 70);

CREATE TABLE windlass.batches (
    no      bigint PRIMARY KEY,
    session bigint NOT NULL,
    lookup  bytea  NOT NULL UNIQUE
);

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

CREATE TABLE windlass.chunks (
    piece  bigint PRIMARY KEY,          -- blob << 24 | piece of the blob
    digest bytea NOT NULL,
    data   bytea NOT NULL
);

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
    generation bigint NOT NULL,
    digest     bytea  NOT NULL,         -- of the value
    value      bytea  NOT NULL,
    PRIMARY KEY (space, owner, key)
);

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

-- One row for each connection that writes: the number of its last group, in the same transaction as the group. When
-- the answer to a COMMIT is lost, this tells whether there was one.
CREATE TABLE windlass.writers (
    id    bytea       PRIMARY KEY,
    last  bigint      NOT NULL,
    since timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

CREATE SEQUENCE windlass.session_no;
CREATE SEQUENCE windlass.batch_no;
CREATE SEQUENCE windlass.blob_no;
CREATE SEQUENCE windlass.generation;

-- A sequence gives one number at a time; under the lock a run of them is ours.
CREATE FUNCTION windlass.reserve(what regclass, count bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    first bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(what::oid::bigint);
    first := nextval(what);
    IF count > 1 THEN
        PERFORM setval(what, first + count - 1);
    END IF;
    RETURN first;
END
$$;
