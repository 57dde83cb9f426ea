//! The texts of notices for the model.

use crate::api::answer::CallAnswer;
use crate::api::limits::EnforcedLimits;
use crate::features::tasks;
use crate::session::notices::{KeptNotice, NoticeKind};
use windlass_core::projection;

/// The fraction of a notice's text that arguments may take.
const ARGUMENTS_SHARE: usize = 4;

/// The text for the model.
pub(super) fn text(kept: &KeptNotice, answer: &CallAnswer, limits: &EnforcedLimits) -> String {
    let (task, tool, call) = (answer.handle(), answer.tool(), answer.call());
    let done = kept.name.as_deref().zip(call.operations.as_deref());
    match (kept.kind, done) {
        (NoticeKind::TaskMessage, Some((name, operations))) => {
            let said =
                operations.said().find(|(said, _)| *said == name).map(|(_, message)| tasks::text_of(message));
            let said = said.unwrap_or_default();
            format!("The task {task}, a call of {tool:?}, says: {said}")
        }
        (NoticeKind::TaskAsks, Some((name, operations))) => {
            let asked = operations.questions().find(|(asked, _)| ***asked == *name);
            let question = asked.map_or("", |(_, question)| &question.text);
            format!("The task {task}, a call of {tool:?}, asks: {question}")
        }
        (NoticeKind::TaskWaits, Some((name, operations))) if operations.has_key(name) == Ok(true) => {
            format!("The task {task}, a call of {tool:?}, waits for an answer from outside to {name:?}.")
        }
        (NoticeKind::TaskWaits, _) => {
            let what = kept.name.as_deref().unwrap_or_default();
            format!("The task {task}, a call of {tool:?}, waits until its session is connected to {what:?}.")
        }
        (NoticeKind::CallEnded, _) => format!(
            "The call {:?} has ended, which was answered before it had: {}.\nIt was the call {task} of {tool:?} with \
             {}\n{}",
            answer.id(),
            answer.state(),
            projection::excerpt(&call.opened.args.text, ARGUMENTS_SHARE, limits.call()),
            answer.model_text()
        ),
        (
            NoticeKind::TaskEnded
            | NoticeKind::TaskMessage
            | NoticeKind::TaskAsks
            | NoticeKind::Event
            | NoticeKind::Posted,
            _,
        ) => format!(
            "The task {task} has ended: {}.\nIt was the call of {tool:?} with {}\n{}",
            answer.state(),
            projection::excerpt(&call.opened.args.text, ARGUMENTS_SHARE, limits.call()),
            answer.model_text()
        ),
    }
}

/// The text for the model, where one notice combines many.
pub(super) fn text_of_many(kind: NoticeKind, calls: &[String]) -> String {
    let what = match kind {
        NoticeKind::TaskEnded => "tasks have ended",
        NoticeKind::CallEnded => "calls have ended, which were answered before they had",
        NoticeKind::TaskMessage => "messages of tasks were not read",
        NoticeKind::TaskAsks => "questions of tasks were not read",
        NoticeKind::TaskWaits => "waits of tasks were not read",
        NoticeKind::Event => "events were not read",
        NoticeKind::Posted => "notices were not read",
    };
    format!(
        "{} {what}. Nobody read of them in time, so they are listed only; look each up by its handle:\n{}",
        calls.len(),
        calls.join("\n")
    )
}
