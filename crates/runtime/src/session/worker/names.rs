//! `global:` names over all workers: each has a record that lists the calls which hold it and the workers that wait for it.
//!
//! The planner orders the calls of this process. One that has its turn then takes its names in the store, in their order, by
//! compare-and-swap on one record each, before it starts; so no two workers' calls hold a name at once, and no two can wait for each
//! other. A name is taken with all below it, and for writing: calls of one worker share it as the planner lets them. It is given back
//! once the end of its call is durable. What a worker that is gone has left belongs to the call, not to the worker: it is free once
//! the call's batch is over, and whoever owns the session has it meanwhile.

use super::{Worker, WorkerPlace, is_over};
use crate::api::error::{Lost, SessionError, chain};
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::held::{DriveContext, Held, due_us};
use crate::session::inner::Inner;
use crate::session::owner::Session;
use crate::session::patience;
use crate::session::swapped;
use crate::session::wheel::WakeTime;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use windlass_core::ids::CallId;
use windlass_store::StoreSpace;

/// The target of wakes for workers that wait for a name.
const NAMES: &str = "names";
/// The worker of a holder whose session is between two owners.
const NOBODY: &str = "";

/// The names that calls of this worker hold and wait for.
#[derive(Default)]
pub(crate) struct GlobalNames(OrderedMutex<NamesState, { LockRank::GlobalNames as u8 }>);

#[derive(Default)]
struct NamesState {
    held: BTreeMap<CallId, NameHold>,
    waiting: BTreeMap<CallId, NameWait>,
    /// The names at which this worker may be listed as waiting.
    listed: BTreeSet<String>,
    /// Names to be given back.
    leaving: Vec<(CallId, NameHold)>,
}

/// The names that a call holds, or may hold.
#[derive(Clone)]
struct NameHold {
    names: Vec<String>,
    session: Weak<Session>,
    /// The worker that took them.
    worker: Arc<str>,
}

struct NameWait {
    name: String,
    session: Weak<Session>,
}

/// The record of a name. Fields may be added; those that are here never change.
#[derive(Default, Deserialize, Serialize)]
struct NameRecord {
    name: String,
    holders: Vec<NameHolder>,
    /// The workers that wait, the first one first.
    waiting: Vec<String>,
}

#[derive(Deserialize, Serialize)]
struct NameHolder {
    /// The packed number of the call.
    call: u64,
    /// The worker that owned its session when it took the name.
    worker: String,
}

impl GlobalNames {
    /// The name of another worker that a call waits for.
    pub(crate) fn awaited_by(&self, call: CallId) -> Option<String> {
        self.0.lock().waiting.get(&call).map(|wait| wait.name.clone())
    }

    /// Calls have ended, and that is durable: their names are free.
    fn left(&self, calls: &[CallId]) -> bool {
        let mut state = self.0.lock();
        if state.held.is_empty() && state.waiting.is_empty() {
            return false;
        }
        for call in calls {
            state.waiting.remove(call);
            if let Some(hold) = state.held.remove(call) {
                state.leaving.push((*call, hold));
            }
        }
        !state.leaving.is_empty()
    }

    /// The calls of sessions that are lost hold nothing here any more.
    fn forget_lost(&self) {
        let known: Vec<(CallId, Weak<Session>)> = {
            let state = self.0.lock();
            let held = state.held.iter().map(|(call, hold)| (*call, hold.session.clone()));
            held.chain(state.waiting.iter().map(|(call, wait)| (*call, wait.session.clone()))).collect()
        };
        // A session is looked at, and perhaps dropped, under no lock of ours.
        let lost: Vec<(CallId, Weak<Session>)> =
            known.into_iter().filter(|(_, session)| is_lost(session)).collect();
        let mut state = self.0.lock();
        for (call, session) in lost {
            // It may have been taken again meanwhile.
            if state.waiting.get(&call).is_some_and(|wait| wait.session.ptr_eq(&session)) {
                state.waiting.remove(&call);
            }
            if state.held.get(&call).is_some_and(|hold| hold.session.ptr_eq(&session))
                && let Some(hold) = state.held.remove(&call)
            {
                state.leaving.push((call, hold));
            }
        }
    }
}

/// Whether nothing of a session goes on here.
fn is_lost(session: &Weak<Session>) -> bool {
    session.upgrade().is_none_or(|session| session.lane.lost().is_some())
}

/// The names that a call which has its turn must take; none, if nobody else uses the store, or if a call around it has them.
pub(crate) fn wanted(held: &Held) -> Vec<String> {
    let rt = &held.on.rt;
    if !rt.owners.has_others() || held.parent().is_some() {
        return Vec::new();
    }
    rt.turns.global_names(held.id)
}

/// Takes these names for a call that has its turn. `false`: another worker has one; the call keeps its turn, and is woken.
pub(crate) async fn take(held: &Held, names: Vec<String>) -> Result<bool, Lost> {
    let (rt, id) = (&held.on.rt, held.id);
    let Some(worker) = rt.owners.worker() else { return Ok(true) };
    let own = worker.id_now().ok_or(Lost::Lease)?;
    let session = Arc::downgrade(&held.on.session);
    let hold = NameHold { names: names.clone(), session: session.clone(), worker: own.clone() };
    // Before the first of them is taken: whatever becomes of the call, they are given back.
    worker.names.0.lock().held.insert(id, hold);
    for name in names {
        match take_one(rt, &worker, &own, &name, id).await {
            Ok(true) => {}
            Ok(false) => {
                let mut state = worker.names.0.lock();
                state.listed.insert(name.clone());
                state.waiting.insert(id, NameWait { name, session });
                return Ok(false);
            }
            Err(SessionError::Lost(lost)) if !matches!(lost, Lost::Refused(_)) => return Err(lost),
            Err(error) => {
                tracing::error!(%name, error = %chain(&error), "a global name cannot be taken; its call waits");
                worker.names.0.lock().waiting.insert(id, NameWait { name, session });
                return Ok(false);
            }
        }
    }
    worker.names.0.lock().waiting.remove(&id);
    Ok(true)
}

/// Parks a call that waits for a name; it keeps its turn.
pub(crate) fn park(held: Box<Held>) {
    let (on, id) = (held.on.clone(), held.id);
    let DriveContext { rt, session, batch } = &*on;
    let due_us = held.due_us().min(patience::due_us(&held));
    let time = WakeTime { due_us, wall: None };
    let alarm = || (due_us < u64::MAX).then(|| rt.wheel.alarm(time, session, id));
    let undisturbed = batch.park(*held, alarm);
    session.parked(rt, id, undisturbed);
}

/// Calls of this worker have ended, and that is durable.
pub(crate) fn left(rt: &Arc<Inner>, calls: impl Iterator<Item = CallId>) {
    let Some(worker) = rt.owners.worker() else { return };
    let calls: Vec<CallId> = calls.collect();
    if worker.names.left(&calls) {
        let rt = rt.clone();
        rt.tasks.clone().spawn(async move { give_back(&rt, &worker).await });
    }
}

/// Calls that an earlier owner left open: what they held is theirs.
pub(crate) fn inherit(rt: &Inner, left: &[Box<Held>]) {
    let Some(worker) = rt.owners.worker() else { return };
    let Some(own) = worker.id_now() else { return };
    for held in left.iter().filter(|held| held.parent().is_none()) {
        let names = rt.turns.global_names(held.id);
        if !names.is_empty() {
            let session = Arc::downgrade(&held.on.session);
            worker.names.0.lock().held.insert(held.id, NameHold { names, session, worker: own.clone() });
        }
    }
}

async fn take_one(
    rt: &Inner,
    worker: &Worker,
    own: &str,
    name: &str,
    call: CallId,
) -> Result<bool, SessionError> {
    loop {
        let (mut record, generation) = read(rt, name).await?;
        let packed = call.packed();
        if record.holders.iter().any(|holder| holder.call == packed && holder.worker == own) {
            return Ok(true);
        }
        clean(rt, worker, own, &mut record, call).await?;
        let is_ours = record.holders.iter().any(|holder| holder.call == packed);
        let is_others = record.holders.iter().any(|holder| holder.call != packed && holder.worker != own);
        let is_next = is_ours || record.waiting.first().is_none_or(|first| first == own);
        let may_take = !is_others && is_next;
        if may_take {
            record.holders.retain(|holder| holder.call != packed);
            record.holders.push(NameHolder { call: packed, worker: own.to_string() });
            record.waiting.retain(|waits| waits != own);
        } else if !record.waiting.iter().any(|waits| waits == own) {
            record.waiting.push(own.to_string());
        } else {
            return Ok(false);
        }
        if write(rt, record, generation).await? {
            return Ok(may_take);
        }
    }
}

/// Removes what is over from a record: calls of workers that are gone once their batches are, calls of this worker that it does not
/// know, and workers that wait no more.
async fn clean(
    rt: &Inner,
    worker: &Worker,
    own: &str,
    record: &mut NameRecord,
    taker: CallId,
) -> Result<(), SessionError> {
    let mut kept = Vec::new();
    for holder in std::mem::take(&mut record.holders) {
        let call = CallId::unpacked(holder.call);
        let stays = if call == taker {
            true
        } else if holder.worker == own {
            let state = worker.names.0.lock();
            state.held.contains_key(&call) || state.leaving.iter().any(|(leaves, _)| *leaves == call)
        } else {
            is_alive(rt, &holder.worker).await? || is_open(rt, call).await?
        };
        if stays {
            kept.push(holder);
        }
    }
    record.holders = kept;
    let mut waiting = Vec::new();
    for waits in std::mem::take(&mut record.waiting) {
        if waits == own || is_alive(rt, &waits).await? {
            waiting.push(waits);
        }
    }
    record.waiting = waiting;
    Ok(())
}

async fn is_alive(rt: &Inner, worker: &str) -> Result<bool, SessionError> {
    if worker == NOBODY {
        return Ok(false);
    }
    let record = rt.store.record(StoreSpace::Worker.shelf(), worker).await?;
    Ok(record.is_some_and(|record| !is_over(&record)))
}

/// Whether the batch of a call is open by the record. One that is not recorded has done nothing.
async fn is_open(rt: &Inner, call: CallId) -> Result<bool, SessionError> {
    Ok(rt.store.batch_by_no(call.batch).await?.is_some_and(|batch| batch.open))
}

/// Gives back what calls held, and does not wait any more where nobody here does.
async fn give_back(rt: &Arc<Inner>, worker: &Worker) {
    let (leaving, unlisted) = {
        let state = worker.names.0.lock();
        let wanted: BTreeSet<&String> = state.waiting.values().map(|wait| &wait.name).collect();
        let unlisted: Vec<String> =
            state.listed.iter().filter(|name| !wanted.contains(name)).cloned().collect();
        (state.leaving.clone(), unlisted)
    };
    let mut is_free = false;
    for (call, hold) in leaving {
        let is_lost = is_lost(&hold.session);
        let mut result = Ok(());
        for name in &hold.names {
            if result.is_ok() {
                result = give_one(rt, name, call, is_lost.then_some(&*hold.worker)).await;
            }
        }
        match result {
            Ok(()) => {
                worker.names.0.lock().leaving.retain(|(leaves, _)| *leaves != call);
                is_free = true;
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "a global name could not be given back; it is tried again");
            }
        }
    }
    for name in unlisted {
        if let Some(own) = worker.id_now()
            && unlist(rt, &name, &own).await.is_ok()
        {
            worker.names.0.lock().listed.remove(&name);
            is_free = true;
        }
    }
    if is_free {
        rt.store.wake(NAMES);
        wake_waiting(rt, worker);
    }
}

/// Gives one name back. `lost`: its session was lost under this worker, so whoever owns the session next has the name, if the call is
/// recorded.
async fn give_one(rt: &Inner, name: &str, call: CallId, lost: Option<&str>) -> Result<(), SessionError> {
    loop {
        let (mut record, generation) = read(rt, name).await?;
        let packed = call.packed();
        let Some(place) = record.holders.iter().position(|holder| holder.call == packed) else {
            return Ok(());
        };
        match lost {
            Some(worker) if record.holders[place].worker != worker => return Ok(()),
            Some(_) if is_open(rt, call).await? => record.holders[place].worker = NOBODY.to_string(),
            Some(_) | None => _ = record.holders.remove(place),
        }
        if write(rt, record, generation).await? {
            return Ok(());
        }
    }
}

async fn unlist(rt: &Inner, name: &str, own: &str) -> Result<(), SessionError> {
    loop {
        let (mut record, generation) = read(rt, name).await?;
        let before = record.waiting.len();
        record.waiting.retain(|waits| waits != own);
        if record.waiting.len() == before || write(rt, record, generation).await? {
            return Ok(());
        }
    }
}

/// Has calls that wait for a name look again.
fn wake_waiting(rt: &Arc<Inner>, worker: &Worker) {
    let waiting: Vec<(CallId, Weak<Session>)> = {
        let state = worker.names.0.lock();
        state.waiting.iter().map(|(call, wait)| (*call, wait.session.clone())).collect()
    };
    for (call, session) in waiting {
        if let Some(session) = session.upgrade() {
            session.wake(rt, call);
        }
    }
}

/// Looks after the names until the runtime is gone: gives back what could not be given back at once, and wakes those that wait.
pub(super) async fn keep(mut place: WorkerPlace) {
    let Some(mut wakes) = place.rt.upgrade().map(|rt| rt.store.wakes(NAMES)) else { return };
    loop {
        let next_us = {
            let Some((rt, worker)) = place.upgrade() else { return };
            worker.names.forget_lost();
            give_back(&rt, &worker).await;
            wake_waiting(&rt, &worker);
            due_us(rt.clock.elapsed_us(), rt.limits.knock_ms)
        };
        if !place.sleep_or_wake(next_us, &mut wakes).await {
            return;
        }
    }
}

/// The record of a name, and its generation; an empty one if there is none.
async fn read(rt: &Inner, name: &str) -> Result<(NameRecord, u64), SessionError> {
    let (key, of) = (swapped::fitting_key(name), format!("the name {name}"));
    let (record, generation) = swapped::find(rt, StoreSpace::GlobalName, &key, &of).await?;
    Ok((NameRecord { name: name.to_string(), ..record }, generation))
}

/// Replaces a record that is still as it was read; one without anybody is removed. `false`: somebody else was faster.
async fn write(rt: &Inner, record: NameRecord, generation: u64) -> Result<bool, SessionError> {
    let is_of_somebody = !record.holders.is_empty() || !record.waiting.is_empty();
    let (key, value) = (swapped::fitting_key(&record.name), is_of_somebody.then_some(&record));
    swapped::replace(rt, StoreSpace::GlobalName, key, value, generation).await
}
