//! Signals for calls: checked against the declaration of the call's tool, kept until the call receives them.

use super::owner::{hear, open_here, reach_session};
use super::{AskError, Target, find_call, post};
use crate::api::error::SessionError;
use crate::api::keys::fresh_key;
use crate::path::grants;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::tools::place::BatchPlace;
use crate::tools::registry::{KindMismatch, ToolLookup};
use serde_json::Value;
use std::sync::Arc;
use windlass_core::ask::Ask;
use windlass_core::call::Call;
use windlass_core::ids::{BatchNo, CallId};
use windlass_core::operation::Operations;
use windlass_core::outcome::JsonText;
use windlass_store::SessionRow;

/// A signal for a call whose tool declares it.
#[derive(Clone, Copy, Debug)]
pub struct Signal<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its payload.
    pub payload: &'a Value,
    /// Its idempotency key; `None`: it is unique.
    pub key: Option<&'a str>,
}

/// Sends a signal. Durable when this returns.
pub(crate) async fn signal(rt: &Arc<Inner>, call: &str, signal: Signal<'_>) -> Result<(), AskError> {
    for (session, batch) in open_here(rt, Target::Call(call)) {
        batch.record(&session.lane).await.map_err(SessionError::from)?;
    }
    let (row, id, recorded) = find_call(&*rt.store, call).await?;
    let over = AskError::Over { what: "the call has ended" };
    if recorded.end().is_some() {
        return Err(over);
    }
    let Some(place) = place(rt, &row, id.batch).await? else { return Err(over) };
    let tool = match grants::look_up_recorded(rt, &row.name, &place, &recorded.opened).await? {
        ToolLookup::Tool(tool) => tool,
        ToolLookup::Missing { .. } | ToolLookup::Unavailable(_) => {
            let hint = "its tool is missing, so its signals are not known";
            return Err(AskError::Unfit { state: recorded.state.name(), hint });
        }
    };
    let undeclared = KindMismatch::Undeclared { nearest: None };
    let fits = tool.kinds.as_ref().ok_or(undeclared);
    let payload = fits.and_then(|kinds| kinds.signal(signal.name, signal.payload, &rt.limits));
    let mut payload = payload.map_err(|unfit| match unfit {
        KindMismatch::Undeclared { nearest } => {
            AskError::NoSignal { tool: tool.spec.name.clone(), name: signal.name.to_string(), nearest }
        }
        KindMismatch::Payload(what) => AskError::Invalid { what },
    })?;
    if let Some(known) = rt.secrets_of(&row.name).await? {
        known.scrub_text(&mut payload);
    }
    send(rt, &row, id, &recorded, signal, payload).await
}

/// The surroundings for looking up a batch's tools. `None`: it is over.
async fn place(
    rt: &Arc<Inner>,
    row: &SessionRow,
    batch: BatchNo,
) -> Result<Option<Arc<BatchPlace>>, AskError> {
    let Some(session) = reach_session(rt, &row.name).await? else {
        // Its owner is another worker, with the same tools.
        return Ok(Some(Arc::new(BatchPlace::new(row.name.as_str().into(), "".into(), None))));
    };
    let admission = session.admit().await;
    Ok(Session::fetch(&admission, rt, batch).await?.map(|batch| batch.head.place.clone()))
}

async fn send(
    rt: &Arc<Inner>,
    row: &SessionRow,
    call: CallId,
    recorded: &Call,
    signal: Signal<'_>,
    payload: JsonText,
) -> Result<(), AskError> {
    let chars_max = rt.limits.batch_key_chars_max;
    let key = match signal.key {
        Some(key) if (1..=chars_max).contains(&(key.chars().count() as u64)) => key.to_string(),
        Some(_) => {
            let what = format!("the key of a signal has 1 to {chars_max} characters; leave it out for none");
            return Err(AskError::Invalid { what });
        }
        None => fresh_key()?,
    };
    let max = rt.limits.signals_max;
    if recorded.operations.as_deref().map_or(0, Operations::signals_unheard) >= max {
        return Err(AskError::TooManySignals { max });
    }
    let ask = Ask::Signal { call, name: signal.name.into(), payload, key };
    post(&*rt.store, row, &ask).await?;
    Ok(hear(rt, row).await?)
}
