//! Journal rows and the chain that vouches for them. A row is given out only after its link was computed again.

use super::Reads;
use super::pool::Pool;
use crate::chain::{self, Link, START, int, row_key, row_of, uint};
use crate::{Answer, JournalRow, StoreError};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use windlass_core::ids::{BatchNo, EntryNo, SessionNo};

/// Places in histories that are remembered, so that reading on costs what it reads; each is about 80 bytes.
const PLACES_MAX: usize = 16_384;
/// Whoever reads forward goes back so many rows at once, remembers where that was, and lets others go on.
const WALK_ROWS: u64 = 256;

/// Where earlier walks through histories stopped: the place before an entry.
#[derive(Default)]
pub(super) struct Places(Mutex<BTreeMap<(SessionNo, EntryNo), Place>>);

/// A row of a history, and what must be true of it.
#[derive(Clone, Copy)]
struct Place {
    key: i64,
    link: Link,
    /// The entry after it.
    end: u64,
}

/// A page of a history, and where it goes on.
type Page = (Vec<JournalRow>, Option<Place>);

/// The rows of a batch.
pub(super) fn of_batch(pool: &Pool, batch: BatchNo) -> Result<Vec<JournalRow>, StoreError> {
    let (found, behind): (Vec<Found>, Option<Found>) = pool.read("read a journal", |conn| {
        let sql = "SELECT j.row, j.session, j.first, j.count, j.prev, j.link, p.link, j.data
                   FROM journal j LEFT JOIN journal p ON p.row = j.prev
                   WHERE j.row >= ?1 ORDER BY j.row";
        let mut select = conn.prepare_cached(sql)?;
        let mut rows = select.query([row_key(batch, 0)])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            if row_of(row.get(0)?).0 != batch.0 {
                // Whatever is wrong with a row of others is theirs.
                return Ok((found, Found::read(row).ok()));
            }
            found.push(Found::read(row)?);
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
    // A last row under a wrong key would be missed by nobody else: it lies where it lay.
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
    back(reads, session, (before, EntryNo(0)), limit)
}

/// A walk back from the last row of a session, or from where an earlier walk stopped, to the row behind an entry.
fn back(
    reads: &Reads,
    session: SessionNo,
    (before, after): (Option<EntryNo>, EntryNo),
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
    // Whoever asked for less than there is will ask again from there.
    if let (Some(last), Some(rest)) = (rows.last().filter(|_| rows.len() as u64 == limit), rest) {
        places.remember(session, last.first, rest);
    }
    Ok(rows)
}

/// The rows of a session after an entry, oldest first. The links lead back, so this walks back to the entry from the
/// nearest place that is known behind it, in pieces, and remembers places on the way: the next page begins near.
pub(super) fn forward(
    reads: &Arc<Reads>,
    session: SessionNo,
    after: EntryNo,
    limit: u64,
) -> Answer<Vec<JournalRow>> {
    if limit == 0 {
        return Answer::ready(Ok(Vec::new()));
    }
    let mut before = reads.places.behind(session, after);
    let first = back(reads, session, (before, after), WALK_ROWS);
    let mut kept = Kept { after, limit, rows: VecDeque::new() };
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
                    before = kept.add(back(&reads, session, (before, after), WALK_ROWS)?);
                }
                Ok(kept.rows.into())
            })
        }
    }
}

/// The oldest of the rows that a walk back came by, oldest first.
struct Kept {
    after: EntryNo,
    limit: u64,
    rows: VecDeque<JournalRow>,
}

impl Kept {
    /// Adds rows, newest first; says before which entry the walk goes on, if it does.
    fn add(&mut self, rows: Vec<JournalRow>) -> Option<EntryNo> {
        let last = rows.last()?.first;
        for row in rows {
            if row.first.0 + u64::from(row.count) <= self.after.0.saturating_add(1) {
                return None;
            }
            self.rows.push_front(row);
            if self.rows.len() as u64 > self.limit {
                self.rows.pop_back();
            }
        }
        (last.0 > self.after.0.saturating_add(1)).then_some(last)
    }
}

/// Goes back row by row while `more` says so.
fn walk(
    conn: &Connection,
    session: SessionNo,
    start: Option<Place>,
    mut more: impl FnMut(&mut Vec<JournalRow>, JournalRow) -> bool,
) -> Result<Result<Page, StoreError>, Error> {
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
        let Some(found) = select.query_row([place.key], Found::read).optional()? else {
            return Ok(Err(damaged("its row is missing")));
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
fn last_place(conn: &Connection, session: SessionNo) -> Result<Option<Place>, Error> {
    let sql = "SELECT last_row, chain, head FROM sessions WHERE no = ?1";
    let place = |row: &Row<'_>| {
        let (key, link, head) = (row.get::<_, Option<i64>>(0)?, row.get(1)?, uint(row.get(2)?));
        Ok(key.map(|key| Place { key, link, end: head.saturating_add(1) }))
    };
    Ok(conn.prepare_cached(sql)?.query_row([int(session.0)], place).optional()?.flatten())
}

impl Places {
    fn get(&self, session: SessionNo, before: EntryNo) -> Option<Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&(session, before)).copied()
    }

    /// The nearest place behind an entry: before which entry it is.
    fn behind(&self, session: SessionNo, after: EntryNo) -> Option<EntryNo> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = (session, EntryNo(after.0.saturating_add(2)));
        places.range(from..=(session, EntryNo(u64::MAX))).next().map(|((_, before), _)| *before)
    }

    fn remember(&self, session: SessionNo, before: EntryNo, place: Place) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= PLACES_MAX {
            // Every second one stays: then a walk to one of the others is twice as long, and no longer.
            let mut stays = false;
            places.retain(|_, _| {
                stays = !stays;
                stays
            });
        }
        places.insert((session, before), place);
    }
}

/// A journal row as it lies in the file, not trusted yet.
struct Found {
    row: JournalRow,
    prev: Option<i64>,
    link: Link,
    prev_link: Option<Link>,
}

impl Found {
    fn read(row: &Row<'_>) -> Result<Found, Error> {
        let (batch, number) = row_of(row.get(0)?);
        let kept = JournalRow {
            session: SessionNo(uint(row.get(1)?)),
            batch: BatchNo(batch),
            row: number,
            first: EntryNo(uint(row.get(2)?)),
            count: row.get(3)?,
            data: row.get_ref(7)?.as_blob()?.to_vec(),
        };
        Ok(Found { row: kept, prev: row.get(4)?, link: row.get(5)?, prev_link: row.get(6)? })
    }

    /// The row, and the place before it, if its link is what it must be.
    fn trusted(self) -> Result<(JournalRow, Option<Place>), StoreError> {
        let before = match (self.prev, self.prev_link) {
            (None, _) => None,
            (Some(key), Some(link)) => Some(Place { key, link, end: self.row.first.0 }),
            (Some(_), None) => return Err(chain::damaged(&self.row, "the row before it is missing")),
        };
        chain::verify(&self.row, before.as_ref().map_or(&START, |before| &before.link), &self.link)?;
        Ok((self.row, before))
    }
}
