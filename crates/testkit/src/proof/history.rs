//! Two of the three histories, read back: what clients were told, and what the journal says.

mod inside;
mod permission;
mod told;

pub use inside::{InsideHistory, NestedCalls, RecordedStep};
pub use permission::PermissionFact;
pub use told::{BatchReply, ClientAnswer, ClientCancel, Taken, WorkerReplies};

use super::context::PREFIX;
use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use windlass::batch::{Decision, Siblings};
use windlass::tasks::{Inbox, Wake};
use windlass::{EffectClass, inspect};
use windlass_core::batch::{Batch, ClosedBy};
use windlass_core::call::{
    CancelAsked, Fact, Reason, ReconciledAttempt, Result as Attempted, Returned, Verdict,
};
use windlass_core::entry::{self, EntryEvent};
use windlass_core::handle::{Handle, HandleKind, idempotency_key};
use windlass_core::ids::{BatchNo, BlobNo, EntryNo, Ordinal};
use windlass_core::operation::Did;
use windlass_core::time::Timestamp;
use windlass_store::{SessionRow, SqliteStore, Store};

/// Between the session and the schedule in the name of a call that one started.
pub const SCHEDULE: &str = "/schedule:";

/// Journal rows are read in pages of this size.
const ROWS_PAGE: u64 = 64;

/// The journals of a data folder.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// Every recorded call, by session, batch and ordinal.
    pub calls: Vec<CallHistory>,
    /// Every recorded batch.
    pub batches: Vec<RecordedBatch>,
    /// The notices left in the inboxes.
    pub notices: Vec<Taken>,
    /// The problems of the journals themselves: damage, gaps, open batches.
    pub problems: Vec<String>,
}

/// The attempts of a call, by its entries.
#[derive(Clone, Debug, Default)]
pub struct AttemptHistory {
    /// How many were lost with their owner.
    pub lost: u32,
    /// How many returned.
    pub returned: u32,
    /// How many were stopped and may have taken effect.
    pub stopped: u32,
    /// How many were stopped before they could.
    pub stopped_in_time: u32,
    /// The tool's verdicts on attempts that did not return, in order.
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
    /// The contradiction in its record for which it was set aside, if it was.
    pub set_aside: Option<String>,
    /// Each start or resumption of its body: under which class, and what became of it.
    pub runs: Vec<BodyRun>,
    /// How many were taken back before the tool saw anything of them.
    pub withheld: u32,
    /// The class it is pinned to, as far as its entries were read.
    class: Option<EffectClass>,
    /// How often an operator accepted a changed tool for it.
    pub accepted: u32,
    /// See [`AttemptHistory::repeated`].
    broken: Option<(EffectClass, EffectClass)>,
}

/// A run of a call's body.
#[derive(Clone, Copy, Debug)]
pub struct BodyRun {
    /// The class that the tool had then.
    pub class: EffectClass,
    /// Whether it may have taken effect without telling.
    pub in_doubt: bool,
}

impl AttemptHistory {
    /// Follows the classes of its runs, and which of them are in doubt.
    fn follow(&mut self, fact: &Fact) {
        let acts = |run: &BodyRun| matches!(run.class, EffectClass::Keyed | EffectClass::Once);
        let last = self.runs.last_mut();
        match fact {
            Fact::Prepared(prepared) => self.class = Some(prepared.class),
            Fact::Accepted(accepted) => {
                self.class = Some(accepted.class);
                self.accepted += 1;
            }
            Fact::Started(_) | Fact::Resumed(_) => {
                let class = self.class.unwrap_or(EffectClass::Once);
                let forbids = |run: &&BodyRun| {
                    let same = run.class == class || class == EffectClass::Read;
                    run.in_doubt && (run.class == EffectClass::Once || !same)
                };
                let broken = self.runs.iter().find(forbids).map(|run| (run.class, class));
                self.broken = self.broken.or(broken);
                self.runs.push(BodyRun { class, in_doubt: false });
            }
            Fact::Lost(_) => last.into_iter().for_each(|run| run.in_doubt = run.class != EffectClass::Read),
            Fact::Stopped(stopped) if stopped.may_have_acted => {
                last.into_iter().for_each(|run| run.in_doubt = run.class != EffectClass::Read);
            }
            Fact::Returned(Returned { result: Attempted::Failed(failure), .. }) => {
                last.into_iter().for_each(|run| run.in_doubt = acts(run) && !failure.did_not_happen);
            }
            // What it did by steps only a stepped body knows of.
            Fact::Operation(operation) if matches!(operation.did, Did::StepEnded { .. }) => {
                last.into_iter().for_each(|run| run.in_doubt |= run.class == EffectClass::Stepped);
            }
            Fact::Reconciled(ReconciledAttempt { verdict: Verdict::DidNotHappen, .. }) => {
                self.runs.iter_mut().for_each(|run| run.in_doubt = false);
            }
            Fact::Stopped(_)
            | Fact::Returned(_)
            | Fact::Operation(_)
            | Fact::Reconciled(_)
            | Fact::Aborted(_)
            | Fact::CopyFound
            | Fact::StartRefused
            | Fact::Opened(_)
            | Fact::Parked(_)
            | Fact::CancelAsked(_)
            | Fact::SameAs(_)
            | Fact::First
            | Fact::Suspended(_)
            | Fact::Unconnected(_)
            | Fact::Connected(_)
            | Fact::Detached(_)
            | Fact::SetAside(_)
            | Fact::Ended(_)
            | Fact::Judged(_)
            | Fact::ApprovalAsked(_)
            | Fact::ApprovalAnswered(_)
            | Fact::Withheld(_)
            | Fact::Resolved(_) => {}
        }
    }

    /// A run that had to be asked after, and was followed by another instead; and the class of that.
    pub fn repeated(&self) -> Option<(EffectClass, EffectClass)> {
        self.broken
    }
}

impl CallHistory {
    /// Where it begins to run alone, and where that ends.
    fn add_piece(&mut self, number: EntryNo, fact: &Fact) {
        let runs = self.pieces.last().is_some_and(|(_, end)| end.is_none());
        let outside = matches!(fact, Fact::Unconnected(_))
            || matches!(fact, Fact::Suspended(suspended) if suspended.parked.reason.is_outside());
        if !runs && matches!(fact, Fact::Started(_) | Fact::Resumed(_)) {
            self.pieces.push((number, None));
        }
        self.gave_way |= matches!(fact, Fact::Parked(parked) if parked.reason != Reason::Retry);
        // Whoever waits for a person lets others pass, also between two attempts; a start that is taken back was none.
        let outside = outside || matches!(fact, Fact::ApprovalAsked(_) | Fact::Withheld(_));
        self.gave_way |= outside;
        if let Some((_, end)) = self.pieces.last_mut().filter(|_| outside || matches!(fact, Fact::Ended(_))) {
            end.get_or_insert(number);
        }
    }

    fn add(&mut self, number: EntryNo, fact: &Fact) {
        self.add_piece(number, fact);
        self.permission.extend(PermissionFact::of(fact).map(|fact| (number, fact)));
        let past = &mut self.past;
        past.follow(fact);
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
                Verdict::Failed(_) => "failed",
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
                self.inside.add(number, attempt, round, operation);
            }
            Fact::Opened(_) | Fact::Prepared(_) | Fact::Accepted(_) | Fact::SameAs(_) | Fact::First => {}
            Fact::Detached(_) | Fact::StartRefused | Fact::CopyFound => {}
            Fact::Judged(_) | Fact::ApprovalAsked(_) | Fact::ApprovalAnswered(_) => {}
            // Nothing ran in it.
            Fact::Withheld(_) => past.withheld += 1,
            // Tools of the rig are not cut off apart from their owner.
            Fact::Aborted(_) => past.stopped += 1,
            Fact::SetAside(aside) => past.set_aside = Some(aside.why.to_string()),
        }
    }
}

impl AttemptHistory {
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
    /// Its sibling rule.
    pub siblings: Siblings,
    /// The names of its calls, by ordinal.
    pub calls: Vec<String>,
    /// Its journal, row by row.
    pub rows: Vec<Vec<EntryEvent>>,
    /// Whether its calls were pushed.
    pub streamed: bool,
    /// The closer, each time: once.
    pub closed: Vec<ClosedBy>,
    /// When its session is told of calls that were answered before they had ended.
    pub wake: Wake,
}

/// How a batch was decided without a call, if that is why it was asked to stop.
pub fn dismissal(asked: &CancelAsked) -> Option<Decision> {
    let reason = asked.reason.as_deref()?;
    [Decision::Reached, Decision::Unreachable].into_iter().find(|decision| decision.reason() == reason)
}

/// A recorded call.
#[derive(Clone, Debug)]
pub struct CallHistory {
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
    /// Its attempts.
    pub past: AttemptHistory,
    /// Its named operations.
    pub inside: InsideHistory,
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
    /// Whether it is recorded that its caller was answered before it had ended.
    pub provisional: bool,
    /// The entries between which it ran alone, as far as it claims what others do: until its end, or until it waited for the
    /// world outside.
    pub pieces: Vec<(EntryNo, Option<EntryNo>)>,
    /// Whether it waited for the world outside, a person or its tool, so that others could pass it.
    pub gave_way: bool,
    /// Its starts, how it was judged, and what people were asked and answered, in order.
    pub permission: Vec<(EntryNo, PermissionFact)>,
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

impl CallHistory {
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
            let read = match session.name.starts_with(PREFIX) {
                // Those calls are looked at by themselves.
                true => entries(&store, &session).await.map(drop),
                false => journal.session(&store, &session).await,
            };
            if let Err(error) = read {
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
        let name = |recorded: &inspect::RecordedCall| {
            format!("{}/{}/{}", session.name, recorded.batch_key, recorded.answer.id())
        };
        let names: BTreeMap<Handle, String> =
            listed.iter().map(|recorded| (recorded.answer.handle(), name(recorded))).collect();
        for recorded in listed {
            let handle = recorded.answer.handle();
            let id = handle
                .open(store.secret(), HandleKind::Call)
                .ok_or_else(|| anyhow!("{handle} is no handle"))?;
            let id = windlass_core::ids::CallId::unpacked(id);
            let shown = serde_json::to_value(&recorded.answer)?;
            let call = recorded.answer.call();
            calls.insert(
                (id.batch, id.ordinal),
                CallHistory {
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
                    past: AttemptHistory::default(),
                    task: call.task.as_deref().map(|task| task.wake),
                    provisional: call.is_provisional,
                    pieces: Vec::new(),
                    gave_way: false,
                    permission: Vec::new(),
                    inside: InsideHistory::default(),
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
            let EntryEvent::Call { ordinal, fact } = event else { continue };
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
                let (id, task, kind, state) = (notice.id, notice.call, notice.kind, notice.call_state);
                let shown = json!({"id": id, "task": task, "kind": kind, "state": state});
                self.notices.push(Taken::read(&shown));
            }
        }
        Ok(())
    }
}

/// An entry of a session, and the batch it is of.
type Numbered = (EntryNo, BatchNo, EntryEvent);

/// Every entry of a session, in order and without gaps, or an error that says where not.
pub(super) async fn entries(
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
        EntryEvent::Closed(by) => Some(*by),
        EntryEvent::Batch(_)
        | EntryEvent::Answered(_)
        | EntryEvent::ClockMoved(_)
        | EntryEvent::Call { .. } => None,
    });
    let windlass_core::batch::Opening { siblings, streamed, wake, .. } = folded.opening;
    Ok(RecordedBatch { name, siblings, calls, rows, streamed, closed: closed.collect(), wake })
}

/// The value of a call that succeeded.
async fn value(store: &Arc<dyn Store>, shown: &Value) -> Result<Option<Value>> {
    let outcome = &shown["outcome"];
    let kept = &outcome["kept"];
    if kept.is_null() {
        return Ok(outcome.get("value").cloned());
    }
    let artifact = Handle::parse(&text(&kept["artifact"]))
        .and_then(|handle| handle.open(store.secret(), HandleKind::Artifact));
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
