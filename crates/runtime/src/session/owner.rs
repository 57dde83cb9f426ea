//! A session that this runtime owns: its lane, the order of its calls, its open batches.

mod takeover;

use crate::api::error::{Lost, SessionError, chain, no_randomness};
use crate::api::journal::{fold, rows_of};
use crate::api::locks::{LockRank, OrderedMutex};
use crate::api::traced::BatchTrace;
use crate::session::admission::Admission;
use crate::session::away::{Away, AwayPlan, Stub};
use crate::session::batch::{BatchHead, DepartingBatch, OpenBatch, Used};
use crate::session::bounds::Bounds;
use crate::session::budget::SessionBudget;
use crate::session::held::{DriveContext, Held};
use crate::session::inner::Inner;
use crate::session::kin::ChildOf;
use crate::session::lane::{Lane, LaneShared};
use crate::session::loops::Loops;
use crate::session::outgoing::Outbox;
use crate::session::patience;
use crate::session::permission::ExposureRecord;
use crate::session::principal::{self, SessionRecords};
use crate::session::same::Firsts;
use crate::session::slots::Slots;
use crate::session::still;
use crate::session::turns::{DrivenCall, Turns};
use crate::session::wheel::WakeTime;
use crate::tools::place::BatchPlace;
use crate::tools::request::recorded_inputs;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use windlass_core::batch::Batch;
use windlass_core::few::Few;
use windlass_core::ids::{BatchNo, CallId, Lookup, Ordinal};
use windlass_store::{BatchRow, Refused};

/// A session that this runtime owns.
pub(crate) struct Session {
    pub(crate) name: Arc<str>,
    pub(crate) lane: Arc<Lane>,
    /// The principal it belongs to, if any.
    pub(crate) principal: Option<Arc<str>>,
    /// Whether nothing of it was recorded when it was acquired.
    pub(crate) is_new: bool,
    /// Behind the [`Admission`].
    pub(super) admission: tokio::sync::Mutex<()>,
    /// Serialises the adoption of messages.
    pub(crate) asking: tokio::sync::Mutex<PendingMessages>,
    /// The kinds of content that its calls have read, as far as this owner has recorded it.
    pub(crate) exposure: ExposureRecord,
    /// Its open calls that others may duplicate.
    pub(crate) firsts: Firsts,
    /// Detects loops of its calls.
    pub(crate) loops: Loops,
    /// The place of its batches that leave memory.
    pub(crate) away: Arc<Away>,
    /// Its relation to its parent, if it is a child.
    pub(crate) kin: Option<Box<ChildOf>>,
    /// State of features.
    pub(crate) slots: Slots,
    /// How long callers wait for its calls that may go on alone, in milliseconds; `u64::MAX`: as for any session.
    inline_ms: AtomicU64,
    /// The budget of the answers of its calls.
    pub(crate) answer: SessionBudget,
    /// Whether it is being removed.
    is_being_removed: AtomicBool,
    /// Whether its last owner was silent for a whole lease: then one of its calls may have killed that worker.
    pub(crate) owner_died: bool,
    open: OrderedMutex<Open, { LockRank::OpenBatches as u8 }>,
}

/// The messages being adopted, by key.
pub(crate) type PendingMessages = HashSet<String>;

/// The batches that are not over.
#[derive(Default)]
struct Open {
    by_lookup: Few<Lookup, Arc<OpenBatch>>,
    by_no: Few<BatchNo, Arc<OpenBatch>>,
    /// The calls that are not in memory and that the planner remembers, because of their claims.
    remembered: BTreeSet<CallId>,
}

/// A session that was opened or taken, the calls to drive, and its limits and tools.
pub(crate) type Acquired = (Arc<Session>, Vec<Box<Held>>, Bounds);

/// How often a contended session is tried: each time one contender gets it.
const ACQUIRE_TRIES: u32 = 3;

/// The place of a batch that may not be over.
pub(crate) enum Whereabouts {
    /// In memory.
    Here(Used),
    /// In the store; the alarms of its calls are in memory.
    Away,
    /// It is over, or no call of it matches the request.
    Over,
}

/// The maximum number of waiting calls with claims in a session that is released: they are read back when it is taken again.
const REMEMBERED_MAX: usize = 16;

/// The references to a batch that nobody uses: the two tables of its session.
const TABLES: usize = 2;

impl Session {
    /// Opens or takes the session; calls that were left open are returned in their order, to be driven.
    pub(crate) async fn acquire(
        rt: &Arc<Inner>,
        name: &str,
        opening: &SessionRecords,
    ) -> Result<Acquired, SessionError> {
        let mut tries = 1;
        loop {
            match Session::try_acquire(rt, name, opening.clone()).await {
                // Another owner was faster, or was heard of again: the current state is read.
                Err(SessionError::Lost(Lost::Refused(Refused::Fenced { .. } | Refused::Changed { .. })))
                    if tries < ACQUIRE_TRIES && rt.may_meet_others() =>
                {
                    tries += 1;
                }
                acquired => return acquired,
            }
        }
    }

    async fn try_acquire(
        rt: &Arc<Inner>,
        name: &str,
        opening: SessionRecords,
    ) -> Result<Acquired, SessionError> {
        let row = rt.store.session(name).await?;
        let bounds = match &row {
            Some(row) => Bounds::kept(&*rt.store, row.no, name).await?,
            None => opening.bounds.clone(),
        };
        let kin = match bounds.child.clone() {
            Some(child) => Some(Box::new(ChildOf::take(rt, name, child).await?)),
            None => None,
        };
        let (loops, is_new) = (Loops::new(row.is_some()), row.is_none());
        let right = rt.owners.acquire(rt, name, row.as_ref().map(|row| row.no)).await?;
        let (id, owner_died) = (right.id.clone(), right.died);
        let at_once = right.at_once || rt.has_forgotten_lost.load(Ordering::SeqCst);
        let principal = match &row {
            Some(row) => row.principal.as_deref().map(Arc::from),
            None => opening.principal.clone(),
        };
        let outbox = Outbox::new(&rt.outgoing, name, principal, rt.limits.webhook_queued_max);
        let (store, limits) = (rt.store.clone(), rt.limits.clone());
        let (feed, secrets) = (rt.feeds.feed(name), rt.secrets.clone());
        let ends = LaneShared { store, limits, feed, secrets, outbox };
        let (lane, principal) = match row {
            Some(row) => {
                let principal = row.principal.as_deref().map(Arc::from);
                (Lane::take(ends, &row, chance()?, right), principal)
            }
            None => principal::open_lane(rt, name, opening, ends, right).await?,
        };
        let session = Arc::new(Session {
            name: name.into(),
            lane: Arc::new(lane),
            principal,
            is_new,
            admission: tokio::sync::Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            exposure: ExposureRecord::default(),
            firsts: Firsts::default(),
            loops,
            away: rt.away.clone(),
            kin,
            slots: Slots::default(),
            inline_ms: AtomicU64::new(u64::MAX),
            answer: SessionBudget::default(),
            is_being_removed: AtomicBool::new(false),
            owner_died,
            open: OrderedMutex::default(),
        });
        rt.owners.acquired(&session, id.as_ref())?;
        if at_once {
            // Writes of the last owner, or of this one before the session was lost, may still be on their way:
            // only now is what is read all that there is. What this process remembers of it is older.
            rt.closed(session.abandon(rt));
            session.lane.commit_rows(Vec::new()).await?;
        }
        if owner_died {
            rt.be_careful();
        }
        match session.adopt_all(rt).await {
            Ok(left) => Ok((session, left, bounds)),
            Err(error) => {
                rt.closed(session.abandon(rt));
                Err(error)
            }
        }
    }

    async fn adopt_all(self: &Arc<Session>, rt: &Arc<Inner>) -> Result<Vec<Box<Held>>, SessionError> {
        // Nobody else has the session yet.
        let (admission, mut left) = (self.admit().await, Vec::new());
        for row in rt.store.open_batches(Some(self.lane.session())).await? {
            // A batch that left memory in this process is open here already; the planner may have forgotten its claims.
            if rt.away.is_untold(row.no) {
                Session::fetch(&admission, rt, row.no).await?;
            } else if !rt.away.has(row.no) {
                left.extend(self.adopt(rt, row).await?);
            }
        }
        Ok(left)
    }

    /// Starts its removal: it takes nothing new.
    pub(crate) fn begin_removal(&self) {
        self.is_being_removed.store(true, Ordering::SeqCst);
    }

    /// Refuses new calls in a session that is being removed. The caller must hold `Session::admission`.
    pub(crate) fn check_stays(&self) -> Result<(), Lost> {
        if self.is_being_removed.load(Ordering::SeqCst) { Err(Lost::Removed) } else { Ok(()) }
    }

    /// Finds a batch that is not over and may not be in memory.
    pub(crate) async fn find_away(
        self: &Arc<Session>,
        rt: &Arc<Inner>,
        no: BatchNo,
    ) -> Result<Option<Used>, SessionError> {
        let admission = self.admit().await;
        Session::fetch(&admission, rt, no).await
    }

    /// Finds the place of a batch. If it is not in memory and `provider` is given, only if one of its calls waits to be connected to it.
    pub(crate) fn whereabouts(&self, rt: &Inner, no: BatchNo, provider: Option<&str>) -> Whereabouts {
        // Both are read under the lock under which it moves from one to the other.
        let open = self.open.lock();
        match open.by_no.get(&no).cloned() {
            Some(batch) => Whereabouts::Here(Used::new(batch)),
            None if provider.map_or_else(|| rt.away.has(no), |provider| rt.away.awaits(no, provider)) => {
                Whereabouts::Away
            }
            None => Whereabouts::Over,
        }
    }

    /// Moves a batch out of memory, if nobody uses it and all its open calls wait for something recorded.
    pub(crate) fn evict(&self, rt: &Arc<Inner>, batch: Arc<OpenBatch>) {
        let no = batch.head.no;
        let mut open = self.open.lock();
        // Dropped under the lock: of several users, the last finds that nobody else uses it.
        drop(batch);
        let Some(batch) = open.by_no.get(&no).filter(|batch| Arc::strong_count(batch) == TABLES) else {
            return;
        };
        // The dropping of waiting calls has looked, or will.
        if self.lane.lost().is_some() {
            return;
        }
        let is_inside =
            |batch: &Arc<OpenBatch>, call| batch.head.parent.is_some_and(|parent| parent.call == call);
        let has_open_inside = |call| open.by_no.values().any(|batch| is_inside(batch, call));
        let (session, lookup) = (self.lane.session(), batch.head.lookup);
        let Some(DepartingBatch { mut stubs, alarms }) = batch.departing(rt, session, has_open_inside) else {
            return;
        };
        moment!("at.leave");
        rt.turns.evict(&mut stubs);
        let remembered = stubs.iter().filter(|(_, stub)| stub.plan == AwayPlan::Remembered);
        open.remembered.extend(remembered.map(|(call, _)| *call));
        rt.away.insert(stubs);
        // Only now: calls that become due from here on must be found there.
        rt.wheel.evict(&alarms);
        let gone = (open.by_lookup.remove(&lookup), open.by_no.remove(&no));
        drop(open);
        drop(gone);
    }

    /// Returns a batch that is not over, from memory or from its journal. `None`: there is none. The caller
    /// must hold `Session::admission`.
    pub(crate) async fn fetch(
        admission: &Admission<'_>,
        rt: &Arc<Inner>,
        no: BatchNo,
    ) -> Result<Option<Used>, SessionError> {
        let session = admission.session();
        if let Some(open) = session.find_no(no) {
            return Ok(Some(open));
        }
        if let Some(lost) = session.lane.lost() {
            return Err(lost.into());
        }
        if !rt.away.has(no) {
            return Ok(None);
        }
        moment!("at.fetch");
        let (row, folded, rows) = session.read_no(no).await?;
        let batch = OpenBatch::recorded(session.head(&row, &folded)?, &folded, rows, &rt.wheel);
        // All stubs were written with their batch.
        let moved_us = rt.away.moved_us(no).unwrap_or_else(|| rt.wheel.moved_us());
        let used = session.insert(batch.told_of_moves(moved_us));
        // A call that is here now is no longer there: a reader that finds neither looks here again.
        let mut stubs = rt.away.take(no);
        {
            let mut open = session.open.lock();
            stubs.keys().for_each(|&ordinal| _ = open.remembered.remove(&CallId { batch: no, ordinal }));
        }
        let hold = Arc::new(DriveContext { rt: rt.clone(), session: session.clone(), batch: used.clone() });
        used.mark_evictable();
        for (call, place) in folded.calls.into_iter().zip(0..).filter(|(call, _)| call.end().is_none()) {
            let id = CallId { batch: no, ordinal: Ordinal(place) };
            let Some(stub) = stubs.remove(&id.ordinal) else { continue };
            rt.wheel.clear_away(id, stub.due);
            let mut held = hold.call(id, Arc::new(call), stub.past());
            Turns::come_back(&mut held, stub.plan);
            let undisturbed = used.lay(id.ordinal, held.asleep(&stub));
            session.parked(rt, id, undisturbed);
        }
        Ok(Some(used))
    }

    /// Reads a batch back: its folded state, and its number of rows. The journal verifies itself; that it is
    /// the right one, and complete, is checked here.
    pub(crate) async fn read(&self, found: &BatchRow) -> Result<(Batch, u32), SessionError> {
        let (row, batch, rows) = self.read_no(found.no).await?;
        if row.lookup == found.lookup { Ok((batch, rows)) } else { Err(self.not_its_own()) }
    }

    /// Reads a batch back by its number alone, with its row.
    pub(crate) async fn read_no(&self, no: BatchNo) -> Result<(BatchRow, Batch, u32), SessionError> {
        let rows = rows_of(self.lane.store(), no).await?.ok_or(Lost::Removed)?;
        let batch = fold(&rows)?;
        let session = self.lane.session();
        let own = rows.iter().zip(0..).all(|(row, place)| row.session == session && row.row == place);
        if !own {
            return Err(self.not_its_own());
        }
        let lookup = Lookup::of(session, &batch.opening.key);
        let row = BatchRow { no, session, lookup, open: batch.is_open(), expired: false };
        Ok((row, batch, rows.len() as u32))
    }

    fn not_its_own(&self) -> SessionError {
        let session = self.lane.session();
        let what = format!("session {session}: the journal found for a batch is not its own, or not whole");
        SessionError::unreadable(what)
    }

    pub(crate) fn head(&self, row: &BatchRow, batch: &Batch) -> Result<BatchHead, SessionError> {
        let inputs = recorded_inputs(&batch.opening)?;
        Ok(BatchHead {
            no: row.no,
            lookup: row.lookup,
            place: Arc::new(BatchPlace::new(self.name.clone(), batch.opening.key.clone(), inputs)),
            turn: batch.opening.turn.clone(),
            siblings: batch.opening.siblings,
            streamed: batch.opening.streamed,
            parent: batch.opening.parent,
            wake: batch.opening.wake,
            trace: BatchTrace::recorded(&batch.opening),
            task_deadlines: batch.opening.task_deadlines,
            opened_at: batch.opened_at,
        })
    }

    /// How long callers wait for calls of this session that may go on alone, where it has a time of its own.
    pub(crate) fn inline_ms(&self) -> Option<u64> {
        Some(self.inline_ms.load(Ordering::Relaxed)).filter(|ms| *ms != u64::MAX)
    }

    pub(crate) fn set_inline_ms(&self, inline_ms: Option<u64>) {
        self.inline_ms.store(inline_ms.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn find(&self, lookup: Lookup) -> Option<Used> {
        self.open.lock().by_lookup.get(&lookup).cloned().map(Used::new)
    }

    pub(crate) fn find_no(&self, no: BatchNo) -> Option<Used> {
        self.open.lock().by_no.get(&no).cloned().map(Used::new)
    }

    /// The batches in memory that are not over, oldest first.
    pub(crate) fn open_batches(&self) -> Vec<Used> {
        let mut batches: Vec<_> = self.open.lock().by_no.values().cloned().map(Used::new).collect();
        batches.sort_unstable_by_key(|batch| batch.head.no);
        batches
    }

    /// The batches inside a call that are not over, oldest first. They do not leave memory.
    pub(crate) fn inside(&self, call: CallId) -> Vec<Used> {
        let is_inside = |batch: &Arc<OpenBatch>| {
            batch.head.parent.is_some_and(|parent| parent.call == call) && !batch.is_over()
        };
        let mut batches: Vec<_> = self
            .open
            .lock()
            .by_no
            .values()
            .filter(|batch| is_inside(batch))
            .cloned()
            .map(Used::new)
            .collect();
        batches.sort_unstable_by_key(|batch| batch.head.no);
        batches
    }

    pub(crate) fn insert(self: &Arc<Session>, mut batch: OpenBatch) -> Used {
        batch.join(self);
        let batch = Arc::new(batch);
        let mut open = self.open.lock();
        open.by_lookup.insert(batch.head.lookup, batch.clone());
        open.by_no.insert(batch.head.no, batch.clone());
        drop(open);
        self.lane.feed().changed();
        Used::new(batch)
    }

    /// Forgets a batch if it is over.
    pub(crate) fn forget(&self, batch: &OpenBatch) {
        let mut open = self.open.lock();
        // A call may have been added while the last one ended.
        if batch.is_over() {
            open.by_lookup.remove(&batch.head.lookup);
            open.by_no.remove(&batch.head.no);
            drop(open);
            self.lane.feed().changed();
        }
    }

    /// Nothing more can be recorded in this session: notifies all waiters. Returns how many calls waited for
    /// their turn and will not get it here.
    pub(crate) fn lose(&self, rt: &Arc<Inner>, lost: Lost) -> u64 {
        let (session, error) = (&self.name, chain(&lost));
        match lost {
            // Where there are several workers, sessions move.
            Lost::Refused(Refused::Fenced { .. } | Refused::Exists) | Lost::Lease
                if rt.owners.has_others() =>
            {
                tracing::warn!(%session, %error, "another worker has a session of this one");
            }
            Lost::Store(_) | Lost::Refused(_) | Lost::Lease | Lost::Removed | Lost::Broken(_) => {
                tracing::error!(%session, %error, "a session is lost to this runtime");
            }
        }
        self.lane.lose(lost);
        self.open.lock().by_no.values().for_each(|batch| batch.stop_running());
        self.abandon(rt)
    }

    /// Drops the waiting calls, which will not continue here, and returns their number.
    pub(crate) fn abandon(&self, rt: &Arc<Inner>) -> u64 {
        let abandoned: Vec<CallId> =
            self.open.lock().by_no.values().flat_map(|batch| batch.abandon()).collect();
        let away = rt.away.take_session(self.lane.session());
        let count = abandoned.len() as u64;
        rt.turns.leave(rt, abandoned.into_iter().map(|id| DrivenCall { id, fresh: false }));
        count + Session::forget_away(rt, &away)
    }

    /// Drops calls that are not in memory and were already removed from the index.
    pub(crate) fn forget_away(rt: &Arc<Inner>, away: &[(CallId, Stub)]) -> u64 {
        away.iter().for_each(|(call, stub)| rt.wheel.clear_away(*call, stub.due));
        rt.turns.drop_evicted(rt, away);
        away.len() as u64
    }

    /// Whether it can be released: all its state in memory can be found in the store when it is taken again.
    pub(crate) fn can_go(&self, rt: &Inner) -> bool {
        let nothing_asked = self.asking.try_lock().is_ok_and(|asking| asking.is_empty());
        if !nothing_asked || !self.firsts.is_empty() {
            return false;
        }
        let mut open = self.open.lock();
        if !open.by_no.is_empty() {
            return false;
        }
        // Their claims are determined again then.
        let remembered: Vec<CallId> = open.remembered.iter().copied().collect();
        let goes = remembered.len() <= REMEMBERED_MAX && rt.turns.evict_session(&remembered);
        if goes {
            rt.away.untold(&remembered);
            rt.turns.forget_session(self.lane.session());
            open.remembered.clear();
        }
        goes
    }

    /// Parks a call until it is woken, at the latest at `when`. It keeps its place and its claims.
    pub(crate) fn park(held: Box<Held>, mut when: WakeTime) {
        let (on, id) = (held.on.clone(), held.id);
        when.due_us = when.due_us.min(patience::due_us(&held));
        let undisturbed = on.batch.park(*held, || Some(on.rt.wheel.alarm(when, &on.session, id)));
        if let Some(parent) = on.batch.head.parent {
            still::look(&on.rt, &on.session, parent.call);
        }
        on.session.parked(&on.rt, id, undisturbed);
    }

    /// A call was parked: messages in between did not find it.
    pub(crate) fn parked(self: &Arc<Session>, rt: &Arc<Inner>, id: CallId, undisturbed: bool) {
        if !undisturbed {
            self.wake(rt, id);
        }
        if self.lane.lost().is_some() {
            rt.closed(self.abandon(rt));
        }
    }

    /// Continues a parked call: a message came, it is due, its turn has come, or its wait may be over. The
    /// call itself decides what to do.
    pub(crate) fn wake(self: &Arc<Session>, rt: &Arc<Inner>, id: CallId) {
        match self.unpark(rt, id) {
            Some(held) => (rt.plugs.drive)(held),
            None => rt.away.wake(id),
        }
    }

    /// Continues a parked call in the caller's own task, as far as it gets at once.
    pub(crate) async fn wake_here(self: &Arc<Session>, rt: &Arc<Inner>, id: CallId) {
        match self.unpark(rt, id) {
            Some(held) => (rt.plugs.drive_here)(held).await,
            None => rt.away.wake(id),
        }
    }

    /// Continues the parked calls of a batch.
    pub(crate) fn wake_all(self: &Arc<Session>, rt: &Arc<Inner>, batch: &OpenBatch, calls: Vec<Ordinal>) {
        for ordinal in calls {
            self.wake(rt, CallId { batch: batch.head.no, ordinal });
        }
    }

    fn unpark(self: &Arc<Session>, rt: &Arc<Inner>, id: CallId) -> Option<Box<Held>> {
        let batch = self.find_no(id.batch)?;
        let parked = batch.unpark(id.ordinal)?;
        if let Some(parent) = batch.head.parent {
            still::look(rt, self, parent.call);
        }
        Some(Arc::new(DriveContext { rt: rt.clone(), session: self.clone(), batch }).unpark(parked))
    }
}

/// A random number that makes this taking unique.
fn chance() -> Result<u32, SessionError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(no_randomness)?;
    Ok(u32::from_le_bytes(bytes))
}
