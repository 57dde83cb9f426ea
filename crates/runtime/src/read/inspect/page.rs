//! Lists of recorded calls, page by page, newest first.
//!
//! The place of a batch is its first journal row, which never moves: so a page continues where the last one
//! ended, whatever was appended meanwhile. Several sessions are read side by side, and the newest of their
//! next batches comes first; a clock that jumps back can show a call twice in a walk, but hides none.

use super::{RecordedCall, folded, recorded};
use crate::api::error::{SessionError, chain};
use crate::api::journal::unreadable;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use windlass_core::entry;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{BatchNo, CallId, EntryNo, SessionNo};
use windlass_core::time::Timestamp;
use windlass_store::{JournalRow, SessionRow, Store};

/// The page size for reading journal rows: most lists need little of each session.
const ROWS_PAGE: u64 = 64;
/// A page ends after this many batches, full or not: however little a filter takes, an answer reads a bounded part of the store
/// and names the place where the next one goes on.
const BATCHES_MAX: usize = 2_000;
/// And after this many calls: a batch has up to 256.
const CALLS_MAX: usize = 10_000;

/// Which calls a page holds.
pub struct CallFilter<'a> {
    /// Calls after this one.
    pub after: Option<Handle>,
    /// The maximum number.
    pub limit: usize,
    /// Only calls that are open by the record: then only open batches are read.
    pub open_only: bool,
    /// Only calls for which this is true.
    pub keep: &'a (dyn Fn(&RecordedCall) -> bool + Sync),
}

/// A page of calls.
#[derive(Default)]
pub struct CallsPage {
    /// The calls.
    pub calls: Vec<RecordedCall>,
    /// The cursor of the next page: after this call. `None`: there is no more.
    pub next: Option<Handle>,
    /// Sessions whose calls are not shown, and why.
    pub unreadable: Vec<(String, String)>,
}

/// A batch as it is recorded.
pub struct ListedBatch {
    /// The session's name.
    pub session: String,
    /// The batch's key.
    pub key: String,
    /// Its calls, in their order; at least one.
    pub calls: Vec<RecordedCall>,
}

/// A page of batches.
#[derive(Default)]
pub struct BatchesPage {
    /// The batches, newest first.
    pub batches: Vec<ListedBatch>,
    /// The cursor of the next page: after the batch of this call. `None`: there is no more.
    pub next: Option<Handle>,
    /// Sessions whose batches are not shown, and why.
    pub unreadable: Vec<(String, String)>,
}

/// The latest batches of these sessions, newest first, without those that calls made. `after`: a call of the last batch of the
/// page before.
pub async fn batches(
    store: &Arc<dyn Store>,
    sessions: &[SessionRow],
    after: Option<Handle>,
    limit: usize,
) -> Result<BatchesPage, SessionError> {
    let after = match after {
        Some(handle) => Some(place(store, handle).await?),
        None => None,
    };
    let (mut page, mut seen) = (BatchesPage::default(), 0);
    // Of the sessions that cannot be read.
    let mut left_out = CallsPage::default();
    let mut walks = Vec::new();
    for session in sessions {
        let mut walk = BatchWalk::new(store, session);
        match walk.skip(after.map(|(_, place)| place)).await {
            Ok(()) => walks.push(walk),
            Err(error) => left_out.leave_out(session, error)?,
        }
    }
    while let Some(newest) = newest(&walks) {
        if page.batches.len() >= limit || seen >= BATCHES_MAX {
            page.unreadable = left_out.unreadable;
            return Ok(page);
        }
        seen += 1;
        let walk = &mut walks[newest];
        match walk.take().await {
            Ok(calls) => page.add(calls, after.map(|(call, _)| call.batch)),
            Err(error) => left_out.leave_out(walk.session, error)?,
        }
        if let Err(error) = walks[newest].advance().await {
            left_out.leave_out(walks[newest].session, error)?;
        }
    }
    (page.next, page.unreadable) = (None, left_out.unreadable);
    Ok(page)
}

impl BatchesPage {
    /// Adds a batch, unless a call made it or the page before ended with it.
    fn add(&mut self, calls: Vec<RecordedCall>, after: Option<BatchNo>) {
        let Some(first) = calls.first().filter(|first| Some(first.answer.id.batch) != after) else { return };
        self.next = Some(first.answer.handle());
        if first.answer.parent().is_none() {
            let (session, key) = (first.session.clone(), first.batch_key.clone());
            self.batches.push(ListedBatch { session, key, calls });
        }
    }
}

/// The latest calls of these sessions, newest batch first and in the order of their batch.
pub async fn page(
    store: &Arc<dyn Store>,
    sessions: &[SessionRow],
    wanted: &CallFilter<'_>,
) -> Result<CallsPage, SessionError> {
    let mut page = CallsPage::default();
    let after = match wanted.after {
        Some(handle) => Some(place(store, handle).await?),
        None => None,
    };
    let mut walks = Vec::new();
    for session in sessions {
        let mut walk = BatchWalk::new(store, session);
        let begun = match wanted.open_only {
            true => walk.only_open().await,
            false => Ok(()),
        };
        match begun.and(walk.skip(after.map(|(_, place)| place)).await) {
            Ok(()) => walks.push(walk),
            Err(error) => page.leave_out(session, error)?,
        }
    }
    let (mut batches, mut examined) = (0, 0);
    while let Some(newest) = newest(&walks) {
        if page.calls.len() >= wanted.limit || batches >= BATCHES_MAX || examined >= CALLS_MAX {
            return Ok(page);
        }
        batches += 1;
        let walk = &mut walks[newest];
        let taken = match walk.take().await {
            Ok(calls) => {
                examined += calls.len();
                page.add(calls, after.map(|(call, _)| call), wanted)
            }
            Err(error) => page.leave_out(walk.session, error).map(|()| true)?,
        };
        if !taken {
            return Ok(page);
        }
        if let Err(error) = walks[newest].advance().await {
            page.leave_out(walks[newest].session, error)?;
        }
    }
    page.next = None;
    Ok(page)
}

impl CallsPage {
    /// Adds the calls of a batch; false if there was no space for all.
    fn add(&mut self, calls: Vec<RecordedCall>, after: Option<CallId>, wanted: &CallFilter<'_>) -> bool {
        for call in calls {
            let id = call.answer.id;
            if after.is_some_and(|after| id.batch == after.batch && id <= after) {
                continue;
            }
            if self.calls.len() >= wanted.limit {
                return false;
            }
            self.next = Some(call.answer.handle());
            if (wanted.keep)(&call) {
                self.calls.push(call);
            }
        }
        true
    }

    /// Names a session that cannot be read; any other error affects all.
    fn leave_out(&mut self, session: &SessionRow, error: SessionError) -> Result<(), SessionError> {
        match error {
            SessionError::Unreadable { what, source } => {
                let cause = source.map(|source| format!(": {}", chain(&*source))).unwrap_or_default();
                self.unreadable.push((session.name.clone(), format!("{what}{cause}")));
                Ok(())
            }
            error @ (SessionError::Shape { .. }
            | SessionError::NotFound { .. }
            | SessionError::Closed { .. }
            | SessionError::Gone { .. }
            | SessionError::Expired { .. }
            | SessionError::Owned { .. }
            | SessionError::Lost(_)) => Err(error),
        }
    }
}

/// The position of a batch: when its first row was written, its session, and its first entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct BatchPosition {
    at: Timestamp,
    session: SessionNo,
    entry: EntryNo,
    batch: BatchNo,
}

impl BatchPosition {
    fn of(row: &JournalRow) -> Result<BatchPosition, SessionError> {
        let entries = entry::unpack(&row.data).map_err(|problem| unreadable(row, problem))?;
        let at = entries.last().map(|entry| entry.at).unwrap_or_default();
        Ok(BatchPosition { at, session: row.session, entry: row.first, batch: row.batch })
    }
}

async fn place(store: &Arc<dyn Store>, handle: Handle) -> Result<(CallId, BatchPosition), SessionError> {
    let unknown =
        || SessionError::Shape { what: format!("there is no recorded call {handle} to continue after") };
    let call = handle.open(store.secret(), HandleKind::Call).map(CallId::unpacked).ok_or_else(unknown)?;
    let rows = store.journal(call.batch).await?;
    let row = rows.first().ok_or_else(unknown)?;
    Ok((call, BatchPosition::of(row)?))
}

fn newest(walks: &[BatchWalk<'_>]) -> Option<usize> {
    let heads = walks.iter().enumerate().filter_map(|(walk, of)| Some((of.head?, walk)));
    heads.max_by_key(|(head, _)| (head.at, head.session)).map(|(_, walk)| walk)
}

/// A backward walk through the batches of a session.
struct BatchWalk<'a> {
    store: &'a Arc<dyn Store>,
    session: &'a SessionRow,
    /// The next batch.
    head: Option<BatchPosition>,
    /// The batches after it that were read already.
    ready: VecDeque<BatchPosition>,
    /// Where reading continues; `None`: at the end of the journal.
    before: Option<EntryNo>,
    /// Nothing is left to be read.
    over: bool,
}

impl<'a> BatchWalk<'a> {
    fn new(store: &'a Arc<dyn Store>, session: &'a SessionRow) -> BatchWalk<'a> {
        BatchWalk { store, session, head: None, ready: VecDeque::new(), before: None, over: false }
    }

    /// Reads only the batches that are open.
    async fn only_open(&mut self) -> Result<(), SessionError> {
        self.over = true;
        let mut open = Vec::new();
        for batch in self.store.open_batches(Some(self.session.no)).await? {
            if let Some(row) = self.store.journal(batch.no).await?.first() {
                open.push(BatchPosition::of(row)?);
            }
        }
        open.sort_by_key(|place| Reverse(place.entry));
        self.ready = open.into();
        Ok(())
    }

    /// Skips to the first batch that is not before the end of the last page.
    async fn skip(&mut self, after: Option<BatchPosition>) -> Result<(), SessionError> {
        let Some(after) = after else { return self.advance().await };
        if after.session == self.session.no {
            self.before = Some(EntryNo(after.entry.0 + 1));
            self.ready.retain(|place| place.entry <= after.entry);
            return self.advance().await;
        }
        self.advance().await?;
        while self.head.is_some_and(|head| (head.at, head.session) > (after.at, after.session)) {
            self.advance().await?;
        }
        Ok(())
    }

    /// Goes to the next batch.
    async fn advance(&mut self) -> Result<(), SessionError> {
        self.head = None;
        while self.ready.is_empty() && !self.over {
            let rows = self.store.history(self.session.no, self.before, ROWS_PAGE).await?;
            self.before = rows.last().map(|row| row.first);
            self.over = rows.is_empty();
            for row in rows.iter().filter(|row| row.row == 0) {
                self.ready.push_back(BatchPosition::of(row)?);
            }
        }
        self.head = self.ready.pop_front();
        Ok(())
    }

    /// The calls of the current batch.
    async fn take(&self) -> Result<Vec<RecordedCall>, SessionError> {
        let Some(head) = self.head else { return Ok(Vec::new()) };
        // It may have expired after it was listed.
        let Some(folded) = folded(self.store, head.batch).await? else { return Ok(Vec::new()) };
        Ok(recorded(self.store, self.session, head.batch, &folded))
    }
}
