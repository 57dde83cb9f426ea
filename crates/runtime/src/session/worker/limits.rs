//! Limits and rates of tools and groups over all workers: each has a record that says who has how many of its permits and starts.
//!
//! The planner of a worker starts no more calls than its share allows, and asks nobody for that. Here shares are taken, in blocks, and
//! given back: by compare-and-swap on the record, when the planner lacks some, when another worker waits for some, and when they were
//! not used for a while. A share is the worker's while its lease lasts, and nothing starts under a lease that is over; so what a dead
//! worker had is free once it was declared dead. A share is lowered in the planner before the record says so, and raised after.
//!
//! Starts of a rate take what is left of them along, and gain nothing on their way: so all workers together start no more in any window
//! than one process would. What a dead worker had left of them is lost.

mod lot;

use super::{Worker, WorkerPlace, is_over};
use crate::api::error::{SessionError, chain};
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::held::due_us;
use crate::session::inner::Inner;
use crate::session::swapped;
use crate::session::turns::ShareRaise;
use lot::{Lot, LotNeed};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use windlass_core::plan::{LimitShare, ShareUse, SharedLimit};
use windlass_core::rate::MILLIONTHS;
use windlass_store::StoreSpace;

/// The target of wakes for workers that have or want shares.
const LIMITS: &str = "limits";
/// Permits that are not used for so long are given back.
const IDLE_US: u64 = 10_000_000;
/// Starts that calls wait for stay at least for so long: on their way nothing is added to what is left of them.
const HELD_US: u64 = 5_000_000;

/// The shares of this worker.
#[derive(Default)]
pub(super) struct SharedLimits {
    /// The limits whose records say something of this worker.
    known: OrderedMutex<BTreeMap<SharedLimit, ShareTimes>, { LockRank::SharedLimits as u8 }>,
    /// One settles at a time.
    settling: tokio::sync::Mutex<()>,
}

/// The times of a share, by the clock that never jumps.
#[derive(Clone, Copy, Debug, Default)]
struct ShareTimes {
    /// Since when it is not used.
    unused_us: Option<u64>,
    /// When starts were taken last.
    taken_us: u64,
}

impl SharedLimits {
    /// The lease is over, and with it every share.
    pub(super) fn forget(&self) {
        self.known.lock().clear();
    }
}

/// The record of a limit. Fields may be added; those that are here never change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
struct LimitRecord {
    permits: Lot,
    starts: Lot,
    /// The rest of the starts that nobody has, in millionths of a start; unknown before anybody had any.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
}

/// Looks after the shares of this worker until the runtime is gone.
pub(super) async fn keep(mut place: WorkerPlace) {
    let Some(rt) = place.rt.upgrade() else { return };
    let (mut wakes, wanted) = (rt.store.wakes(LIMITS), rt.turns.shares_wanted());
    drop(rt);
    loop {
        let next_us = {
            let Some((rt, worker)) = place.upgrade() else { return };
            if let Err(error) = look(&rt, &worker).await {
                tracing::warn!(error = %chain(&error), "shares of limits could not be taken or given back; it is tried again");
            }
            let has_none = worker.limits.known.lock().is_empty();
            let is_quiet = has_none && !rt.turns.shares(&rt).1.iter().any(is_wanted);
            if is_quiet { u64::MAX } else { due_us(rt.clock.elapsed_us(), rt.limits.knock_ms) }
        };
        tokio::select! {
            is_there = place.sleep_or_wake(next_us, &mut wakes) => if !is_there { return },
            () = wanted.notified() => {}
        }
    }
}

fn is_wanted(known: &ShareUse) -> bool {
    known.wants_permits() > 0 || known.wants_starts() > 0
}

/// Settles every limit of which this worker has or wants a share.
async fn look(rt: &Arc<Inner>, worker: &Worker) -> Result<(), SessionError> {
    let _alone = worker.limits.settling.lock().await;
    // Read before the id: what is taken under an id is void once its lease is over.
    let epoch = rt.turns.shares(rt).0;
    match worker.id_now().filter(|_| !worker.has_left.load(Ordering::SeqCst)) {
        Some(own) => settle_all(rt, worker, &Settling { own, epoch, leaves: false }).await,
        None => Ok(()),
    }
}

/// Gives everything back: the worker leaves, and takes nothing any more.
pub(super) async fn leave(rt: &Arc<Inner>, worker: &Worker, own: &Arc<str>) {
    let _alone = worker.limits.settling.lock().await;
    let settling = Settling { own: own.clone(), epoch: rt.turns.shares(rt).0, leaves: true };
    if let Err(error) = settle_all(rt, worker, &settling).await {
        tracing::warn!(error = %chain(&error), "shares of limits could not be given back; others have the permits once this worker has left");
    }
}

/// Settling the shares of a worker.
struct Settling {
    /// Its id.
    own: Arc<str>,
    /// The epoch of its shares.
    epoch: u64,
    /// Whether it gives back all it has.
    leaves: bool,
}

async fn settle_all(rt: &Arc<Inner>, worker: &Worker, settling: &Settling) -> Result<(), SessionError> {
    let wanted: Vec<SharedLimit> =
        rt.turns.shares(rt).1.into_iter().filter(is_wanted).map(|known| known.limit).collect();
    let concerned: BTreeSet<SharedLimit> = worker.limits.known.lock().keys().cloned().chain(wanted).collect();
    let mut has_changed = false;
    for limit in concerned {
        has_changed |= settle(rt, worker, settling, &limit).await?;
    }
    if has_changed {
        rt.store.wake(LIMITS);
    }
    Ok(())
}

/// Takes and gives back shares of one limit, as is needed here and elsewhere. Returns whether its record has changed.
async fn settle(
    rt: &Arc<Inner>,
    worker: &Worker,
    settling: &Settling,
    limit: &SharedLimit,
) -> Result<bool, SessionError> {
    // What was left of starts that this worker gave up, and that no record says yet.
    let (mut given_up, own) = (0, &*settling.own);
    loop {
        let (_, shares) = rt.turns.shares(rt);
        let (found, generation) = read(rt, limit).await?;
        let mut record = found.clone();
        let known = shares.into_iter().find(|known| known.limit == *limit);
        let mut raise = ShareRaise { epoch: settling.epoch, ..ShareRaise::default() };
        if let Some(known) = &known {
            if is_wanted(known) {
                clean(rt, own, &mut record).await?;
            }
            let now = match settling.leaves {
                true => record.leave(own),
                false => record.settle(own, known, holds_starts(rt, worker, known)),
            };
            let permits = if is_idle(rt, worker, known) { known.running } else { now.permits };
            // Lowered here before others may have it.
            let running = rt.turns.lower_permits(limit, permits);
            // Whoever took this worker for dead has given away what runs here, too.
            record.permits.set(own, permits.max(running.min(found.permits.own(own))));
            let given = rt.turns.give_starts(rt, limit, known.share.starts.saturating_sub(now.starts));
            given_up += if found.starts.own(own) < known.share.starts { 0 } else { given };
            record.starts.set(own, now.starts);
            raise.left = record.hand_over(known, found.starts.own(own), now.starts, given_up);
            (raise.permits, raise.starts) = (permits, now.starts);
        } else {
            // Its tool is gone.
            record.permits.forget(own);
            record.starts.forget(own);
        }
        // It may be written though nobody hears of that.
        worker.limits.known.lock().entry(limit.clone()).or_default();
        if record != found && !write(rt, limit, &record, generation).await? {
            continue;
        }
        if !record.permits.concerns(own) && !record.starts.concerns(own) {
            worker.limits.known.lock().remove(limit);
        }
        if known.is_some_and(|known| raise.starts > known.share.starts)
            && let Some(times) = worker.limits.known.lock().get_mut(limit)
        {
            times.taken_us = rt.clock.elapsed_us();
        }
        rt.turns.raise_share(rt, limit, raise);
        return Ok(record != found);
    }
}

/// Whether a worker has not used what it has for a while.
fn is_idle(rt: &Inner, worker: &Worker, known: &ShareUse) -> bool {
    let now_us = rt.clock.elapsed_us();
    let mut state = worker.limits.known.lock();
    let Some(times) = state.get_mut(&known.limit) else { return false };
    if known.running > 0 || known.reserved > 0 || known.waiting_permits > 0 {
        times.unused_us = None;
        return false;
    }
    now_us.saturating_sub(*times.unused_us.get_or_insert(now_us)) >= IDLE_US
}

/// Whether a worker keeps its starts for now, since calls of its wait for them.
fn holds_starts(rt: &Inner, worker: &Worker, known: &ShareUse) -> bool {
    let taken_us = worker.limits.known.lock().get(&known.limit).map(|times| times.taken_us);
    let is_new = |taken_us: u64| rt.clock.elapsed_us().saturating_sub(taken_us) < HELD_US;
    known.waiting_starts > 0 && known.share.starts > 0 && taken_us.is_some_and(is_new)
}

/// Removes what workers that are gone have left: before the lease of one is over it is not gone.
async fn clean(rt: &Inner, own: &str, record: &mut LimitRecord) -> Result<(), SessionError> {
    let others: BTreeSet<String> =
        record.permits.workers().chain(record.starts.workers()).filter(|id| *id != own).cloned().collect();
    for worker in others {
        let found = rt.store.record(StoreSpace::Worker.shelf(), &worker).await?;
        if found.is_none_or(|found| is_over(&found)) {
            record.permits.forget(&worker);
            record.starts.forget(&worker);
        }
    }
    Ok(())
}

impl LimitRecord {
    /// Takes what a worker may have, and returns what it may use.
    fn settle(&mut self, own: &str, known: &ShareUse, holds_starts: bool) -> LimitShare {
        let permits = known.cap.running_max.unwrap_or(0);
        let starts = known.cap.rate.map_or(0, |rate| rate.count);
        let need = LotNeed {
            total: permits,
            used: known.running + known.reserved,
            wants: known.wants_permits(),
            is_waited_for: known.waiting_permits > 0,
            block: permits.div_ceil(2),
        };
        let permits = self.permits.settle(own, need);
        let need = LotNeed {
            total: starts,
            used: 0,
            wants: known.wants_starts(),
            is_waited_for: known.waiting_starts > 0,
            // All of them: nothing is added to what is left of those that nobody has.
            block: starts,
        };
        let may_use = self.starts.settle(own, need);
        let starts = if holds_starts { self.starts.own(own) } else { may_use };
        LimitShare { permits, starts }
    }

    /// A worker uses nothing any more, and waits for nothing.
    fn leave(&mut self, own: &str) -> LimitShare {
        self.permits.wait_no_more(own);
        self.starts.wait_no_more(own);
        LimitShare::default()
    }

    /// Moves what is left of starts along with them, and returns how much of it comes to this worker, which had `before` of them.
    fn hand_over(&mut self, known: &ShareUse, before: u32, now: u32, given_up: u64) -> u64 {
        let Some(rate) = known.cap.rate else { return 0 };
        let most = u64::from(rate.count).saturating_mul(MILLIONTHS);
        let left = self.left.unwrap_or(most).saturating_add(given_up).min(most);
        let taken = now.saturating_sub(before);
        // Its own share in the record is as it will be.
        let comes = match u64::from(taken) {
            0 => 0,
            taken => {
                let had_before = u64::from(self.starts.free(rate.count)) + taken;
                u64::try_from(u128::from(left) * u128::from(taken) / u128::from(had_before)).unwrap_or(0)
            }
        };
        self.left = Some(left - comes);
        comes
    }

    fn is_empty(&self) -> bool {
        self.permits.is_empty() && self.starts.is_empty() && self.left.is_none()
    }
}

fn key(limit: &SharedLimit) -> String {
    swapped::fitting_key(&shown(limit))
}

fn shown(limit: &SharedLimit) -> String {
    match limit {
        SharedLimit::Tool(id) => format!("tool/{id}"),
        SharedLimit::Group(name) => format!("group/{name}"),
    }
}

/// The record of a limit, and its generation; an empty one if there is none.
async fn read(rt: &Inner, limit: &SharedLimit) -> Result<(LimitRecord, u64), SessionError> {
    let of = format!("the limit {}", shown(limit));
    swapped::find(rt, StoreSpace::Limit, &key(limit), &of).await
}

/// Replaces a record that is still as it was read; one that says nothing is removed. `false`: somebody else was faster.
async fn write(
    rt: &Inner,
    limit: &SharedLimit,
    record: &LimitRecord,
    generation: u64,
) -> Result<bool, SessionError> {
    let value = (!record.is_empty()).then_some(record);
    swapped::replace(rt, StoreSpace::Limit, key(limit), value, generation).await
}
