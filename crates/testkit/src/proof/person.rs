//! The person behind a call, as part of a worker's client: answers what it waits for and what it asks, signals it, connects
//! what it needs, and runs the tools that the client runs. What a worker's person says differs from what any other's does, so that
//! it is seen whose word counted.

use super::kind::Class;
use super::ledger::LedgerRequest;
use super::plan::{CallPlan, Connects};
use super::tools::{ANSWER, QUESTION, SIGNAL, SIGNALS, World};
use crate::chance::Chance;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use windlass::Runtime;
use windlass::ask::Signal;
use windlass::error::AskError;
use windlass::inspect::OpenCall;
use windlass::wait::Completed;
use windlass_core::handle::{Handle, HandleKind, completion_key};
use windlass_core::ids::CallId;
use windlass_core::operation::CLIENT;

/// How long it takes at most until somebody answers.
const ANSWERED_US: u64 = 8_000;

/// How often a client looks whether a call waits for it.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// Whom a call waits for.
#[derive(Clone)]
pub struct Person {
    /// Where the call is.
    pub runtime: Runtime,
    /// State shared with the tools.
    pub world: Arc<World>,
    /// The session of the call.
    pub session: String,
    /// Its session, batch and id.
    pub call: String,
}

/// An answer, and the name of its wait.
#[derive(Clone, Copy)]
enum PersonReply<'a> {
    /// A completion, by its key.
    Key(&'a str),
    /// A question, by its id.
    Question(&'a str),
    /// The result of a tool that the client runs, by the handle of the call.
    Result(&'a str),
}

impl Person {
    /// Does what the call will need.
    pub fn attend(self, plan: &CallPlan, chance: Chance, asks: &mut JoinSet<Result<()>>) {
        if plan.inside.answer {
            asks.spawn(self.clone().complete(chance.branch(1)));
        }
        if plan.inside.question {
            asks.spawn(self.clone().reply(plan.id.clone(), chance.branch(2)));
        }
        if plan.inside.signal {
            asks.spawn(self.clone().signal(chance.branch(5)));
        }
        if plan.connects != Connects::Nothing {
            let made = plan.connects == Connects::Made;
            asks.spawn(self.clone().connect(plan.provider(), made, chance.branch(3)));
        }
        if plan.kind.class == Class::Shifting {
            asks.spawn(self.clone().accept(chance.branch(6)));
        }
        if plan.kind.class == Class::Client {
            asks.spawn(self.run(plan.id.clone(), chance.branch(4)));
        }
    }

    /// Answers what the call waits for.
    async fn complete(self, mut chance: Chance) -> Result<()> {
        let key = tokio::select! {
            key = self.world.key_of(&self.call) => key,
            key = self.key_of_parked() => key,
        };
        think(&mut chance).await;
        let said = json!({"by": self.world.client.chance(), "says": "yes"});
        self.say(PersonReply::Key(&key), said, json!("no")).await
    }

    /// The key of a call that waits and whose body did not run here: an earlier worker's client had it.
    async fn key_of_parked(&self) -> String {
        let open = self.waits("awaiting_completion").await;
        let secret = self.runtime.store().secret();
        let id = Handle::parse(&open.call).and_then(|handle| handle.open(secret, HandleKind::Call));
        id.map(|id| completion_key(secret, CallId::unpacked(id), ANSWER)).unwrap_or_default()
    }

    /// Answers what the call asks: first with something that is no answer to that.
    async fn reply(self, id: String, mut chance: Chance) -> Result<()> {
        let question = loop {
            let asked = self.runtime.questions().await?;
            let of_it = asked.into_iter().find(|asked| asked.session == self.session && asked.call_id == id);
            match of_it {
                Some(question) => break question.id,
                None => tokio::time::sleep(LOOK).await,
            }
        };
        think(&mut chance).await;
        match self.runtime.answer(&question, &json!({"by": "nobody"})).await {
            Err(AskError::Invalid { .. }) => {}
            Err(error) => {
                return Err(error).context(format!("R12: {}: no answer was not refused", self.call));
            }
            Ok(()) => bail!("R12: {}: an answer was taken that is none", self.call),
        }
        let by = |number: u64| json!({"by": number});
        let (own, other) = (self.world.client.chance(), u64::MAX);
        self.say(PersonReply::Question(&question), by(own), by(other)).await
    }

    /// Sends the call one signal after the other, and one more than it receives. A later worker's client sends them again under
    /// the same keys: what was acknowledged before is received once.
    async fn signal(self, mut chance: Chance) -> Result<()> {
        let handle = self.is_open(|_| true).await.call;
        for number in 1..=SIGNALS + 1 {
            think(&mut chance).await;
            let (key, call) = (format!("signal {number}"), &self.call);
            let send = async |payload: u64| {
                let payload = json!(payload);
                let signal = Signal { name: SIGNAL, payload: &payload, key: Some(&key) };
                self.runtime.signal(&handle, signal).await
            };
            match send(number).await {
                Ok(()) => self.world.say(json!({"signalled": {"call": call, "number": number}}))?,
                Err(AskError::Over { .. }) => return Ok(()),
                Err(error) => return Err(error).context(format!("R12: {call} was not signalled")),
            }
            match send(u64::MAX).await {
                Err(AskError::KeyUsed) => {}
                Err(AskError::Over { .. }) => return Ok(()),
                Err(error) => return Err(error).context(format!("R12: {call} was not signalled again")),
                Ok(()) => bail!("R12: {call}: another signal was taken under the key of one"),
            }
        }
        Ok(())
    }

    /// Lets the call go on under what its tool has become, as often as it waits for that.
    async fn accept(self, mut chance: Chance) -> Result<()> {
        loop {
            let waits = |open: &OpenCall| {
                open.waiting_for.as_deref().is_some_and(|why| why.starts_with("tool_changed"))
            };
            let handle = self.is_open(waits).await.call;
            think(&mut chance).await;
            match self.runtime.accept(&handle).await {
                // It is over by now, or another accept came first.
                Ok(()) | Err(AskError::Unfit { .. } | AskError::Over { .. }) => {}
                Err(error) => return Err(error).context(format!("R12: {} was not accepted", self.call)),
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Runs the call's tool, and says what came of that.
    async fn run(self, id: String, mut chance: Chance) -> Result<()> {
        let handle = self.waits("awaiting_client").await.call;
        think(&mut chance).await;
        let result = |by: u64| json!({"call": id, "by": by});
        let (own, other) = (result(self.world.client.chance()), result(u64::MAX));
        self.say(PersonReply::Result(&handle), own, other).await
    }

    /// Says something, and then something else, which must not count.
    async fn say(&self, way: PersonReply<'_>, said: Value, other: Value) -> Result<()> {
        let call = &self.call;
        match self.send(way, said.clone()).await {
            Ok(()) => {
                let name = match way {
                    PersonReply::Key(_) => ANSWER,
                    PersonReply::Question(_) => QUESTION,
                    PersonReply::Result(_) => CLIENT,
                };
                self.world.say(json!({"answered": {"call": call, "name": name, "said": said}}))?;
            }
            // Another worker's client was here before, or the call is over.
            Err(AskError::Answered | AskError::Over { .. }) => {}
            Err(error) => return Err(error).context(format!("R12: {call} was not answered")),
        }
        match self.send(way, other).await {
            Err(AskError::Answered | AskError::Over { .. }) => Ok(()),
            Err(error) => Err(error).context(format!("R12: {call} was not answered again")),
            Ok(()) => bail!("R12: {call}: a second answer was taken that says something else"),
        }
    }

    async fn send(&self, way: PersonReply<'_>, said: Value) -> Result<(), AskError> {
        match way {
            PersonReply::Key(key) => self.runtime.complete(key, Completed::ok(said)).await,
            PersonReply::Question(id) => self.runtime.answer(id, &said).await,
            PersonReply::Result(handle) => self.runtime.client_result(handle, Completed::ok(said)).await,
        }
    }

    /// Connects what the call needs, or declines. Whoever was told that this is durable does not say it again, and neither
    /// does a later worker's client: if it is lost, the call waits for ever.
    async fn connect(self, provider: String, made: bool, mut chance: Chance) -> Result<()> {
        let told = format!("told {provider}");
        loop {
            self.waits("awaiting_connection").await;
            if self.at_the_ledger("check", &told).await? == "there" {
                return Ok(());
            }
            think(&mut chance).await;
            if made {
                self.at_the_ledger("connect", &provider).await?;
            }
            match self.runtime.connected(&self.session, &provider, made).await {
                // It is over by now, or was seen before that it waits was recorded.
                Ok(reached) if reached.waiting == 0 => tokio::time::sleep(LOOK).await,
                Ok(_) => {
                    self.world.say(json!({"connected": {"call": self.call, "made": made}}))?;
                    self.at_the_ledger("connect", &told).await?;
                    return Ok(());
                }
                Err(error) => return Err(error).context(format!("R12: {} was not connected", self.call)),
            }
        }
    }

    /// The ledger's record of a connection: connections are there, and it is never killed.
    async fn at_the_ledger(&self, kind: &'static str, provider: &str) -> Result<String> {
        let secret = self.runtime.store().secret();
        let request = LedgerRequest::about_a_connection(kind, secret, &self.call, provider);
        let answer = self.world.client.effect(&request).await?;
        answer.map(|(verdict, _)| verdict).context("the ledger hung up")
    }

    /// Waits until the call waits for something outside.
    async fn waits(&self, state: &str) -> OpenCall {
        self.is_open(|open| open.state == state).await
    }

    /// Waits until the call is open, and so.
    async fn is_open(&self, so: impl Fn(&OpenCall) -> bool) -> OpenCall {
        let is_it =
            |open: &OpenCall| so(open) && format!("{}/{}/{}", open.session, open.batch, open.id) == self.call;
        loop {
            if let Some(open) = self.runtime.open().await.unwrap_or_default().into_iter().find(is_it) {
                return open;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// It takes a while until somebody answers.
pub(super) async fn think(chance: &mut Chance) {
    tokio::time::sleep(Duration::from_micros(chance.between(0, ANSWERED_US))).await;
}
