//! Calls that start tasks and await them, have tasks that end with them, emit an event with a key, wait for a named event, and are answered
//! with an uploaded artifact, while their owners are killed.
//!
//! Every worker submits the same batch to each such session, and its client does what the calls wait for. What a worker's client says differs
//! from what any other's does, so that it is seen whose word counted.

use super::history::{WorkerReplies, entries};
use super::person::{LOOK, think};
use super::tools::World;
use crate::chance::Chance;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use windlass::error::AskError;
use windlass::sessions::UploadFor;
use windlass::tasks::NewTask;
use windlass::triggers::NewTrigger;
use windlass::wait::Completed;
use windlass::{
    Args, BatchRequest, CallRequest, Cx, EffectClass, Flags, Output, Runtime, Tool, ToolError, ToolFuture,
    ToolSpec, inspect, tool_fn,
};
use windlass_core::call::Fact;
use windlass_core::entry::EntryEvent;
use windlass_core::handle::{Handle, HandleKind, Secret, completion_key};
use windlass_core::ids::{ArtifactId, CallId, EntryNo};
use windlass_core::outcome::Part;
use windlass_store::{SessionRow, Store};

/// How the names of such sessions begin.
pub const PREFIX: &str = "context-";
/// The tools: the call that does all of it, a task that it awaits, one that ends with it, and one that its event starts.
const AGENT: &str = "context_agent";
const LEAF: &str = "context_leaf";
const ATTACHED: &str = "context_attached";
const CAUGHT: &str = "context_caught";
/// The kind of its event, the name of the event that it waits for, and the name of its wait for an answer.
const SEEN: &str = "seen";
const WINDOW: &str = "window";
const SHOT: &str = "shot";
/// The calls of each batch.
const AGENTS: [&str; 2] = ["a1", "a2"];
/// The size of the uploaded picture: more than a piece, see the limits of the worker.
const PICTURE_BYTES: usize = 6 << 10;
/// How long a task would sleep that ends with its call: longer than all jumps of the clock together.
const ATTACHED_FOR: Duration = Duration::from_secs(12 * 3_600);
/// How long a leaf runs.
const LEAF_FOR: Duration = Duration::from_millis(2);

/// How often each tool is called in a session.
const CALLS: [(&str, usize); 4] =
    [(AGENT, AGENTS.len()), (LEAF, 2 * AGENTS.len()), (ATTACHED, AGENTS.len()), (CAUGHT, 1)];

fn name(number: u64) -> String {
    format!("{PREFIX}{number}")
}

fn picture() -> Vec<u8> {
    b"picture".iter().copied().cycle().take(PICTURE_BYTES).collect()
}

/// Registers the tools that are called in such sessions.
pub fn register(runtime: &Runtime) -> Result<()> {
    let background = |name: &str, class| ToolSpec {
        name: name.into(),
        class: Some(class),
        claims: Some(Vec::new()),
        flags: Flags { background: true, ..Flags::default() },
        ..ToolSpec::default()
    };
    runtime.register(tool_fn(background(LEAF, EffectClass::Keyed), |args: Value, _| async move {
        tokio::time::sleep(LEAF_FOR).await;
        Ok(args.into())
    }))?;
    // It is parked, so that no death counts against it.
    runtime.register(tool_fn(background(ATTACHED, EffectClass::Stepped), |_, cx: &Cx| {
        let cx = cx.clone();
        async move {
            cx.sleep("for long", ATTACHED_FOR).await?;
            Ok(Value::Null.into())
        }
    }))?;
    runtime.register(tool_fn(
        background(CAUGHT, EffectClass::Keyed),
        |args, _| async move { Ok(args.into()) },
    ))?;
    Ok(runtime.register(Agent)?)
}

struct Agent;

impl Tool for Agent {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: AGENT.into(),
            class: Some(EffectClass::Stepped),
            claims: Some(Vec::new()),
            emits: [(SEEN.to_owned(), json!({"type": "object"}))].into(),
            ..ToolSpec::default()
        }
    }

    fn run<'a>(&'a self, _: Value, cx: &'a Cx) -> ToolFuture<'a> {
        Box::pin(async move {
            cx.spawn_attached("attached", ATTACHED, &json!({}), NewTask::default()).await?;
            let mut leaves = Vec::new();
            for number in 1..=2_u64 {
                let args = json!({ "leaf": number });
                leaves.push(cx.spawn(&format!("leaf {number}"), LEAF, &args, NewTask::default()).await?);
            }
            // Both calls see the same thing.
            let seen = cx.emit_once("seen", SEEN, "the same", json!({})).await?.number;
            let mut ends = Vec::new();
            for (number, leaf) in leaves.into_iter().enumerate() {
                let ended = cx.await_task(&format!("end {number}"), leaf, None).await?;
                let ended = ended.ok_or_else(|| ToolError::new("a task did not end within a day"))?;
                ends.push(ended.value::<Value>()?["leaf"].clone());
            }
            let window = match cx.wait_event(WINDOW, WINDOW, None).await? {
                Some(Completed::Ok(window)) => window.value,
                other => json!(format!("{other:?}")),
            };
            let key = cx.completion(SHOT).await?;
            let Some(Completed::Ok(shot)) = cx.wait(&key, None).await? else {
                return Err(ToolError::new("nobody took a picture"));
            };
            let artifact = shot.parts.iter().find_map(kept);
            let artifact = artifact.ok_or_else(|| ToolError::internal("the answer has no picture"))?;
            if cx.read_artifact(artifact, 0, u64::MAX).await? != picture() {
                return Err(ToolError::internal("the picture is another"));
            }
            let value = json!({
                "seen": seen, "leaves": ends, "window": window, "shot": artifact.to_string(), "by": shot.value,
            });
            Ok(Output { value, parts: shot.parts, ..Output::default() })
        })
    }
}

fn kept(part: &Part) -> Option<Handle> {
    match part {
        Part::KeptImage { kept, .. } => Some(kept.artifact),
        Part::Text(_) | Part::Json(_) | Part::Image { .. } | Part::File { .. } => None,
    }
}

/// Submits the batches of all such sessions, and does what their calls wait for.
pub async fn run(runtime: Runtime, world: Arc<World>, count: u64, chance: Chance) -> Result<()> {
    for number in 0..count {
        one(&runtime, &world, &name(number), chance.branch(number)).await?;
    }
    Ok(())
}

async fn one(runtime: &Runtime, world: &Arc<World>, session: &str, mut chance: Chance) -> Result<()> {
    let (id, event, tool) = (Some("on-seen".to_owned()), SEEN.to_owned(), CAUGHT.to_owned());
    runtime.triggers(session).create(NewTrigger { id, event, tool, ..NewTrigger::default() }).await?;
    let call = |id: &str| CallRequest {
        id: Some(id.into()),
        tool: AGENT.into(),
        args: Args::Json(json!({})),
        ..CallRequest::default()
    };
    let calls = AGENTS.iter().map(|id| call(id)).collect();
    let batch = BatchRequest { key: Some("k".into()), calls, ..BatchRequest::default() };
    let submitted = runtime.submit(session, batch).await?;
    let helping = async {
        think(&mut chance).await;
        fulfil(runtime, world, session).await?;
        loop {
            answer(runtime, world, session).await?;
            tokio::time::sleep(LOOK).await;
        }
    };
    let answered = tokio::select! {
        answered = submitted.settled() => answered?,
        stopped = helping => return stopped,
    };
    let calls: Vec<Value> = answered.calls.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    Ok(world.say(json!({"context": {"session": session, "calls": calls}}))?)
}

/// Fulfils the event that the calls wait for, and then otherwise, which must not count.
async fn fulfil(runtime: &Runtime, world: &World, session: &str) -> Result<()> {
    let with = json!({"by": world.client.chance()});
    match runtime.fulfil(session, WINDOW, Completed::ok(with.clone())).await {
        Ok(()) => world.say(json!({"fulfilled": {"session": session, "with": with}}))?,
        Err(AskError::Answered | AskError::Conflict) => {}
        Err(error) => return Err(error).context(format!("context: {session}: {WINDOW} was not fulfilled")),
    }
    match runtime.fulfil(session, WINDOW, Completed::ok(json!("otherwise"))).await {
        Err(AskError::Answered | AskError::Conflict) => Ok(()),
        Err(error) => Err(error).context(format!("context: {session}: {WINDOW} was not asked again")),
        Ok(()) => bail!("context: {session}: {WINDOW} was fulfilled twice, with something else"),
    }
}

/// Uploads a picture for each call that waits for one, and answers with it.
async fn answer(runtime: &Runtime, world: &World, session: &str) -> Result<()> {
    let secret = runtime.store().secret();
    let open = runtime.open().await?;
    for open in open.iter().filter(|open| open.session == session && open.state == "awaiting_completion") {
        let call = Handle::parse(&open.call).and_then(|handle| handle.open(secret, HandleKind::Call));
        let key = completion_key(secret, CallId::unpacked(call.context("no handle")?), SHOT);
        let answering = async {
            let picture = runtime.upload(UploadFor::Key(&key), &picture(), "image/png").await?;
            let value = json!({"by": world.client.chance()});
            let output = Output { value, parts: vec![picture.into_image()], ..Output::default() };
            runtime.complete(&key, Completed::ok(output)).await
        };
        match answering.await {
            Ok(()) | Err(AskError::Answered | AskError::Over { .. }) => {}
            // It waits for something else so far.
            Err(AskError::NoKey) => {}
            Err(error) => return Err(error).context(format!("context: {} was not answered", open.call)),
        }
    }
    Ok(())
}

/// Lists what is wrong in such sessions once all is over.
pub async fn problems(store: &Arc<dyn Store>, told: &[WorkerReplies]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for row in store.sessions(None, u64::MAX).await? {
        if row.name.starts_with(PREFIX) {
            session(store, &row, told, &mut found).await?;
        }
    }
    Ok(found)
}

async fn session(
    store: &Arc<dyn Store>,
    row: &SessionRow,
    told: &[WorkerReplies],
    found: &mut Vec<String>,
) -> Result<()> {
    let (place, all) = (&row.name, inspect::calls(store, row, usize::MAX).await?);
    let mut calls: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for call in &all {
        calls.entry(call.answer.tool().to_owned()).or_default().push(serde_json::to_value(&call.answer)?);
    }
    // A call that ran at several deaths is set aside, and then those behind it never began.
    let is_poisoned = calls.values().flatten().any(|call| call["outcome"]["failure"]["code"] == "poison");
    for (tool, count) in CALLS {
        let times = calls.get(tool).map_or(0, Vec::len);
        if times > count || (times < count && !is_poisoned) {
            found.push(format!("context: {place}: {tool} was called {times} times, and not {count}"));
        }
    }
    let agents = calls.get(AGENT).cloned().unwrap_or_default();
    for said in told.iter().flat_map(|told| &told.contexts).filter(|said| said["session"] == **place) {
        let differs = |call: &&Value| !agents.iter().any(|agent| agent == *call);
        let lost = said["calls"].as_array().into_iter().flatten().find(differs);
        found.extend(
            lost.map(|call| {
                format!("context: {place}: R1: a client was told {call}, and that is not recorded")
            }),
        );
    }
    attached_ended_first(store.secret(), &all, &ends(store, row).await?, place, found);
    if is_poisoned {
        return Ok(());
    }
    states(&calls, place, found);
    values(&agents, place, told, found);
    for agent in &agents {
        let picture = stored(&**store, &agent["outcome"]["value"]["shot"]).await?;
        if picture.as_deref() != Some(&*self::picture()) {
            found.push(format!("context: {place}: the picture of {} is gone or another", agent["id"]));
        }
    }
    Ok(())
}

/// A task that ends with its call ends before it, in the journal's own order: the wall clock jumps.
fn attached_ended_first(
    secret: &Secret,
    all: &[inspect::RecordedCall],
    ends: &BTreeMap<CallId, EntryNo>,
    place: &str,
    found: &mut Vec<String>,
) {
    let id = |call: &inspect::RecordedCall| {
        let number = call.answer.handle().open(secret, HandleKind::Call);
        number.map(CallId::unpacked)
    };
    for task in all.iter().filter(|call| call.answer.tool() == ATTACHED) {
        let starter = task.answer.call().task.as_deref().and_then(|task| task.starter);
        let (task, starter) = (id(task), starter);
        let (ended, around) = (task.and_then(|id| ends.get(&id)), starter.and_then(|id| ends.get(&id)));
        if ended.is_none() || around.is_none() || ended > around {
            found.push(format!(
                "context: {place}: a task ended at {ended:?}, and the call that it was to end with at {around:?}"
            ));
        }
    }
}

/// The entries in which calls ended.
async fn ends(store: &Arc<dyn Store>, row: &SessionRow) -> Result<BTreeMap<CallId, EntryNo>> {
    let (entries, _) = entries(store, row).await?;
    let ended = entries.into_iter().filter_map(|(number, batch, event)| {
        let EntryEvent::Call { ordinal, fact: Fact::Ended(_) } = event else { return None };
        Some((CallId { batch, ordinal }, number))
    });
    Ok(ended.collect())
}

fn states(calls: &BTreeMap<String, Vec<Value>>, place: &str, found: &mut Vec<String>) {
    for (tool, calls) in calls {
        let expected = if tool == ATTACHED { "cancelled" } else { "succeeded" };
        for call in calls.iter().filter(|call| call["state"] != expected) {
            found.push(format!("context: {place}: {tool} ended as {}", call["state"]));
        }
    }
}

/// Both calls saw one event, the ends of their own tasks, and the same fulfilment: the one that was acknowledged.
fn values(agents: &[Value], place: &str, told: &[WorkerReplies], found: &mut Vec<String>) {
    let of = |field: &str| {
        let all = agents.iter().map(|agent| agent["outcome"]["value"][field].to_string());
        all.collect::<BTreeSet<String>>()
    };
    for (field, expected) in [("seen", "1"), ("leaves", "[1,2]")] {
        if of(field) != BTreeSet::from([expected.to_owned()]) {
            found.push(format!("context: {place}: {field} is {:?}", of(field)));
        }
    }
    let fulfilled = told.iter().flat_map(|told| &told.fulfilled).filter(|said| said["session"] == *place);
    let acknowledged: BTreeSet<String> = fulfilled.map(|said| said["with"].to_string()).collect();
    if of("window").len() != 1 || !acknowledged.is_subset(&of("window")) {
        found.push(format!(
            "context: {place}: the event was fulfilled with {acknowledged:?}, and they got {:?}",
            of("window")
        ));
    }
}

/// The bytes of an artifact, if they are there.
async fn stored(store: &dyn Store, artifact: &Value) -> Result<Option<Vec<u8>>> {
    let handle = artifact.as_str().and_then(Handle::parse);
    let number = handle.and_then(|handle| handle.open(store.secret(), HandleKind::Artifact));
    match number.map(ArtifactId::unpacked) {
        Some(id) => Ok(store.blob(id.blob, 0, u64::MAX).await?),
        None => Ok(None),
    }
}
