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

-- Removes a piece of a session that is locked; says whether something is left. `blob` is the space among `spaces` whose keys are
-- numbers of blobs, of which each piece counts for so many rows.
CREATE FUNCTION windlass.remove(gone bigint, most bigint, spaces bigint[], blob bigint, weight bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    rows  bigint;
    found_key bytea;
    number bigint;
BEGIN
    -- The newest entries, and with the first row of a batch the batch.
    WITH cut AS (
        DELETE FROM windlass.journal WHERE row IN
            (SELECT row FROM windlass.journal WHERE session = gone ORDER BY first DESC LIMIT most)
        RETURNING row, first, before
    ), batches AS (
        DELETE FROM windlass.batches b USING cut WHERE cut.row & 1048575 = 0 AND b.no = cut.row >> 20 RETURNING b.no
    ), open AS (
        DELETE FROM windlass.open_batches o USING batches b WHERE o.session = gone AND o.no = b.no
    ), last AS (
        SELECT first, before FROM cut ORDER BY first LIMIT 1
    )
    UPDATE windlass.sessions s SET head = last.first - 1, chain = last.before FROM last WHERE s.no = gone;
    GET DIAGNOSTICS rows = ROW_COUNT;
    IF rows > 0 THEN
        RETURN true;
    END IF;
    DELETE FROM windlass.open_batches WHERE session = gone;
    DELETE FROM windlass.inbound WHERE no IN (SELECT no FROM windlass.inbound WHERE session = gone LIMIT most);
    GET DIAGNOSTICS rows = ROW_COUNT;
    IF rows > 0 THEN
        RETURN true;
    END IF;
    SELECT key INTO found_key FROM windlass.records WHERE space = blob AND owner = gone ORDER BY key LIMIT 1;
    IF FOUND THEN
        number := ('x' || convert_from(found_key, 'UTF8'))::bit(64)::bigint;
        rows := greatest(most / weight, 1);
        WITH pieces AS (
            DELETE FROM windlass.chunks WHERE piece IN
                (SELECT piece FROM windlass.chunks WHERE piece >= number << 24 AND piece < (number + 1) << 24 LIMIT rows)
            RETURNING piece
        )
        DELETE FROM windlass.records WHERE space = blob AND owner = gone AND key = found_key
            AND (SELECT count(*) FROM pieces) < rows;
        RETURN true;
    END IF;
    DELETE FROM windlass.records WHERE (space, owner, key) IN
        (SELECT space, owner, key FROM windlass.records WHERE space = ANY(spaces) AND owner = gone LIMIT most);
    GET DIAGNOSTICS rows = ROW_COUNT;
    IF rows > 0 THEN
        RETURN true;
    END IF;
    DELETE FROM windlass.marks WHERE mark IN (SELECT mark FROM windlass.marks WHERE session = gone LIMIT most);
    GET DIAGNOSTICS rows = ROW_COUNT;
    IF rows > 0 THEN
        RETURN true;
    END IF;
    DELETE FROM windlass.sessions WHERE no = gone;
    RETURN false;
END
$$;
