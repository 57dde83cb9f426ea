//! The ordered way from a session's owner to the store.
//!
//! What is sent first applies first, so a claim can be given on as soon as the end of its holder is sent: the
//! next intent cannot become durable before it.

use crate::artifacts::Keeping;
use crate::error::Lost;
use crate::events::{Feed, Written};
use crate::worker::Right;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_core::ids::{Fence, SessionNo};
use windlass_core::limits::Limits;
use windlass_store::{Answer, Change, Guard, Hold, Receipt, Refused, Row, SessionRow, Store, StoreError};

/// A session that this runtime owns.
pub(crate) struct Lane {
    store: Arc<dyn Store>,
    limits: Arc<Limits>,
    session: SessionNo,
    fence: Fence,
    /// Told of what became durable.
    feed: Arc<Feed>,
    /// Attachments are looked up and written one after the other.
    keeping: tokio::sync::Mutex<Keeping>,
    state: Mutex<State>,
}

/// What every lane of a runtime shares, and whom it tells.
pub(crate) struct Ends {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) feed: Arc<Feed>,
}

struct State {
    /// How the session is opened or taken, until the first change has done it.
    first: Option<First>,
    /// Set when a change failed: nothing may follow it.
    lost: Option<Lost>,
}

/// What the first change of a session does beside its own rows.
struct First {
    hold: Hold,
    guards: Vec<Guard>,
    rows: Vec<Row>,
}

impl Lane {
    /// The way to a session that is recorded: the first change takes it. Of all who try so after the same fence,
    /// each brings another `chance`.
    pub(crate) fn take(ends: Ends, row: &SessionRow, (chance, right): (u32, Right)) -> Lane {
        let fence = row.fence.after(chance);
        Lane::new(ends, (row.no, fence), (Hold::Take { from: row.fence, to: fence }, right))
    }

    /// The way to a session that is new: the first change opens it.
    pub(crate) fn open(ends: Ends, no: SessionNo, (name, right): (&str, Right)) -> Lane {
        Lane::new(ends, (no, Fence(1)), (Hold::Open { name: name.to_string() }, right))
    }

    fn new(ends: Ends, (session, fence): (SessionNo, Fence), (hold, right): (Hold, Right)) -> Lane {
        let Ends { store, limits, feed } = ends;
        let first = First { hold, guards: right.guards, rows: right.rows };
        let state = Mutex::new(State { first: Some(first), lost: None });
        Lane { store, limits, session, fence, feed, keeping: tokio::sync::Mutex::default(), state }
    }

    /// Sends a change. Its place in the order is fixed when this returns; it is durable when the answer is.
    pub(crate) fn send(&self, mut guards: Vec<Guard>, mut rows: Vec<Row>) -> Commit<'_> {
        let mut state = self.lock();
        if let Some(lost) = &state.lost {
            return Commit { lane: self, sent: Err(lost.clone()) };
        }
        let hold = match state.first.take() {
            None => Hold::Held(self.fence),
            Some(first) => {
                guards.extend(first.guards);
                rows.splice(0..0, first.rows);
                first.hold
            }
        };
        let written = self.feed.is_followed().then(|| Written::of(&rows));
        let change = Change { session: self.session, hold, guards, rows };
        // Sent under the lock: otherwise two senders could pass each other on the way to the store.
        Commit { lane: self, sent: Ok(Unanswered { answer: self.store.commit(vec![change]), written }) }
    }

    /// Goes on with a change that was sent here.
    pub(crate) fn resume(&self, unanswered: Unanswered) -> Commit<'_> {
        Commit { lane: self, sent: Ok(unanswered) }
    }

    /// The store has answered.
    fn heard(&self, said: Result<Receipts, StoreError>, written: Option<Written>) -> Result<Receipt, Lost> {
        let lost = match said.map(|mut receipts| receipts.pop()) {
            Ok(Some(Ok(receipt))) => {
                self.feed.committed((self.session, receipt.first), written);
                return Ok(receipt);
            }
            Ok(Some(Err(refused))) => Lost::Refused(refused),
            Ok(None) => Lost::from(StoreError::Closed),
            Err(error) => Lost::from(error),
        };
        Err(self.lose(lost))
    }

    /// Writes rows that belong to no batch and waits until they are durable.
    pub(crate) async fn commit_rows(&self, rows: Vec<Row>) -> Result<(), Lost> {
        self.send(Vec::new(), rows).durable().await
    }

    pub(crate) fn session(&self) -> SessionNo {
        self.session
    }

    pub(crate) fn fence(&self) -> Fence {
        self.fence
    }

    /// Who follows the session.
    pub(crate) fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Held by who attaches something.
    pub(crate) fn keeping(&self) -> &tokio::sync::Mutex<Keeping> {
        &self.keeping
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Nothing may follow: the first reason stands.
    pub(crate) fn lose(&self, lost: Lost) -> Lost {
        self.lock().lost.get_or_insert(lost).clone()
    }

    /// Why nothing may follow, if nothing may.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.lock().lost.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change on its way.
#[must_use = "nothing may be acknowledged before it is durable"]
pub(crate) struct Commit<'a> {
    lane: &'a Lane,
    sent: Result<Unanswered, Lost>,
}

/// A change that the store has not answered.
#[must_use = "nothing may be acknowledged before it is durable"]
pub(crate) struct Unanswered {
    answer: Answer<Receipts>,
    /// Its entries, for whoever follows the session.
    written: Option<Written>,
}

/// What the store says of each change.
type Receipts = Vec<Result<Receipt, Refused>>;

impl Commit<'_> {
    /// Waits until the change is durable.
    pub(crate) async fn durable(self) -> Result<(), Lost> {
        self.receipt().await.map(drop)
    }

    /// The same, and says what the store made of it.
    pub(crate) async fn receipt(self) -> Result<Receipt, Lost> {
        let Unanswered { answer, written } = self.sent?;
        self.lane.heard(point!("lane.durable", answer.await), written)
    }

    /// Whether the change is durable, if the store has answered by now.
    pub(crate) fn known(self) -> Result<Result<(), Lost>, Unanswered> {
        let Unanswered { answer, written } = match self.sent {
            Ok(sent) => sent,
            Err(lost) => return Ok(Err(lost)),
        };
        match answer.known() {
            Ok(said) => Ok(self.lane.heard(point!("lane.durable", said), written).map(drop)),
            Err(answer) => Err(Unanswered { answer, written }),
        }
    }
}
