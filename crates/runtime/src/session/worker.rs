//! One of several runtimes on a store: it writes heartbeats, and owns sessions only while they succeed.
//!
//! No two clocks are compared. A worker's record is written again and again, each time with a new generation;
//! another worker takes it for dead if the generation stands still for a whole lease by its own clock, and says so in
//! the record, guarded by that generation, before it takes anything: the dead one's next heartbeat is refused. The
//! worker counts its lease from when it *sent* the last acknowledged heartbeat, which is never later than
//! anybody saw it. So by the time that others may take its sessions it has released them, unless it was
//! stopped meanwhile; then its fences are refused, and it releases them when it continues.

mod beat;
mod knock;
mod limits;
mod list;
pub(crate) mod names;
mod others;
mod record;
mod sweep;

pub(crate) use record::{behind, is_any_known};
pub(crate) use sweep::take_left;

use crate::api::clock::Clock;
use crate::api::error::{Lost, SessionError};
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::held::due_us;
use crate::session::inner::Inner;
use crate::session::orders::Order;
use crate::session::owner::Session;
use crate::session::owners::{AfterLoss, OtherWorker, OwnerPlace, Owners, Right, WokenBy, WorkerEntry};
use crate::session::plugs::Plugged;
use crate::session::swapped;
use crate::session::wheel::Wheel;
use limits::SharedLimits;
use names::GlobalNames;
use record::LiveRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::{Notify, watch};
use windlass_core::ids::{CallId, SessionNo};
use windlass_store::{RecordChange, Row, Space, Store, StoreError, StoreSpace, StoredRecord, Wakes};

/// The target of wakes that are for every worker.
const ALL: &str = "workers";

/// The key of a session's record that names its owner.
const OWNER: &str = "worker";

/// The runtime as one of several workers, each of which owns its sessions by a lease.
#[derive(Default)]
pub(crate) struct Leases(Arc<Worker>);

/// This runtime as one of several.
pub(crate) struct Worker {
    /// Its watchers end when the runtime is gone.
    standing: watch::Sender<LeaseStanding>,
    /// The end of its lease, by the clock that never jumps; 0 without one. What was stopped for longer than its lease finds out by this
    /// alone, before it has done anything.
    until_us: AtomicU64,
    /// The `global:` names that its calls hold and wait for.
    names: GlobalNames,
    /// Its shares of the limits of tools and groups.
    limits: SharedLimits,
    /// Whether it leaves: others know that from its record.
    leaving: AtomicBool,
    /// Whether it has left, so that it writes no more heartbeats.
    has_left: AtomicBool,
    /// Whether sessions that nobody owned could not be taken yet.
    has_orphans: AtomicBool,
    /// Notified when the next heartbeat must not wait for its time.
    hurry: Arc<Notify>,
    state: OrderedMutex<LeaseState, { LockRank::Worker as u8 }>,
}

/// Whether it may own sessions.
#[derive(Clone, Debug)]
enum LeaseStanding {
    /// It has no lease yet, or no longer.
    Without,
    /// It has a lease, under this id.
    Lease(Arc<str>),
    /// It has none, since the store does not take its heartbeats.
    Failed(Lost),
}

#[derive(Default)]
struct LeaseState {
    /// The sessions taken under its lease.
    sessions: Vec<Weak<Session>>,
    /// How many of those there may be before dropped ones are forgotten.
    sessions_max: usize,
    /// The generation of each other worker when it was last seen to change, and that time.
    seen: BTreeMap<String, (u64, u64)>,
    /// The other workers that were alive at the last look.
    alive: BTreeSet<String>,
}

impl Default for Worker {
    fn default() -> Worker {
        Worker {
            standing: watch::Sender::new(LeaseStanding::Without),
            until_us: AtomicU64::new(0),
            names: GlobalNames::default(),
            limits: SharedLimits::default(),
            leaving: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
            has_orphans: AtomicBool::new(false),
            hurry: Arc::default(),
            state: OrderedMutex::default(),
        }
    }
}

/// The value of the record of a worker that others declared dead. A live worker writes the version of its policy.
const DEAD: &[u8] = b"dead";

/// The value of the record of a worker that left in good order. It stays until another one has taken its sessions: one that
/// was just removed would go unnoticed by those who had not seen it before.
const LEFT: &[u8] = b"left";

/// Whether this is the record of a worker that was declared dead.
fn is_dead(record: &StoredRecord) -> bool {
    record.value == DEAD
}

/// Whether this is the record of a worker that was declared dead, or left.
fn is_over(record: &StoredRecord) -> bool {
    is_dead(record) || record.value == LEFT
}

impl Owners for Leases {
    fn begin(&self, rt: &Arc<Inner>) {
        let place = || WorkerPlace {
            rt: Arc::downgrade(rt),
            worker: Arc::downgrade(&self.0),
            wheel: rt.wheel.clone(),
            standing: self.0.standing.subscribe(),
        };
        rt.tasks.spawn(beat::keep_beating(place()));
        rt.tasks.spawn(sweep::keep_looking(place()));
        rt.tasks.spawn(knock::keep_hearing(place()));
        rt.tasks.spawn(names::keep(place()));
        rt.tasks.spawn(limits::keep(place()));
    }

    fn id(&self) -> Option<Arc<str>> {
        self.0.id_now()
    }

    fn has_others(&self) -> bool {
        true
    }

    fn acquire<'a>(
        &'a self,
        rt: &'a Inner,
        name: &'a str,
        recorded: Option<SessionNo>,
    ) -> Plugged<'a, Result<Right, SessionError>> {
        Box::pin(self.0.right_to(rt, name, recorded))
    }

    fn acquired(&self, session: &Arc<Session>, id: Option<&Arc<str>>) -> Result<(), Lost> {
        self.0.owns(session, id)
    }

    #[inline]
    fn stands(&self, clock: &dyn Clock) -> bool {
        // One that has left is not waited for either.
        let has_left = self.0.has_left.load(Ordering::SeqCst);
        !has_left && clock.elapsed_us() < self.0.until_us.load(Ordering::Acquire)
    }

    fn worker(&self) -> Option<Arc<Worker>> {
        Some(self.0.clone())
    }

    fn tell_soon(&self) {
        self.0.hurry.notify_one();
    }

    /// Whatever became of it, the store tells who owns it now.
    fn lost(&self, _: &Lost) -> AfterLoss {
        AfterLoss::TakenAgain
    }

    fn wake(&self) -> WokenBy {
        WokenBy::ItsOwner
    }

    fn release(&self) -> Option<Row> {
        Some(Row::Remove { space: Space::Owner, key: OWNER.to_string() })
    }

    fn knock<'a>(
        &'a self,
        rt: &'a Inner,
        worker: &'a str,
        session: SessionNo,
    ) -> Plugged<'a, Result<(), SessionError>> {
        Box::pin(knock::knock(rt, worker, session))
    }

    fn workers<'a>(&'a self, rt: &'a Inner) -> Plugged<'a, Result<Vec<WorkerEntry>, SessionError>> {
        Box::pin(list::list(self, rt))
    }

    fn place<'a>(&'a self, rt: &'a Inner, session: &'a str) -> Plugged<'a, Result<OwnerPlace, SessionError>> {
        Box::pin(others::place(self, rt, session))
    }

    fn others<'a>(&'a self, rt: &'a Inner) -> Plugged<'a, Result<Vec<OtherWorker>, SessionError>> {
        Box::pin(others::list(self, rt))
    }

    fn is_alive(&self, worker: &str) -> bool {
        self.0.state.lock().alive.contains(worker)
    }

    fn begin_leaving(&self) {
        self.0.leaving.store(true, Ordering::SeqCst);
        self.0.hurry.notify_one();
    }

    fn retire<'a>(&'a self, rt: &'a Arc<Inner>) -> Plugged<'a, Result<(), SessionError>> {
        Box::pin(self.0.retire(rt))
    }

    fn leave(&self, store: &dyn Store) {
        if self.0.has_left.load(Ordering::SeqCst) {
            return;
        }
        if let Some(id) = self.0.id_now() {
            let left = RecordChange::put(StoreSpace::Worker, &*id, LEFT);
            // Sending is enough: if it is not applied, the others wait for a lease.
            drop(store.commit(vec![left.into()]));
        }
    }
}

/// The context of a worker's task: it holds nothing that must go with the runtime.
struct WorkerPlace {
    rt: Weak<Inner>,
    worker: Weak<Worker>,
    wheel: Arc<Wheel>,
    standing: watch::Receiver<LeaseStanding>,
}

impl WorkerPlace {
    /// The runtime and its standing as a worker, unless it is gone.
    fn upgrade(&self) -> Option<(Arc<Inner>, Arc<Worker>)> {
        self.rt.upgrade().zip(self.worker.upgrade())
    }

    /// Sleeps until then, or until a wake. `false`: the runtime is gone.
    async fn sleep_or_wake(&mut self, until_us: u64, wakes: &mut Wakes) -> bool {
        tokio::select! {
            is_there = self.sleep(until_us) => is_there,
            () = wakes.next() => true,
        }
    }

    /// Sleeps until then. `false`: the runtime is gone.
    async fn sleep(&mut self, until_us: u64) -> bool {
        let WorkerPlace { wheel, standing, .. } = self;
        tokio::select! {
            biased;
            () = gone(standing) => false,
            () = wheel.until(until_us) => true,
        }
    }
}

/// Waits until the runtime is gone.
async fn gone(standing: &mut watch::Receiver<LeaseStanding>) {
    while standing.changed().await.is_ok() {}
}

impl Worker {
    /// Its id, once it has a lease.
    async fn id(&self) -> Result<Arc<str>, SessionError> {
        let mut standing = self.standing.subscribe();
        let known = standing.wait_for(|standing| !matches!(standing, LeaseStanding::Without)).await;
        match known.map(|known| known.clone()) {
            Ok(LeaseStanding::Lease(id)) => Ok(id),
            Ok(LeaseStanding::Failed(lost)) => Err(lost.into()),
            Ok(LeaseStanding::Without) | Err(_) => Err(StoreError::Closed.into()),
        }
    }

    /// Its id, if it has a lease.
    fn id_now(&self) -> Option<Arc<str>> {
        match &*self.standing.borrow() {
            LeaseStanding::Lease(id) => Some(id.clone()),
            LeaseStanding::Without | LeaseStanding::Failed(_) => None,
        }
    }

    /// The `global:` name of another worker that a call waits for.
    pub(crate) fn name_awaited_by(&self, call: CallId) -> Option<String> {
        self.names.awaited_by(call)
    }

    /// The content of its record.
    fn live(&self, rt: &Inner) -> LiveRecord {
        LiveRecord {
            policy: rt.policy.version(),
            revocations: Some(rt.adopted.number(Order::Revocations)),
            pauses: Some(rt.adopted.number(Order::Pauses)),
            address: rt.address.clone(),
            since: rt.began_at.0,
            leaving: self.leaving.load(Ordering::SeqCst),
            sessions: rt.sessions_in_memory() as u64,
            version: env!("CARGO_PKG_VERSION").to_string(),
            tools: rt.registry.digest(),
        }
    }

    /// Gives up its lease for good: the others need not wait until it runs out, and look at once.
    async fn retire(&self, rt: &Arc<Inner>) -> Result<(), SessionError> {
        self.has_left.store(true, Ordering::SeqCst);
        let Some(id) = self.id_now() else { return Ok(()) };
        limits::leave(rt, self, &id).await;
        let left = RecordChange::put(StoreSpace::Worker, &*id, LEFT);
        let told = rt.store.commit(vec![left.into()]).await?;
        told.into_iter().collect::<Result<Vec<_>, _>>().map_err(Lost::Refused)?;
        rt.store.wake(ALL);
        Ok(())
    }

    /// Whether the worker of this id has been silent for a lease, given the current generation of its record.
    fn is_silent(&self, id: &str, generation: u64, now_us: u64, lease_ms: u64) -> bool {
        let mut state = self.state.lock();
        match state.seen.get(id) {
            Some((seen, since_us)) if *seen == generation => now_us >= due_us(*since_us, lease_ms),
            Some(_) | None => {
                state.seen.insert(id.to_string(), (generation, now_us));
                false
            }
        }
    }

    /// Whether it may own sessions under this id.
    fn stands_as(&self, id: &Arc<str>) -> bool {
        matches!(&*self.standing.borrow(), LeaseStanding::Lease(known) if known == id)
    }

    fn stands(&self, id: &Arc<str>) {
        self.standing.send_if_modified(|standing| {
            let is_new = !matches!(standing, LeaseStanding::Lease(known) if known == id);
            *standing = LeaseStanding::Lease(id.clone());
            is_new
        });
    }

    /// It cannot become a worker.
    fn failed(&self, error: impl Into<SessionError>) {
        let lost = match error.into() {
            SessionError::Lost(lost) => lost,
            // No other errors come from making an id or writing a record.
            SessionError::Shape { .. } | SessionError::NotFound { .. } => return,
            SessionError::Owned { .. } | SessionError::Unreadable { .. } => return,
            SessionError::Closed { .. } | SessionError::Gone { .. } | SessionError::Expired { .. } => return,
        };
        self.standing.send_replace(LeaseStanding::Failed(lost));
    }

    /// Its lease is over: it owns nothing any more, its tools are stopped, and its waiters are notified.
    fn lose_lease(&self, rt: &Arc<Inner>) {
        // No session is taken under this lease once the list is taken.
        let sessions = {
            let mut state = self.state.lock();
            self.until_us.store(0, Ordering::Release);
            self.standing.send_replace(LeaseStanding::Without);
            std::mem::take(&mut state.sessions)
        };
        tracing::error!(sessions = sessions.len(), "this worker lost its lease, and all it owned");
        for session in sessions.iter().filter_map(Weak::upgrade) {
            rt.closed(session.lose(rt, Lost::Lease));
        }
        self.limits.forget();
        rt.turns.drop_shares(rt);
        // Released sessions with waiting calls still belonged to it.
        let away = rt.away.take_all();
        rt.closed(Session::forget_away(rt, &away));
    }

    /// The right of this worker to take a session, if it has one. A new session has no owner.
    async fn right_to(
        &self,
        rt: &Inner,
        name: &str,
        recorded: Option<SessionNo>,
    ) -> Result<Right, SessionError> {
        let id = self.id().await?;
        let row = Row::Put { space: Space::Owner, key: OWNER.to_string(), value: id.as_bytes().into() };
        let mine = Right { id: Some(id.clone()), rows: vec![row], ..Right::default() };
        let Some(no) = recorded else { return Ok(mine) };
        let owner = match owner(&*rt.store, no).await? {
            Some(owner) if *owner != *id => owner,
            Some(_) | None => return Ok(mine),
        };
        let Some(record) = rt.store.record(StoreSpace::Worker.shelf(), &owner).await? else {
            return Ok(Right { at_once: true, ..mine });
        };
        if !is_over(&record) {
            let (now_us, lease_ms) = (rt.clock.elapsed_us(), rt.limits.lease_ms);
            let is_silent = self.is_silent(&owner, record.generation, now_us, lease_ms);
            if !is_silent || !declare_dead(rt, &record).await? {
                return Err(SessionError::Owned { session: name.to_string(), worker: owner });
            }
        }
        Ok(Right { at_once: true, died: record.value != LEFT, ..mine })
    }

    /// Registers a session under a lease, unless that is over by now.
    fn owns(&self, session: &Arc<Session>, id: Option<&Arc<str>>) -> Result<(), Lost> {
        let mut state = self.state.lock();
        if id.is_none() || self.id_now().as_ref() != id {
            return Err(Lost::Lease);
        }
        if state.sessions.len() >= state.sessions_max {
            state.sessions.retain(|session| session.strong_count() > 0);
            state.sessions_max = (2 * state.sessions.len()).max(SESSIONS_MIN);
        }
        state.sessions.push(Arc::downgrade(session));
        Ok(())
    }
}

/// The number of sessions remembered before dropped ones are forgotten.
const SESSIONS_MIN: usize = 64;

/// Declares a silent worker dead. `false`: it was heard of again, and keeps its sessions.
async fn declare_dead(rt: &Inner, record: &StoredRecord) -> Result<bool, SessionError> {
    let dead = RecordChange::put(StoreSpace::Worker, record.key.as_str(), DEAD);
    if swapped::swap(rt, dead, record.generation).await? {
        return Ok(true);
    }
    // Another worker may have been faster.
    let now = rt.store.record(StoreSpace::Worker.shelf(), &record.key).await?;
    Ok(now.is_none_or(|now| is_over(&now)))
}

/// The worker that owns a session, if one does.
async fn owner(store: &dyn Store, session: SessionNo) -> Result<Option<String>, SessionError> {
    let record = store.record(Space::Owner.of(session), OWNER).await?;
    Ok(record.map(|record| String::from_utf8_lossy(&record.value).into_owned()))
}
