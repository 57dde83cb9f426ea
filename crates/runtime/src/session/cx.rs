//! The context of an attempt, for its tool.

mod place;

pub(crate) use place::CallPlace;

use crate::api::clock::Clock;
use crate::api::data_error::ArtifactError;
use crate::api::observer::{CallOrigin, NestedCall, Observer};
use crate::api::output::ToolError;
use crate::api::progress::{Progress, words};
use crate::api::traced::TraceParent;
use crate::session::artifacts::{ArtifactWriter, Artifacts};
use crate::session::batch::Used;
use crate::session::grants::SessionGrants;
use crate::session::held::DriveContext;
use crate::session::log::Stream;
use crate::session::permission::ApprovedContent;
use crate::session::signal::AttemptSignal;
use crate::session::vault::{KnownSecrets, scrub_progress};
use crate::session::wheel::Wheel;
use crate::tools::place::BatchPlace;
use crate::tools::registry::{Kinds, Listed};
use crate::tools::toolbox::HandedAttempt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, Weak};
use std::time::Duration;
use windlass_args::text::Text;
use windlass_core::call::{LatestEnd, PreparedResult};
use windlass_core::handle::{Handle, Secret};
use windlass_core::ids::{AttemptNo, CallId, Fence};

/// The context of one attempt. One type for all tools; a clone is the same context.
///
/// ```
/// use serde_json::{Value, json};
/// use windlass::{Cx, Output, ToolError};
///
/// async fn import(args: Value, cx: &Cx) -> Result<Output, ToolError> {
///     // The key is the same in every attempt: the other system deduplicates by it.
///     let key = cx.idempotency_key();
///     cx.status("downloading");
///     // A step that has ended is not repeated when the body runs again.
///     let rows: u64 = cx.step("download", args, |args| async move { Ok(args["rows"].as_u64().unwrap_or(0)) }).await?;
///     Ok(json!({ "rows": rows, "under": key }).into())
/// }
/// ```
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
    /// The context of the call's driver. The runtime owns the threads that tools run on, so no tool may own the runtime.
    pub(crate) hold: Weak<DriveContext>,
    pub(crate) made: Option<Arc<PreparedResult>>,
    /// The tool's hold on the content that a person approved.
    pub(crate) approved: Option<ApprovedContent>,
    /// The events and signals that the tool declares.
    pub(crate) kinds: Option<Arc<Kinds>>,
    /// Whether the attempt is put aside while it only waits.
    pub(crate) is_put_aside: bool,
    /// The deadlines of the attempt and the call while a caller waits for it.
    pub(crate) inline_end: LatestEnd,
    /// The deadlines once the call is a task, or inside one.
    pub(crate) task_end: LatestEnd,
    pub(crate) grace_ms: u64,
    /// How the attempt is handed to a toolbox, if it is.
    pub(crate) handed: Option<HandedAttempt>,
    pub(crate) answer_bytes_max: u64,
    pub(crate) answer_lines_max: u64,
    pub(crate) signal: Arc<AttemptSignal>,
}

impl Cx {
    /// The handle of the call.
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

    /// The model's turn that the batch belongs to, if its caller named one.
    pub fn turn(&self) -> Option<&str> {
        self.batch.head.turn.as_deref()
    }

    /// The principal of the session, if it has one.
    pub fn principal(&self) -> Option<Arc<str>> {
        self.hold.upgrade()?.session.principal.clone()
    }

    /// The id of the task, if the call is one by now: its own handle.
    pub fn task(&self) -> Option<Handle> {
        let is_task = self.signal.book.is_detached() || self.batch.is_task(self.call.ordinal);
        is_task.then(|| self.handle())
    }

    /// The call that made this one, or started it as a task.
    pub fn parent(&self) -> Option<Handle> {
        let made = self.batch.head.parent.map(|parent| parent.call);
        let started = || self.batch.asked_for(self.call.ordinal)?.task?.starter;
        made.or_else(started).map(|call| self.artifacts.call_handle(call))
    }

    /// The tools that the calls of this batch may use, by name. It is the catalog of this moment and is not recorded: a
    /// `stepped` body that decides by it reads it in a [step](Self::step).
    pub fn catalog(&self) -> Vec<Listed> {
        self.hold.upgrade().map_or_else(Vec::new, |hold| hold.rt.registry.list_for(self.place()))
    }

    /// Tells the [observer](crate::batch::Observer) of this call, if it has one, of work that the tool does in its own way: a
    /// process, a request to another system. Nothing is recorded.
    pub fn announce(&self, id: &str, name: &str) {
        if let Some(observer) = self.observer() {
            let (call, id, tool) = (self.handle(), id.to_string(), name.to_string());
            let origin = CallOrigin::Announced;
            observer.tell(&NestedCall { origin, call, id, tool, inside: self.handle() });
        }
    }

    /// The observer of what this call makes.
    pub(crate) fn observer(&self) -> Option<Observer> {
        self.place().observer_of(&self.id)
    }

    /// The tool's own [hold](crate::tool::BoundContent::held) on the content that a person approved for this attempt: what runs
    /// must be that. `None` if nobody had to be asked, or the tool holds nothing of this type.
    pub fn approved<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.approved.clone()?.downcast().ok()
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> AttemptNo {
        self.attempt
    }

    /// The maximum number of attempts.
    pub fn attempts_max(&self) -> u32 {
        self.attempts_max
    }

    /// How long this attempt may still take; zero means that it is about to be stopped.
    pub fn time_left(&self) -> Duration {
        let now_us = self.clock().elapsed_us();
        let due_us = self.latest_end().attempt_us.saturating_add(self.signal.book.excused_us(now_us));
        Duration::from_micros(due_us.saturating_sub(now_us))
    }

    /// The current deadlines of the attempt and the call.
    pub(crate) fn latest_end(&self) -> LatestEnd {
        let in_task = || {
            let hold = self.hold.upgrade();
            hold.is_some_and(|hold| {
                self.batch.head.parent.is_some_and(|parent| hold.session.is_in_task(parent))
            })
        };
        let is_task = self.batch.head.task_deadlines || self.batch.is_task(self.call.ordinal) || in_task();
        if is_task { self.task_end } else { self.inline_end }
    }

    /// Waits until the attempt must stop: its time is up, or it is cancelled. A result within its
    /// [grace](Self::grace) counts; then it is dropped.
    pub async fn stopping(&self) {
        self.signal.stop_requested().await;
    }

    /// Whether the attempt must stop.
    pub fn is_stopping(&self) -> bool {
        self.signal.cause().is_some()
    }

    /// How long the attempt may continue after it was asked to stop.
    pub fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }

    /// A sign of life: restarts the silence deadline.
    pub fn heartbeat(&self) {
        self.signal.alive(self.clock().elapsed_us());
    }

    /// Output of the running attempt: a sign of life, and its end is kept if the attempt is stopped. A task's
    /// output is kept as its log.
    pub fn output(&self, stream: Stream, bytes: &[u8]) {
        self.heartbeat();
        let Some(known) = self.secrets() else { return self.output_scrubbed(stream, bytes) };
        let scrubbed = self.signal.scrub(stream, &known, bytes);
        self.output_scrubbed(stream, &scrubbed);
    }

    fn output_scrubbed(&self, stream: Stream, bytes: &[u8]) {
        self.signal.log(stream, bytes);
        self.signal.output(bytes, self.limits().partial_bytes_max as usize);
        self.artifacts.lane().feed().output(self.call, bytes);
    }

    /// Reports progress: a sign of life, and shown to observers of the call while it runs.
    pub fn progress(&self, mut progress: Progress) {
        self.heartbeat();
        if let Some(known) = self.secrets() {
            scrub_progress(&known, &mut progress);
        }
        let progress = progress.kept();
        // Stored first: a follower that joins in between reads it from there.
        self.signal.set_progress(progress.clone());
        self.artifacts.lane().feed().progress(self.call, &progress);
    }

    /// Reports the current activity in a few words: a sign of life, and shown like progress.
    pub fn status(&self, text: &str) {
        self.heartbeat();
        let mut status = words(text);
        if let Some(known) = self.secrets() {
            status = words(&known.scrub(text));
        }
        self.signal.set_status(status.clone());
        self.artifacts.lane().feed().status(self.call, &status);
    }

    /// The payload the tool attached when the call was prepared, as JSON.
    pub fn payload(&self) -> Option<&str> {
        self.made.as_ref()?.payload.as_deref()
    }

    /// The value that the call's grant has for its tool; `None` if the call is made without a grant, or the grant has none.
    pub fn binding(&self) -> Option<Value> {
        let grant = self.batch.asked_for(self.call.ordinal)?.grant?;
        let hold = self.hold.upgrade()?;
        hold.session.slots.of::<SessionGrants>().known(&grant)?.binding()
    }

    /// The host's input of the batch under this name.
    pub fn input(&self, name: &str) -> Option<&Value> {
        self.place().input(name)
    }

    /// The host's input as a type of yours; an internal failure if it does not fit.
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

    /// The span of this attempt, for whatever it calls to continue, as the header `traceparent`. `None`: its caller said none,
    /// and nobody takes our spans.
    pub fn traceparent(&self) -> Option<TraceParent> {
        self.hold.upgrade()?.trace_parent(self.call, Some(self.attempt))
    }

    /// A key that is stable over attempts and restarts, and unique to the call: send it to systems that deduplicate.
    pub fn idempotency_key(&self) -> String {
        self.artifacts.idempotency_key(self.place(), &self.id)
    }

    /// Starts storing bytes as an artifact, for output too large for memory. The result must name it, or it
    /// is removed some time after the call; to keep it without that, [attach](Self::attach) it.
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

    /// How many bytes an artifact of the session has.
    pub(crate) async fn artifact_bytes(&self, artifact: Handle) -> Result<u64, ArtifactError> {
        self.artifacts.bytes(artifact).await
    }

    /// The effective limits.
    pub fn limits(&self) -> &crate::api::limits::Limits {
        self.artifacts.limits()
    }

    /// How many bytes the model's view of this call may have, by the budget of the call, its tool or its session; longer
    /// results are cut.
    pub fn answer_bytes_max(&self) -> u64 {
        self.answer_bytes_max
    }

    /// How many lines the model's view of this call may have, by the same budgets.
    pub fn answer_lines_max(&self) -> u64 {
        self.answer_lines_max
    }

    /// The secrets that nothing of this call may show; mostly there are none.
    pub(crate) fn secrets(&self) -> Option<Arc<KnownSecrets>> {
        let vault = self.artifacts.lane().vault();
        if vault.guards() { vault.known() } else { None }
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.wheel.clock()
    }

    pub(crate) fn store_secret(&self) -> &Secret {
        self.artifacts.secret()
    }

    fn place(&self) -> &BatchPlace {
        &self.batch.head.place
    }
}
