//! Lists of recorded calls, page by page, newest first.
//!
//! A batch has its place by its first journal row, which never moves: so a page goes on where the last one ended,
//! whatever was appended meanwhile. Several sessions are read side by side, and the newest of their next batches comes
//! first; a clock that jumps back can show a call twice in a walk, but hides none.

use super::{Recorded, recorded};
use crate::error::BatchError;
use crate::session::fold;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use windlass_core::entry;
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::{BatchNo, CallId, EntryNo, SessionNo};
use windlass_core::time::Timestamp;
use windlass_store::{JournalRow, SessionRow, Store};

/// Journal rows are read in pages of this size: most lists want little of each session.
const ROWS_PAGE: u64 = 64;
/// After so many batches a page ends, full or not, so that no list reads for ever.
const BATCHES_MAX: usize = 20_000;

/// Which calls a page is to hold.
pub struct Wanted<'a> {
    /// Those that come after this one.
    pub after: Option<Handle>,
    /// At most so many.
    pub limit: usize,
    /// Only calls that are open by the record: then only open batches are read.
    pub open_only: bool,
    /// Only those of which this is true.
    pub keep: &'a (dyn Fn(&Recorded) -> bool + Sync),
}

/// A page of calls.
#[derive(Default)]
pub struct Page {
    /// The calls.
    pub calls: Vec<Recorded>,
    /// Where the next page begins: after this call. `None`: there is no more.
    pub next: Option<Handle>,
    /// Sessions whose calls are not shown, and why.
    pub unreadable: Vec<(String, String)>,
}

/// The latest calls of these sessions, newest batch first and in the order of their batch.
pub async fn page(
    store: &Arc<dyn Store>,
    sessions: &[SessionRow],
    wanted: &Wanted<'_>,
) -> Result<Page, BatchError> {
    let mut page = Page::default();
    let after = match wanted.after {
        Some(handle) => Some(place(store, handle).await?),
        None => None,
    };
    let mut walks = Vec::new();
    for session in sessions {
        let mut walk = Walk::new(store, session);
        let begun = match wanted.open_only {
            true => walk.only_open().await,
            false => Ok(()),
        };
        match begun.and(walk.skip(after.map(|(_, place)| place)).await) {
            Ok(()) => walks.push(walk),
            Err(error) => page.leave_out(session, error)?,
        }
    }
    let mut batches = 0;
    while let Some(newest) = newest(&walks) {
        if page.calls.len() >= wanted.limit || batches >= BATCHES_MAX {
            return Ok(page);
        }
        batches += 1;
        let walk = &mut walks[newest];
        let taken = match walk.take().await {
            Ok(calls) => page.add(calls, after.map(|(call, _)| call), wanted),
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

impl Page {
    /// Adds the calls of a batch; false if there was no room for all.
    fn add(&mut self, calls: Vec<Recorded>, after: Option<CallId>, wanted: &Wanted<'_>) -> bool {
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

    /// A session that cannot be read is named; whatever else goes wrong concerns all.
    fn leave_out(&mut self, session: &SessionRow, error: BatchError) -> Result<(), BatchError> {
        match error {
            BatchError::Unreadable { what } => {
                self.unreadable.push((session.name.clone(), what));
                Ok(())
            }
            error @ (BatchError::Shape { .. }
            | BatchError::Closed { .. }
            | BatchError::SessionClosed { .. }
            | BatchError::Overloaded { .. }
            | BatchError::Owned { .. }
            | BatchError::Lost(_)) => Err(error),
        }
    }
}

/// Where a batch stands: when its first row was written, in which session, from which entry on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    at: Timestamp,
    session: SessionNo,
    entry: EntryNo,
    batch: BatchNo,
}

impl Place {
    fn of(row: &JournalRow) -> Result<Place, BatchError> {
        let unreadable = |what: String| BatchError::Unreadable { what };
        let entries = entry::unpack(&row.data).map_err(|problem| unreadable(problem.to_string()))?;
        let at = entries.last().map(|entry| entry.at).unwrap_or_default();
        Ok(Place { at, session: row.session, entry: row.first, batch: row.batch })
    }
}

async fn place(store: &Arc<dyn Store>, handle: Handle) -> Result<(CallId, Place), BatchError> {
    let unknown = || BatchError::Shape { what: format!("there is no recorded call {handle} to go on after") };
    let call = handle.open(store.secret(), Kind::Call).map(CallId::unpacked).ok_or_else(unknown)?;
    let rows = store.journal(call.batch).await?;
    let row = rows.first().ok_or_else(unknown)?;
    Ok((call, Place::of(row)?))
}

fn newest(walks: &[Walk<'_>]) -> Option<usize> {
    let heads = walks.iter().enumerate().filter_map(|(walk, of)| Some((of.head?, walk)));
    heads.max_by_key(|(head, _)| (head.at, head.session)).map(|(_, walk)| walk)
}

/// A way backwards through the batches of a session.
struct Walk<'a> {
    store: &'a Arc<dyn Store>,
    session: &'a SessionRow,
    /// The batch that comes next.
    head: Option<Place>,
    /// Those behind it that were read already.
    ready: VecDeque<Place>,
    /// Where reading goes on; `None`: at the end of the journal.
    before: Option<EntryNo>,
    /// Nothing is left to be read.
    over: bool,
}

impl<'a> Walk<'a> {
    fn new(store: &'a Arc<dyn Store>, session: &'a SessionRow) -> Walk<'a> {
        Walk { store, session, head: None, ready: VecDeque::new(), before: None, over: false }
    }

    /// Reads only the batches that are open.
    async fn only_open(&mut self) -> Result<(), BatchError> {
        self.over = true;
        let mut open = Vec::new();
        for batch in self.store.open_batches(Some(self.session.no)).await? {
            if let Some(row) = self.store.journal(batch.no).await?.first() {
                open.push(Place::of(row)?);
            }
        }
        open.sort_by_key(|place| Reverse(place.entry));
        self.ready = open.into();
        Ok(())
    }

    /// Goes to the first batch that is not before the one where the last page ended.
    async fn skip(&mut self, after: Option<Place>) -> Result<(), BatchError> {
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
    async fn advance(&mut self) -> Result<(), BatchError> {
        self.head = None;
        while self.ready.is_empty() && !self.over {
            let rows = self.store.history(self.session.no, self.before, ROWS_PAGE).await?;
            self.before = rows.last().map(|row| row.first);
            self.over = rows.is_empty();
            for row in rows.iter().filter(|row| row.row == 0) {
                self.ready.push_back(Place::of(row)?);
            }
        }
        self.head = self.ready.pop_front();
        Ok(())
    }

    /// The calls of the batch where it stands.
    async fn take(&self) -> Result<Vec<Recorded>, BatchError> {
        let Some(head) = self.head else { return Ok(Vec::new()) };
        let folded = fold(&self.store.journal(head.batch).await?)?;
        Ok(recorded(self.store, self.session, (head.batch, &folded)))
    }
}
