//! Marks the database of a backup as a copy, and verifies all of it before the backup is called done.

use super::{BackupError, BackupMark, failed};
use crate::StoreError;
use crate::chain::uint;
use crate::sqlite::identity::FileIdentity;
use crate::sqlite::seal::{numbered_record_seal, piece_digest};
use crate::sqlite::{Reads, file, history, read, remove, schema};
use rusqlite::Connection;
use std::error::Error;
use std::fs::File;
use std::path::Path;
use windlass_core::ids::SessionNo;

/// Sessions and journal rows are read in pages of this size.
const PAGE: u64 = 1_000;

/// The content of a verified copy.
#[derive(Default)]
pub(super) struct VerifiedCopy {
    pub sessions: u64,
    pub entries: u64,
}

/// Marks and verifies the database at this path, and makes it durable.
pub(super) fn verify(copy: &Path, mark: BackupMark) -> Result<VerifiedCopy, BackupError> {
    file::recognise(copy).map_err(damaged)?;
    let marked = |source| BackupError::Copy { help: "the copy could not be marked; check its disk", source };
    let conn = file::connect(copy).map_err(marked)?;
    let marking = conn.unchecked_transaction().map_err(marked)?;
    let recorded = FileIdentity::recorded(&conn).map_err(marked)?;
    let recorded =
        recorded.map_err(|()| BackupError::Damaged { what: "its identity is damaged".to_owned() })?;
    // The batches that the original made are the copy's too if the original is gone.
    let own_from = recorded.map_or(0, FileIdentity::own_from);
    FileIdentity::of_nobody().owning(own_from).record(&conn).map_err(marked)?;
    // The copy of a backup that was never started is no newer than that backup.
    let mark = BackupMark::recorded(&conn).map_err(marked)?.unwrap_or(mark);
    mark.record(&conn).map_err(marked)?;
    marking.commit().map_err(marked)?;
    let found = if schema::format(&conn).map_err(marked)? == schema::KNOWN {
        verify_current(&conn, copy)?
    } else {
        // Seals of an older format are understood only after it was brought up to date.
        verify_pages(&conn)?;
        VerifiedCopy::default()
    };
    // The last connection: closing it empties and removes the log.
    conn.close().map_err(|(_, error)| marked(error))?;
    File::open(copy).and_then(|file| file.sync_all()).map_err(failed("sync", copy))?;
    Ok(found)
}

/// Reads everything: the tables as a start of the store does, each session and its journal as `windlass doctor` does,
/// every message, every record, every piece of every blob.
fn verify_current(conn: &Connection, copy: &Path) -> Result<VerifiedCopy, BackupError> {
    file::check_tables(conn, copy).map_err(damaged)?;
    crate::sqlite::secret(conn, copy).map_err(damaged)?;
    if remove::numbers(conn).map_err(unreadable)?.is_none() {
        return Err(BackupError::Damaged { what: "its numbers are damaged".to_owned() });
    }
    check_blobs(conn)?;
    check_records(conn)?;
    let reads = Reads::new(copy.to_owned(), None);
    let (mut found, mut after) = (VerifiedCopy::default(), None);
    loop {
        let sessions = read::sessions(&reads.pool, after, PAGE).map_err(damaged)?;
        let Some(last) = sessions.last() else { return Ok(found) };
        after = Some(last.no);
        for session in &sessions {
            found.sessions += 1;
            found.entries += session.head.0;
            // Verifies the session's own row, too.
            read::open_batches(&reads.pool, Some(session.no)).map_err(damaged)?;
            read::inbound(&reads.pool, session.no, u64::MAX).map_err(damaged)?;
            let mut before = None;
            while let Some(row) =
                history::of_session(&reads, session.no, before, PAGE).map_err(damaged)?.last()
            {
                before = Some(row.first);
            }
        }
    }
}

fn check_blobs(conn: &Connection) -> Result<(), BackupError> {
    let checked = || {
        let mut select = conn.prepare("SELECT piece, digest, data FROM chunks ORDER BY piece")?;
        let mut pieces = select.query(())?;
        while let Some(piece) = pieces.next()? {
            let (key, digest): (i64, Vec<u8>) = (piece.get(0)?, piece.get(1)?);
            if piece_digest(key, piece.get_ref(2)?.as_blob()?)[..] != digest[..] {
                return Ok(Some(key >> 24));
            }
        }
        Ok::<_, rusqlite::Error>(None)
    };
    match checked().map_err(unreadable)? {
        None => Ok(()),
        Some(blob) => Err(BackupError::Damaged { what: format!("blob {blob} is not what was written") }),
    }
}

fn check_records(conn: &Connection) -> Result<(), BackupError> {
    let checked = || {
        let mut select = conn.prepare("SELECT generation, space, owner, key, value, seal FROM records")?;
        let mut records = select.query(())?;
        while let Some(record) = records.next()? {
            let (generation, owner) = (uint(record.get(0)?), SessionNo(uint(record.get(2)?)));
            let (key, value): (String, Vec<u8>) = (record.get(3)?, record.get(4)?);
            let seal = numbered_record_seal(generation, record.get(1)?, owner, &key, &value);
            if seal != record.get::<_, i64>(5)? {
                return Ok(Some(key));
            }
        }
        Ok::<_, rusqlite::Error>(None)
    };
    match checked().map_err(unreadable)? {
        None => Ok(()),
        Some(key) => {
            Err(BackupError::Damaged { what: format!("the record {key:?} is not what was written") })
        }
    }
}

fn verify_pages(conn: &Connection) -> Result<(), BackupError> {
    let found = conn.query_row("PRAGMA integrity_check(1)", (), |row| row.get::<_, String>(0));
    match found.map_err(unreadable)?.as_str() {
        "ok" => Ok(()),
        problem => Err(BackupError::Damaged { what: problem.to_owned() }),
    }
}

fn unreadable(error: rusqlite::Error) -> BackupError {
    BackupError::Damaged { what: error.to_string() }
}

/// The copy is page by page what was read, so damage in it is damage of the data folder.
fn damaged(error: StoreError) -> BackupError {
    if let StoreError::Open { help, .. } = error {
        return BackupError::Damaged { what: help };
    }
    let cause = error.source().map_or(String::new(), |cause| format!(": {cause}"));
    BackupError::Damaged { what: format!("{error}{cause}") }
}
