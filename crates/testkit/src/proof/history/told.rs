//! Replies to clients.

use super::text;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The replies to one worker's client.
#[derive(Clone, Debug, Default)]
pub struct WorkerReplies {
    /// The number of the worker in its trial.
    pub worker: u32,
    /// How far it came: `opened`, `resumed`, `done`.
    pub phases: Vec<String>,
    /// The answers, in the order in which they came.
    pub answers: Vec<BatchReply>,
    /// Its cancel requests.
    pub cancels: Vec<ClientCancel>,
    /// Its acknowledged answers to waiting calls.
    pub answered: Vec<ClientAnswer>,
    /// The signals that it sent, each with its call, and was told that they are durable.
    pub signalled: Vec<(String, u64)>,
    /// The calls that it connected to what they need, or declined to, and was told that this is durable.
    pub connected: Vec<(String, bool)>,
    /// The calls that it pushed, and was told that they are durable; and those that were refused.
    pub pushed: Vec<String>,
    /// See above.
    pub refused: Vec<String>,
    /// The notices it took.
    pub taken: Vec<Taken>,
    /// The notices that it was about to acknowledge, and those that it was told are gone.
    pub acknowledging: Vec<String>,
    /// See above.
    pub acknowledged: Vec<String>,
    /// The handles of calls that it was told of before they had ended.
    pub provisional: Vec<String>,
    /// The notices that it gave back.
    pub requeued: Vec<String>,
    /// The schedules that it was told are durable.
    pub scheduled: Vec<String>,
    /// The sessions that it was about to delete, and those that it was told are gone.
    pub deleting: Vec<String>,
    /// See above.
    pub deleted: Vec<String>,
    /// The answers of batches whose calls start and await tasks, each with its session.
    pub contexts: Vec<Value>,
    /// The named events that it fulfilled, and was told that this is durable.
    pub fulfilled: Vec<Value>,
    /// The answers to questions about calls that it was about to give, and those that it was told are durable.
    pub deciding: Vec<Value>,
    /// See above.
    pub decided: Vec<Value>,
    /// The grants that it was about to revoke, and those that it was told are revoked.
    pub revoking: Vec<Value>,
    /// See above.
    pub revoked: Vec<Value>,
    /// The versions of the policy, as it saw them at its end.
    pub policies: Vec<Value>,
    /// Whether it was killed.
    pub died: bool,
}

/// A notice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taken {
    /// Its id.
    pub id: String,
    /// The task that it tells of.
    pub task: String,
    /// The kind of the event.
    pub kind: String,
    /// The state of the task.
    pub state: String,
    /// Between which moments it was taken, by the clock of its worker that never jumps.
    pub within_us: (u64, u64),
}

impl Taken {
    /// From what is shown of a notice.
    pub fn read(notice: &Value) -> Taken {
        let given = |name: &str| text(&notice[name]);
        let moment = |place: usize| notice["within_us"][place].as_u64().unwrap_or_default();
        let within_us = (moment(0), moment(1));
        Taken { id: given("id"), task: given("task"), kind: given("kind"), state: given("state"), within_us }
    }
}

/// A client's answer to a waiting call.
#[derive(Clone, Debug)]
pub struct ClientAnswer {
    /// Session, batch and id of the call.
    pub call: String,
    /// The name of the wait in the call.
    pub name: String,
    /// The answer.
    pub said: Value,
}

/// A cancel that a client asked for.
#[derive(Clone, Debug)]
pub struct ClientCancel {
    /// In which session.
    pub session: String,
    /// In which batch, or in all of them.
    pub batch: Option<String>,
    /// Which call, or all of them.
    pub call: Option<String>,
    /// The batches of the session that the same worker had submitted before.
    pub submitted: BTreeSet<String>,
    /// Whether it was told that this is durable.
    pub acknowledged: bool,
}

impl ClientCancel {
    /// Whether it reaches the call of this name.
    pub fn reaches(&self, name: &str) -> bool {
        let mut words = name.splitn(3, '/');
        let mut is = |asked: Option<&String>| {
            let word = words.next();
            asked.is_none_or(|asked| Some(asked.as_str()) == word)
        };
        is(Some(&self.session)) && is(self.batch.as_ref()) && is(self.call.as_ref())
    }
}

/// The answer of one batch.
#[derive(Clone, Debug)]
pub struct BatchReply {
    /// The session.
    pub session: String,
    /// The batch's key.
    pub batch: String,
    /// Its calls, as they are shown.
    pub calls: Vec<Value>,
    /// The decision of its sibling rule.
    pub decided: Value,
    /// Whether it is of one call alone, that was resolved or pushed.
    pub alone: bool,
}

impl WorkerReplies {
    /// Reads what a worker said. What is not a whole line was never said.
    pub fn read(worker: u32, said: &str) -> Result<WorkerReplies> {
        let mut told = WorkerReplies { worker, ..WorkerReplies::default() };
        let mut submitted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for line in said.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let line: Value =
                serde_json::from_str(line).with_context(|| format!("worker {worker} said {line:?}"))?;
            if let Some(phase) = line["phase"].as_str() {
                told.phases.push(phase.to_owned());
                continue;
            }
            if let Some(batch) = line.get("submitted") {
                submitted.entry(text(&batch["session"])).or_default().insert(text(&batch["batch"]));
                continue;
            }
            if told.notes(&line) {
                continue;
            }
            if let Some(scope) = line.get("asking") {
                let given = |name: &str| scope[name].as_str().map(str::to_owned);
                let session = text(&scope["session"]);
                let submitted = submitted.get(&session).cloned().unwrap_or_default();
                let (batch, call) = (given("batch"), given("call"));
                told.cancels.push(ClientCancel { session, batch, call, submitted, acknowledged: false });
                continue;
            }
            if let Some(scope) = line.get("asked") {
                let given = |name: &str| scope[name].as_str().map(str::to_owned);
                let is_it = |cancel: &&mut ClientCancel| {
                    cancel.session == text(&scope["session"])
                        && cancel.batch == given("batch")
                        && cancel.call == given("call")
                };
                if let Some(cancel) = told.cancels.iter_mut().rev().find(is_it) {
                    cancel.acknowledged = true;
                }
                continue;
            }
            told.answers.push(BatchReply {
                session: text(&line["session"]),
                batch: text(&line["answer"]["key"]),
                calls: line["answer"]["calls"].as_array().cloned().unwrap_or_default(),
                decided: line["answer"]["decided"].clone(),
                alone: line["alone"] == true,
            });
        }
        Ok(told)
    }

    /// Takes in what is but one more of its kind; whether it was.
    fn notes(&mut self, line: &Value) -> bool {
        if let Some(answered) = line.get("answered") {
            let (call, name) = (text(&answered["call"]), text(&answered["name"]));
            self.answered.push(ClientAnswer { call, name, said: answered["said"].clone() });
            return true;
        }
        if let Some(signalled) = line.get("signalled") {
            let number = signalled["number"].as_u64().unwrap_or_default();
            self.signalled.push((text(&signalled["call"]), number));
            return true;
        }
        if let Some(connected) = line.get("connected") {
            self.connected.push((text(&connected["call"]), connected["made"] == true));
            return true;
        }
        for (name, said) in [
            ("context", &mut self.contexts),
            ("fulfilled", &mut self.fulfilled),
            ("deciding", &mut self.deciding),
            ("decided", &mut self.decided),
            ("policies", &mut self.policies),
            ("revoking", &mut self.revoking),
            ("revoked", &mut self.revoked),
        ] {
            if let Some(line) = line.get(name) {
                said.push(line.clone());
                return true;
            }
        }
        if let Some(pushed) = line.get("pushed") {
            self.pushed.push(text(pushed));
            return true;
        }
        if let Some(open) = line.get("provisional").and_then(Value::as_array) {
            self.provisional.extend(open.iter().map(text));
            return true;
        }
        if let Some(taken) = line.get("taken") {
            self.taken.push(Taken::read(taken));
            return true;
        }
        let ids = [
            ("acknowledging", &mut self.acknowledging),
            ("acknowledged", &mut self.acknowledged),
            ("requeued", &mut self.requeued),
            ("scheduled", &mut self.scheduled),
            ("deleting", &mut self.deleting),
            ("deleted", &mut self.deleted),
        ];
        let mut named = ids.into_iter().filter_map(|(name, ids)| Some((line.get(name)?, ids)));
        if let Some((id, ids)) = named.next() {
            ids.push(text(id));
            return true;
        }
        if let Some(refused) = line.get("refused") {
            self.refused.push(text(&refused["call"]));
            return true;
        }
        false
    }

    /// Whether it came this far.
    pub fn reached(&self, phase: &str) -> bool {
        self.phases.iter().any(|reached| reached == phase)
    }
}
