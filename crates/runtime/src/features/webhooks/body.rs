//! The bodies of messages: JSON for programs, with texts for people.

use crate::api::answer::wall_time;
use crate::api::error::SessionError;
use crate::api::journal::find_id;
use crate::features::inbox::Inbox;
use crate::session::inner::Inner;
use crate::session::outgoing::{NoticeCopy, OutgoingPost, WaitCopy, WebhookKind};
use crate::session::owner::Session;
use serde_json::{Value, json};
use std::sync::Arc;
use windlass_core::call::{Call, Reason};
use windlass_core::handle::{Handle, HandleKind, question_id};
use windlass_core::ids::CallId;
use windlass_core::time::Timestamp;
use windlass_core::visible;

/// The body of a message of a session.
pub(super) async fn of(
    rt: &Arc<Inner>,
    session: &Session,
    event: &str,
    post: &OutgoingPost,
) -> Result<Vec<u8>, SessionError> {
    let mut body = json!({
        "id": event,
        "kind": post.kind.as_str(),
        "created": wall_time(Timestamp(post.created_us)),
        "session": &*session.name,
        "principal": session.principal.as_deref(),
    });
    if let Some(notice) = &post.notice {
        body["notice"] = of_notice(rt, session, notice).await?;
    }
    if let Some(wait) = &post.wait {
        body["wait"] = of_wait(rt, session, post.kind, wait).await?;
    }
    Ok(body.to_string().into_bytes())
}

/// The body of a test message.
pub(super) fn test(event: &str, at: Timestamp) -> Vec<u8> {
    let body = json!({ "id": event, "kind": "test", "created": wall_time(at) });
    body.to_string().into_bytes()
}

async fn of_notice(rt: &Arc<Inner>, session: &Session, notice: &NoticeCopy) -> Result<Value, SessionError> {
    let NoticeCopy { id, kept } = notice;
    let inbox = Inbox::of(rt, &session.name);
    Ok(match inbox.for_people(id, kept).await? {
        Some(shown) => json!({
            "id": shown.id,
            "urgency": shown.urgency,
            "priority": shown.priority,
            "title": for_people(&shown.title),
            "call": shown.call,
            "call_state": shown.call_state,
            "task": shown.task,
            "text": for_people(&shown.text),
        }),
        None => json!({
            "id": id,
            "urgency": kept.urgency,
            "priority": kept.priority,
            "title": "",
            "call": kept.call.map(|call| handle(rt, call)),
            "text": "The record of this call has expired.",
        }),
    })
}

async fn of_wait(
    rt: &Arc<Inner>,
    session: &Session,
    kind: WebhookKind,
    wait: &WaitCopy,
) -> Result<Value, SessionError> {
    let (call, id) = (handle(rt, wait.call), CallId::unpacked(wait.call));
    let found = match find_id(&*rt.store, id).await {
        Err(SessionError::Expired { .. }) => None,
        found => found?,
    };
    let is_open = found.is_some_and(|(_, call, _)| is_open(&call, kind, &wait.name, rt.clock.now()));
    let (command, path) = answered_by(rt, session, kind, wait, &call);
    Ok(json!({
        "call": call,
        "tool": for_people(&wait.tool),
        "name": for_people(&wait.name),
        "text": for_people(&wait.what),
        "until": wait.until_us.map(|until| wall_time(Timestamp(until))),
        "open": is_open,
        "answer": { "command": command, "method": "POST", "path": path },
    }))
}

/// Whether a person can still answer.
fn is_open(call: &Call, kind: WebhookKind, name: &str, now: Timestamp) -> bool {
    let waits =
        |reason| call.end().is_none() && call.parked.is_some_and(|(parked, _)| parked.reason == reason);
    match kind {
        WebhookKind::Question => {
            let operations = call.operations.as_deref().filter(|_| call.end().is_none());
            operations.is_some_and(|operations| !operations.is_over(name, now))
        }
        WebhookKind::Connection => waits(Reason::Connection),
        WebhookKind::ToolChanged => waits(Reason::ToolChanged),
        WebhookKind::Unknown => call.end().is_some_and(|end| end.is_unknown()),
        WebhookKind::Approval
        | WebhookKind::TaskEnded
        | WebhookKind::CallEnded
        | WebhookKind::TaskMessage
        | WebhookKind::TaskAsks
        | WebhookKind::TaskWaits
        | WebhookKind::Event
        | WebhookKind::Posted => call.end().is_none(),
    }
}

/// The command and the path of the API by which a wait is answered.
fn answered_by(
    rt: &Inner,
    session: &Session,
    kind: WebhookKind,
    wait: &WaitCopy,
    call: &str,
) -> (String, String) {
    match kind {
        WebhookKind::Question => {
            let id = question_id(rt.store.secret(), CallId::unpacked(wait.call), &wait.name);
            (format!("windlass answer {id} JSON"), format!("/v1/questions/{id}"))
        }
        WebhookKind::Connection => {
            let (session, provider) = (&session.name, for_people(&wait.name));
            let command = format!("windlass connections {session} '{provider}' --connected");
            (command, format!("/v1/sessions/{session}/connections/{provider}"))
        }
        WebhookKind::Approval => {
            let id = for_people(&wait.name);
            (format!("windlass approve {id}"), format!("/v1/approvals/{id}"))
        }
        WebhookKind::ToolChanged => (format!("windlass accept {call}"), format!("/v1/calls/{call}/accept")),
        WebhookKind::Unknown
        | WebhookKind::TaskEnded
        | WebhookKind::CallEnded
        | WebhookKind::TaskMessage
        | WebhookKind::TaskAsks
        | WebhookKind::TaskWaits
        | WebhookKind::Event
        | WebhookKind::Posted => {
            (format!("windlass resolve {call} --did-not-happen"), format!("/v1/calls/{call}/resolve"))
        }
    }
}

fn handle(rt: &Inner, call: u64) -> String {
    Handle::seal(rt.store.secret(), HandleKind::Call, call).to_string()
}

/// A text that leaves for people elsewhere: every text of a body goes through here. Line breaks stay; whatever else moves a cursor
/// or changes the text direction is escaped.
fn for_people(text: &str) -> String {
    text.split('\n').map(visible::line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_keep_their_lines_and_hide_nothing() {
        assert_eq!(for_people("a\nb\u{202e}c\u{1b}[2J\r"), "a\nb\\u{202e}c\\u{1b}[2J\\r");
    }
}
