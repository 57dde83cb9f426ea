//! Events that the host emits.

use super::occur::{Emission, EventEmitter, EventPayload, ToldEvent};
use crate::api::error::{BatchError, SessionError};
use crate::session::book::told::Unsent;
use crate::session::inner::{Inner, Runtime};
use crate::tools::registry::{KindMismatch, Registered};
use crate::tools::request::check_session_name;
use serde_json::Value;
use std::sync::Arc;
use windlass_args::names::nearest_name;

/// An event that the host emits. See [`Runtime::emit`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewEvent<'a> {
    /// Its kind, as a tool of the session [declares](windlass_core::tool::ToolSpec::emits) it.
    pub kind: &'a str,
    /// Its payload, which fits the schema of the kind.
    pub payload: Value,
    /// A key by which it is unique in the session: events of one kind with the same key are emitted once.
    pub once_by: Option<&'a str>,
}

/// Why an event was not emitted.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// No tool of the session declares this kind.
    #[error(
        "no tool of the session emits the event {kind:?}{}; a tool declares its events as `emits`",
        nearest.as_ref().map(|near| format!(", but {near:?}")).unwrap_or_default()
    )]
    Undeclared {
        /// The kind.
        kind: String,
        /// The most similar kind.
        nearest: Option<String>,
    },
    /// Its payload does not fit, or its key is blank or too long.
    #[error("{what}")]
    Invalid {
        /// The mistake.
        what: String,
    },
    /// A call that it would start was refused.
    #[error("a call that the event starts was refused")]
    Batch(#[source] BatchError),
    /// The session is unavailable.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl Runtime {
    /// Emits an event in a session as its tools do: durable when this returns, with the tasks that its triggers start.
    pub async fn emit(&self, session: &str, event: NewEvent<'_>) -> Result<Emission, EmitError> {
        check_session_name(session)?;
        let rt = &self.0;
        let session = rt.session(session).await?;
        session.check_takes(rt).await?;
        if let Some(key) = event.once_by {
            check_key(key, rt.limits.batch_key_chars_max).map_err(|what| EmitError::Invalid { what })?;
        }
        let tool = declaring(rt, &session.name, event.kind)?;
        let invalid = |what: String| EmitError::Invalid { what };
        let fits = tool.kinds.as_ref().map(|kinds| kinds.event(event.kind, &event.payload, &rt.limits));
        let text = match fits {
            Some(Ok(text)) => text,
            Some(Err(KindMismatch::Payload(what))) => return Err(invalid(what)),
            Some(Err(KindMismatch::Undeclared { nearest })) => {
                return Err(EmitError::Undeclared { kind: event.kind.to_string(), nearest });
            }
            None => return Err(EmitError::Undeclared { kind: event.kind.to_string(), nearest: None }),
        };
        let payload = EventPayload { text, value: event.payload }.without_secrets(session.lane.vault());
        let wakes = tool.kinds.as_ref().and_then(|kinds| kinds.wake_text(event.kind, &payload.value));
        let told = ToldEvent {
            rt: rt.clone(),
            session,
            source: EventEmitter::Host,
            kind: event.kind.into(),
            payload,
            once_by: event.once_by.map(str::to_string),
            wakes,
            observer: None,
        };
        // In a task of the runtime: a caller that goes away stops nothing.
        let telling = rt.tasks.spawn(told.tell()).await;
        match telling.map_err(|_| invalid("the runtime is going away".to_string()))? {
            Ok(emission) => Ok(emission),
            Err(Unsent::Refused(BatchError::Session(error))) => Err(error.into()),
            Err(Unsent::Refused(error)) => Err(EmitError::Batch(error)),
            Err(Unsent::Misused(misuse)) => Err(invalid(misuse.to_string())),
        }
    }
}

/// Refuses a key that no event can have.
pub(super) fn check_key(key: &str, max: u64) -> Result<(), String> {
    if key.trim().is_empty() || key.chars().count() as u64 > max {
        return Err(format!("the key of an event has 1 to {max} characters, and is not blank"));
    }
    Ok(())
}

/// A loaded tool of the session that declares this kind of event.
fn declaring(rt: &Inner, session: &str, kind: &str) -> Result<Arc<Registered>, EmitError> {
    let tools: Vec<Arc<Registered>> =
        rt.registry.list_of(session).into_iter().filter_map(|listed| listed.tool).collect();
    let declares = |tool: &&Arc<Registered>| tool.kinds.as_ref().is_some_and(|kinds| kinds.emits(kind));
    if let Some(tool) = tools.iter().find(declares) {
        return Ok(tool.clone());
    }
    let kinds = tools.iter().flat_map(|tool| tool.spec.emits.keys().map(String::as_str));
    let nearest = nearest_name(kind, kinds).map(str::to_string);
    Err(EmitError::Undeclared { kind: kind.to_string(), nearest })
}
