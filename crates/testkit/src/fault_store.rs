//! A store that fails by plan: before or after the work, with an error, with silence, or late.
//!
//! Wrapped around any other store. What it does is decided by its [`FaultPlan`] alone, so a run repeats; what it did is
//! counted, so that a proof can show that its faults happened.

use crate::chance::Chance;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot, watch};
use windlass_core::handle::Secret;
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Lookup, Mark, SessionNo};
use windlass_store::{
    Answer, BatchRow, BlobSize, Change, Durability, Inbound, JournalRow, Posted, Receipt, RecordPage,
    Refused, Removal, Removed, Sequence, SessionPage, SessionRow, Shelf, Space, Store, StoreError,
    StoredRecord,
};

/// The methods of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    Commit,
    Post,
    Remove,
    Reserve,
    Session,
    SessionByNo,
    Sessions,
    Batch,
    OpenBatches,
    Journal,
    History,
    JournalAfter,
    Blob,
    BlobSize,
    BlobSession,
    Gone,
    Inbound,
    Marked,
    Record,
    Records,
    CountRecords,
}

/// A fault instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nothing is done, and an error says so.
    FailBefore,
    /// It is done, and an error says it was not.
    FailAfter,
    /// Nothing is done, and no reply comes: the store is gone.
    LostBefore,
    /// It is done, and no reply comes.
    LostAfter,
    /// It is done, and the reply comes late.
    Slow,
}

impl Fault {
    pub const ALL: [Fault; 5] =
        [Fault::FailBefore, Fault::FailAfter, Fault::LostBefore, Fault::LostAfter, Fault::Slow];
}

/// When which fault happens.
#[derive(Clone, Debug)]
pub enum FaultPlan {
    Never,
    /// Once: when this method is asked for the n-th time, from 1.
    Nth(Method, u64, Fault),
    /// By chance: one in so many questions, one of these faults.
    Seeded {
        seed: u64,
        one_in: u64,
        faults: &'static [Fault],
    },
}

/// How far a failed write reaches. After one, nobody knows what is written, so what comes behind it must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultReach {
    /// No more writes at all, as on one file.
    Store,
    /// No more writes to that session, as with one connection per owner.
    Session,
}

/// Stands for the session of a record of the whole store.
const NO_SESSION: SessionNo = SessionNo(0);

/// How long a slow answer takes at most.
const SLOW_MS_MAX: u64 = 3;

/// A store with faults. Clones are the same store.
#[derive(Clone)]
pub struct FaultStore {
    inner: Arc<dyn Store>,
    reach: FaultReach,
    state: Arc<Mutex<FaultState>>,
    /// Whether commits are done and not answered.
    silent: Arc<watch::Sender<bool>>,
    /// Whether whoever uses it stands still.
    frozen: Arc<watch::Sender<bool>>,
    /// Rung when something is committed.
    bell: Arc<Notify>,
}

struct FaultState {
    plan: FaultPlan,
    chance: Chance,
    asked: BTreeMap<Method, u64>,
    happened: BTreeMap<(Method, Fault), u64>,
    /// Sessions whose writes are over.
    poisoned: BTreeSet<SessionNo>,
    /// All writes are over.
    poisoned_whole: bool,
    closed: bool,
    /// Whether writes are kept back.
    holding: bool,
    /// Whether the next write is answered with an error and done later.
    doubted: bool,
    /// The writes since then, in order.
    held: Vec<Write>,
    /// How many of those were refused for their fence, and how many were not.
    fenced: (u64, u64),
}

/// A write that was not handed on yet.
type Write = Box<dyn FnOnce(&dyn Store) + Send>;

impl FaultStore {
    /// Faults by `plan` over `inner`.
    pub fn new(inner: Arc<dyn Store>, plan: FaultPlan, reach: FaultReach) -> FaultStore {
        let seed = match plan {
            FaultPlan::Seeded { seed, .. } => seed,
            FaultPlan::Never | FaultPlan::Nth(..) => 0,
        };
        let state = FaultState {
            plan,
            chance: Chance::new(seed),
            asked: BTreeMap::new(),
            happened: BTreeMap::new(),
            poisoned: BTreeSet::new(),
            poisoned_whole: false,
            closed: false,
            holding: false,
            doubted: false,
            held: Vec::new(),
            fenced: (0, 0),
        };
        let silent = Arc::new(watch::Sender::new(false));
        let frozen = Arc::new(watch::Sender::new(false));
        FaultStore { inner, reach, state: Arc::new(Mutex::new(state)), silent, frozen, bell: Arc::default() }
    }

    /// Waits until something is committed, counted from when this was called.
    pub fn rung(&self) -> Notified<'_> {
        self.bell.notified()
    }

    /// Of the changes to sessions that had been kept back: how many were refused because somebody else owned the session by
    /// then, and how many were not.
    pub fn fenced(&self) -> (u64, u64) {
        self.lock().fenced
    }

    /// Freezes its user, like a stopped process: from now on nothing is answered, and no write is done. With
    /// `false` it continues: with its earlier reads, and the writes in their order.
    pub fn freeze(&self, frozen: bool) {
        let mut state = self.lock();
        self.hold(&mut state, frozen);
        self.frozen.send_replace(frozen);
    }

    /// Keeps writes back, and nothing else, until this is called with `false`.
    pub fn hold_back(&self, holding: bool) {
        self.hold(&mut self.lock(), holding);
    }

    /// Answers the next write with an error at once; it is done with those that are kept back, at the latest by
    /// `hold_back(false)`. So is a write whose connection breaks on a network.
    pub fn doubt_next(&self) {
        self.lock().doubted = true;
    }

    /// How many writes are kept back.
    pub fn held_back(&self) -> usize {
        self.lock().held.len()
    }

    fn hold(&self, state: &mut FaultState, holding: bool) {
        state.holding = holding;
        for write in std::mem::take(&mut state.held) {
            write(&*self.inner);
        }
    }

    /// The answer, once whoever asked goes on.
    fn thawed<T: Send + 'static>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Answer<T> {
        let mut frozen = self.frozen.subscribe();
        Answer::boxed(async move {
            // A store that is dropped keeps nobody waiting.
            let _ = frozen.wait_for(|frozen| !frozen).await;
            answer.await
        })
    }

    /// From now on commits are done, and answered only once this is called with `false`.
    pub fn keep_silent(&self, silent: bool) {
        self.silent.send_replace(silent);
    }

    /// The owner is dead: nothing it still sends is done.
    pub fn close(&self) {
        self.lock().closed = true;
    }

    /// The injected faults, with their counts.
    pub fn happened(&self) -> BTreeMap<(Method, Fault), u64> {
        self.lock().happened.clone()
    }

    /// How often this was asked.
    pub fn asked(&self, method: Method) -> u64 {
        self.lock().asked.get(&method).copied().unwrap_or(0)
    }

    /// The sessions that a failed write hit.
    pub fn hit(&self) -> BTreeSet<SessionNo> {
        self.lock().poisoned.clone()
    }

    fn read<T: Send + Unpin + 'static>(
        &self,
        method: Method,
        ask: impl FnOnce(&dyn Store) -> Answer<T>,
    ) -> Answer<T> {
        let mut state = self.lock();
        if state.closed {
            return Answer::ready(Err(StoreError::Closed));
        }
        let fault = state.draw(method);
        drop(state);
        let answer = self.disturb(fault, ask);
        if *self.frozen.borrow() { self.thawed(answer) } else { answer }
    }

    /// A write is handed on under the lock: its place in the order is where it was asked for.
    fn write<T: Send + Unpin + 'static>(
        &self,
        method: Method,
        sessions: &[SessionNo],
        ask: impl FnOnce(&dyn Store) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let mut state = self.lock();
        if state.closed {
            return Answer::ready(Err(StoreError::Closed));
        }
        if state.poisoned_whole || sessions.iter().any(|session| state.poisoned.contains(session)) {
            return Answer::ready(Err(StoreError::Poisoned { because: "a fault".into() }));
        }
        if std::mem::take(&mut state.doubted) {
            state.held.push(Box::new(move |inner| drop(ask(inner))));
            return Answer::ready(Err(broken()));
        }
        let fault = state.draw(method);
        if fault.is_some_and(|(fault, _)| fault != Fault::Slow) {
            state.poisoned.extend(sessions);
            state.poisoned_whole = self.reach == FaultReach::Store;
        }
        if !state.holding {
            return self.disturb(fault, ask);
        }
        let (done, handed_on) = oneshot::channel();
        state.held.push(Box::new(move |inner| _ = done.send(ask(inner))));
        self.thawed(async move { handed_on.await.map_err(|_| StoreError::Closed)?.await })
    }

    fn disturb<T: Send + Unpin + 'static>(
        &self,
        fault: Option<(Fault, Duration)>,
        ask: impl FnOnce(&dyn Store) -> Answer<T>,
    ) -> Answer<T> {
        let Some((fault, late)) = fault else { return ask(&*self.inner) };
        match fault {
            Fault::FailBefore => Answer::ready(Err(broken())),
            Fault::LostBefore => Answer::reply(oneshot::channel().1),
            Fault::FailAfter | Fault::LostAfter => {
                let done = ask(&*self.inner);
                Answer::boxed(async move {
                    drop(done.await);
                    Err(if fault == Fault::FailAfter { broken() } else { StoreError::Closed })
                })
            }
            Fault::Slow => {
                let done = ask(&*self.inner);
                Answer::boxed(async move {
                    let answer = done.await;
                    tokio::time::sleep(late).await;
                    answer
                })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, FaultState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultState {
    fn draw(&mut self, method: Method) -> Option<(Fault, Duration)> {
        let asked = self.asked.entry(method).or_default();
        *asked += 1;
        let fault = match self.plan {
            FaultPlan::Nth(planned, nth, fault) if planned == method && nth == *asked => Some(fault),
            FaultPlan::Seeded { one_in, faults, .. } if self.chance.below(one_in) == 0 => {
                faults.get(self.chance.below(faults.len() as u64) as usize).copied()
            }
            FaultPlan::Never | FaultPlan::Nth(..) | FaultPlan::Seeded { .. } => None,
        }?;
        *self.happened.entry((method, fault)).or_default() += 1;
        Some((fault, Duration::from_millis(self.chance.below(SLOW_MS_MAX) + 1)))
    }
}

fn broken() -> StoreError {
    StoreError::Io { doing: "do what the plan made fail", source: "a planned fault".into() }
}

impl Store for FaultStore {
    fn health(&self) -> tokio::sync::watch::Receiver<windlass_store::Health> {
        self.inner.health()
    }

    fn is_copy(&self) -> bool {
        self.inner.is_copy()
    }

    fn own_file(&self, original: windlass_store::Original) -> Answer<()> {
        self.inner.own_file(original)
    }

    fn may_have_started(&self, batch: BatchNo) -> bool {
        self.inner.may_have_started(batch)
    }

    fn commit(&self, changes: Vec<Change>) -> Answer<Vec<Result<Receipt, Refused>>> {
        let session = |change: &Change| match change {
            Change::Session(change) => change.session,
            Change::Record(_) => NO_SESSION,
        };
        let sessions: Vec<SessionNo> = changes.iter().map(session).collect();
        let is_held = self.lock().holding;
        let done = self.write(Method::Commit, &sessions, |inner| inner.commit(changes));
        self.bell.notify_waiters();
        if is_held {
            let state = self.state.clone();
            return Answer::boxed(async move {
                let answers = done.await?;
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                for (answer, _) in answers.iter().zip(sessions).filter(|(_, session)| *session != NO_SESSION)
                {
                    match answer {
                        Err(Refused::Fenced { .. }) => state.fenced.0 += 1,
                        Ok(_) | Err(_) => state.fenced.1 += 1,
                    }
                }
                drop(state);
                Ok(answers)
            });
        }
        if !*self.silent.borrow() {
            return done;
        }
        let mut silent = self.silent.subscribe();
        Answer::boxed(async move {
            let answer = done.await;
            // A store that is dropped keeps nobody waiting.
            let _ = silent.wait_for(|silent| !silent).await;
            answer
        })
    }

    fn post(&self, message: Inbound) -> Answer<Posted> {
        // A message is nobody's order: a lost one is sent again, so it ends no session.
        self.write(Method::Post, &[], |inner| inner.post(message))
    }

    fn remove(&self, piece: Removal) -> Answer<Result<Removed, Refused>> {
        self.write(Method::Remove, &[piece.session], move |inner| inner.remove(piece))
    }

    fn reserve(&self, what: Sequence, count: u64) -> Answer<u64> {
        self.read(Method::Reserve, |inner| inner.reserve(what, count))
    }

    fn session(&self, name: &str) -> Answer<Option<SessionRow>> {
        self.read(Method::Session, |inner| inner.session(name))
    }

    fn session_by_no(&self, no: SessionNo) -> Answer<Option<SessionRow>> {
        self.read(Method::SessionByNo, |inner| inner.session_by_no(no))
    }

    fn sessions(&self, after: Option<SessionNo>, limit: u64) -> Answer<Vec<SessionRow>> {
        self.read(Method::Sessions, |inner| inner.sessions(after, limit))
    }

    fn sessions_by_name(&self, page: SessionPage<'_>) -> Answer<Vec<SessionRow>> {
        self.read(Method::Sessions, |inner| inner.sessions_by_name(page))
    }

    fn sessions_with(&self, space: Space, after: Option<SessionNo>, limit: u64) -> Answer<Vec<SessionRow>> {
        self.read(Method::Sessions, |inner| inner.sessions_with(space, after, limit))
    }

    fn batch(&self, lookup: Lookup) -> Answer<Option<BatchRow>> {
        self.read(Method::Batch, |inner| inner.batch(lookup))
    }

    fn batch_by_no(&self, no: BatchNo) -> Answer<Option<BatchRow>> {
        self.read(Method::Batch, |inner| inner.batch_by_no(no))
    }

    fn kept_batches(&self, after: BatchNo, limit: u64) -> Answer<Vec<windlass_store::KeptBatch>> {
        self.read(Method::Journal, |inner| inner.kept_batches(after, limit))
    }

    fn usage(&self) -> Answer<windlass_store::StoreUsage> {
        self.inner.usage()
    }

    fn shrink(&self, pages: u64) -> Answer<bool> {
        self.inner.shrink(pages)
    }

    fn open_batches(&self, session: Option<SessionNo>) -> Answer<Vec<BatchRow>> {
        self.read(Method::OpenBatches, |inner| inner.open_batches(session))
    }

    fn journal(&self, batch: BatchNo) -> Answer<Vec<JournalRow>> {
        self.read(Method::Journal, |inner| inner.journal(batch))
    }

    fn history(&self, session: SessionNo, before: Option<EntryNo>, limit: u64) -> Answer<Vec<JournalRow>> {
        self.read(Method::History, |inner| inner.history(session, before, limit))
    }

    fn journal_after(&self, session: SessionNo, after: EntryNo, limit: u64) -> Answer<Vec<JournalRow>> {
        self.read(Method::JournalAfter, |inner| inner.journal_after(session, after, limit))
    }

    fn blob(&self, blob: BlobNo, offset: u64, len: u64) -> Answer<Option<Vec<u8>>> {
        self.read(Method::Blob, |inner| inner.blob(blob, offset, len))
    }

    fn blob_size(&self, blob: BlobNo) -> Answer<Option<BlobSize>> {
        self.read(Method::BlobSize, |inner| inner.blob_size(blob))
    }

    fn inbound(&self, session: SessionNo, limit: u64) -> Answer<Vec<Inbound>> {
        self.read(Method::Inbound, |inner| inner.inbound(session, limit))
    }

    fn marked(&self, mark: Mark) -> Answer<Option<CallId>> {
        self.read(Method::Marked, |inner| inner.marked(mark))
    }

    fn record(&self, shelf: Shelf, key: &str) -> Answer<Option<StoredRecord>> {
        self.read(Method::Record, |inner| inner.record(shelf, key))
    }

    fn records(&self, page: RecordPage<'_>) -> Answer<Vec<StoredRecord>> {
        self.read(Method::Records, |inner| inner.records(page))
    }

    fn count_records(&self, shelf: Shelf) -> Answer<u64> {
        self.read(Method::CountRecords, |inner| inner.count_records(shelf))
    }

    fn blob_session(&self, blob: BlobNo) -> Answer<Option<SessionNo>> {
        self.read(Method::BlobSession, |inner| inner.blob_session(blob))
    }

    fn gone(&self, name: &str) -> Answer<Option<Vec<u8>>> {
        self.read(Method::Gone, |inner| inner.gone(name))
    }

    fn secret(&self) -> &Secret {
        self.inner.secret()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn last_owner_died(&self) -> bool {
        self.inner.last_owner_died()
    }

    fn commits(&self) -> u64 {
        self.inner.commits()
    }
}
