//! The tools of a worker: each goes to the ledger for its effect, and then does what its arguments say.

use super::kind::{CallKind, Class, EffectWitness};
use super::ledger::{LedgerClient, LedgerRequest};
use super::plan::{InsidePlan, ProofPlan, RACE, Says, Then, hash};
use crate::chance::Chance;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use windlass::batch::{NestedBatch, Siblings};
use windlass::error::StepError;
use windlass::tool::{Reconcile, ReconcileFuture, Reconciled, client_tool};
use windlass::wait::Completed;
use windlass::{Args, CallAnswer, CallRequest, Cx, Output, Runtime, Tool, ToolError, ToolFuture, ToolSpec};
use windlass_core::failure::FailureClass;
use windlass_core::handle::Secret;

/// The size of a result that is too long for an answer.
const LONG_BYTES: usize = 64 << 10;

/// More than a piece of an artifact, see the limits of the worker.
const FILE_BYTES: usize = 6 << 10;

/// The names of what a stepped tool does, in order.
pub const FIRST: &str = "first";
/// See above.
pub const ONCE: &str = "once";
/// See above.
pub const ANSWER: &str = "answer";
/// See above.
pub const QUESTION: &str = "question";
/// See above: the signals that it receives, so many.
pub const SIGNAL: &str = "signal";
/// See above.
pub const SIGNALS: u64 = 2;
/// See above: the step that is its effect.
pub const EFFECT: &str = "effect";
/// The event that it tells of when it has done its first step.
pub const EVENT: &str = "told";
/// Where it stands in its value what a tool was told of the calls inside it.
pub const NESTED: &str = "nested";
/// How long a stepped tool sleeps.
const NAP: Duration = Duration::from_millis(3);

/// State shared by the tools and the client of a worker.
pub struct World {
    /// The way to the ledger.
    pub client: LedgerClient,
    /// How a tool kills its worker.
    pub death: Death,
    /// The calls whose tools have been to the ledger.
    reached: watch::Sender<BTreeSet<String>>,
    released: watch::Sender<bool>,
    /// The keys by which calls that wait are answered.
    keys: watch::Sender<BTreeMap<String, String>>,
    said: Mutex<Voice>,
}

/// How a tool kills its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The process is killed.
    Kill,
    /// The tool never returns, and somebody else takes its session over.
    Hang,
    /// Nothing: it was somebody else's turn to die.
    Spared,
}

/// Where goes what the client is told.
pub enum Voice {
    /// To standard output.
    Aloud,
    /// Nowhere else.
    Kept(Vec<Value>),
}

impl World {
    /// Nothing happened in it yet.
    pub fn new(client: LedgerClient, death: Death, voice: Voice) -> Arc<World> {
        let (reached, released, keys) = Default::default();
        Arc::new(World { client, death, reached, released, keys, said: Mutex::new(voice) })
    }

    /// Registers every tool of a plan. There are many, and a worker that is killed in a moment needs few.
    pub fn register(self: &Arc<World>, runtime: &Runtime, plan: &ProofPlan) -> anyhow::Result<()> {
        for kind in CallKind::all().filter(|kind| plan.kinds().any(|needed| needed == *kind)) {
            runtime.register(EffectTool {
                kind,
                secret: runtime.store().secret().clone(),
                world: Arc::clone(self),
            })?;
        }
        for kind in [CallKind::SHIFTING, CallKind::SHIFTING.asks()] {
            let (secret, world) = (runtime.store().secret().clone(), Arc::clone(self));
            runtime.register(EffectTool { kind, secret, world })?;
        }
        Ok(runtime.register(client_tool(CallKind::CLIENT.spec()))?)
    }

    /// Waits until the tool of this call has been to the ledger, or something else of this name happened.
    pub async fn reaches(&self, name: &str) {
        let mut reached = self.reached.subscribe();
        // The sender is ours: it is not gone.
        let _there = reached.wait_for(|reached| reached.contains(name)).await;
    }

    /// Something happened.
    pub fn reach(&self, name: &str) {
        self.reached.send_modify(|reached| _ = reached.insert(name.to_owned()));
    }

    /// Waits until a call waits to be answered; the key for that.
    pub async fn key_of(&self, call: &str) -> String {
        let mut keys = self.keys.subscribe();
        // The sender is ours: it is not gone.
        let known = keys.wait_for(|keys| keys.contains_key(call)).await;
        known.ok().and_then(|keys| keys.get(call).cloned()).unwrap_or_default()
    }

    /// Lets those that wait go on.
    pub fn release(&self) {
        self.released.send_replace(true);
    }

    /// Says what the client was told. One line in one write: whoever reads it has all of it, or was not told.
    pub fn say(&self, line: Value) -> std::io::Result<()> {
        match &mut *self.said.lock().unwrap_or_else(PoisonError::into_inner) {
            Voice::Kept(lines) => lines.push(line),
            Voice::Aloud => {
                let mut out = std::io::stdout().lock();
                out.write_all(format!("{line}\n").as_bytes())?;
                out.flush()?;
            }
        }
        Ok(())
    }

    async fn die(&self) {
        if self.death == Death::Kill {
            // As somebody else would do it; nothing is unwound, nothing flushed.
            let _killed = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
        }
        std::future::pending().await
    }
}

/// The classes that a shifting tool changes to. Mostly it acts, so that there is something to repeat.
const SHIFTS: [Class; 6] =
    [Class::Keyed, Class::Once, Class::Keyed, Class::Once, Class::Stepped, Class::Read];

struct EffectTool {
    kind: CallKind,
    secret: Secret,
    world: Arc<World>,
}

impl Tool for EffectTool {
    fn spec(&self) -> ToolSpec {
        let class = CallKind::new(self.class()).spec().class;
        ToolSpec { class, ..self.kind.spec() }
    }

    fn run<'a>(&'a self, args: Value, cx: &'a Cx) -> ToolFuture<'a> {
        match self.class() {
            Class::Stepped => Box::pin(self.steps(args, cx)),
            Class::Once | Class::Keyed | Class::Read | Class::Shifting | Class::Client | Class::Missing => {
                Box::pin(self.act(args, cx))
            }
        }
    }

    fn reconciler(&self) -> Option<&dyn Reconcile> {
        (self.kind.asks != EffectWitness::Nobody).then_some(self)
    }
}

impl Reconcile for EffectTool {
    fn reconcile<'a>(&'a self, args: Value, cx: &'a Cx) -> ReconcileFuture<'a> {
        Box::pin(async move {
            if self.kind.asks == EffectWitness::InVain {
                return Ok(Reconciled::Unknown);
            }
            // What the ledger does with the effect it does not do with a question.
            let request = LedgerRequest { kind: "ask", order: "ok".to_owned(), ..self.request(&args, cx) };
            let answer = self.world.client.effect(&request).await;
            match answer.map_err(|error| ToolError::internal(error.to_string()))? {
                Some((verdict, number)) if verdict == "landed" => {
                    Ok(Reconciled::Landed(value(&args, number)))
                }
                Some((verdict, _)) if verdict == "absent" => Ok(Reconciled::DidNotHappen),
                other => Err(ToolError::internal(format!("the ledger said {other:?}"))),
            }
        })
    }
}

impl EffectTool {
    /// The class it has with this worker.
    fn class(&self) -> Class {
        if self.kind.class == Class::Shifting {
            return Chance::new(self.world.client.chance()).one_of(&SHIFTS);
        }
        self.kind.class
    }

    async fn act(&self, args: Value, cx: &Cx) -> Result<Output, ToolError> {
        self.connected(&args, cx).await?;
        let nested = self.nested(&args, cx).await?;
        let then = Then::parse(args["then"].as_str().unwrap_or_default());
        let goes_well = then == Then::Return || (then == Then::Die && !self.is_first(cx));
        let mut number = 0;
        if args["order"] != "after" || goes_well {
            number = self.effect(&args, self.request(&args, cx)).await?;
        }
        self.world.reach(cx.id());
        self.then(then, cx).await;
        let mut output = value(&args, number);
        nested.into_iter().for_each(|told| output.value[NESTED] = told);
        Ok(output)
    }

    /// Says what it must be connected to, unless it is.
    async fn connected(&self, args: &Value, cx: &Cx) -> Result<(), ToolError> {
        let Some(provider) = args["needs"].as_str() else { return Ok(()) };
        let request = LedgerRequest::about_a_connection("check", &self.secret, &self.name(cx), provider);
        let answer = self.world.client.effect(&request).await;
        match answer.map_err(|error| ToolError::internal(error.to_string()))? {
            Some((verdict, _)) if verdict == "there" => Ok(()),
            Some(_) => Err(ToolError::needs_connection(provider, None)),
            None => Err(ToolError::internal("the ledger hung up")),
        }
    }

    /// Calls what its arguments say: one after the other, then those that race. What it was told of each; if one failed,
    /// it may be tried again.
    async fn nested(&self, args: &Value, cx: &Cx) -> Result<Option<Value>, ToolError> {
        let (calls, race) = (listed(&args["nested"]), listed(&args["race"]));
        if calls.is_empty() && race.is_empty() {
            return Ok(None);
        }
        let failed = || ToolError::new("a call inside failed").safe_to_retry();
        let mut told = json!({});
        for call in calls {
            let id = call["id"].as_str().unwrap_or_default();
            let answer = cx.call(id, call["tool"].as_str().unwrap_or_default(), &call["args"]).await?;
            told[id] = end(&answer);
            if answer.failure().is_some() {
                return Err(failed());
            }
        }
        if !race.is_empty() {
            let calls = race.iter().map(|call| CallRequest {
                id: call["id"].as_str().map(str::to_owned),
                tool: call["tool"].as_str().unwrap_or_default().to_owned(),
                args: Args::Json(call["args"].clone()),
                ..CallRequest::default()
            });
            let batch = NestedBatch { calls: calls.collect(), siblings: Siblings::Race };
            let answer = cx.batch(RACE, batch).await?;
            answer.calls.iter().for_each(|call| told[call.id()] = end(call));
            let winners = answer.decided.map(|decided| decided.winners).unwrap_or_default();
            if winners.is_empty() {
                return Err(failed());
            }
            told[RACE] = winners.iter().map(|winner| json!(winner)).collect();
        }
        Ok(Some(told))
    }

    /// Whether nothing has happened to the call yet.
    fn is_first(&self, cx: &Cx) -> bool {
        cx.attempt().0 == 1 && !cx.is_redrive() && self.world.death != Death::Spared
    }

    async fn then(&self, then: Then, cx: &Cx) {
        match then {
            Then::Hang => std::future::pending().await,
            Then::Obey => cx.stopping().await,
            Then::Wait => _ = self.world.released.subscribe().wait_for(|released| *released).await,
            Then::Panic => panic!("told to panic"),
            Then::DieAlways => self.world.die().await,
            Then::Die if self.is_first(cx) => self.world.die().await,
            Then::Return | Then::Die | Then::HangFirst | Then::HangLater | Then::DieLater => {}
        }
    }

    /// The body of a stepped tool. What its arguments say of the ledger and of what happens then is about its last step.
    async fn steps(&self, args: Value, cx: &Cx) -> Result<Output, ToolError> {
        self.connected(&args, cx).await?;
        let inside = InsidePlan::parse(args["inside"].as_str().unwrap_or_default());
        let then = Then::parse(args["then"].as_str().unwrap_or_default());
        if inside.step {
            let request = self.step_request(&args, cx, "keyed", FIRST);
            let _number: u64 = cx.step(FIRST, (), |()| self.effect(&args, request)).await?;
        }
        if inside.nap {
            cx.sleep("nap", NAP).await?;
        }
        let mut more = Vec::new();
        if inside.once {
            let request = self.step_request(&args, cx, "once", ONCE);
            let number: Result<u64, _> = cx.step_once(ONCE, (), |()| self.effect(&args, request)).await;
            let number = match number {
                Ok(number) => json!(number),
                Err(StepError::Unknown { .. }) => json!("unknown"),
                Err(error) => return Err(error.into()),
            };
            more.push((ONCE, number));
        }
        if inside.answer {
            let key = cx.completion(ANSWER).await?;
            let call = self.name(cx);
            self.world.keys.send_modify(|keys| _ = keys.insert(call, key.to_string()));
            let answer = match cx.wait(&key, None).await? {
                Some(Completed::Ok(answer)) => answer.value,
                other => json!(format!("{other:?}")),
            };
            more.push((ANSWER, answer));
        }
        if inside.question {
            more.push((QUESTION, json!(cx.ask(QUESTION, "Who are you?", Some(schema())).await?)));
        }
        if inside.signal {
            let mut received = Vec::new();
            for _ in 0..SIGNALS {
                received.push(cx.on_signal(SIGNAL, None).await?);
            }
            more.push((SIGNAL, json!(received)));
        }
        more.extend(self.nested(&args, cx).await?.map(|told| (NESTED, told)));
        if then == Then::HangFirst {
            self.world.reach(cx.id());
            return std::future::pending().await;
        }
        let order = args["order"].as_str().unwrap_or("ok").to_owned();
        let request = LedgerRequest { order, ..self.step_request(&args, cx, "keyed", EFFECT) };
        let effect = |args| async move {
            let number = self.effect(args, request).await?;
            if !matches!(then, Then::HangLater | Then::DieLater) {
                self.world.reach(cx.id());
            }
            self.then(then, cx).await;
            Ok(number)
        };
        let number = cx.step(EFFECT, &args, effect).await?;
        // Behind both steps: all of this is committed, and a step before it with it even if that did not wait for it.
        self.tell(cx, inside).await?;
        self.world.reach(cx.id());
        if then == Then::HangLater {
            return std::future::pending().await;
        }
        if then == Then::DieLater && self.is_first(cx) {
            self.world.die().await;
        }
        let mut output = value(&args, number);
        more.into_iter().for_each(|(name, told)| output.value[name] = told);
        Ok(output)
    }

    /// Writes a pair and a file, reads them back, and tells of that, if it has more than one step.
    async fn tell(&self, cx: &Cx, inside: InsidePlan) -> Result<(), ToolError> {
        if !inside.step {
            return Ok(());
        }
        let key = cx.handle().to_string();
        let before = cx.kv().get("pair before", &key).await?.map_or(0, |pair| pair.generation);
        let written = cx.kv().set_if("pair", &key, cx.id(), before).await?;
        let after = cx.kv().get("pair after", &key).await?.map(|pair| pair.value);
        if !written || before != 0 || after != Some(json!(cx.id())) {
            return Err(ToolError::internal(format!("the pair was {before}, and is {after:?}")));
        }
        let text = key.repeat(FILE_BYTES / key.len());
        let file = cx.attach("file", text.as_bytes(), "text/plain").await?.kept;
        // The same as it comes: what was stored of it by then goes again.
        let mut again = cx.keep();
        again.write(text.as_bytes()).await?;
        let again = again.finish("text/plain").await?;
        let bytes = cx.read_artifact(file.artifact, 0, file.bytes + 1).await?;
        if bytes != text.as_bytes() || again != file {
            return Err(ToolError::internal("the attached file is another"));
        }
        cx.emit(EVENT, EVENT, json!({ "call": key })).await?;
        Ok(())
    }

    /// Goes to the ledger; the number of its line.
    async fn effect(&self, args: &Value, request: LedgerRequest) -> Result<u64, ToolError> {
        let says = Says::parse(args["says"].as_str().unwrap_or_default());
        let unavailable =
            |message: &str| ToolError { class: FailureClass::Unavailable, ..ToolError::new(message) };
        let answer = self.world.client.effect(&request).await;
        match answer.map_err(|error| unavailable(&error.to_string()))? {
            None => Err(said(unavailable("the ledger hung up; it may have done it"), says, false)),
            Some((verdict, _)) if verdict == "rejected" => {
                Err(said(ToolError::new("the ledger refused"), says, true))
            }
            Some((_, number)) => Ok(number),
        }
    }

    fn name(&self, cx: &Cx) -> String {
        format!("{}/{}/{}", cx.session(), cx.batch_key(), cx.id())
    }

    /// A step's request to the ledger, under its own key.
    fn step_request(&self, args: &Value, cx: &Cx, kind: &'static str, step: &str) -> LedgerRequest {
        LedgerRequest { kind, key: cx.step_key(step), order: "ok".to_owned(), ..self.request(args, cx) }
    }

    fn request(&self, args: &Value, cx: &Cx) -> LedgerRequest {
        let order = args["order"].as_str().unwrap_or("ok");
        LedgerRequest {
            kind: self.class().name(),
            key: cx.idempotency_key(),
            call: self.name(cx),
            handle: cx.handle().to_string(),
            attempt: cx.attempt().0,
            hash: hash(args),
            order: if order == "after" { "ok" } else { order }.to_owned(),
        }
    }
}

/// The failure, with what the tool says of it; it only says that nothing happened if that is so.
fn said(error: ToolError, says: Says, refused: bool) -> ToolError {
    match says {
        Says::Plain => error,
        Says::Safe => error.safe_to_retry(),
        Says::SafeAfter(ms) => error.safe_to_retry_after(ms),
        Says::Never if refused => error.did_not_happen(),
        Says::Never => error.safe_to_retry(),
    }
}

/// The schema of an answer to a question.
fn schema() -> Value {
    json!({"type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]})
}

/// The calls that stand there.
fn listed(calls: &Value) -> &[Value] {
    calls.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// How a call inside ended, and the number of the ledger's line.
fn end(answer: &CallAnswer) -> Value {
    let value = answer.value::<Value>().ok();
    json!([answer.state(), value.map(|value| value["receipt"].clone())])
}

/// The result of a call that the ledger has under this number.
pub fn value(args: &Value, number: u64) -> Output {
    let filler = if args["long"] == json!(true) { "x".repeat(LONG_BYTES) } else { String::new() };
    json!({"call": args["call"], "receipt": number, "filler": filler}).into()
}
