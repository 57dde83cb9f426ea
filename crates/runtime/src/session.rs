//! A session that this runtime owns: its lane, the order of its calls, its open batches.

use crate::away::{self, Away, Plan, Stub};
use crate::background;
use crate::batch::{Head, Leaving, OpenBatch, Used};
use crate::children::{Child, ChildOf};
use crate::drive;
use crate::error::{BatchError, Lost, chain, no_randomness};
use crate::held::{Held, Hold, Past};
use crate::inside::{nested, still};
use crate::lane::{Ends, Lane};
use crate::loops::Loops;
use crate::pairs::Pairs;
use crate::request::recorded_inputs;
use crate::runtime::Inner;
use crate::same::Firsts;
use crate::stage::park;
use crate::tool::Place;
use crate::triggers::Armed;
use crate::turns::Turns;
use crate::wheel::When;
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_core::batch::Batch;
use windlass_core::call::{Call, Parked};
use windlass_core::entry::{self, Entry};
use windlass_core::few::Few;
use windlass_core::ids::{BatchNo, CallId, Lookup, Ordinal, SessionNo};
use windlass_core::operation::Operations;
use windlass_core::time::Timestamp;
use windlass_store::{BatchRow, JournalRow, Refused, Sequence};

/// A session that this runtime owns.
pub(crate) struct Session {
    pub(crate) name: Arc<str>,
    pub(crate) lane: Arc<Lane>,
    /// Held while a batch is looked up and its calls are queued, so that batches queue in the order they came.
    pub(crate) admission: tokio::sync::Mutex<()>,
    /// What is asked of its calls is taken one after the other.
    pub(crate) asking: tokio::sync::Mutex<Asking>,
    /// Its key-value pairs are written one after the other.
    pub(crate) pairs: tokio::sync::Mutex<Pairs>,
    /// Notices are taken and put back one after the other.
    pub(crate) inbox: tokio::sync::Mutex<()>,
    /// Its schedules are written, and looked at, one after the other.
    pub(crate) schedules: tokio::sync::Mutex<()>,
    /// Its triggers are written, and compared with events, one after the other.
    pub(crate) triggers: tokio::sync::Mutex<Armed>,
    /// Its open calls that others may be the same as.
    pub(crate) firsts: Firsts,
    /// Notices that its calls get nowhere.
    pub(crate) loops: Loops,
    /// Where its batches go that leave memory.
    pub(crate) away: Arc<Away>,
    /// What it is as a child of another session, if it is one.
    pub(crate) kin: Option<Box<ChildOf>>,
    /// How many children it has, once they were counted. Held by whoever opens one.
    pub(crate) children: tokio::sync::Mutex<Option<u64>>,
    /// Held by whoever removes it.
    pub(crate) removal: tokio::sync::Mutex<()>,
    /// Whether it is to be removed.
    leaving: AtomicBool,
    /// Whether the worker that owned it before was not heard of any more: then what it ran may be what killed it.
    pub(crate) owner_died: bool,
    open: Mutex<Open>,
}

/// The messages that are being made into entries, by key.
pub(crate) type Asking = HashSet<String>;

/// The batches of which something is to come.
#[derive(Default)]
struct Open {
    by_lookup: Few<Lookup, Arc<OpenBatch>>,
    by_no: Few<BatchNo, Arc<OpenBatch>>,
    /// The calls that are not in memory and that the planner remembers, because of what they claim.
    remembered: BTreeSet<CallId>,
}

/// A session that was opened or taken, and the calls that are to be driven.
pub(crate) type Acquired = (Arc<Session>, Vec<Box<Held>>);

/// How often it is looked who owns a session that others take at the same time: each time one of them has it then.
const ACQUIRE_TRIES: u32 = 3;

/// Where a batch is of which something may be to come.
pub(crate) enum Whereabouts {
    /// In memory.
    Here(Used),
    /// In the store; what wakes its calls is in memory.
    Away,
    /// Nothing of it is to come, or nothing that was asked for.
    Over,
}

/// So many calls that claim something can wait in a session that is let go: they are read back when it is taken again.
const REMEMBERED_MAX: usize = 16;

/// Who keeps a batch in memory that nobody uses: the two tables of its session.
const TABLES: usize = 2;

impl Session {
    /// Opens or takes the session; if it was left with open calls, they are returned in their order, to be driven.
    pub(crate) async fn acquire(
        rt: &Arc<Inner>,
        name: &str,
        child: Option<&Child>,
    ) -> Result<Acquired, BatchError> {
        let mut tries = 1;
        loop {
            let kin = match child {
                Some(child) => Some(Box::new(ChildOf::take(rt, name, child.clone()).await?)),
                None => None,
            };
            match Session::try_acquire(rt, name, kin).await {
                // Somebody else was quicker, or its owner was heard of again: what is true now is looked up.
                Err(BatchError::Lost(Lost::Refused(Refused::Fenced { .. } | Refused::Changed { .. })))
                    if rt.worker.is_some() && tries < ACQUIRE_TRIES =>
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
        kin: Option<Box<ChildOf>>,
    ) -> Result<Acquired, BatchError> {
        let row = rt.store.session(name).await?;
        let loops = Loops::new(row.is_some());
        let right = rt.right_to(name, row.as_ref().map(|row| row.no)).await?;
        let (id, at_once, owner_died) = (right.id(), right.at_once, right.died);
        let ends = Ends { store: rt.store.clone(), limits: rt.limits.clone(), feed: rt.feeds.feed(name) };
        let lane = match row {
            Some(row) => Lane::take(ends, &row, (chance()?, right)),
            None => {
                let no = SessionNo(rt.store.reserve(Sequence::Session, 1).await?);
                Lane::open(ends, no, (name, right))
            }
        };
        let session = Arc::new(Session {
            name: name.into(),
            lane: Arc::new(lane),
            admission: tokio::sync::Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            pairs: tokio::sync::Mutex::default(),
            inbox: tokio::sync::Mutex::default(),
            schedules: tokio::sync::Mutex::default(),
            triggers: tokio::sync::Mutex::default(),
            firsts: Firsts::default(),
            loops,
            away: rt.away.clone(),
            kin,
            children: tokio::sync::Mutex::default(),
            removal: tokio::sync::Mutex::default(),
            leaving: AtomicBool::new(false),
            owner_died,
            open: Mutex::default(),
        });
        rt.owns(&session, &id)?;
        if at_once {
            // What this process may remember of it is older than what its last owner wrote.
            rt.closed(session.abandon(rt));
            session.lane.commit_rows(Vec::new()).await?;
        }
        if owner_died {
            rt.be_careful();
        }
        match session.adopt_all(rt).await {
            Ok(left) => Ok((session, left)),
            Err(error) => {
                rt.closed(session.abandon(rt));
                Err(error)
            }
        }
    }

    async fn adopt_all(self: &Arc<Session>, rt: &Arc<Inner>) -> Result<Vec<Box<Held>>, BatchError> {
        let mut left = Vec::new();
        for row in rt.store.open_batches(Some(self.lane.session())).await? {
            // What left memory in this process is open here already; what it claims the planner may have forgotten.
            if rt.away.is_untold(row.no) {
                self.fetch(rt, row.no).await?;
            } else if !rt.away.has(row.no) {
                left.extend(self.adopt(rt, row).await?);
            }
        }
        Ok(left)
    }

    /// Takes over a batch that an earlier owner left open.
    async fn adopt(
        self: &Arc<Session>,
        rt: &Arc<Inner>,
        row: BatchRow,
    ) -> Result<Vec<Box<Held>>, BatchError> {
        let (folded, rows) = self.read(&row).await?;
        let batch = self.insert(OpenBatch::recorded(self.head(&row, &folded)?, &folded, rows));
        let hold = Arc::new(Hold { rt: rt.clone(), session: self.clone(), batch });
        let calls = folded.calls.into_iter().zip(0..);
        let mut left: Vec<Box<Held>> = Vec::new();
        for (call, place) in calls.filter(|(call, _)| call.end().is_none()) {
            let id = CallId { batch: row.no, ordinal: Ordinal(place) };
            let mut past = taken_over(rt, &call, folded.seen_at);
            if call.operations.as_deref().is_some_and(Operations::has_call) {
                // Boxed, so that those that called nothing need no room for it.
                let excused_us = Box::pin(still::recorded(self, (id, &call), folded.seen_at)).await?;
                past.counted_us = past.counted_us.saturating_sub(excused_us);
            }
            let mut held = hold.call(id, Arc::new(call), past);
            held.begin_stage();
            self.firsts.take_over(&held);
            left.push(held);
        }
        drop(hold);
        Ok(self.let_rest(left))
    }

    /// Parks calls of one batch at once of which each only waits, so that a session with many of them is never in memory
    /// whole; others are returned, to be driven.
    fn let_rest(&self, mut left: Vec<Box<Held>>) -> Vec<Box<Held>> {
        let Some(on) = left.first().map(|held| held.on.clone()) else { return left };
        let waits: Option<Vec<Parked>> = left.iter().map(|held| held.only_waits()).collect();
        // Whoever is inside another or around one is entered with that one.
        let is_alone = on.batch.head.parent.is_none() && !left.iter().any(|held| nested::has_called(held));
        let Some(waits) = waits.filter(|_| is_alone) else { return left };
        on.rt.take_over_calls(left.len() as u64);
        // All of them have started: they are entered before those that have not, as they must be.
        Turns::take_over(&mut left);
        for (held, parked) in left.into_iter().zip(waits) {
            park::until(held, parked);
        }
        let rt = on.rt.clone();
        drop(on);
        away::let_leave(&rt);
        Vec::new()
    }

    /// It is to be removed: it takes nothing new.
    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    /// Refuses what is new in a session that is to be removed. Asked by who has the admission.
    pub(crate) fn check_stays(&self) -> Result<(), Lost> {
        if self.leaving.load(Ordering::SeqCst) { Err(Lost::Removed) } else { Ok(()) }
    }

    /// A batch of which something is to come and which may not be in memory.
    pub(crate) async fn find_away(
        self: &Arc<Session>,
        rt: &Arc<Inner>,
        no: BatchNo,
    ) -> Result<Option<Used>, BatchError> {
        let _admission = self.admission.lock().await;
        self.fetch(rt, no).await
    }

    /// Where a batch is. If it is not in memory and `provider` is said, only if one of its calls waits to be connected to that.
    pub(crate) fn whereabouts(&self, rt: &Inner, no: BatchNo, provider: Option<&str>) -> Whereabouts {
        // Both are looked at under the lock under which it goes from one to the other.
        let open = lock(&self.open);
        match open.by_no.get(&no).cloned() {
            Some(batch) => Whereabouts::Here(Used::new(batch)),
            None if provider.map_or_else(|| rt.away.has(no), |provider| rt.away.awaits(no, provider)) => {
                Whereabouts::Away
            }
            None => Whereabouts::Over,
        }
    }

    /// Lets a batch leave memory, if nobody uses it and all its open calls wait for what is recorded.
    pub(crate) fn let_leave(&self, rt: &Arc<Inner>, batch: Arc<OpenBatch>) {
        let no = batch.head.no;
        let mut open = lock(&self.open);
        // Let go of under the lock: of several who do, the last finds that nobody else uses it.
        drop(batch);
        let Some(batch) = open.by_no.get(&no).filter(|batch| Arc::strong_count(batch) == TABLES) else {
            return;
        };
        // Whoever then lets go of those that wait has looked, or will.
        if self.lane.lost().is_some() {
            return;
        }
        let is_inside =
            |batch: &Arc<OpenBatch>, call| batch.head.parent.is_some_and(|parent| parent.call == call);
        let has_open_inside = |call| open.by_no.values().any(|batch| is_inside(batch, call));
        let (session, lookup) = (self.lane.session(), batch.head.lookup);
        let Some(Leaving { mut stubs, alarms }) = batch.leaving((rt, session), has_open_inside) else {
            return;
        };
        moment!("at.leave");
        rt.turns.put_away(&mut stubs);
        let remembered = stubs.iter().filter(|(_, stub)| stub.plan == Plan::Remembered);
        open.remembered.extend(remembered.map(|(call, _)| *call));
        rt.away.insert(stubs);
        // Only now: what is due from here on must be found there.
        rt.wheel.put_away(&alarms);
        let gone = (open.by_lookup.remove(&lookup), open.by_no.remove(&no));
        drop(open);
        drop(gone);
    }

    /// A batch of which something is to come, from memory or from its journal. `None`: there is none. Asked for by who has the
    /// admission.
    pub(crate) async fn fetch(
        self: &Arc<Session>,
        rt: &Arc<Inner>,
        no: BatchNo,
    ) -> Result<Option<Used>, BatchError> {
        if let Some(open) = self.find_no(no) {
            return Ok(Some(open));
        }
        if let Some(lost) = self.lane.lost() {
            return Err(lost.into());
        }
        if !rt.away.has(no) {
            return Ok(None);
        }
        moment!("at.fetch");
        let (row, folded, rows) = self.read_no(no).await?;
        let used = self.insert(OpenBatch::recorded(self.head(&row, &folded)?, &folded, rows));
        // What is here now is not there any more: whoever finds neither looks here again.
        let mut stubs = rt.away.take(no);
        {
            let mut open = lock(&self.open);
            stubs.keys().for_each(|&ordinal| _ = open.remembered.remove(&CallId { batch: no, ordinal }));
        }
        let hold = Arc::new(Hold { rt: rt.clone(), session: self.clone(), batch: used.clone() });
        used.rests();
        for (call, place) in folded.calls.into_iter().zip(0..).filter(|(call, _)| call.end().is_none()) {
            let id = CallId { batch: no, ordinal: Ordinal(place) };
            let Some(stub) = stubs.remove(&id.ordinal) else { continue };
            rt.wheel.clear_away(id, stub.due);
            let mut held = hold.call(id, Arc::new(call), stub.past());
            Turns::come_back(&mut held, stub.plan);
            let undisturbed = used.lay(id.ordinal, held.asleep(&stub));
            self.parked(rt, id, undisturbed);
        }
        Ok(Some(used))
    }

    /// Reads a batch back: what its journal adds up to, and how many rows that has. The journal vouches for itself;
    /// that it is the one asked for, and all of it, is checked here.
    pub(crate) async fn read(&self, found: &BatchRow) -> Result<(Batch, u32), BatchError> {
        let (row, batch, rows) = self.read_no(found.no).await?;
        if row.lookup == found.lookup { Ok((batch, rows)) } else { Err(self.not_its_own()) }
    }

    /// The same by its number alone, and where it belongs.
    pub(crate) async fn read_no(&self, no: BatchNo) -> Result<(BatchRow, Batch, u32), BatchError> {
        let rows = self.lane.store().journal(no).await?;
        let batch = fold(&rows)?;
        let session = self.lane.session();
        let own = rows.iter().zip(0..).all(|(row, place)| row.session == session && row.row == place);
        if !own {
            return Err(self.not_its_own());
        }
        let lookup = Lookup::of(session, &batch.opening.key);
        let row = BatchRow { no, session, lookup, open: batch.is_open() };
        Ok((row, batch, rows.len() as u32))
    }

    fn not_its_own(&self) -> BatchError {
        let session = self.lane.session();
        let what = format!("session {session}: the journal found for a batch is not its own, or not whole");
        BatchError::Unreadable { what }
    }

    pub(crate) fn head(&self, row: &BatchRow, batch: &Batch) -> Result<Head, BatchError> {
        let inputs = recorded_inputs(&batch.opening)?;
        Ok(Head {
            no: row.no,
            lookup: row.lookup,
            place: Arc::new(Place::new(self.name.clone(), batch.opening.key.clone(), inputs)),
            turn: batch.opening.turn.clone(),
            siblings: batch.opening.siblings,
            streamed: batch.opening.streamed,
            parent: batch.opening.parent,
            opened_at: batch.opened_at,
        })
    }

    pub(crate) fn find(&self, lookup: Lookup) -> Option<Used> {
        lock(&self.open).by_lookup.get(&lookup).cloned().map(Used::new)
    }

    pub(crate) fn find_no(&self, no: BatchNo) -> Option<Used> {
        lock(&self.open).by_no.get(&no).cloned().map(Used::new)
    }

    /// The batches in memory of which something is to come, oldest first.
    pub(crate) fn open_batches(&self) -> Vec<Used> {
        let mut batches: Vec<_> = lock(&self.open).by_no.values().cloned().map(Used::new).collect();
        batches.sort_unstable_by_key(|batch| batch.head.no);
        batches
    }

    /// The batches inside a call of which something is to come, oldest first. They do not leave memory.
    pub(crate) fn inside(&self, call: CallId) -> Vec<Used> {
        let is_inside = |batch: &Arc<OpenBatch>| {
            batch.head.parent.is_some_and(|parent| parent.call == call) && !batch.is_over()
        };
        let mut batches: Vec<_> = lock(&self.open)
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
        let mut open = lock(&self.open);
        open.by_lookup.insert(batch.head.lookup, batch.clone());
        open.by_no.insert(batch.head.no, batch.clone());
        Used::new(batch)
    }

    /// A batch may be over.
    pub(crate) fn forget(&self, batch: &OpenBatch) {
        let mut open = lock(&self.open);
        // A call may have been added while the last one ended.
        if batch.is_over() {
            open.by_lookup.remove(&batch.head.lookup);
            open.by_no.remove(&batch.head.no);
        }
    }

    /// Nothing more can be recorded in this session: whoever waits is told so. Returns how many calls waited for
    /// their turn and will not get it here.
    pub(crate) fn lose(&self, rt: &Arc<Inner>, lost: Lost) -> u64 {
        tracing::error!(session = %self.name, error = %chain(&lost), "a session is lost to this runtime");
        self.lane.lose(lost);
        lock(&self.open).by_no.values().for_each(|batch| batch.stop_running());
        self.abandon(rt)
    }

    /// Lets go of the calls that wait, which will not go on here, and returns how many there were.
    pub(crate) fn abandon(&self, rt: &Arc<Inner>) -> u64 {
        let abandoned: Vec<CallId> =
            lock(&self.open).by_no.values().flat_map(|batch| batch.abandon()).collect();
        let away = rt.away.take_session(self.lane.session());
        let count = abandoned.len() as u64;
        rt.turns.leave(rt, abandoned.into_iter().map(|call| (call, false)));
        count + Session::forget_away(rt, &away)
    }

    /// The same for calls that are not in memory, which were taken out.
    pub(crate) fn forget_away(rt: &Arc<Inner>, away: &[(CallId, Stub)]) -> u64 {
        away.iter().for_each(|(call, stub)| rt.wheel.clear_away(*call, stub.due));
        rt.turns.leave_away(rt, away);
        away.len() as u64
    }

    /// Whether it can be let go of: nothing of it is in memory that is not found in the store when it is taken again.
    pub(crate) fn can_go(&self, rt: &Inner) -> bool {
        let nothing_asked = self.asking.try_lock().is_ok_and(|asking| asking.is_empty());
        if !nothing_asked || !self.firsts.is_empty() {
            return false;
        }
        let mut open = lock(&self.open);
        if !open.by_no.is_empty() {
            return false;
        }
        // What they claim is found out anew then.
        let remembered: Vec<CallId> = open.remembered.iter().copied().collect();
        let goes = remembered.len() <= REMEMBERED_MAX && rt.turns.put_session_away(&remembered);
        if goes {
            rt.away.untold(&remembered);
            rt.turns.forget_session(self.lane.session());
            open.remembered.clear();
        }
        goes
    }

    /// Puts a call aside until it is woken, at the latest then. It keeps its place and what it claims.
    pub(crate) fn park(held: Box<Held>, mut when: When) {
        let (on, id) = (held.on.clone(), held.id);
        when.due_us = when.due_us.min(background::due_us(&held));
        let undisturbed = on.batch.park(*held, || Some(on.rt.wheel.alarm(when, &on.session, id)));
        if let Some(parent) = on.batch.head.parent {
            still::look(&on.rt, &on.session, parent.call);
        }
        on.session.parked(&on.rt, id, undisturbed);
    }

    /// A call was parked: what happened meanwhile did not find it.
    pub(crate) fn parked(self: &Arc<Session>, rt: &Arc<Inner>, id: CallId, undisturbed: bool) {
        if !undisturbed {
            self.wake(rt, id);
        }
        if self.lane.lost().is_some() {
            rt.closed(self.abandon(rt));
        }
    }

    /// Goes on with a call that is parked: something was asked of it, it is due, its turn has come, or what it waited
    /// for may be there. It looks for itself what it can do.
    pub(crate) fn wake(self: &Arc<Session>, rt: &Arc<Inner>, id: CallId) {
        match self.unpark(rt, id) {
            Some(held) => drive::start(held),
            None => rt.away.wake(id),
        }
    }

    /// The same in the caller's own task, as far as it gets at once.
    pub(crate) async fn wake_here(self: &Arc<Session>, rt: &Arc<Inner>, id: CallId) {
        match self.unpark(rt, id) {
            Some(held) => {
                let on = held.on.clone();
                drive::start_all(&on, std::iter::once(held)).await;
            }
            None => rt.away.wake(id),
        }
    }

    /// Goes on with those of a batch that are parked.
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
        Some(Arc::new(Hold { rt: rt.clone(), session: self.clone(), batch }).unpark(parked))
    }
}

/// The clocks of a call that is taken over: they go on where they were when somebody last owned it.
fn taken_over(rt: &Inner, call: &Call, seen_at: Timestamp) -> Past {
    let counted_us = seen_at.since(call.opened_at);
    Past { since_us: rt.clock.elapsed_us(), counted_us, fresh: false, waited: true, parked_at: None }
}

/// What makes this taking another than everybody else's.
fn chance() -> Result<u32, BatchError> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(no_randomness)?;
    Ok(u32::from_le_bytes(bytes))
}

/// Adds up the rows of a batch's journal.
pub(crate) fn fold(rows: &[JournalRow]) -> Result<Batch, BatchError> {
    Batch::fold(&entries(rows)?).map_err(|broken| match rows.first() {
        Some(row) => unreadable(row, &broken),
        None => BatchError::Unreadable { what: "a batch has no entries".to_string() },
    })
}

/// The entries of a journal.
pub(crate) fn entries(rows: &[JournalRow]) -> Result<Vec<Entry>, BatchError> {
    let mut entries = Vec::new();
    for row in rows {
        entries.extend(entry::unpack(&row.data).map_err(|problem| unreadable(row, &problem))?);
    }
    Ok(entries)
}

fn unreadable(row: &JournalRow, what: &dyn std::fmt::Display) -> BatchError {
    BatchError::Unreadable { what: format!("session {}, entry {}: {what}", row.session, row.first) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
