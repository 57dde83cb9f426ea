//! What a caller submits, and the checks that refuse a batch as a whole.

use crate::error::BatchError;
use crate::inside::nested::KEY_PREFIX;
use crate::observer::Observer;
use crate::registry::zero_of;
use crate::schedules;
use crate::scope::Overlay;
use crate::triggers;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use windlass_core::attempt::Deadlines;
use windlass_core::batch::{Opening, Parent};
use windlass_core::call::{Arguments, Detached, DetachedBy, Given, Opened, Wake};
use windlass_core::json::{self, Size};
use windlass_core::limits::Limits;
use windlass_core::siblings::Siblings;
use windlass_core::text::Packing;

/// The calls of one model turn.
#[derive(Clone, Debug, Default)]
pub struct BatchRequest {
    /// What makes it one batch, however often it is submitted; derived or made if absent.
    pub key: Option<String>,
    /// The turn of the conversation; goes into a derived key.
    pub turn: Option<String>,
    /// The calls, in order.
    pub calls: Vec<CallRequest>,
    /// What the host attaches for tools and hooks: the user, the locale, a workspace. Recorded with the batch and no
    /// part of what it is: of a batch that is submitted again the recorded ones count.
    pub inputs: Option<Map<String, Value>>,
    /// Tools for this batch alone, above those of its session. Not recorded: a batch that was left open gets its
    /// overlay back by being submitted again. The first one given counts.
    pub overlay: Option<Arc<Overlay>>,
    /// Who is told of what its calls start inside. Not recorded; the first one given counts.
    pub observer: Option<Observer>,
    /// What becomes of the other calls when one ends. Recorded with the batch and no part of what it is: of a batch that
    /// is submitted again the recorded one counts.
    pub siblings: Siblings,
}

/// One call of a batch.
#[derive(Clone, Debug, Default)]
pub struct CallRequest {
    /// The model's id of the call; made if absent, and then the batch's key cannot be derived.
    pub id: Option<String>,
    /// The tool's name or stable id.
    pub tool: String,
    /// Its arguments.
    pub args: Args,
    /// Opaque data of the model's provider, returned with the answer.
    pub provider: Option<Value>,
    /// How long it may take: shorter than its tool says, never longer.
    pub deadlines: Deadlines,
    /// Higher starts before lower, among calls of a session that do not collide; 0 unless given.
    pub priority: i8,
    /// How long its caller waits for it once it runs, in milliseconds, if its tool may go on in the background; 0 starts it
    /// there.
    pub inline_ms: Option<u64>,
    /// Starts it as a task, if its tool may go on in the background: nobody waits for it.
    pub task: Option<NewTask>,
}

/// How a call is started as a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewTask {
    /// What people call it; the title of its tool unless given.
    pub title: Option<String>,
    /// When its session is told of it.
    pub wake: Wake,
}

/// Arguments of a call.
#[derive(Clone, Debug)]
pub enum Args {
    /// Parsed.
    Json(Value),
    /// The raw text the model wrote.
    Text(String),
}

impl Default for Args {
    fn default() -> Args {
        Args::Json(Value::Null)
    }
}

/// A call as it will be recorded, with its arguments as they were moved in.
pub(crate) struct Asked {
    pub(crate) opened: Opened,
    pub(crate) args: Option<Result<Parsed, json::Problem>>,
}

/// Arguments that need not be parsed again.
pub(crate) struct Parsed {
    pub(crate) value: Value,
    pub(crate) size: Size,
}

/// Room for the id and the arguments of most calls.
const TEXT_BYTES: usize = 128;

/// Checks the shape of a batch. What is wrong with one call's arguments is that call's own failure, not the batch's.
pub(crate) fn check(request: BatchRequest, limits: &Limits) -> Result<Checked, BatchError> {
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
            (KEY_PREFIX, "those of nested calls"),
            (schedules::KEY_PREFIX, "what schedules start"),
            (triggers::KEY_PREFIX, "what events start"),
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
    let mut calls: Vec<Asked> = Vec::with_capacity(request.calls.len());
    let mut texts = Packing::with_capacity(TEXT_BYTES * request.calls.len());
    for (place, call) in request.calls.into_iter().enumerate() {
        // The calls of a turn often go to one tool: its name is kept once.
        let tool = match calls.last() {
            Some(last) if *last.opened.tool == *call.tool => last.opened.tool.clone(),
            _ => {
                check_text(format_args!("calls[{place}].tool"), &call.tool, limits.call_id_chars_max)?;
                call.tool.as_str().into()
            }
        };
        ask((place, tool), call, limits, (&mut calls, &mut texts))?;
    }
    texts.finish(calls.iter_mut().flat_map(|asked| [&mut asked.opened.id, &mut asked.opened.args.text]));
    let inputs = request.inputs.map(|inputs| checked_inputs(inputs, limits)).transpose()?;
    let BatchRequest { key, turn, overlay, observer, siblings, .. } = request;
    if siblings == Siblings::Quorum(0) {
        return shape(
            "a quorum needs at least 1 call; leave `siblings` out if none has to succeed".to_string(),
        );
    }
    let (streamed, parent) = (false, None);
    Ok(Checked { key, turn, ids_given, calls, inputs, overlay, observer, siblings, streamed, parent })
}

/// A batch whose shape is right.
pub(crate) struct Checked {
    pub(crate) key: Option<String>,
    pub(crate) turn: Option<String>,
    pub(crate) ids_given: bool,
    pub(crate) calls: Vec<Asked>,
    pub(crate) inputs: Option<Map<String, Value>>,
    pub(crate) overlay: Option<Arc<Overlay>>,
    pub(crate) observer: Option<Observer>,
    pub(crate) siblings: Siblings,
    pub(crate) streamed: bool,
    /// The call inside which its calls run, if they do.
    pub(crate) parent: Option<Parent>,
}

impl Checked {
    /// Whether so many of its calls can succeed as have to. Asked of a batch that is new: of one that is recorded what
    /// it asked then counts.
    pub(crate) fn check_quorum(&self, limits: &Limits) -> Result<(), BatchError> {
        let Siblings::Quorum(needed) = self.siblings else { return Ok(()) };
        let ids: BTreeSet<&str> = self.calls.iter().map(|asked| &*asked.opened.id).collect();
        // How many will be pushed is not known: at most as many as a batch may have.
        let calls = if self.streamed { limits.batch_calls_max } else { ids.len() as u64 };
        if u64::from(needed) <= calls {
            return Ok(());
        }
        shape(format!("a quorum of {needed} cannot be reached by {calls} calls; ask for {calls} or fewer"))
    }
}

/// Adds a call and its texts to those before it.
fn ask(
    (place, tool): (usize, Arc<str>),
    call: CallRequest,
    limits: &Limits,
    (calls, texts): (&mut Vec<Asked>, &mut Packing),
) -> Result<(), BatchError> {
    let id = match call.id {
        Some(id) => {
            check_text(format_args!("calls[{place}].id"), &id, limits.call_id_chars_max)?;
            texts.push(&id)
        }
        None => texts.push(&format!("call-{}", place + 1)),
    };
    let (args, value) = arguments(call.args, limits, texts);
    let provider = call.provider.map(|data| opaque(place, data, limits)).transpose()?;
    if let Some(zero) = zero_of(&call.deadlines) {
        return shape(format!(
            "calls[{place}].{zero} is 0, which leaves no time at all; leave it out, or say how long"
        ));
    }
    let deadlines = (!call.deadlines.is_empty()).then(|| Box::new(call.deadlines));
    let task = call.task.map(|task| detached(place, task, limits)).transpose()?;
    let CallRequest { priority, inline_ms, .. } = call;
    let opened = Opened { id, tool, args, provider, deadlines, priority, inline_ms, task };
    calls.push(Asked { opened, args: value });
    Ok(())
}

fn detached(place: usize, task: NewTask, limits: &Limits) -> Result<Box<Detached>, BatchError> {
    if let Some(title) = &task.title {
        check_text(format_args!("calls[{place}].task.title"), title, limits.title_chars_max)?;
    }
    let NewTask { title, wake } = task;
    let title = title.map(Into::into);
    Ok(Box::new(Detached { by: DetachedBy::Spawned, wake, title, starter: None, depth: 0 }))
}

/// Data that is kept and returned as it came, as far as it can be kept.
fn opaque(place: usize, data: Value, limits: &Limits) -> Result<Arc<str>, BatchError> {
    match json::measure(&data, limits) {
        Ok(_) => Ok(data.to_string().into()),
        Err(problem) => {
            json::dismantle(data);
            shape(format!("calls[{place}].provider cannot be kept: {problem}"))
        }
    }
}

/// What the host attached, if it can be kept.
fn checked_inputs(inputs: Map<String, Value>, limits: &Limits) -> Result<Map<String, Value>, BatchError> {
    let inputs = Value::Object(inputs);
    match (json::measure(&inputs, limits), inputs) {
        (Ok(_), Value::Object(inputs)) => Ok(inputs),
        (Ok(_), _) => Ok(Map::new()),
        (Err(problem), inputs) => {
            json::dismantle(inputs);
            shape(format!("the batch's inputs cannot be kept: {problem}"))
        }
    }
}

/// What the host attached, as it is recorded.
pub(crate) fn inputs_text(inputs: &Map<String, Value>) -> Arc<str> {
    serde_json::to_string(inputs).unwrap_or_default().into()
}

/// What the host attached, from the record. It was measured when it was recorded, so today's limits do not count.
pub(crate) fn recorded_inputs(opening: &Opening) -> Result<Option<Map<String, Value>>, BatchError> {
    let Some(text) = &opening.inputs else { return Ok(None) };
    let limits = Limits { args_bytes_max: u64::MAX, args_depth_max: u64::MAX, ..Limits::default() };
    match json::parse(text, &limits) {
        Ok(Value::Object(inputs)) => Ok(Some(inputs)),
        _ => Err(BatchError::Unreadable { what: format!("the inputs of the batch {:?}", opening.key) }),
    }
}

fn arguments(
    args: Args,
    limits: &Limits,
    texts: &mut Packing,
) -> (Arguments, Option<Result<Parsed, json::Problem>>) {
    let value = match args {
        Args::Text(text) if text.len() as u64 > limits.args_bytes_max => return too_large(&text, limits),
        Args::Text(text) => return (Arguments { given: Given::Text, text: texts.push(&text) }, None),
        Args::Json(Value::Null) => Value::Object(Map::new()),
        Args::Json(value) => value,
    };
    match texts.write(|text| json::write(&value, limits, text)) {
        Ok((text, size)) => (Arguments { given: Given::Json, text }, Some(Ok(Parsed { value, size }))),
        // Writing or dropping it the usual way would recurse as deep as it is. What is recorded in its place is
        // no JSON, so that the call also fails if it is prepared again after a crash.
        Err(problem) => {
            json::dismantle(value);
            (Arguments { given: Given::Text, text: problem.to_string().into() }, Some(Err(problem)))
        }
    }
}

/// Text that is too large to be kept is known by its hash, so that the same call is still the same.
fn too_large(text: &str, limits: &Limits) -> (Arguments, Option<Result<Parsed, json::Problem>>) {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    let kept = format!("(not kept: {} bytes of arguments with the hash {hash})", text.len());
    let problem = json::parse(text, limits).map(|_| None).unwrap_or_else(Some);
    (Arguments { given: Given::Text, text: kept.into() }, problem.map(Err))
}

fn check_text(what: fmt::Arguments<'_>, text: &str, max: u64) -> Result<(), BatchError> {
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if is_plain && !text.is_empty() && text.len() as u64 <= max {
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

fn shape<T>(what: String) -> Result<T, BatchError> {
    Err(BatchError::Shape { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_arguments_are_an_empty_object() {
        let limits = Limits::default();
        let mut texts = Packing::default();
        let (mut recorded, parsed) = arguments(Args::default(), &limits, &mut texts);
        texts.finish([&mut recorded.text].into_iter());
        assert_eq!(&*recorded.text, "{}");
        assert_eq!(parsed.unwrap().unwrap().value, serde_json::json!({}));
    }
}
