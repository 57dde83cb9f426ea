//! A session that this runtime owns: its lane, the order of its calls, its open batches.

use crate::batch::{Head, OpenBatch};
use crate::error::{BatchError, Lost, chain, no_randomness};
use crate::held::{Held, Hold};
use crate::lane::Lane;
use crate::request::recorded_inputs;
use crate::runtime::Inner;
use crate::tool::Place;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_core::batch::Batch;
use windlass_core::entry;
use windlass_core::ids::{BatchNo, CallId, Lookup, Ordinal, SessionNo};
use windlass_core::plan::{Claim, Plan};
use windlass_store::{BatchRow, JournalRow, Sequence};

/// A session that this runtime owns.
pub(crate) struct Session {
    pub(crate) name: Arc<str>,
    pub(crate) lane: Arc<Lane>,
    /// Held while a batch is looked up and its calls are queued, so that batches queue in the order they came.
    pub(crate) admission: tokio::sync::Mutex<()>,
    plan: Mutex<Plan>,
    open: Mutex<Open>,
}

/// The batches with an open call.
#[derive(Default)]
struct Open {
    by_lookup: HashMap<Lookup, Arc<OpenBatch>>,
    by_no: HashMap<BatchNo, Arc<OpenBatch>>,
}

impl Session {
    /// Opens or takes the session; if it was left with open calls, they are returned in their order, to be driven.
    pub(crate) async fn acquire(
        rt: &Arc<Inner>,
        name: &str,
    ) -> Result<(Arc<Session>, Vec<Box<Held>>), BatchError> {
        let (store, limits) = (rt.store.clone(), rt.limits.clone());
        let lane = match store.session(name).await? {
            Some(row) => Lane::take(store, limits, &row, chance()?),
            None => {
                let no = SessionNo(store.reserve(Sequence::Session, 1).await?);
                Lane::open(store, limits, no, name)
            }
        };
        let session = Arc::new(Session {
            name: name.into(),
            lane: Arc::new(lane),
            admission: tokio::sync::Mutex::default(),
            plan: Mutex::default(),
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
            .map(|(call, place)| hold.call(CallId { batch: row.no, ordinal: Ordinal(place) }, call, None))
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
            opened_at: batch.opened_at,
        })
    }

    pub(crate) fn find(&self, lookup: Lookup) -> Option<Arc<OpenBatch>> {
        lock(&self.open).by_lookup.get(&lookup).cloned()
    }

    pub(crate) fn insert(&self, batch: OpenBatch) -> Arc<OpenBatch> {
        let batch = Arc::new(batch);
        let mut open = lock(&self.open);
        open.by_lookup.insert(batch.head.lookup, batch.clone());
        open.by_no.insert(batch.head.no, batch.clone());
        batch
    }

    /// A batch has no open call any more.
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
    pub(crate) fn lose(&self, lost: Lost) -> u64 {
        tracing::error!(session = %self.name, error = %chain(&lost), "a session is lost to this runtime");
        self.lane.lose(lost);
        self.abandon()
    }

    /// Lets go of the calls that wait for their turn, which will not come here, and returns how many there were.
    fn abandon(&self) -> u64 {
        lock(&self.open).by_no.values().map(|batch| batch.abandon()).sum()
    }

    /// Whether it has no open call.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.open).by_no.is_empty()
    }

    /// Queues a prepared call. It is given back if it may start now; otherwise it is parked, and started when
    /// all that stand before it have left.
    pub(crate) fn admit(mut held: Box<Held>) -> Option<Box<Held>> {
        let claim = held.call.pin.map_or(Claim::Write, |pin| Claim::of(pin.class));
        held.admitted = true;
        let on = held.on.clone();
        let mut plan = lock(&on.session.plan);
        if plan.enter(held.id, claim) {
            return Some(held);
        }
        // Parked before the plan is let go: whoever leaves next must find it.
        on.batch.park(*held);
        drop(plan);
        // Whoever lost the session before this call was parked did not find it.
        if on.session.lane.lost().is_some() {
            on.rt.closed(on.session.abandon());
        }
        None
    }

    /// So many calls that were admitted are over: the calls whose turn it is now.
    pub(crate) fn leave(self: &Arc<Session>, rt: &Arc<Inner>, count: usize) -> Vec<Box<Held>> {
        let mut plan = lock(&self.plan);
        let next: Vec<CallId> = (0..count).flat_map(|_| plan.leave()).collect();
        drop(plan);
        next.into_iter().filter_map(|id| self.unpark(rt, id)).collect()
    }

    fn unpark(self: &Arc<Session>, rt: &Arc<Inner>, id: CallId) -> Option<Box<Held>> {
        let batch = lock(&self.open).by_no.get(&id.batch).cloned()?;
        let parked = batch.unpark(id.ordinal)?;
        Some(Arc::new(Hold { rt: rt.clone(), session: self.clone(), batch }).unpark(parked))
    }
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
