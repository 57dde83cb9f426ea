//! The statements of writers and of gathered look-ups, with the types of their parameters.

use super::connection::Param;
use tokio_postgres::types::Type;

/// A statement without a name: it is sent with its parameters, and leaves nothing behind on the connection.
pub(super) struct TypedStatement {
    pub text: &'static str,
    pub types: &'static [Type],
}

impl TypedStatement {
    /// Its parameters with their types.
    pub fn typed<'a>(&self, params: &[Param<'a>]) -> Vec<(Param<'a>, Type)> {
        params.iter().copied().zip(self.types.iter().cloned()).collect()
    }
}

/// Declares each statement once: its name, the types of its parameters, its SQL.
macro_rules! statements {
    ($($name:ident($($type:ident),*) = $sql:literal;)+) => {
        $(pub(super) const $name: TypedStatement = TypedStatement { text: $sql, types: &[$(Type::$type),*] };)+
    };
}

statements! {
    // Look-ups of many subjects: see `lookups`. The place of the subject is the last column.
    SESSIONS_BY_NO(INT8_ARRAY) = "SELECT s.no, s.name, s.principal, s.fence, s.head, asked.place
                    FROM unnest($1::bigint[]) WITH ORDINALITY AS asked (no, place),
                    LATERAL (SELECT * FROM windlass.seats t WHERE t.no = asked.no OFFSET 0) s";
    SESSIONS_BY_NAME(BYTEA_ARRAY) = "SELECT s.no, s.name, s.principal, s.fence, s.head, asked.place
                    FROM unnest($1::bytea[]) WITH ORDINALITY AS asked (name_key, place),
                    LATERAL (SELECT * FROM windlass.seats t WHERE t.name_key = asked.name_key OFFSET 0) s";
    BATCHES_BY_NO(INT8_ARRAY) = "SELECT b.no, b.session, b.lookup, b.open, b.expired, asked.place
                    FROM unnest($1::bigint[]) WITH ORDINALITY AS asked (no, place),
                    LATERAL (SELECT t.*, o.no IS NOT NULL AS open
                             FROM windlass.batches t LEFT JOIN windlass.open_batches o USING (session, no)
                             WHERE t.no = asked.no OFFSET 0) b";
    BATCHES_BY_LOOKUP(BYTEA_ARRAY) = "SELECT b.no, b.session, b.lookup, b.open, b.expired, asked.place
                    FROM unnest($1::bytea[]) WITH ORDINALITY AS asked (lookup, place),
                    LATERAL (SELECT t.*, o.no IS NOT NULL AS open
                             FROM windlass.batches t LEFT JOIN windlass.open_batches o USING (session, no)
                             WHERE t.lookup = asked.lookup OFFSET 0) b";
    OPEN_BATCHES(INT8_ARRAY) = "SELECT b.no, b.session, b.lookup, TRUE, b.expired, asked.place
                    FROM unnest($1::bigint[]) WITH ORDINALITY AS asked (session, place),
                    LATERAL (SELECT t.* FROM windlass.open_batches o JOIN windlass.batches t USING (session, no)
                             WHERE o.session = asked.session OFFSET 0) b
                    ORDER BY asked.place, b.no";
    JOURNALS(INT8_ARRAY, INT8_ARRAY) = "SELECT j.row, j.session, j.first, j.count, j.before, j.link, j.data, asked.place
                    FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS asked (first, last, place),
                    LATERAL (SELECT * FROM windlass.journal t WHERE t.row BETWEEN asked.first AND asked.last OFFSET 0) j
                    ORDER BY asked.place, j.row";
    WAITING_MESSAGES(INT8_ARRAY, INT8_ARRAY) = "SELECT asked.session, i.key, i.body, asked.place
                    FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS asked (session, most, place),
                    LATERAL (SELECT * FROM windlass.inbound t WHERE t.session = asked.session AND t.body IS NOT NULL
                             ORDER BY t.no LIMIT asked.most) i
                    ORDER BY asked.place, i.no";
    RECORDS_BY_KEY(INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY) = "SELECT r.key, r.value, r.generation, r.digest, asked.place
                    FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) WITH ORDINALITY AS asked (space, owner, key, place),
                    LATERAL (SELECT * FROM windlass.records t
                             WHERE t.space = asked.space AND t.owner = asked.owner AND t.key = asked.key OFFSET 0) r";
    RECORD_PAGES(INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY) = "SELECT r.key, r.value, r.generation, r.digest, asked.place
                    FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bigint[])
                         WITH ORDINALITY AS asked (space, owner, \"from\", \"after\", most, place),
                    LATERAL (SELECT * FROM windlass.records t
                             WHERE t.space = asked.space AND t.owner = asked.owner
                             AND t.key >= asked.\"from\" AND t.key IS DISTINCT FROM asked.\"after\"
                             ORDER BY t.key LIMIT asked.most) r
                    ORDER BY asked.place, r.key";
    RECORD_COUNTS(INT8_ARRAY, INT8_ARRAY) = "SELECT r.records, asked.place
                    FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS asked (space, owner, place),
                    LATERAL (SELECT count(*) AS records FROM windlass.records t
                             WHERE t.space = asked.space AND t.owner = asked.owner) r";
    // In the order of their numbers, so that two groups never deadlock.
    LOCK_SESSIONS(INT8_ARRAY) = "SELECT no FROM windlass.sessions WHERE no = ANY($1) ORDER BY no FOR UPDATE";
    BLOCK(INT8_ARRAY) = "SELECT windlass.block($1)";
    // After they are locked, in a statement of its own: one that waits for a lock reads what was there before it waited.
    SEATS(INT8_ARRAY) = "SELECT no, version, fence, head, chain, generation FROM windlass.seats WHERE no = ANY($1)";
    INSERT_VERSIONS(INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, BOOL_ARRAY) = "INSERT INTO windlass.versions (session, version, fence, head, chain, generation, taken)
                    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bigint[], $7::boolean[])";
    FORGET_VERSIONS(INT8_ARRAY, INT8_ARRAY) = "DELETE FROM windlass.versions t USING unnest($1::bigint[], $2::bigint[]) AS last (session, version)
                    WHERE t.session = last.session AND t.version < last.version AND NOT t.taken";
    // Records of the whole store belong to no session, so each is locked by itself; before the sessions, so that two groups
    // never deadlock.
    LOCK_RECORDS(INT8_ARRAY) = "SELECT windlass.lock($1)";
    GONE(BYTEA_ARRAY) = "SELECT key FROM windlass.gone WHERE key = ANY($1)";
    INSERT_GONE(BYTEA, BYTEA) = "INSERT INTO windlass.gone (key, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    REMOVE_SESSION(INT8, INT8) = "WITH mark AS (DELETE FROM windlass.records WHERE owner = $1 AND space = $2),
                           old AS (DELETE FROM windlass.versions WHERE session = $1 AND NOT taken
                                   AND version < (SELECT max(version) FROM windlass.versions WHERE session = $1))
                      DELETE FROM windlass.sessions WHERE no = $1 RETURNING name, principal";
    NAMES(BYTEA_ARRAY) = "SELECT name_key FROM windlass.sessions WHERE name_key = ANY($1)";
    BATCHES(INT8_ARRAY, BYTEA_ARRAY) = "SELECT no, lookup FROM windlass.batches WHERE no = ANY($1) OR lookup = ANY($2)";
    LOOKUPS(INT8, INT8) = "SELECT lookup FROM windlass.batches WHERE session = $1 LIMIT $2";
    ROWS(INT8_ARRAY) = "SELECT row FROM windlass.journal WHERE row = ANY($1)";
    PIECES(INT8_ARRAY) = "SELECT piece FROM windlass.chunks WHERE piece = ANY($1)";
    MESSAGES(INT8_ARRAY, BYTEA_ARRAY) = "SELECT i.session, i.key_hash, i.digest, i.body IS NOT NULL
                FROM windlass.inbound i JOIN unnest($1::bigint[], $2::bytea[]) AS asked (session, key_hash)
                USING (session, key_hash)";
    RECORDS(INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY) = "SELECT r.space, r.owner, r.key, r.generation
               FROM windlass.records r JOIN unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS asked (space, owner, key)
               USING (space, owner, key)";
    COUNTS(INT8_ARRAY, INT8_ARRAY) = "SELECT r.space, r.owner, count(*)
              FROM windlass.records r JOIN unnest($1::bigint[], $2::bigint[]) AS asked (space, owner)
              USING (space, owner) GROUP BY r.space, r.owner";
    // A sequence locks nothing.
    GENERATIONS(INT8) = "SELECT nextval('windlass.generation') FROM generate_series(1, $1::bigint)";
    INSERT_SESSIONS(INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY) = "INSERT INTO windlass.sessions (no, name, name_key, principal)
                       SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[])";
    INSERT_BATCHES(INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY) = "INSERT INTO windlass.batches (no, session, lookup)
                      SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])";
    INSERT_OPEN(INT8_ARRAY, INT8_ARRAY) = "INSERT INTO windlass.open_batches (session, no)
                   SELECT b.session, b.no FROM windlass.batches b
                   JOIN unnest($1::bigint[], $2::bigint[]) AS opened (session, no) USING (session, no)
                   ON CONFLICT DO NOTHING";
    DELETE_OPEN(INT8_ARRAY, INT8_ARRAY) = "DELETE FROM windlass.open_batches o
                   USING unnest($1::bigint[], $2::bigint[]) AS closed (session, no)
                   WHERE o.session = closed.session AND o.no = closed.no";
    INSERT_JOURNAL(INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY) = "INSERT INTO windlass.journal (row, session, first, count, before, link, data)
                      SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bytea[])";
    INSERT_CHUNKS(INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY) = "INSERT INTO windlass.chunks (piece, digest, data)
                     SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[])";
    CUT(INT8_ARRAY, INT8_ARRAY) = "DELETE FROM windlass.chunks c USING unnest($1::bigint[], $2::bigint[]) AS gone (first, last)
           WHERE c.piece BETWEEN gone.first AND gone.last";
    INSERT_MESSAGES(INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY) = "INSERT INTO windlass.inbound (session, key, key_hash, digest, body)
                       SELECT m.session, m.key, m.key_hash, m.digest, m.body
                       FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[])
                       WITH ORDINALITY AS m (session, key, key_hash, digest, body, place) ORDER BY m.place";
    ADOPT(INT8_ARRAY, BYTEA_ARRAY) = "UPDATE windlass.inbound i SET body = NULL, key = ''
             FROM unnest($1::bigint[], $2::bytea[]) AS adopted (session, key_hash)
             WHERE i.session = adopted.session AND i.key_hash = adopted.key_hash AND i.body IS NOT NULL";
    SET_MARKS(BYTEA_ARRAY, INT8_ARRAY, INT8_ARRAY) = "INSERT INTO windlass.marks (mark, session, call)
                 SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[])
                 ON CONFLICT (mark) DO UPDATE SET session = excluded.session, call = excluded.call";
    PUT_RECORDS(INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY) = "INSERT INTO windlass.records (space, owner, key, generation, digest, value)
                   SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bytea[])
                   ON CONFLICT (space, owner, key) DO UPDATE
                   SET generation = excluded.generation, digest = excluded.digest, value = excluded.value";
    REMOVE_RECORDS(INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY) = "DELETE FROM windlass.records r
                      USING unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS gone (space, owner, key)
                      WHERE r.space = gone.space AND r.owner = gone.owner AND r.key = gone.key";
    EXPIRING(INT8_ARRAY) = "SELECT b.no, b.session,
                       EXISTS (SELECT 1 FROM windlass.open_batches o WHERE o.session = b.session AND o.no = b.no)
                FROM windlass.batches b WHERE b.no = ANY($1)";
    EXPIRE(INT8_ARRAY, INT8_ARRAY) = "SELECT windlass.expire(gone.session, gone.no)
              FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS gone (session, no, place) ORDER BY gone.place";
    REMOVE(INT8, INT8, INT8_ARRAY, INT8, INT8) = "SELECT windlass.remove($1, $2, $3, $4, $5)";
    APPEND(
        INT8, BYTEA, INT8, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY,
        INT8_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT8_ARRAY, BYTEA_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY, INT8_ARRAY
    ) = "SELECT windlass.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)";
    INSERT_GROUP(BYTEA, INT8) = "SELECT windlass.insert_group($1, $2)";
    FORGET_GROUPS(BYTEA) = "DELETE FROM windlass.groups WHERE writer = $1 AND NOT void";
    DECIDE(INT8, BYTEA, INT8) = "SELECT windlass.decide($1, $2, $3)";
    // How many of these writers lack their last group, or a later one.
    FORGOTTEN(BYTEA_ARRAY, INT8_ARRAY) = "SELECT count(*) FROM unnest($1::bytea[], $2::bigint[]) AS last (writer, no)
        WHERE NOT EXISTS (SELECT 1 FROM windlass.groups g WHERE g.writer = last.writer AND g.no >= last.no AND NOT g.void)";
    NOTIFY(TEXT_ARRAY) = "SELECT pg_notify('windlass_wake', target) FROM unnest($1::text[]) AS target";
    SERVER() = "SELECT current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on',
                       current_setting('synchronous_standby_names') <> ''";
}
