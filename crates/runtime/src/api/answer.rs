//! Answers to callers, and the one JSON shape of a call.

use crate::api::decided::Decided;
use crate::api::limits::Limits;
use crate::api::output::ToolError;
use crate::api::view::{
    AsWritten, CallState, CallView, FailureView, ModelView, OriginView, OutcomeView, PermissionView,
    TriggeredTask,
};
use jiff::fmt::temporal::DateTimePrinter;
use serde::de::DeserializeOwned;
use serde::ser::{Serialize, Serializer};
use std::sync::Arc;
use windlass_core::call::{Call, Wake};
use windlass_core::failure::{Failure, FailureClass, Retry};
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::CallId;
use windlass_core::operation::Triggered;
use windlass_core::outcome::{ModelAnswer, Outcome, Part, Success, Value};
use windlass_core::projection;
use windlass_core::time::Timestamp;
use windlass_core::wait::Wait;
use windlass_store::Store;

/// The answers of a batch, in the order of its calls.
///
/// ```
/// # use windlass::{BatchRequest, CallRequest, Config, Runtime, ToolSpec, store::memory::MemoryStore, tool_fn};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
/// # runtime.register(tool_fn(ToolSpec { name: "roll".into(), ..ToolSpec::default() }, |_, _| async {
/// #     Ok(serde_json::json!({ "eyes": 4 }).into())
/// # }))?;
/// # let call = CallRequest { id: Some("c1".into()), tool: "roll".into(), ..CallRequest::default() };
/// # let batch = BatchRequest { calls: vec![call], ..BatchRequest::default() };
/// let answer = runtime.submit("demo", batch).await?.settled().await?;
/// for call in &answer.calls {
///     // The text for the model; `value` reads a type of yours.
///     println!("{} {}: {}", call.id(), call.state(), call.model_text());
///     assert!(call.value::<serde_json::Value>().is_ok_and(|value| value["eyes"] == 4));
/// }
/// # Ok(()) }
/// ```
#[derive(serde::Serialize)]
pub struct BatchAnswer {
    /// The batch's key.
    pub key: Arc<str>,
    /// One answer per submitted call.
    pub calls: Vec<CallAnswer>,
    /// The sibling rule of its calls, and the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

/// A call as its caller sees it: recorded and fresh calls look the same.
#[derive(Clone)]
pub struct CallAnswer {
    pub(crate) id: CallId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) call: Arc<Call>,
    pub(crate) recorded: bool,
    pub(crate) conflict: Option<Box<Failure>>,
    pub(crate) parent: Option<CallId>,
}

impl CallAnswer {
    /// The model's id of the call.
    pub fn id(&self) -> &str {
        &self.call.opened.id
    }

    /// The handle of the call.
    pub fn handle(&self) -> Handle {
        Handle::seal(self.store.secret(), HandleKind::Call, self.id.packed())
    }

    /// The handle of the call that it duplicates, and whose answer it has.
    pub fn same_as(&self) -> Option<Handle> {
        let first = self.call.same_as()?;
        Some(Handle::seal(self.store.secret(), HandleKind::Call, first.packed()))
    }

    /// The handle of the call that made it, if it is nested.
    pub fn parent(&self) -> Option<Handle> {
        Some(Handle::seal(self.store.secret(), HandleKind::Call, self.parent?.packed()))
    }

    /// Its value as a type of yours, or the error for a tool that needs it.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        let tool = self.tool();
        match (self.failure(), self.call.outcome()) {
            (Some(failure), _) => Err(of_failure(tool, failure)),
            (None, Some(Outcome::Succeeded(Success { value: Value::Inline(text), .. }))) => {
                serde_json::from_str(text).map_err(|error| {
                    ToolError::internal(format!("the value of {tool:?} is not as expected: {error}"))
                })
            }
            (None, Some(Outcome::Succeeded(Success { value: Value::Kept { kept, .. }, .. }))) => {
                let what =
                    format!("the value of {tool:?} is kept as artifact {}: read it there", kept.artifact);
                Err(ToolError::internal(what))
            }
            (None, Some(Outcome::Denied { reason })) => {
                Err(ToolError::new(format!("The call of {tool:?} was not allowed: {reason}")))
            }
            (None, Some(Outcome::Cancelled { .. })) => {
                Err(ToolError::new(format!("The call of {tool:?} was cancelled.")))
            }
            (None, Some(Outcome::Unknown | Outcome::Failed(_)) | None) => Err(ToolError::new(format!(
                "It is not known whether the call of {tool:?} took effect. Do not repeat it blindly; find out first."
            ))),
        }
    }

    /// The tool, as requested.
    pub fn tool(&self) -> &str {
        &self.call.opened.tool
    }

    /// The call, folded from its journal.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Whether it was recorded, or under way, before this submission.
    pub fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// Whether it was refused for its identity: another call has it, or the record of it has expired.
    pub fn is_conflict(&self) -> bool {
        self.conflict.is_some()
    }

    /// The state's name.
    pub fn state(&self) -> &'static str {
        if self.conflict.is_some() { "failed" } else { self.call.state.name() }
    }

    /// Its failure, if it failed.
    pub fn failure(&self) -> Option<&Failure> {
        match (&self.conflict, self.call.outcome()) {
            (Some(conflict), _) => Some(conflict),
            (None, Some(Outcome::Failed(failure))) => Some(failure),
            (None, _) => None,
        }
    }

    /// Whether it continues without its caller: its handle is the task's.
    pub fn is_task(&self) -> bool {
        self.conflict.is_none() && self.call.task.is_some()
    }

    /// The calls started by events that it emitted: the id of each trigger, and the task.
    pub fn triggered(&self) -> Vec<(&str, Handle)> {
        let handle = |call: CallId| Handle::seal(self.store.secret(), HandleKind::Call, call.packed());
        self.started().map(|one| (&*one.trigger, handle(one.call))).collect()
    }

    fn started(&self) -> impl Iterator<Item = &Triggered> {
        self.call.operations.iter().flat_map(|operations| operations.triggered())
    }

    /// The repairs of its arguments, one line each.
    pub fn repairs(&self) -> Vec<String> {
        let made = self.call.made.iter().flat_map(|made| &made.repairs);
        made.map(ToString::to_string).collect()
    }

    /// The model's view.
    pub fn model(&self) -> ModelAnswer {
        match (&self.conflict, self.call.end()) {
            (Some(conflict), _) => {
                projection::project(&Outcome::Failed(conflict.clone()), None, &Limits::default().call())
            }
            (None, Some(end)) => end.model(),
            (None, None) if self.is_task() => {
                let told = match self.call.task.as_ref().map(|task| task.wake) {
                    Some(Wake::Silent) => {
                        "No notice of its end will come: look at the task when its result is needed"
                    }
                    Some(Wake::OnActivity) => {
                        "Its session is told when it asks or says something and when it ends: do something else meanwhile"
                    }
                    Some(Wake::OnEnd) | None => {
                        "Its session is told when it ends: do something else meanwhile"
                    }
                };
                let budget = match self.call.task.as_ref().and_then(|task| task.budget_ms) {
                    Some(ms) => format!(", because it takes longer than {ms} ms"),
                    None => String::new(),
                };
                let task = self.handle();
                let text = format!("The call goes on in the background as task {task}{budget}. {told}.");
                ModelAnswer { parts: vec![Part::Text(text)], is_error: false }
            }
            (None, None) => {
                let text = standing_sentence(self.call.state.name(), self.standing()).to_string();
                ModelAnswer { parts: vec![Part::Text(text)], is_error: false }
            }
        }
    }

    /// The wait of an open call, as far as its record tells: that of a call waiting for room is only known to its owner.
    fn standing(&self) -> Option<Wait> {
        let parked = self.call.parked.map(|(parked, _)| Wait::from(parked.reason));
        parked.or(self.call.same_as().map(|_| Wait::SameAs))
    }

    /// The text parts of the model's view, concatenated.
    pub fn model_text(&self) -> String {
        let parts = self.model().parts;
        let texts = parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Json(json) => Some(&**json),
            Part::Image { .. } | Part::KeptImage { .. } | Part::File { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// The sentence that describes an open call's state to the model.
pub fn standing_sentence(state: &str, waiting_for: Option<Wait>) -> &'static str {
    match (waiting_for, state) {
        (Some(wait), _) => wait.sentence(),
        (None, "running") => "The call is running.",
        (None, _) => Wait::Turn.sentence(),
    }
}

impl Serialize for CallAnswer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.view().serialize(serializer)
    }
}

impl CallAnswer {
    /// This call with the details that only operators see.
    pub fn view(&self) -> CallView<'_> {
        self.viewed(false)
    }

    /// The call with what only operators are told: the detail of its failure.
    pub fn view_for_operators(&self) -> CallView<'_> {
        self.viewed(true)
    }

    fn viewed(&self, detailed: bool) -> CallView<'_> {
        let end = self.call.end();
        let triggered: Vec<TriggeredTask> =
            self.started().map(|one| TriggeredTask::of(one, self.store.secret())).collect();
        let repairs = self.repairs();
        let call = self.handle().to_string();
        CallView {
            id: self.id(),
            parent: self.parent().map(|parent| parent.to_string()),
            tool: self.tool(),
            state: CallState(self.state()),
            outcome: match &self.conflict {
                Some(conflict) => Some(OutcomeView::Failed { failure: FailureView::of(conflict) }),
                None => {
                    self.call.outcome().map(|ended| OutcomeView::of(ended, end.map(|end| end.at), detailed))
                }
            },
            task: self.is_task().then(|| call.clone()),
            call,
            attempts: self.call.attempts,
            same_as: self.same_as().map(|first| first.to_string()),
            triggered: Some(triggered).filter(|triggered| !triggered.is_empty()),
            queued_ms: end.map(|end| end.spent.queued_us / 1_000),
            waited_ms: end.map(|end| end.spent.waited_us / 1_000),
            ran_ms: end.and_then(|_| self.call.measured_us()).map(|ran_us| ran_us / 1_000),
            repairs: Some(repairs).filter(|repairs| !repairs.is_empty()),
            answered_by: self.call.made.as_ref().and_then(|made| made.answered_by.as_deref()),
            grant: self.call.opened.grant.as_deref().map(ToString::to_string),
            permission: PermissionView::of(&self.call),
            origin: OriginView::of(self.call.origin),
            waiting_for: None,
            progress: None,
            status: None,
            model: ModelView::of(self.model()),
            provider: self.call.opened.provider.as_ref().map(AsWritten),
        }
    }
}

/// The error of a tool that needed a call which failed.
fn of_failure(tool: &str, failure: &Failure) -> ToolError {
    let is_internal = failure.class == FailureClass::Internal;
    // The model sees a sentence with a reference in place of an internal failure, and gets that sentence again.
    let message = match is_internal {
        true => failure.message.clone(),
        false => format!("The call of {tool:?} failed: {}", failure.message),
    };
    let retry = match failure.retry {
        Retry::Safe { after_ms } => Retry::Safe { after_ms },
        Retry::Never | Retry::Exhausted { .. } => Retry::Never,
    };
    // A request that the tool made wrongly is the tool's failure, not the model's.
    let own = is_internal || failure.class == FailureClass::InvalidRequest;
    let class = if own { FailureClass::Execution } else { failure.class };
    let tool_code = Some(failure.tool_code.clone().unwrap_or_else(|| failure.code.to_string()));
    ToolError { class, tool_code, detail: failure.detail.clone(), retry, ..ToolError::new(message) }
}

const TO_THE_MS: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// A point in time in RFC 3339, for people and programs.
pub fn wall_time(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_microsecond(at.0);
    time.map_or_else(|_| at.0.to_string(), |time| TO_THE_MS.timestamp_to_string(&time))
}

/// Serializes a field as [`wall_time`].
pub(crate) fn as_wall_time<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&wall_time(*at))
}

pub(crate) fn as_wall_time_maybe<S: Serializer>(
    at: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => as_wall_time(at, serializer),
        None => serializer.serialize_none(),
    }
}

/// The result of a request to cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The number of open calls asked to stop; each writes its own end.
    pub asked: u64,
    /// The number of calls already over; nothing changed for them.
    pub over: u64,
}

impl std::ops::AddAssign for Asked {
    fn add_assign(&mut self, other: Asked) {
        self.asked += other.asked;
        self.over += other.over;
    }
}
