//! The trait a tool implements, what it returns, and the context it is given.

use crate::artifacts::{ArtifactError, ArtifactWriter, Artifacts};
use crate::batch::Used;
use crate::clock::Clock;
use crate::held::Hold;
use crate::inside::Pending;
use crate::log::Stream;
use crate::observer::Observer;
use crate::progress::{Progress, words};
use crate::registry::Kinds;
use crate::scope::Overlay;
use crate::signal::Signal;
use crate::wheel::Wheel;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use windlass_core::call::Made;
use windlass_core::claim::Claims;
use windlass_core::dedupe::Dedupe;
use windlass_core::failure::{FailureClass, Retry};
use windlass_core::handle::{Handle, Secret};
use windlass_core::ids::{AttemptNo, CallId, Fence};
use windlass_core::outcome::{Kept, Part};
use windlass_core::text::Text;
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

    /// Looks at a call before it is allowed: attaches something for its attempts, or answers at once. It has no
    /// effects of its own, does not block its thread, and may be asked again until the call's next commit. `None`: there is
    /// nothing to look at.
    fn prepare<'a>(&'a self, _args: &'a Value, _cx: &'a PrepareCx<'a>) -> Option<PrepareFuture<'a>> {
        None
    }

    /// What a call with these arguments reads and writes, for tools that cannot say it as
    /// [`ToolSpec::claims`]. It has no effects and does not block. `None`: what the spec says holds.
    fn claims(&self, _args: &Value) -> Option<Result<Claims, ToolError>> {
        None
    }

    /// What makes a call with these arguments the same as others, for tools that cannot say it as
    /// [`ToolSpec::dedupe`]: the key itself, without places for arguments. It has no effects and does not block. `None`:
    /// what the spec says holds.
    fn dedupe(&self, _args: &Value) -> Option<Dedupe> {
        None
    }

    /// Who can tell whether an attempt that did not return took effect, if somebody can. Asked for after a crash, a
    /// timeout or a cancel of a `once` call, and when an operator wants to know.
    fn reconciler(&self) -> Option<&dyn Reconcile> {
        None
    }
}

/// Tells whether an attempt that did not return took effect, without any effect of its own.
pub trait Reconcile: Send + Sync {
    /// Asks the other side, by [`Cx::idempotency_key`] or by the arguments.
    fn reconcile<'a>(&'a self, args: Value, cx: &'a Cx) -> ReconcileFuture<'a>;
}

/// Whether an attempt took effect. A failure means that it cannot be told now.
pub type ReconcileFuture<'a> = Pin<Box<dyn Future<Output = Result<Reconciled, ToolError>> + Send + 'a>>;

/// Whether an attempt took effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciled {
    /// It did, and this is its result.
    Landed(Output),
    /// It certainly did not.
    DidNotHappen,
    /// That cannot be told.
    Unknown,
}

/// A look at a call before it is allowed.
pub type PrepareFuture<'a> = Pin<Box<dyn Future<Output = Result<Prepared, ToolError>> + Send + 'a>>;

/// What a tool made of a call before it is allowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Prepared {
    /// Its attempts get this, as [`Cx::payload`].
    Payload(Value),
    /// This is the answer; there is no attempt.
    Answer(Value),
}

/// What is known of a call while it is prepared.
pub struct PrepareCx<'a> {
    pub(crate) id: &'a str,
    pub(crate) place: &'a Place,
}

impl PrepareCx<'_> {
    /// The model's id of the call.
    pub fn id(&self) -> &str {
        self.id
    }

    /// The name of the session.
    pub fn session(&self) -> &str {
        &self.place.session
    }

    /// What the host attached to the batch under this name.
    pub fn input(&self, name: &str) -> Option<&Value> {
        self.place.input(name)
    }

    /// The same as a type of yours; an internal failure if it is something else.
    pub fn input_as<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ToolError> {
        self.place.input_as(name)
    }
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
    /// What is left to the world outside; `value` is then not looked at.
    pub pending: Option<Box<Pending>>,
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
    /// Whether it is certain that nothing happened: then even a `once` call may be tried again.
    pub did_not_happen: bool,
    /// Whether it only ended because it was told to stop: then the stop counts, and not this failure.
    pub stopped: bool,
    /// What the session must be connected to first: then this is no failure, and the call waits for that.
    pub connection: Option<Box<Connection>>,
}

/// What a session must be connected to before a tool can work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// What, by the name under which it is connected.
    pub provider: String,
    /// Where a person can do so.
    pub setup_url: Option<String>,
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
            did_not_happen: false,
            stopped: false,
            connection: None,
        }
    }

    /// Nothing happened, because the session is not connected to this provider. The call waits as `awaiting_connection`
    /// until somebody says that it is ([`Runtime::connected`](crate::Runtime::connected)), and then runs again, whatever its
    /// class: this counts as no try.
    pub fn needs_connection(provider: impl Into<String>, setup_url: Option<&str>) -> ToolError {
        let connection = Connection { provider: provider.into(), setup_url: setup_url.map(str::to_string) };
        ToolError {
            connection: Some(Box::new(connection)),
            did_not_happen: true,
            ..ToolError::new("The tool needs a connection that is not there.")
        }
    }

    /// It ended because it was told to stop, and does not know what came of its work.
    pub fn stopped() -> ToolError {
        ToolError { stopped: true, ..ToolError::new("The tool was stopped.") }
    }

    /// Something is broken that is none of the model's business; it sees a fixed sentence, operators `detail`.
    pub fn internal(detail: impl Into<String>) -> ToolError {
        ToolError { class: FailureClass::Internal, detail: Some(detail.into()), ..ToolError::new("") }
    }

    /// The same, but it may be tried again where the effect class allows that.
    pub fn safe_to_retry(self) -> ToolError {
        ToolError { retry: Retry::Safe { after_ms: None }, ..self }
    }

    /// The same, but it may be tried again after so many milliseconds where the effect class allows that.
    pub fn safe_to_retry_after(self, after_ms: u64) -> ToolError {
        ToolError { retry: Retry::Safe { after_ms: Some(after_ms) }, ..self }
    }

    /// The same, but certainly nothing happened: even a `once` call may be tried again.
    pub fn did_not_happen(self) -> ToolError {
        let retry = if self.retry == Retry::Never { Retry::Safe { after_ms: None } } else { self.retry };
        ToolError { retry, did_not_happen: true, ..self }
    }
}

impl From<ArtifactError> for ToolError {
    fn from(error: ArtifactError) -> ToolError {
        match error {
            ArtifactError::TooLarge { .. } => {
                ToolError { class: FailureClass::ResourceLimit, ..ToolError::new(error.to_string()) }
            }
            ArtifactError::Unknown { .. } => ToolError::new(error.to_string()),
            ArtifactError::MediaType { .. } => ToolError::internal(error.to_string()),
            ArtifactError::Lost(lost) => ToolError::internal(crate::error::chain(&lost)),
        }
    }
}

/// What one attempt of a call knows and may do. One type for all tools; a clone is the same context.
#[derive(Clone)]
pub struct Cx {
    pub(crate) call: CallId,
    pub(crate) id: Text,
    pub(crate) attempt: AttemptNo,
    pub(crate) attempts_max: u32,
    pub(crate) redrive: bool,
    pub(crate) batch: Used,
    pub(crate) artifacts: Artifacts,
    pub(crate) wheel: Arc<Wheel>,
    /// Where the call is driven. The runtime owns the threads that tools run on, so no tool may own the runtime.
    pub(crate) hold: Weak<Hold>,
    pub(crate) made: Option<Arc<Made>>,
    /// The events and signals that the tool declares.
    pub(crate) kinds: Option<Arc<Kinds>>,
    /// Whether the attempt is put aside while it only waits.
    pub(crate) is_put_aside: bool,
    /// When the attempt must be over, by the clock that never jumps.
    pub(crate) due_us: u64,
    /// When the call must be.
    pub(crate) total_due_us: u64,
    pub(crate) grace_ms: u64,
    pub(crate) signal: Arc<Signal>,
}

/// Where a batch's calls stand; shared by all of them.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) session: Arc<str>,
    pub(crate) batch_key: Arc<str>,
    /// What the host attached for tools and hooks.
    pub(crate) inputs: Option<Map<String, Value>>,
    /// The tools of the batch alone; lent after a restart, when it is submitted again.
    overlay: OnceLock<Arc<Overlay>>,
    /// Who is told of what its calls start inside.
    observer: OnceLock<Observer>,
}

impl Place {
    pub(crate) fn new(session: Arc<str>, batch_key: Arc<str>, inputs: Option<Map<String, Value>>) -> Place {
        Place { session, batch_key, inputs, overlay: OnceLock::new(), observer: OnceLock::new() }
    }

    pub(crate) fn overlay(&self) -> Option<&Overlay> {
        self.overlay.get().map(|overlay| &**overlay)
    }

    pub(crate) fn shared_overlay(&self) -> Option<Arc<Overlay>> {
        self.overlay.get().cloned()
    }

    pub(crate) fn observer(&self) -> Option<&Observer> {
        self.observer.get()
    }

    /// Gives it an observer, unless it has one.
    pub(crate) fn observe(&self, observer: Observer) {
        // The first one counts.
        let _later = self.observer.set(observer);
    }

    /// Gives it an overlay, unless it has one.
    pub(crate) fn lend(&self, overlay: Arc<Overlay>) -> bool {
        self.overlay.set(overlay).is_ok()
    }

    pub(crate) fn input(&self, name: &str) -> Option<&Value> {
        self.inputs.as_ref()?.get(name)
    }

    pub(crate) fn input_as<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ToolError> {
        let wrong =
            |error| ToolError::internal(format!("the host's input {name:?} is not as expected: {error}"));
        self.input(name).map(T::deserialize).transpose().map_err(wrong)
    }
}

impl Cx {
    /// Our handle of the call.
    pub fn handle(&self) -> Handle {
        self.artifacts.call_handle(self.call)
    }

    /// The model's id of the call.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name of the session.
    pub fn session(&self) -> &str {
        &self.place().session
    }

    /// The key of the batch.
    pub fn batch_key(&self) -> &str {
        &self.place().batch_key
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> AttemptNo {
        self.attempt
    }

    /// How many attempts there may be.
    pub fn attempts_max(&self) -> u32 {
        self.attempts_max
    }

    /// How long this attempt may still take; none left means that it is about to be stopped.
    pub fn time_left(&self) -> Duration {
        let now_us = self.clock().elapsed_us();
        let due_us = self.due_us.saturating_add(self.signal.book.excused_us(now_us));
        Duration::from_micros(due_us.saturating_sub(now_us))
    }

    /// Waits until the attempt is to stop: its time is up, or it is cancelled. What it returns within its
    /// [grace](Self::grace) counts; then it is dropped.
    pub async fn stopping(&self) {
        self.signal.told().await;
    }

    /// Whether the attempt is to stop.
    pub fn is_stopping(&self) -> bool {
        self.signal.cause().is_some()
    }

    /// How long the attempt may go on after it was told to stop.
    pub fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }

    /// A sign of life: the silence deadline begins anew.
    pub fn heartbeat(&self) {
        self.signal.alive(self.clock().elapsed_us());
    }

    /// Something the attempt has to say while it runs: a sign of life, and the last of it is kept if it is stopped. Of a task
    /// it is kept as its log.
    pub fn output(&self, stream: Stream, bytes: &[u8]) {
        self.heartbeat();
        self.signal.log(stream, bytes);
        self.signal.output(bytes, self.limits().partial_bytes_max as usize);
        self.artifacts.lane().feed().output(self.call, bytes);
    }

    /// How far the attempt is: a sign of life, and shown to whoever looks at the call while it runs.
    pub fn progress(&self, progress: Progress) {
        self.heartbeat();
        let progress = progress.kept();
        self.artifacts.lane().feed().progress(self.call, &progress);
        self.signal.set_progress(progress);
    }

    /// What the attempt does now, in a few words: a sign of life, and shown like its progress.
    pub fn status(&self, text: &str) {
        self.heartbeat();
        let status = words(text);
        self.artifacts.lane().feed().status(self.call, &status);
        self.signal.set_status(status);
    }

    /// What the tool attached when the call was prepared, as JSON.
    pub fn payload(&self) -> Option<&str> {
        self.made.as_ref()?.payload.as_deref()
    }

    /// What the host attached to the batch under this name.
    pub fn input(&self, name: &str) -> Option<&Value> {
        self.place().input(name)
    }

    /// The same as a type of yours; an internal failure if it is something else.
    pub fn input_as<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ToolError> {
        self.place().input_as(name)
    }

    /// Whether an earlier attempt was running when its owner died.
    pub fn is_redrive(&self) -> bool {
        self.redrive
    }

    /// The session's fence: a system that remembers the largest one it saw can refuse a stale worker.
    pub fn fence(&self) -> Fence {
        self.artifacts.lane().fence()
    }

    /// The same over attempts and restarts, and different for every call: send it to whoever deduplicates.
    pub fn idempotency_key(&self) -> String {
        self.artifacts.idempotency_key(self.place(), &self.id)
    }

    /// Starts keeping bytes as an artifact, for output too large to lie in memory. The result must name it, or it is removed
    /// some time after the call; what is to stay without that is [attached](Self::attach).
    pub fn keep(&self) -> ArtifactWriter {
        self.artifacts.writer(self.batch.clone(), self.wheel.shared_clock())
    }

    /// Reads at most `len` bytes of an artifact of the session from `offset`; none past its end.
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

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.wheel.clock()
    }

    pub(crate) fn secret(&self) -> &Secret {
        self.artifacts.secret()
    }

    fn place(&self) -> &Place {
        &self.batch.head.place
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

/// The tool, with a closure that tells whether an attempt that did not return took effect.
pub fn with_reconcile<T, F, Fut>(tool: T, reconcile: F) -> impl Tool
where
    T: Tool,
    F: Fn(Value, &Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reconciled, ToolError>> + Send + 'static,
{
    WithReconcile { tool, reconciler: FnReconcile(reconcile) }
}

struct WithReconcile<T, F> {
    tool: T,
    reconciler: FnReconcile<F>,
}

struct FnReconcile<F>(F);

impl<T, F, Fut> Tool for WithReconcile<T, F>
where
    T: Tool,
    F: Fn(Value, &Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reconciled, ToolError>> + Send + 'static,
{
    fn spec(&self) -> ToolSpec {
        self.tool.spec()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        self.tool.run(args, cx)
    }

    fn prepare<'a>(&'a self, args: &'a Value, cx: &'a PrepareCx<'a>) -> Option<PrepareFuture<'a>> {
        self.tool.prepare(args, cx)
    }

    fn claims(&self, args: &Value) -> Option<Result<Claims, ToolError>> {
        self.tool.claims(args)
    }

    fn dedupe(&self, args: &Value) -> Option<Dedupe> {
        self.tool.dedupe(args)
    }

    fn reconciler(&self) -> Option<&dyn Reconcile> {
        Some(&self.reconciler)
    }
}

impl<F, Fut> Reconcile for FnReconcile<F>
where
    F: Fn(Value, &Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reconciled, ToolError>> + Send + 'static,
{
    fn reconcile<'a>(&'a self, args: Value, cx: &'a Cx) -> ReconcileFuture<'a> {
        Box::pin((self.0)(args, cx))
    }
}
