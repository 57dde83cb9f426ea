//! External waits of calls, and their answers.

use crate::api::output::{ErrorExtras, Output, RawOutput, ToolError};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::operation::AnswerExtras;

/// The key by which an external system completes a call's wait. Holding it is the only permission needed.
///
/// ```
/// use windlass::wait::Completed;
/// use windlass::{BatchRequest, CallRequest, Config, EffectClass, Output, Runtime, ToolSpec, tool_fn};
/// # use windlass::store::memory::MemoryStore;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::new(Config::new(MemoryStore::new()?));
/// # let (sent, mut keys) = tokio::sync::mpsc::unbounded_channel();
///
/// let spec = ToolSpec { name: "sign".into(), class: Some(EffectClass::Keyed), ..ToolSpec::default() };
/// runtime.register(tool_fn(spec, move |_, cx| {
///     let (cx, sent) = (cx.clone(), sent.clone());
///     async move {
///         let key = cx.completion("signature").await?;
///         // Here the key would be sent to the person or system that answers.
///         sent.send(key.to_string()).ok();
///         Ok(Output::pending(key))
///     }
/// }))?;
/// let call = CallRequest { id: Some("c1".into()), tool: "sign".into(), ..CallRequest::default() };
/// let submitted = runtime.submit("demo", BatchRequest { calls: vec![call], ..BatchRequest::default() }).await?;
///
/// // Any time later, perhaps in another process:
/// let key = keys.recv().await.ok_or("no key")?;
/// runtime.complete(&key, Completed::ok(serde_json::json!("signed"))).await?;
/// assert_eq!(submitted.settled().await?.calls[0].model_text(), "signed");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionKey {
    pub(crate) name: Arc<str>,
    pub(crate) text: String,
}

impl CompletionKey {
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The key, as it is passed to the external system.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Display for CompletionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// An external answer.
///
/// ```
/// use serde_json::json;
/// use windlass::Output;
/// use windlass::outcome::Part;
/// use windlass::wait::Completed;
///
/// let signed = Completed::ok(json!({ "by": "Ann" }));
/// let photo = Part::Image { media_type: "image/png".into(), data: b"\x89PNG"[..].into() };
/// let with_photo = Completed::ok(Output { parts: vec![photo], ..json!("signed").into() });
/// let refused = Completed::error("declined", "Ann does not sign this.");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Completed {
    /// It succeeded, with this value, its parts and its raw output.
    Ok(Box<Output>),
    /// It failed.
    Error {
        /// The error code of the external system.
        code: String,
        /// Written for the model.
        message: String,
        /// Parts and raw value, if there are any.
        extras: Option<Box<ErrorExtras>>,
    },
    /// It was cancelled.
    Cancelled,
    /// It took too long: the call ends as if its deadline had passed.
    TimedOut,
}

impl Completed {
    /// It succeeded, with this value or output.
    pub fn ok(output: impl Into<Output>) -> Completed {
        Completed::Ok(Box::new(output.into()))
    }

    /// It failed, with this code and a message for the model.
    pub fn error(code: impl Into<String>, message: impl Into<String>) -> Completed {
        Completed::Error { code: code.into(), message: message.into(), extras: None }
    }
}

/// A tool's request to wait for an external answer: see [`Output::pending`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Without a key nobody could answer: the call fails.
    pub(crate) key: Option<CompletionKey>,
    pub(crate) deadline: Option<Duration>,
}

impl Output {
    /// The tool has done its part; the answer to this key is the result of the call. Until then the call is parked and
    /// costs nothing. Without a key of this call nobody could answer: it fails with `pending_without_key`.
    pub fn pending(key: impl Into<Option<CompletionKey>>) -> Output {
        Output { pending: Some(Box::new(Pending { key: key.into(), deadline: None })), ..Output::default() }
    }

    /// Limits the wait.
    pub fn within(self, deadline: Duration) -> Output {
        let pending = self.pending.map(|pending| Box::new(Pending { deadline: Some(deadline), ..*pending }));
        Output { pending, ..self }
    }
}

/// A recorded answer as the result of a tool.
pub(crate) fn answered_output(value: Value, extras: Option<Box<AnswerExtras>>) -> Result<Output, ToolError> {
    let Some(extras) = extras else { return Ok(value.into()) };
    let AnswerExtras { parts, raw, control } = *extras;
    let raw = raw.map(|raw| Box::new(RawOutput::text(&*raw, "application/json")));
    let control = control.as_deref().map(serde_json::from_str).transpose().map_err(no_json)?;
    Ok(Output { value, parts, raw, control, ..Output::default() })
}

/// Parts and raw output of a recorded error, for a tool's error.
pub(crate) fn answered_extras(
    extras: Option<Box<AnswerExtras>>,
) -> Result<Option<Box<ErrorExtras>>, ToolError> {
    let Some(extras) = extras else { return Ok(None) };
    let AnswerExtras { parts, raw, control } = *extras;
    let read = |text: Option<std::sync::Arc<str>>| text.as_deref().map(serde_json::from_str).transpose();
    let (raw, control) = (read(raw).map_err(no_json)?, read(control).map_err(no_json)?);
    Ok(Some(Box::new(ErrorExtras { parts, raw, control })))
}

pub(crate) fn no_json(error: serde_json::Error) -> ToolError {
    ToolError::internal(format!("the recorded answer is no JSON: {error}"))
}
