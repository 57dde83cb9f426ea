//! The trait a tool implements, what it returns, and the context it is given.

use crate::artifacts::{ArtifactError, ArtifactWriter, Artifacts};
use serde_json::Value;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use windlass_core::failure::{FailureClass, Retry};
use windlass_core::handle::Handle;
use windlass_core::ids::{AttemptNo, CallId, Fence};
use windlass_core::outcome::{Kept, Part};
use windlass_core::tool::ToolSpec;

/// Something a model can call.
///
/// `run` is only ever given arguments that fit the input schema. Whether it may be run again after a crash is
/// the promise its [effect class](windlass_core::tool::EffectClass) makes.
pub trait Tool: Send + Sync + 'static {
    /// What is known of the tool without running it; asked once, at registration.
    fn spec(&self) -> ToolSpec;

    /// Does the work of one attempt.
    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a>;
}

/// An attempt under way.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<Output, ToolError>> + Send + 'a>>;

/// What a tool returns: a value, and what cannot be said in JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The value.
    pub value: Value,
    /// Where the value is, if it was too large to be given: text that [`Cx::keep`] took. `value` is then not looked at.
    pub kept: Option<Kept>,
    /// Images and files.
    pub parts: Vec<Part>,
}

impl From<Value> for Output {
    fn from(value: Value) -> Output {
        Output { value, ..Output::default() }
    }
}

/// Why a tool could not do its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolError {
    /// What kind of failure; `Internal` hides the message from the model.
    pub class: FailureClass,
    /// Written for the model: what went wrong and what to do instead.
    pub message: String,
    /// A code of the tool's own.
    pub tool_code: Option<String>,
    /// For operators only.
    pub detail: Option<String>,
    /// Whether it may be tried again.
    pub retry: Retry,
}

impl ToolError {
    /// The work went wrong, and `message` tells the model how.
    pub fn new(message: impl Into<String>) -> ToolError {
        ToolError {
            class: FailureClass::Execution,
            message: message.into(),
            tool_code: None,
            detail: None,
            retry: Retry::Never,
        }
    }

    /// Something is broken that is none of the model's business; it sees a fixed sentence, operators `detail`.
    pub fn internal(detail: impl Into<String>) -> ToolError {
        ToolError { class: FailureClass::Internal, detail: Some(detail.into()), ..ToolError::new("") }
    }

    /// The same, but certainly nothing happened: even a `once` call may be tried again.
    pub fn did_not_happen(self) -> ToolError {
        ToolError { retry: Retry::Safe { after_ms: None }, ..self }
    }
}

impl From<ArtifactError> for ToolError {
    fn from(error: ArtifactError) -> ToolError {
        match error {
            ArtifactError::TooLarge { .. } => {
                ToolError { class: FailureClass::ResourceLimit, ..ToolError::new(error.to_string()) }
            }
            ArtifactError::Unknown { .. } => ToolError::new(error.to_string()),
            ArtifactError::Lost(lost) => ToolError::internal(crate::error::chain(&lost)),
        }
    }
}

/// What one attempt of a call knows and may do. One type for all tools.
pub struct Cx {
    pub(crate) call: CallId,
    pub(crate) id: Arc<str>,
    pub(crate) attempt: AttemptNo,
    pub(crate) redrive: bool,
    pub(crate) fence: Fence,
    pub(crate) place: Arc<Place>,
    pub(crate) artifacts: Artifacts,
}

/// Where a batch's calls stand; shared by all of them.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) session: Arc<str>,
    pub(crate) batch_key: Arc<str>,
}

impl Cx {
    /// Our handle of the call.
    pub fn call(&self) -> Handle {
        self.artifacts.call_handle(self.call)
    }

    /// The model's id of the call.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name of the session.
    pub fn session(&self) -> &str {
        &self.place.session
    }

    /// The key of the batch.
    pub fn batch_key(&self) -> &str {
        &self.place.batch_key
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> AttemptNo {
        self.attempt
    }

    /// Whether an earlier attempt was running when its owner died.
    pub fn is_redrive(&self) -> bool {
        self.redrive
    }

    /// The session's fence: a system that remembers the largest one it saw can refuse a stale worker.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The same over attempts and restarts, and different for every call: send it to whoever deduplicates.
    pub fn idempotency_key(&self) -> String {
        self.artifacts.idempotency_key(&self.place, &self.id)
    }

    /// Starts keeping bytes as an artifact, for output too large to lie in memory.
    pub fn keep(&self) -> ArtifactWriter {
        self.artifacts.writer()
    }

    /// Reads at most `len` bytes of an artifact from `offset`; none past its end.
    pub async fn read_artifact(
        &self,
        artifact: Handle,
        offset: u64,
        len: u64,
    ) -> Result<Vec<u8>, ArtifactError> {
        self.artifacts.read(artifact, offset, len).await
    }

    /// The limits in force.
    pub fn limits(&self) -> &windlass_core::limits::Limits {
        self.artifacts.limits()
    }
}

/// A tool made of a description and a closure.
///
/// ```
/// use windlass::{ToolSpec, tool_fn};
/// use serde_json::json;
///
/// let greet = tool_fn(ToolSpec { name: "greet".into(), ..ToolSpec::default() }, |args, _cx| {
///     let name = args["name"].as_str().unwrap_or("you").to_string();
///     async move { Ok(json!(format!("Hello, {name}!")).into()) }
/// });
/// ```
pub fn tool_fn<F, Fut>(spec: ToolSpec, run: F) -> impl Tool
where
    F: Fn(Value, &Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Output, ToolError>> + Send + 'static,
{
    FnTool { spec, run }
}

struct FnTool<F> {
    spec: ToolSpec,
    run: F,
}

impl<F, Fut> Tool for FnTool<F>
where
    F: Fn(Value, &Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Output, ToolError>> + Send + 'static,
{
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin((self.run)(args, cx))
    }
}
