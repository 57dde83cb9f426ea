//! Expired batches: their rows are gone, their look-ups stay.
//!
//! The links of a journal lead back, from each row to the one before it. A run of rows that expired is replaced by one row of
//! `gaps`, which keeps what its neighbours need: the key and the link of its last row, to which the row after it is chained, and
//! the place before its first. A walk steps over it, and what is left of the journal is verified as before.

use super::apply::{Applier, ApplyFault};
use super::pool::ReaderPool;
use super::read::most;
use super::seal::{batch_seal, expired_seal, gap_seal};
use crate::chain::{ChainLink, START, int, row_key, row_of, uint};
use crate::change::Refused;
use crate::{BATCH_ROWS_MAX, KeptBatch, StoreError, StoreUsage};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use windlass_core::ids::{BatchNo, Lookup, SessionNo};

/// A run of a session's rows that expired.
#[derive(Clone, Copy)]
pub(super) struct Gap {
    pub first: u64,
    pub count: u64,
    pub last_row: i64,
    pub link: ChainLink,
    pub prev: Option<i64>,
    pub before: ChainLink,
}

impl Gap {
    /// The entry after it.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    fn read(row: &Row<'_>) -> Result<(Gap, i64), Error> {
        let gap = Gap {
            first: uint(row.get(0)?),
            count: uint(row.get(1)?),
            last_row: row.get(2)?,
            link: row.get(3)?,
            prev: row.get(4)?,
            before: row.get(5)?,
        };
        Ok((gap, row.get(6)?))
    }
}

/// The run of expired rows that has the entry before `end`, if it is what was written.
pub(super) fn gap_before(conn: &Connection, session: SessionNo, end: u64) -> Result<Option<Gap>, Error> {
    let sql = "SELECT first, count, last_row, link, prev, before, seal FROM gaps
               WHERE session = ?1 AND first < ?2 ORDER BY first DESC LIMIT 1";
    let found = conn.prepare_cached(sql)?.query_row((int(session.0), int(end)), Gap::read).optional()?;
    let intact = found.filter(|(gap, seal)| gap_seal(session, gap) == *seal).map(|(gap, _)| gap);
    Ok(intact.filter(|gap| gap.end() >= end))
}

impl Applier<'_> {
    /// Whether this batch may expire: it is recorded in this session, and closed.
    pub(super) fn may_expire(&mut self, session: SessionNo, no: BatchNo) -> Result<bool, Error> {
        let read = |row: &Row<'_>| Ok((uint(row.get(0)?), row.get::<_, bool>(3)?));
        let found = self.sql.kept_batch.query_row([int(no.0)], read).optional()?;
        Ok(found.is_some_and(|(of, open)| of == session.0 && !open))
    }

    /// Removes the rows of a batch that may expire.
    pub(super) fn expire(&mut self, session: SessionNo, no: BatchNo) -> Result<(), ApplyFault> {
        let read = |row: &Row<'_>| Ok((Lookup(row.get(1)?), row.get::<_, i64>(2)?));
        let (lookup, seal) = self.sql.kept_batch.query_row([int(no.0)], read)?;
        if seal == expired_seal(no.0, session.0, lookup) {
            return Ok(());
        }
        if seal != batch_seal(no.0, session.0, lookup) {
            return Err(ApplyFault::Redo(Refused::NotOver));
        }
        let range = (row_key(no, 0), row_key(no, BATCH_ROWS_MAX - 1));
        let read = |row: &Row<'_>| {
            let (prev, before): (Option<i64>, Option<ChainLink>) = (row.get(4)?, row.get(5)?);
            let gap = Gap {
                first: uint(row.get(1)?),
                count: uint(row.get(2)?),
                last_row: row.get(0)?,
                link: row.get(3)?,
                prev,
                before: START,
            };
            Ok((gap, before))
        };
        let rows = self.sql.batch_rows.rows(range, read)?;
        for (gap, before) in rows {
            self.add_gap(session, gap, before)?;
        }
        self.sql.delete_rows.execute(range)?;
        self.sql.seal_batch.execute((int(no.0), expired_seal(no.0, session.0, lookup)))?;
        Ok(())
    }

    /// Adds a row to the runs that it touches. `before`: the link of the row before it, if that row is there.
    fn add_gap(
        &mut self,
        session: SessionNo,
        mut gap: Gap,
        before: Option<ChainLink>,
    ) -> Result<(), ApplyFault> {
        let of = int(session.0);
        let earlier = self.sql.gap_before.query_row((of, int(gap.first)), Gap::read).optional()?;
        let earlier = earlier.filter(|(earlier, _)| earlier.end() == gap.first);
        let later = self.sql.gap_at.query_row((of, int(gap.end())), Gap::read).optional()?;
        let touched = [earlier, later].into_iter().flatten();
        // Nothing is built on a damaged run: its damage stays where it is noticed.
        if touched.into_iter().any(|(gap, seal)| gap_seal(session, &gap) != seal) {
            return Err(ApplyFault::Redo(Refused::NotOver));
        }
        if let Some((later, _)) = later {
            self.sql.delete_gap.execute((of, int(later.first)))?;
            (gap.last_row, gap.link) = (later.last_row, later.link);
            gap.count += later.count;
        }
        match (earlier, gap.prev, before) {
            (Some((earlier, _)), _, _) => {
                gap.count += earlier.count;
                (gap.first, gap.prev, gap.before) = (earlier.first, earlier.prev, earlier.before);
            }
            (None, None, _) => gap.before = START,
            // The run that it touches, or the row before it, is of the same batch and expires with it.
            (None, Some(_), Some(link)) => gap.before = link,
            (None, Some(_), None) => return Err(ApplyFault::Redo(Refused::NotOver)),
        }
        let Gap { first, count, last_row, link, prev, before } = gap;
        let kept = (of, int(first), int(count), last_row, link, prev, before, gap_seal(session, &gap));
        self.sql.put_gap.execute(kept)?;
        Ok(())
    }
}

/// Free pages are kept for reuse up to this part of the file, and this many: returning pages that the next calls need would only
/// move data about.
const FREE_PART: u64 = 8;
const FREE_PAGES_MIN: u64 = 1_024;

impl Applier<'_> {
    /// Returns free pages to the file system, in the current transaction; whether more should follow.
    pub(super) fn shrink(&mut self, pages: u64) -> Result<bool, Error> {
        let read =
            |sql: &str| self.conn.prepare_cached(sql)?.query_row((), |row| row.get::<_, i64>(0)).map(uint);
        // A file that was made without it reuses its pages and keeps them.
        if read("PRAGMA auto_vacuum")? != 2 {
            return Ok(false);
        }
        let spare = read("PRAGMA freelist_count")?
            .saturating_sub((read("PRAGMA page_count")? / FREE_PART).max(FREE_PAGES_MIN));
        if spare == 0 {
            return Ok(false);
        }
        let sql = format!("PRAGMA incremental_vacuum({})", pages.min(spare).max(1));
        let mut vacuum = self.conn.prepare(&sql)?;
        let mut steps = vacuum.query(())?;
        while steps.next()?.is_some() {}
        Ok(spare > pages)
    }
}

/// The batches that have rows, by number.
pub(super) fn kept_batches(
    pool: &ReaderPool,
    after: BatchNo,
    limit: u64,
) -> Result<Vec<KeptBatch>, StoreError> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    pool.read("read the kept batches", |conn| {
        // The length of a long value is known without reading it.
        let sql = "SELECT row, session, length(data) FROM journal WHERE row > ?1 ORDER BY row";
        let mut select = conn.prepare_cached(sql)?;
        let mut rows = select.query([row_key(after, BATCH_ROWS_MAX - 1)])?;
        let mut found: Vec<KeptBatch> = Vec::new();
        while let Some(row) = rows.next()? {
            let (no, bytes) = (BatchNo(row_of(row.get(0)?).0), uint(row.get(2)?));
            if let Some(last) = found.last_mut().filter(|last| last.no == no) {
                last.bytes += bytes;
            } else if found.len() < limit {
                found.push(KeptBatch { no, session: SessionNo(uint(row.get(1)?)), bytes });
            } else {
                break;
            }
        }
        Ok(found)
    })
}

/// The space in use.
pub(super) fn usage(pool: &ReaderPool) -> Result<StoreUsage, StoreError> {
    pool.read("measure the store", |conn| {
        let view = conn.unchecked_transaction()?;
        let sum = |sql: &str| view.query_row(sql, (), |row| row.get::<_, i64>(0)).map(uint);
        let page = super::file::PAGE_BYTES;
        let mut expired = 0;
        let mut select = view.prepare("SELECT no, session, lookup, seal FROM batches")?;
        let mut rows = select.query(())?;
        while let Some(row) = rows.next()? {
            let (no, session, lookup) = (uint(row.get(0)?), uint(row.get(1)?), Lookup(row.get(2)?));
            expired += u64::from(expired_seal(no, session, lookup) == row.get::<_, i64>(3)?);
        }
        Ok(StoreUsage {
            journal_bytes: sum("SELECT coalesce(sum(length(data)), 0) FROM journal")?,
            blob_bytes: sum("SELECT coalesce(sum(length(data)), 0) FROM chunks")?,
            record_bytes: sum("SELECT coalesce(sum(length(key) + length(value)), 0) FROM records")?,
            message_bytes: sum("SELECT coalesce(sum(length(body)), 0) FROM inbound")?,
            batches: sum("SELECT count(*) FROM batches")?,
            expired_batches: expired,
            file_bytes: sum("PRAGMA page_count")? * page,
            free_bytes: sum("PRAGMA freelist_count")? * page,
        })
    })
}

/// The look-ups of expired batches of a session of which no entry is left, at most `limit`. Batches are not found by their
/// session, so the search is here, where no writer waits for it.
pub(super) fn leftovers(
    pool: &ReaderPool,
    session: SessionNo,
    limit: u64,
) -> Result<Vec<BatchNo>, StoreError> {
    pool.read("read the expired batches of a session", |conn| {
        let has = "SELECT 1 FROM gaps WHERE session = ?1";
        if !conn.prepare_cached(has)?.exists([int(session.0)])? {
            return Ok(Vec::new());
        }
        let sql = "SELECT no FROM batches WHERE session = ?1 ORDER BY no LIMIT ?2";
        let number = |row: &Row<'_>| Ok(BatchNo(uint(row.get(0)?)));
        conn.prepare_cached(sql)?.query_map((int(session.0), most(limit)), number)?.collect()
    })
}
