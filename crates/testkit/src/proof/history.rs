//! Two of the three histories, read back: what clients were told, and what the journal says.

mod told;

pub use told::{Answer, Answered, Cancel, Taken, Told};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use windlass::core::batch::{Batch, ClosedBy};
use windlass::core::call::{CancelAsked, Fact, Reason, Verdict};
use windlass::core::entry::{self, Event};
use windlass::core::handle::{Handle, Kind, idempotency_key};
use windlass::core::ids::{BatchNo, BlobNo, EntryNo, Ordinal};
use windlass::core::operation::{Completion, Did, Operation, StepResult};
use windlass::core::time::Timestamp;
use windlass::{Decision, EffectClass, Inbox, Siblings, Wake, inspect};
use windlass_store::{SessionRow, SqliteStore, Store};

/// Between the session and the schedule in the name of a call that one started.
pub const SCHEDULE: &str = "/schedule:";

/// Journal rows are read in pages of this size.
const ROWS_PAGE: u64 = 64;

/// What the journals of a data folder say.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// Every recorded call, by session, batch and ordinal.
    pub calls: Vec<Recorded>,
    /// Every recorded batch.
    pub batches: Vec<RecordedBatch>,
    /// What is left in the inboxes.
    pub notices: Vec<Taken>,
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
    /// Why else, if that is said.
    pub cancel_reason: Option<String>,
    /// The attempts that said what they need to be connected to.
    pub unconnected_in: Vec<u32>,
    /// Whether that was connected, or declined, each time.
    pub connected: Vec<bool>,
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
                past.cancel_reason = asked.reason.as_deref().map(str::to_owned);
            }
            // The first stands.
            Fact::CancelAsked(_) => {}
            Fact::Resolved(_) => past.resolved.push(number),
            Fact::Unconnected(said) => past.unconnected_in.push(said.attempt.0),
            Fact::Connected(connected) => past.connected.push(connected.connected),
            Fact::Operation(operation) => {
                let made = past.connected.iter().filter(|made| **made).count() as u32;
                let (attempt, round) = (self.started.len() as u32, past.tries(self.is_once) + made);
                self.inside.add((number, attempt, round), operation);
            }
            Fact::Opened(_) | Fact::Prepared(_) | Fact::Accepted(_) | Fact::SameAs(_) | Fact::First => {}
            Fact::Detached(_) => {}
        }
    }
}

/// What a call did by name, by its entries.
#[derive(Clone, Debug, Default)]
pub struct Inside {
    /// Its steps.
    pub steps: BTreeMap<String, RecordedStep>,
    /// What was answered to it under each name, in order: once.
    pub answers: BTreeMap<String, Vec<Value>>,
    /// How often it asked what it asks.
    pub questions: u32,
    /// The signals that came, in order.
    pub signals: Vec<Value>,
    /// How often it slept.
    pub sleeps: u32,
    /// How often it wrote its pair, and told of that.
    pub pairs: u32,
    /// See above.
    pub events: u32,
    /// See above.
    pub attached: u32,
    /// What it called under each name, in order.
    pub called: BTreeMap<String, Vec<Called>>,
}

/// That a call called others.
#[derive(Clone, Copy, Debug)]
pub struct Called {
    /// How often, from 1.
    pub generation: u32,
    /// In which entry.
    pub at: EntryNo,
    /// How many tries of the call were over then.
    pub round: u32,
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
    fn add(&mut self, (at, attempt, round): (EntryNo, u32, u32), operation: &Operation) {
        let name = || operation.name.to_string();
        match &operation.did {
            Did::StepStarted { .. } => _ = self.steps.entry(name()).or_default(),
            Did::StepEnded { result, .. } => {
                let step = self.steps.entry(name()).or_default();
                match result {
                    StepResult::Ok(_) => step.done_in.push(attempt),
                    StepResult::Failed(_) => step.failed_in.push(attempt),
                }
            }
            Did::Completed(Completion::Ok(answer)) => {
                let answer = serde_json::from_str(answer).unwrap_or_default();
                self.answers.entry(name()).or_default().push(answer);
            }
            Did::Completed(other) => {
                self.answers.entry(name()).or_default().push(json!(format!("{other:?}")));
            }
            Did::SleepEnded => self.sleeps += 1,
            Did::PairWritten { written, .. } => self.pairs += u32::from(*written),
            Did::Attached { .. } => self.attached += 1,
            Did::Emitted { .. } => self.events += 1,
            Did::Called { generation } => {
                let called = Called { generation: *generation, at, round };
                self.called.entry(name()).or_default().push(called);
            }
            Did::Asked(_) => self.questions += 1,
            Did::Signalled { payload } => {
                self.signals.push(serde_json::from_str(payload).unwrap_or_default());
            }
            Did::SleepBegan(_)
            | Did::Spawned { .. }
            | Did::Said { .. }
            | Did::KeyTaken
            | Did::WaitBegan(_)
            | Did::TimedOut
            | Did::PairsRead { .. }
            | Did::ChildOpened { .. }
            | Did::SignalAwaited(_) => {}
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
    /// Whether its calls were pushed.
    pub streamed: bool,
    /// Who closed it then, each time: once.
    pub closed: Vec<ClosedBy>,
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
    /// Inside which call it was made.
    pub nesting: Option<Nesting>,
    /// Whether its tool must not be repeated.
    pub is_once: bool,
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
    /// When its session is told of it, if it is a task.
    pub task: Option<Wake>,
}

/// Where a call inside another was made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nesting {
    /// Session, batch key and id of the call around it.
    pub parent: String,
    /// The name under which that called it.
    pub name: String,
    /// For the how manieth time.
    pub generation: u32,
}

impl Nesting {
    /// From the key of its batch, which is `inside:{handle}/{name}`, or that with `#{generation}`.
    fn parse(key: &str, parent: String) -> Option<Nesting> {
        let (_, name) = key.strip_prefix("inside:")?.split_once('/')?;
        let (name, generation) = name.split_once('#').unwrap_or((name, "1"));
        Some(Nesting { parent, name: name.to_owned(), generation: generation.parse().ok()? })
    }
}

impl Recorded {
    /// Its name, or what stands for that in every folder: of a call inside another that one's and its own id, of one that a
    /// schedule started that one's id.
    pub fn path(&self) -> String {
        let id = self.name.rsplit('/').next().unwrap_or_default();
        match (&self.nesting, self.name.split_once(SCHEDULE)) {
            (Some(nesting), _) => format!("{}/{}/{id}", nesting.parent, nesting.name),
            // Its batch is named after the time at which it is due.
            (None, Some((session, rest))) => {
                format!("{session}{SCHEDULE}{}/{id}", rest.split('/').next().unwrap_or_default())
            }
            (None, None) => self.name.clone(),
        }
    }

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
        let listed = inspect::calls(store, session, usize::MAX).await?;
        let name = |recorded: &inspect::Recorded| {
            format!("{}/{}/{}", session.name, recorded.batch_key, recorded.answer.id())
        };
        let names: BTreeMap<Handle, String> =
            listed.iter().map(|recorded| (recorded.answer.handle(), name(recorded))).collect();
        for recorded in listed {
            let handle = recorded.answer.handle();
            let id =
                handle.open(store.secret(), Kind::Call).ok_or_else(|| anyhow!("{handle} is no handle"))?;
            let id = windlass::core::ids::CallId::unpacked(id);
            let shown = serde_json::to_value(&recorded.answer)?;
            let call = recorded.answer.call();
            calls.insert(
                (id.batch, id.ordinal),
                Recorded {
                    name: name(&recorded),
                    session: session.name.clone(),
                    nesting: recorded.answer.parent().and_then(|parent| {
                        Nesting::parse(&recorded.batch_key, names.get(&parent).cloned().unwrap_or_default())
                    }),
                    is_once: call.class() == Some(EffectClass::Once),
                    batch: id.batch,
                    ordinal: id.ordinal,
                    attempts: call.attempts,
                    deaths: call.deaths,
                    past: Past::default(),
                    task: call.task.as_deref().map(|task| task.wake),
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
                        // However often it is made, whoever deduplicates knows it by its first key.
                        recorded.batch_key.split('#').next().unwrap_or_default(),
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
        self.notices(store, session).await
    }

    async fn notices(&mut self, store: &Arc<dyn Store>, session: &SessionRow) -> Result<()> {
        let inbox = Inbox::recorded(Arc::clone(store), &session.name);
        let mut after = None;
        loop {
            let page = inbox.list(after.as_deref(), u64::MAX).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id.clone());
            for notice in page {
                let (id, task, kind, state) = (notice.id, notice.task, notice.kind, notice.task_state);
                let shown = json!({"id": id, "task": task, "kind": kind, "state": state});
                self.notices.push(Taken::read(&shown));
            }
        }
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
    let closed = entries.iter().filter_map(|entry| match &entry.event {
        Event::Closed(by) => Some(*by),
        Event::Batch(_) | Event::Call { .. } => None,
    });
    let (siblings, streamed) = (folded.opening.siblings, folded.opening.streamed);
    Ok(RecordedBatch { name, siblings, calls, rows, streamed, closed: closed.collect() })
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
