//! The queries that a session's first use, a batch and a takeover need, each for many subjects in one statement.
//!
//! Each subject is looked up by itself in a lateral query that is not merged into the statement (`OFFSET 0`): so each uses its index,
//! whatever the planner knows of the tables, and a statement costs what its parts cost.

use super::connection::Param;
use super::gather::{GatheredRead, GatheredReads, Read};
use super::history::TableRow;
use super::judge::digest;
use super::read::{FoundRecord, batch_row, most, record_row, session_row, text};
use super::readers::{ReadFailure, ReaderLink};
use super::statements as sql;
use super::statements::TypedStatement;
use crate::chain::{ChainLink, int, row_key, uint};
use crate::{
    BATCH_ROWS_MAX, BatchRow, Inbound, JournalRow, RecordPage, SessionRow, Shelf, StoreError, StoredRecord,
};
use std::sync::Arc;
use tokio_postgres::{Error, Row};
use windlass_core::ids::{BatchNo, Lookup, SessionNo};

/// The look-ups that wait for their next statements.
#[derive(Default)]
pub(super) struct PostgresLookups {
    pub sessions: GatheredReads<SessionsByNo>,
    pub names: GatheredReads<SessionsByName>,
    pub batches: GatheredReads<BatchesByNo>,
    pub lookups: GatheredReads<BatchesByLookup>,
    pub open: GatheredReads<OpenBatches>,
    pub journals: GatheredReads<Journals>,
    pub messages: GatheredReads<Messages>,
    pub records: GatheredReads<Records>,
    pub pages: GatheredReads<RecordPages>,
    pub counts: GatheredReads<RecordCounts>,
}

/// The rows of each of `count` subjects. The last column of a row is the place of its subject, from 1.
async fn by_subject<T>(
    client: &ReaderLink,
    count: usize,
    statement: &TypedStatement,
    params: &[Param<'_>],
    read: impl Fn(&Row) -> Result<T, Error>,
) -> Result<Vec<Vec<T>>, ReadFailure> {
    let mut found: Vec<Vec<T>> = std::iter::repeat_with(Vec::new).take(count).collect();
    for row in client.rows(statement.text, &statement.typed(params)).await? {
        let place: i64 = row.try_get(row.len() - 1)?;
        if let Some(subject) = usize::try_from(place - 1).ok().and_then(|at| found.get_mut(at)) {
            subject.push(read(&row)?);
        }
    }
    Ok(found)
}

/// The first row of each subject.
fn first<T>(found: Vec<Vec<T>>) -> Vec<Result<Option<T>, StoreError>> {
    found.into_iter().map(|rows| Ok(rows.into_iter().next())).collect()
}

/// Sessions by number.
pub(super) struct SessionsByNo;

impl GatheredRead for SessionsByNo {
    type Key = SessionNo;
    type Found = Option<SessionRow>;
    const DOING: &'static str = "read a session";

    async fn read(client: ReaderLink, keys: Arc<[SessionNo]>) -> Read<Option<SessionRow>> {
        let nos: Vec<i64> = keys.iter().map(|no| int(no.0)).collect();
        Ok(first(by_subject(&client, keys.len(), &sql::SESSIONS_BY_NO, &[&nos], session_row).await?))
    }
}

/// Sessions by the digest of their name.
pub(super) struct SessionsByName;

impl GatheredRead for SessionsByName {
    type Key = ChainLink;
    type Found = Option<SessionRow>;
    const DOING: &'static str = "read a session";

    async fn read(client: ReaderLink, keys: Arc<[ChainLink]>) -> Read<Option<SessionRow>> {
        let names: Vec<&[u8]> = keys.iter().map(|name| &name[..]).collect();
        Ok(first(by_subject(&client, keys.len(), &sql::SESSIONS_BY_NAME, &[&names], session_row).await?))
    }
}

/// Batches by number.
pub(super) struct BatchesByNo;

impl GatheredRead for BatchesByNo {
    type Key = BatchNo;
    type Found = Option<BatchRow>;
    const DOING: &'static str = "read a batch";

    async fn read(client: ReaderLink, keys: Arc<[BatchNo]>) -> Read<Option<BatchRow>> {
        let nos: Vec<i64> = keys.iter().map(|no| int(no.0)).collect();
        Ok(first(by_subject(&client, keys.len(), &sql::BATCHES_BY_NO, &[&nos], batch_row).await?))
    }
}

/// Batches by look-up.
pub(super) struct BatchesByLookup;

impl GatheredRead for BatchesByLookup {
    type Key = Lookup;
    type Found = Option<BatchRow>;
    const DOING: &'static str = "read a batch";

    async fn read(client: ReaderLink, keys: Arc<[Lookup]>) -> Read<Option<BatchRow>> {
        let lookups: Vec<&[u8]> = keys.iter().map(|lookup| &lookup.0[..]).collect();
        Ok(first(by_subject(&client, keys.len(), &sql::BATCHES_BY_LOOKUP, &[&lookups], batch_row).await?))
    }
}

/// The open batches of sessions, oldest first.
pub(super) struct OpenBatches;

impl GatheredRead for OpenBatches {
    type Key = SessionNo;
    type Found = Vec<BatchRow>;
    const DOING: &'static str = "read the open batches";

    async fn read(client: ReaderLink, keys: Arc<[SessionNo]>) -> Read<Vec<BatchRow>> {
        let nos: Vec<i64> = keys.iter().map(|no| int(no.0)).collect();
        let found = by_subject(&client, keys.len(), &sql::OPEN_BATCHES, &[&nos], batch_row).await?;
        Ok(found.into_iter().map(Ok).collect())
    }
}

/// The rows of batches.
pub(super) struct Journals;

impl GatheredRead for Journals {
    type Key = BatchNo;
    type Found = Vec<JournalRow>;
    const DOING: &'static str = "read a journal";
    // Journals may be long.
    const KEYS_MAX: usize = 64;

    async fn read(client: ReaderLink, keys: Arc<[BatchNo]>) -> Read<Vec<JournalRow>> {
        let firsts: Vec<i64> = keys.iter().map(|no| row_key(*no, 0)).collect();
        let lasts: Vec<i64> = keys.iter().map(|no| row_key(*no, BATCH_ROWS_MAX - 1)).collect();
        let params: [Param<'_>; 2] = [&firsts, &lasts];
        let found = by_subject(&client, keys.len(), &sql::JOURNALS, &params, TableRow::read).await?;
        Ok(found.into_iter().map(|rows| rows.into_iter().map(TableRow::trusted).collect()).collect())
    }
}

/// The pending messages for sessions, oldest first, at most so many of each.
pub(super) struct Messages;

impl GatheredRead for Messages {
    type Key = (SessionNo, u64);
    type Found = Vec<Inbound>;
    const DOING: &'static str = "read the waiting messages";
    // Messages may be long.
    const KEYS_MAX: usize = 64;

    async fn read(client: ReaderLink, keys: Arc<[(SessionNo, u64)]>) -> Read<Vec<Inbound>> {
        let nos: Vec<i64> = keys.iter().map(|(no, _)| int(no.0)).collect();
        let limits: Vec<i64> = keys.iter().map(|(_, limit)| most(*limit)).collect();
        let message = |row: &Row| {
            let session = SessionNo(uint(row.try_get(0)?));
            Ok(Inbound { session, key: text(row, 1)?, body: row.try_get(2)? })
        };
        let found =
            by_subject(&client, keys.len(), &sql::WAITING_MESSAGES, &[&nos, &limits], message).await?;
        Ok(found.into_iter().map(Ok).collect())
    }
}

/// Records by shelf and key.
pub(super) struct Records;

impl GatheredRead for Records {
    type Key = (Shelf, String);
    type Found = Option<StoredRecord>;
    const DOING: &'static str = "read a record";

    async fn read(client: ReaderLink, keys: Arc<[(Shelf, String)]>) -> Read<Option<StoredRecord>> {
        let spaces: Vec<i64> = keys.iter().map(|(shelf, _)| shelf.number()).collect();
        let owners: Vec<i64> = keys.iter().map(|(shelf, _)| int(shelf.home().0)).collect();
        let names: Vec<&[u8]> = keys.iter().map(|(_, key)| key.as_bytes()).collect();
        let params: [Param<'_>; 3] = [&spaces, &owners, &names];
        let found = by_subject(&client, keys.len(), &sql::RECORDS_BY_KEY, &params, record_row).await?;
        let trusted = |((shelf, _), rows): (&(Shelf, String), Vec<FoundRecord>)| {
            rows.into_iter().next().map(|record| record.trusted(shelf.home())).transpose()
        };
        Ok(keys.iter().zip(found).map(trusted).collect())
    }
}

/// A page of a shelf's records.
#[derive(Clone)]
pub(super) struct PageKey {
    shelf: Shelf,
    from: String,
    after: Option<Vec<u8>>,
    prefix: String,
    limit: u64,
}

impl PageKey {
    pub fn of(page: RecordPage<'_>) -> PageKey {
        PageKey {
            shelf: page.shelf,
            from: page.from().to_owned(),
            after: page.after.map(|after| after.as_bytes().to_vec()),
            prefix: page.prefix.to_owned(),
            limit: page.limit,
        }
    }
}

/// Pages of records, by key.
pub(super) struct RecordPages;

impl GatheredRead for RecordPages {
    type Key = PageKey;
    type Found = Vec<StoredRecord>;
    const DOING: &'static str = "read records";
    // Pages may be long.
    const KEYS_MAX: usize = 64;

    async fn read(client: ReaderLink, keys: Arc<[PageKey]>) -> Read<Vec<StoredRecord>> {
        let spaces: Vec<i64> = keys.iter().map(|page| page.shelf.number()).collect();
        let owners: Vec<i64> = keys.iter().map(|page| int(page.shelf.home().0)).collect();
        let froms: Vec<&[u8]> = keys.iter().map(|page| page.from.as_bytes()).collect();
        let afters: Vec<Option<&[u8]>> = keys.iter().map(|page| page.after.as_deref()).collect();
        let limits: Vec<i64> = keys.iter().map(|page| most(page.limit)).collect();
        let params: [Param<'_>; 5] = [&spaces, &owners, &froms, &afters, &limits];
        let found = by_subject(&client, keys.len(), &sql::RECORD_PAGES, &params, record_row).await?;
        let trusted = |(page, rows): (&PageKey, Vec<FoundRecord>)| {
            // Records of one prefix are neighbours.
            let wanted = rows.into_iter().take_while(|found| found.has_prefix(&page.prefix));
            wanted.map(|found| found.trusted(page.shelf.home())).collect()
        };
        Ok(keys.iter().zip(found).map(trusted).collect())
    }
}

/// How many records shelves have.
pub(super) struct RecordCounts;

impl GatheredRead for RecordCounts {
    type Key = Shelf;
    type Found = u64;
    const DOING: &'static str = "count records";

    async fn read(client: ReaderLink, keys: Arc<[Shelf]>) -> Read<u64> {
        let spaces: Vec<i64> = keys.iter().map(|shelf| shelf.number()).collect();
        let owners: Vec<i64> = keys.iter().map(|shelf| int(shelf.home().0)).collect();
        let count = |row: &Row| Ok(uint(row.try_get(0)?));
        let found = by_subject(&client, keys.len(), &sql::RECORD_COUNTS, &[&spaces, &owners], count).await?;
        Ok(found.into_iter().map(|counts| Ok(counts.first().copied().unwrap_or(0))).collect())
    }
}

/// The digest by which a name is found.
pub(super) fn name_key(name: &str) -> ChainLink {
    digest(name.as_bytes())
}
