//! Two of the three histories, read back: what clients were told, and what the journal says.

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use windlass::core::batch::Batch;
use windlass::core::call::{CancelAsked, Fact, Reason, Verdict};
use windlass::core::entry::{self, Event};
use windlass::core::handle::{Handle, Kind, idempotency_key};
use windlass::core::ids::{BatchNo, BlobNo, EntryNo, Ordinal};
use windlass::core::operation::{Completion, Did, Operation, StepResult};
use windlass::core::time::Timestamp;
use windlass::{Decision, Siblings, inspect};
use windlass_store::{SessionRow, SqliteStore, Store};

/// Journal rows are read in pages of this size.
const ROWS_PAGE: u64 = 64;

/// What the client of one worker was told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The number of the worker in its trial.
    pub worker: u32,
    /// How far it came: `opened`, `resumed`, `done`.
    pub phases: Vec<String>,
    /// The answers, in the order in which they came.
    pub answers: Vec<Answer>,
    /// What it asked to stop.
    pub cancels: Vec<Cancel>,
    /// What it answered to calls that wait, and was told that it is durable.
    pub answered: Vec<(String, Value)>,
    /// Whether it was killed.
    pub died: bool,
}

/// A cancel that a client asked for.
#[derive(Clone, Debug)]
pub struct Cancel {
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

impl Cancel {
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
pub struct Answer {
    /// The session.
    pub session: String,
    /// The batch's key.
    pub batch: String,
    /// Its calls, as they are shown.
    pub calls: Vec<Value>,
    /// What came of what it asked of its calls together.
    pub decided: Value,
    /// Whether it is the answer to a resolution, of one call alone.
    pub resolved: bool,
}

impl Told {
    /// Reads what a worker said. What is not a whole line was never said.
    pub fn read(worker: u32, said: &str) -> Result<Told> {
        let mut told = Told { worker, ..Told::default() };
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
            if let Some(answered) = line.get("answered") {
                told.answered.push((text(&answered["call"]), answered["said"].clone()));
                continue;
            }
            if let Some(scope) = line.get("asking") {
                let given = |name: &str| scope[name].as_str().map(str::to_owned);
                let session = text(&scope["session"]);
                let submitted = submitted.get(&session).cloned().unwrap_or_default();
                let (batch, call) = (given("batch"), given("call"));
                told.cancels.push(Cancel { session, batch, call, submitted, acknowledged: false });
                continue;
            }
            if let Some(scope) = line.get("asked") {
                let given = |name: &str| scope[name].as_str().map(str::to_owned);
                let is_it = |cancel: &&mut Cancel| {
                    cancel.session == text(&scope["session"])
                        && cancel.batch == given("batch")
                        && cancel.call == given("call")
                };
                if let Some(cancel) = told.cancels.iter_mut().rev().find(is_it) {
                    cancel.acknowledged = true;
                }
                continue;
            }
            told.answers.push(Answer {
                session: text(&line["session"]),
                batch: text(&line["answer"]["key"]),
                calls: line["answer"]["calls"].as_array().cloned().unwrap_or_default(),
                decided: line["answer"]["decided"].clone(),
                resolved: line["resolved"] == true,
            });
        }
        Ok(told)
    }

    /// Whether it came this far.
    pub fn reached(&self, phase: &str) -> bool {
        self.phases.iter().any(|reached| reached == phase)
    }
}

/// What the journals of a data folder say.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// Every recorded call, by session, batch and ordinal.
    pub calls: Vec<Recorded>,
    /// Every recorded batch.
    pub batches: Vec<RecordedBatch>,
    /// What is wrong with the journals themselves: damage, gaps, open batches.
    pub problems: Vec<String>,
}

/// What happened to a call's attempts, by its entries.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// How many were lost with their owner.
    pub lost: u32,
    /// How many returned.
    pub returned: u32,
    /// How many were stopped and may have taken effect.
    pub stopped: u32,
    /// How many were stopped before they could.
    pub stopped_in_time: u32,
    /// What the tool said of those that did not return, in order.
    pub reconciled: Vec<&'static str>,
    /// How often it waited to be tried again.
    pub retries: u32,
    /// Whether its last attempt is put aside.
    pub put_aside: bool,
    /// The entry in which it was asked to stop.
    pub cancel_asked: Option<EntryNo>,
    /// Whether that was because its batch was decided without it.
    pub dismissed: bool,
    /// The entries in which it was resolved: none, or one behind its end.
    pub resolved: Vec<EntryNo>,
}

impl Recorded {
    fn add(&mut self, number: EntryNo, fact: &Fact) {
        let past = &mut self.past;
        match fact {
            Fact::Started(_) => self.started.push(number),
            Fact::Ended(_) => self.ended.push(number),
            Fact::Lost(_) => past.lost += 1,
            Fact::Returned(_) => {
                past.put_aside = false;
                past.returned += 1;
            }
            Fact::Suspended(_) => past.put_aside = true,
            Fact::Resumed(_) => past.put_aside = false,
            Fact::Stopped(stopped) if stopped.may_have_acted => past.stopped += 1,
            Fact::Stopped(_) => past.stopped_in_time += 1,
            Fact::Reconciled(reconciled) => past.reconciled.push(match reconciled.verdict {
                Verdict::Landed(_) => "landed",
                Verdict::DidNotHappen => "did not happen",
                Verdict::Unknown => "unknown",
            }),
            Fact::Parked(parked) => past.retries += u32::from(parked.reason == Reason::Retry),
            Fact::CancelAsked(asked) if past.cancel_asked.is_none() => {
                past.cancel_asked = Some(number);
                past.dismissed = dismissal(asked).is_some();
            }
            // The first stands.
            Fact::CancelAsked(_) => {}
            Fact::Resolved(_) => past.resolved.push(number),
            Fact::Operation(operation) => self.inside.add(self.started.len() as u32, operation),
            Fact::Opened(_)
            | Fact::Prepared(_)
            | Fact::Accepted(_)
            | Fact::SameAs(_)
            | Fact::First
            | Fact::Unconnected(_)
            | Fact::Connected(_) => {}
        }
    }
}

/// What a call did by name, by its entries.
#[derive(Clone, Debug, Default)]
pub struct Inside {
    /// Its steps.
    pub steps: BTreeMap<String, RecordedStep>,
    /// What was answered to it, in order: once.
    pub answers: Vec<Value>,
    /// How often it slept.
    pub sleeps: u32,
    /// How often it wrote its pair, and told of that.
    pub pairs: u32,
    /// See above.
    pub events: u32,
}

/// What is recorded of a step.
#[derive(Clone, Debug, Default)]
pub struct RecordedStep {
    /// The attempts in which it failed.
    pub failed_in: Vec<u32>,
    /// The attempts in which it succeeded: one.
    pub done_in: Vec<u32>,
}

impl Inside {
    fn add(&mut self, attempt: u32, operation: &Operation) {
        match &operation.did {
            Did::StepStarted { .. } => _ = self.steps.entry(operation.name.to_string()).or_default(),
            Did::StepEnded { result, .. } => {
                let step = self.steps.entry(operation.name.to_string()).or_default();
                match result {
                    StepResult::Ok(_) => step.done_in.push(attempt),
                    StepResult::Failed(_) => step.failed_in.push(attempt),
                }
            }
            Did::Completed(Completion::Ok(answer)) => {
                self.answers.push(serde_json::from_str(answer).unwrap_or_default());
            }
            Did::Completed(other) => self.answers.push(json!(format!("{other:?}"))),
            Did::SleepEnded => self.sleeps += 1,
            Did::PairWritten { written, .. } => self.pairs += u32::from(*written),
            Did::Emitted { .. } => self.events += 1,
            Did::SleepBegan(_)
            | Did::KeyTaken
            | Did::WaitBegan(_)
            | Did::TimedOut
            | Did::Called { .. }
            | Did::Asked(_)
            | Did::PairsRead { .. }
            | Did::SignalAwaited(_)
            | Did::Signalled { .. } => {}
        }
    }
}

impl Past {
    /// How many attempts count against the rule of its tool.
    pub fn tries(&self, is_once: bool) -> u32 {
        self.returned + self.stopped + self.stopped_in_time + if is_once { self.lost } else { 0 }
    }

    /// Whether an attempt did not return, and may have taken effect.
    pub fn is_cut(&self) -> bool {
        self.lost + self.stopped > 0
    }
}

/// A recorded batch.
#[derive(Clone, Debug)]
pub struct RecordedBatch {
    /// Session and batch key.
    pub name: String,
    /// What its calls do to each other.
    pub siblings: Siblings,
    /// The names of its calls, by ordinal.
    pub calls: Vec<String>,
    /// Its journal, row by row.
    pub rows: Vec<Vec<Event>>,
}

/// How a batch was decided without a call, if that is why it was asked to stop.
pub fn dismissal(asked: &CancelAsked) -> Option<Decision> {
    let reason = asked.reason.as_deref()?;
    [Decision::Reached, Decision::Unreachable].into_iter().find(|decision| decision.reason() == reason)
}

/// A recorded call.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Session, batch key and id.
    pub name: String,
    /// The session.
    pub session: String,
    /// The number of its batch.
    pub batch: BatchNo,
    /// Its place there.
    pub ordinal: Ordinal,
    /// How many attempts were started.
    pub attempts: u32,
    /// How many deaths of an owner count against it.
    pub deaths: u32,
    /// What happened to its attempts.
    pub past: Past,
    /// What it did by name.
    pub inside: Inside,
    /// When it was asked for.
    pub opened_at: Timestamp,
    /// When it was over.
    pub ended_at: Timestamp,
    /// The entries in which attempts started.
    pub started: Vec<EntryNo>,
    /// The entries in which it ended: one.
    pub ended: Vec<EntryNo>,
    /// The call as it is shown.
    pub answer: Value,
    /// The value it succeeded with, read from beside the journal if it is kept there.
    pub value: Option<Value>,
    /// Its idempotency key.
    pub key: String,
}

impl Recorded {
    /// How it ended.
    pub fn state(&self) -> &str {
        self.answer["state"].as_str().unwrap_or_default()
    }

    /// The code of its failure, or the effect it had when it was cancelled.
    pub fn detail(&self) -> &str {
        let outcome = &self.answer["outcome"];
        let code = outcome["failure"]["code"].as_str();
        code.or(outcome["effect"].as_str()).unwrap_or_default()
    }

    /// Whether it became known only after its end how it ended.
    pub fn is_resolved(&self) -> bool {
        !self.past.resolved.is_empty()
    }

    /// The number of the ledger's line that its value names.
    pub fn receipt(&self) -> Option<u64> {
        self.value.as_ref().and_then(|value| value["receipt"].as_u64())
    }
}

impl Journal {
    /// Reads every journal of a folder through the store, which checks the chains.
    pub async fn read(folder: &Path) -> Result<Journal> {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open_reader(folder)?);
        let mut journal = Journal::default();
        for batch in store.open_batches(None).await? {
            journal.problems.push(format!("R8: batch {} of session {} is open", batch.no, batch.session));
        }
        for session in store.sessions(None, u64::MAX).await? {
            if let Err(error) = journal.session(&store, &session).await {
                journal.problems.push(format!("R1: session {}: {error:#}", session.name));
            }
        }
        journal.calls.sort_by(|a, b| (&a.session, a.batch, a.ordinal).cmp(&(&b.session, b.batch, b.ordinal)));
        Ok(journal)
    }

    async fn session(&mut self, store: &Arc<dyn Store>, session: &SessionRow) -> Result<()> {
        let (entries, batches) = entries(store, session).await?;
        self.batches.extend(batches);
        let mut calls = BTreeMap::new();
        for recorded in inspect::calls(store, session, usize::MAX).await? {
            let handle = recorded.answer.handle();
            let id =
                handle.open(store.secret(), Kind::Call).ok_or_else(|| anyhow!("{handle} is no handle"))?;
            let id = windlass::core::ids::CallId::unpacked(id);
            let shown = serde_json::to_value(&recorded.answer)?;
            let call = recorded.answer.call();
            calls.insert(
                (id.batch, id.ordinal),
                Recorded {
                    name: format!("{}/{}/{}", session.name, recorded.batch_key, recorded.answer.id()),
                    session: session.name.clone(),
                    batch: id.batch,
                    ordinal: id.ordinal,
                    attempts: call.attempts,
                    deaths: call.deaths,
                    past: Past::default(),
                    inside: Inside::default(),
                    opened_at: call.opened_at,
                    ended_at: call.end().map_or(call.opened_at, |end| end.at),
                    started: Vec::new(),
                    ended: Vec::new(),
                    value: value(store, &shown).await?,
                    answer: shown,
                    key: idempotency_key(
                        store.secret(),
                        &session.name,
                        &recorded.batch_key,
                        recorded.answer.id(),
                    ),
                },
            );
        }
        for (number, batch, event) in entries {
            let Event::Call { ordinal, fact } = event else { continue };
            let call = calls.get_mut(&(batch, ordinal));
            let call = call.ok_or_else(|| anyhow!("entry {number} is of a call that is not there"))?;
            call.add(number, &fact);
        }
        self.calls.extend(calls.into_values());
        Ok(())
    }
}

/// An entry of a session, and the batch it is of.
type Numbered = (EntryNo, BatchNo, Event);

/// Every entry of a session, in order and without gaps, or an error that says where not.
async fn entries(
    store: &Arc<dyn Store>,
    session: &SessionRow,
) -> Result<(Vec<Numbered>, Vec<RecordedBatch>)> {
    let (mut rows, mut before) = (Vec::new(), None);
    loop {
        let page = store.history(session.no, before, ROWS_PAGE).await?;
        let Some(last) = page.last() else { break };
        before = Some(last.first);
        rows.extend(page);
    }
    let mut entries = Vec::new();
    for row in rows.iter().rev() {
        let unpacked = entry::unpack(&row.data)?;
        if row.first.0 != entries.len() as u64 + 1 || row.count as usize != unpacked.len() {
            return Err(anyhow!("entry {} follows entry {}", row.first, entries.len()));
        }
        for entry in unpacked {
            entries.push((EntryNo(entries.len() as u64 + 1), row.batch, entry.event));
        }
    }
    if session.head.0 != entries.len() as u64 {
        return Err(anyhow!("its head is {} and it has {} entries", session.head, entries.len()));
    }
    let mut batches = Vec::new();
    for batch in rows.iter().map(|row| row.batch).collect::<BTreeSet<_>>() {
        batches.push(recorded_batch(store, session, batch).await.with_context(|| format!("batch {batch}"))?);
    }
    Ok((entries, batches))
}

async fn recorded_batch(
    store: &Arc<dyn Store>,
    session: &SessionRow,
    batch: BatchNo,
) -> Result<RecordedBatch> {
    let (mut entries, mut rows) = (Vec::new(), Vec::new());
    for row in store.journal(batch).await? {
        let of_row = entry::unpack(&row.data)?;
        rows.push(of_row.iter().map(|entry| entry.event.clone()).collect());
        entries.extend(of_row);
    }
    let folded = Batch::fold(&entries)?;
    let name = format!("{}/{}", session.name, folded.opening.key);
    let calls = folded.calls.iter().map(|call| format!("{name}/{}", call.opened.id)).collect();
    Ok(RecordedBatch { name, siblings: folded.opening.siblings, calls, rows })
}

/// The value of a call that succeeded.
async fn value(store: &Arc<dyn Store>, shown: &Value) -> Result<Option<Value>> {
    let outcome = &shown["outcome"];
    let kept = &outcome["kept"];
    if kept.is_null() {
        return Ok(outcome.get("value").cloned());
    }
    let artifact = Handle::parse(&text(&kept["artifact"]))
        .and_then(|handle| handle.open(store.secret(), Kind::Artifact));
    let blob = BlobNo(artifact.ok_or_else(|| anyhow!("{kept} names no artifact"))?);
    let length = kept["bytes"].as_u64().unwrap_or(0);
    let bytes = store.blob(blob, 0, length + 1).await?.ok_or_else(|| anyhow!("{kept} is not there"))?;
    if bytes.len() as u64 != length {
        return Err(anyhow!("{kept} has {} bytes", bytes.len()));
    }
    serde_json::from_slice(&bytes).map(Some).with_context(|| format!("{kept} is not what was returned"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
