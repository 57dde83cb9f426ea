//! The questions that wait for an answer.

use crate::answer::as_wall_time;
use crate::error::{BatchError, chain};
use crate::session::fold;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use windlass_core::batch::Batch;
use windlass_core::handle::{Handle, Kind, question_id};
use windlass_core::ids::{BatchNo, CallId, Ordinal};
use windlass_core::operation::Operations;
use windlass_core::time::Timestamp;
use windlass_store::Store;

/// A question that a call asks a person, and that nobody has answered yet.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct OpenQuestion {
    /// By which it is answered.
    pub id: String,
    /// The session's name.
    pub session: String,
    /// Our handle of the call that asks.
    pub call: String,
    /// The model's id of that call.
    pub call_id: String,
    /// The tool that asks.
    pub tool: String,
    /// What it asks.
    pub question: String,
    /// What an answer must fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// When it was asked.
    #[serde(serialize_with = "as_wall_time")]
    pub since: Timestamp,
    /// Until when it can be answered.
    #[serde(serialize_with = "as_wall_time")]
    pub until: Timestamp,
}

/// The questions of all sessions that can be answered now, oldest batch first. Those of a session whose journal cannot be
/// read are left out, and that is logged.
pub async fn questions(store: &dyn Store, now: Timestamp) -> Result<Vec<OpenQuestion>, BatchError> {
    let (mut found, mut names) = (Vec::new(), BTreeMap::new());
    for row in store.open_batches(None).await? {
        let journal = store.journal(row.no).await.map_err(BatchError::from);
        let folded = match journal.and_then(|rows| fold(&rows)) {
            Ok(folded) => folded,
            Err(error @ BatchError::Unreadable { .. }) => {
                tracing::error!(batch = %row.no, error = %chain(&error), "questions are not listed");
                continue;
            }
            Err(error) => return Err(error),
        };
        let asked = asked(store, (row.no, &folded), now);
        if asked.is_empty() {
            continue;
        }
        let session: &String = match names.entry(row.session) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let session = store.session_by_no(row.session).await?;
                new.insert(session.map(|session| session.name).unwrap_or_default())
            }
        };
        found.extend(asked.into_iter().map(|asked| OpenQuestion { session: session.clone(), ..asked }));
    }
    Ok(found)
}

/// The open questions of a batch; whose it is, is said later.
fn asked(store: &dyn Store, (no, batch): (BatchNo, &Batch), now: Timestamp) -> Vec<OpenQuestion> {
    let mut found = Vec::new();
    for (call, place) in batch.calls.iter().zip(0..) {
        let Some(operations) = call.operations.as_deref().filter(|_| call.end().is_none()) else { continue };
        let id = CallId { batch: no, ordinal: Ordinal(place) };
        let open = Operations::questions(operations).filter(|(name, _)| !operations.is_over(name, now));
        found.extend(open.map(|(name, question)| OpenQuestion {
            id: question_id(store.secret(), id, name),
            session: String::new(),
            call: Handle::seal(store.secret(), Kind::Call, id.packed()).to_string(),
            call_id: call.opened.id.to_string(),
            tool: call.opened.tool.to_string(),
            question: question.text.to_string(),
            schema: question.schema.as_deref().and_then(|schema| serde_json::from_str(schema).ok()),
            since: question.since(),
            until: question.until.wake_at,
        }));
    }
    found
}
