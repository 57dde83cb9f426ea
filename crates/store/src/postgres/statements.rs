//! Every statement of a writer, prepared once per connection.

use tokio_postgres::{Client, Error, Statement};

/// Declares each statement once: its field and its SQL.
macro_rules! statements {
    ($($name:ident = $sql:literal;)+) => {
        /// A writer's statements.
        pub(super) struct PostgresStatements {
            $(pub $name: Statement,)+
        }

        impl PostgresStatements {
            /// Prepares them all.
            pub async fn prepare(client: &Client) -> Result<PostgresStatements, Error> {
                Ok(PostgresStatements { $($name: client.prepare($sql).await?,)+ })
            }
        }
    };
}

statements! {
    // In the order of their numbers, so that two groups never deadlock.
    lock_sessions = "SELECT no FROM windlass.sessions WHERE no = ANY($1) ORDER BY no FOR UPDATE";
    block = "SELECT windlass.block($1)";
    // After they are locked, in a statement of its own: one that waits for a lock reads what was there before it waited.
    seats = "SELECT no, version, fence, head, chain, generation FROM windlass.seats WHERE no = ANY($1)";
    insert_versions = "INSERT INTO windlass.versions (session, version, fence, head, chain, generation, taken)
                    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bigint[], $7::boolean[])";
    forget_versions = "DELETE FROM windlass.versions t USING unnest($1::bigint[], $2::bigint[]) AS last (session, version)
                    WHERE t.session = last.session AND t.version < last.version AND NOT t.taken";
    // Records of the whole store belong to no session, so each is locked by itself; before the sessions, so that two groups
    // never deadlock.
    lock_records = "SELECT windlass.lock($1)";
    gone = "SELECT key FROM windlass.gone WHERE key = ANY($1)";
    insert_gone = "INSERT INTO windlass.gone (key, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    remove_session = "WITH mark AS (DELETE FROM windlass.records WHERE owner = $1 AND space = $2),
                           old AS (DELETE FROM windlass.versions WHERE session = $1 AND NOT taken
                                   AND version < (SELECT max(version) FROM windlass.versions WHERE session = $1))
                      DELETE FROM windlass.sessions WHERE no = $1 RETURNING name, principal";
    names = "SELECT name_key FROM windlass.sessions WHERE name_key = ANY($1)";
    batches = "SELECT no, lookup FROM windlass.batches WHERE no = ANY($1) OR lookup = ANY($2)";
    lookups = "SELECT lookup FROM windlass.batches WHERE session = $1 LIMIT $2";
    rows = "SELECT row FROM windlass.journal WHERE row = ANY($1)";
    pieces = "SELECT piece FROM windlass.chunks WHERE piece = ANY($1)";
    messages = "SELECT i.session, i.key_hash, i.digest, i.body IS NOT NULL
                FROM windlass.inbound i JOIN unnest($1::bigint[], $2::bytea[]) AS asked (session, key_hash)
                USING (session, key_hash)";
    records = "SELECT r.space, r.owner, r.key, r.generation
               FROM windlass.records r JOIN unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS asked (space, owner, key)
               USING (space, owner, key)";
    counts = "SELECT r.space, r.owner, count(*)
              FROM windlass.records r JOIN unnest($1::bigint[], $2::bigint[]) AS asked (space, owner)
              USING (space, owner) GROUP BY r.space, r.owner";
    // A sequence locks nothing.
    generations = "SELECT nextval('windlass.generation') FROM generate_series(1, $1::bigint)";
    insert_sessions = "INSERT INTO windlass.sessions (no, name, name_key, principal)
                       SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[])";
    insert_batches = "INSERT INTO windlass.batches (no, session, lookup)
                      SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])";
    insert_open = "INSERT INTO windlass.open_batches (session, no)
                   SELECT b.session, b.no FROM windlass.batches b
                   JOIN unnest($1::bigint[], $2::bigint[]) AS opened (session, no) USING (session, no)
                   ON CONFLICT DO NOTHING";
    delete_open = "DELETE FROM windlass.open_batches o
                   USING unnest($1::bigint[], $2::bigint[]) AS closed (session, no)
                   WHERE o.session = closed.session AND o.no = closed.no";
    insert_journal = "INSERT INTO windlass.journal (row, session, first, count, before, link, data)
                      SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bytea[], $7::bytea[])";
    insert_chunks = "INSERT INTO windlass.chunks (piece, digest, data)
                     SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[])";
    cut = "DELETE FROM windlass.chunks c USING unnest($1::bigint[], $2::bigint[]) AS gone (first, last)
           WHERE c.piece BETWEEN gone.first AND gone.last";
    insert_messages = "INSERT INTO windlass.inbound (session, key, key_hash, digest, body)
                       SELECT m.session, m.key, m.key_hash, m.digest, m.body
                       FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[])
                       WITH ORDINALITY AS m (session, key, key_hash, digest, body, place) ORDER BY m.place";
    adopt = "UPDATE windlass.inbound i SET body = NULL
             FROM unnest($1::bigint[], $2::bytea[]) AS adopted (session, key_hash)
             WHERE i.session = adopted.session AND i.key_hash = adopted.key_hash AND i.body IS NOT NULL";
    set_marks = "INSERT INTO windlass.marks (mark, session, call)
                 SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bigint[])
                 ON CONFLICT (mark) DO UPDATE SET session = excluded.session, call = excluded.call";
    put_records = "INSERT INTO windlass.records (space, owner, key, generation, digest, value)
                   SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bytea[], $6::bytea[])
                   ON CONFLICT (space, owner, key) DO UPDATE
                   SET generation = excluded.generation, digest = excluded.digest, value = excluded.value";
    remove_records = "DELETE FROM windlass.records r
                      USING unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS gone (space, owner, key)
                      WHERE r.space = gone.space AND r.owner = gone.owner AND r.key = gone.key";
    expiring = "SELECT b.no, b.session,
                       EXISTS (SELECT 1 FROM windlass.open_batches o WHERE o.session = b.session AND o.no = b.no)
                FROM windlass.batches b WHERE b.no = ANY($1)";
    expire = "SELECT windlass.expire(gone.session, gone.no)
              FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS gone (session, no, place) ORDER BY gone.place";
    remove = "SELECT windlass.remove($1, $2, $3, $4, $5)";
    append = "SELECT windlass.append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)";
    insert_group = "SELECT windlass.insert_group($1, $2)";
    forget_groups = "DELETE FROM windlass.groups WHERE writer = $1 AND NOT void";
    // Waits for a transaction that has inserted the row and not ended yet.
    void_group = "INSERT INTO windlass.groups (writer, no, void) VALUES ($1, $2, true) ON CONFLICT DO NOTHING";
    group_done = "SELECT NOT void FROM windlass.groups WHERE writer = $1 AND no = $2";
}
