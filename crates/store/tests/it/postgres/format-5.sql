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
    PRIMARY KEY (writer, no)
);

CREATE SEQUENCE windlass.session_no;
CREATE SEQUENCE windlass.batch_no;
CREATE SEQUENCE windlass.blob_no;
-- Of records of the whole store. Each connection takes a block, so a record's generations are distinct, and not in order.
CREATE SEQUENCE windlass.generation CACHE 1024;

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

-- Locks records of the whole store until the end of the transaction, one by one: a record that is not there yet has no
-- row to lock. The keys come sorted, so that two groups never deadlock.
CREATE FUNCTION windlass.lock(keys bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR place IN 1 .. cardinality(keys) LOOP
        PERFORM pg_advisory_xact_lock(keys[place]);
    END LOOP;
END
$$;

-- Inserts the row of a group, and from time to time deletes those before it: their outcome is known to their writer. Void rows
-- stay, since their groups may still be on the way.
CREATE FUNCTION windlass.insert_group(marker bytea, group_no bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO windlass.groups (writer, no, void) VALUES (marker, group_no, false);
    IF group_no % 64 = 0 THEN
        DELETE FROM windlass.groups WHERE writer = marker AND no < group_no AND NOT void;
    END IF;
END
$$;

-- Appends to each session a version that changes nothing. Whoever writes to one of them without a lock has to wait from then on,
-- so that a group is not refused again and again by an owner that keeps writing. The sessions are locked, and come sorted.
CREATE FUNCTION windlass.block(wanted bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR place IN 1 .. cardinality(wanted) LOOP
        LOOP
            INSERT INTO windlass.versions (session, version, fence, head, chain, generation, taken)
                SELECT no, version + 1, fence, head, chain, generation, true FROM windlass.seats WHERE no = wanted[place]
                ON CONFLICT DO NOTHING;
            EXIT WHEN FOUND OR NOT EXISTS (SELECT 1 FROM windlass.sessions WHERE no = wanted[place]);
        END LOOP;
    END LOOP;
END
$$;

-- Appends a group of entries and batches to sessions whose last versions the writer knows, in one statement and therefore whole or not
-- at all. No lock and no question: the keys refuse whatever is not new, and the versions a writer that is not at the end.
CREATE FUNCTION windlass.append(
    writer bytea, group_no bigint,
    sessions bigint[], versions bigint[], fences bigint[], heads bigint[], chains bytea[], generations bigint[],
    rows bigint[], row_sessions bigint[], firsts bigint[], counts bigint[], befores bytea[], links bytea[], data bytea[],
    batches bigint[], batch_sessions bigint[], lookups bytea[],
    opened bigint[], opened_sessions bigint[], closed bigint[], closed_sessions bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- First, and in the order of the sessions, so that two groups never deadlock.
    INSERT INTO windlass.versions (session, version, fence, head, chain, generation, taken)
        SELECT s.*, false FROM unnest(sessions, versions, fences, heads, chains, generations) AS s;
    PERFORM windlass.insert_group(writer, group_no);
    IF cardinality(batches) > 0 THEN
        INSERT INTO windlass.batches (no, session, lookup) SELECT * FROM unnest(batches, batch_sessions, lookups);
    END IF;
    IF cardinality(opened) > 0 THEN
        INSERT INTO windlass.open_batches (session, no)
            SELECT b.session, b.no FROM windlass.batches b
            JOIN unnest(opened_sessions, opened) AS wanted (session, no) USING (session, no)
            ON CONFLICT DO NOTHING;
    END IF;
    IF cardinality(closed) > 0 THEN
        DELETE FROM windlass.open_batches o USING unnest(closed_sessions, closed) AS over (session, no)
            WHERE o.session = over.session AND o.no = over.no;
    END IF;
    IF cardinality(rows) > 0 THEN
        INSERT INTO windlass.journal (row, session, first, count, before, link, data)
            SELECT * FROM unnest(rows, row_sessions, firsts, counts, befores, links, data);
    END IF;
END
$$;

-- Removes the rows of a closed batch of a session that is locked.
CREATE FUNCTION windlass.expire(owner bigint, batch bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    gone  record;
    near  record;
    start bigint;
    total bigint;
    tail  bytea;
    head  bytea;
BEGIN
    FOR gone IN
        WITH cut AS (
            DELETE FROM windlass.journal j
            WHERE j.row >= batch << 20 AND j.row < (batch + 1) << 20 AND j.session = owner
            RETURNING j.first, j.count, j.before, j.link
        )
        SELECT * FROM cut ORDER BY cut.first
    LOOP
        start := gone.first; total := gone.count; head := gone.before; tail := gone.link;
        DELETE FROM windlass.gaps g WHERE g.session = owner AND g.first = gone.first + gone.count RETURNING * INTO near;
        IF FOUND THEN
            total := total + near.count; tail := near.link;
        END IF;
        DELETE FROM windlass.gaps g WHERE g.session = owner AND g.first + g.count = gone.first AND g.first =
            (SELECT max(e.first) FROM windlass.gaps e WHERE e.session = owner AND e.first < gone.first) RETURNING * INTO near;
        IF FOUND THEN
            start := near.first; total := total + near.count; head := near.before;
        END IF;
        INSERT INTO windlass.gaps (session, first, count, before, link) VALUES (owner, start, total, head, tail);
    END LOOP;
    UPDATE windlass.batches b SET expired = true WHERE b.no = batch AND b.session = owner;
END
$$;

-- Removes a piece of a session that is locked, and of which the transaction has appended the last version; says whether something is
-- left. `blob` is the space among `spaces` whose keys are
-- numbers of blobs, of which each piece counts for so many rows.
CREATE FUNCTION windlass.remove(gone bigint, most bigint, spaces bigint[], blob bigint, weight bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    rows  bigint;
    found_key bytea;
    number bigint;
    latest bigint;
BEGIN
    SELECT max(version) INTO latest FROM windlass.versions WHERE session = gone;
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
    UPDATE windlass.versions s SET head = last.first - 1, chain = last.before FROM last
        WHERE s.session = gone AND s.version = latest;
    GET DIAGNOSTICS rows = ROW_COUNT;
    IF rows > 0 THEN
        RETURN true;
    END IF;
    -- Expired rows count: they are passed over once nothing is left before and after them. The expired batches have no rows.
    UPDATE windlass.versions SET head = 0, chain = decode(repeat('00', 32), 'hex')
        WHERE session = gone AND version = latest AND head > 0;
    DELETE FROM windlass.gaps WHERE session = gone;
    DELETE FROM windlass.batches WHERE no IN (SELECT no FROM windlass.batches WHERE session = gone LIMIT most);
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
    -- The caller removes the session's own row, with the mark of its removal.
    RETURN false;
END
$$;
