//! Open questions.

use crate::api::answer::as_wall_time;
use crate::api::error::{SessionError, chain};
use crate::api::journal::fold;
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use windlass_core::batch::Batch;
use windlass_core::handle::{Handle, HandleKind, question_id};
use windlass_core::ids::{BatchNo, CallId, Ordinal};
use windlass_core::operation::Operations;
use windlass_core::time::Timestamp;
use windlass_store::Store;

/// A question of a call to a person, without an answer yet.
#[derive(Clone, Debug, PartialEq, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Question")]
pub struct OpenQuestion {
    /// The id for answering it.
    pub id: String,
    /// The session's name.
    pub session: String,
    /// The handle of the asking call.
    pub call: String,
    /// The model's id of that call.
    pub call_id: String,
    /// The tool that asks.
    pub tool: String,
    /// The question.
    pub question: String,
    /// The schema of an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// When it was asked.
    #[serde(serialize_with = "as_wall_time")]
    #[schemars(with = "String")]
    pub since: Timestamp,
    /// Until when it can be answered.
    #[serde(serialize_with = "as_wall_time")]
    #[schemars(with = "String")]
    pub until: Timestamp,
}

/// The open questions of all sessions, oldest batch first. Sessions whose journals cannot be read are left
/// out, and that is logged.
pub async fn questions(store: &dyn Store, now: Timestamp) -> Result<Vec<OpenQuestion>, SessionError> {
    let (mut found, mut names) = (Vec::new(), BTreeMap::new());
    for row in store.open_batches(None).await? {
        let journal = store.journal(row.no).await.map_err(SessionError::from);
        let folded = match journal.and_then(|rows| fold(&rows)) {
            Ok(folded) => folded,
            Err(error @ SessionError::Unreadable { .. }) => {
                tracing::error!(batch = %row.no, error = %chain(&error), "questions are not listed");
                continue;
            }
            Err(error) => return Err(error),
        };
        let asked = asked(store, row.no, &folded, now);
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

/// The open questions of a batch; the session is added later.
fn asked(store: &dyn Store, no: BatchNo, batch: &Batch, now: Timestamp) -> Vec<OpenQuestion> {
    let mut found = Vec::new();
    for (call, place) in batch.calls.iter().zip(0..) {
        let Some(operations) = call.operations.as_deref().filter(|_| call.end().is_none()) else { continue };
        let id = CallId { batch: no, ordinal: Ordinal(place) };
        let open = Operations::questions(operations).filter(|(name, _)| !operations.is_over(name, now));
        found.extend(open.map(|(name, question)| OpenQuestion {
            id: question_id(store.secret(), id, name),
            session: String::new(),
            call: Handle::seal(store.secret(), HandleKind::Call, id.packed()).to_string(),
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
