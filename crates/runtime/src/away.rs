//! Calls that wait for the world outside, or for a recorded time, and are not in memory.
//!
//! Once nobody here waits for a batch any more, and all its open calls wait for something that is recorded, it leaves memory.
//! What is left of each call is a [`Stub`] in one ordered index, and its times on the wheel: no task, no timer, no journal.
//! Whatever wakes one of them reads the whole batch back and folds it, as a new owner does. A batch is either in its session's
//! table or here: it goes from one to the other under the lock of that table, so nobody who looks at both misses it.

use crate::batch::{OpenBatch, Used};
use crate::error::{BatchError, chain};
use crate::held::Past;
use crate::runtime::Inner;
use crate::session::Session;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Notify, Semaphore};
use windlass_core::ids::{BatchNo, CallId, Ordinal, SessionNo};
use windlass_core::time::Timestamp;

/// The calls of a runtime that are not in memory.
#[derive(Default)]
pub(crate) struct Away {
    /// By their numbers: those of a batch are neighbours.
    calls: Mutex<BTreeMap<u64, Stub>>,
    /// Batches that somebody has just let go of, and that may leave.
    leaving: Mutex<Vec<Arc<OpenBatch>>>,
    leaves: Notify,
    /// Calls that are to be woken.
    due: Mutex<VecDeque<CallId>>,
    wakes: Notify,
    /// How many wait until so many woken calls have gone on that more can be read back.
    wait_for_room: AtomicUsize,
    room: Notify,
    over: AtomicBool,
}

/// All that is kept of a call that is not in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stub {
    pub(crate) session: SessionNo,
    /// When it is woken at the latest, by the clock that never jumps and by the wall clock.
    pub(crate) due: (u64, Timestamp),
    /// Its [past](Past) in this process.
    pub(crate) since_us: u64,
    pub(crate) counted_us: u64,
    pub(crate) parked_at: (Timestamp, u64),
    /// What it waits to be connected to, if it does, as [`provider_mark`] says.
    pub(crate) provider: u32,
    pub(crate) plan: Plan,
    /// Whether it is being woken.
    pub(crate) waking: bool,
}

/// What the planner knows of a call that is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// What it claims: others may wait for it.
    Remembered,
    /// Nothing, since it claims nothing.
    Claimless,
    /// Nothing, since nothing of its session is in memory: the planner is told before anything else is done there.
    Untold,
}

impl Stub {
    /// What its past in this process means for the call.
    pub(crate) fn past(&self) -> Past {
        let Stub { since_us, counted_us, parked_at, .. } = *self;
        Past { since_us, counted_us, fresh: false, waited: true, parked_at: Some(parked_at) }
    }

    pub(crate) fn new(session: SessionNo, due: (u64, Timestamp)) -> Stub {
        let (since_us, counted_us, parked_at) = (0, 0, (Timestamp(0), 0));
        Stub {
            session,
            due,
            since_us,
            counted_us,
            parked_at,
            provider: 0,
            plan: Plan::Remembered,
            waking: false,
        }
    }
}

/// A number for a provider, never 0. Two may have the same: then a call looks for itself.
pub(crate) fn provider_mark(provider: &str) -> u32 {
    // FNV-1a.
    let hash = provider
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// So many batches are read back at once.
const READING_MAX: usize = 32;

impl Away {
    /// How many calls are not in memory.
    pub(crate) fn len(&self) -> usize {
        lock(&self.calls).len()
    }

    /// Their numbers, in order.
    pub(crate) fn all(&self) -> BTreeSet<CallId> {
        lock(&self.calls).keys().map(|call| CallId::unpacked(*call)).collect()
    }

    pub(crate) fn insert(&self, stubs: Vec<(CallId, Stub)>) {
        lock(&self.calls).extend(stubs.into_iter().map(|(call, stub)| (call.packed(), stub)));
    }

    /// Whether calls of this batch are here.
    pub(crate) fn has(&self, batch: BatchNo) -> bool {
        lock(&self.calls).range(packed(batch)).next().is_some()
    }

    /// Whether the planner must be told of calls of this batch.
    pub(crate) fn is_untold(&self, batch: BatchNo) -> bool {
        lock(&self.calls).range(packed(batch)).any(|(_, stub)| stub.plan == Plan::Untold)
    }

    /// The planner has forgotten these calls with their session.
    pub(crate) fn untold(&self, calls: &[CallId]) {
        let mut stubs = lock(&self.calls);
        for call in calls {
            if let Some(stub) = stubs.get_mut(&call.packed()) {
                stub.plan = Plan::Untold;
            }
        }
    }

    /// Whether one of this batch waits to be connected to this.
    pub(crate) fn awaits(&self, batch: BatchNo, provider: &str) -> bool {
        let mark = provider_mark(provider);
        lock(&self.calls).range(packed(batch)).any(|(_, stub)| stub.provider == mark)
    }

    /// The session of a call that is here.
    fn session_of(&self, call: CallId) -> Option<SessionNo> {
        lock(&self.calls).get(&call.packed()).map(|stub| stub.session)
    }

    /// Takes the calls of a batch out, in their order.
    pub(crate) fn take(&self, batch: BatchNo) -> BTreeMap<Ordinal, Stub> {
        let mut calls = lock(&self.calls);
        let found: Vec<u64> = calls.range(packed(batch)).map(|(call, _)| *call).collect();
        found
            .into_iter()
            .filter_map(|call| Some((CallId::unpacked(call).ordinal, calls.remove(&call)?)))
            .collect()
    }

    /// Takes the calls of a session out: they will not go on here.
    pub(crate) fn take_session(&self, session: SessionNo) -> Vec<(CallId, Stub)> {
        let taken = lock(&self.calls).extract_if(.., |_, stub| stub.session == session).collect::<Vec<_>>();
        taken.into_iter().map(|(call, stub)| (CallId::unpacked(call), stub)).collect()
    }

    /// Takes all calls out: none of them will go on here.
    pub(crate) fn take_all(&self) -> Vec<(CallId, Stub)> {
        let taken = std::mem::take(&mut *lock(&self.calls));
        taken.into_iter().map(|(call, stub)| (CallId::unpacked(call), stub)).collect()
    }

    /// The sessions of which calls are here.
    pub(crate) fn sessions(&self) -> BTreeSet<SessionNo> {
        lock(&self.calls).values().map(|stub| stub.session).collect()
    }

    /// Somebody lets go of a batch that may leave now. Not here and now: whoever lets go may have locked something.
    pub(crate) fn let_go(&self, batch: Arc<OpenBatch>) {
        lock(&self.leaving).push(batch);
        self.leaves.notify_one();
    }

    /// Has a call read back and driven, if it is here.
    pub(crate) fn wake(&self, call: CallId) {
        match lock(&self.calls).get_mut(&call.packed()) {
            Some(stub) if !stub.waking => stub.waking = true,
            Some(_) | None => return,
        }
        lock(&self.due).push_back(call);
        self.wakes.notify_one();
    }

    /// A call that was woken may have gone on.
    pub(crate) fn made_room(&self) {
        if self.wait_for_room.load(Ordering::Relaxed) > 0 {
            self.room.notify_waiters();
        }
    }

    /// The runtime is gone.
    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.leaves.notify_one();
        self.wakes.notify_one();
        self.room.notify_waiters();
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

fn packed(batch: BatchNo) -> std::ops::RangeInclusive<u64> {
    let call = |ordinal| CallId { batch, ordinal: Ordinal(ordinal) }.packed();
    call(0)..=call(u16::MAX)
}

/// Lets batches leave memory until the runtime is gone.
pub(crate) async fn keep_leaving(away: Arc<Away>, rt: Weak<Inner>) {
    while !away.is_over() {
        away.leaves.notified().await;
        let Some(rt) = rt.upgrade() else { return };
        let_leave(&rt);
    }
}

/// Lets those leave that were let go of.
pub(crate) fn let_leave(rt: &Arc<Inner>) {
    let batches = std::mem::take(&mut *lock(&rt.away.leaving));
    for batch in batches {
        if let Some(session) = batch.session() {
            session.let_leave(rt, batch);
        }
    }
}

/// Wakes calls until the runtime is gone: so many at once, and no more than can wait for their turns.
pub(crate) async fn keep_waking(away: Arc<Away>, rt: Weak<Inner>) {
    let reading = Arc::new(Semaphore::new(READING_MAX));
    while !away.is_over() {
        away.wakes.notified().await;
        loop {
            let Some(call) = lock(&away.due).pop_front() else { break };
            let Ok(permit) = reading.clone().acquire_owned().await else { return };
            let Some(rt) = room(&away, &rt).await else { return };
            rt.clone().tasks.spawn(async move {
                wake(&rt, call).await;
                drop(permit);
            });
        }
    }
}

/// Waits until few enough of the calls that were woken wait for their turns.
pub(crate) async fn room(away: &Away, rt: &Weak<Inner>) -> Option<Arc<Inner>> {
    // Said before the planner is asked, which is behind a lock: whoever changes it then sees it.
    away.wait_for_room.fetch_add(1, Ordering::Relaxed);
    let found = loop {
        let made = away.room.notified();
        match rt.upgrade().filter(|_| !away.is_over()) {
            Some(rt) if rt.turns.again() >= rt.limits.calls_queued_max => drop(rt),
            found => break found,
        }
        made.await;
    };
    away.wait_for_room.fetch_sub(1, Ordering::Relaxed);
    found
}

async fn wake(rt: &Arc<Inner>, call: CallId) {
    let Some(session) = rt.away.session_of(call) else { return };
    match rt.session_by_no(session).await {
        Ok(session) => {
            // Used until it is woken, so that it does not leave before.
            let _used = fetch(rt, &session, call.batch).await;
            // In this task, so that the planner knows how many wait before the next is read.
            session.wake_here(rt, call).await;
        }
        Err(error) => {
            tracing::error!(%session, %call, error = %chain(&error), "a call that is due cannot be read back")
        }
    }
}

/// A batch cannot be read back, and stands still. That was logged.
#[derive(Debug)]
pub(crate) struct Stuck;

/// A batch that is in memory or here. `None`: it is over.
pub(crate) async fn fetch(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    batch: BatchNo,
) -> Result<Option<Used>, Stuck> {
    let fetched = {
        let _admission = session.admission.lock().await;
        session.fetch(rt, batch).await
    };
    match fetched {
        Ok(found) => Ok(found),
        Err(BatchError::Lost(lost)) => {
            rt.closed(session.lose(rt, lost));
            Err(Stuck)
        }
        Err(error) => {
            let session = &session.name;
            tracing::error!(%session, %batch, error = %chain(&error), "a batch cannot be read back, and stands still");
            Err(Stuck)
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
