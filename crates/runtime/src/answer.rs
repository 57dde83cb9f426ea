//! What a caller gets back, and the one JSON shape in which a call is shown.

use crate::batch::Decided;
use crate::tool::ToolError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::fmt::temporal::DateTimePrinter;
use serde::de::DeserializeOwned;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;
use windlass_core::call::Call;
use windlass_core::failure::{Failure, FailureClass, Retry};
use windlass_core::handle::{Handle, Kind, Secret};
use windlass_core::ids::CallId;
use windlass_core::limits::Limits;
use windlass_core::operation::Triggered;
use windlass_core::outcome::{JsonText, Kept, ModelAnswer, Outcome, Part, Success, Value};
use windlass_core::projection;
use windlass_core::time::Timestamp;
use windlass_store::Store;

/// The answers of a batch, in the order of its calls.
#[derive(serde::Serialize)]
pub struct BatchAnswer {
    /// The batch's key.
    pub key: Arc<str>,
    /// One answer per submitted call.
    pub calls: Vec<CallAnswer>,
    /// What it asked of its calls together, and what came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

/// A call as a caller sees it: recorded and fresh ones look the same.
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

    /// Our handle of the call.
    pub fn handle(&self) -> Handle {
        Handle::seal(self.store.secret(), Kind::Call, self.id.packed())
    }

    /// The handle of the call that it is the same as, and whose answer it has.
    pub fn same_as(&self) -> Option<Handle> {
        let first = self.call.same_as()?;
        Some(Handle::seal(self.store.secret(), Kind::Call, first.packed()))
    }

    /// The handle of the call inside which it ran, if it did.
    pub fn parent(&self) -> Option<Handle> {
        Some(Handle::seal(self.store.secret(), Kind::Call, self.parent?.packed()))
    }

    /// Its value as a type of yours, or what a tool that needs it fails with.
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

    /// The tool, as it was asked for.
    pub fn tool(&self) -> &str {
        &self.call.opened.tool
    }

    /// The call, as its journal adds up to it.
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Whether it was recorded, or under way, before it was submitted this time.
    pub fn is_recorded(&self) -> bool {
        self.recorded
    }

    /// Whether the identity it was submitted under is another call's.
    pub fn is_conflict(&self) -> bool {
        self.conflict.is_some()
    }

    /// The state's name.
    pub fn state(&self) -> &'static str {
        if self.conflict.is_some() { "failed" } else { self.call.state.name() }
    }

    /// How it failed, if it did.
    pub fn failure(&self) -> Option<&Failure> {
        match (&self.conflict, self.call.outcome()) {
            (Some(conflict), _) => Some(conflict),
            (None, Some(Outcome::Failed(failure))) => Some(failure),
            (None, _) => None,
        }
    }

    /// Whether it goes on without its caller: its handle is the task's.
    pub fn is_task(&self) -> bool {
        self.conflict.is_none() && self.call.task.is_some()
    }

    /// What the events that it told of have started: the id of each trigger, and the task.
    pub fn triggered(&self) -> Vec<(&str, Handle)> {
        let handle = |call: CallId| Handle::seal(self.store.secret(), Kind::Call, call.packed());
        self.started().map(|one| (&*one.trigger, handle(one.call))).collect()
    }

    fn started(&self) -> impl Iterator<Item = &Triggered> {
        self.call.operations.iter().flat_map(|operations| operations.triggered())
    }

    /// What was changed in its arguments to make them fit, one line each.
    pub fn repairs(&self) -> Vec<String> {
        let made = self.call.made.iter().flat_map(|made| &made.repairs);
        made.map(ToString::to_string).collect()
    }

    /// What the model is told.
    pub fn model(&self) -> ModelAnswer {
        match (&self.conflict, self.call.end()) {
            (Some(conflict), _) => {
                projection::project(&Outcome::Failed(conflict.clone()), None, &Limits::default())
            }
            (None, Some(end)) => end.model(),
            (None, None) if self.is_task() => {
                let text = format!(
                    "The call goes on in the background as task {}. Its session is told when it ends: do something else \
                     meanwhile.",
                    self.handle()
                );
                ModelAnswer { parts: vec![Part::Text(text)], is_error: false }
            }
            (None, None) => ModelAnswer::default(),
        }
    }

    /// The text parts of what the model is told, one after the other.
    pub fn model_text(&self) -> String {
        let parts = self.model().parts;
        let texts = parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Json(json) => Some(&**json),
            Part::Image { .. } | Part::File { .. } => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

impl Serialize for CallAnswer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", self.id())?;
        map.serialize_entry("call", &self.handle().to_string())?;
        if let Some(parent) = self.parent() {
            map.serialize_entry("parent", &parent.to_string())?;
        }
        map.serialize_entry("tool", self.tool())?;
        map.serialize_entry("state", self.state())?;
        match (&self.conflict, self.call.outcome()) {
            (Some(conflict), _) => map.serialize_entry("outcome", &json!({"failure": failure(conflict)}))?,
            (None, Some(ended)) => map.serialize_entry("outcome", &ShownOutcome(self, ended))?,
            (None, None) => {}
        }
        if self.is_task() {
            map.serialize_entry("task", &self.handle().to_string())?;
        }
        map.serialize_entry("attempts", &self.call.attempts)?;
        if let Some(first) = self.same_as() {
            map.serialize_entry("same_as", &first.to_string())?;
        }
        if self.started().next().is_some() {
            let secret = self.store.secret();
            let started: Vec<Json> = self.started().map(|one| shown_triggered(one, secret)).collect();
            map.serialize_entry("triggered", &started)?;
        }
        if let Some(end) = self.call.end() {
            map.serialize_entry("queued_ms", &(end.spent.queued_us / 1_000))?;
            map.serialize_entry("waited_ms", &(end.spent.waited_us / 1_000))?;
            map.serialize_entry("ran_ms", &(end.spent.ran_us / 1_000))?;
        }
        let repairs = self.repairs();
        if !repairs.is_empty() {
            map.serialize_entry("repairs", &repairs)?;
        }
        map.serialize_entry("model", &ShownModel(&self.model()))?;
        if let Some(provider) = &self.call.opened.provider {
            map.serialize_entry("provider", &AsWritten(provider))?;
        }
        map.end()
    }
}

/// What an event started, as it is shown.
pub(crate) fn shown_triggered(one: &Triggered, secret: &Secret) -> Json {
    let task = Handle::seal(secret, Kind::Call, one.call.packed());
    json!({ "trigger": &*one.trigger, "task": task.to_string() })
}

/// What a tool fails with that needed a call which failed.
fn of_failure(tool: &str, failure: &Failure) -> ToolError {
    let is_internal = failure.class == FailureClass::Internal;
    // What the model sees of an internal one is a sentence with a reference, and that is what it is told again.
    let message = match is_internal {
        true => failure.message.clone(),
        false => format!("The call of {tool:?} failed: {}", failure.message),
    };
    let retry = match failure.retry {
        Retry::Safe { after_ms } => Retry::Safe { after_ms },
        Retry::Never | Retry::Exhausted { .. } => Retry::Never,
    };
    // Nor was it this call that was asked for wrongly.
    let own = is_internal || failure.class == FailureClass::InvalidRequest;
    let class = if own { FailureClass::Execution } else { failure.class };
    let tool_code = Some(failure.tool_code.clone().unwrap_or_else(|| failure.code.to_string()));
    ToolError { class, tool_code, detail: failure.detail.clone(), retry, ..ToolError::new(message) }
}

struct ShownOutcome<'a>(&'a CallAnswer, &'a Outcome);

impl Serialize for ShownOutcome<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ShownOutcome(answer, outcome) = self;
        let shown = match outcome {
            Outcome::Succeeded(success) => return ShownSuccess(success).serialize(serializer),
            Outcome::Failed(failed) => json!({"failure": failure(failed)}),
            Outcome::Denied { reason } => json!({"reason": reason}),
            Outcome::Cancelled { effect } => json!({"effect": effect.as_str()}),
            Outcome::Unknown => json!({"since": answer.call.end().map(|end| wall_time(end.at))}),
        };
        shown.serialize(serializer)
    }
}

/// Values are written as they are recorded: they may be large, and need not be read for that.
struct ShownSuccess<'a>(&'a Success);

impl Serialize for ShownSuccess<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ShownSuccess(success) = self;
        let mut map = serializer.serialize_map(Some(2))?;
        match &success.value {
            Value::Inline(text) => map.serialize_entry("value", &AsWritten(text))?,
            Value::Kept { kept, form } => {
                let Kept { artifact, bytes } = kept;
                let kept = json!({"artifact": artifact.to_string(), "bytes": bytes, "form": form.as_str()});
                map.serialize_entry("kept", &kept)?;
            }
        }
        map.serialize_entry("parts", &Parts(&success.parts))?;
        map.end()
    }
}

struct ShownModel<'a>(&'a ModelAnswer);

impl Serialize for ShownModel<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("parts", &Parts(&self.0.parts))?;
        if self.0.is_error {
            map.serialize_entry("is_error", &true)?;
        }
        map.end()
    }
}

struct Parts<'a>(&'a [Part]);

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(ShownPart))
    }
}

struct ShownPart<'a>(&'a Part);

impl Serialize for ShownPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.0 {
            Part::Text(text) => {
                map.serialize_entry("type", "text")?;
                map.serialize_entry("text", text)?;
            }
            Part::Json(value) => {
                map.serialize_entry("type", "json")?;
                map.serialize_entry("value", &AsWritten(value))?;
            }
            Part::Image { media_type, data } => {
                map.serialize_entry("type", "image")?;
                map.serialize_entry("media_type", media_type)?;
                map.serialize_entry("data", &BASE64.encode(data))?;
            }
            Part::File { kept: Kept { artifact, bytes }, media_type, name } => {
                map.serialize_entry("type", "file")?;
                map.serialize_entry("artifact", &artifact.to_string())?;
                map.serialize_entry("bytes", bytes)?;
                map.serialize_entry("media_type", media_type)?;
                map.serialize_entry("name", name)?;
            }
        }
        map.end()
    }
}

/// What was recorded as JSON; text that is none is shown as text.
struct AsWritten<'a>(&'a JsonText);

impl Serialize for AsWritten<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(self.0) {
            Ok(json) => json.serialize(serializer),
            Err(_) => serializer.serialize_str(self.0),
        }
    }
}

pub(crate) fn failure(failure: &Failure) -> Json {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Json| fields.insert(name.to_string(), value);
    set("class", failure.class.as_str().into());
    set("code", failure.code.as_str().into());
    set("source", failure.source.as_str().into());
    set("message", failure.message.as_str().into());
    set("retry", retry(failure.retry));
    if failure.did_not_happen {
        set("did_not_happen", true.into());
    }
    if let Some(code) = &failure.tool_code {
        set("tool_code", code.as_str().into());
    }
    if let Some(raw) = &failure.raw {
        set("raw", raw.as_str().into());
    }
    Json::Object(fields)
}

fn retry(retry: Retry) -> Json {
    match retry {
        Retry::Never => "never".into(),
        Retry::Safe { after_ms: None } => "safe".into(),
        Retry::Safe { after_ms: Some(after) } => json!({"safe": {"after_ms": after}}),
        Retry::Exhausted { attempts } => json!({"exhausted": {"attempts": attempts}}),
    }
}

const TO_THE_MS: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// A point in time as people and programs read it.
pub fn wall_time(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_microsecond(at.0);
    time.map_or_else(|_| at.0.to_string(), |time| TO_THE_MS.timestamp_to_string(&time))
}

/// The same, where a field is written.
pub(crate) fn as_wall_time<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&wall_time(*at))
}
