//! A batch as it is written: in the body of a request, and in the files of `windlass run`.

use crate::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use windlass::core::json;
use windlass::core::limits::Limits;
use windlass::{Args, BatchRequest, CallRequest, Deadlines, NewTask, Siblings, StreamRequest, Wake};

/// The calls of one model turn.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BatchRequest")]
pub struct Batch {
    /// What makes it one batch, however often it is sent; derived from the calls if every one has an id, else made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The turn of the conversation; goes into a derived key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The calls, in order.
    pub calls: Vec<Call>,
    /// What becomes of the other calls when one ends.
    #[serde(default)]
    #[schemars(with = "SiblingsShape")]
    pub siblings: Siblings,
    /// What the host attaches for tools and hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub inputs: Option<Box<RawValue>>,
    /// For what the answer waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// How long the answer waits at most, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// For what the answer to a batch waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Until every call has ended.
    Settled,
    /// Until every call has ended, or waits for somebody outside.
    #[default]
    Inline,
    /// For nothing: the calls are recorded.
    None,
}

/// One call of a batch.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CallRequest")]
pub struct Call {
    /// The model's id of the call: 1 to 128 printable characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool's name or stable id.
    pub tool: String,
    /// Its arguments: an object, or the raw text of the model. As written: it is read by our own rules, so that no
    /// nesting, key or number is lost or refused on the way, and what is wrong with it is that call's own failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ArgsShape>")]
    pub args: Option<Box<RawValue>>,
    /// Opaque data of the model's provider, returned with the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub provider: Option<Box<RawValue>>,
    /// How long it may take: shorter than its tool says, never longer.
    #[serde(default)]
    pub deadlines: CallDeadlines,
    /// Higher starts before lower, among calls of a session that do not collide.
    #[serde(default)]
    pub priority: i8,
    /// How long the answer waits for it once it runs, in milliseconds, if its tool may go on in the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline_ms: Option<u64>,
    /// Starts it as a task, if its tool may go on in the background: the answer does not wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<StartTask>,
}

/// How a call is started as a task.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartTask {
    /// What people call it; the tool's name unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When its session is told of it: `on_end` unless given.
    #[serde(default)]
    pub wake: WakeOn,
}

/// When a session is told of a task.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WakeOn {
    /// Never.
    Silent,
    /// When it has ended.
    #[default]
    OnEnd,
    /// Also when it asks or says something.
    OnActivity,
}

impl From<StartTask> for NewTask {
    fn from(task: StartTask) -> NewTask {
        let wake = match task.wake {
            WakeOn::Silent => Wake::Silent,
            WakeOn::OnEnd => Wake::OnEnd,
            WakeOn::OnActivity => Wake::OnActivity,
        };
        NewTask { title: task.title, wake }
    }
}

/// How long a call may take, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "each is named like the deadline; docs/attempts.md tells them apart")]
pub struct CallDeadlines {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_ms: Option<u64>,
}

/// More calls of a batch whose calls come one after the other.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PushRequest")]
pub struct Push {
    /// The turn of the conversation; that of the first push counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The calls, each with an id.
    pub calls: Vec<Call>,
    /// What becomes of the other calls when one ends; that of the first push counts.
    #[serde(default)]
    #[schemars(with = "SiblingsShape")]
    pub siblings: Siblings,
    /// What the host attaches for tools and hooks; those of the first push count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub inputs: Option<Box<RawValue>>,
    /// For what the answer waits; `none` if not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// How long the answer waits at most, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The end of a batch whose calls come one after the other.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CloseRequest")]
pub struct Close {
    /// For what the answer waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Wait>,
    /// How long the answer waits at most, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl Batch {
    /// Reads a batch. What it says of waiting is its reader's business.
    pub fn request(self, limits: &Limits) -> Result<BatchRequest, Problem> {
        let inputs = inputs(self.inputs.as_deref(), limits)?;
        let calls = requests(self.calls, limits)?;
        let Batch { key, turn, siblings, .. } = self;
        Ok(BatchRequest { key, turn, inputs, calls, siblings, overlay: None, observer: None })
    }
}

impl Push {
    /// The batch that these calls belong to, and the calls.
    pub fn request(self, key: String, limits: &Limits) -> Result<(StreamRequest, Vec<CallRequest>), Problem> {
        let inputs = inputs(self.inputs.as_deref(), limits)?;
        let calls = requests(self.calls, limits)?;
        let Push { turn, siblings, .. } = self;
        Ok((StreamRequest { key, turn, siblings, inputs, overlay: None }, calls))
    }
}

fn requests(calls: Vec<Call>, limits: &Limits) -> Result<Vec<CallRequest>, Problem> {
    calls.into_iter().enumerate().map(|(place, call)| request(place, call, limits)).collect()
}

fn request(place: usize, call: Call, limits: &Limits) -> Result<CallRequest, Problem> {
    let CallDeadlines { queue_ms, attempt_ms, silence_ms, total_ms } = call.deadlines;
    let provider = call.provider.map(|data| {
        json::parse(data.get(), limits)
            .map_err(|problem| wrong(format!("calls[{place}].provider cannot be kept: {problem}")))
    });
    Ok(CallRequest {
        id: call.id,
        tool: call.tool,
        args: call.args.map_or_else(Args::default, |args| arguments(args.get(), limits)),
        provider: provider.transpose()?,
        deadlines: Deadlines { queue_ms, attempt_ms, silence_ms, total_ms },
        priority: call.priority,
        inline_ms: call.inline_ms,
        task: call.task.map(NewTask::from),
    })
}

/// An object is the arguments; a string is the raw text a model wrote. What our rules refuse stays text, and is
/// refused with its reason when the call is prepared.
fn arguments(written: &str, limits: &Limits) -> Args {
    match json::parse(written, limits) {
        Ok(Value::String(text)) => Args::Text(text),
        Ok(value) => Args::Json(value),
        Err(_) => Args::Text(serde_json::from_str(written).unwrap_or_else(|_| written.to_string())),
    }
}

fn inputs(written: Option<&RawValue>, limits: &Limits) -> Result<Option<Map<String, Value>>, Problem> {
    let Some(written) = written else { return Ok(None) };
    match json::parse(written.get(), limits) {
        Ok(Value::Object(inputs)) => Ok(Some(inputs)),
        Ok(_) => Err(wrong("the batch's inputs must be a JSON object".to_string())),
        Err(problem) => Err(wrong(format!("the batch's inputs cannot be kept: {problem}"))),
    }
}

fn wrong(what: String) -> Problem {
    Problem::new("bad_batch", what)
}

/// Arguments, for whoever reads the description of the API.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes what is read by our own rules")]
enum ArgsShape {
    /// The arguments.
    Object(Map<String, Value>),
    /// The raw text that the model wrote.
    Text(String),
}

/// What becomes of the other calls when one ends, for whoever reads the description of the API.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Siblings")]
#[expect(dead_code, reason = "it only describes what the runtime reads")]
enum SiblingsShape {
    /// Nothing.
    Independent,
    /// The first that fails cancels all others.
    FailFast,
    /// The first that succeeds cancels all others.
    Race,
    /// So many must succeed; once that is so, or cannot be any more, all others are cancelled.
    Quorum(u32),
}
