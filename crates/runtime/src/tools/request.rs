//! Requests of callers, and the checks that refuse a batch as a whole.

use crate::api::error::{BatchError, SessionError};
use crate::api::keys::{BY_SCHEDULE, BY_TRIGGER, INSIDE};
use crate::api::limits::{EnforcedLimits, Limits};
use crate::api::observer::Observer;
use crate::api::traced::{BatchTrace, TraceParent};
use crate::tools::registry::zero_of;
use crate::tools::scope::Overlay;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use windlass_args::arguments::{Arguments, Given};
use windlass_args::json::{self, Size};
use windlass_args::limits::ArgLimits;
use windlass_args::text::Packing;
use windlass_core::attempt::Deadlines;
use windlass_core::batch::{Opening, Parent};
use windlass_core::call::{Detached, DetachedBy, Opened, Wake};
use windlass_core::grant::{GrantId, GrantToken};
use windlass_core::ids::Ordinal;
use windlass_core::loops::Loop;
use windlass_core::projection::AnswerBudget;
use windlass_core::siblings::Siblings;

/// The calls of one model turn.
///
/// ```
/// use windlass::{BatchRequest, CallRequest};
///
/// let call = |id: &str, tool: &str| CallRequest { id: Some(id.into()), tool: tool.into(), ..CallRequest::default() };
/// let batch = BatchRequest {
///     // Submitted again under its key, the batch joins the first submission or gets its recorded answers.
///     key: Some("turn-12".into()),
///     calls: vec![call("c1", "weather"), call("c2", "calendar")],
///     ..BatchRequest::default()
/// };
/// assert_eq!(batch.calls.len(), 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct BatchRequest {
    /// Idempotency key of the batch; derived or generated if absent.
    pub key: Option<String>,
    /// The turn of the conversation; part of a derived key.
    pub turn: Option<String>,
    /// The calls, in order.
    pub calls: Vec<CallRequest>,
    /// The host's inputs for tools and hooks: the user, the locale, a workspace. Recorded with the batch, but
    /// not part of its identity: on resubmission the recorded ones count.
    pub inputs: Option<Map<String, Value>>,
    /// Tools for this batch alone, above those of its session. Not recorded: a batch that was left open gets
    /// its overlay back by resubmission. The first overlay counts.
    pub overlay: Option<Arc<Overlay>>,
    /// The observer of its nested calls. Not recorded; the first one counts.
    pub observer: Option<Observer>,
    /// How the end of one call affects the others. Recorded with the batch, but not part of its identity: on
    /// resubmission the recorded rule counts.
    pub siblings: Siblings,
    /// When its session gets a notice of calls that were answered before they had ended. Recorded with the
    /// batch, but not part of its identity: on resubmission the recorded rule counts.
    pub wake: Wake,
    /// The trace that the request belongs to: spans of its calls continue it, and commands are handed it. Recorded with the
    /// batch, but not part of its identity.
    pub traceparent: Option<TraceParent>,
    /// Whether nobody waits for its calls: their provisional answers are recorded with them, before any of
    /// them starts.
    pub unattended: bool,
    /// Whether the deadlines of tasks hold for its calls from their start: its caller answers somebody else before they end, as a door
    /// does. Recorded with the batch, but not part of its identity.
    pub task_deadlines: bool,
}

/// One call of a batch.
///
/// ```
/// use windlass::{Args, CallRequest, Deadlines};
///
/// let call = CallRequest {
///     id: Some("c1".into()),
///     tool: "weather".into(),
///     // The text as the model wrote it: small mistakes are repaired, and the answer says which.
///     args: Args::Text(r#"{"city": "Bergen",}"#.into()),
///     deadlines: Deadlines { total_ms: Some(5_000), ..Deadlines::default() },
///     ..CallRequest::default()
/// };
/// ```
#[derive(Clone, Debug, Default)]
pub struct CallRequest {
    /// The model's id of the call; generated if absent, and then the batch's key cannot be derived.
    pub id: Option<String>,
    /// The tool's name or stable id; empty where the grant says it.
    pub tool: String,
    /// Its arguments.
    pub args: Args,
    /// Opaque data of the model's provider, returned with the answer.
    pub provider: Option<ProviderData>,
    /// Its deadlines: shorter than its tool's, never longer.
    pub deadlines: Deadlines,
    /// Higher starts before lower, among calls of a session that do not collide; 0 by default.
    pub priority: i8,
    /// How long its caller waits for it once it runs, in milliseconds, if its tool may continue in the
    /// background; 0 starts it there.
    pub inline_ms: Option<u64>,
    /// How long the model's view of it may be: less or more than its tool, its session and the limits say.
    pub answer: AnswerBudget,
    /// The token of the grant by which it is made: then the tool is the one that the grant is for, also if the session does not have
    /// it. Not part of its identity; the token is recorded nowhere.
    pub grant: Option<GrantToken>,
    /// Starts it as a task, if its tool may continue in the background: nobody waits for it.
    pub task: Option<NewTask>,
    /// The observer of what it makes, beside that of its batch. Not recorded; the first one counts.
    pub observer: Option<Observer>,
}

/// How to start a call as a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTask {
    /// Its title for people; the title of its tool by default.
    pub title: Option<String>,
    /// When its session gets a notice.
    pub wake: Wake,
    /// Words by which programs and people find it.
    pub tags: Vec<String>,
}

/// Opaque data of a model's provider, such as a thought signature: a JSON text stored and returned byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderData(Result<Box<str>, Box<json::JsonProblem>>);

impl ProviderData {
    /// Takes a JSON text as written.
    pub fn written(text: impl Into<Box<str>>) -> ProviderData {
        ProviderData(Ok(text.into()))
    }
}

/// As compact text.
impl From<Value> for ProviderData {
    fn from(value: Value) -> ProviderData {
        let mut text = String::new();
        // Serializing or dropping a too deeply nested value the usual way would overflow the stack.
        match json::write_result(&value, &Limits::default().args(), &mut text) {
            Ok(_) => ProviderData(Ok(text.into())),
            Err(problem) => {
                json::dismantle(value);
                ProviderData(Err(Box::new(problem)))
            }
        }
    }
}

/// Arguments of a call.
#[derive(Clone, Debug)]
pub enum Args {
    /// Parsed.
    Json(Value),
    /// The raw text of the model.
    Text(String),
}

impl Default for Args {
    fn default() -> Args {
        Args::Json(Value::Null)
    }
}

/// A call in its recorded form, with its arguments moved in.
pub(crate) struct RecordedRequest {
    pub(crate) opened: Opened,
    pub(crate) args: Option<Result<Parsed, json::JsonProblem>>,
    /// Its place in the batch, once it has one.
    pub(crate) ordinal: Ordinal,
    /// The loop it belongs to, if that was found.
    pub(crate) goes_on_with: Option<Loop>,
}

/// Arguments that need not be parsed again.
pub(crate) struct Parsed {
    pub(crate) value: Value,
    pub(crate) size: Size,
}

/// Capacity for the id and the arguments of most calls.
const TEXT_BYTES: usize = 128;

/// Checks the shape of a batch. A mistake in one call's arguments is that call's own failure, not the batch's.
pub(crate) fn check(mut request: BatchRequest, limits: &EnforcedLimits) -> Result<ShapedBatch, BatchError> {
    let count = request.calls.len() as u64;
    if count > limits.batch_calls_max {
        return shape(format!(
            "the batch has {count} calls and may have {}; submit it in parts",
            limits.batch_calls_max
        ));
    }
    if let Some(key) = &request.key {
        check_text(format_args!("the batch's key"), key, limits.batch_key_chars_max)?;
        let reserved = [
            (INSIDE, "those of nested calls"),
            (BY_SCHEDULE, "what schedules start"),
            (BY_TRIGGER, "what events start"),
        ];
        if let Some((prefix, whose)) = reserved.into_iter().find(|(prefix, _)| key.starts_with(prefix)) {
            return shape(format!(
                "the batch's key begins with {prefix:?}, as only {whose} do; give it another"
            ));
        }
    }
    if let Some(turn) = &request.turn {
        check_text(format_args!("the batch's turn"), turn, limits.batch_key_chars_max)?;
    }
    let ids_given = request.calls.iter().all(|call| call.id.is_some());
    let mut calls: Vec<RecordedRequest> = Vec::with_capacity(request.calls.len());
    let mut texts = Packing::with_capacity(TEXT_BYTES * request.calls.len());
    for (place, call) in request.calls.iter_mut().enumerate() {
        // The calls of a turn often use one tool: its name is shared.
        let tool = match calls.last() {
            Some(last) if *last.opened.tool == *call.tool => last.opened.tool.clone(),
            _ => recorded_name(&call.tool, limits),
        };
        ask(place, tool, call, limits, &mut calls, &mut texts)?;
    }
    texts.finish(calls.iter_mut().flat_map(|asked| [&mut asked.opened.id, &mut asked.opened.args.text]));
    let inputs = request.inputs.map(|inputs| checked_inputs(inputs, limits)).transpose()?;
    let observers = observers_of(&request.calls);
    let BatchRequest { key, turn, overlay, observer, siblings, wake, unattended, .. } = request;
    let BatchRequest { traceparent, task_deadlines, .. } = request;
    if siblings == Siblings::Quorum(0) {
        return shape(
            "a quorum needs at least 1 call; leave `siblings` out if none has to succeed".to_string(),
        );
    }
    Ok(ShapedBatch {
        key,
        turn,
        ids_given,
        calls,
        inputs,
        overlay,
        observer,
        observers,
        siblings,
        wake,
        unattended,
        task_deadlines,
        streamed: false,
        kept: false,
        parent: None,
        trace: BatchTrace::inside(traceparent),
    })
}

/// The observers of single calls, by their ids.
fn observers_of(calls: &[CallRequest]) -> Vec<(String, Observer)> {
    let observed = calls.iter().enumerate().filter_map(|(place, call)| {
        let observer = call.observer.clone()?;
        Some((call.id.clone().unwrap_or_else(|| format!("call-{}", place + 1)), observer))
    });
    observed.collect()
}

/// A batch with a valid shape.
pub(crate) struct ShapedBatch {
    pub(crate) key: Option<String>,
    pub(crate) turn: Option<String>,
    pub(crate) ids_given: bool,
    pub(crate) calls: Vec<RecordedRequest>,
    pub(crate) inputs: Option<Map<String, Value>>,
    pub(crate) overlay: Option<Arc<Overlay>>,
    pub(crate) observer: Option<Observer>,
    /// The observers of single calls, by their ids.
    pub(crate) observers: Vec<(String, Observer)>,
    pub(crate) siblings: Siblings,
    pub(crate) wake: Wake,
    pub(crate) unattended: bool,
    pub(crate) task_deadlines: bool,
    pub(crate) streamed: bool,
    /// Driven by whoever waits for its calls.
    pub(crate) kept: bool,
    /// The call that makes it, if it is nested.
    pub(crate) parent: Option<Parent>,
    pub(crate) trace: BatchTrace,
}

impl ShapedBatch {
    /// Whether enough of its calls can succeed. Checked for a new batch: for a recorded one the recorded rule
    /// counts.
    pub(crate) fn check_quorum(&self, limits: &EnforcedLimits) -> Result<(), BatchError> {
        let Siblings::Quorum(needed) = self.siblings else { return Ok(()) };
        let ids: BTreeSet<&str> = self.calls.iter().map(|asked| &*asked.opened.id).collect();
        // The number of pushed calls is not known: at most as many as a batch may have.
        let calls = if self.streamed { limits.batch_calls_max } else { ids.len() as u64 };
        if u64::from(needed) <= calls {
            return Ok(());
        }
        shape(format!("a quorum of {needed} cannot be reached by {calls} calls; ask for {calls} or fewer"))
    }
}

/// A tool's name in recorded form. A name that no tool can have is that call's failure, not the batch's; a
/// long one is cut, with a hash of the whole, so that the identity of the call stays the same.
fn recorded_name(tool: &str, limits: &EnforcedLimits) -> Arc<str> {
    let max = usize::try_from(limits.call_id_chars_max).unwrap_or(usize::MAX);
    if tool.len() <= max && is_plain(tool) {
        return tool.into();
    }
    match tool.char_indices().nth(max) {
        // The name is shown in tables and logs.
        None if tool.contains(char::is_control) => tool.escape_default().to_string().into(),
        None => tool.into(),
        Some((end, _)) => {
            let hash = blake3::hash(tool.as_bytes()).to_hex();
            format!("{}… ({} bytes with the hash {hash})", tool[..end].escape_default(), tool.len()).into()
        }
    }
}

/// Adds a call and its texts to the batch. They are taken out of the request, which is too large to be moved.
fn ask(
    place: usize,
    tool: Arc<str>,
    call: &mut CallRequest,
    limits: &EnforcedLimits,
    calls: &mut Vec<RecordedRequest>,
    texts: &mut Packing,
) -> Result<(), BatchError> {
    let id = match &call.id {
        Some(id) => {
            check_text(format_args!("calls[{place}].id"), id, limits.call_id_chars_max)?;
            texts.push(id)
        }
        None => texts.push(&format!("call-{}", place + 1)),
    };
    let (args, value) = arguments(std::mem::take(&mut call.args), limits, texts);
    let provider = call.provider.take().map(|data| opaque(place, data, limits)).transpose()?;
    if let Some(zero) = zero_of(&call.deadlines) {
        return shape(format!(
            "calls[{place}].{zero} is 0, which leaves no time at all; leave it out, or say how long"
        ));
    }
    let deadlines = (!call.deadlines.is_empty()).then(|| Box::new(call.deadlines));
    let task = call.task.take().map(|task| detached(place, task, limits)).transpose()?;
    let answer = (!call.answer.is_empty()).then(|| Box::new(call.answer));
    if let Some(Err(problem)) = answer.as_deref().map(|answer| answer.check(limits.call())) {
        return shape(format!("calls[{place}]: {problem}"));
    }
    let grant = call.grant.take().map(|token| Box::new(GrantId::of(&token)));
    let CallRequest { priority, inline_ms, .. } = *call;
    let opened = Opened { id, tool, args, provider, deadlines, priority, inline_ms, task, answer, grant };
    calls.push(RecordedRequest { opened, args: value, ordinal: Ordinal(0), goes_on_with: None });
    Ok(())
}

fn detached(place: usize, task: NewTask, limits: &EnforcedLimits) -> Result<Box<Detached>, BatchError> {
    if let Some(title) = &task.title {
        check_text(format_args!("calls[{place}].task.title"), title, limits.title_chars_max)?;
        if title.trim().is_empty() {
            return shape(format!("calls[{place}].task.title is blank; leave it out, or name the task"));
        }
    }
    let NewTask { title, wake, tags } = task;
    check_tags(place, &tags, limits)?;
    let title = title.map(Into::into);
    let by = DetachedBy::Spawned;
    Ok(Box::new(Detached { by, wake, title, starter: None, depth: 0, budget_ms: None, tags }))
}

fn check_tags(place: usize, tags: &[String], limits: &EnforcedLimits) -> Result<(), BatchError> {
    let max = limits.task_tags_max;
    if tags.len() as u64 > max {
        return shape(format!("calls[{place}].task.tags has {} words and may have {max}", tags.len()));
    }
    for tag in tags {
        check_text(format_args!("calls[{place}].task.tags"), tag, limits.title_chars_max)?;
        if tag.trim().is_empty() {
            return shape(format!("calls[{place}].task.tags has a blank word; leave it out"));
        }
    }
    Ok(())
}

/// Opaque data, if it is not too large.
fn opaque(
    place: usize,
    ProviderData(text): ProviderData,
    limits: &EnforcedLimits,
) -> Result<Arc<str>, BatchError> {
    let max = limits.args_bytes_max;
    let text = match text {
        Ok(text) => text,
        Err(problem) => return shape(format!("calls[{place}].provider cannot be kept: {problem}")),
    };
    if text.len() as u64 > max {
        return shape(format!("calls[{place}].provider has {} bytes and may have {max}", text.len()));
    }
    // It is part of every answer with this call, and must not make one that cannot be parsed.
    let is_read = serde_json::from_str::<Value>(&text).map_err(|error| error.to_string());
    let fits = is_read.and_then(|value| {
        json::measure(&value, limits.args()).map(drop).map_err(|problem| problem.to_string())
    });
    match fits {
        Ok(()) => Ok(text.into()),
        Err(problem) => shape(format!("calls[{place}].provider cannot be kept: {problem}")),
    }
}

/// The host's inputs, if they can be stored.
fn checked_inputs(
    inputs: Map<String, Value>,
    limits: &EnforcedLimits,
) -> Result<Map<String, Value>, BatchError> {
    let inputs = Value::Object(inputs);
    match (json::measure(&inputs, limits.args()), inputs) {
        (Ok(_), Value::Object(inputs)) => Ok(inputs),
        (Ok(_), _) => Ok(Map::new()),
        (Err(problem), inputs) => {
            json::dismantle(inputs);
            shape(format!("the batch's inputs cannot be stored: {problem}"))
        }
    }
}

/// The host's inputs in recorded form.
pub(crate) fn inputs_text(inputs: &Map<String, Value>) -> Arc<str> {
    serde_json::to_string(inputs).unwrap_or_default().into()
}

/// The host's inputs from the record. They were checked when recorded, so today's limits do not apply.
pub(crate) fn recorded_inputs(opening: &Opening) -> Result<Option<Map<String, Value>>, SessionError> {
    let Some(text) = &opening.inputs else { return Ok(None) };
    let limits = ArgLimits {
        args_bytes_max: u64::MAX,
        args_depth_max: u64::MAX,
        json_memory_bytes_max: u64::MAX,
        ..ArgLimits::default()
    };
    match json::parse(text, &limits) {
        Ok(Value::Object(inputs)) => Ok(Some(inputs)),
        Ok(_) => Err(SessionError::unreadable(format!("the inputs of the batch {:?}", opening.key))),
        Err(problem) => {
            Err(SessionError::undecodable(format!("the inputs of the batch {:?}", opening.key), problem))
        }
    }
}

fn arguments(
    args: Args,
    limits: &EnforcedLimits,
    texts: &mut Packing,
) -> (Arguments, Option<Result<Parsed, json::JsonProblem>>) {
    let value = match args {
        Args::Text(text) if text.len() as u64 > limits.args_bytes_max => return too_large(&text, limits),
        Args::Text(text) => return (Arguments { given: Given::Text, text: texts.push(&text) }, None),
        Args::Json(Value::Null) => Value::Object(Map::new()),
        Args::Json(value) => value,
    };
    match texts.write(|text| json::write(&value, limits.args(), text)) {
        Ok((text, size)) => (Arguments { given: Given::Json, text }, Some(Ok(Parsed { value, size }))),
        // Serializing or dropping it the usual way would recurse as deep as it is. The recorded substitute is
        // not JSON, so that the call also fails if it is prepared again after a crash.
        Err(problem) => {
            json::dismantle(value);
            (Arguments { given: Given::Text, text: problem.to_string().into() }, Some(Err(problem)))
        }
    }
}

/// Text too large to store is identified by its hash, so that the identity of the call stays the same.
fn too_large(text: &str, limits: &EnforcedLimits) -> (Arguments, Option<Result<Parsed, json::JsonProblem>>) {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    let kept = format!("(not kept: {} bytes of arguments with the hash {hash})", text.len());
    let problem = json::parse(text, limits.args()).map(|_| None).unwrap_or_else(Some);
    (Arguments { given: Given::Text, text: kept.into() }, problem.map(Err))
}

fn check_text(what: fmt::Arguments<'_>, text: &str, max: u64) -> Result<(), BatchError> {
    if is_plain(text) && !text.is_empty() && text.len() as u64 <= max {
        return Ok(());
    }
    let chars = text.chars().count() as u64;
    if chars == 0 || chars > max {
        return shape(format!("{what} has {chars} characters and must have 1 to {max}"));
    }
    if let Some(bad) = text.chars().find(|letter| letter.is_control()) {
        return shape(format!("{what} must be printable and has {bad:?}"));
    }
    Ok(())
}

/// Whether it is printable ASCII.
fn is_plain(text: &str) -> bool {
    // To the end, though one decides: a loop without a way out is compiled to few instructions.
    text.bytes().fold(true, |plain, byte| plain & (b' '..=b'~').contains(&byte))
}

/// Checks the name of a session.
pub fn check_session_name(name: &str) -> Result<(), SessionError> {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    if fits {
        return Ok(());
    }
    Err(SessionError::Shape {
        what: format!("a session is named by 1 to 64 of a-z, A-Z, 0-9, _, . and -; {name:?} is not"),
    })
}

fn shape<T>(what: String) -> Result<T, BatchError> {
    Err(BatchError::Shape { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_arguments_are_an_empty_object() {
        let limits = EnforcedLimits::default();
        let mut texts = Packing::default();
        let (mut recorded, parsed) = arguments(Args::default(), &limits, &mut texts);
        texts.finish([&mut recorded.text].into_iter());
        assert_eq!(&*recorded.text, "{}");
        assert_eq!(parsed.unwrap().unwrap().value, serde_json::json!({}));
    }
}
