//! People, asked through the client: approvals and questions become forms.
//!
//! A client shows a form only if the caller's token may answer it. Approvals that want another person than the caller, and
//! questions whose answers are no flat forms, stay in the list of what waits.

use crate::gateway::{Gateway, Visitor};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use windlass::approvals::ApprovalDecision;
use windlass::error::{AskError, SessionError};
use windlass::inspect::{WaitingCall, WaitingKind, WaitingSearch};
use windlass::{EffectClass, Runtime};

/// A form for a person.
#[derive(Debug)]
pub(crate) struct PersonForm {
    /// Names it for the life of its call: the id of what waits, and the digest that is approved.
    key: String,
    message: String,
    schema: Value,
}

/// The questions that were answered here a moment ago: their calls may not have taken the answers yet, and until then they are recorded as open.
#[derive(Default)]
pub(crate) struct AnsweredQuestions(Mutex<VecDeque<String>>);

/// Answered questions that are remembered; each is recorded soon.
const ANSWERED_MAX: usize = 1_024;

impl AnsweredQuestions {
    fn note(&self, key: &str) {
        let mut answered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answered.len() >= ANSWERED_MAX {
            answered.pop_front();
        }
        answered.push_back(key.to_string());
    }

    fn has(&self, key: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|answered| answered == key)
    }
}

/// The field of a form that holds an answer which is no object.
const ANSWER: &str = "answer";
/// The field of an approval.
const APPROVE: &str = "approve";

/// The forms that a call waits for and this visitor may answer.
pub(crate) async fn forms(
    gateway: &Gateway,
    visitor: &Visitor,
    call: &str,
) -> Result<Vec<PersonForm>, SessionError> {
    let runtime = gateway.runtime();
    if !visitor.may_approve && !visitor.may_answer {
        return Ok(Vec::new());
    }
    let search = WaitingSearch { session: Some(&visitor.session), ..WaitingSearch::default() };
    let waiting = runtime.waiting_part(&search, usize::MAX, |_| true).await?.calls;
    let own: Vec<_> = waiting.iter().filter(|(_, waits)| waits.call == call).collect();
    // One that was answered a moment ago may still be recorded as waiting. Only a body that is not dropped meanwhile waits while it runs.
    let live = runtime.live_in(&visitor.session).into_iter().find(|open| open.call == call);
    let waits = match live.as_ref().filter(|_| !own.is_empty()) {
        Some(open) if open.state == "running" => !is_stepped(runtime, visitor, &open.tool).await?,
        Some(open) => ["awaiting_approval", "awaiting_input"].contains(&open.state),
        None => true,
    };
    let forms = own.into_iter().filter(|_| waits).filter_map(|(_, waits)| form(visitor, waits));
    Ok(forms.filter(|form| !gateway.answered().has(&form.key)).collect())
}

async fn is_stepped(runtime: &Runtime, visitor: &Visitor, name: &str) -> Result<bool, SessionError> {
    let tools = runtime.tools_of(&visitor.session).await?;
    let found = tools.iter().filter_map(|listed| listed.tool.as_ref()).find(|tool| tool.spec.name == name);
    Ok(found.is_some_and(|tool| tool.class == EffectClass::Stepped))
}

impl PersonForm {
    /// The form as a request of ours, in the older era, in which the answer to a call cannot ask.
    pub(crate) fn request(&self, id: &str) -> Value {
        let params = json!({"message": self.message, "requestedSchema": self.schema});
        json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params})
    }

    /// Whether the form of this name is an approval, which declining answers, too.
    pub(crate) fn is_approval(key: &str) -> bool {
        key.contains(':')
    }

    /// Its name, by which its answer is taken.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }
}

/// The forms as requests of the protocol.
pub(crate) fn requests(forms: &[PersonForm]) -> Map<String, Value> {
    let request = |form: &PersonForm| {
        let params = json!({"mode": "form", "message": form.message, "requestedSchema": form.schema});
        (form.key.clone(), json!({"method": "elicitation/create", "params": params}))
    };
    forms.iter().map(request).collect()
}

fn form(visitor: &Visitor, waits: &WaitingCall) -> Option<PersonForm> {
    match (waits.kind, &waits.digest) {
        (WaitingKind::Approval, Some(digest)) if visitor.may_approve && !waits.four_eyes => {
            Some(PersonForm {
                key: format!("{}:{digest}", waits.id),
                message: approval_text(waits),
                schema: json!({
                    "type": "object",
                    "properties": {APPROVE: {"type": "boolean", "title": "Let it run", "default": false}},
                    "required": [APPROVE],
                }),
            })
        }
        (WaitingKind::Question, _) if visitor.may_answer => Some(PersonForm {
            key: waits.id.clone(),
            message: waits.text.clone(),
            schema: question_schema(waits.schema.as_ref())?,
        }),
        _ => None,
    }
}

fn approval_text(waits: &WaitingCall) -> String {
    let reason = waits.reason.as_ref().map(|reason| format!("\n{reason}")).unwrap_or_default();
    format!("May {:?} run?\n{}{reason}", waits.tool, waits.text)
}

/// The schema of a form whose content answers a question; `None` if no flat form can.
fn question_schema(schema: Option<&Value>) -> Option<Value> {
    let wrapped =
        |field: &Value| json!({"type": "object", "properties": {ANSWER: field}, "required": [ANSWER]});
    match schema {
        None => Some(wrapped(&json!({"type": "string"}))),
        Some(schema) if is_field(schema) => Some(wrapped(schema)),
        Some(schema) if is_flat(schema) => Some(schema.clone()),
        Some(_) => None,
    }
}

/// Whether a form can have a field of this schema. A list is a choice of several.
fn is_field(schema: &Value) -> bool {
    match schema["type"].as_str() {
        Some("string" | "number" | "integer" | "boolean") => true,
        Some("array") => schema["items"]["enum"].is_array() || schema["items"]["anyOf"].is_array(),
        _ => false,
    }
}

fn is_flat(schema: &Value) -> bool {
    schema["type"] == "object"
        && schema["properties"]
            .as_object()
            .is_some_and(|fields| !fields.is_empty() && fields.values().all(is_field))
}

/// Takes the answers of a person. Keys that nobody asked for, or that were answered before, are ignored, as the protocol says.
pub(crate) async fn take(
    gateway: &Gateway,
    visitor: &Visitor,
    call: &str,
    answers: &Map<String, Value>,
) -> Result<(), AskError> {
    if answers.is_empty() {
        return Ok(());
    }
    let runtime = gateway.runtime();
    for form in forms(gateway, visitor, call).await? {
        let Some(answer) = answers.get(&form.key) else { continue };
        let (action, content) = (answer["action"].as_str(), &answer["content"]);
        // Whoever closes the form has not decided.
        if !matches!(action, Some("accept" | "decline")) {
            continue;
        }
        let accepts = action == Some("accept");
        let taken = match form.key.split_once(':') {
            Some((id, digest)) => {
                let approve = accepts && content[APPROVE] == true;
                let reason = (!approve).then(|| "The user did not allow it.".to_string());
                let decision = ApprovalDecision {
                    approve,
                    digest: digest.to_string(),
                    reason,
                    ..ApprovalDecision::default()
                };
                runtime.decide(id, &decision, &visitor.principal).await
            }
            None if accepts => {
                let wraps = form.schema["properties"].as_object().is_some_and(|fields| fields.len() == 1);
                let answer = if wraps && content.get(ANSWER).is_some() { &content[ANSWER] } else { content };
                let taken = runtime.answer(&form.key, answer).await;
                if taken.is_ok() {
                    gateway.answered().note(&form.key);
                }
                taken
            }
            // A question has no other answer than an answer.
            None => Ok(()),
        };
        match taken {
            // Somebody else was quicker, or it asks for something else by now: whoever waits sees it.
            Ok(()) | Err(AskError::Answered | AskError::Conflict | AskError::Over { .. }) => {}
            Err(AskError::StaleDigest { .. } | AskError::NoApproval | AskError::NoQuestion) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_flat_forms_are_shown() {
        let asked = |schema: Value| question_schema(Some(&schema));
        let wrapped = |field: Value| {
            Some(json!({"type": "object", "properties": {"answer": field}, "required": ["answer"]}))
        };
        assert_eq!(question_schema(None), wrapped(json!({"type": "string"})));
        assert_eq!(asked(json!({"type": "integer"})), wrapped(json!({"type": "integer"})));
        let several = json!({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}});
        assert_eq!(asked(several.clone()), wrapped(several.clone()));
        let flat = json!({"type": "object", "properties": {"n": {"type": "number"}, "several": several}});
        assert_eq!(asked(flat.clone()), Some(flat));
        for schema in [
            json!({"type": "array"}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"a": {"type": "object"}}}),
            json!({"oneOf": []}),
        ] {
            assert_eq!(asked(schema.clone()), None, "{schema}");
        }
    }
}
