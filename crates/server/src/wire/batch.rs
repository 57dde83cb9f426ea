//! The format of a batch: in request bodies, and in the files of `windlass run`.

use crate::problem::{Problem, ProblemCode};
use schemars::JsonSchema;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use windlass::batch::{ProviderData, Siblings, StreamRequest};
use windlass::grants::GrantToken;
use windlass::tasks::{NewTask, Wake};
use windlass::{AnswerBudget, Args, BatchRequest, CallRequest, Deadlines, Limits};
use windlass_args::json;

/// The calls of one model turn.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "BatchRequest")]
pub struct BatchBody {
    /// Idempotency key of the batch; by default derived from the calls if each has an id, else generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The turn of the conversation; part of a derived key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The calls, in order.
    pub calls: Vec<CallBody>,
    /// How the end of one call affects the others.
    #[serde(default)]
    #[schemars(with = "SiblingsShape")]
    pub siblings: Siblings,
    /// When the session gets a notice of calls that were answered before they had ended: `on_end` by default, `silent`
    /// for never. With `on_activity`, calls that become tasks also send notices of their questions and messages.
    #[serde(default)]
    pub wake: WakeOn,
    /// Data that the host attaches for tools and hooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub inputs: Option<Box<RawValue>>,
    /// How long the answer waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<AnswerWait>,
    /// The maximum wait for the answer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// How long the answer to a batch waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Wait")]
pub enum AnswerWait {
    /// Until every call has ended.
    Settled,
    /// Until every call has ended or waits for an external answer.
    #[default]
    Inline,
    /// Not at all: only until the calls are recorded.
    None,
}

/// One call of a batch.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CallRequest")]
pub struct CallBody {
    /// The model's id of the call: 1 to 128 printable characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool's name or stable id. A call with a grant may leave it out: the grant is for one tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Its arguments: an object, or the raw text of the model. Kept as written and parsed by our own rules, so that no
    /// nesting, key or number is lost or refused on the way, and a mistake is that call's own failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ArgsShape>")]
    pub args: Option<Box<RawValue>>,
    /// Opaque data of the model's provider, returned with the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Value>")]
    pub provider: Option<Box<RawValue>>,
    /// Its deadlines: shorter than its tool's, never longer.
    #[serde(default)]
    pub deadlines: CallDeadlines,
    /// Higher starts before lower, among calls of a session that do not collide.
    #[serde(default)]
    pub priority: i8,
    /// How long the answer waits for it once it runs, in milliseconds, if its tool may continue in the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline_ms: Option<u64>,
    /// How many bytes the model's view of it may have: less or more than its tool, its session and the server say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_bytes_max: Option<u64>,
    /// How many lines the model's view of it may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_lines_max: Option<u64>,
    /// The token of the grant by which it is made: then its tool is the one that the grant is for, also if the session does not have
    /// it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// Starts it as a task, if its tool may continue in the background: the answer does not wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<StartTask>,
}

/// How to start a call as a task.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartTask {
    /// A title for people; the tool's name by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When its session gets a notice: `on_end` by default.
    #[serde(default)]
    pub wake: WakeOn,
    /// Words by which programs and people find it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// When a session gets a notice of a task, or of a call that was answered before it had ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WakeOn {
    /// Never.
    Silent,
    /// When it has ended.
    #[default]
    OnEnd,
    /// Also when it asks a question or sends a message.
    OnActivity,
}

impl From<StartTask> for NewTask {
    fn from(task: StartTask) -> NewTask {
        NewTask { title: task.title, wake: task.wake.into(), tags: task.tags }
    }
}

impl From<WakeOn> for Wake {
    fn from(wake: WakeOn) -> Wake {
        match wake {
            WakeOn::Silent => Wake::Silent,
            WakeOn::OnEnd => Wake::OnEnd,
            WakeOn::OnActivity => Wake::OnActivity,
        }
    }
}

/// Deadlines of a call, in milliseconds.
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

/// More calls of a streamed batch.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PushRequest")]
pub struct Push {
    /// The turn of the conversation; the first push decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The calls, each with an id.
    pub calls: Vec<CallBody>,
    /// How the end of one call affects the others; the first push decides.
    #[serde(default)]
    #[schemars(with = "SiblingsShape")]
    pub siblings: Siblings,
    /// When the session gets a notice of calls that were answered before they had ended; the first push decides.
    #[serde(default)]
    pub wake: WakeOn,
    /// Data that the host attaches for tools and hooks; the first push decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub inputs: Option<Box<RawValue>>,
    /// How long the answer waits; `none` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<AnswerWait>,
    /// The maximum wait for the answer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The end of a streamed batch.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CloseRequest")]
pub struct Close {
    /// How long the answer waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<AnswerWait>,
    /// The maximum wait for the answer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl BatchBody {
    /// Converts the body to a batch. The wait is left to its caller.
    pub fn request(self, limits: &Limits) -> Result<BatchRequest, Problem> {
        let inputs = inputs(self.inputs.as_deref(), limits)?;
        let calls = requests(self.calls, limits)?;
        let unattended = self.wait == Some(AnswerWait::None);
        let BatchBody { key, turn, siblings, wake, .. } = self;
        let wake = wake.into();
        let batch = BatchRequest { key, turn, inputs, calls, siblings, wake, ..BatchRequest::default() };
        Ok(BatchRequest { unattended, ..batch })
    }
}

impl Push {
    /// Converts the body to the batch's request and its calls.
    pub fn request(self, key: String, limits: &Limits) -> Result<(StreamRequest, Vec<CallRequest>), Problem> {
        let inputs = inputs(self.inputs.as_deref(), limits)?;
        let calls = requests(self.calls, limits)?;
        let Push { turn, siblings, wake, .. } = self;
        let wake = wake.into();
        Ok((StreamRequest { key, turn, siblings, inputs, wake, ..StreamRequest::default() }, calls))
    }
}

/// Stops at the first call above the limit, before anything is allocated for it. All other mistakes are found
/// by the full parser.
pub fn count_calls(text: &str, limits: &Limits) -> Result<(), Problem> {
    let (max, too_many) = (limits.batch_calls_max, Cell::new(false));
    let mut reader = serde_json::Deserializer::from_str(text);
    let _ = CountedCalls { max, too_many: &too_many }.deserialize(&mut reader);
    if too_many.get() {
        return Err(wrong(format!(
            "the batch has more than {max} calls, which is the most; submit it in parts"
        )));
    }
    Ok(())
}

/// The object of a batch or a push, of which only the calls are counted.
struct CountedCalls<'a> {
    max: u64,
    too_many: &'a Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for CountedCalls<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for CountedCalls<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with calls")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match &*key {
                "calls" => map.next_value_seed(CountedItems { max: self.max, too_many: self.too_many })?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A list whose items are counted.
struct CountedItems<'a> {
    max: u64,
    too_many: &'a Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for CountedItems<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for CountedItems<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of calls")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let mut count = 0;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
            if count > self.max {
                self.too_many.set(true);
                return Err(A::Error::custom("too many calls"));
            }
        }
        Ok(())
    }
}

fn requests(calls: Vec<CallBody>, limits: &Limits) -> Result<Vec<CallRequest>, Problem> {
    let unnamed = calls.iter().position(|call| call.tool.is_none() && call.grant.is_none());
    if let Some(place) = unnamed {
        let told =
            format!("calls[{place}]: missing field `tool`; name the tool, or give the grant that is for it");
        return Err(Problem::new(ProblemCode::BadBody, told));
    }
    Ok(calls.into_iter().map(|call| request(call, limits)).collect())
}

fn request(call: CallBody, limits: &Limits) -> CallRequest {
    let CallDeadlines { queue_ms, attempt_ms, silence_ms, total_ms } = call.deadlines;
    CallRequest {
        observer: None,
        id: call.id,
        tool: call.tool.unwrap_or_default(),
        args: call.args.map_or_else(Args::default, |args| arguments(args.get(), limits)),
        // Kept as written: only the provider reads it.
        provider: call.provider.map(|data| ProviderData::written(Box::<str>::from(data))),
        deadlines: Deadlines { queue_ms, attempt_ms, silence_ms, total_ms },
        priority: call.priority,
        inline_ms: call.inline_ms,
        answer: AnswerBudget { bytes_max: call.answer_bytes_max, lines_max: call.answer_lines_max },
        grant: call.grant.map(GrantToken::given),
        task: call.task.map(NewTask::from),
    }
}

/// An object is the arguments; a string is the raw text of a model. Text that our rules refuse stays text,
/// and is refused with its reason when the call is prepared.
fn arguments(written: &str, limits: &Limits) -> Args {
    match json::parse(written, &limits.args()) {
        Ok(Value::String(text)) => Args::Text(text),
        Ok(value) => Args::Json(value),
        Err(_) => Args::Text(serde_json::from_str(written).unwrap_or_else(|_| written.to_string())),
    }
}

fn inputs(written: Option<&RawValue>, limits: &Limits) -> Result<Option<Map<String, Value>>, Problem> {
    let Some(written) = written else { return Ok(None) };
    match json::parse(written.get(), &limits.args()) {
        Ok(Value::Object(inputs)) => Ok(Some(inputs)),
        Ok(_) => Err(wrong("the batch's inputs must be a JSON object".to_string())),
        Err(problem) => Err(wrong(format!("the batch's inputs cannot be stored: {problem}"))),
    }
}

fn wrong(what: String) -> Problem {
    Problem::new(ProblemCode::BadBatch, what)
}

/// Arguments, in the OpenAPI description.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes what is read by our own rules")]
enum ArgsShape {
    /// The arguments.
    Object(Map<String, Value>),
    /// The raw text of the model.
    Text(String),
}

/// How the end of one call affects the others, in the OpenAPI description.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Siblings")]
#[expect(dead_code, reason = "it only describes what the runtime reads")]
enum SiblingsShape {
    /// Not at all.
    Independent,
    /// The first failure cancels all others.
    FailFast,
    /// The first success cancels all others.
    Race,
    /// This many must succeed; once they have, or no longer can, all others are cancelled.
    Quorum(u32),
}
