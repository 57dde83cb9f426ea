//! Every statement of the writer, compiled when it is first used and then kept by the connection.

use rusqlite::{CachedStatement, Connection, Error, Params, Row};

/// A statement of the writer. It is borrowed from the connection at its first use, and returned with the last group: whichever
/// thread writes next finds it compiled.
pub(super) struct WriterStatement<'c> {
    conn: &'c Connection,
    sql: &'static str,
    borrowed: Option<CachedStatement<'c>>,
}

impl<'c> WriterStatement<'c> {
    fn new(conn: &'c Connection, sql: &'static str) -> WriterStatement<'c> {
        WriterStatement { conn, sql, borrowed: None }
    }

    fn borrowed(&mut self) -> Result<&mut CachedStatement<'c>, Error> {
        match &mut self.borrowed {
            Some(statement) => Ok(statement),
            none => Ok(none.insert(self.conn.prepare_cached(self.sql)?)),
        }
    }

    /// Executes it; returns the number of changed rows.
    pub fn execute(&mut self, params: impl Params) -> Result<usize, Error> {
        self.borrowed()?.execute(params)
    }

    /// Reads its first row.
    pub fn query_row<T>(
        &mut self,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.borrowed()?.query_row(params, read)
    }

    /// Reads all of its rows.
    pub fn rows<T>(
        &mut self,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        self.borrowed()?.query_map(params, read)?.collect()
    }

    /// Whether it has a row.
    pub fn exists(&mut self, params: impl Params) -> Result<bool, Error> {
        self.borrowed()?.exists(params)
    }
}

/// Declares each statement once: its field and its SQL.
macro_rules! statements {
    ($($name:ident = $sql:literal;)+) => {
        /// The writer's statements.
        pub(super) struct Statements<'c> {
            $(pub $name: WriterStatement<'c>,)+
        }

        impl<'c> Statements<'c> {
            /// The statements on this connection.
            pub fn new(conn: &'c Connection) -> Statements<'c> {
                Statements { $($name: WriterStatement::new(conn, $sql),)+ }
            }
        }
    };
}

statements! {
    begin = "BEGIN IMMEDIATE";
    commit = "COMMIT";
    rollback = "ROLLBACK";
    data_version = "PRAGMA data_version";
    session = "SELECT fence, head, last_row, chain, open FROM sessions WHERE no = ?1";
    name = "SELECT name, principal FROM sessions WHERE no = ?1";
    insert_session = "INSERT INTO sessions (no, name, principal, fence, head, chain, open, seal)
                      VALUES (?1, ?2, ?3, 1, 0, ?4, 0, 0)";
    update_session = "UPDATE sessions SET fence = ?2, head = ?3, last_row = ?4, chain = ?5, open = ?6, seal = ?7
                      WHERE no = ?1";
    indexed = "SELECT 1 FROM lookups l JOIN batches b ON b.no = l.no WHERE l.part = ?1 AND b.lookup = ?2";
    insert_lookup = "INSERT OR IGNORE INTO lookups (part, no) VALUES (?1, ?2)";
    update_mark = "UPDATE meta SET value = ?1 WHERE key = 'indexed'";
    insert_batch = "INSERT INTO batches (no, session, lookup, seal) VALUES (?1, ?2, ?3, ?4)";
    insert_open = "INSERT INTO open_batches (session, no) VALUES (?1, ?2)";
    reopen = "INSERT OR IGNORE INTO open_batches (session, no) SELECT session, no FROM batches WHERE session = ?1 AND no = ?2";
    delete_open = "DELETE FROM open_batches WHERE session = ?1 AND no = ?2";
    insert_journal = "INSERT INTO journal (row, session, first, count, prev, link, data)
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    insert_chunk = "INSERT INTO chunks (piece, digest, data) VALUES (?1, ?2, ?3)";
    cut = "DELETE FROM chunks WHERE piece BETWEEN ?1 AND ?2";
    message = "SELECT digest FROM inbound WHERE session = ?1 AND key = ?2";
    insert_message = "INSERT INTO inbound (session, key, digest, body) VALUES (?1, ?2, ?3, ?4)";
    waiting = "SELECT 1 FROM inbound WHERE session = ?1 AND key = ?2 AND body IS NOT NULL";
    set_mark = "INSERT OR REPLACE INTO marks (mark, session, call, seal) VALUES (?1, ?2, ?3, ?4)";
    adopt = "UPDATE inbound SET body = NULL WHERE session = ?1 AND key = ?2 AND body IS NOT NULL";
    record = "SELECT generation FROM records WHERE space = ?1 AND owner = ?2 AND key = ?3";
    count_records = "SELECT count(*) FROM (SELECT 1 FROM records WHERE space = ?1 AND owner = ?2 LIMIT ?3)";
    last_generation = "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'records'), 0),
                                  coalesce((SELECT max(generation) FROM records), 0))";
    put_record = "INSERT OR REPLACE INTO records (generation, space, owner, key, value, seal)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    cut_journal = "SELECT j.first, j.prev, p.link FROM journal j LEFT JOIN journal p ON p.row = j.prev WHERE j.row = ?1";
    delete_journal = "DELETE FROM journal WHERE row = ?1";
    batch = "SELECT session, lookup FROM batches WHERE no = ?1";
    delete_batch = "DELETE FROM batches WHERE no = ?1";
    delete_lookup = "DELETE FROM lookups WHERE part = ?1 AND no = ?2";
    delete_all_open = "DELETE FROM open_batches WHERE (session, no) IN
                       (SELECT session, no FROM open_batches WHERE session = ?1 LIMIT ?2)";
    delete_messages = "DELETE FROM inbound WHERE no IN (SELECT no FROM inbound WHERE session = ?1 LIMIT ?2)";
    delete_records = "DELETE FROM records WHERE generation IN
                      (SELECT generation FROM records WHERE space = ?1 AND owner = ?2 LIMIT ?3)";
    first_record = "SELECT generation, key, value, seal FROM records WHERE space = ?1 AND owner = ?2 ORDER BY key LIMIT 1";
    delete_chunks = "DELETE FROM chunks WHERE piece IN
                     (SELECT piece FROM chunks WHERE piece >= ?1 AND piece < ?2 LIMIT ?3)";
    delete_mark = "DELETE FROM marks WHERE mark = ?1 AND session = ?2";
    delete_session = "DELETE FROM sessions WHERE no = ?1";
    numbers = "SELECT value FROM meta WHERE key = 'removed'";
    set_numbers = "UPDATE meta SET value = ?1 WHERE key = 'removed'";
    set_reserved = "UPDATE meta SET value = ?1 WHERE key = 'reserved'";
    kept_batch = "SELECT b.session, b.lookup, b.seal,
                         EXISTS (SELECT 1 FROM open_batches o WHERE o.session = b.session AND o.no = b.no)
                  FROM batches b WHERE b.no = ?1";
    seal_batch = "UPDATE batches SET seal = ?2 WHERE no = ?1";
    batch_rows = "SELECT j.row, j.first, j.count, j.link, j.prev, p.link FROM journal j LEFT JOIN journal p ON p.row = j.prev
                  WHERE j.row BETWEEN ?1 AND ?2 ORDER BY j.row";
    delete_rows = "DELETE FROM journal WHERE row BETWEEN ?1 AND ?2";
    gap_before = "SELECT first, count, last_row, link, prev, before, seal FROM gaps
                  WHERE session = ?1 AND first < ?2 ORDER BY first DESC LIMIT 1";
    gap_at = "SELECT first, count, last_row, link, prev, before, seal FROM gaps WHERE session = ?1 AND first = ?2";
    put_gap = "INSERT OR REPLACE INTO gaps (session, first, count, last_row, link, prev, before, seal)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    delete_gap = "DELETE FROM gaps WHERE session = ?1 AND first = ?2";
    delete_gaps = "DELETE FROM gaps WHERE session = ?1";
    remove_record = "DELETE FROM records WHERE space = ?1 AND owner = ?2 AND key = ?3";
}
