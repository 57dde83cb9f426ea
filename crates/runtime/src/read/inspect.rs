//! Reading the record without owning anything: lists of calls, one call, its journal as a story.

mod page;
mod questions;
mod timeline;
mod tree;
mod waiting;

pub use page::{BatchesPage, CallFilter, CallsPage, ListedBatch, batches, page};
pub use questions::{OpenQuestion, questions};
pub use timeline::{BatchTimeline, timeline};
pub use waiting::{WaitingCall, WaitingKind, WaitingPart, WaitingPlace, WaitingSearch, waiting};
pub(crate) use waiting::{WaitingIndex, WaitingReader};

use crate::api::answer::{CallAnswer, wall_time};
use crate::api::decided::Decided;
use crate::api::error::SessionError;
use crate::api::journal::{check_kept, fold, rows_of};
use crate::read::story::length;
use crate::read::waits::{self, WaitingFor};
use crate::session::inner::Runtime;
use std::collections::BTreeSet;
use std::sync::Arc;
use windlass_core::batch::Batch;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{BatchNo, CallId, EntryNo, Lookup, Ordinal};
use windlass_core::time::Timestamp;
use windlass_store::{SessionRow, Store};

/// The page size for reading journal rows.
const ROWS_PAGE: u64 = 256;

/// A recorded call, with its session and batch.
pub struct RecordedCall {
    /// The session's name.
    pub session: String,
    /// The batch's key.
    pub batch_key: String,
    /// The turn of the conversation, if the caller gave one.
    pub turn: Option<String>,
    /// When it was requested.
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
    /// The time since the first line, in microseconds.
    pub after_us: u64,
    /// The kind of fact.
    pub kind: &'static str,
    /// The name of the operation, such as a step or a sleep, if the fact is about one.
    pub name: Option<String>,
    /// The sentence.
    pub text: String,
    /// The depth inside the call of the story: 0 is that call's own.
    pub depth: u32,
    /// The call of the line.
    pub call: Handle,
}

/// The latest calls of a session, newest batch first, at most `limit`.
pub async fn calls(
    store: &Arc<dyn Store>,
    session: &SessionRow,
    limit: usize,
) -> Result<Vec<RecordedCall>, SessionError> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut before = None;
    while found.len() < limit {
        let rows = store.history(session.no, before, ROWS_PAGE).await?;
        let Some(last) = rows.last() else { break };
        before = Some(last.first);
        for row in &rows {
            if seen.insert(row.batch) {
                // It may have expired after its row was read.
                let Some(folded) = folded(store, row.batch).await? else { continue };
                found.extend(recorded(store, session, row.batch, &folded));
            }
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// The call of this handle, and its story: the stories of nested calls are below the entries that made them.
/// `None`: there is none.
pub async fn call(
    store: &Arc<dyn Store>,
    handle: Handle,
) -> Result<Option<(RecordedCall, Vec<Line>)>, SessionError> {
    call_with_tools(store, handle, None).await
}

/// A call and its story, in which arguments that its tool declares as secret are masked, too. Without tools
/// only arguments named like secrets are masked.
pub async fn call_with_tools(
    store: &Arc<dyn Store>,
    handle: Handle,
    tools: Option<&Runtime>,
) -> Result<Option<(RecordedCall, Vec<Line>)>, SessionError> {
    let Some(id) = handle.open(store.secret(), HandleKind::Call).map(CallId::unpacked) else {
        return Ok(None);
    };
    let rows = store.journal(id.batch).await?;
    let Some(session) = rows.first().map(|row| row.session) else {
        check_kept(&**store, id).await?;
        return Ok(None);
    };
    let Some(session) = store.session_by_no(session).await? else { return Ok(None) };
    let folded = fold(&rows)?;
    let tools = tools.map(|runtime| &*runtime.0.registry);
    let mut lines = tree::lines(&**store, tools, &session, id, &rows).await?;
    let began = lines.first().map(|line| line.at).unwrap_or_default();
    lines.iter_mut().for_each(|line| line.after_us = line.at.since(began));
    let calls = recorded(store, &session, id.batch, &folded);
    let found = calls.into_iter().find(|call| call.answer.id == id);
    Ok(found.map(|call| (call, lines)))
}

/// The calls of the batch under this key, in their order, and the decision of its sibling rule. `None`: there is none.
pub async fn batch(
    store: &Arc<dyn Store>,
    session: &SessionRow,
    key: &str,
) -> Result<Option<(Vec<RecordedCall>, Option<Decided>)>, SessionError> {
    let Some(row) = store.batch(Lookup::of(session.no, key)).await? else { return Ok(None) };
    if row.expired {
        return Err(SessionError::Expired { what: format!("the batch {key:?}") });
    }
    let Some(rows) = rows_of(&**store, row.no).await? else { return Ok(None) };
    let folded = fold(&rows)?;
    let decided = Decided::recorded(&folded);
    Ok(Some((recorded(store, session, row.no, &folded), decided)))
}

/// The session that a call belongs to. `None`: no such call is recorded.
pub async fn session_of(store: &dyn Store, call: CallId) -> Result<Option<SessionRow>, SessionError> {
    let rows = store.journal(call.batch).await?;
    let session = match rows.first() {
        Some(row) => row.session,
        None => match store.batch_by_no(call.batch).await? {
            Some(row) if row.expired => row.session,
            Some(_) | None => return Ok(None),
        },
    };
    Ok(store.session_by_no(session).await?)
}

/// The batch of this number; `None` if it has no rows.
pub(super) async fn folded(store: &Arc<dyn Store>, no: BatchNo) -> Result<Option<Batch>, SessionError> {
    let rows = store.journal(no).await?;
    if rows.is_empty() { Ok(None) } else { fold(&rows).map(Some) }
}

/// The wait of an open call by its journal: the time of a retry, or its tool.
pub fn waiting_for(call: &CallAnswer) -> Option<WaitingFor> {
    waits::recorded(call.call())
}

fn recorded(store: &Arc<dyn Store>, session: &SessionRow, no: BatchNo, batch: &Batch) -> Vec<RecordedCall> {
    let calls = batch.calls.iter().zip(0..);
    calls
        .map(|(call, place)| RecordedCall {
            session: session.name.clone(),
            batch_key: batch.opening.key.to_string(),
            turn: batch.opening.turn.clone(),
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
