//! The tool of a toolbox: hands its attempt to a process, records what that does, and returns what it says.

use super::desk::Desk;
use super::seat::{Seat, SeatContent, SeatMessage};
use super::talk::{
    OperationAnswer, OperationRefusal, StepRecord, TakenAttempt, ToolboxEnd, ToolboxOperation,
};
use crate::api::misuse::StepError;
use crate::api::output::{Output, ToolError};
use crate::api::pending::Completed;
use crate::session::cx::Cx;
use crate::session::held::due_us;
use crate::tools::tool::{BoundContent, BoundFuture, PrepareCx, Tool, ToolFuture};
use crate::tools::toolbox::ToolboxLink;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use windlass_core::outcome::Part;
use windlass_core::tool::ToolSpec;

/// A tool that processes of a toolbox run.
pub(super) struct ToolboxTool {
    pub(super) spec: ToolSpec,
    pub(super) link: Arc<ToolboxLink>,
    pub(super) desk: Arc<Desk>,
    /// The secrets that the operator allows to the toolbox.
    pub(super) allowed: Arc<[String]>,
}

impl Tool for ToolboxTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(self.hand_over(args, cx))
    }

    /// An approval covers the box and its manifest.
    fn bound<'a>(&'a self, _args: &'a Value, _cx: &'a PrepareCx<'a>) -> Option<BoundFuture<'a>> {
        let fixed = format!("{}\n{}", self.link.toolbox, self.link.manifest.whole()).into_bytes();
        Some(Box::pin(std::future::ready(Ok(BoundContent { fixed, ..BoundContent::default() }))))
    }
}

impl ToolboxTool {
    async fn hand_over(&self, args: Value, cx: &Cx) -> Result<Output, ToolError> {
        let Some(handed) = cx.handed.clone() else {
            return Err(ToolError::internal("the attempt has no token: there is no randomness"));
        };
        let continued = handed.token.is_none();
        let args = Arc::new(args);
        let offer = handed.token.as_ref().map(|token| self.offer(token, &args, cx));
        let given = SeatContent { args, offer };
        let (seat, messages) = Seat::new(&self.link, &handed, cx.clone(), given, &self.desk.news);
        // Before it is queued: whoever looks then waits for no other.
        handed.coming.has_come();
        let _seated = self.desk.seat(&seat);
        if !continued {
            self.taken(&seat, cx).await?;
        }
        let steps = BTreeMap::new();
        let mut body = RemoteBody { tool: self, seat: &seat, cx, continued, steps, running: Vec::new() };
        body.run(messages).await
    }

    fn offer(&self, token: &str, args: &Arc<Value>, cx: &Cx) -> TakenAttempt {
        TakenAttempt {
            token: token.to_string(),
            call: cx.handle().to_string(),
            id: cx.id().to_string(),
            tool: self.spec.name.clone(),
            args: args.clone(),
            session: cx.session().to_string(),
            principal: cx.principal().map(|principal| principal.to_string()),
            number: cx.attempt(),
            attempts_max: cx.attempts_max(),
            redrive: cx.is_redrive(),
            idempotency_key: cx.idempotency_key(),
            left: cx.time_left(),
            steps: recorded_steps(cx),
        }
    }

    /// Waits until a process has taken the attempt. If none can any more, its start is taken back: the call waits for a process.
    async fn taken(&self, seat: &Arc<Seat>, cx: &Cx) -> Result<(), ToolError> {
        loop {
            let changed = seat.changed.notified();
            if seat.worker().is_some() {
                return Ok(());
            }
            // The clock first: whoever is heard of in between is not taken for silent.
            let (now_us, away_us) = (cx.clock().elapsed_us(), self.link.away_at_us());
            if (now_us >= away_us || seat.is_withdrawn()) && seat.withdraw() {
                cx.signal.take_back();
                return Err(ToolError::stopped().did_not_happen());
            }
            tokio::select! {
                () = changed => {}
                () = cx.stopping() => {
                    if seat.withdraw() {
                        return Err(ToolError::stopped().did_not_happen());
                    }
                }
                () = cx.wheel.until(away_us) => {}
            }
        }
    }
}

/// Small recorded steps that a body gets along, in bytes of their texts together: the others it asks for.
const STEPS_BYTES_MAX: usize = 256 << 10;

fn recorded_steps(cx: &Cx) -> Vec<StepRecord> {
    let mut bytes = 0;
    let small = cx.done_steps().into_iter().take_while(|(_, input, value)| {
        bytes += input.len() + value.len();
        bytes <= STEPS_BYTES_MAX
    });
    let step = |(name, input, value): (Arc<str>, Arc<str>, Arc<str>)| {
        let (input, value) = (serde_json::from_str(&input).ok()?, serde_json::from_str(&value).ok()?);
        Some(StepRecord { name: name.to_string(), input, value })
    };
    small.filter_map(step).collect()
}

type OperationFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The end of a step: the number of its report, and its result.
type StepEnd = (u64, Result<Value, ToolError>);

/// A body that runs in a process of a toolbox.
struct RemoteBody<'a> {
    tool: &'a ToolboxTool,
    seat: &'a Arc<Seat>,
    cx: &'a Cx,
    /// Whether it was handed over under an earlier owner.
    continued: bool,
    /// The steps that run there.
    steps: BTreeMap<String, oneshot::Sender<StepEnd>>,
    running: Vec<OperationFuture<'a>>,
}

impl<'a> RemoteBody<'a> {
    async fn run(&mut self, mut messages: UnboundedReceiver<SeatMessage>) -> Result<Output, ToolError> {
        let (cx, seat, silence_ms) = (self.cx, self.seat, self.cx.limits().toolbox_silence_ms);
        let mut told_to_stop = false;
        loop {
            // The clock first: a process that is heard of in between is not silent.
            let (now_us, silent_us) = (cx.clock().elapsed_us(), due_us(seat.heard_us(), silence_ms));
            if now_us >= silent_us {
                return Err(self.silent());
            }
            tokio::select! {
                biased;
                message = messages.recv() => match message {
                    Some(SeatMessage::Operation(number, operation)) => self.begin(number, operation),
                    Some(SeatMessage::End(end)) => return ended(cx, end).await,
                    None => return Err(self.silent()),
                },
                () = operations(&mut self.running) => {}
                () = cx.stopping(), if !told_to_stop => {
                    told_to_stop = true;
                    self.tool.desk.news.notify_waiters();
                }
                () = cx.wheel.until(silent_us) => {}
            }
        }
    }

    /// Its process fell silent: then its class decides, as after a crash.
    fn silent(&self) -> ToolError {
        let toolbox = &self.seat.toolbox;
        self.cx.signal.lose();
        ToolError::aborted(format!("The process of the toolbox {toolbox:?} that ran it fell silent."))
    }

    fn begin(&mut self, number: u64, operation: ToolboxOperation) {
        let (cx, seat) = (self.cx, self.seat);
        let answer = move |answer: OperationAnswer| seat.answer(number, answer);
        let work: OperationFuture<'a> = match operation {
            ToolboxOperation::Step { name, input, once } => {
                let (end, ended) = oneshot::channel();
                self.steps.insert(name.clone(), end);
                Box::pin(step(cx, seat, number, BegunStep { name, input, once, ended }))
            }
            ToolboxOperation::StepEnded { name, input, result } => match self.steps.remove(&name) {
                Some(step) => {
                    let _ = step.send((number, result));
                    return;
                }
                None if self.continued => Box::pin(async move {
                    answer(recorded(cx.end_step(&name, input, result).await));
                }),
                None => {
                    let message = format!("the step {name:?} was not begun");
                    answer(OperationAnswer::Refused { code: OperationRefusal::Misused, message });
                    return;
                }
            },
            ToolboxOperation::Sleep { name, length } => Box::pin(async move {
                answer(answered(cx.sleep(&name, length).await.map(|()| Value::Null)));
            }),
            ToolboxOperation::Completion { name } => Box::pin(async move {
                answer(answered(cx.completion(&name).await.map(|key| json!(key.as_str()))));
            }),
            ToolboxOperation::Wait { name, deadline } => Box::pin(async move {
                let waited = async {
                    let key = cx.completion(&name).await?;
                    cx.wait(&key, deadline).await
                };
                answer(answered(waited.await.map(|given| completed(given.as_ref()))));
            }),
            ToolboxOperation::Call { name, tool, args } => Box::pin(async move {
                let called = cx.call(&name, &tool, args).await;
                answer(answered(called.map(|call| json!(call.view()))));
            }),
            ToolboxOperation::Ask { name, question, schema } => Box::pin(async move {
                let asked = cx.ask(&name, &question, schema).await;
                answer(answered(asked.map(|given| json!({ "answer": given }))));
            }),
            ToolboxOperation::Secret { name } => {
                let allowed = self.tool.allowed.contains(&name);
                let toolbox = seat.toolbox.clone();
                Box::pin(async move { answer(secret(cx, &toolbox, &name, allowed).await) })
            }
        };
        self.running.push(work);
    }
}

/// The end of an attempt as its tool returns it.
async fn ended(cx: &Cx, end: ToolboxEnd) -> Result<Output, ToolError> {
    match end {
        ToolboxEnd::Value(output) => with_sizes(cx, *output).await,
        ToolboxEnd::Failed(error) => Err(*error),
        ToolboxEnd::Stopped { did_not_happen: true } => Err(ToolError::stopped().did_not_happen()),
        ToolboxEnd::Stopped { did_not_happen: false } => Err(ToolError::stopped()),
        ToolboxEnd::Pending { name, deadline } => {
            let pending = Output::pending(cx.completion(&name).await?);
            Ok(match deadline {
                Some(deadline) => pending.within(deadline),
                None => pending,
            })
        }
    }
}

/// The output with the sizes of the artifacts that the process has uploaded for it. One that names artifacts of other sessions,
/// or none at all, fails.
async fn with_sizes(cx: &Cx, mut output: Output) -> Result<Output, ToolError> {
    let Output { kept, parts, .. } = &mut output;
    let named = parts.iter_mut().filter_map(|part| match part {
        Part::File { kept, .. } | Part::KeptImage { kept, .. } => Some(kept),
        Part::Text(_) | Part::Json(_) | Part::Image { .. } => None,
    });
    for kept in kept.iter_mut().chain(named) {
        kept.bytes = cx.artifact_bytes(kept.artifact).await?;
    }
    Ok(output)
}

/// A step that the process is about to run.
struct BegunStep {
    name: String,
    input: Value,
    once: bool,
    ended: oneshot::Receiver<StepEnd>,
}

/// Records a step that runs in the process. Its start is answered when it must run, or with its record; its end when it is
/// recorded.
async fn step(cx: &Cx, seat: &Arc<Seat>, number: u64, begun: BegunStep) {
    let BegunStep { name, input, once, ended } = begun;
    let end = Arc::new(AtomicU64::new(number));
    let (seen, ran) = (seat.clone(), end.clone());
    let run = move |_input: Value| async move {
        seen.answer(number, OperationAnswer::Run);
        match ended.await {
            Ok((number, result)) => {
                ran.store(number, Ordering::SeqCst);
                result
            }
            Err(_) => std::future::pending().await,
        }
    };
    let result = match once {
        true => cx.step_once::<Value, Value, _, _>(&name, input, run).await,
        false => cx.step::<Value, Value, _, _>(&name, input, run).await,
    };
    match end.load(Ordering::SeqCst) {
        end if end == number => seat.answer(number, answered(result)),
        end => seat.answer(end, recorded(result)),
    }
}

/// The answer to the end of a step: its process has the value, which may be large.
fn recorded(result: Result<Value, StepError>) -> OperationAnswer {
    answered(result.map(|_| Value::Null))
}

async fn secret(cx: &Cx, toolbox: &str, name: &str, allowed: bool) -> OperationAnswer {
    let code = OperationRefusal::Secret;
    if !allowed {
        let message = format!(
            "the toolbox {toolbox:?} may not read the secret {name:?}; the operator allows it in windlass.toml: \
             [toolboxes.{toolbox}] secrets = [{name:?}]"
        );
        return OperationAnswer::Refused { code, message };
    }
    match cx.secret(name).await {
        Ok(value) => OperationAnswer::Value(json!(value.expose())),
        Err(error) => OperationAnswer::Refused { code, message: error.to_string() },
    }
}

fn answered(result: Result<Value, StepError>) -> OperationAnswer {
    match result {
        Ok(value) => OperationAnswer::Value(value),
        Err(StepError::Failed(error)) => OperationAnswer::Failed(error),
        Err(StepError::Unknown { .. }) => OperationAnswer::Unknown,
        Err(StepError::Misused(misuse)) => {
            OperationAnswer::Refused { code: OperationRefusal::Misused, message: misuse.to_string() }
        }
        Err(error @ (StepError::Stopped | StepError::Lost(_))) => {
            OperationAnswer::Refused { code: OperationRefusal::Stopped, message: error.to_string() }
        }
    }
}

/// An external answer, in the words of a completion.
fn completed(given: Option<&Completed>) -> Value {
    match given {
        Some(Completed::Ok(output)) => json!({ "ok": output.value }),
        Some(Completed::Error { code, message, .. }) => {
            json!({ "error": { "code": code, "message": message } })
        }
        Some(Completed::Cancelled) => json!({ "cancelled": true }),
        Some(Completed::TimedOut) | None => json!({ "timeout": true }),
    }
}

/// Completes when one of the operations may have an answer.
async fn operations(running: &mut Vec<OperationFuture<'_>>) {
    std::future::poll_fn(|cx| {
        let before = running.len();
        running.retain_mut(|work| pin!(work).as_mut().poll(cx).is_pending());
        if running.len() < before { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
