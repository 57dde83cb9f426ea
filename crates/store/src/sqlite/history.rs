//! Journal rows and their hash chain. A row is returned only after its link was verified.

use super::Reads;
use super::expire::gap_before;
use super::pool::ReaderPool;
use crate::chain::{self, ChainLink, START, int, row_key, row_of, uint};
use crate::{Answer, JournalRow, StoreError};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use windlass_core::ids::{BatchNo, EntryNo, SessionNo};

/// How many places in histories are cached, so that reading on costs only what it reads; each is about 80 bytes.
const PLACES_MAX: usize = 16_384;
/// A forward reader walks back this many rows at once, caches the place, and lets others continue.
const WALK_ROWS: u64 = 256;

/// The places where earlier walks through histories stopped: the place before an entry.
#[derive(Default)]
pub(super) struct WalkPlaces(Mutex<BTreeMap<(SessionNo, EntryNo), HistoryPlace>>);

/// A row of a history, and its expected link.
#[derive(Clone, Copy)]
struct HistoryPlace {
    key: i64,
    link: ChainLink,
    /// The entry after it.
    end: u64,
}

/// A page of a history, and the place of the next one.
type HistoryPage = (Vec<JournalRow>, Option<HistoryPlace>);

/// The rows of a batch.
pub(super) fn of_batch(pool: &ReaderPool, batch: BatchNo) -> Result<Vec<JournalRow>, StoreError> {
    let (found, behind): (Vec<FileRow>, Option<FileRow>) = pool.read("read a journal", |conn| {
        let sql = "SELECT j.row, j.session, j.first, j.count, j.prev, j.link, p.link, j.data
                   FROM journal j LEFT JOIN journal p ON p.row = j.prev
                   WHERE j.row >= ?1 ORDER BY j.row";
        // One view of the file: the row before one may expire meanwhile.
        let view = conn.unchecked_transaction()?;
        let mut select = view.prepare_cached(sql)?;
        let mut rows = select.query([row_key(batch, 0)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            if row_of(row.get(0)?).0 != batch.0 {
                // Damage in a row of another batch is that batch's problem.
                return Ok((found, FileRow::read(&view, row).ok()));
            }
            found.push(FileRow::read(&view, row)?);
        }
        Ok((found, None))
    })?;
    let mut rows = Vec::with_capacity(found.len());
    for found in found {
        rows.push(found.trusted()?.0);
    }
    if let Some(first) = rows.first().filter(|first| first.row > 0) {
        let what = "the first rows of its batch are missing".to_owned();
        return Err(StoreError::Damaged { session: first.session, entry: first.first.0, what });
    }
    // A last row under a wrong key would not be missed otherwise: it is where it was.
    if let (Some(last), Some(mut behind)) = (rows.last(), behind) {
        (behind.row.batch, behind.row.row) = (batch, last.row + 1);
        if behind.trusted().is_ok() {
            let (session, entry) = (last.session, last.first.0 + u64::from(last.count));
            return Err(StoreError::Damaged {
                session,
                entry,
                what: "its row is in another place".to_owned(),
            });
        }
    }
    Ok(rows)
}

/// The rows of a session before an entry, newest first.
pub(super) fn of_session(
    reads: &Reads,
    session: SessionNo,
    before: Option<EntryNo>,
    limit: u64,
) -> Result<Vec<JournalRow>, StoreError> {
    back(reads, session, before, EntryNo(0), limit)
}

/// Walks back from the last row of a session, or from where an earlier walk stopped, to the row after an entry.
fn back(
    reads: &Reads,
    session: SessionNo,
    before: Option<EntryNo>,
    after: EntryNo,
    limit: u64,
) -> Result<Vec<JournalRow>, StoreError> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let places = &reads.places;
    let known = before.and_then(|before| places.get(session, before));
    let page = reads.pool.read("read a history", |conn| {
        // One view of the file, and its lock taken once and not per row.
        let view = conn.unchecked_transaction()?;
        let start = match known {
            Some(place) => Some(place),
            None => last_place(&view, session)?,
        };
        walk(&view, session, start, |rows, row| {
            let is_last = row.first.0 <= after.0.saturating_add(1);
            if before.is_none_or(|before| row.first < before) {
                rows.push(row);
            }
            !is_last && (rows.len() as u64) < limit
        })
    })?;
    let (rows, rest) = page?;
    // A reader that got a full page will continue from there.
    if let (Some(last), Some(rest)) = (rows.last().filter(|_| rows.len() as u64 == limit), rest) {
        places.remember(session, last.first, rest);
    }
    Ok(rows)
}

/// The rows of a session after an entry, oldest first. The links lead back, so this walks back to the entry from the
/// nearest cached place after it, in pieces, and caches places on the way: the next page begins near.
pub(super) fn forward(
    reads: &Arc<Reads>,
    session: SessionNo,
    after: EntryNo,
    limit: u64,
) -> Answer<Vec<JournalRow>> {
    if limit == 0 {
        return Answer::ready(Ok(Vec::new()));
    }
    // From an entry that expired on, so that the nearest place is behind a row that is there.
    let after = match reads
        .pool
        .read("read a history", |conn| gap_before(conn, session, after.0.saturating_add(2)))
    {
        Ok(gap) => EntryNo(gap.map_or(after.0, |gap| gap.end() - 1)),
        Err(error) => return Answer::ready(Err(error)),
    };
    let mut before = reads.places.behind(session, after);
    let mut first = back(reads, session, before, after, WALK_ROWS);
    if before.is_some() && first.as_ref().is_ok_and(Vec::is_empty) {
        // The rows between the entry and the place expired meanwhile.
        first = back(reads, session, None, after, WALK_ROWS);
    }
    let mut kept = OldestRows { after, limit, rows: VecDeque::new() };
    match first.map(|rows| kept.add(rows)) {
        Err(error) => Answer::ready(Err(error)),
        Ok(None) => Answer::ready(Ok(kept.rows.into())),
        Ok(Some(more)) => {
            before = Some(more);
            let reads: Weak<Reads> = Arc::downgrade(reads);
            Answer::boxed(async move {
                while before.is_some() {
                    tokio::task::yield_now().await;
                    let reads = reads.upgrade().ok_or(StoreError::Closed)?;
                    before = kept.add(back(&reads, session, before, after, WALK_ROWS)?);
                }
                Ok(kept.rows.into())
            })
        }
    }
}

/// The oldest rows of a walk back, oldest first.
struct OldestRows {
    after: EntryNo,
    limit: u64,
    rows: VecDeque<JournalRow>,
}

impl OldestRows {
    /// Adds rows, newest first; returns the entry before which the walk continues, if it does. A short page is the last one: the
    /// rows before it expired, or there are none.
    fn add(&mut self, rows: Vec<JournalRow>) -> Option<EntryNo> {
        let (last, is_full) = (rows.last()?.first, rows.len() as u64 == WALK_ROWS);
        for row in rows {
            if row.first.0 + u64::from(row.count) <= self.after.0.saturating_add(1) {
                return None;
            }
            self.rows.push_front(row);
            if self.rows.len() as u64 > self.limit {
                self.rows.pop_back();
            }
        }
        (is_full && last.0 > self.after.0.saturating_add(1)).then_some(last)
    }
}

/// Walks back row by row while `more` says so.
fn walk(
    conn: &Connection,
    session: SessionNo,
    start: Option<HistoryPlace>,
    mut more: impl FnMut(&mut Vec<JournalRow>, JournalRow) -> bool,
) -> Result<Result<HistoryPage, StoreError>, Error> {
    let mut select = conn.prepare_cached(
        "SELECT j.row, j.session, j.first, j.count, j.prev, j.link, p.link, j.data
         FROM journal j LEFT JOIN journal p ON p.row = j.prev WHERE j.row = ?1",
    )?;
    let mut rows = Vec::new();
    let mut next = start;
    while let Some(place) = next {
        let damaged = |what: &str| StoreError::Damaged {
            session,
            entry: place.end.saturating_sub(1),
            what: what.to_owned(),
        };
        let Some(found) = select.query_row([place.key], |row| FileRow::read(conn, row)).optional()? else {
            let Some(gap) = gap_before(conn, session, place.end)? else {
                return Ok(Err(damaged("its row is missing")));
            };
            // A place that was cached may lie within the run by now.
            if gap.end() == place.end && (gap.last_row, gap.link) != (place.key, place.link) {
                return Ok(Err(damaged("its row expired, and is not what the next one was chained to")));
            }
            next = gap.prev.map(|key| HistoryPlace { key, link: gap.before, end: gap.first });
            continue;
        };
        if found.link != place.link {
            return Ok(Err(damaged("it is not what the next one was chained to")));
        }
        let (row, before) = match found.trusted() {
            Ok(trusted) => trusted,
            Err(damage) => return Ok(Err(damage)),
        };
        if row.first.0 + u64::from(row.count) != place.end {
            return Ok(Err(damaged("its number is not the one before the next")));
        }
        next = before;
        if !more(&mut rows, row) {
            break;
        }
    }
    Ok(Ok((rows, next)))
}

/// The last row of a session, as the session's own row knows it.
fn last_place(conn: &Connection, session: SessionNo) -> Result<Option<HistoryPlace>, Error> {
    let sql = "SELECT last_row, chain, head FROM sessions WHERE no = ?1";
    let place = |row: &Row<'_>| {
        let (key, link, head) = (row.get::<_, Option<i64>>(0)?, row.get(1)?, uint(row.get(2)?));
        Ok(key.map(|key| HistoryPlace { key, link, end: head.saturating_add(1) }))
    };
    Ok(conn.prepare_cached(sql)?.query_row([int(session.0)], place).optional()?.flatten())
}

impl WalkPlaces {
    fn get(&self, session: SessionNo, before: EntryNo) -> Option<HistoryPlace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(session, before)).copied()
    }

    /// The nearest cached place after an entry.
    fn behind(&self, session: SessionNo, after: EntryNo) -> Option<EntryNo> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = (session, EntryNo(after.0.saturating_add(2)));
        places.range(from..=(session, EntryNo(u64::MAX))).next().map(|((_, before), _)| *before)
    }

    fn remember(&self, session: SessionNo, before: EntryNo, place: HistoryPlace) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= PLACES_MAX {
            // Every second place stays: then a walk to one of the others is twice as long, and no longer.
            let mut stays = false;
            places.retain(|_, _| {
                stays = !stays;
                stays
            });
        }
        places.insert((session, before), place);
    }
}

/// A journal row from the file, not verified yet.
struct FileRow {
    row: JournalRow,
    prev: Option<i64>,
    link: ChainLink,
    prev_link: Option<ChainLink>,
}

impl FileRow {
    fn read(conn: &Connection, row: &Row<'_>) -> Result<FileRow, Error> {
        let (batch, number) = row_of(row.get(0)?);
        let kept = JournalRow {
            session: SessionNo(uint(row.get(1)?)),
            batch: BatchNo(batch),
            row: number,
            first: EntryNo(uint(row.get(2)?)),
            count: row.get(3)?,
            data: row.get_ref(7)?.as_blob()?.to_vec(),
        };
        let (prev, mut prev_link): (Option<i64>, Option<ChainLink>) = (row.get(4)?, row.get(6)?);
        if let (Some(key), None) = (prev, prev_link) {
            let gap = gap_before(conn, kept.session, kept.first.0)?;
            prev_link =
                gap.filter(|gap| (gap.last_row, gap.end()) == (key, kept.first.0)).map(|gap| gap.link);
        }
        Ok(FileRow { row: kept, prev, link: row.get(5)?, prev_link })
    }

    /// The verified row, and the place before it.
    fn trusted(self) -> Result<(JournalRow, Option<HistoryPlace>), StoreError> {
        let before = match (self.prev, self.prev_link) {
            (None, _) => None,
            (Some(key), Some(link)) => Some(HistoryPlace { key, link, end: self.row.first.0 }),
            (Some(_), None) => return Err(chain::damaged(&self.row, "the row before it is missing")),
        };
        chain::verify(&self.row, before.as_ref().map_or(&START, |before| &before.link), &self.link)?;
        Ok((self.row, before))
    }
}
