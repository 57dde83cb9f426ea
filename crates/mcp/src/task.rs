//! Calls as tasks of the protocol: every call that was made through the door is one, whether or not it was handed out as such.

use crate::gateway::{Gateway, Visitor};
use crate::message::RpcError;
use crate::peer::Peer;
use crate::people;
use crate::result;
use serde_json::{Map, Value, json};
use windlass::ask::Target;
use windlass::ids::Handle;
use windlass::inspect::{self, OpenCall, RecordedCall};
use windlass::outcome::Outcome;
use windlass::time::wall_time;
use windlass::{CallAnswer, Runtime};

/// `tasks/get`: the task, with its result once it is over, or with what it asks.
pub(crate) async fn get(
    gateway: &Gateway,
    visitor: &Visitor,
    peer: &Peer,
    id: &str,
) -> Result<Value, RpcError> {
    let task = shown(gateway, visitor, peer, id).await?;
    if task.get("result").is_some() {
        let found = find(gateway.runtime(), visitor, id).await?;
        gateway.delivered(&visitor.session, &found.batch_key, None, None).await;
    }
    Ok(task)
}

/// The task as `tasks/get` and notifications show it.
pub(crate) async fn shown(
    gateway: &Gateway,
    visitor: &Visitor,
    peer: &Peer,
    id: &str,
) -> Result<Value, RpcError> {
    let runtime = gateway.runtime();
    let found = find(runtime, visitor, id).await?;
    let answer = &found.answer;
    if answer.call().end().is_some() {
        let mut task = described(runtime, answer, false);
        let mut result = result::of_answer(runtime, answer).await;
        result["resultType"] = json!("complete");
        task["result"] = result;
        return Ok(task);
    }
    let forms = match peer.shows_forms {
        true => people::forms(gateway, visitor, id).await.map_err(|error| RpcError::internal(&error))?,
        false => Vec::new(),
    };
    let mut task = described(runtime, answer, !forms.is_empty());
    if !forms.is_empty() {
        task["inputRequests"] = Value::Object(people::requests(&forms));
    }
    Ok(task)
}

/// `tasks/update`: answers to what the task asks.
pub(crate) async fn update(
    gateway: &Gateway,
    visitor: &Visitor,
    id: &str,
    answers: &Map<String, Value>,
) -> Result<Value, RpcError> {
    find(gateway.runtime(), visitor, id).await?;
    let taken = people::take(gateway, visitor, id, answers).await;
    taken.map_err(|error| RpcError::params(error.to_string()))?;
    Ok(json!({}))
}

/// `tasks/cancel`: acknowledged whatever becomes of it.
pub(crate) async fn cancel(gateway: &Gateway, visitor: &Visitor, id: &str) -> Result<Value, RpcError> {
    let found = find(gateway.runtime(), visitor, id).await?;
    if found.answer.call().end().is_none() {
        let asked =
            gateway.runtime().cancel(Target::Call(id), Some("The MCP client cancelled the task.")).await;
        asked.map_err(|error| RpcError::params(error.to_string()))?;
    }
    Ok(json!({}))
}

/// The call of this handle, if it is one of the visitor's session: another's does not exist for it.
pub(crate) async fn find(runtime: &Runtime, visitor: &Visitor, id: &str) -> Result<RecordedCall, RpcError> {
    let unknown = || RpcError::params(format!("there is no task {id:?} in this session"));
    let handle = Handle::parse(id).ok_or_else(unknown)?;
    match inspect::call(runtime.store(), handle).await {
        Ok(Some((found, _))) if found.session == visitor.session => Ok(found),
        Ok(_) | Err(windlass::error::SessionError::Expired { .. }) => Err(unknown()),
        Err(error) => Err(RpcError::internal(&error)),
    }
}

/// The fields of a task.
pub(crate) fn described(runtime: &Runtime, answer: &CallAnswer, asks: bool) -> Value {
    let (call, handle) = (answer.call(), answer.handle().to_string());
    let end = call.end();
    let status = match end.map(|end| &end.outcome) {
        Some(Outcome::Cancelled { .. }) => "cancelled",
        Some(Outcome::Succeeded(_) | Outcome::Failed(_) | Outcome::Denied { .. } | Outcome::Unknown) => {
            "completed"
        }
        None if asks => "input_required",
        None => "working",
    };
    let updated = end.map(|end| end.at).or(call.first_started_at).unwrap_or(call.opened_at);
    let mut task = json!({
        "taskId": handle,
        "status": status,
        "createdAt": wall_time(call.opened_at),
        "lastUpdatedAt": wall_time(updated),
        "ttlMs": null,
        "pollIntervalMs": runtime.limits().mcp_poll_ms,
    });
    if end.is_none() {
        let live = runtime.live().into_iter().find(|open| open.call == handle);
        let message = live.map_or_else(|| answer.state().replace('_', " "), |live| status_message(&live));
        task["statusMessage"] = message.into();
    }
    task
}

/// One line about an open call.
pub(crate) fn status_message(call: &OpenCall) -> String {
    let state = call.state.replace('_', " ");
    let waits = call.waiting_for.as_ref().map(|waits| format!("waits for {waits}"));
    let progress = call.progress.as_ref().map(|progress| {
        let number = |value: Option<f64>| value.map(|value| value.to_string());
        let amounts: Vec<String> =
            [number(progress.current), number(progress.total)].into_iter().flatten().collect();
        let unit = progress.unit.as_deref().unwrap_or_default();
        let label = progress.label.as_deref().unwrap_or_default();
        format!("{} {unit} {label}", amounts.join(" of ")).trim().to_string()
    });
    let told: Vec<String> = [waits, call.status.clone(), progress]
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty())
        .collect();
    if told.is_empty() { state } else { format!("{state}: {}", told.join("; ")) }
}
