//! Signals for calls: checked against what the call's tool declares, kept until the call receives them.

use super::owner::{hear, open_here, reach_session};
use super::{AskError, Target, find_call, post};
use crate::error::BatchError;
use crate::registry::{Found, Unfit};
use crate::runtime::Inner;
use crate::submit::fresh_key;
use crate::tool::Place;
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
    /// What it says.
    pub payload: &'a Value,
    /// What makes it one signal, however often it is sent; `None`: it is one of its own.
    pub key: Option<&'a str>,
}

/// Sends a signal. It is durable when this returns.
pub(crate) async fn signal(rt: &Arc<Inner>, call: &str, signal: Signal<'_>) -> Result<(), AskError> {
    for (session, batch) in open_here(rt, Target::Call(call)) {
        batch.record(&session.lane).await.map_err(BatchError::from)?;
    }
    let (row, id, recorded) = find_call(&*rt.store, call).await?;
    let over = AskError::Over { what: "the call has ended" };
    if recorded.end().is_some() {
        return Err(over);
    }
    let Some(place) = place(rt, &row, id.batch).await? else { return Err(over) };
    let tool = match rt.registry.look_up(&place, &recorded.opened.tool).await {
        Found::Tool(tool) => tool,
        Found::Missing { .. } | Found::Unavailable(_) => {
            let hint = "its tool is not there, so nobody knows which signals it takes";
            return Err(AskError::Unfit { state: recorded.state.name(), hint });
        }
    };
    let undeclared = Unfit::Undeclared { nearest: None };
    let fits = tool.kinds.as_ref().ok_or(undeclared);
    let payload = fits.and_then(|kinds| kinds.signal(signal.name, signal.payload, &rt.limits));
    let payload = payload.map_err(|unfit| match unfit {
        Unfit::Undeclared { nearest } => {
            AskError::NoSignal { tool: tool.spec.name.clone(), name: signal.name.to_string(), nearest }
        }
        Unfit::Payload(what) => AskError::Invalid { what },
    })?;
    send(rt, &row, (id, &recorded), (signal, payload)).await
}

/// Where the tools of a batch are looked up. `None`: all of it is over.
async fn place(rt: &Arc<Inner>, row: &SessionRow, batch: BatchNo) -> Result<Option<Arc<Place>>, AskError> {
    let Some(session) = reach_session(rt, &row.name).await? else {
        // Its owner is another worker, which has the same tools.
        return Ok(Some(Arc::new(Place::new(row.name.as_str().into(), "".into(), None))));
    };
    let _admission = session.admission.lock().await;
    Ok(session.fetch(rt, batch).await?.map(|batch| batch.head.place.clone()))
}

async fn send(
    rt: &Arc<Inner>,
    row: &SessionRow,
    (call, recorded): (CallId, &Call),
    (signal, payload): (Signal<'_>, JsonText),
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
