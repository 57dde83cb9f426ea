//! Looking at what is recorded, without owning anything: lists of calls, one call, its journal as a story.

mod page;
mod questions;
mod tree;

pub use page::{Page, Wanted, page};
pub use questions::{OpenQuestion, questions};

use crate::answer::{CallAnswer, wall_time};
use crate::batch::Decided;
use crate::error::BatchError;
use crate::session::fold;
use crate::story::length;
use crate::waits;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::batch::Batch;
use windlass_core::handle::{Handle, Kind};
use windlass_core::ids::{BatchNo, CallId, EntryNo, Lookup, Ordinal};
use windlass_core::time::Timestamp;
use windlass_store::{SessionRow, Store};

/// Journal rows are read in pages of this size.
const ROWS_PAGE: u64 = 256;

/// A recorded call, and where it belongs.
pub struct Recorded {
    /// The session's name.
    pub session: String,
    /// The batch's key.
    pub batch_key: String,
    /// When it was asked for.
    pub opened_at: Timestamp,
    /// The call as callers see it.
    pub answer: CallAnswer,
}

/// One line of a call's story.
pub struct Line {
    /// The entry's number in its session.
    pub entry: EntryNo,
    /// When it was noted.
    pub at: Timestamp,
    /// How long after the first line, in microseconds.
    pub after_us: u64,
    /// What kind of fact.
    pub kind: &'static str,
    /// What it says.
    pub text: String,
    /// How deep inside the call whose story this is: 0 is that call's own.
    pub depth: u32,
    /// Whose line it is.
    pub call: Handle,
}

/// The latest calls of a session, newest batch first, at most `limit`.
pub async fn calls(
    store: &Arc<dyn Store>,
    session: &SessionRow,
    limit: usize,
) -> Result<Vec<Recorded>, BatchError> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut before = None;
    while found.len() < limit {
        let rows = store.history(session.no, before, ROWS_PAGE).await?;
        let Some(last) = rows.last() else { break };
        before = Some(last.first);
        for row in &rows {
            if seen.insert(row.batch) {
                let folded = fold(&store.journal(row.batch).await?)?;
                found.extend(recorded(store, session, (row.batch, &folded)));
            }
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// The call of this handle, and its story: below the entry that made calls inside it are those of these calls. `None`:
/// there is none.
pub async fn call(
    store: &Arc<dyn Store>,
    handle: Handle,
) -> Result<Option<(Recorded, Vec<Line>)>, BatchError> {
    let Some(id) = handle.open(store.secret(), Kind::Call).map(CallId::unpacked) else { return Ok(None) };
    let rows = store.journal(id.batch).await?;
    let Some(session) = rows.first().map(|row| row.session) else { return Ok(None) };
    let Some(session) = store.session_by_no(session).await? else { return Ok(None) };
    let folded = fold(&rows)?;
    let mut lines = tree::lines(&**store, (session.no, id), &rows).await?;
    let began = lines.first().map(|line| line.at).unwrap_or_default();
    lines.iter_mut().for_each(|line| line.after_us = line.at.since(began));
    let calls = recorded(store, &session, (id.batch, &folded));
    let found = calls.into_iter().find(|call| call.answer.id == id);
    Ok(found.map(|call| (call, lines)))
}

/// The calls of the batch under this key, in their order, and what they have come to together. `None`: there is none.
pub async fn batch(
    store: &Arc<dyn Store>,
    session: &SessionRow,
    key: &str,
) -> Result<Option<(Vec<Recorded>, Option<Decided>)>, BatchError> {
    let Some(row) = store.batch(Lookup::of(session.no, key)).await? else { return Ok(None) };
    let folded = fold(&store.journal(row.no).await?)?;
    let decided = Decided::recorded(&folded);
    Ok(Some((recorded(store, session, (row.no, &folded)), decided)))
}

/// The session that a call belongs to. `None`: no such call is recorded.
pub async fn session_of(store: &dyn Store, call: CallId) -> Result<Option<SessionRow>, BatchError> {
    let rows = store.journal(call.batch).await?;
    let Some(session) = rows.first().map(|row| row.session) else { return Ok(None) };
    Ok(store.session_by_no(session).await?)
}

/// What an open call waits for, as far as its journal says so: the time of a retry, or its tool.
pub fn waiting_for(call: &CallAnswer) -> Option<String> {
    waits::recorded(call.call())
}

fn recorded(store: &Arc<dyn Store>, session: &SessionRow, (no, batch): (BatchNo, &Batch)) -> Vec<Recorded> {
    let calls = batch.calls.iter().zip(0..);
    calls
        .map(|(call, place)| Recorded {
            session: session.name.clone(),
            batch_key: batch.opening.key.to_string(),
            opened_at: call.opened_at,
            answer: CallAnswer {
                id: CallId { batch: no, ordinal: Ordinal(place) },
                store: store.clone(),
                call: Arc::new(call.clone()),
                recorded: true,
                conflict: None,
                parent: batch.opening.parent.map(|parent| parent.call),
            },
        })
        .collect()
}

impl serde::Serialize for Line {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("entry", &self.entry.0)?;
        map.serialize_entry("at", &wall_time(self.at))?;
        map.serialize_entry("after_us", &self.after_us)?;
        map.serialize_entry("after", &length(self.after_us))?;
        map.serialize_entry("kind", self.kind)?;
        map.serialize_entry("text", &self.text)?;
        if self.depth > 0 {
            map.serialize_entry("depth", &self.depth)?;
            map.serialize_entry("call", &self.call.to_string())?;
        }
        map.end()
    }
}
