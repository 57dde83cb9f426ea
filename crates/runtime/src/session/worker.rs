//! One of several runtimes on a store: it writes heartbeats, and owns sessions only while they succeed.
//!
//! No two clocks are compared. A worker's record is written again and again, each time with a new generation;
//! another worker takes it for dead if the generation stands still for a whole lease by its own clock, and says so in
//! the record, guarded by that generation, before it takes anything: the dead one's next heartbeat is refused. The
//! worker counts its lease from when it *sent* the last acknowledged heartbeat, which is never later than
//! anybody saw it. So by the time that others may take its sessions it has released them, unless it was
//! stopped meanwhile; then its fences are refused, and it releases them when it continues.

mod knock;
mod list;
pub(crate) mod names;
mod others;
mod record;
mod sweep;

pub(crate) use record::{behind, is_any_known};

use crate::api::clock::Clock;
use crate::api::error::{Lost, SessionError, chain};
use crate::api::keys::fresh_key;
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::held::due_us;
use crate::session::inner::Inner;
use crate::session::orders::Order;
use crate::session::owner::Session;
use crate::session::owners::{AfterLoss, OtherWorker, OwnerPlace, Owners, Right, WokenBy, WorkerEntry};
use crate::session::plugs::Plugged;
use crate::session::wheel::Wheel;
use names::GlobalNames;
use record::LiveRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::{Notify, watch};
use windlass_core::ids::{CallId, SessionNo};
use windlass_store::{
    Change, Receipt, RecordChange, RecordGuard, Refused, Row, Space, Store, StoreError, StoreSpace,
    StoredRecord, Wakes,
};

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
    /// Whether it leaves: others know that from its record.
    leaving: AtomicBool,
    /// Whether it has left, so that it writes no more heartbeats.
    has_left: AtomicBool,
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
            leaving: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
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
        rt.tasks.spawn(keep_beating(place()));
        rt.tasks.spawn(sweep::keep_looking(place()));
        rt.tasks.spawn(knock::keep_hearing(place()));
        rt.tasks.spawn(names::keep(place()));
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
        clock.elapsed_us() < self.0.until_us.load(Ordering::Acquire)
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

    fn retire<'a>(&'a self, rt: &'a Inner) -> Plugged<'a, Result<(), SessionError>> {
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

/// A worker's own view of its lease.
struct Beating {
    id: Arc<str>,
    /// Its record under an earlier id.
    before: Option<Arc<str>>,
    /// The generation of its record when it was last acknowledged; 0 before the first time.
    generation: u64,
    /// Whether a heartbeat got no answer since then: it may have been applied.
    in_doubt: bool,
    /// The end of its lease, by the clock that never jumps; `None` if it has no lease.
    until_us: Option<u64>,
}

/// Writes heartbeats until the runtime is gone. If they are not acknowledged in time the worker loses its
/// sessions, and starts again under another id.
async fn keep_beating(mut place: WorkerPlace) {
    let mut beating: Option<Beating> = None;
    loop {
        let (sent_us, answer) = {
            let Some((rt, worker)) = place.upgrade() else { return };
            let mine = match beating.take() {
                Some(mine) => mine,
                None => match fresh_key() {
                    Ok(id) => Beating::new(id.into(), None),
                    Err(error) => return worker.failed(error),
                },
            };
            if worker.has_left.load(Ordering::SeqCst) {
                return;
            }
            let sent_us = rt.clock.elapsed_us();
            let answer = rt.store.commit(mine.beat(&worker.live(&rt)));
            beating = Some(mine);
            (sent_us, answer)
        };
        let Some(mine) = &mut beating else { return };
        let answered = tokio::select! {
            biased;
            () = gone(&mut place.standing) => return,
            () = place.wheel.until(mine.until_us.unwrap_or(u64::MAX)) => None,
            answered = answer => Some(answered),
        };
        let Some((rt, worker)) = place.upgrade() else { return };
        let mut outcome = mine.heard(&rt, &worker, sent_us, answered);
        if let HeartbeatOutcome::Doubtful = outcome {
            outcome = mine.decide(&rt).await;
        }
        if let HeartbeatOutcome::Alive = outcome
            && !worker.stands_as(&mine.id)
            && !mine.stand(&rt, &worker, &place.wheel).await
        {
            outcome = HeartbeatOutcome::Failed;
        }
        let next_us = match outcome {
            HeartbeatOutcome::Alive => due_us(sent_us, rt.limits.heartbeat_ms),
            HeartbeatOutcome::Again => rt.clock.elapsed_us(),
            HeartbeatOutcome::Failed | HeartbeatOutcome::Doubtful => {
                due_us(rt.clock.elapsed_us(), rt.limits.heartbeat_ms)
            }
            HeartbeatOutcome::Over => {
                worker.lose_lease(&rt);
                beating = mine.anew();
                continue;
            }
        };
        let wake_us = next_us.min(mine.until_us.unwrap_or(u64::MAX));
        let hurry = worker.hurry.clone();
        // Nothing here keeps the runtime or its standing alive.
        drop((rt, worker));
        tokio::select! {
            sleeping = place.sleep(wake_us) => if !sleeping { return },
            () = hurry.notified() => {}
        }
    }
}

/// The outcome of a heartbeat.
enum HeartbeatOutcome {
    Alive,
    /// It was acknowledged too late to count.
    Again,
    /// The store did not take it; it may take the next.
    Failed,
    /// It was refused, perhaps because of an earlier heartbeat that got no answer.
    Doubtful,
    /// The lease is over.
    Over,
}

impl Beating {
    fn new(id: Arc<str>, before: Option<Arc<str>>) -> Beating {
        Beating { id, before, generation: 0, in_doubt: false, until_us: None }
    }

    /// The changes of a heartbeat. The guard allows no record that others wrote or removed: they took this worker for dead.
    fn beat(&self, live: &LiveRecord) -> Vec<Change> {
        let beat = RecordChange::put(StoreSpace::Worker, &*self.id, live.bytes())
            .guarded(RecordGuard::Generation(self.generation));
        let former = self.before.iter().map(|before| RecordChange::remove(StoreSpace::Worker, &**before));
        // The heartbeat is the last one.
        former.chain([beat]).map(Change::from).collect()
    }

    /// Handles the answer to a heartbeat.
    fn heard(
        &mut self,
        rt: &Inner,
        worker: &Worker,
        sent_us: u64,
        answered: Option<StoreReply>,
    ) -> HeartbeatOutcome {
        let now_us = rt.clock.elapsed_us();
        match answered.map(|answered| answered.map(|mut receipts| receipts.pop())) {
            Some(Ok(Some(Ok(receipt)))) => {
                (self.generation, self.in_doubt, self.before) = (receipt.generation, false, None);
                let until_us = due_us(sent_us, rt.limits.lease_ms);
                if now_us >= self.until_us.unwrap_or(u64::MAX) {
                    return HeartbeatOutcome::Over;
                }
                if now_us >= until_us {
                    return if self.until_us.is_some() {
                        HeartbeatOutcome::Over
                    } else {
                        HeartbeatOutcome::Again
                    };
                }
                self.until_us = Some(until_us);
                worker.until_us.store(until_us, Ordering::Release);
                HeartbeatOutcome::Alive
            }
            Some(Ok(Some(Err(Refused::Changed { .. })))) if self.in_doubt => HeartbeatOutcome::Doubtful,
            Some(Ok(Some(Err(_)) | None)) => HeartbeatOutcome::Over,
            Some(Err(error)) if self.until_us.is_none_or(|until_us| now_us < until_us) => {
                self.in_doubt = true;
                if self.until_us.is_none() {
                    worker.failed(error);
                }
                HeartbeatOutcome::Failed
            }
            Some(Err(_)) | None => HeartbeatOutcome::Over,
        }
    }

    /// Adopts what was changed for all workers before its record was there: nobody waited for it then. Only after that it may own
    /// sessions. `false`: that cannot be read now.
    async fn stand(&self, rt: &Arc<Inner>, worker: &Worker, wheel: &Wheel) -> bool {
        let adopting = tokio::select! {
            adopted = (rt.plugs.adopt_orders)(rt) => adopted,
            () = wheel.until(self.until_us.unwrap_or(0)) => return false,
        };
        match adopting {
            Ok(()) => worker.stands(&self.id),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "what holds for all workers could not be read; it is tried again");
            }
        }
        worker.stands_as(&self.id)
    }

    /// Decides about a heartbeat without an answer by its record: if it is alive, this worker wrote it.
    async fn decide(&mut self, rt: &Inner) -> HeartbeatOutcome {
        match rt.store.record(StoreSpace::Worker.shelf(), &self.id).await {
            Ok(Some(record)) if !is_over(&record) => {
                (self.generation, self.in_doubt) = (record.generation, false);
                HeartbeatOutcome::Again
            }
            Ok(_) => HeartbeatOutcome::Over,
            Err(_) => HeartbeatOutcome::Failed,
        }
    }

    /// This worker without anything, under a fresh id. `None`: there is no randomness for one.
    fn anew(&self) -> Option<Beating> {
        let id = fresh_key().ok()?.into();
        Some(Beating::new(id, Some(self.id.clone())))
    }
}

type StoreReply = Result<Vec<Result<Receipt, Refused>>, StoreError>;

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
    async fn retire(&self, rt: &Inner) -> Result<(), SessionError> {
        self.has_left.store(true, Ordering::SeqCst);
        let Some(id) = self.id_now() else { return Ok(()) };
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
    let dead = RecordChange::put(StoreSpace::Worker, record.key.as_str(), DEAD)
        .guarded(RecordGuard::Generation(record.generation));
    match rt.store.commit(vec![dead.into()]).await?.pop() {
        Some(Ok(_)) => Ok(true),
        Some(Err(Refused::Changed { .. })) => {
            // Another worker may have been faster.
            let now = rt.store.record(StoreSpace::Worker.shelf(), &record.key).await?;
            Ok(now.is_none_or(|now| is_over(&now)))
        }
        Some(Err(refused)) => Err(Lost::Refused(refused).into()),
        None => Err(StoreError::Closed.into()),
    }
}

/// The worker that owns a session, if one does.
async fn owner(store: &dyn Store, session: SessionNo) -> Result<Option<String>, SessionError> {
    let record = store.record(Space::Owner.of(session), OWNER).await?;
    Ok(record.map(|record| String::from_utf8_lossy(&record.value).into_owned()))
}
