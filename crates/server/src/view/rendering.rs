//! Rendering of calls and batches. A finished call is written by the runtime, as in the first answer to its batch, and
//! never parsed and written again: so it is the same bytes in every answer, numbers and provider data included.

use crate::wire::overview::SpanView;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::Value;
use windlass::CallAnswer;
use windlass::batch::{CallState, CallView, Decided, ModelView};
use windlass::inspect::{OpenCall, OpenQuestion};
use windlass::wait::{WaitingFor, standing_sentence};

/// A call: as the runtime shows it, and what the API adds.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Call")]
pub struct ShownCall {
    #[serde(flatten)]
    #[schemars(with = "CallView<'static>")]
    call: RenderedCall,
    #[serde(flatten)]
    pub(super) more: CallExtras,
}

/// The fields that the API adds to a call.
#[derive(Default, Serialize, JsonSchema)]
pub(super) struct CallExtras {
    /// Its arguments, where one call is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) args: Option<Value>,
    /// The key of its batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) batch: Option<String>,
    /// The arguments that it runs with, where one call is shown and a person has edited them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) edited_args: Option<Value>,
    /// Its journal, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) journal: Option<Vec<Value>>,
    /// A sentence for people about what it does, where it is listed or shown alone and runs on this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) narration: Option<String>,
    /// When it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) opened_at: Option<String>,
    /// The calls that it made, where spans were asked for: each with its spans, behind the one that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nested: Option<Vec<ShownCall>>,
    /// Its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<String>,
    /// Where its time went, where that was asked for, in the order in which the parts began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) spans: Option<Vec<SpanView>>,
}

enum RenderedCall {
    /// It is over, or conflicts with one that is.
    Over { answer: CallAnswer, for_operators: bool },
    /// It is open and recorded.
    Open { answer: CallAnswer, standing: OpenStanding },
    /// It is open, and only its owner knows it.
    Unrecorded(OpenCall),
}

/// Where an open call stands.
pub(super) struct OpenStanding {
    pub(super) state: &'static str,
    /// The reason of its wait, if it waits.
    pub(super) waiting: Option<WaitingFor>,
    /// The call as its owner knows it, if the owner was asked.
    pub(super) live: Option<OpenCall>,
}

impl ShownCall {
    pub(super) fn over(answer: &CallAnswer) -> ShownCall {
        ShownCall::of(RenderedCall::Over { answer: answer.clone(), for_operators: false })
    }

    pub(super) fn open(answer: &CallAnswer, standing: OpenStanding) -> ShownCall {
        ShownCall::of(RenderedCall::Open { answer: answer.clone(), standing })
    }

    pub(super) fn unrecorded(call: &OpenCall) -> ShownCall {
        let more = CallExtras {
            batch: Some(call.batch.clone()),
            opened_at: Some(windlass::time::wall_time(call.opened_at)),
            session: Some(call.session.clone()),
            ..CallExtras::default()
        };
        ShownCall { more, ..ShownCall::of(RenderedCall::Unrecorded(call.clone())) }
    }

    fn of(call: RenderedCall) -> ShownCall {
        ShownCall { call, more: CallExtras::default() }
    }

    /// Shows the details for operators.
    pub(super) fn show_operators(&mut self) {
        if let RenderedCall::Over { for_operators, .. } = &mut self.call {
            *for_operators = true;
        }
    }

    /// Its handle.
    pub(super) fn handle(&self) -> String {
        match &self.call {
            RenderedCall::Over { answer, .. } | RenderedCall::Open { answer, .. } => {
                answer.handle().to_string()
            }
            RenderedCall::Unrecorded(call) => call.call.clone(),
        }
    }

    /// The handle of the call that made it, if one did.
    pub(super) fn parent(&self) -> Option<String> {
        match &self.call {
            RenderedCall::Over { answer, .. } | RenderedCall::Open { answer, .. } => {
                answer.parent().map(|parent| parent.to_string())
            }
            RenderedCall::Unrecorded(call) => call.parent.clone(),
        }
    }

    /// Renders the call as a value.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

impl Serialize for RenderedCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let view = match self {
            RenderedCall::Over { answer, for_operators: false } => answer.view(),
            RenderedCall::Over { answer, for_operators: true } => answer.view_for_operators(),
            RenderedCall::Open { answer, standing } => standing.view(answer),
            RenderedCall::Unrecorded(call) => unrecorded(call),
        };
        view.serialize(serializer)
    }
}

impl OpenStanding {
    fn view<'a>(&'a self, answer: &'a CallAnswer) -> CallView<'a> {
        let mut view = stands(answer.view(), self.state, self.waiting.as_ref());
        if let Some(live) = &self.live {
            view.progress = live.progress.as_ref();
            view.status = live.status.as_deref();
            // A running attempt's start may be recorded only with its result.
            view.attempts = live.attempts.max(view.attempts);
        }
        view
    }
}

/// A call that only its owner knows.
fn unrecorded(call: &OpenCall) -> CallView<'_> {
    let view = CallView {
        id: &call.id,
        call: call.call.clone(),
        parent: call.parent.clone(),
        tool: &call.tool,
        state: CallState(call.state),
        outcome: None,
        task: None,
        attempts: call.attempts,
        same_as: None,
        triggered: None,
        queued_ms: None,
        waited_ms: None,
        ran_ms: None,
        repairs: None,
        answered_by: None,
        grant: None,
        permission: None,
        origin: None,
        waiting_for: None,
        progress: call.progress.as_ref(),
        status: call.status.as_deref(),
        model: ModelView::text(""),
        provider: None,
    };
    stands(view, call.state, call.waiting_for.as_ref())
}

/// Adds the state of an open call, for programs and for the model.
fn stands<'a>(view: CallView<'a>, state: &'static str, waiting: Option<&'a WaitingFor>) -> CallView<'a> {
    // A task's answer already says that it continues, and where.
    let model = match view.task {
        Some(_) => view.model,
        None => ModelView::text(standing_sentence(state, waiting.map(WaitingFor::wait))),
    };
    CallView { state: CallState(state), waiting_for: waiting.map(|waiting| &**waiting), model, ..view }
}

/// The answers of a batch, in the order of its calls.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Batch")]
pub struct ShownBatch {
    /// The batch's key.
    pub key: String,
    /// One per submitted call.
    pub calls: Vec<ShownCall>,
    /// The sibling rule of its calls, and the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
    /// The number of calls that had ended before the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<usize>,
}

/// A page of calls.
#[derive(Default, Serialize, JsonSchema)]
#[schemars(rename = "PageOfCall")]
pub struct CallPage {
    /// The items of this page.
    pub items: Vec<ShownCall>,
    /// The next page's cursor.
    pub next: Option<String>,
    /// Why calls are missing; absent if none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// Sessions whose journals cannot be read; absent if all can.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub unreadable: Vec<UnreadableSession>,
}

/// A page of questions.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "PageOfQuestion")]
pub struct QuestionPage {
    /// The items of this page.
    pub items: Vec<OpenQuestion>,
    /// The value of `after` for the next page; `null` on the last.
    pub next: Option<String>,
    /// Why questions are missing; absent if none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// A session whose journal cannot be read.
#[derive(Serialize, JsonSchema)]
pub struct UnreadableSession {
    /// Its name.
    pub session: String,
    /// The unreadable record, and the cause.
    pub what: String,
}

impl CallPage {
    /// Renders the page as a value.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}
