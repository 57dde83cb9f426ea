//! A session that this runtime owns: its lane, the order of its calls, its open batches.

use crate::batch::{Head, OpenBatch};
use crate::drive;
use crate::error::{BatchError, Lost, chain, no_randomness};
use crate::held::{Held, Hold, Past};
use crate::lane::{Ends, Lane};
use crate::loops::Loops;
use crate::request::recorded_inputs;
use crate::runtime::Inner;
use crate::same::Firsts;
use crate::tool::Place;
use crate::wheel::When;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_core::batch::Batch;
use windlass_core::call::Call;
use windlass_core::entry;
use windlass_core::ids::{BatchNo, CallId, Lookup, Ordinal, SessionNo};
use windlass_core::time::Timestamp;
use windlass_store::{BatchRow, JournalRow, Sequence};

/// A session that this runtime owns.
pub(crate) struct Session {
    pub(crate) name: Arc<str>,
    pub(crate) lane: Arc<Lane>,
    /// Held while a batch is looked up and its calls are queued, so that batches queue in the order they came.
    pub(crate) admission: tokio::sync::Mutex<()>,
    /// What is asked of its calls is taken one after the other.
    pub(crate) asking: tokio::sync::Mutex<Asking>,
    /// Its open calls that others may be the same as.
    pub(crate) firsts: Firsts,
    /// Notices that its calls get nowhere.
    pub(crate) loops: Loops,
    open: Mutex<Open>,
}

/// The messages that are being made into entries, by key.
pub(crate) type Asking = HashSet<String>;

/// The batches of which something is to come.
#[derive(Default)]
struct Open {
    by_lookup: BTreeMap<Lookup, Arc<OpenBatch>>,
    by_no: BTreeMap<BatchNo, Arc<OpenBatch>>,
}

impl Session {
    /// Opens or takes the session; if it was left with open calls, they are returned in their order, to be driven.
    pub(crate) async fn acquire(
        rt: &Arc<Inner>,
        name: &str,
    ) -> Result<(Arc<Session>, Vec<Box<Held>>), BatchError> {
        let row = rt.store.session(name).await?;
        let loops = Loops::new(row.is_some());
        let ends = Ends { store: rt.store.clone(), limits: rt.limits.clone(), feed: rt.feeds.feed(name) };
        let lane = match row {
            Some(row) => Lane::take(ends, &row, chance()?),
            None => {
                let no = SessionNo(rt.store.reserve(Sequence::Session, 1).await?);
                Lane::open(ends, no, name)
            }
        };
        let session = Arc::new(Session {
            name: name.into(),
            lane: Arc::new(lane),
            admission: tokio::sync::Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            firsts: Firsts::default(),
            loops,
            open: Mutex::default(),
        });
        let mut left = Vec::new();
        for row in rt.store.open_batches(Some(session.lane.session())).await? {
            left.extend(session.adopt(rt, row).await?);
        }
        Ok((session, left))
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
        let open = calls.filter(|(call, _)| call.end().is_none());
        Ok(open
            .map(|(call, place)| {
                let past = taken_over(rt, &call, folded.seen_at);
                let held = hold.call(CallId { batch: row.no, ordinal: Ordinal(place) }, call, past);
                self.firsts.take_over(&held);
                held
            })
            .collect())
    }

    /// Reads a batch back: what its journal adds up to, and how many rows that has. The journal vouches for itself;
    /// that it is the one asked for, and all of it, is checked here.
    pub(crate) async fn read(&self, found: &BatchRow) -> Result<(Batch, u32), BatchError> {
        let rows = self.lane.store().journal(found.no).await?;
        let batch = fold(&rows)?;
        let session = self.lane.session();
        let own = rows.iter().zip(0..).all(|(row, place)| row.session == session && row.row == place);
        if own && Lookup::of(session, &batch.opening.key) == found.lookup {
            return Ok((batch, rows.len() as u32));
        }
        Err(BatchError::Unreadable {
            what: format!("session {session}: the journal found for a batch is not its own, or not whole"),
        })
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

    pub(crate) fn find(&self, lookup: Lookup) -> Option<Arc<OpenBatch>> {
        lock(&self.open).by_lookup.get(&lookup).cloned()
    }

    pub(crate) fn find_no(&self, no: BatchNo) -> Option<Arc<OpenBatch>> {
        lock(&self.open).by_no.get(&no).cloned()
    }

    /// The batches of which something is to come, oldest first.
    pub(crate) fn open_batches(&self) -> Vec<Arc<OpenBatch>> {
        let mut batches: Vec<_> = lock(&self.open).by_no.values().cloned().collect();
        batches.sort_unstable_by_key(|batch| batch.head.no);
        batches
    }

    /// The batches inside a call of which something is to come, oldest first.
    pub(crate) fn inside(&self, call: CallId) -> Vec<Arc<OpenBatch>> {
        let is_inside = |batch: &Arc<OpenBatch>| {
            batch.head.parent.is_some_and(|parent| parent.call == call) && !batch.is_over()
        };
        let mut batches: Vec<_> =
            lock(&self.open).by_no.values().filter(|batch| is_inside(batch)).cloned().collect();
        batches.sort_unstable_by_key(|batch| batch.head.no);
        batches
    }

    /// Whether the calls of a batch run inside this one, or inside one that does.
    pub(crate) fn is_around(&self, call: CallId, batch: &OpenBatch) -> bool {
        let mut parent = batch.head.parent;
        while let Some(around) = parent {
            if around.call == call {
                return true;
            }
            parent = self.find_no(around.call.batch).and_then(|batch| batch.head.parent);
        }
        false
    }

    pub(crate) fn insert(&self, batch: OpenBatch) -> Arc<OpenBatch> {
        let batch = Arc::new(batch);
        let mut open = lock(&self.open);
        open.by_lookup.insert(batch.head.lookup, batch.clone());
        open.by_no.insert(batch.head.no, batch.clone());
        batch
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
        self.abandon(rt)
    }

    /// Lets go of the calls that wait, which will not go on here, and returns how many there were.
    fn abandon(&self, rt: &Arc<Inner>) -> u64 {
        let abandoned: Vec<CallId> =
            lock(&self.open).by_no.values().flat_map(|batch| batch.abandon()).collect();
        let count = abandoned.len() as u64;
        rt.turns.leave(rt, abandoned.into_iter().map(|call| (call, false)));
        count
    }

    /// Whether nothing of it is to come.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.open).by_no.is_empty()
    }

    /// Puts a call aside until it is woken, at the latest then. It keeps its place and what it claims.
    pub(crate) fn park(held: Box<Held>, when: When) {
        let (on, id) = (held.on.clone(), held.id);
        let undisturbed = on.batch.park(*held, || Some(on.rt.wheel.alarm(when, &on.session, id)));
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
        if let Some(held) = self.unpark(rt, id) {
            drive::start(held);
        }
    }

    /// Goes on with those of a batch that are parked.
    pub(crate) fn wake_all(self: &Arc<Session>, rt: &Arc<Inner>, batch: &OpenBatch, calls: Vec<Ordinal>) {
        for ordinal in calls {
            self.wake(rt, CallId { batch: batch.head.no, ordinal });
        }
    }

    fn unpark(self: &Arc<Session>, rt: &Arc<Inner>, id: CallId) -> Option<Box<Held>> {
        let batch = lock(&self.open).by_no.get(&id.batch).cloned()?;
        let parked = batch.unpark(id.ordinal)?;
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
    let unreadable = |row: &JournalRow, what: String| BatchError::Unreadable {
        what: format!("session {}, entry {}: {what}", row.session, row.first),
    };
    let mut entries = Vec::new();
    for row in rows {
        entries.extend(entry::unpack(&row.data).map_err(|problem| unreadable(row, problem.to_string()))?);
    }
    Batch::fold(&entries).map_err(|broken| match rows.first() {
        Some(row) => unreadable(row, broken.to_string()),
        None => BatchError::Unreadable { what: "a batch has no entries".to_string() },
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
