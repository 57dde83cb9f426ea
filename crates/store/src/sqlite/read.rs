//! Questions about sessions, batches, blobs and messages. They are microseconds from the page cache, so they
//! are answered where they are asked.

use super::pool::Pool;
use crate::chain::{int, piece_key, uint};
use crate::{BLOB_PIECES_MAX, BatchRow, Inbound, SessionRow, StoreError};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use windlass_core::ids::{BatchNo, BlobNo, EntryNo, Fence, Lookup, SessionNo};

/// The session of this name.
pub(super) fn session(pool: &Pool, name: &str) -> Result<Option<SessionRow>, StoreError> {
    pool.read("read a session", |conn| {
        let sql = "SELECT no, name, fence, head FROM sessions WHERE name = ?1";
        conn.prepare_cached(sql)?.query_row([name], session_row).optional()
    })
}

/// The session of this number.
pub(super) fn session_by_no(pool: &Pool, no: SessionNo) -> Result<Option<SessionRow>, StoreError> {
    pool.read("read a session", |conn| {
        let sql = "SELECT no, name, fence, head FROM sessions WHERE no = ?1";
        conn.prepare_cached(sql)?.query_row([int(no.0)], session_row).optional()
    })
}

/// The sessions after one, by number.
pub(super) fn sessions(
    pool: &Pool,
    after: Option<SessionNo>,
    limit: u64,
) -> Result<Vec<SessionRow>, StoreError> {
    pool.read("read the sessions", |conn| {
        let sql = "SELECT no, name, fence, head FROM sessions WHERE no > ?1 ORDER BY no LIMIT ?2";
        let range = (after.map_or(-1, |after| int(after.0)), most(limit));
        conn.prepare_cached(sql)?.query_map(range, session_row)?.collect()
    })
}

/// The batch found by this look-up.
pub(super) fn batch(pool: &Pool, lookup: Lookup) -> Result<Option<BatchRow>, StoreError> {
    pool.read("read a batch", |conn| {
        let sql = "SELECT b.no, b.session, b.lookup,
                          EXISTS (SELECT 1 FROM open_batches o WHERE o.session = b.session AND o.no = b.no)
                   FROM batches b WHERE b.lookup = ?1";
        conn.prepare_cached(sql)?.query_row([lookup.0], batch_row).optional()
    })
}

/// The open batches, oldest first.
pub(super) fn open_batches(pool: &Pool, session: Option<SessionNo>) -> Result<Vec<BatchRow>, StoreError> {
    pool.read("read the open batches", |conn| match session {
        Some(session) => {
            let sql =
                "SELECT b.no, b.session, b.lookup, TRUE FROM open_batches o JOIN batches b ON b.no = o.no
                       WHERE o.session = ?1 ORDER BY o.no";
            conn.prepare_cached(sql)?.query_map([int(session.0)], batch_row)?.collect()
        }
        None => {
            let sql =
                "SELECT b.no, b.session, b.lookup, TRUE FROM open_batches o JOIN batches b ON b.no = o.no
                       ORDER BY o.no";
            conn.prepare_cached(sql)?.query_map((), batch_row)?.collect()
        }
    })
}

/// The messages for a session that wait, oldest first.
pub(super) fn inbound(pool: &Pool, session: SessionNo, limit: u64) -> Result<Vec<Inbound>, StoreError> {
    pool.read("read the waiting messages", |conn| {
        let sql =
            "SELECT key, body FROM inbound WHERE session = ?1 AND body IS NOT NULL ORDER BY no LIMIT ?2";
        let message = |row: &Row<'_>| Ok(Inbound { session, key: row.get(0)?, body: row.get(1)? });
        conn.prepare_cached(sql)?.query_map((int(session.0), most(limit)), message)?.collect()
    })
}

/// Bytes of a blob. A piece is read whole even if a part of it is wanted, because its digest is of the whole.
pub(super) fn blob(pool: &Pool, blob: BlobNo, offset: u64, len: u64) -> Result<Option<Vec<u8>>, StoreError> {
    pool.read("read a blob", |conn| {
        let Some(piece_bytes) = piece_bytes(conn, blob)? else { return Ok(Ok(None)) };
        let start = offset.checked_div(piece_bytes).filter(|start| *start < u64::from(BLOB_PIECES_MAX));
        let Some(start) = start.map(|start| start as u32) else { return Ok(Ok(Some(Vec::new()))) };
        let sql = "SELECT digest, data FROM chunks WHERE piece BETWEEN ?1 AND ?2 ORDER BY piece";
        let mut select = conn.prepare_cached(sql)?;
        let mut pieces = select.query((piece_key(blob, start), piece_key(blob, BLOB_PIECES_MAX - 1)))?;
        let mut bytes = Vec::new();
        let mut skip = (offset % piece_bytes) as usize;
        for piece in start.. {
            let wanted = usize::try_from(len).unwrap_or(usize::MAX).saturating_sub(bytes.len());
            if wanted == 0 {
                break;
            }
            let Some(row) = pieces.next()? else { break };
            let data = row.get_ref(1)?.as_blob()?;
            if *blake3::hash(data).as_bytes() != row.get::<_, [u8; 32]>(0)? {
                return Ok(Err(StoreError::DamagedBlob { blob, piece }));
            }
            let rest = data.get(skip..).unwrap_or_default();
            bytes.extend_from_slice(&rest[..wanted.min(rest.len())]);
            skip = 0;
        }
        Ok(Ok(Some(bytes)))
    })?
}

/// The length of a blob's pieces; `None` if it has none.
fn piece_bytes(conn: &Connection, blob: BlobNo) -> Result<Option<u64>, Error> {
    let sql = "SELECT length(data) FROM chunks WHERE piece = ?1";
    let first = conn.prepare_cached(sql)?.query_row([piece_key(blob, 0)], |row| row.get(0)).optional()?;
    Ok(first.map(uint))
}

fn session_row(row: &Row<'_>) -> Result<SessionRow, Error> {
    Ok(SessionRow {
        no: SessionNo(uint(row.get(0)?)),
        name: row.get(1)?,
        fence: Fence(uint(row.get(2)?)),
        head: EntryNo(uint(row.get(3)?)),
    })
}

fn batch_row(row: &Row<'_>) -> Result<BatchRow, Error> {
    Ok(BatchRow {
        no: BatchNo(uint(row.get(0)?)),
        session: SessionNo(uint(row.get(1)?)),
        lookup: Lookup(row.get(2)?),
        open: row.get(3)?,
    })
}

/// SQLite takes a limit below zero for none.
fn most(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
