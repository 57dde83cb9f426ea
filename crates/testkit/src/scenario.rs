//! A fixed piece of work for every rig that breaks something under it: batches of calls of every class and end,
//! tools that tell how often they ran, and a client that tells what it was told.

mod check;
mod tools;

pub use check::{ScenarioRemains, check, recorded};
pub use tools::RunCounts;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use windlass::error::{Lost, SessionError};
use windlass::store::Store;
use windlass::{
    Args, BatchAnswer, BatchError, BatchRequest, CallRequest, Config, EffectClass, Limits, Runtime,
};

/// A longer wait for an answer is a hang: nothing of this work takes a second.
const HANG: Duration = Duration::from_secs(60);
/// How long a call waits for a tool that is not there, if it was taken over before it could be refused. The others wait
/// for their turn as long as their tools say.
const MISSING_MS: u64 = 100;

/// One batch of the work.
#[derive(Clone, Debug)]
pub struct ScenarioBatch {
    pub session: String,
    pub key: String,
    pub calls: Vec<ScenarioCall>,
}

/// One call of a batch.
#[derive(Clone, Debug)]
pub struct ScenarioCall {
    pub id: String,
    pub tool: &'static str,
    pub args: Value,
}

/// The rounds of one client, in order; the batches of a round are submitted at once.
pub type ClientRounds = Vec<Vec<ScenarioBatch>>;

/// The reply to a client about a batch.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ClientReplies {
    pub session: String,
    pub batch: String,
    pub reply: BatchReplyKind,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum BatchReplyKind {
    Answered(Vec<CallReply>),
    /// A typed error: its kind, and what it says.
    Failed {
        kind: String,
        text: String,
    },
    /// No answer at all: never right.
    Hung,
}

/// The reply to a client about a call.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct CallReply {
    pub id: String,
    pub handle: String,
    pub state: String,
    pub text: String,
}

/// The work: three clients, a session each, every class and every end a call has today.
pub fn work() -> Vec<ClientRounds> {
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
pub fn short_work() -> Vec<ClientRounds> {
    let a = vec![
        vec![batch("a", "a1", &["look", "put", "send"])],
        vec![batch("a", "a2", &["kept", "send"])],
        vec![batch("a", "a3", &["fail", "broken"]), batch("a", "a1", &["look", "put", "send"])],
    ];
    let b = vec![vec![batch("b", "b1", &["send"])], vec![batch("b", "b2", &["put", "look"])]];
    vec![a, b]
}

/// Work whose call has effects, so that its intent is a commit of its own.
pub fn open_work(session: &str) -> Vec<ClientRounds> {
    vec![vec![vec![batch(session, &format!("{session}1"), &["send"])]]]
}

/// Calls of every class and every end that a call comes to by itself, in little space.
pub fn golden_work() -> Vec<ClientRounds> {
    let tools = ["look", "put", "send", "kept", "fail", "broken", "panics", "no_such_tool", "invalid"];
    vec![vec![vec![batch("golden", "g1", &tools)], vec![batch("golden", "g2", &["send", "look"])]]]
}

/// How many clients do endless work at once, in sessions of their own.
pub const CLIENTS: u64 = 4;

/// Work that goes on until something ends it: round `round` of client `client`.
pub fn endless(client: u64, round: u64) -> ScenarioBatch {
    let tools: &[&'static str] = match round % 8 {
        3 => &["put", "long"],
        5 => &["look", "look", "send", "put"],
        7 => &["fail", "send"],
        _ => &["send"],
    };
    batch(&format!("s{client}"), &format!("s{client}-{round}"), tools)
}

fn batch(session: &str, key: &str, tools: &[&'static str]) -> ScenarioBatch {
    let calls = tools.iter().enumerate().map(|(place, tool)| ScenarioCall {
        id: format!("{key}.{place}"),
        tool,
        args: if *tool == "invalid" { json!({"n": "none"}) } else { json!({"n": place}) },
    });
    ScenarioBatch { session: session.to_owned(), key: key.to_owned(), calls: calls.collect() }
}

impl ScenarioBatch {
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
pub fn runtime(store: Arc<dyn Store>, runs: &RunCounts) -> anyhow::Result<Runtime> {
    let limits = Limits { queue_ms: MISSING_MS, ..Limits::default() };
    let runtime = Runtime::new(Config { limits, ..Config::on(store) });
    tools::register(&runtime, runs)?;
    Ok(runtime)
}

/// Does the work, all clients at once, and returns what they were told; `tell` hears each at once.
pub async fn run(
    runtime: &Runtime,
    work: Vec<ClientRounds>,
    tell: impl Fn(&ClientReplies) + Clone + Send + 'static,
) -> Vec<ClientReplies> {
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
pub async fn submit(runtime: Runtime, batch: ScenarioBatch) -> ClientReplies {
    let asked = async { runtime.submit(&batch.session, batch.request()).await?.settled().await };
    let reply = match tokio::time::timeout(HANG, asked).await {
        Ok(Ok(answer)) => BatchReplyKind::Answered(answers(&answer)),
        Ok(Err(error)) => {
            BatchReplyKind::Failed { kind: kind(&error).to_owned(), text: windlass::error::chain(&error) }
        }
        Err(_) => BatchReplyKind::Hung,
    };
    ClientReplies { session: batch.session, batch: batch.key, reply }
}

fn answers(answer: &BatchAnswer) -> Vec<CallReply> {
    let calls = answer.calls.iter();
    calls.map(CallReply::of).collect()
}

impl CallReply {
    fn of(call: &windlass::CallAnswer) -> CallReply {
        CallReply {
            id: call.id().to_owned(),
            handle: call.handle().to_string(),
            state: call.state().to_owned(),
            text: call.model_text(),
        }
    }
}

/// The kind of an error, as scenarios write it.
pub fn kind(error: &BatchError) -> &'static str {
    match error {
        BatchError::Shape { .. } => "shape",
        BatchError::Closed { .. } => "closed",
        BatchError::Overloaded { .. } => "overloaded",
        BatchError::Stalled { .. } => "stalled",
        BatchError::Session(error) => session_kind(error),
        _ => "another",
    }
}

fn session_kind(error: &SessionError) -> &'static str {
    match error {
        SessionError::Shape { .. } => "session shape",
        SessionError::Expired { .. } => "expired",
        SessionError::NotFound { .. } => "no session",
        SessionError::Closed { .. } => "session closed",
        SessionError::Gone { .. } => "session gone",
        SessionError::Owned { .. } => "owned",
        SessionError::Unreadable { .. } => "unreadable",
        SessionError::Lost(Lost::Store(_)) => "lost store",
        SessionError::Lost(Lost::Refused(_)) => "lost session",
        SessionError::Lost(Lost::Lease) => "lost lease",
        SessionError::Lost(Lost::Removed) => "removed",
        SessionError::Lost(Lost::Broken(_)) => "broken",
        SessionError::Lost(_) => "lost otherwise",
        _ => "another of the session",
    }
}
