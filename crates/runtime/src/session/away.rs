//! Calls that wait for an external answer, or for a recorded time, and are not in memory.
//!
//! Once no caller here waits for a batch any more, and all its open calls wait for something recorded, it leaves
//! memory. Each call leaves a [`Stub`] in one ordered index, and its times on the wheel: no task, no timer, no journal.
//! Waking one of them reads the whole batch back and folds it, as a new owner does. A batch is either in its session's
//! table or here: it moves under the lock of that table, so a reader of both never misses it.

use crate::api::error::{SessionError, chain};
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::batch::{OpenBatch, Used};
use crate::session::held::CallPast;
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::session::wheel::AwayDue;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::{Notify, Semaphore};
use windlass_core::call::CallClock;
use windlass_core::ids::{BatchNo, CallId, Ordinal, SessionNo};

/// The calls of a runtime that are not in memory.
#[derive(Default)]
pub(crate) struct Away {
    /// By their numbers: those of a batch are neighbours.
    calls: OrderedMutex<BTreeMap<u64, Stub>, { LockRank::AwayCalls as u8 }>,
    /// Batches that were just released, and may leave memory.
    evictable: OrderedMutex<Vec<Arc<OpenBatch>>, { LockRank::AwayLeaving as u8 }>,
    leaves: Notify,
    /// Calls to wake.
    due: OrderedMutex<VecDeque<CallId>, { LockRank::AwayDue as u8 }>,
    wakes: Notify,
    /// How many tasks wait until enough woken calls have continued, so that more can be read back.
    wait_for_room: AtomicUsize,
    room: Notify,
    over: AtomicBool,
}

/// The remains of a call that is not in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stub {
    pub(crate) session: SessionNo,
    pub(crate) due: AwayDue,
    /// Its [past](Past) in this process.
    pub(crate) since_us: u64,
    pub(crate) counted_us: u64,
    pub(crate) parked_us: u64,
    /// The [moves](crate::session::wheel::Wheel::moved_us) of the wall clock recorded in its journal.
    pub(crate) moved_us: i64,
    /// The provider it waits to be connected to, if it does, as [`provider_mark`].
    pub(crate) provider: u32,
    pub(crate) plan: AwayPlan,
    /// Whether it is being woken.
    pub(crate) waking: bool,
}

/// The planner's knowledge of a call that is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AwayPlan {
    /// The planner knows its claims: others may wait for them.
    Remembered,
    /// The call has no claims.
    Claimless,
    /// The planner knows nothing, since nothing of its session is in memory: it is told before anything else happens there.
    Untold,
}

impl Stub {
    /// The call's past in this process.
    pub(crate) fn past(&self) -> CallPast {
        let Stub { since_us, counted_us, parked_us, moved_us, .. } = *self;
        let clock = CallClock { since_us, counted_us, stood_us: 0, parked_us: Some(parked_us) };
        CallPast { clock, fresh: false, waited: true, moved_us }
    }

    pub(crate) fn new(session: SessionNo, due: AwayDue) -> Stub {
        Stub {
            session,
            due,
            since_us: 0,
            counted_us: 0,
            parked_us: 0,
            moved_us: 0,
            provider: 0,
            plan: AwayPlan::Remembered,
            waking: false,
        }
    }
}

/// The provider that calls waiting for an approval are marked with. No provider has this name, which has a blank.
pub(crate) const APPROVAL_WAIT: &str = "an approval";

/// A number for a provider, never 0. Two may share one: then the call checks for itself.
pub(crate) fn provider_mark(provider: &str) -> u32 {
    // FNV-1a.
    let hash = provider
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// How many batches are read back at once.
const READING_MAX: usize = 32;

impl Away {
    /// The number of calls that are not in memory.
    pub(crate) fn len(&self) -> usize {
        self.calls.lock().len()
    }

    /// Their numbers, in order.
    pub(crate) fn all(&self) -> BTreeSet<CallId> {
        self.calls.lock().keys().map(|call| CallId::unpacked(*call)).collect()
    }

    pub(crate) fn insert(&self, stubs: Vec<(CallId, Stub)>) {
        self.calls.lock().extend(stubs.into_iter().map(|(call, stub)| (call.packed(), stub)));
    }

    /// Whether calls of this batch are here.
    pub(crate) fn has(&self, batch: BatchNo) -> bool {
        self.calls.lock().range(packed(batch)).next().is_some()
    }

    /// Whether the planner must be told of calls of this batch.
    pub(crate) fn is_untold(&self, batch: BatchNo) -> bool {
        self.calls.lock().range(packed(batch)).any(|(_, stub)| stub.plan == AwayPlan::Untold)
    }

    /// The planner has forgotten these calls with their session.
    pub(crate) fn untold(&self, calls: &[CallId]) {
        let mut stubs = self.calls.lock();
        for call in calls {
            if let Some(stub) = stubs.get_mut(&call.packed()) {
                stub.plan = AwayPlan::Untold;
            }
        }
    }

    /// Whether a call of this batch waits to be connected to this provider.
    pub(crate) fn awaits(&self, batch: BatchNo, provider: &str) -> bool {
        let mark = provider_mark(provider);
        self.calls.lock().range(packed(batch)).any(|(_, stub)| stub.provider == mark)
    }

    /// The moves of the wall clock recorded in the journal of this batch.
    pub(crate) fn moved_us(&self, batch: BatchNo) -> Option<i64> {
        self.calls.lock().range(packed(batch)).next().map(|(_, stub)| stub.moved_us)
    }

    /// The session of a call that is here.
    fn session_of(&self, call: CallId) -> Option<SessionNo> {
        self.calls.lock().get(&call.packed()).map(|stub| stub.session)
    }

    /// Removes the calls of a batch, in their order.
    pub(crate) fn take(&self, batch: BatchNo) -> BTreeMap<Ordinal, Stub> {
        let mut calls = self.calls.lock();
        let found: Vec<u64> = calls.range(packed(batch)).map(|(call, _)| *call).collect();
        found
            .into_iter()
            .filter_map(|call| Some((CallId::unpacked(call).ordinal, calls.remove(&call)?)))
            .collect()
    }

    /// Removes the calls of a session: they will not continue here.
    pub(crate) fn take_session(&self, session: SessionNo) -> Vec<(CallId, Stub)> {
        let taken = self.calls.lock().extract_if(.., |_, stub| stub.session == session).collect::<Vec<_>>();
        taken.into_iter().map(|(call, stub)| (CallId::unpacked(call), stub)).collect()
    }

    /// Removes all calls: none of them will continue here.
    pub(crate) fn take_all(&self) -> Vec<(CallId, Stub)> {
        let taken = std::mem::take(&mut *self.calls.lock());
        taken.into_iter().map(|(call, stub)| (CallId::unpacked(call), stub)).collect()
    }

    /// The sessions with calls here.
    pub(crate) fn sessions(&self) -> BTreeSet<SessionNo> {
        self.calls.lock().values().map(|stub| stub.session).collect()
    }

    /// Queues a released batch that may leave now. Not done at once: the caller may hold a lock.
    pub(crate) fn offer(&self, batch: Arc<OpenBatch>) {
        self.evictable.lock().push(batch);
        self.leaves.notify_one();
    }

    /// Has a call read back and driven, if it is here.
    pub(crate) fn wake(&self, call: CallId) {
        match self.calls.lock().get_mut(&call.packed()) {
            Some(stub) if !stub.waking => stub.waking = true,
            Some(_) | None => return,
        }
        self.due.lock().push_back(call);
        self.wakes.notify_one();
    }

    /// A woken call may have continued.
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

/// Moves released batches out of memory until the runtime is gone.
pub(crate) async fn keep_evicting(away: Arc<Away>, rt: Weak<Inner>) {
    while !away.is_over() {
        away.leaves.notified().await;
        let Some(rt) = rt.upgrade() else { return };
        evict_offered(&rt);
    }
}

/// Moves released batches out of memory.
pub(crate) fn evict_offered(rt: &Arc<Inner>) {
    let batches = std::mem::take(&mut *rt.away.evictable.lock());
    for batch in batches {
        if let Some(session) = batch.session() {
            session.evict(rt, batch);
        }
    }
}

/// Wakes calls until the runtime is gone: a bounded number at once, and no more than can wait for their turns.
pub(crate) async fn keep_waking(away: Arc<Away>, rt: Weak<Inner>) {
    let reading = Arc::new(Semaphore::new(READING_MAX));
    while !away.is_over() {
        away.wakes.notified().await;
        loop {
            let Some(call) = away.due.lock().pop_front() else { break };
            let Ok(permit) = reading.clone().acquire_owned().await else { return };
            let Some(rt) = room(&away, &rt).await else { return };
            rt.clone().tasks.spawn(async move {
                wake(&rt, call).await;
                drop(permit);
            });
        }
    }
}

/// Waits until few enough of the woken calls wait for their turns.
pub(crate) async fn room(away: &Away, rt: &Weak<Inner>) -> Option<Arc<Inner>> {
    // Set before the planner is read under its lock: a later change of the planner sees it.
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
            // In use until the call is woken, so that the batch does not leave before.
            let _used = fetch(rt, &session, call.batch).await;
            // In this task, so that the planner counts the call before the next is read.
            session.wake_here(rt, call).await;
        }
        Err(error) => {
            tracing::error!(%session, %call, error = %chain(&error), "a call that is due cannot be read back")
        }
    }
}

/// A batch that cannot be read back, and stands still. That was logged.
#[derive(Debug)]
pub(crate) struct Stuck;

/// Returns a batch from memory, or reads it back. `None`: it is over.
pub(crate) async fn fetch(
    rt: &Arc<Inner>,
    session: &Arc<Session>,
    batch: BatchNo,
) -> Result<Option<Used>, Stuck> {
    let fetched = {
        let admission = session.admit().await;
        Session::fetch(&admission, rt, batch).await
    };
    match fetched {
        Ok(found) => Ok(found),
        Err(SessionError::Lost(lost)) => {
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
