//! Journal rows and their hash chain. A row is returned only after its link was verified.

use super::group::fixed;
use super::read::{all, most, one};
use super::readers::{ReadFailure, ReaderConnections, ReaderLink};
use crate::chain::{self, ChainLink, START, int, row_of, uint};
use crate::{Answer, JournalRow, StoreError};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row};
use windlass_core::ids::{BatchNo, EntryNo, SessionNo};

/// A journal row from the table, not verified yet.
pub(super) struct TableRow {
    row: JournalRow,
    before: ChainLink,
    link: ChainLink,
}

/// The rows of a session before an entry, newest first.
pub(super) fn of_session(
    readers: &ReaderConnections,
    session: SessionNo,
    before: Option<EntryNo>,
    limit: u64,
) -> Answer<Vec<JournalRow>> {
    readers.ask("read a history", move |client| page(client, session, before, limit))
}

/// Rows are never changed, so two queries see one history: where the page begins, and then the page. Rows may expire meanwhile;
/// those are left out.
async fn page(
    client: ReaderLink,
    session: SessionNo,
    before: Option<EntryNo>,
    limit: u64,
) -> Result<Vec<JournalRow>, ReadFailure> {
    // The row after the page, or the session's last version, has the page's end and its link.
    let sql = "SELECT coalesce(next.first, s.head + 1), coalesce(next.before, s.chain)
               FROM windlass.seats s LEFT JOIN LATERAL (
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
    let found = all(&client, sql, &params, TableRow::read).await?;
    let complete = (found.len() as i64) < limit;
    let mut rows = Vec::with_capacity(found.len());
    for found in found {
        if found.row.first.0 + u64::from(found.row.count) != end {
            (end, link) = over_gap(&client, session, end, link).await?;
        }
        // It expired after it was read.
        if found.row.first.0 >= end {
            continue;
        }
        if found.row.first.0 + u64::from(found.row.count) != end {
            return Err(missing(session, end).into());
        }
        if found.link != link {
            return Err(chain::damaged(&found.row, "it is not what the next one was chained to").into());
        }
        (end, link) = (found.row.first.0, found.before);
        rows.push(found.trusted()?);
    }
    if complete && (end, link) != (1, START) && over_gap(&client, session, end, link).await? != (1, START) {
        return Err(missing(session, end).into());
    }
    Ok(rows)
}

/// The place before the run of expired rows that ends before this entry, and the link there.
async fn over_gap(
    client: &ReaderLink,
    session: SessionNo,
    end: u64,
    link: ChainLink,
) -> Result<(u64, ChainLink), ReadFailure> {
    let sql = "SELECT first, count, before, link FROM windlass.gaps
               WHERE session = $1 AND first < $2 ORDER BY first DESC LIMIT 1";
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&int(session.0), Type::INT8), (&int(end), Type::INT8)];
    let gap = |row: &Row| {
        let (first, count): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok((uint(first), uint(first + count), fixed(row.try_get(2)?), fixed::<32>(row.try_get(3)?)))
    };
    match one(client, sql, &params, gap).await? {
        // A run that grew since the page was read ends later, and the row that is chained to it was not read.
        Some((first, gap_end, before, gap_link)) if gap_end > end || (gap_end == end && gap_link == link) => {
            Ok((first, before))
        }
        Some(_) | None => Err(missing(session, end).into()),
    }
}

/// The rows of a session after an entry, oldest first.
pub(super) fn forward(
    readers: &ReaderConnections,
    session: SessionNo,
    after: EntryNo,
    limit: u64,
) -> Answer<Vec<JournalRow>> {
    readers.ask("read a journal on", move |client| async move {
        // The index has the first entries of rows: the row before the first one that begins after the entry may also hold entries after it.
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

impl TableRow {
    pub fn read(row: &Row) -> Result<TableRow, Error> {
        let (batch, number) = row_of(row.try_get(0)?);
        let kept = JournalRow {
            session: SessionNo(uint(row.try_get(1)?)),
            batch: BatchNo(batch),
            row: number,
            first: EntryNo(uint(row.try_get(2)?)),
            count: u32::try_from(row.try_get::<_, i64>(3)?).unwrap_or(u32::MAX),
            data: row.try_get::<_, &[u8]>(6)?.to_vec(),
        };
        Ok(TableRow { row: kept, before: fixed(row.try_get(4)?), link: fixed(row.try_get(5)?) })
    }

    pub fn trusted(self) -> Result<JournalRow, StoreError> {
        chain::verify(&self.row, &self.before, &self.link)?;
        Ok(self.row)
    }
}
