//! Queries about sessions, batches, blobs and messages.

use super::connection::DatabaseFailure;
use super::group::fixed;
use super::judge::digest;
use super::readers::{ReadFailure, ReaderConnections, ReaderLink, Typed};
use crate::chain::{ChainLink, int, piece_key, row_key, uint};
use crate::{
    Answer, BATCH_ROWS_MAX, BLOB_PIECES_MAX, BatchRow, BlobSize, KeptBatch, Sequence, SessionPage,
    SessionRow, Space, StoreError, StoreUsage, StoredRecord, blob_key,
};
use std::sync::Arc;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, Row};
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Fence, Lookup, Mark, SessionNo};

/// How many pieces of a blob are fetched at a time, so that a large one is never in memory twice.
const PIECES_AT_ONCE: i64 = 16;

/// Numbers of a sequence, `count` from the returned one on.
pub(super) fn reserve(readers: &ReaderConnections, what: Sequence, count: u64) -> Answer<u64> {
    let sequence = match what {
        Sequence::Session => "windlass.session_no",
        Sequence::Batch => "windlass.batch_no",
        Sequence::Blob => "windlass.blob_no",
    };
    readers.ask("reserve numbers", move |client| async move {
        let sql = "SELECT windlass.reserve($1::text::regclass, $2)";
        let params: [Typed<'_>; 2] = [(&sequence, Type::TEXT), (&most(count), Type::INT8)];
        drop(client.link.warning());
        let rows = client.rows(sql, &params).await?;
        // A replica that lacks it would hand the numbers out again.
        if let Some(warning) = client.link.warning() {
            return Err(DatabaseFailure::Warned(warning).into());
        }
        let first: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(uint(first.unwrap_or(i64::MAX)))
    })
}

/// Deletes rows that nobody looks for any more; how many.
pub(super) fn sweep(readers: &ReaderConnections) -> Answer<u64> {
    readers.ask("sweep", move |client| async move {
        let swept = one(&client, "SELECT windlass.sweep()", &[], |row| Ok(uint(row.try_get(0)?)));
        Ok(swept.await?.unwrap_or(0))
    })
}

/// The sessions after one, by number.
pub(super) fn sessions(
    readers: &ReaderConnections,
    after: Option<SessionNo>,
    limit: u64,
) -> Answer<Vec<SessionRow>> {
    let after = after.map_or(-1, |after| int(after.0));
    readers.ask("read the sessions", move |client| async move {
        let sql = "SELECT no, name, principal, fence, head FROM windlass.seats WHERE no > $1
                   ORDER BY no LIMIT $2";
        all(&client, sql, &[(&after, Type::INT8), (&most(limit), Type::INT8)], session_row).await
    })
}

/// The sessions after one that have a record in a space, by number.
pub(super) fn sessions_with(
    readers: &ReaderConnections,
    space: Space,
    after: Option<SessionNo>,
    limit: u64,
) -> Answer<Vec<SessionRow>> {
    let after = after.map_or(-1, |after| int(after.0));
    readers.ask("read the sessions", move |client| async move {
        let sql = "SELECT no, name, principal, fence, head FROM windlass.seats WHERE no IN
                   (SELECT DISTINCT owner FROM windlass.records WHERE space = $1 AND owner > $2 ORDER BY owner LIMIT $3)
                   ORDER BY no";
        let params: [Typed<'_>; 3] =
            [(&space.number(), Type::INT8), (&after, Type::INT8), (&most(limit), Type::INT8)];
        all(&client, sql, &params, session_row).await
    })
}

/// A page of sessions by name. Without an index: an index takes no name as long as the contract allows.
pub(super) fn sessions_by_name(
    readers: &ReaderConnections,
    page: SessionPage<'_>,
) -> Answer<Vec<SessionRow>> {
    let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
    let (principal, after, limit) = (bytes(page.principal), bytes(page.after), most(page.limit));
    let wanted = Arc::new((principal, after));
    readers.ask("read the sessions", move |client| {
        let wanted = wanted.clone();
        async move {
            let sql = "SELECT no, name, principal, fence, head FROM windlass.seats
                   WHERE ($1::bytea IS NULL OR principal = $1) AND ($2::bytea IS NULL OR name > $2)
                   ORDER BY name LIMIT $3";
            let params: [Typed<'_>; 3] =
                [(&wanted.0, Type::BYTEA), (&wanted.1, Type::BYTEA), (&limit, Type::INT8)];
            all(&client, sql, &params, session_row).await
        }
    })
}

/// The batches that have rows, by number.
pub(super) fn kept_batches(
    readers: &ReaderConnections,
    after: BatchNo,
    limit: u64,
) -> Answer<Vec<KeptBatch>> {
    readers.ask("read the kept batches", move |client| async move {
        let sql = "SELECT row >> 20, min(session), sum(length(data))::bigint FROM windlass.journal
                   WHERE row > $1 GROUP BY row >> 20 ORDER BY row >> 20 LIMIT $2";
        let after = row_key(after, BATCH_ROWS_MAX - 1);
        let kept = |row: &Row| {
            let (no, session) = (BatchNo(uint(row.try_get(0)?)), SessionNo(uint(row.try_get(1)?)));
            Ok(KeptBatch { no, session, bytes: uint(row.try_get(2)?) })
        };
        all(&client, sql, &[(&after, Type::INT8), (&most(limit), Type::INT8)], kept).await
    })
}

/// The space in use. The server's own files are not measured.
pub(super) fn usage(readers: &ReaderConnections) -> Answer<StoreUsage> {
    readers.ask("measure the store", move |client| async move {
        let sql = "SELECT (SELECT coalesce(sum(length(data)), 0)::bigint FROM windlass.journal),
                          (SELECT coalesce(sum(length(data)), 0)::bigint FROM windlass.chunks),
                          (SELECT coalesce(sum(length(key) + length(value)), 0)::bigint FROM windlass.records),
                          (SELECT coalesce(sum(length(body)), 0)::bigint FROM windlass.inbound),
                          (SELECT count(*) FROM windlass.batches),
                          (SELECT count(*) FROM windlass.batches WHERE expired)";
        let patient = client.for_long();
        let found = one(&patient, sql, &[], |row| {
            let sum = |column: usize| row.try_get(column).map(uint);
            Ok(StoreUsage {
                journal_bytes: sum(0)?,
                blob_bytes: sum(1)?,
                record_bytes: sum(2)?,
                message_bytes: sum(3)?,
                batches: sum(4)?,
                expired_batches: sum(5)?,
                file_bytes: 0,
                free_bytes: 0,
            })
        });
        Ok(found.await?.unwrap_or_default())
    })
}

/// The open batches of all sessions, oldest first.
pub(super) fn open_batches(readers: &ReaderConnections) -> Answer<Vec<BatchRow>> {
    readers.ask("read the open batches", move |client| async move {
        let sql = "SELECT b.no, b.session, b.lookup, TRUE, b.expired
                   FROM windlass.open_batches o JOIN windlass.batches b USING (session, no) ORDER BY no";
        all(&client, sql, &[], batch_row).await
    })
}

/// The call that a mark is at.
pub(super) fn marked(readers: &ReaderConnections, mark: Mark) -> Answer<Option<CallId>> {
    readers.ask("read a mark", move |client| async move {
        let sql = "SELECT call FROM windlass.marks WHERE mark = $1";
        let call = |row: &Row| Ok(CallId::unpacked(uint(row.try_get(0)?)));
        one(&client, sql, &[(&&mark.0[..], Type::BYTEA)], call).await
    })
}

/// The session that has the record of a blob.
pub(super) fn blob_session(readers: &ReaderConnections, blob: BlobNo) -> Answer<Option<SessionNo>> {
    let key = blob_key(blob);
    readers.ask("read whose a blob is", move |client| {
        let key = key.clone();
        async move {
            // The space is written out, so that the partial index serves.
            let sql = "SELECT owner FROM windlass.records WHERE space = 16 AND key = $1";
            let session = |row: &Row| Ok(SessionNo(uint(row.try_get(0)?)));
            one(&client, sql, &[(&key.as_bytes(), Type::BYTEA)], session).await
        }
    })
}

/// The hash kept of a removed session.
pub(super) fn gone(readers: &ReaderConnections, key: ChainLink) -> Answer<Option<Vec<u8>>> {
    readers.ask("read a removed session", move |client| async move {
        let sql = "SELECT value FROM windlass.gone WHERE key = $1";
        one(&client, sql, &[(&&key[..], Type::BYTEA)], |row: &Row| row.try_get(0)).await
    })
}

/// A record from the database, not verified yet.
pub(super) struct FoundRecord {
    record: StoredRecord,
    digest: Vec<u8>,
}

pub(super) fn record_row(row: &Row) -> Result<FoundRecord, Error> {
    let record =
        StoredRecord { key: text(row, 0)?, value: row.try_get(1)?, generation: uint(row.try_get(2)?) };
    Ok(FoundRecord { record, digest: row.try_get(3)? })
}

impl FoundRecord {
    /// Whether its key begins so.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.record.key.starts_with(prefix)
    }

    pub fn trusted(self, owner: SessionNo) -> Result<StoredRecord, StoreError> {
        if digest(&self.record.value) == *self.digest {
            return Ok(self.record);
        }
        let what = format!("the record {:?} of it is not what was written", self.record.key);
        Err(StoreError::Damaged { session: owner, entry: 0, what })
    }
}

/// Bytes of a blob. A piece is read whole even if only a part of it is needed, because its digest covers the whole.
pub(super) fn blob(
    readers: &ReaderConnections,
    blob: BlobNo,
    offset: u64,
    len: u64,
) -> Answer<Option<Vec<u8>>> {
    readers.ask("read a blob", move |client| blob_bytes(client, blob, offset, len))
}

/// The size of a blob.
pub(super) fn blob_size(readers: &ReaderConnections, blob: BlobNo) -> Answer<Option<BlobSize>> {
    readers.ask("measure a blob", move |client| blob_measure(client, blob))
}

async fn blob_measure(client: ReaderLink, blob: BlobNo) -> Result<Option<BlobSize>, ReadFailure> {
    let sql = "SELECT coalesce(sum(length(data)), 0)::bigint, count(*) FROM windlass.chunks WHERE piece BETWEEN $1 AND $2";
    let (first, last) = (piece_key(blob, 0), piece_key(blob, BLOB_PIECES_MAX - 1));
    let params: [Typed<'_>; 2] = [(&first, Type::INT8), (&last, Type::INT8)];
    let size = one(&client, sql, &params, |row| {
        Ok(BlobSize { bytes: uint(row.try_get(0)?), pieces: uint(row.try_get(1)?) as u32 })
    });
    Ok(size.await?.filter(|size| size.pieces > 0))
}

async fn blob_bytes(
    client: ReaderLink,
    blob: BlobNo,
    offset: u64,
    len: u64,
) -> Result<Option<Vec<u8>>, ReadFailure> {
    let sql = "SELECT length(data)::bigint FROM windlass.chunks WHERE piece = $1";
    let key = piece_key(blob, 0);
    let length = |row: &Row| Ok(uint(row.try_get(0)?));
    let Some(piece_bytes) = one(&client, sql, &[(&key, Type::INT8)], length).await? else { return Ok(None) };
    let start = offset.checked_div(piece_bytes).filter(|start| *start < u64::from(BLOB_PIECES_MAX));
    let Some(mut piece) = start.map(|start| start as u32) else { return Ok(Some(Vec::new())) };
    let last = piece_key(blob, BLOB_PIECES_MAX - 1);
    let (mut bytes, mut skip) = (Vec::new(), (offset % piece_bytes) as usize);
    loop {
        let wanted = usize::try_from(len).unwrap_or(usize::MAX).saturating_sub(bytes.len());
        if wanted == 0 {
            return Ok(Some(bytes));
        }
        let most = (wanted as u64 / piece_bytes).saturating_add(2).min(PIECES_AT_ONCE.cast_unsigned());
        let sql = "SELECT digest, data FROM windlass.chunks
                   WHERE piece BETWEEN $1 AND $2 ORDER BY piece LIMIT $3";
        let (from, most) = (piece_key(blob, piece), int(most));
        let params: [Typed<'_>; 3] = [(&from, Type::INT8), (&last, Type::INT8), (&most, Type::INT8)];
        let rows = client.rows(sql, &params).await?;
        for row in &rows {
            let (kept, data): (&[u8], &[u8]) = (row.try_get(0)?, row.try_get(1)?);
            if digest(data) != *kept {
                return Err(StoreError::DamagedBlob { blob, piece }.into());
            }
            let wanted = usize::try_from(len).unwrap_or(usize::MAX).saturating_sub(bytes.len());
            let rest = data.get(skip..).unwrap_or_default();
            bytes.extend_from_slice(&rest[..wanted.min(rest.len())]);
            (skip, piece) = (0, piece + 1);
        }
        if (rows.len() as i64) < most || piece >= BLOB_PIECES_MAX {
            return Ok(Some(bytes));
        }
    }
}

/// The one row, if there is one.
pub(super) async fn one<T>(
    client: &ReaderLink,
    sql: &str,
    params: &[Typed<'_>],
    read: impl Fn(&Row) -> Result<T, Error>,
) -> Result<Option<T>, ReadFailure> {
    let rows = client.rows(sql, params).await?;
    Ok(rows.first().map(read).transpose()?)
}

/// All rows.
pub(super) async fn all<T>(
    client: &ReaderLink,
    sql: &str,
    params: &[Typed<'_>],
    read: impl Fn(&Row) -> Result<T, Error>,
) -> Result<Vec<T>, ReadFailure> {
    let rows = client.rows(sql, params).await?;
    Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
}

pub(super) fn session_row(row: &Row) -> Result<SessionRow, Error> {
    let principal: Option<&[u8]> = row.try_get(2)?;
    Ok(SessionRow {
        no: SessionNo(uint(row.try_get(0)?)),
        name: text(row, 1)?,
        principal: principal.map(|principal| String::from_utf8_lossy(principal).into_owned()),
        fence: Fence(uint(row.try_get(3)?)),
        head: EntryNo(uint(row.try_get(4)?)),
    })
}

pub(super) fn batch_row(row: &Row) -> Result<BatchRow, Error> {
    Ok(BatchRow {
        no: BatchNo(uint(row.try_get(0)?)),
        session: SessionNo(uint(row.try_get(1)?)),
        lookup: Lookup(fixed(row.try_get(2)?)),
        open: row.try_get(3)?,
        expired: row.try_get(4)?,
    })
}

/// Text stored as bytes.
pub(super) fn text(row: &Row, column: usize) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(row.try_get(column)?).into_owned())
}

/// A limit as PostgreSQL takes it.
pub(super) fn most(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
