//! Queries about sessions, batches, blobs and messages. They take microseconds from the page cache, so they
//! run on the caller's thread.

use super::lookups;
use super::pool::ReaderPool;
use super::seal::{Sealed, batch_seal, expired_seal, mark_seal, message_digest, open_part, piece_digest};
use crate::chain::{int, piece_key, uint};
use crate::{
    BLOB_PIECES_MAX, BatchRow, BlobSize, Inbound, SessionPage, SessionRow, Space, StoreError, blob_key,
};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Fence, Lookup, Mark, SessionNo};

/// The session of this name.
pub(super) fn session(pool: &ReaderPool, name: &str) -> Result<Option<SessionRow>, StoreError> {
    let found = pool.read("read a session", |conn| {
        let sql = format!("{SEALED} WHERE name = ?1");
        conn.prepare_cached(&sql)?.query_row([name], sealed_row).optional()
    })?;
    found.map(SessionFileRow::trusted).transpose()
}

/// The session of this number.
pub(super) fn session_by_no(pool: &ReaderPool, no: SessionNo) -> Result<Option<SessionRow>, StoreError> {
    let found = pool.read("read a session", |conn| sealed(conn, no))?;
    found.map(SessionFileRow::trusted).transpose()
}

/// The sessions after one, by number. A damaged one does not hide the others: it is refused when it is read itself.
pub(super) fn sessions(
    pool: &ReaderPool,
    after: Option<SessionNo>,
    limit: u64,
) -> Result<Vec<SessionRow>, StoreError> {
    pool.read("read the sessions", |conn| {
        let sql = "SELECT no, name, principal, fence, head FROM sessions WHERE no > ?1 ORDER BY no LIMIT ?2";
        let range = (after.map_or(-1, |after| int(after.0)), most(limit));
        conn.prepare_cached(sql)?.query_map(range, session_row)?.collect()
    })
}

/// A page of the sessions that have a record in a space.
pub(super) fn sessions_with(
    pool: &ReaderPool,
    space: Space,
    after: Option<SessionNo>,
    limit: u64,
) -> Result<Vec<SessionRow>, StoreError> {
    pool.read("read the sessions", |conn| {
        let sql = "SELECT no, name, principal, fence, head FROM sessions WHERE no IN
                   (SELECT DISTINCT owner FROM records WHERE space = ?1 AND owner > ?2 ORDER BY owner LIMIT ?3) ORDER BY no";
        let range = (space.number(), after.map_or(-1, |after| int(after.0)), most(limit));
        conn.prepare_cached(sql)?.query_map(range, session_row)?.collect()
    })
}

/// A page of sessions by name, of one principal or of all. Names are compared by their bytes.
pub(super) fn sessions_by_name(
    pool: &ReaderPool,
    page: SessionPage<'_>,
) -> Result<Vec<SessionRow>, StoreError> {
    const ROWS: &str = "SELECT no, name, principal, fence, head FROM sessions";
    const RANGE: &str = "name >= ?1 AND name IS NOT ?2";
    let (from, after, limit) = (page.after.unwrap_or_default(), page.after, most(page.limit));
    pool.read("read the sessions", |conn| match page.principal {
        Some(principal) => {
            let sql = format!("{ROWS} WHERE {RANGE} AND principal = ?4 ORDER BY name LIMIT ?3");
            let range = (from, after, limit, principal);
            conn.prepare_cached(&sql)?.query_map(range, session_row)?.collect()
        }
        None => {
            let sql = format!("{ROWS} WHERE {RANGE} ORDER BY name LIMIT ?3");
            conn.prepare_cached(&sql)?.query_map((from, after, limit), session_row)?.collect()
        }
    })
}

/// A session's row with its seal.
const SEALED: &str = "SELECT no, name, principal, fence, head, last_row, chain, open, seal FROM sessions";

/// A batch, and whether it is open.
const BATCH: &str = "SELECT b.no, b.session, b.lookup, b.seal,
                            EXISTS (SELECT 1 FROM open_batches o WHERE o.session = b.session AND o.no = b.no)
                     FROM batches b";

/// The batch of this number.
pub(super) fn batch(pool: &ReaderPool, no: BatchNo) -> Result<Option<BatchRow>, StoreError> {
    let sql = format!("{BATCH} WHERE b.no = ?1");
    let found = pool.read("read a batch", |conn| {
        conn.prepare_cached(&sql)?.query_row([int(no.0)], FoundBatch::read).optional()
    })?;
    found.map(FoundBatch::trusted).transpose()
}

/// The batch found by this look-up in the index.
pub(super) fn batch_indexed(pool: &ReaderPool, lookup: Lookup) -> Result<Option<BatchRow>, StoreError> {
    let found = pool.read("read a batch", |conn| indexed(conn, lookup))?;
    found.map(FoundBatch::trusted).transpose()
}

/// The batch of this look-up, in the index or among those that are not in it yet, for readers that do not know which.
pub(super) fn batch_anywhere(pool: &ReaderPool, lookup: Lookup) -> Result<Option<BatchRow>, StoreError> {
    let found = pool.read("read a batch", |conn| {
        // One view of the file: batches missing in the index are after its mark.
        let view = conn.unchecked_transaction()?;
        if let Some(found) = indexed(&view, lookup)? {
            return Ok(Some(found));
        }
        let sql = format!("{BATCH} WHERE b.no > ?1 AND b.lookup = ?2");
        let behind = (int(lookups::mark(&view)?), lookup.0);
        view.prepare_cached(&sql)?.query_row(behind, FoundBatch::read).optional()
    })?;
    found.map(FoundBatch::trusted).transpose()
}

fn indexed(conn: &Connection, lookup: Lookup) -> Result<Option<FoundBatch>, Error> {
    let sql = format!("{BATCH} JOIN lookups l ON l.no = b.no WHERE l.part = ?1 AND b.lookup = ?2");
    let key = (lookups::part(lookup), lookup.0);
    conn.prepare_cached(&sql)?.query_row(key, FoundBatch::read).optional()
}

/// The open batches, oldest first; for one session they are verified against its row.
pub(super) fn open_batches(
    pool: &ReaderPool,
    session: Option<SessionNo>,
) -> Result<Vec<BatchRow>, StoreError> {
    let Some(session) = session else {
        let found = pool.read("read the open batches", |conn| {
            let sql =
                "SELECT b.no, b.session, b.lookup, b.seal, TRUE FROM open_batches o JOIN batches b ON b.no = o.no
                       ORDER BY o.no";
            conn.prepare_cached(sql)?.query_map((), FoundBatch::read)?.collect::<Result<Vec<_>, _>>()
        })?;
        return found.into_iter().map(FoundBatch::trusted).collect();
    };
    let (open, found): (Vec<FoundBatch>, _) = pool.read("read the open batches", |conn| {
        // One view of the file: the session's row and its batches belong together.
        let view = conn.unchecked_transaction()?;
        let sql =
            "SELECT b.no, b.session, b.lookup, b.seal, TRUE FROM open_batches o JOIN batches b ON b.no = o.no
                   WHERE o.session = ?1 ORDER BY o.no";
        let mut select = view.prepare_cached(sql)?;
        let open = select.query_map([int(session.0)], FoundBatch::read)?.collect::<Result<_, _>>()?;
        Ok((open, sealed(&view, session)?))
    })?;
    let open = open.into_iter().map(FoundBatch::trusted).collect::<Result<Vec<BatchRow>, _>>()?;
    let sum = open.iter().fold(0, |sum: i64, batch| sum.wrapping_add(open_part(batch.no.0)));
    let head = found.as_ref().map_or(0, |found| found.sealed.head);
    let expected = found.as_ref().map_or(0, |found| found.sealed.open);
    found.map(SessionFileRow::trusted).transpose()?;
    if sum != expected || open.iter().any(|batch| batch.session != session) {
        let what = "its open batches are not those it had".to_owned();
        return Err(StoreError::Damaged { session, entry: head, what });
    }
    Ok(open)
}

/// The pending messages for a session, oldest first.
pub(super) fn inbound(pool: &ReaderPool, session: SessionNo, limit: u64) -> Result<Vec<Inbound>, StoreError> {
    let found: Vec<(Inbound, [u8; 32])> = pool.read("read the waiting messages", |conn| {
        let sql = "SELECT key, body, digest FROM inbound WHERE session = ?1 AND body IS NOT NULL
                   ORDER BY no LIMIT ?2";
        let message =
            |row: &Row<'_>| Ok((Inbound { session, key: row.get(0)?, body: row.get(1)? }, row.get(2)?));
        conn.prepare_cached(sql)?.query_map((int(session.0), most(limit)), message)?.collect()
    })?;
    let trusted = found.into_iter().map(|(message, digest)| {
        if message_digest(int(session.0), &message.key, &message.body) == digest {
            return Ok(message);
        }
        let what = format!("the message {:?} for it is not what was sent", message.key);
        Err(StoreError::Damaged { session, entry: 0, what })
    });
    trusted.collect()
}

/// Bytes of a blob. A piece is read whole even if only a part of it is needed, because its digest covers the whole.
pub(super) fn blob(
    pool: &ReaderPool,
    blob: BlobNo,
    offset: u64,
    len: u64,
) -> Result<Option<Vec<u8>>, StoreError> {
    pool.read("read a blob", |conn| {
        let Some(piece_bytes) = piece_bytes(conn, blob)? else { return missing(conn, blob) };
        let start = offset.checked_div(piece_bytes).filter(|start| *start < u64::from(BLOB_PIECES_MAX));
        let Some(start) = start.map(|start| start as u32) else { return Ok(Ok(Some(Vec::new()))) };
        let sql = "SELECT piece, digest, data FROM chunks WHERE piece >= ?1 ORDER BY piece";
        let mut select = conn.prepare_cached(sql)?;
        let mut pieces = select.query([piece_key(blob, start)])?;
        let mut bytes = Vec::new();
        let mut skip = (offset % piece_bytes) as usize;
        for piece in start.. {
            let wanted = usize::try_from(len).unwrap_or(usize::MAX).saturating_sub(bytes.len());
            if wanted == 0 {
                break;
            }
            let Some(row) = pieces.next()? else { break };
            let (key, data) = (row.get::<_, i64>(0)?, row.get_ref(2)?.as_blob()?);
            let own = piece_key(blob, piece);
            let is_own = piece_digest(own, data) == row.get::<_, [u8; 32]>(1)?;
            // The next row after the last piece is another blob's, unless it is our next one under a wrong key.
            if !is_own && key > piece_key(blob, BLOB_PIECES_MAX - 1) {
                break;
            }
            if !is_own || key != own {
                return Ok(Err(StoreError::DamagedBlob { blob, piece }));
            }
            let rest = data.get(skip..).unwrap_or_default();
            bytes.extend_from_slice(&rest[..wanted.min(rest.len())]);
            skip = 0;
        }
        Ok(Ok(Some(bytes)))
    })?
}

/// The size of a blob: all its pieces but the last have the same length.
pub(super) fn blob_size(pool: &ReaderPool, blob: BlobNo) -> Result<Option<BlobSize>, StoreError> {
    pool.read("measure a blob", |conn| {
        let Some(piece_bytes) = piece_bytes(conn, blob)? else { return missing(conn, blob) };
        let sql = "SELECT piece, length(data) FROM chunks WHERE piece <= ?1 ORDER BY piece DESC LIMIT 1";
        let last = [piece_key(blob, BLOB_PIECES_MAX - 1)];
        conn.prepare_cached(sql)?.query_row(last, |row| {
            let before = uint(row.get::<_, i64>(0)? - piece_key(blob, 0));
            let bytes = before * piece_bytes + uint(row.get(1)?);
            Ok(Ok(Some(BlobSize { bytes, pieces: before as u32 + 1 })))
        })
    })?
}

/// The call that a mark is at.
pub(super) fn marked(pool: &ReaderPool, mark: Mark) -> Result<Option<CallId>, StoreError> {
    let found = pool.read("read a mark", |conn| {
        let sql = "SELECT session, call, seal FROM marks WHERE mark = ?1";
        let read = |row: &Row<'_>| Ok((uint(row.get(0)?), uint(row.get(1)?), row.get::<_, i64>(2)?));
        conn.prepare_cached(sql)?.query_row([mark.0], read).optional()
    })?;
    let Some((session, call, seal)) = found else { return Ok(None) };
    let call = CallId::unpacked(call);
    if mark_seal(mark, session, call) == seal {
        return Ok(Some(call));
    }
    let what = format!("the mark at call {call} is not what was written");
    Err(StoreError::Damaged { session: SessionNo(session), entry: 0, what })
}

/// The length of a blob's pieces; `None` if it has none.
fn piece_bytes(conn: &Connection, blob: BlobNo) -> Result<Option<u64>, Error> {
    let sql = "SELECT length(data) FROM chunks WHERE piece = ?1";
    let first = conn.prepare_cached(sql)?.query_row([piece_key(blob, 0)], |row| row.get(0)).optional()?;
    Ok(first.map(uint))
}

/// Nothing, for a blob without a first piece. Its record is written with that piece and removed with it, unless its session is being
/// removed: a record without the piece is damage.
fn missing<T>(conn: &Connection, blob: BlobNo) -> Result<Result<Option<T>, StoreError>, Error> {
    // The space is written out, so that the partial index serves.
    let sql = "SELECT EXISTS (SELECT 1 FROM records AS known WHERE known.space = 16 AND known.key = ?1 AND NOT EXISTS \
               (SELECT 1 FROM records WHERE space = ?2 AND owner = known.owner))";
    let known = (blob_key(blob), Space::Removing.number());
    let is_known: bool = conn.prepare_cached(sql)?.query_row(known, |row| row.get(0))?;
    // It may have been written since.
    let is_lost = is_known && piece_bytes(conn, blob)?.is_none();
    Ok(if is_lost { Err(StoreError::DamagedBlob { blob, piece: 0 }) } else { Ok(None) })
}

/// A session's row from the file, not verified yet.
struct SessionFileRow {
    row: SessionRow,
    sealed: Sealed,
    seal: i64,
}

impl SessionFileRow {
    fn trusted(self) -> Result<SessionRow, StoreError> {
        if self.sealed.seal() == self.seal {
            return Ok(self.row);
        }
        let what = "its own row is not what was written".to_owned();
        Err(StoreError::Damaged { session: self.row.no, entry: self.row.head.0, what })
    }
}

fn sealed(conn: &Connection, no: SessionNo) -> Result<Option<SessionFileRow>, Error> {
    let sql = format!("{SEALED} WHERE no = ?1");
    conn.prepare_cached(&sql)?.query_row([int(no.0)], sealed_row).optional()
}

fn sealed_row(row: &Row<'_>) -> Result<SessionFileRow, Error> {
    let session = session_row(row)?;
    let sealed = Sealed {
        no: session.no.0,
        fence: session.fence.0,
        head: session.head.0,
        last_row: row.get(5)?,
        chain: row.get(6)?,
        open: row.get(7)?,
    };
    Ok(SessionFileRow { row: session, sealed, seal: row.get(8)? })
}

fn session_row(row: &Row<'_>) -> Result<SessionRow, Error> {
    Ok(SessionRow {
        no: SessionNo(uint(row.get(0)?)),
        name: row.get(1)?,
        principal: row.get(2)?,
        fence: Fence(uint(row.get(3)?)),
        head: EntryNo(uint(row.get(4)?)),
    })
}

/// A batch's row from the file, not verified yet.
struct FoundBatch {
    row: BatchRow,
    seal: i64,
}

impl FoundBatch {
    fn read(row: &Row<'_>) -> Result<FoundBatch, Error> {
        let kept = BatchRow {
            no: BatchNo(uint(row.get(0)?)),
            session: SessionNo(uint(row.get(1)?)),
            lookup: Lookup(row.get(2)?),
            open: row.get(4)?,
            expired: false,
        };
        Ok(FoundBatch { row: kept, seal: row.get(3)? })
    }

    fn trusted(self) -> Result<BatchRow, StoreError> {
        let BatchRow { no, session, lookup, .. } = self.row;
        if batch_seal(no.0, session.0, lookup) == self.seal {
            return Ok(self.row);
        }
        if expired_seal(no.0, session.0, lookup) == self.seal {
            return Ok(BatchRow { expired: true, ..self.row });
        }
        let what = format!("the row of batch {no} is not what was written");
        Err(StoreError::Damaged { session, entry: 0, what })
    }
}

/// SQLite takes a limit below zero for none.
pub(super) fn most(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
