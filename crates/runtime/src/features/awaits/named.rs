//! Named events of a session: fulfilled once, by a call or by somebody outside, for every call that waits for them.

use super::{AwaitSubject, tell};
use crate::api::error::SessionError;
use crate::api::pending::Completed;
use crate::mailbox::ask::{self, AskError};
use crate::session::inner::{Inner, Runtime};
use crate::session::owner::Session;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass_core::ids::SessionNo;
use windlass_core::operation::Completion;
use windlass_store::{Row, Space, Store};

/// A stored fulfilment.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct KeptFulfilment {
    event: String,
    /// The value, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ok: Option<String>,
    /// Code and message of an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<(String, String)>,
    /// Whether it took too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    timed_out: bool,
}

impl KeptFulfilment {
    fn new(event: &str, completion: &Completion) -> KeptFulfilment {
        let event = event.to_string();
        let cancelled = KeptFulfilment { event, ok: None, error: None, timed_out: false };
        match completion {
            Completion::Ok { value, .. } => KeptFulfilment { ok: Some(value.to_string()), ..cancelled },
            Completion::Error { code, message, .. } => {
                KeptFulfilment { error: Some((code.clone(), message.clone())), ..cancelled }
            }
            Completion::TimedOut => KeptFulfilment { timed_out: true, ..cancelled },
            Completion::Cancelled => cancelled,
        }
    }

    fn completion(self) -> Completion {
        match (self.ok, self.error) {
            (Some(value), _) => Completion::ok(value),
            (None, Some((code, message))) => Completion::error(code, message),
            (None, None) if self.timed_out => Completion::TimedOut,
            (None, None) => Completion::Cancelled,
        }
    }
}

/// Serialises the fulfilment of a session's events: the first one counts.
#[derive(Default)]
struct FulfilmentLock(tokio::sync::Mutex<()>);

/// The key of an event.
pub(super) fn key(event: &str) -> String {
    blake3::hash(event.as_bytes()).to_hex()[..32].to_string()
}

/// How the event of this key was fulfilled, if it was.
pub(super) async fn fulfilled(
    store: &dyn Store,
    session: SessionNo,
    key: &str,
) -> Result<Option<Completion>, SessionError> {
    let Some(record) = store.record(Space::Fulfilled.of(session), key).await? else { return Ok(None) };
    let kept: KeptFulfilment = serde_json::from_slice(&record.value)
        .map_err(|error| SessionError::undecodable("a named event", error))?;
    Ok(Some(kept.completion()))
}

/// Fulfils an event: durable when this returns. The first fulfilment counts; the same one again is fine.
pub(super) async fn fulfil(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    event: &str,
    completion: Completion,
) -> Result<(), AskError> {
    let lock = session.slots.of::<FulfilmentLock>();
    let _alone = lock.0.lock().await;
    let (no, key) = (session.lane.session(), key(event));
    match fulfilled(&*rt.store, no, &key).await? {
        Some(there) if there == completion => return Ok(()),
        Some(_) => return Err(AskError::Answered),
        None => {}
    }
    let value = serde_json::to_vec(&KeptFulfilment::new(event, &completion)).unwrap_or_default().into();
    let row = Row::Put { space: Space::Fulfilled, key, value };
    session.lane.commit_rows(vec![row]).await.map_err(SessionError::from)?;
    tell(rt, session, AwaitSubject::Event(event), &completion).await;
    Ok(())
}

/// Refuses a name that no event can have.
pub(super) fn check_name(event: &str, max: u64) -> Result<(), String> {
    if event.trim().is_empty() || event.chars().count() as u64 > max {
        return Err(format!("the name of an event has 1 to {max} characters, and is not blank"));
    }
    Ok(())
}

impl Runtime {
    /// Fulfils a named event of a session: every call that waits for it with [`Cx::wait_event`](crate::Cx::wait_event) goes
    /// on, now or when it comes to wait. Durable when this returns; the first fulfilment counts, and repeating it is fine.
    pub async fn fulfil(&self, session: &str, event: &str, with: Completed) -> Result<(), AskError> {
        check_name(event, self.0.limits.batch_key_chars_max).map_err(|what| AskError::Invalid { what })?;
        let completion = ask::completion(&with, &self.0.limits)?;
        if let Completion::Ok { extras: Some(_), .. } | Completion::Error { extras: Some(_), .. } = completion
        {
            let what =
                "a named event is fulfilled with a value or an error alone, without parts or raw output";
            return Err(AskError::Invalid { what: what.to_string() });
        }
        if self.0.store.session(session).await.map_err(SessionError::from)?.is_none() {
            return Err(AskError::NotFound { what: format!("session {session:?}") });
        }
        let session = self.0.session(session).await?;
        fulfil(&self.0, &session, event, completion).await
    }
}
