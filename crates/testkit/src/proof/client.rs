//! The client of a worker: it submits batches, cancels, and resolves what ended as unknown by what the ledger saw. What
//! it is about to do and what it was told it says, one JSON object per line.

use super::kind::Class;
use super::ledger::Request;
use super::plan::{BatchPlan, CancelPlan, SessionPlan, When, hash};
use super::tools::{ANSWER, EFFECT, World, value};
use crate::chance::Chance;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use windlass::core::handle::{Handle, Kind, completion_key, idempotency_key, step_key};
use windlass::core::ids::CallId;
use windlass::{AskError, Completed, Resolution, Runtime, Target};

/// Submits the batches of a session in their order, a few of them under way together.
pub async fn submit(
    runtime: Runtime,
    world: Arc<World>,
    session: SessionPlan,
    resolved_percent: u64,
) -> Result<()> {
    let mut under_way = JoinSet::new();
    for batch in session.batches {
        if under_way.len() >= session.ahead
            && let Some(ended) = under_way.join_next().await
        {
            ended??;
        }
        let submitted = runtime.submit(&session.name, batch.request(batch.first())).await?;
        world.say(json!({"submitted": {"session": session.name, "batch": batch.key}}))?;
        world.reach(&under_way_name(&session.name, &batch.key));
        let client = BatchClient {
            runtime: runtime.clone(),
            world: Arc::clone(&world),
            session: session.name.clone(),
            batch,
        };
        under_way.spawn(async move {
            let mut answer = client.told(submitted).await?;
            if client.batch.grows {
                answer = client.submitted_again().await?;
            }
            client.resolve(&answer, resolved_percent).await
        });
    }
    while let Some(ended) = under_way.join_next().await {
        ended??;
    }
    Ok(())
}

fn under_way_name(session: &str, batch: &str) -> String {
    format!("{session}/{batch} is submitted")
}

/// Who submitted a batch.
struct BatchClient {
    runtime: Runtime,
    world: Arc<World>,
    session: String,
    batch: BatchPlan,
}

impl BatchClient {
    async fn told(&self, submitted: windlass::Submitted) -> Result<Value> {
        let answer = serde_json::to_value(submitted.settled().await?)?;
        self.world.say(json!({"session": self.session, "answer": answer}))?;
        Ok(answer)
    }

    async fn submitted_again(&self) -> Result<Value> {
        let whole = self.batch.request(self.batch.calls.len());
        self.told(self.runtime.submit(&self.session, whole).await?).await
    }

    /// Says of some calls that ended as unknown how they ended, and submits the batch again.
    async fn resolve(&self, answer: &Value, percent: u64) -> Result<()> {
        let calls = answer["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut resolved = false;
        for call in calls.iter().filter(|call| is_unknown(call)) {
            // The same call is resolved by some workers and not by others.
            let chance = Chance::new(self.world.client.chance()).branch(hash(call)).below(100);
            if chance < percent {
                self.resolve_call(call).await?;
                resolved = true;
            }
        }
        if resolved {
            self.submitted_again().await?;
        }
        Ok(())
    }

    async fn resolve_call(&self, call: &Value) -> Result<()> {
        let (id, handle) = (text(&call["id"]), text(&call["call"]));
        let plan =
            self.batch.calls.iter().find(|plan| plan.id == id).context("a call that is not planned")?;
        let key = idempotency_key(self.runtime.store().secret(), &self.session, &self.batch.key, &id);
        let request = Request {
            kind: "ask",
            key: match plan.kind.class {
                Class::Stepped => step_key(&key, EFFECT),
                Class::Once | Class::Keyed | Class::Read | Class::Missing => key,
            },
            call: format!("{}/{}/{id}", self.session, self.batch.key),
            handle: handle.clone(),
            attempt: call["attempts"].as_u64().unwrap_or(0) as u32,
            hash: hash(&plan.args()),
            order: "ok".to_owned(),
        };
        // An operator gives no more than fits an answer.
        let landed = |number| Resolution::Landed(value(&json!({"call": id}), number).value);
        let (resolution, other) = match self.world.client.effect(&request).await? {
            Some((verdict, number)) if verdict == "landed" => (landed(number), Resolution::DidNotHappen),
            _ => (Resolution::DidNotHappen, landed(0)),
        };
        let answer = self.runtime.resolve(&handle, resolution).await?;
        self.world.say(json!({"session": self.session, "answer": {"key": self.batch.key, "calls": [answer]}, "resolved": true}))?;
        match self.runtime.resolve(&handle, other).await {
            Err(AskError::Conflict) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => bail!("R12: {}: a resolution was taken that says something else", request.call),
        }
    }
}

/// Whether it is not known if a call took effect.
pub fn is_unknown(call: &Value) -> bool {
    call["state"] == "unknown" || call["outcome"]["effect"] == "unknown"
}

/// Asks to stop what the plan says, when it says.
pub async fn cancel(runtime: Runtime, world: Arc<World>, plan: CancelPlan, mut chance: Chance) -> Result<()> {
    let CancelPlan { session, batch, call, when } = &plan;
    match when {
        When::Within(most_us) => {
            let delay = Duration::from_micros(chance.between(0, *most_us));
            if chance.percent(50) {
                return Ok(());
            }
            tokio::time::sleep(delay).await;
        }
        When::Running => world.reaches(call.as_deref().unwrap_or_default()).await,
        When::Queued => {
            world.reaches(&under_way_name(session, batch.as_deref().unwrap_or_default())).await;
        }
    }
    let is_it = |open: &&windlass::OpenCall| {
        open.session == *session && Some(&open.batch) == batch.as_ref() && Some(&open.id) == call.as_ref()
    };
    let handle = match call {
        Some(_) => runtime.open().await?.iter().find(is_it).map(|open| open.call.clone()),
        None => None,
    };
    let target = match (&handle, call, batch) {
        (Some(handle), ..) => Some(Target::Call(handle)),
        // It is over, or was not submitted yet.
        (None, Some(_), _) => None,
        (None, None, Some(key)) => Some(Target::Batch { session, key }),
        (None, None, None) => Some(Target::Session(session)),
    };
    if let Some(target) = target {
        let scope = json!({"session": session, "batch": batch, "call": call});
        world.say(json!({"asking": scope}))?;
        match runtime.cancel(target, None).await {
            Ok(asked) => world.say(json!({"asked": scope, "open": asked.asked, "over": asked.over}))?,
            Err(AskError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if *when == When::Queued {
        world.release();
    }
    Ok(())
}

/// How long it takes at most until somebody answers.
const ANSWERED_US: u64 = 8_000;

/// How often a client looks whether a call waits for it.
const LOOK: Duration = Duration::from_millis(2);

/// The key of a call that waits and whose body did not run here: an earlier worker's client had it.
async fn key_of_parked(runtime: &Runtime, call: &str) -> String {
    let secret = runtime.store().secret();
    loop {
        let open = runtime.open().await.unwrap_or_default();
        let is_it = |open: &&windlass::OpenCall| {
            open.state == "awaiting_completion"
                && format!("{}/{}/{}", open.session, open.batch, open.id) == call
        };
        let handle = open.iter().find(is_it).and_then(|open| Handle::parse(&open.call));
        if let Some(id) = handle.and_then(|handle| handle.open(secret, Kind::Call)) {
            return completion_key(secret, CallId::unpacked(id), ANSWER);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Answers what a call waits for, and once more with something else. Each worker's client says something of its own.
pub async fn answer(runtime: Runtime, world: Arc<World>, call: String, mut chance: Chance) -> Result<()> {
    let key = tokio::select! {
        key = world.key_of(&call) => key,
        key = key_of_parked(&runtime, &call) => key,
    };
    tokio::time::sleep(Duration::from_micros(chance.between(0, ANSWERED_US))).await;
    let said = json!({"by": world.client.chance(), "says": "yes"});
    match runtime.complete(&key, Completed::Ok(said.clone())).await {
        Ok(()) => world.say(json!({"answered": {"call": call, "said": said}}))?,
        // Another worker's client was here before, or the call is over.
        Err(AskError::Answered | AskError::Over { .. }) => {}
        Err(error) => return Err(error).context(format!("R12: {call} was not answered")),
    }
    match runtime.complete(&key, Completed::Ok(json!("no"))).await {
        Err(AskError::Answered | AskError::Over { .. }) => Ok(()),
        Err(error) => Err(error).context(format!("R12: {call} was not answered again")),
        Ok(()) => bail!("R12: {call}: a second answer was taken that says something else"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
