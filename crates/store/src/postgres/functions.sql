-- The functions of the current format. They are made anew by every migration. A function whose parameters change gets another
-- name: workers of the version before call the old one, until a later migration drops it.

-- Makes the commit of this transaction wait for the disk, and for the replicas that the server waits for, whatever the
-- role's own settings are; and bounds how long it waits for locks. Settings end with the transaction, so that a pool may hand the
-- connection to somebody else.
CREATE OR REPLACE FUNCTION windlass.settle(lock_ms bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM set_config('lock_timeout', lock_ms::text, true);
END
$$;

-- The first statement of a transaction of several. One of a worker that is stopped in the middle ends after a while.
CREATE OR REPLACE FUNCTION windlass.begin(lock_ms bigint, idle_ms bigint) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    PERFORM windlass.settle(lock_ms);
    PERFORM set_config('idle_in_transaction_session_timeout', idle_ms::text, true);
END
$$;

-- A sequence gives one number at a time; under the lock a run of them is ours.
CREATE OR REPLACE FUNCTION windlass.reserve(what regclass, count bigint) RETURNS bigint LANGUAGE plpgsql
    SET search_path = pg_catalog SET enable_seqscan = off AS $$
DECLARE
    first bigint;
BEGIN
    PERFORM windlass.settle(0);
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
CREATE OR REPLACE FUNCTION windlass.lock(keys bigint[]) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog SET enable_seqscan = off AS $$
BEGIN
    FOR place IN 1 .. cardinality(keys) LOOP
        PERFORM pg_advisory_xact_lock(keys[place]);
    END LOOP;
END
$$;

-- Inserts the row of a group, and from time to time deletes those before it: their outcome is known to their writer. Void rows
-- stay, since their groups may still be on the way.
CREATE OR REPLACE FUNCTION windlass.insert_group(marker bytea, group_no bigint) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog SET enable_seqscan = off AS $$
BEGIN
    INSERT INTO windlass.groups (writer, no, void) VALUES (marker, group_no, false);
    IF group_no % 64 = 0 THEN
        DELETE FROM windlass.groups WHERE writer = marker AND no < group_no AND NOT void;
    END IF;
END
$$;

-- Whether a group was committed. If it was not, a void row takes its place, and it never will be. Inserting waits for a
-- transaction that has inserted the row and not ended yet. The row is written in either case: then the commit of this transaction waits
-- for the replicas, and with it for everything before it.
CREATE OR REPLACE FUNCTION windlass.decide(lock_ms bigint, marker bytea, group_no bigint) RETURNS boolean LANGUAGE plpgsql
    SET search_path = pg_catalog SET enable_seqscan = off AS $$
DECLARE
    done boolean;
BEGIN
    PERFORM windlass.settle(lock_ms);
    INSERT INTO windlass.groups (writer, no, void) VALUES (marker, group_no, true) ON CONFLICT DO NOTHING;
    UPDATE windlass.groups SET void = void WHERE writer = marker AND no = group_no RETURNING NOT void INTO done;
    RETURN done;
END
$$;

-- Deletes the rows of groups that nobody looks for any more: those of writers that died. How many.
CREATE OR REPLACE FUNCTION windlass.sweep() RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    swept bigint;
BEGIN
    DELETE FROM windlass.groups WHERE at < now() - interval '30 days';
    GET DIAGNOSTICS swept = ROW_COUNT;
    RETURN swept;
END
$$;

-- Appends to each session a version that changes nothing. Whoever writes to one of them without a lock has to wait from then on,
-- so that a group is not refused again and again by an owner that keeps writing. The sessions are locked, and come sorted.
CREATE OR REPLACE FUNCTION windlass.block(wanted bigint[]) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog SET enable_seqscan = off AS $$
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
CREATE OR REPLACE FUNCTION windlass.append(
    lock_ms bigint, writer bytea, group_no bigint,
    sessions bigint[], versions bigint[], fences bigint[], heads bigint[], chains bytea[], generations bigint[],
    rows bigint[], row_sessions bigint[], firsts bigint[], counts bigint[], befores bytea[], links bytea[], data bytea[],
    batches bigint[], batch_sessions bigint[], lookups bytea[],
    opened bigint[], opened_sessions bigint[], closed bigint[], closed_sessions bigint[]
) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog SET enable_seqscan = off AS $$
BEGIN
    PERFORM windlass.settle(lock_ms);
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
CREATE OR REPLACE FUNCTION windlass.expire(owner bigint, batch bigint) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog SET enable_seqscan = off AS $$
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
CREATE OR REPLACE FUNCTION windlass.remove(gone bigint, most bigint, spaces bigint[], blob bigint, weight bigint)
RETURNS boolean LANGUAGE plpgsql
    SET search_path = pg_catalog SET enable_seqscan = off AS $$
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

-- Lets a role use the store, without the right to change its tables.
CREATE OR REPLACE FUNCTION windlass.grant_use(role name) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA windlass TO %I', role);
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA windlass TO %I', role);
    EXECUTE format('GRANT USAGE, SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA windlass TO %I', role);
    EXECUTE format('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA windlass TO %I', role);
END
$$;
