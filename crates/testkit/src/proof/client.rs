//! The client of a worker: it submits batches whole or call by call, cancels, and resolves what ended as unknown by what
//! the ledger saw. What it is about to do and what it was told it says, one JSON object per line.

use super::kind::Class;
use super::ledger::LedgerRequest;
use super::person::LOOK;
use super::plan::{BatchPlan, CancelPlan, CancelTime, FirstReply, SessionPlan, hash};
use super::tools::{EFFECT, World, value};
use crate::chance::Chance;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use windlass::ask::{Resolution, Target};
use windlass::batch::StreamRequest;
use windlass::error::{AskError, SessionError};
use windlass::{BatchError, BatchRequest, Runtime, Submitted};
use windlass_core::handle::{idempotency_key, step_key};

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
        let client = BatchClient {
            runtime: runtime.clone(),
            world: Arc::clone(&world),
            session: session.name.clone(),
            batch,
        };
        let submitted = match client.batch.streamed {
            true => client.pushed(&mut under_way).await?,
            false => {
                let unattended = client.batch.asks == FirstReply::Unattended;
                let request = client.batch.request(client.batch.first());
                runtime.submit(&session.name, BatchRequest { unattended, ..request }).await?
            }
        };
        world.say(json!({"submitted": {"session": session.name, "batch": client.batch.key}}))?;
        world.reach(&under_way_name(&session.name, &client.batch.key));
        under_way.spawn(async move {
            if client.batch.asks != FirstReply::AtTheEnd {
                client.answered_early(&submitted).await?;
            }
            let mut answer = match client.batch.walks_away {
                true => client.come_back(submitted).await?,
                false => client.told(submitted).await?,
            };
            if calls(&answer).iter().any(is_open) {
                answer = client.come_back_later().await?;
            }
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

/// After so many looks a client that walked away asks whether its batch is still there.
const LOOKS_MAX: u32 = 50;

/// The client of a batch.
struct BatchClient {
    runtime: Runtime,
    world: Arc<World>,
    session: String,
    batch: BatchPlan,
}

impl BatchClient {
    /// Opens the batch, pushes its calls one after the other, and closes it. If a worker died in the middle the batch is
    /// closed: what is recorded is joined, and the rest refused.
    async fn pushed(&self, under_way: &mut JoinSet<Result<()>>) -> Result<Submitted> {
        let (key, siblings) = (self.batch.key.clone(), self.batch.siblings);
        let request = StreamRequest { key, siblings, ..StreamRequest::default() };
        let stream = self.runtime.open_batch(&self.session, request).await?;
        for call in &self.batch.calls {
            let name = format!("{}/{}/{}", self.session, self.batch.key, call.id);
            match stream.push(vec![call.request()]).await {
                Ok(submitted) => {
                    self.world.say(json!({"pushed": name}))?;
                    let (world, session) = (Arc::clone(&self.world), self.session.clone());
                    under_way.spawn(async move {
                        let answer = serde_json::to_value(submitted.settled().await?)?;
                        Ok(world.say(json!({"session": session, "answer": answer, "alone": true}))?)
                    });
                }
                Err(error @ (BatchError::Shape { .. } | BatchError::Closed { .. })) => {
                    self.world.say(json!({"refused": {"call": name, "what": error.to_string()}}))?
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(stream.close().await?)
    }

    /// Asks how the calls stand, and says which of them were answered before they had ended.
    async fn answered_early(&self, submitted: &Submitted) -> Result<()> {
        let answer = submitted.now().await?;
        let open = answer.calls.iter().filter(|call| call.call().end().is_none() && !call.is_conflict());
        let open: Vec<String> = open.map(|call| call.handle().to_string()).collect();
        Ok(self.world.say(json!({"provisional": open}))?)
    }

    async fn told(&self, submitted: Submitted) -> Result<Value> {
        let answer = serde_json::to_value(submitted.settled().await?)?;
        self.world.say(json!({"session": self.session, "answer": answer}))?;
        Ok(answer)
    }

    /// Waits for nothing until the calls are over, and asks then what became of them.
    async fn come_back(&self, submitted: Submitted) -> Result<Value> {
        drop(submitted);
        self.come_back_later().await
    }

    async fn come_back_later(&self) -> Result<Value> {
        let is_it =
            |open: &windlass::inspect::OpenCall| open.session == self.session && open.batch == self.batch.key;
        let mut looks = 0_u32;
        while self.runtime.open().await?.iter().any(is_it) {
            tokio::time::sleep(LOOK).await;
            looks += 1;
            // If the store failed under it, only who asks is told.
            if looks.is_multiple_of(LOOKS_MAX) {
                let whole = self.batch.request(self.batch.calls.len());
                drop(self.runtime.submit(&self.session, whole).await?);
            }
        }
        self.submitted_again().await
    }

    async fn submitted_again(&self) -> Result<Value> {
        if self.batch.streamed {
            let request = StreamRequest { key: self.batch.key.clone(), ..StreamRequest::default() };
            let stream = self.runtime.open_batch(&self.session, request).await?;
            return self.told(stream.close().await?).await;
        }
        let whole = self.batch.request(self.batch.calls.len());
        self.told(self.runtime.submit(&self.session, whole).await?).await
    }

    /// Says of some calls that ended as unknown how they ended, and submits the batch again.
    async fn resolve(&self, answer: &Value, percent: u64) -> Result<()> {
        let mut resolved = false;
        for call in calls(answer).iter().filter(|call| is_unknown(call)) {
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
        let request = LedgerRequest {
            kind: "ask",
            key: match plan.kind.class {
                Class::Stepped => step_key(&key, EFFECT),
                Class::Once | Class::Keyed | Class::Read | Class::Client | Class::Missing => key,
                // Nobody knows under which of its two keys it took effect: nobody says so.
                Class::Shifting => return Ok(()),
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
        self.world.say(json!({"session": self.session, "answer": {"key": self.batch.key, "calls": [answer]}, "alone": true}))?;
        match self.runtime.resolve(&handle, other).await {
            Err(AskError::Conflict) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => bail!("R12: {}: a resolution was taken that says something else", request.call),
        }
    }
}

fn calls(answer: &Value) -> &[Value] {
    answer["calls"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether a call goes on without its caller: how it ended comes later.
pub fn is_open(call: &Value) -> bool {
    call["task"].is_string() && call["outcome"].is_null()
}

/// Whether it is not known if a call took effect.
pub fn is_unknown(call: &Value) -> bool {
    call["state"] == "unknown" || call["outcome"]["effect"] == "unknown"
}

/// Asks to stop what the plan says, when it says.
pub async fn cancel(runtime: Runtime, world: Arc<World>, plan: CancelPlan, mut chance: Chance) -> Result<()> {
    let CancelPlan { session, batch, call, when } = &plan;
    match when {
        CancelTime::Within(most_us) => {
            let delay = Duration::from_micros(chance.between(0, *most_us));
            if chance.percent(50) {
                return Ok(());
            }
            tokio::time::sleep(delay).await;
        }
        CancelTime::Running => world.reaches(call.as_deref().unwrap_or_default()).await,
        CancelTime::Queued => {
            world.reaches(&under_way_name(session, batch.as_deref().unwrap_or_default())).await;
        }
    }
    let is_it = |open: &&windlass::inspect::OpenCall| {
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
            Err(AskError::NotFound { .. } | AskError::Session(SessionError::NotFound { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if *when == CancelTime::Queued {
        world.release();
    }
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
