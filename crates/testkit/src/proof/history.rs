//! Two of the three histories, read back: what clients were told, and what the journal says.

use anyhow::{Context, Result, anyhow};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use windlass::core::batch::Batch;
use windlass::core::call::Fact;
use windlass::core::entry::{self, Event};
use windlass::core::handle::{Handle, Kind, idempotency_key};
use windlass::core::ids::{BatchNo, BlobNo, EntryNo, Ordinal};
use windlass::inspect;
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
}

impl Told {
    /// Reads what a worker said. What is not a whole line was never said.
    pub fn read(worker: u32, said: &str) -> Result<Told> {
        let mut told = Told { worker, ..Told::default() };
        for line in said.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let line: Value =
                serde_json::from_str(line).with_context(|| format!("worker {worker} said {line:?}"))?;
            if let Some(phase) = line["phase"].as_str() {
                told.phases.push(phase.to_owned());
                continue;
            }
            told.answers.push(Answer {
                session: text(&line["session"]),
                batch: text(&line["answer"]["key"]),
                calls: line["answer"]["calls"].as_array().cloned().unwrap_or_default(),
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
    /// What is wrong with the journals themselves: damage, gaps, open batches.
    pub problems: Vec<String>,
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
    /// How many were lost with their owner.
    pub deaths: u32,
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
        let entries = entries(store, session).await?;
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
            match fact {
                Fact::Started(_) => call.started.push(number),
                Fact::Ended(_) => call.ended.push(number),
                Fact::Opened(_)
                | Fact::Prepared(_)
                | Fact::Lost(_)
                | Fact::Returned(_)
                | Fact::Stopped(_)
                | Fact::Reconciled(_)
                | Fact::Parked(_)
                | Fact::CancelAsked(_)
                | Fact::Accepted(_)
                | Fact::Resolved(_) => {}
            }
        }
        self.calls.extend(calls.into_values());
        Ok(())
    }
}

/// Every entry of a session, in order and without gaps, or an error that says where not.
async fn entries(store: &Arc<dyn Store>, session: &SessionRow) -> Result<Vec<(EntryNo, BatchNo, Event)>> {
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
    for batch in rows.iter().map(|row| row.batch).collect::<std::collections::BTreeSet<_>>() {
        let mut of_batch = Vec::new();
        for row in store.journal(batch).await? {
            of_batch.extend(entry::unpack(&row.data)?);
        }
        Batch::fold(&of_batch).with_context(|| format!("batch {batch}"))?;
    }
    Ok(entries)
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
