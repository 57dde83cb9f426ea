//! Journal rows and the chain that vouches for them. A row is given out only after its link was computed again.

use super::group::fixed;
use super::read::{all, most, one};
use super::readers::{Readers, Unanswered};
use crate::chain::{self, Link, START, int, row_key, row_of, uint};
use crate::{Answer, BATCH_ROWS_MAX, JournalRow, StoreError};
use std::sync::Arc;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};
use windlass_core::ids::{BatchNo, EntryNo, SessionNo};

/// A journal row as it lies in the table, not trusted yet.
struct Found {
    row: JournalRow,
    before: Link,
    link: Link,
}

/// The rows of a batch.
pub(super) fn of_batch(readers: &Readers, batch: BatchNo) -> Answer<Vec<JournalRow>> {
    readers.ask("read a journal", move |client| async move {
        let sql = "SELECT row, session, first, count, before, link, data FROM windlass.journal
                   WHERE row BETWEEN $1 AND $2 ORDER BY row";
        let (first, last) = (row_key(batch, 0), row_key(batch, BATCH_ROWS_MAX - 1));
        let params: [(&(dyn ToSql + Sync), Type); 2] = [(&first, Type::INT8), (&last, Type::INT8)];
        let found = all(&client, sql, &params, Found::read).await?;
        Ok(found.into_iter().map(Found::trusted).collect::<Result<_, _>>()?)
    })
}

/// The rows of a session before an entry, newest first.
pub(super) fn of_session(
    readers: &Readers,
    session: SessionNo,
    before: Option<EntryNo>,
    limit: u64,
) -> Answer<Vec<JournalRow>> {
    readers.ask("read a history", move |client| page(client, session, before, limit))
}

/// Rows are never changed, so two questions see one history: where the page begins, and then the page.
async fn page(
    client: Arc<Client>,
    session: SessionNo,
    before: Option<EntryNo>,
    limit: u64,
) -> Result<Vec<JournalRow>, Unanswered> {
    // What comes after the page knows where the page ends and with which link: a row, or the session's own row.
    let sql = "SELECT coalesce(next.first, s.head + 1), coalesce(next.before, s.chain)
               FROM windlass.sessions s LEFT JOIN LATERAL (
                   SELECT first, before FROM windlass.journal j
                   WHERE j.session = s.no AND j.first >= $2 ORDER BY j.first LIMIT 1
               ) next ON TRUE WHERE s.no = $1";
    let (no, from) = (int(session.0), before.map_or(i64::MAX, |before| most(before.0)));
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&no, Type::INT8), (&from, Type::INT8)];
    let place = |row: &Row| Ok((uint(row.try_get(0)?), fixed(row.try_get(1)?)));
    let Some((mut end, mut link)) = one(&client, sql, &params, place).await? else { return Ok(Vec::new()) };
    let sql = "SELECT row, session, first, count, before, link, data FROM windlass.journal
               WHERE session = $1 AND first < $2 ORDER BY first DESC LIMIT $3";
    let (before, limit) = (int(end), most(limit));
    let params: [(&(dyn ToSql + Sync), Type); 3] =
        [(&no, Type::INT8), (&before, Type::INT8), (&limit, Type::INT8)];
    let found = all(&client, sql, &params, Found::read).await?;
    let complete = (found.len() as i64) < limit;
    let mut rows = Vec::with_capacity(found.len());
    for found in found {
        if found.row.first.0 + u64::from(found.row.count) != end {
            return Err(missing(session, end).into());
        }
        if found.link != link {
            return Err(chain::damaged(&found.row, "it is not what the next one was chained to").into());
        }
        (end, link) = (found.row.first.0, found.before);
        rows.push(found.trusted()?);
    }
    if complete && (end, link) != (1, START) {
        return Err(missing(session, end).into());
    }
    Ok(rows)
}

/// The rows of a session after an entry, oldest first.
pub(super) fn forward(
    readers: &Readers,
    session: SessionNo,
    after: EntryNo,
    limit: u64,
) -> Answer<Vec<JournalRow>> {
    readers.ask("read a journal on", move |client| async move {
        // The index has where rows begin: the row before the first that begins behind the entry may hold entries behind it.
        let sql = "SELECT first FROM windlass.journal WHERE session = $1 AND first > $2
                   ORDER BY first LIMIT 1 OFFSET $3";
        let (no, from, skipped) = (int(session.0), int(after.0), most(limit));
        let params: [(&(dyn ToSql + Sync), Type); 3] =
            [(&no, Type::INT8), (&from, Type::INT8), (&skipped, Type::INT8)];
        let before = one(&client, sql, &params, |row| Ok(EntryNo(uint(row.try_get(0)?)))).await?;
        let mut rows = page(client, session, before, limit.saturating_add(1)).await?;
        rows.retain(|row| row.first.0 + u64::from(row.count) > after.0.saturating_add(1));
        rows.reverse();
        rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(rows)
    })
}

fn missing(session: SessionNo, end: u64) -> StoreError {
    StoreError::Damaged { session, entry: end.saturating_sub(1), what: "its row is missing".to_owned() }
}

impl Found {
    fn read(row: &Row) -> Result<Found, Error> {
        let (batch, number) = row_of(row.try_get(0)?);
        let kept = JournalRow {
            session: SessionNo(uint(row.try_get(1)?)),
            batch: BatchNo(batch),
            row: number,
            first: EntryNo(uint(row.try_get(2)?)),
            count: u32::try_from(row.try_get::<_, i64>(3)?).unwrap_or(u32::MAX),
            data: row.try_get::<_, &[u8]>(6)?.to_vec(),
        };
        Ok(Found { row: kept, before: fixed(row.try_get(4)?), link: fixed(row.try_get(5)?) })
    }

    fn trusted(self) -> Result<JournalRow, StoreError> {
        chain::verify(&self.row, &self.before, &self.link)?;
        Ok(self.row)
    }
}
