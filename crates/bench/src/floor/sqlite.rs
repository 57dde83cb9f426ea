//! SQLite without Windlass: rows and attempts in a write-ahead log, `synchronous=FULL`.

use super::FloorError;
use crate::rate::{Laps, MeasuredRate};
use rusqlite::{Connection, params};
use std::path::Path;
use std::time::{Duration, Instant};

/// The payload of a row in the first two floors.
const PAYLOAD: [u8; 300] = [0x5a; 300];

/// Rows of 300 bytes, one commit per `group` of them. Its median is one commit.
pub fn sqlite_rows(dir: &Path, group: usize, span: Duration) -> Result<MeasuredRate, FloorError> {
    let folder = tempfile::tempdir_in(dir)?;
    let mut db = open(folder.path())?;
    let mut laps = Laps::start(span);
    while laps.more() {
        let began = Instant::now();
        insert(&mut db, std::iter::repeat_n(&PAYLOAD[..], group))?;
        laps.note(began);
    }
    Ok(laps.rate(group as u64))
}

/// Attempts of two commits each: the intent is inserted, then a guarded update adds the result. `group` attempts
/// share each commit. Its median is one attempt, both commits.
pub fn sqlite_attempts(dir: &Path, group: usize, span: Duration) -> Result<MeasuredRate, FloorError> {
    let folder = tempfile::tempdir_in(dir)?;
    let mut db = open(folder.path())?;
    let mut laps = Laps::start(span);
    let mut first = 1;
    while laps.more() {
        let began = Instant::now();
        let last = first + group as i64;
        let transaction = db.transaction()?;
        {
            let mut intent =
                transaction.prepare_cached("INSERT INTO attempt (no, ended, intent) VALUES (?1, 0, ?2)")?;
            for no in first..last {
                intent.execute(params![no, PAYLOAD])?;
            }
        }
        transaction.commit()?;
        let transaction = db.transaction()?;
        {
            let mut end = transaction
                .prepare_cached("UPDATE attempt SET ended = 1, result = ?2 WHERE no = ?1 AND ended = 0")?;
            for no in first..last {
                let changed = end.execute(params![no, PAYLOAD])?;
                if changed != 1 {
                    return Err(FloorError::Guard { changed });
                }
            }
        }
        transaction.commit()?;
        first = last;
        laps.note(began);
    }
    Ok(laps.rate(group as u64))
}

/// A new file with a write-ahead log that is synced at every commit.
pub(super) fn open(dir: &Path) -> Result<Connection, FloorError> {
    let db = Connection::open(dir.join("floor.db"))?;
    let found: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if found != "wal" {
        return Err(FloorError::NoWal { found });
    }
    db.execute_batch(
        "PRAGMA synchronous = FULL;
         CREATE TABLE entry (no INTEGER PRIMARY KEY, payload BLOB NOT NULL);
         CREATE TABLE attempt (no INTEGER PRIMARY KEY, ended INTEGER NOT NULL, intent BLOB NOT NULL, result BLOB);",
    )?;
    Ok(db)
}

/// Inserts all rows in one commit.
pub(super) fn insert<'a>(
    db: &mut Connection,
    rows: impl Iterator<Item = &'a [u8]>,
) -> Result<(), rusqlite::Error> {
    let transaction = db.transaction()?;
    {
        let mut insert = transaction.prepare_cached("INSERT INTO entry (payload) VALUES (?1)")?;
        for row in rows {
            insert.execute([row])?;
        }
    }
    transaction.commit()
}
