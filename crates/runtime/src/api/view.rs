//! Calls as callers see them: the typed view from which both the JSON of every answer and the schema of the API derive.
//!
//! Values that are recorded as JSON text are written as they are, without being read: they may be large.

mod parts;
mod permission;

pub use parts::Parts;
pub use permission::{OriginView, PermissionView};

use crate::api::answer::wall_time;
use crate::api::progress::Progress;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::borrow::Cow;
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Retry, Source};
use windlass_core::handle::{Handle, HandleKind, Secret};
use windlass_core::operation::Triggered;
use windlass_core::outcome::{
    Effect, Form, JsonText, KeptBytes, ModelAnswer, Outcome, Part, SideOutput, Success, Value,
};
use windlass_core::time::Timestamp;

/// A call, in the order in which its fields are written.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CallView<'a> {
    /// The model's id of the call.
    pub id: &'a str,
    /// Our handle of the call.
    pub call: String,
    /// The handle of the call inside which it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The tool, as it was asked for.
    pub tool: &'a str,
    /// The state of the call.
    pub state: CallState,
    /// How it ended; absent while it is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeView<'a>>,
    /// The id of the task that it goes on as, if it is one; the same as `call`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// How many attempts were started.
    pub attempts: u32,
    /// The handle of the call that it is the same as, and whose answer it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
    /// The tasks that its events started; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triggered: Option<Vec<TriggeredTask>>,
    /// How long it waited for its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued_ms: Option<u64>,
    /// How long it waited after that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_ms: Option<u64>,
    /// How long its attempts ran; absent if all of them were lost with their worker, so that nobody measured them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    /// The repairs of its arguments, one line each; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repairs: Option<Vec<String>>,
    /// The hook that answered in place of the tool; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<&'a str>,
    /// The id of the grant by which it was made; absent if it was made without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// How it was permitted or denied; absent if no rule and no person was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission: Option<PermissionView<'a>>,
    /// The origin of its result; absent for a registered tool that says nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginView>,
    /// The reason of its wait, if it waits: a word for programs, the rest for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<&'a str>,
    /// How far its attempt last said that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<&'a Progress>,
    /// The last status of its attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'a str>,
    /// The answer for the model.
    pub model: ModelView<'a>,
    /// Opaque data of the model's provider, as it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<AsWritten<'a>>,
}

/// The name of a call's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CallState(pub &'static str);

impl CallState {
    /// Every state that callers see.
    pub const ALL: [&'static str; 13] = [
        "queued",
        "running",
        "retrying",
        "awaiting_approval",
        "awaiting_completion",
        "awaiting_input",
        "awaiting_connection",
        "awaiting_client",
        "succeeded",
        "failed",
        "denied",
        "cancelled",
        "unknown",
    ];
}

impl JsonSchema for CallState {
    fn schema_name() -> Cow<'static, str> {
        "CallState".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "The state of a call.",
            "type": "string",
            "enum": CallState::ALL,
        })
    }
}

/// How a call ended, by its state.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Outcome")]
pub enum OutcomeView<'a> {
    /// It succeeded.
    Succeeded(SuccessView<'a>),
    /// It failed.
    Failed {
        /// How.
        failure: FailureView<'a>,
    },
    /// It was not allowed.
    Denied {
        /// Why not.
        reason: &'a str,
    },
    /// It was cancelled.
    Cancelled {
        /// Whether it took effect.
        #[schemars(schema_with = "effects")]
        effect: &'static str,
    },
    /// It is unknown whether it took effect.
    Unknown {
        /// Since when.
        since: Option<String>,
    },
}

impl<'a> OutcomeView<'a> {
    /// The outcome of a call that ended at this time; with what only operators are told, or without.
    pub(crate) fn of(outcome: &'a Outcome, at: Option<Timestamp>, detailed: bool) -> OutcomeView<'a> {
        match outcome {
            Outcome::Succeeded(success) => OutcomeView::Succeeded(SuccessView::of(success)),
            Outcome::Failed(failed) => {
                let detail = failed.detail.as_deref().filter(|_| detailed);
                OutcomeView::Failed { failure: FailureView { detail, ..FailureView::of(failed) } }
            }
            Outcome::Denied { reason } => OutcomeView::Denied { reason },
            Outcome::Cancelled { effect } => OutcomeView::Cancelled { effect: effect.as_str() },
            Outcome::Unknown => OutcomeView::Unknown { since: at.map(wall_time) },
        }
    }
}

/// The result of a call: its value, or where the value is kept, and what else it returned.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Success")]
pub struct SuccessView<'a> {
    /// The value; absent if it is kept as an artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<AsWritten<'a>>,
    /// Where the value is kept, if it is too long to be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<KeptView>,
    /// The parts it returned beside its value, in order.
    pub parts: Parts<'a>,
    /// The raw output from which it was made, kept as an artifact; never shown to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_artifact: Option<RawView>,
    /// The tool's word to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<AsWritten<'a>>,
}

impl<'a> SuccessView<'a> {
    fn of(success: &'a Success) -> SuccessView<'a> {
        let (value, kept) = match &success.value {
            Value::Inline(text) => (Some(AsWritten(text)), None),
            Value::Kept { kept: KeptBytes { artifact, bytes }, form } => {
                let artifact = artifact.to_string();
                (None, Some(KeptView { artifact, bytes: *bytes, form: form.as_str() }))
            }
        };
        let side = success.side.as_deref();
        SuccessView {
            value,
            kept,
            parts: Parts(Cow::Borrowed(&success.parts)),
            raw_artifact: RawView::of(side),
            control: side.and_then(|side| side.control.as_ref()).map(AsWritten),
        }
    }
}

/// A value that is kept as an artifact.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "KeptValue")]
pub struct KeptView {
    /// The id of the artifact.
    pub artifact: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// How the value is written there.
    #[schemars(schema_with = "forms")]
    pub form: &'static str,
}

/// Raw output that is kept as an artifact.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "RawArtifact")]
pub struct RawView {
    /// The id of the artifact.
    pub artifact: String,
    /// How many bytes it has.
    pub bytes: u64,
}

impl RawView {
    fn of(side: Option<&SideOutput>) -> Option<RawView> {
        let KeptBytes { artifact, bytes } = side?.raw?;
        Some(RawView { artifact: artifact.to_string(), bytes })
    }
}

/// How a call failed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Failure")]
pub struct FailureView<'a> {
    /// The kind of failure.
    #[schemars(schema_with = "classes")]
    pub class: &'static str,
    /// The code, one of a closed list; `docs/codes.md` explains each.
    #[schemars(schema_with = "codes")]
    pub code: &'static str,
    /// The detail for operators; only where one call is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<&'a str>,
    /// Whether it certainly did not take effect; absent if that is not known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub did_not_happen: bool,
    /// The answer for the model.
    pub message: &'a str,
    /// The parts for the model beside the message; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<Parts<'a>>,
    /// The output in place of a result, as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<&'a str>,
    /// The raw output, if it is kept as an artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_artifact: Option<RawView>,
    /// The tool's word to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<AsWritten<'a>>,
    /// Whether it may be tried again.
    pub retry: RetryView,
    /// Where it comes from.
    #[schemars(schema_with = "sources")]
    pub source: &'static str,
    /// The code that the tool or an external system chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_code: Option<&'a str>,
}

/// The schema of a word of a closed list.
pub(crate) fn one_of(words: impl Iterator<Item = &'static str>) -> Schema {
    let words: Vec<&str> = words.collect();
    json_schema!({ "type": "string", "enum": words })
}

fn codes(_: &mut SchemaGenerator) -> Schema {
    one_of(Code::ALL.iter().map(|code| code.as_str()))
}

fn classes(_: &mut SchemaGenerator) -> Schema {
    one_of(FailureClass::ALL.iter().map(|class| class.as_str()))
}

fn sources(_: &mut SchemaGenerator) -> Schema {
    one_of(Source::ALL.iter().map(|source| source.as_str()))
}

fn effects(_: &mut SchemaGenerator) -> Schema {
    one_of(Effect::ALL.iter().map(|effect| effect.as_str()))
}

fn forms(_: &mut SchemaGenerator) -> Schema {
    one_of(Form::ALL.iter().map(|form| form.as_str()))
}

impl<'a> FailureView<'a> {
    /// The failure without what only operators are told.
    pub(crate) fn of(failure: &'a Failure) -> FailureView<'a> {
        FailureView {
            class: failure.class.as_str(),
            code: failure.code.as_str(),
            detail: None,
            did_not_happen: failure.did_not_happen,
            message: &failure.message,
            parts: (!failure.parts.is_empty()).then(|| Parts(Cow::Borrowed(&failure.parts))),
            raw: failure.raw.as_deref(),
            raw_artifact: RawView::of(failure.side.as_deref()),
            control: failure.side.as_deref().and_then(|side| side.control.as_ref()).map(AsWritten),
            retry: failure.retry.into(),
            source: failure.source.as_str(),
            tool_code: failure.tool_code.as_deref(),
        }
    }

    pub(crate) fn to_value(&self) -> Json {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Whether a failed call may be tried again.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Retry")]
pub enum RetryView {
    /// Without more to say.
    Word(RetryWord),
    /// With a number.
    Rule(RetryNumber),
}

/// Whether a failed call may be tried again, in a word.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum RetryWord {
    /// Not as it is.
    Never,
    /// At any time.
    Safe,
}

/// Whether a failed call may be tried again, with a number.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum RetryNumber {
    /// After a time.
    Safe {
        /// So many milliseconds.
        after_ms: u64,
    },
    /// It was tried as often as it may be.
    Exhausted {
        /// So often.
        attempts: u32,
    },
}

impl From<Retry> for RetryView {
    fn from(retry: Retry) -> RetryView {
        match retry {
            Retry::Never => RetryView::Word(RetryWord::Never),
            Retry::Safe { after_ms: None } => RetryView::Word(RetryWord::Safe),
            Retry::Safe { after_ms: Some(after_ms) } => RetryView::Rule(RetryNumber::Safe { after_ms }),
            Retry::Exhausted { attempts } => RetryView::Rule(RetryNumber::Exhausted { attempts }),
        }
    }
}

/// A task that an event started.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Triggered")]
pub struct TriggeredTask {
    /// The task.
    pub task: String,
    /// The id of the trigger.
    pub trigger: String,
}

impl TriggeredTask {
    pub(crate) fn of(one: &Triggered, secret: &Secret) -> TriggeredTask {
        let task = Handle::seal(secret, HandleKind::Call, one.call.packed());
        TriggeredTask { task: task.to_string(), trigger: one.trigger.to_string() }
    }
}

/// The answer for the model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Model")]
pub struct ModelView<'a> {
    /// In the order in which it is told.
    pub parts: Parts<'a>,
    /// Whether it is to be told as an error; absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub is_error: bool,
}

impl<'a> ModelView<'a> {
    pub(crate) fn of(ModelAnswer { parts, is_error }: ModelAnswer) -> ModelView<'a> {
        ModelView { parts: Parts(Cow::Owned(parts)), is_error }
    }

    /// A sentence.
    pub fn text(told: impl Into<String>) -> ModelView<'a> {
        ModelView::of(ModelAnswer { parts: vec![Part::Text(told.into())], is_error: false })
    }
}

/// A value that was recorded as JSON text; text that is no JSON is shown as text.
#[derive(Clone, Copy, Debug)]
pub struct AsWritten<'a>(pub(crate) &'a JsonText);

impl Serialize for AsWritten<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(self.0) {
            Ok(json) => json.serialize(serializer),
            Err(_) => serializer.serialize_str(self.0),
        }
    }
}

impl JsonSchema for AsWritten<'_> {
    fn schema_name() -> Cow<'static, str> {
        "AnyValue".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Json::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use windlass_args::json::measure_result;
    use windlass_args::limits::ArgLimits;
    use windlass_args::schema::{Schema as Validator, SchemaRole};
    use windlass_core::tool::Origin;

    /// Refuses every property that a schema does not name.
    fn close(schema: &mut Json) {
        match schema {
            Json::Object(fields) => {
                fields.values_mut().for_each(close);
                if fields.contains_key("properties") {
                    fields.insert("additionalProperties".to_string(), json!(false));
                }
            }
            Json::Array(items) => items.iter_mut().for_each(close),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }

    fn check(validator: &Validator, view: &CallView<'_>) -> Result<(), String> {
        let json = serde_json::to_value(view).unwrap();
        let size = measure_result(&json, &ArgLimits::default()).unwrap();
        validator.validate(&json, size).map_err(|invalid| format!("{json}\n{invalid}"))
    }

    fn failure(retry: Retry) -> Failure {
        Failure {
            detail: Some("the whole chain".to_string()),
            did_not_happen: true,
            raw: Some("{".to_string()),
            tool_code: Some("card_declined".to_string()),
            retry,
            ..Failure::invalid_request(Code::ToolFailed, "The card was declined.")
        }
    }

    #[test]
    fn every_kind_of_answer_fits_the_schema_of_a_call() {
        let kept =
            || KeptBytes { artifact: Handle::seal(&Secret([7; 32]), HandleKind::Artifact, 1), bytes: 3 };
        let text = JsonText::from(r#"{"n":1.50}"#.to_string());
        let file = Part::File { kept: kept(), media_type: "text/plain".to_string(), name: "a".to_string() };
        let image = Part::Image { media_type: "image/png".to_string(), data: vec![1].into() };
        let stored = Part::KeptImage { kept: kept(), media_type: "image/png".to_string() };
        let parts = vec![Part::Text("told".to_string()), Part::Json(text.clone()), image, stored, file];
        let side = Some(Box::new(SideOutput { raw: Some(kept()), control: Some(text.clone()) }));
        let failure = |retry| Failure { parts: parts.clone(), side: side.clone(), ..failure(retry) };
        let success = |value| Outcome::Succeeded(Success { value, parts: parts.clone(), side: side.clone() });
        let retries = [Retry::Never, Retry::Safe { after_ms: None }, Retry::Safe { after_ms: Some(5) }];
        let retries = retries.into_iter().chain([Retry::Exhausted { attempts: 3 }]);
        let mut outcomes: Vec<Outcome> =
            retries.map(|retry| Outcome::Failed(failure(retry).into())).collect();
        outcomes.extend(Effect::ALL.iter().map(|effect| Outcome::Cancelled { effect: *effect }));
        outcomes.extend(Form::ALL.iter().map(|form| success(Value::Kept { kept: kept(), form: *form })));
        outcomes.extend([
            success(Value::Inline(text.clone())),
            Outcome::Denied { reason: "no".into() },
            Outcome::Unknown,
        ]);
        let mut schema = schemars::schema_for!(CallView<'static>).to_value();
        close(&mut schema);
        let limits = ArgLimits::default();
        let validator = Validator::compile(&schema, SchemaRole::Output, "call", &limits).unwrap();
        let progress = Progress { current: Some(1.0), ..Progress::default() };
        for (outcome, state) in outcomes.iter().zip(CallState::ALL.iter().cycle()) {
            let view = CallView {
                id: "c1",
                call: "handle".to_string(),
                parent: Some("handle".to_string()),
                tool: "charge",
                state: CallState(state),
                outcome: Some(OutcomeView::of(outcome, Some(Timestamp(1)), true)),
                task: Some("handle".to_string()),
                attempts: 1,
                same_as: Some("handle".to_string()),
                triggered: Some(vec![TriggeredTask { task: "handle".to_string(), trigger: "t".to_string() }]),
                queued_ms: Some(1),
                waited_ms: Some(1),
                ran_ms: Some(1),
                repairs: Some(vec!["/a: a number".to_string()]),
                answered_by: Some("cache"),
                grant: Some("0".repeat(32)),
                permission: None,
                origin: OriginView::of(Origin(0x51)),
                waiting_for: Some("sleep"),
                progress: Some(&progress),
                status: Some("counts"),
                model: ModelView::of(ModelAnswer { parts: parts.clone(), is_error: true }),
                provider: Some(AsWritten(&text)),
            };
            check(&validator, &view).unwrap();
            let unlisted = CallView { state: CallState("unlisted"), ..view };
            assert!(check(&validator, &unlisted).is_err(), "the schema refuses nothing");
        }
    }

    #[test]
    fn a_recorded_value_is_written_as_it_is() {
        let text = JsonText::from(r#"{"n": 1.50, "b": [1e3]}"#.to_string());
        assert_eq!(serde_json::to_string(&AsWritten(&text)).unwrap(), &*text);
        let no_json = JsonText::from("no json".to_string());
        assert_eq!(serde_json::to_string(&AsWritten(&no_json)).unwrap(), "\"no json\"");
    }
}
