//! One of several runtimes on a store: it says that it is alive, and owns sessions only while it does.
//!
//! No two clocks are compared. A worker's record is put again and again, each time with a new generation; whoever wants to
//! know whether it is alive looks whether the generation stands still for a whole lease by its own clock. The worker counts
//! its lease from when it *sent* the last heartbeat that was acknowledged, which is never later than anybody saw it. So by the
//! time that others may take its sessions it has let go of them, unless it was stopped meanwhile; then its fences are
//! refused, and it lets go when it goes on.

mod knock;
mod sweep;

pub(crate) use knock::knock;

use crate::error::{BatchError, Lost};
use crate::held::due_us;
use crate::runtime::Inner;
use crate::session::Session;
use crate::submit::fresh_key;
use crate::wheel::Wheel;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;
use windlass_core::ids::SessionNo;
use windlass_store::{Change, Guard, Hold, Receipt, Refused, Row, STORE, Space, Store, StoreError};

/// The key of a session's record that says who owns it.
const OWNER: &str = "worker";

/// This runtime as one of several.
pub(crate) struct Worker {
    /// Those who watch this end when the runtime is gone.
    standing: watch::Sender<Standing>,
    state: Mutex<State>,
}

/// Whether it may own sessions.
#[derive(Clone, Debug)]
enum Standing {
    /// Not yet, or not any more.
    Without,
    /// It has a lease, under this id.
    Lease(Arc<str>),
    /// Not, since the store does not take its heartbeats.
    Failed(Lost),
}

#[derive(Default)]
struct State {
    /// What it took under its lease.
    sessions: Vec<Weak<Session>>,
    /// How many of those there may be before the ones that are gone are forgotten.
    sessions_max: usize,
    /// The generation of each other worker when it was last seen to change, and when that was.
    seen: BTreeMap<String, (u64, u64)>,
}

impl Default for Worker {
    fn default() -> Worker {
        Worker { standing: watch::Sender::new(Standing::Without), state: Mutex::default() }
    }
}

/// By what right a session is taken, beside its fence.
#[derive(Default)]
pub(crate) struct Right {
    /// Under whose lease; nobody's if the store is this runtime's alone.
    id: Option<Arc<str>>,
    pub(crate) guards: Vec<Guard>,
    pub(crate) rows: Vec<Row>,
    /// Whether somebody else owned it, who may still write: it is taken before anything is read.
    pub(crate) at_once: bool,
    /// Whether that one was not heard of, rather than having let go: what it ran may be what killed it.
    pub(crate) died: bool,
}

/// Begins to be a worker, if the runtime is one.
pub(crate) fn begin(rt: &Arc<Inner>) {
    let Some(worker) = &rt.worker else { return };
    let place = || (Arc::downgrade(rt), rt.wheel.clone(), worker.standing.subscribe());
    rt.tasks.spawn(keep_beating(place()));
    rt.tasks.spawn(sweep::keep_looking(place()));
    rt.tasks.spawn(knock::keep_hearing(place()));
}

/// Where a task of a worker works: it holds nothing that must go with the runtime.
type Place = (Weak<Inner>, Arc<Wheel>, watch::Receiver<Standing>);

/// Sleeps until then. `false`: the runtime is gone.
async fn sleep((_, wheel, standing): &mut Place, until_us: u64) -> bool {
    tokio::select! {
        biased;
        () = gone(standing) => false,
        () = wheel.until(until_us) => true,
    }
}

/// Waits until the runtime is gone.
async fn gone(standing: &mut watch::Receiver<Standing>) {
    while standing.changed().await.is_ok() {}
}

/// A worker's own view of its lease.
struct Beating {
    id: Arc<str>,
    /// The record that it had under an earlier id.
    before: Option<Arc<str>>,
    /// Whether its record was ever acknowledged.
    begun: bool,
    /// Until when it is its own, by the clock that never jumps; nothing if it has no lease.
    until_us: Option<u64>,
}

/// Says again and again that this worker is alive, until its runtime is gone. If that is not acknowledged in time it loses what it
/// owns, and begins anew under another id.
async fn keep_beating(mut place: Place) {
    let mut beating: Option<Beating> = None;
    loop {
        let (sent_us, answer) = {
            let Some(rt) = place.0.upgrade() else { return };
            let mine = match beating.take() {
                Some(mine) => mine,
                None => match fresh_key() {
                    Ok(id) => Beating { id: id.into(), before: None, begun: false, until_us: None },
                    Err(error) => return rt.worker_failed(error),
                },
            };
            let sent_us = rt.clock.elapsed_us();
            let answer = rt.store.commit(vec![mine.beat()]);
            beating = Some(mine);
            (sent_us, answer)
        };
        let Some(mine) = &mut beating else { return };
        let answered = tokio::select! {
            biased;
            () = gone(&mut place.2) => return,
            () = place.1.until(mine.until_us.unwrap_or(u64::MAX)) => None,
            answered = answer => Some(answered),
        };
        let Some(rt) = place.0.upgrade() else { return };
        let next_us = match mine.heard(&rt, sent_us, answered) {
            Heard::Alive => due_us(sent_us, rt.limits.heartbeat_ms),
            Heard::Again => rt.clock.elapsed_us(),
            Heard::Failed => due_us(rt.clock.elapsed_us(), rt.limits.heartbeat_ms),
            Heard::Over => {
                rt.lose_lease();
                beating = mine.anew();
                continue;
            }
        };
        let wake_us = next_us.min(mine.until_us.unwrap_or(u64::MAX));
        drop(rt);
        if !sleep(&mut place, wake_us).await {
            return;
        }
    }
}

/// What became of a heartbeat.
enum Heard {
    Alive,
    /// It was acknowledged too late to count.
    Again,
    /// The store did not take it; it may take the next.
    Failed,
    /// The lease is over.
    Over,
}

impl Beating {
    /// The change that says that this worker is alive.
    fn beat(&self) -> Change {
        let (space, key) = (Space::Worker, self.id.to_string());
        let guard = match self.begun {
            // There is no room for a new one: whoever removed the record took this worker for dead.
            true => Guard::Room { space, key: key.clone(), max: 0 },
            false => Guard::Generation { space, key: key.clone(), is: 0 },
        };
        let mut rows = vec![Row::Put { space, key, value: Arc::from([]) }];
        rows.extend(self.before.iter().map(|before| Row::Remove { space, key: before.to_string() }));
        Change { session: STORE, hold: Hold::Store, guards: vec![guard], rows }
    }

    /// Takes the answer to what was sent then.
    fn heard(&mut self, rt: &Arc<Inner>, sent_us: u64, answered: Option<Answered>) -> Heard {
        let now_us = rt.clock.elapsed_us();
        match answered.map(|answered| answered.map(|mut receipts| receipts.pop())) {
            Some(Ok(Some(Ok(_)))) => {
                (self.begun, self.before) = (true, None);
                let until_us = due_us(sent_us, rt.limits.lease_ms);
                if now_us >= self.until_us.unwrap_or(u64::MAX) {
                    return Heard::Over;
                }
                if now_us >= until_us {
                    return if self.until_us.is_some() { Heard::Over } else { Heard::Again };
                }
                self.until_us = Some(until_us);
                rt.stands(&self.id);
                Heard::Alive
            }
            // A first heartbeat that was not answered may have been taken.
            Some(Ok(Some(Err(Refused::Changed { .. })))) if !self.begun => {
                self.begun = true;
                Heard::Again
            }
            Some(Ok(Some(Err(_)) | None)) => Heard::Over,
            Some(Err(error)) if self.until_us.is_none_or(|until_us| now_us < until_us) => {
                if self.until_us.is_none() {
                    rt.worker_failed(error);
                }
                Heard::Failed
            }
            Some(Err(_)) | None => Heard::Over,
        }
    }

    /// The same worker without anything, under an id that nobody has seen. `None`: there is no randomness for one.
    fn anew(&self) -> Option<Beating> {
        let id = fresh_key().ok()?.into();
        Some(Beating { id, before: Some(self.id.clone()), begun: false, until_us: None })
    }
}

type Answered = Result<Vec<Result<Receipt, Refused>>, StoreError>;

impl Worker {
    /// Its id, once it has a lease.
    async fn id(&self) -> Result<Arc<str>, BatchError> {
        let mut standing = self.standing.subscribe();
        let known = standing.wait_for(|standing| !matches!(standing, Standing::Without)).await;
        match known.map(|known| known.clone()) {
            Ok(Standing::Lease(id)) => Ok(id),
            Ok(Standing::Failed(lost)) => Err(lost.into()),
            Ok(Standing::Without) | Err(_) => Err(StoreError::Closed.into()),
        }
    }

    /// Its id, if it has a lease.
    pub(crate) fn id_now(&self) -> Option<Arc<str>> {
        match &*self.standing.borrow() {
            Standing::Lease(id) => Some(id.clone()),
            Standing::Without | Standing::Failed(_) => None,
        }
    }

    /// Whether the worker of this id has been silent for a lease, if this is the generation of its record now.
    fn is_silent(&self, (id, generation): (&str, u64), now_us: u64, lease_ms: u64) -> bool {
        let mut state = self.lock();
        match state.seen.get(id) {
            Some((seen, since_us)) if *seen == generation => now_us >= due_us(*since_us, lease_ms),
            Some(_) | None => {
                state.seen.insert(id.to_string(), (generation, now_us));
                false
            }
        }
    }

    /// It stops in good order: whoever has its sessions next need not wait.
    pub(crate) fn leave(&self, store: &dyn Store) {
        if let Some(id) = self.id_now() {
            let rows = vec![Row::Remove { space: Space::Worker, key: id.to_string() }];
            // Sent is enough: if it is not taken, the others wait for a lease.
            drop(store.commit(vec![Change { session: STORE, hold: Hold::Store, guards: Vec::new(), rows }]));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn stands(&self, id: &Arc<str>) {
        let Some(worker) = &self.worker else { return };
        worker.standing.send_if_modified(|standing| {
            let is_new = !matches!(standing, Standing::Lease(known) if known == id);
            *standing = Standing::Lease(id.clone());
            is_new
        });
    }

    /// It cannot become a worker.
    fn worker_failed(&self, error: impl Into<BatchError>) {
        let Some(worker) = &self.worker else { return };
        let lost = match error.into() {
            BatchError::Lost(lost) => lost,
            // Nothing else is said where an id is made or a record put.
            BatchError::Shape { .. } | BatchError::Closed { .. } | BatchError::Overloaded { .. } => return,
            BatchError::Owned { .. } | BatchError::Unreadable { .. } | BatchError::SessionClosed { .. } => {
                return;
            }
        };
        worker.standing.send_replace(Standing::Failed(lost));
    }

    /// Its lease is over: it owns nothing any more, its tools are told to stop, and whoever waits here is told.
    fn lose_lease(self: &Arc<Inner>) {
        let Some(worker) = &self.worker else { return };
        // Nobody takes a session under this lease once the list is taken.
        let sessions = {
            let mut state = worker.lock();
            worker.standing.send_replace(Standing::Without);
            std::mem::take(&mut state.sessions)
        };
        tracing::error!(sessions = sessions.len(), "this worker lost its lease, and all it owned");
        for session in sessions.iter().filter_map(Weak::upgrade) {
            self.closed(session.lose(self, Lost::Lease));
        }
        // What was let go of with calls that wait was still its own.
        let away = self.away.take_all();
        self.closed(Session::forget_away(self, &away));
    }

    /// By what right this runtime takes a session, if it may. A session that is new is nobody's.
    pub(crate) async fn right_to(
        &self,
        name: &str,
        recorded: Option<SessionNo>,
    ) -> Result<Right, BatchError> {
        let Some(worker) = &self.worker else { return Ok(Right::default()) };
        let id = worker.id().await?;
        let row = Row::Put { space: Space::Owner, key: OWNER.to_string(), value: id.as_bytes().into() };
        let mine = Right { id: Some(id.clone()), rows: vec![row], ..Right::default() };
        let Some(no) = recorded else { return Ok(mine) };
        let owner = match owner(&*self.store, no).await? {
            Some(owner) if *owner != *id => owner,
            Some(_) | None => return Ok(mine),
        };
        let record = self.store.record(STORE, Space::Worker, &owner).await?;
        let is = record.as_ref().map_or(0, |record| record.generation);
        let (now_us, lease_ms) = (self.clock.elapsed_us(), self.limits.lease_ms);
        if record.is_some() && !worker.is_silent((&owner, is), now_us, lease_ms) {
            return Err(BatchError::Owned { session: name.to_string(), worker: owner });
        }
        // If it is heard of again before this is applied, it keeps what it has.
        let guards = vec![Guard::Generation { space: Space::Worker, key: owner, is }];
        Ok(Right { guards, at_once: true, died: record.is_some(), ..mine })
    }

    /// A session is owned under a lease from now on, unless that is over by now.
    pub(crate) fn owns(&self, session: &Arc<Session>, id: &Option<Arc<str>>) -> Result<(), Lost> {
        let Some((worker, id)) = self.worker.as_ref().zip(id.as_ref()) else { return Ok(()) };
        let mut state = worker.lock();
        if worker.id_now().as_ref() != Some(id) {
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

/// So many sessions are kept in mind before those that are gone are forgotten.
const SESSIONS_MIN: usize = 64;

impl Right {
    /// Under whose lease.
    pub(crate) fn id(&self) -> Option<Arc<str>> {
        self.id.clone()
    }
}

/// The row by which a session is nobody's.
pub(crate) fn release() -> Row {
    Row::Remove { space: Space::Owner, key: OWNER.to_string() }
}

/// The worker that owns a session, if one does.
async fn owner(store: &dyn Store, session: SessionNo) -> Result<Option<String>, BatchError> {
    let record = store.record(session, Space::Owner, OWNER).await?;
    Ok(record.map(|record| String::from_utf8_lossy(&record.value).into_owned()))
}
