//! The person behind a call, as part of a worker's client: answers what it waits for and what it asks, signals it, connects
//! what it needs, and runs the tools that the client runs. What a worker's person says differs from what any other's does, so that
//! it is seen whose word counted.

use super::kind::Class;
use super::ledger::Request;
use super::plan::{CallPlan, Connects};
use super::tools::{ANSWER, QUESTION, SIGNAL, SIGNALS, World};
use crate::chance::Chance;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use windlass::core::handle::{Handle, Kind, completion_key};
use windlass::core::ids::CallId;
use windlass::core::operation::CLIENT;
use windlass::{AskError, Completed, OpenCall, Runtime, Signal};

/// How long it takes at most until somebody answers.
const ANSWERED_US: u64 = 8_000;

/// How often a client looks whether a call waits for it.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// Whom a call waits for.
#[derive(Clone)]
pub struct Person {
    /// Where the call is.
    pub runtime: Runtime,
    /// What is shared with the tools.
    pub world: Arc<World>,
    /// The session of the call.
    pub session: String,
    /// Its session, batch and id.
    pub call: String,
}

/// What is answered, and under which name.
#[derive(Clone, Copy)]
enum Way<'a> {
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
            asks.spawn(self.clone().connect((plan.provider(), made), chance.branch(3)));
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
        self.say(Way::Key(&key), said, json!("no")).await
    }

    /// The key of a call that waits and whose body did not run here: an earlier worker's client had it.
    async fn key_of_parked(&self) -> String {
        let open = self.waits("awaiting_completion").await;
        let secret = self.runtime.store().secret();
        let id = Handle::parse(&open.call).and_then(|handle| handle.open(secret, Kind::Call));
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
        self.say(Way::Question(&question), by(own), by(other)).await
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

    /// Runs the call's tool, and says what came of that.
    async fn run(self, id: String, mut chance: Chance) -> Result<()> {
        let handle = self.waits("awaiting_client").await.call;
        think(&mut chance).await;
        let result = |by: u64| json!({"call": id, "by": by});
        let (own, other) = (result(self.world.client.chance()), result(u64::MAX));
        self.say(Way::Result(&handle), own, other).await
    }

    /// Says something, and then something else, which must not count.
    async fn say(&self, way: Way<'_>, said: Value, other: Value) -> Result<()> {
        let call = &self.call;
        match self.send(way, said.clone()).await {
            Ok(()) => {
                let name = match way {
                    Way::Key(_) => ANSWER,
                    Way::Question(_) => QUESTION,
                    Way::Result(_) => CLIENT,
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

    async fn send(&self, way: Way<'_>, said: Value) -> Result<(), AskError> {
        match way {
            Way::Key(key) => self.runtime.complete(key, Completed::Ok(said)).await,
            Way::Question(id) => self.runtime.answer(id, &said).await,
            Way::Result(handle) => self.runtime.client_result(handle, Completed::Ok(said)).await,
        }
    }

    /// Connects what the call needs, or declines. Whoever was told that this is durable does not say it again, and neither
    /// does a later worker's client: if it is lost, the call waits for ever.
    async fn connect(self, (provider, made): (String, bool), mut chance: Chance) -> Result<()> {
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

    /// What the ledger says of a connection: it is where connections are, and is never killed.
    async fn at_the_ledger(&self, kind: &'static str, provider: &str) -> Result<String> {
        let secret = self.runtime.store().secret();
        let request = Request::about_a_connection(kind, secret, (&self.call, provider));
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
