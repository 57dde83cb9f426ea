//! The toolboxes in memory: their processes, the attempts that wait for one, and those that a process has.

use super::seat::Seat;
use super::talk::TakeRequest;
use super::{ToolboxError, ToolboxWorker};
use crate::api::locks::{LockRank, OrderedMutex};
use crate::tools::toolbox::ToolboxLink;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::Notify;
use windlass_core::time::Timestamp;

/// One desk for each runtime.
#[derive(Default)]
pub(super) struct Desk {
    state: OrderedMutex<DeskState, { LockRank::Toolboxes as u8 }>,
    /// Notified when a report may have news.
    pub(super) news: Arc<Notify>,
    /// Held while toolboxes are read, put or removed.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// Whether the stored toolboxes are registered.
    pub(super) is_loaded: AtomicBool,
}

#[derive(Default)]
struct DeskState {
    boxes: BTreeMap<String, OpenToolbox>,
    /// The attempts, by the hashes of their tokens.
    seats: HashMap<Arc<str>, Arc<Seat>>,
    /// The attempts whose ends were sent and are waited for.
    ending: HashMap<Arc<str>, AwaitedEnd>,
}

/// An end that reports wait for.
#[derive(Default)]
struct AwaitedEnd {
    /// How many do: a process may send an end again before it is answered.
    reports: u32,
    is_durable: bool,
}

/// A toolbox in memory.
pub(super) struct OpenToolbox {
    pub(super) link: Arc<ToolboxLink>,
    /// The names of its tools.
    pub(super) tools: Vec<String>,
    pub(super) created: Timestamp,
    pub(super) changed: Timestamp,
    queue: VecDeque<Arc<Seat>>,
    workers: BTreeMap<Arc<str>, WorkerPresence>,
    /// The sum of the slots of its processes, as the planner was last told.
    slots: u32,
    arrived: Arc<Notify>,
}

/// A process of a toolbox.
struct WorkerPresence {
    slots: u32,
    heard_us: u64,
    /// Whether it has said that it takes no more attempts.
    takes_none: bool,
}

/// The state of a toolbox that people are shown.
pub(super) struct ShownToolbox {
    pub(super) principal: Arc<str>,
    pub(super) manifest: String,
    pub(super) tools: Vec<String>,
    pub(super) created: Timestamp,
    pub(super) changed: Timestamp,
    pub(super) workers: Vec<ToolboxWorker>,
    pub(super) waiting: u64,
    pub(super) running: u64,
    pub(super) is_away: bool,
}

/// The times that decide about a look for work.
#[derive(Clone, Copy)]
pub(super) struct LookTimes {
    /// Now, by the clock that never jumps.
    pub(super) now_us: u64,
    /// How long a process may be silent.
    pub(super) silence_us: u64,
    /// How long others stand back for a suspect.
    pub(super) alone_us: u64,
    /// How many processes a toolbox may have.
    pub(super) workers_max: u64,
}

/// The result of a look for work.
pub(super) struct Look {
    pub(super) taken: Vec<Arc<Seat>>,
    /// The slots of the toolbox, if the planner must be told: `None` inside means no process, and so no limit.
    pub(super) slots: Option<Option<u32>>,
    /// Whether no process served the toolbox before.
    pub(super) is_back: bool,
}

impl OpenToolbox {
    pub(super) fn new(
        link: Arc<ToolboxLink>,
        tools: Vec<String>,
        created: Timestamp,
        changed: Timestamp,
    ) -> OpenToolbox {
        let (queue, workers) = (VecDeque::new(), BTreeMap::new());
        let arrived = Arc::new(Notify::new());
        OpenToolbox { link, tools, created, changed, queue, workers, slots: 0, arrived }
    }

    fn forget_silent(&mut self, now_us: u64, silence_us: u64) {
        self.workers.retain(|_, worker| now_us < worker.heard_us.saturating_add(silence_us));
    }
}

impl Desk {
    /// Puts a toolbox in place of the one of its name. Whatever waits for a process is given back to its call.
    pub(super) fn put(&self, name: &str, toolbox: OpenToolbox) {
        let old = self.state.lock().boxes.insert(name.to_string(), toolbox);
        withdraw_all(old);
    }

    pub(super) fn remove(&self, name: &str) {
        let old = self.state.lock().boxes.remove(name);
        withdraw_all(old);
    }

    /// The digest of the manifest in memory.
    pub(super) fn manifest(&self, name: &str) -> Option<String> {
        self.state.lock().boxes.get(name).map(|toolbox| toolbox.link.manifest.whole())
    }

    /// The principal that a toolbox belongs to.
    pub(super) fn owner(&self, name: &str) -> Option<Arc<str>> {
        self.state.lock().boxes.get(name).map(|toolbox| toolbox.link.principal.clone())
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.state.lock().boxes.keys().cloned().collect()
    }

    /// Whether there is a toolbox of this name that the principal may use.
    pub(super) fn admits(&self, name: &str, principal: &str) -> Result<(), ToolboxError> {
        let is_own = self.owner(name).is_some_and(|owner| &*owner == principal);
        if is_own { Ok(()) } else { Err(ToolboxError::NotFound { name: name.to_string() }) }
    }

    /// Whether the principal may report for a toolbox: attempts that its processes have go on when it is removed.
    pub(super) fn admits_reports(&self, name: &str, principal: &str) -> Result<(), ToolboxError> {
        let runs = |seat: &Arc<Seat>| &*seat.toolbox == name && &*seat.principal == principal;
        self.admits(name, principal).or_else(|refused| match self.state.lock().seats.values().any(runs) {
            true => Ok(()),
            false => Err(refused),
        })
    }

    pub(super) fn shown(&self, name: &str, now_us: u64, silence_us: u64) -> Option<ShownToolbox> {
        let mut state = self.state.lock();
        let DeskState { boxes, seats, .. } = &mut *state;
        let toolbox = boxes.get_mut(name)?;
        toolbox.forget_silent(now_us, silence_us);
        let of_box = || seats.values().filter(|seat| &*seat.toolbox == name);
        let running =
            |worker: &Arc<str>| of_box().filter(|seat| seat.worker().as_ref() == Some(worker)).count();
        let worker = |(id, presence): (&Arc<str>, &WorkerPresence)| ToolboxWorker {
            worker: id.to_string(),
            slots: presence.slots,
            running: running(id) as u64,
            heard_ms: now_us.saturating_sub(presence.heard_us) / 1_000,
        };
        Some(ShownToolbox {
            principal: toolbox.link.principal.clone(),
            manifest: toolbox.link.manifest.whole(),
            tools: toolbox.tools.clone(),
            created: toolbox.created,
            changed: toolbox.changed,
            workers: toolbox.workers.iter().map(worker).collect(),
            waiting: toolbox.queue.len() as u64,
            running: of_box().filter(|seat| seat.is_taken()).count() as u64,
            is_away: toolbox.link.is_away(now_us),
        })
    }

    /// Notified when there may be something to take: to be waited for from before the look on.
    pub(super) fn arrived(&self, name: &str) -> Result<Arc<Notify>, ToolboxError> {
        let state = self.state.lock();
        let arrived = state.boxes.get(name).map(|toolbox| toolbox.arrived.clone());
        arrived.ok_or_else(|| ToolboxError::NotFound { name: name.to_string() })
    }

    /// Gives attempts to a process, as many as it takes.
    pub(super) fn look(
        &self,
        name: &str,
        asks: &TakeRequest,
        worker: &Arc<str>,
        times: LookTimes,
    ) -> Result<Look, ToolboxError> {
        let LookTimes { now_us, silence_us, alone_us, workers_max } = times;
        let mut state = self.state.lock();
        let DeskState { boxes, seats, .. } = &mut *state;
        let toolbox = boxes.get_mut(name).ok_or_else(|| ToolboxError::NotFound { name: name.to_string() })?;
        let manifest = toolbox.link.manifest.whole();
        if manifest != asks.manifest {
            return Err(ToolboxError::Changed { name: name.to_string(), manifest });
        }
        toolbox.forget_silent(now_us, silence_us);
        if toolbox.workers.len() as u64 >= workers_max && !toolbox.workers.contains_key(worker) {
            let what = format!(
                "the toolbox {name:?} has {workers_max} processes already; each needs one name for as long as it lives"
            );
            return Err(ToolboxError::Invalid { what });
        }
        let of_worker = |seat: &&Arc<Seat>| seat.worker().as_ref() == Some(worker);
        let has = seats.values().filter(|seat| &*seat.toolbox == name).filter(of_worker);
        let mut has: Vec<Arc<Seat>> = has.cloned().collect();
        let held = has.len() as u32;
        // One that takes no more has what it has.
        let slots = match asks.slots.filter(|_| asks.max > 0) {
            Some(slots) => slots.max(held),
            None => asks.max.saturating_add(held),
        };
        match slots {
            0 => drop(toolbox.workers.remove(worker)),
            slots => {
                let presence = WorkerPresence { slots, heard_us: now_us, takes_none: asks.max == 0 };
                toolbox.workers.insert(worker.clone(), presence);
            }
        }
        if asks.max == 0 {
            // A request of it that waits for work returns.
            toolbox.arrived.notify_waiters();
        }
        let is_back = match toolbox.workers.is_empty() {
            true => {
                toolbox.link.left();
                false
            }
            false => toolbox.link.heard(now_us),
        };
        let mut taken = Vec::new();
        while taken.len() < asks.max as usize {
            let Some(place) = next_for(&toolbox.queue, &has, now_us, alone_us) else { break };
            let Some(seat) = toolbox.queue.remove(place) else { break };
            if seat.take(worker, now_us) {
                has.push(seat.clone());
                taken.push(seat);
            }
        }
        let total: u32 = toolbox.workers.values().map(|worker| worker.slots).fold(0, u32::saturating_add);
        let changed = std::mem::replace(&mut toolbox.slots, total) != total;
        let slots = changed.then_some((total > 0).then_some(total));
        Ok(Look { taken, slots, is_back })
    }

    /// A process of a toolbox was heard of. Returns whether none served the toolbox before.
    pub(super) fn heard(&self, name: &str, worker: &Arc<str>, now_us: u64) -> bool {
        let mut state = self.state.lock();
        let Some(toolbox) = state.boxes.get_mut(name) else { return false };
        match toolbox.workers.get_mut(worker) {
            Some(presence) => {
                presence.heard_us = now_us;
                toolbox.link.heard(now_us)
            }
            None => false,
        }
    }

    /// Seats an attempt, and queues it unless a process has it. If its toolbox has another manifest by now, nobody may take it.
    pub(super) fn seat(self: &Arc<Desk>, seat: &Arc<Seat>) -> SeatGuard {
        let mut state = self.state.lock();
        state.seats.insert(seat.hash.clone(), seat.clone());
        let arrived = match state.boxes.get_mut(&*seat.toolbox) {
            Some(toolbox) if seat.offer.is_some() && toolbox.link.manifest == seat.manifest => {
                toolbox.queue.push_back(seat.clone());
                Some(toolbox.arrived.clone())
            }
            Some(_) | None => None,
        };
        drop(state);
        match arrived {
            Some(arrived) => arrived.notify_waiters(),
            None if seat.offer.is_some() => _ = seat.withdraw(),
            None => {}
        }
        SeatGuard { desk: self.clone(), seat: seat.clone() }
    }

    /// The attempt of this hash, if its tool waits for it here, in the name of this principal.
    pub(super) fn find(&self, toolbox: &str, principal: &str, hash: &str) -> Option<Arc<Seat>> {
        let is_own = |seat: &&Arc<Seat>| &*seat.toolbox == toolbox && &*seat.principal == principal;
        self.state.lock().seats.get(hash).filter(is_own).cloned()
    }

    /// Whether a process has said that it takes no more attempts, or is gone.
    pub(super) fn has_left(&self, name: &str, worker: &str) -> bool {
        let state = self.state.lock();
        let presence = state.boxes.get(name).and_then(|toolbox| toolbox.workers.get(worker));
        presence.is_none_or(|presence| presence.takes_none)
    }

    /// How many attempts of a toolbox wait for a process, and how many will in a moment.
    pub(super) fn queued(&self, name: &str) -> (u64, u64) {
        let state = self.state.lock();
        let queued = |toolbox: &OpenToolbox| (toolbox.queue.len() as u64, toolbox.link.coming());
        state.boxes.get(name).map(queued).unwrap_or_default()
    }

    /// From now on it is noted when the end of this attempt is durable.
    pub(super) fn await_end(&self, hash: &Arc<str>) {
        self.state.lock().ending.entry(hash.clone()).or_default().reports += 1;
    }

    /// Whether the end of this attempt is durable, as far as that was noted.
    pub(super) fn has_ended(&self, hash: &str) -> bool {
        self.state.lock().ending.get(hash).is_some_and(|end| end.is_durable)
    }

    pub(super) fn forget_end(&self, hash: &str) {
        let mut state = self.state.lock();
        let Some(end) = state.ending.get_mut(hash) else { return };
        end.reports = end.reports.saturating_sub(1);
        if end.reports == 0 {
            state.ending.remove(hash);
        }
    }

    /// The ends of these attempts are durable.
    pub(super) fn ended(&self, hashes: &[Arc<str>]) {
        let mut state = self.state.lock();
        for hash in hashes {
            if let Some(end) = state.ending.get_mut(hash) {
                end.is_durable = true;
            }
        }
        drop(state);
        self.news.notify_waiters();
    }
}

/// The place in the queue of the next attempt for a process that has these. A suspect runs alone in a process: while one waits, a
/// process takes no other. The harm of a suspect is bounded: after `alone_us` it is an attempt like all others.
fn next_for(queue: &VecDeque<Arc<Seat>>, has: &[Arc<Seat>], now_us: u64, alone_us: u64) -> Option<usize> {
    let is_exclusive = |seat: &Arc<Seat>| seat.is_suspect && now_us < seat.since_us.saturating_add(alone_us);
    if has.iter().any(is_exclusive) {
        // The calls inside it are part of it.
        return queue.iter().position(|seat| seat.is_inside);
    }
    match queue.iter().position(is_exclusive) {
        Some(place) if has.is_empty() => Some(place),
        Some(_) => queue.iter().position(|seat| seat.is_inside),
        None => (!queue.is_empty()).then_some(0),
    }
}

fn withdraw_all(toolbox: Option<OpenToolbox>) {
    let queue = toolbox.into_iter().flat_map(|toolbox| toolbox.queue);
    queue.for_each(|seat| _ = seat.withdraw());
}

/// Keeps an attempt at the desk until its tool returns or is dropped.
pub(super) struct SeatGuard {
    desk: Arc<Desk>,
    seat: Arc<Seat>,
}

impl Drop for SeatGuard {
    fn drop(&mut self) {
        self.seat.close();
        let mut state = self.desk.state.lock();
        state.seats.remove(&self.seat.hash);
        if let Some(toolbox) = state.boxes.get_mut(&*self.seat.toolbox) {
            toolbox.queue.retain(|queued| !Arc::ptr_eq(queued, &self.seat));
            if toolbox.queue.iter().any(|queued| queued.is_suspect) {
                // Its process may be free for a suspect now.
                toolbox.arrived.notify_waiters();
            }
        }
        drop(state);
        self.desk.news.notify_waiters();
    }
}
