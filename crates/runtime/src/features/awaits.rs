//! Waits of calls for tasks and named events of their session.
//!
//! A wait has a row beside the journal of its call, written with the entry that begins it. Whoever ends what is awaited looks
//! for such rows and passes the end on; a row goes once its call has recorded that. So a crash at any point loses nothing: the
//! next owner compares the rows with what has ended by the record.

mod inside;
mod named;

use crate::api::error::{SessionError, chain};
use crate::api::journal::find_id;
use crate::features::triggers;
use crate::session::adopting::deliver;
use crate::session::batch::CallDemand;
use crate::session::held::due_us;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::ids::CallId;
use windlass_core::operation::Completion;
use windlass_store::{RecordPage, Row, Space, Store};

/// The subject of a wait.
#[derive(Clone, Copy)]
pub(crate) enum AwaitSubject<'a> {
    /// The end of a task.
    Task(CallId),
    /// A named event of the session.
    Event(&'a str),
}

impl AwaitSubject<'_> {
    /// The prefix of the keys of its waits.
    fn prefix(self) -> String {
        match self {
            AwaitSubject::Task(call) => format!("{TASK}{:016x}/", call.packed()),
            AwaitSubject::Event(event) => format!("{EVENT}{}/", named::key(event)),
        }
    }
}

const TASK: &str = "t";
const EVENT: &str = "e";

/// A stored wait.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptWait {
    /// The call that waits, as one number.
    call: u64,
    /// The name of its wait.
    name: String,
}

impl KeptWait {
    fn new(call: CallId, name: &str) -> KeptWait {
        KeptWait { call: call.packed(), name: name.to_string() }
    }

    fn key(&self, subject: AwaitSubject<'_>) -> String {
        // A name can be long.
        let name = &blake3::hash(self.name.as_bytes()).to_hex()[..16];
        format!("{}{:016x}/{name}", subject.prefix(), self.call)
    }

    fn row(&self, key: String) -> Row {
        let value = serde_json::to_vec(self).unwrap_or_default().into();
        Row::Put { space: Space::Awaited, key, value }
    }
}

/// The waits of a session that its owner knows, by the keys of their rows.
#[derive(Default)]
pub(crate) struct AwaitTable {
    /// How many there are: most sessions have none, and nothing is looked for.
    count: AtomicU64,
    waits: tokio::sync::Mutex<BTreeMap<String, KeptWait>>,
}

impl AwaitTable {
    async fn add(&self, key: String, wait: KeptWait) {
        let mut waits = self.waits.lock().await;
        waits.insert(key, wait);
        self.count.store(waits.len() as u64, Ordering::SeqCst);
    }

    /// Takes the waits for a subject.
    async fn take(&self, subject: AwaitSubject<'_>) -> Vec<(String, KeptWait)> {
        let (mut waits, prefix) = (self.waits.lock().await, subject.prefix());
        let found = waits.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        let keys: Vec<String> = found.map(|(key, _)| key.clone()).collect();
        let taken = keys.into_iter().filter_map(|key| waits.remove_entry(&key)).collect();
        self.count.store(waits.len() as u64, Ordering::SeqCst);
        taken
    }
}

/// Tasks have ended: the calls that wait for them go on.
pub(crate) fn ended(rt: &Arc<Inner>, session: &Arc<Session>, calls: Vec<CallId>) {
    if session.slots.of::<AwaitTable>().count.load(Ordering::SeqCst) == 0 {
        return;
    }
    let (rt, session) = (rt.clone(), session.clone());
    rt.tasks.clone().spawn(async move {
        for call in calls {
            tell(&rt, &session, AwaitSubject::Task(call), &task_is_over()).await;
        }
    });
}

/// The answer to a wait for a task: its outcome is in its own journal.
fn task_is_over() -> Completion {
    Completion::ok("null")
}

/// Passes the end of a subject to all calls that wait for it.
async fn tell(rt: &Arc<Inner>, session: &Arc<Session>, subject: AwaitSubject<'_>, end: &Completion) {
    let table = session.slots.of::<AwaitTable>();
    for (key, wait) in table.take(subject).await {
        if let Err(error) = pass(rt, session, key, &wait, end.clone()).await {
            // Its row stays for the next owner.
            tracing::error!(session = %session.name, error = %chain(&error), "a call is not told what it waits for");
        }
    }
}

async fn pass(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    key: String,
    wait: &KeptWait,
    completion: Completion,
) -> Result<(), SessionError> {
    let what = CallDemand::Complete { name: wait.name.as_str().into(), completion };
    deliver(rt, session, CallId::unpacked(wait.call), what, Row::Remove { space: Space::Awaited, key }).await
}

/// How long a look at the waits of an earlier owner rests after it failed.
const REST_MS: u64 = 1_000;

/// Looks at the waits that an earlier owner left, in the background: the calls of the session go on meanwhile, so a read that fails
/// must not undo that the session was taken. It is tried again until the session is lost.
pub(crate) fn look_soon(rt: &Arc<Inner>, session: &Arc<Session>) {
    if session.is_new {
        return;
    }
    // Neither is kept: whoever drops a runtime gets its store back.
    let (weak, weak_session) = (Arc::downgrade(rt), Arc::downgrade(session));
    rt.tasks.spawn(async move {
        loop {
            let rest = {
                let (Some(rt), Some(session)) = (weak.upgrade(), weak_session.upgrade()) else { return };
                let Err(error) = go_on(&rt, &session).await else { return };
                if session.lane.lost().is_some() {
                    return;
                }
                tracing::warn!(session = %session.name, error = %chain(&error), "waits for tasks and events are looked at again later");
                (rt.wheel.clone(), due_us(rt.clock.elapsed_us(), REST_MS))
            };
            rest.0.until(rest.1).await;
        }
    });
}

/// Looks at the waits that an earlier owner left: what was awaited may be over.
async fn go_on(rt: &Arc<Inner>, session: &Arc<Session>) -> Result<(), SessionError> {
    let (no, table) = (session.lane.session(), session.slots.of::<AwaitTable>());
    let mut after: Option<String> = None;
    loop {
        let after_key = after.as_deref();
        let page = RecordPage { shelf: Space::Awaited.of(no), prefix: "", after: after_key, limit: PAGE };
        let records = rt.store.records(page).await?;
        let Some(last) = records.last() else { return Ok(()) };
        after = Some(last.key.clone());
        for record in records {
            if let Some(call) = planned_by(&record.key) {
                triggers::emit_left(rt, session, call).await?;
                continue;
            }
            let Ok(wait) = serde_json::from_slice::<KeptWait>(&record.value) else {
                tracing::error!(session = %session.name, wait = %record.key, "a wait cannot be read");
                continue;
            };
            table.add(record.key.clone(), wait.clone()).await;
            if let Some(end) = end_of(rt, session, &record.key).await? {
                table.waits.lock().await.remove(&record.key);
                pass(rt, session, record.key, &wait, end).await?;
            }
        }
    }
}

/// The call that planned an event, if the row of this key is for one.
fn planned_by(key: &str) -> Option<CallId> {
    let (call, _) = key.strip_prefix(triggers::PLANNED)?.split_once('/')?;
    u64::from_str_radix(call, 16).ok().map(CallId::unpacked)
}

/// The page size for reading waits.
const PAGE: u64 = 256;

/// The recorded end of what the wait of this key is for.
async fn end_of(rt: &Inner, session: &Session, key: &str) -> Result<Option<Completion>, SessionError> {
    let Some((subject, _)) = key.split_once('/') else { return Ok(None) };
    if let Some(event) = subject.strip_prefix(EVENT) {
        return named::fulfilled(&*rt.store, session.lane.session(), event).await;
    }
    let task = subject.strip_prefix(TASK).and_then(|task| u64::from_str_radix(task, 16).ok());
    match task {
        Some(task) => Ok(has_ended(&*rt.store, CallId::unpacked(task)).await?.then(task_is_over)),
        None => Ok(None),
    }
}

/// Whether a task is over by the record; one whose record has expired is.
async fn has_ended(store: &dyn Store, task: CallId) -> Result<bool, SessionError> {
    match find_id(store, task).await {
        Ok(found) => Ok(found.is_none_or(|(_, call, _)| call.end().is_some())),
        Err(SessionError::Expired { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}
