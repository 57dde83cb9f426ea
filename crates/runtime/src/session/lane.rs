//! The ordered way from a session's owner to the store.
//!
//! Changes apply in the order they are sent, so a claim can be passed on as soon as the end of its holder is
//! sent: the next intent cannot become durable before it.

use crate::api::error::Lost;
use crate::api::limits::EnforcedLimits;
use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::artifacts::Keeping;
use crate::session::events::{EntryRows, Feed};
use crate::session::outgoing::Outbox;
use crate::session::owners::Right;
use crate::session::vault::{Vault, Vaults};
use std::sync::Arc;
use windlass_core::ids::{Fence, SessionNo};
use windlass_store::{
    Answer, Guard, Hold, Receipt, Refused, Row, SessionChange, SessionRow, Store, StoreError,
};

/// A session that this runtime owns.
pub(crate) struct Lane {
    store: Arc<dyn Store>,
    limits: Arc<EnforcedLimits>,
    session: SessionNo,
    fence: Fence,
    /// Notified of durable changes.
    feed: Arc<Feed>,
    /// The secrets that the session may use: nothing of them is written.
    vault: Arc<Vault>,
    /// Its messages to webhooks.
    outbox: Outbox,
    /// Serialises looking up and writing attachments.
    keeping: tokio::sync::Mutex<Keeping>,
    state: OrderedMutex<LaneState, { LockRank::Lane as u8 }>,
}

/// The ends of a lane: what all lanes of a runtime share, and what belongs to its session.
pub(crate) struct LaneShared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) limits: Arc<EnforcedLimits>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) secrets: Arc<Vaults>,
    pub(crate) outbox: Outbox,
}

struct LaneState {
    /// How the session is opened or taken, until the first change has done it.
    first: Option<First>,
    /// Set when a change failed: no change may follow.
    lost: Option<Lost>,
}

/// The additional work of a session's first change.
struct First {
    hold: Hold,
    rows: Vec<Row>,
}

impl Lane {
    /// The lane of a recorded session: the first change takes it. Each contender for the same fence brings
    /// another `chance`.
    pub(crate) fn take(ends: LaneShared, row: &SessionRow, chance: u32, right: Right) -> Lane {
        let fence = row.fence.after(chance);
        Lane::new(ends, row.no, fence, Hold::Take { from: row.fence, to: fence }, right)
    }

    /// The lane of a new session: the first change opens it.
    pub(crate) fn open(ends: LaneShared, no: SessionNo, hold: Hold, right: Right) -> Lane {
        Lane::new(ends, no, Fence(1), hold, right)
    }

    fn new(ends: LaneShared, session: SessionNo, fence: Fence, hold: Hold, right: Right) -> Lane {
        let LaneShared { store, limits, feed, secrets, outbox } = ends;
        let vault = Arc::new(Vault::new(secrets, session));
        let first = First { hold, rows: right.rows };
        let state = OrderedMutex::new(LaneState { first: Some(first), lost: None });
        let keeping = tokio::sync::Mutex::default();
        Lane { store, limits, session, fence, feed, vault, outbox, keeping, state }
    }

    /// Sends a change. Its place in the order is fixed when this returns; it is durable when the answer is.
    pub(crate) fn send(&self, guards: Vec<Guard>, rows: Vec<Row>) -> Commit<'_> {
        self.send_by(guards, rows, |store, change| store.commit(vec![change.into()]))
    }

    /// Sends a change whose sender has nothing else to do until it is durable, and may write it itself.
    pub(crate) fn send_here(&self, rows: Vec<Row>) -> Commit<'_> {
        self.send_by(Vec::new(), rows, |store, change| store.commit_here(vec![change.into()]))
    }

    fn send_by(
        &self,
        guards: Vec<Guard>,
        mut rows: Vec<Row>,
        commit: impl FnOnce(&dyn Store, SessionChange) -> Answer<Receipts>,
    ) -> Commit<'_> {
        let is_told =
            self.outbox.is_needed() && self.outbox.add(self.store.secret(), self.session, &mut rows);
        let mut state = self.state.lock();
        if let Some(lost) = &state.lost {
            return Commit { lane: self, sent: Err(lost.clone()) };
        }
        let hold = match state.first.take() {
            None => Hold::Held(self.fence),
            Some(first) => {
                rows.splice(0..0, first.rows);
                first.hold
            }
        };
        if self.vault.guards() {
            self.vault.scrub_rows(&mut rows);
        }
        let written = self.feed.is_followed().then(|| EntryRows::of(&rows));
        let change = SessionChange { session: self.session, hold, guards, rows };
        // Sent under the lock: otherwise two senders could pass each other on the way to the store.
        let answer = commit(&*self.store, change);
        drop(state);
        if is_told {
            // Not before: the courier looks once, behind everything that was sent until then.
            self.outbox.look();
        }
        Commit { lane: self, sent: Ok(UnansweredChange { answer, written }) }
    }

    /// Continues a change that was sent here.
    pub(crate) fn resume(&self, unanswered: UnansweredChange) -> Commit<'_> {
        Commit { lane: self, sent: Ok(unanswered) }
    }

    /// Handles the store's answer.
    fn heard(&self, said: Result<Receipts, StoreError>, written: Option<EntryRows>) -> Result<Receipt, Lost> {
        let lost = match said.map(|mut receipts| receipts.pop()) {
            Ok(Some(Ok(receipt))) => {
                self.feed.committed(self.session, receipt.first, written);
                return Ok(receipt);
            }
            Ok(Some(Err(refused))) => Lost::Refused(refused),
            Ok(None) => Lost::from(StoreError::Closed),
            Err(error) => Lost::from(error),
        };
        Err(self.lose(lost))
    }

    /// Sends a change that may be refused without harm: then nothing of it is written, and the lane goes on. The session must have
    /// been taken, so that the change does nothing else.
    pub(crate) async fn attempt(
        &self,
        guards: Vec<Guard>,
        rows: Vec<Row>,
    ) -> Result<Result<Receipt, Refused>, Lost> {
        let Commit { sent, .. } = self.send(guards, rows);
        let UnansweredChange { answer, written } = sent?;
        let said = answer.await;
        match said.as_deref().ok().and_then(|answers| answers.last()) {
            Some(Err(refused)) if is_harmless(*refused) => Ok(Err(*refused)),
            Some(_) | None => self.heard(said, written).map(Ok),
        }
    }

    /// Whether the session is opened or taken in the store.
    pub(crate) fn is_taken(&self) -> bool {
        self.state.lock().first.is_none()
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

    /// The followers of the session.
    pub(crate) fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The secrets that the session may use.
    pub(crate) fn vault(&self) -> &Arc<Vault> {
        &self.vault
    }

    /// Its messages to webhooks.
    pub(crate) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Held while attaching.
    pub(crate) fn keeping(&self) -> &tokio::sync::Mutex<Keeping> {
        &self.keeping
    }

    pub(crate) fn limits(&self) -> &EnforcedLimits {
        &self.limits
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Closes the lane: the first reason stands.
    pub(crate) fn lose(&self, lost: Lost) -> Lost {
        self.state.lock().lost.get_or_insert(lost).clone()
    }

    /// Why the lane is closed, if it is.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.state.lock().lost.clone()
    }
}

/// A change on its way.
#[must_use = "nothing may be acknowledged before it is durable"]
pub(crate) struct Commit<'a> {
    lane: &'a Lane,
    sent: Result<UnansweredChange, Lost>,
}

/// A change that the store has not answered.
#[must_use = "nothing may be acknowledged before it is durable"]
pub(crate) struct UnansweredChange {
    answer: Answer<Receipts>,
    /// Its entries, for followers of the session.
    written: Option<EntryRows>,
}

/// Whether a change was refused for what it asks for, and not because the session is another's.
fn is_harmless(refused: Refused) -> bool {
    matches!(refused, Refused::NotOver | Refused::Changed { .. })
}

/// The store's answer for each change.
type Receipts = Vec<Result<Receipt, Refused>>;

impl Commit<'_> {
    /// Waits until the change is durable.
    pub(crate) async fn durable(self) -> Result<(), Lost> {
        self.receipt().await.map(drop)
    }

    /// Waits until the change is durable, and returns the receipt.
    pub(crate) async fn receipt(self) -> Result<Receipt, Lost> {
        let UnansweredChange { answer, written } = self.sent?;
        self.lane.heard(point!("lane.durable", answer.await), written)
    }

    /// Whether the change is durable, if the store has answered by now.
    pub(crate) fn known(self) -> Result<Result<(), Lost>, UnansweredChange> {
        if windlass_core::mutant::breaks("early-ack") {
            return Ok(Ok(()));
        }
        let UnansweredChange { answer, written } = match self.sent {
            Ok(sent) => sent,
            Err(lost) => return Ok(Err(lost)),
        };
        match answer.known() {
            Ok(said) => Ok(self.lane.heard(point!("lane.durable", said), written).map(drop)),
            Err(answer) => Err(UnansweredChange { answer, written }),
        }
    }
}
