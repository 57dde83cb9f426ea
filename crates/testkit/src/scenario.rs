//! A fixed piece of work for every rig that breaks something under it: batches of calls of every class and end,
//! tools that tell how often they ran, and a client that tells what it was told.

mod check;
mod tools;

pub use check::{Left, check, recorded};
pub use tools::Runs;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass::store::Store;
use windlass::{
    Args, BatchAnswer, BatchError, BatchRequest, CallRequest, Config, EffectClass, Lost, Runtime, SystemClock,
};
use windlass_core::limits::Limits;

/// Whoever waits longer for an answer hangs: nothing of this work takes a second.
const HANG: Duration = Duration::from_secs(60);
/// How long a call waits for a tool that is not there, if it was taken over before it could be refused. The others wait
/// for their turn as long as their tools say.
const MISSING_MS: u64 = 100;

/// One batch of the work.
#[derive(Clone, Debug)]
pub struct Batch {
    pub session: String,
    pub key: String,
    pub calls: Vec<Call>,
}

/// One call of a batch.
#[derive(Clone, Debug)]
pub struct Call {
    pub id: String,
    pub tool: &'static str,
    pub args: Value,
}

/// What one client does: rounds, in order; the batches of a round are submitted at once.
pub type Client = Vec<Vec<Batch>>;

/// What a client was told about a batch.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Told {
    pub session: String,
    pub batch: String,
    pub reply: Reply,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Reply {
    Answered(Vec<Answer>),
    /// A typed error: its kind, and what it says.
    Failed {
        kind: String,
        text: String,
    },
    /// No answer at all: never right.
    Hung,
}

/// What a client was told about a call.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Answer {
    pub id: String,
    pub handle: String,
    pub state: String,
    pub text: String,
}

/// The work: three clients, a session each, every class and every end a call has today.
pub fn work() -> Vec<Client> {
    let a = vec![
        vec![batch("a", "a1", &["look", "put", "send"])],
        vec![batch("a", "a2", &["long", "send", "look", "look", "put", "look"])],
        vec![batch("a", "a3", &["fail", "broken", "panics", "no_such_tool", "invalid"])],
        vec![batch("a", "a1", &["look", "put", "send"]), batch("a", "a4", &["put"])],
    ];
    // Batches that wait for each other, so that calls are parked when something breaks.
    let b = vec![
        vec![batch("b", "b1", &["send", "put"]), batch("b", "b2", &["put", "look", "send"])],
        vec![batch("b", "b3", &["send", "long"]), batch("b", "b4", &["send"])],
    ];
    let mut c = vec![vec![batch("c", "c", &["stream", "stream"])]];
    c.extend((0..5).map(|turn| vec![batch("c", &format!("c{turn}"), &["look", "look"])]));
    vec![a, b, c]
}

/// Less of it, for rigs that do it hundreds of times in processes of their own.
pub fn short_work() -> Vec<Client> {
    let a = vec![
        vec![batch("a", "a1", &["look", "put", "send"])],
        vec![batch("a", "a2", &["kept", "send"])],
        vec![batch("a", "a3", &["fail", "broken"]), batch("a", "a1", &["look", "put", "send"])],
    ];
    let b = vec![vec![batch("b", "b1", &["send"])], vec![batch("b", "b2", &["put", "look"])]];
    vec![a, b]
}

/// Work whose call has effects, so that its intent is a commit of its own.
pub fn open_work(session: &str) -> Vec<Client> {
    vec![vec![vec![batch(session, &format!("{session}1"), &["send"])]]]
}

/// Calls of every class and every end that a call comes to by itself, in little space.
pub fn golden_work() -> Vec<Client> {
    let tools = ["look", "put", "send", "kept", "fail", "broken", "panics", "no_such_tool", "invalid"];
    vec![vec![vec![batch("golden", "g1", &tools)], vec![batch("golden", "g2", &["send", "look"])]]]
}

/// How many clients do endless work at once, in sessions of their own.
pub const CLIENTS: u64 = 4;

/// Work that goes on until something ends it: round `round` of client `client`.
pub fn endless(client: u64, round: u64) -> Batch {
    let tools: &[&'static str] = match round % 8 {
        3 => &["put", "long"],
        5 => &["look", "look", "send", "put"],
        7 => &["fail", "send"],
        _ => &["send"],
    };
    batch(&format!("s{client}"), &format!("s{client}-{round}"), tools)
}

fn batch(session: &str, key: &str, tools: &[&'static str]) -> Batch {
    let calls = tools.iter().enumerate().map(|(place, tool)| Call {
        id: format!("{key}.{place}"),
        tool,
        args: if *tool == "invalid" { json!({"n": "none"}) } else { json!({"n": place}) },
    });
    Batch { session: session.to_owned(), key: key.to_owned(), calls: calls.collect() }
}

impl Batch {
    fn request(&self) -> BatchRequest {
        let calls = self.calls.iter().map(|call| CallRequest {
            id: Some(call.id.clone()),
            tool: if call.tool == "invalid" { "look".to_owned() } else { call.tool.to_owned() },
            args: Args::Json(call.args.clone()),
            ..CallRequest::default()
        });
        BatchRequest { key: Some(self.key.clone()), calls: calls.collect(), ..BatchRequest::default() }
    }
}

/// The class of a tool of this work.
pub fn class(tool: &str) -> EffectClass {
    match tool {
        "put" => EffectClass::Keyed,
        "send" | "broken" | "stream" => EffectClass::Once,
        _ => EffectClass::Read,
    }
}

/// A runtime with the tools of this work on a store.
pub fn runtime(store: Arc<dyn Store>, runs: &Runs) -> anyhow::Result<Runtime> {
    let clock = Arc::new(SystemClock::default());
    let limits = Limits { queue_ms: MISSING_MS, ..Limits::default() };
    let runtime =
        Runtime::new(Config { store, clock, limits, hooks: Vec::new(), files: None, shared: false });
    tools::register(&runtime, runs)?;
    Ok(runtime)
}

/// Does the work, all clients at once, and returns what they were told; `tell` hears each at once.
pub async fn run(
    runtime: &Runtime,
    work: Vec<Client>,
    tell: impl Fn(&Told) + Clone + Send + 'static,
) -> Vec<Told> {
    let clients: Vec<_> = work
        .into_iter()
        .map(|rounds| {
            let (runtime, tell) = (runtime.clone(), tell.clone());
            tokio::spawn(async move {
                let mut told = Vec::new();
                for round in rounds {
                    let asked: Vec<_> =
                        round.into_iter().map(|batch| tokio::spawn(submit(runtime.clone(), batch))).collect();
                    for batch in asked {
                        let batch = batch.await;
                        batch.iter().for_each(&tell);
                        told.extend(batch);
                    }
                }
                told
            })
        })
        .collect();
    let mut told = Vec::new();
    for client in clients {
        told.extend(client.await.unwrap_or_default());
    }
    told
}

/// Submits one batch and waits for its answer.
pub async fn submit(runtime: Runtime, batch: Batch) -> Told {
    let asked = async { runtime.submit(&batch.session, batch.request()).await?.settled().await };
    let reply = match tokio::time::timeout(HANG, asked).await {
        Ok(Ok(answer)) => Reply::Answered(answers(&answer)),
        Ok(Err(error)) => Reply::Failed { kind: kind(&error).to_owned(), text: windlass::chain(&error) },
        Err(_) => Reply::Hung,
    };
    Told { session: batch.session, batch: batch.key, reply }
}

fn answers(answer: &BatchAnswer) -> Vec<Answer> {
    let calls = answer.calls.iter();
    calls.map(Answer::of).collect()
}

impl Answer {
    fn of(call: &windlass::CallAnswer) -> Answer {
        Answer {
            id: call.id().to_owned(),
            handle: call.handle().to_string(),
            state: call.state().to_owned(),
            text: call.model_text(),
        }
    }
}

/// Which error it is.
pub fn kind(error: &BatchError) -> &'static str {
    match error {
        BatchError::Shape { .. } => "shape",
        BatchError::Closed { .. } => "closed",
        BatchError::SessionClosed { .. } => "session closed",
        BatchError::Overloaded { .. } => "overloaded",
        BatchError::Owned { .. } => "owned",
        BatchError::Unreadable { .. } => "unreadable",
        BatchError::Lost(Lost::Store(_)) => "lost store",
        BatchError::Lost(Lost::Refused(_)) => "lost session",
        BatchError::Lost(Lost::Lease) => "lost lease",
        BatchError::Lost(Lost::Removed) => "removed",
        BatchError::Lost(Lost::Broken(_)) => "broken",
    }
}
