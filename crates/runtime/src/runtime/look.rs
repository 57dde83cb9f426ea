//! Observing the runtime: events, metrics, and open calls.

use crate::api::error::SessionError;
use crate::read::inspect;
use crate::read::trace;
use crate::read::waits::{self, OpenCall};
use crate::session::events::{self, Changes, Events, EventsError};
use crate::session::inner::Runtime;
use crate::session::meters::TraceSpan;
use crate::session::owner::Session;
use crate::session::owners::{OtherWorker, OwnerPlace, WorkerEntry};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;
use windlass_core::handle::{Handle, HandleKind};
use windlass_core::ids::{CallId, EntryNo};
use windlass_core::narration::Locale;
use windlass_core::plan::Counts;

impl Runtime {
    /// Follows the events of a session, which need not exist yet: after an entry, by the number of an earlier
    /// event (0 is before the first), or from now on.
    pub async fn events(&self, session: &str, after: Option<EntryNo>) -> Result<Events, EventsError> {
        Events::new(&self.0, session, after).await
    }

    /// Follows all sessions: which have changed from now on, recorded or not.
    pub fn changes(&self) -> Result<Changes, EventsError> {
        Changes::new(&self.0)
    }

    /// Metrics in Prometheus text format.
    pub fn metrics(&self) -> String {
        trace::metrics(&self.0)
    }

    /// The spans of calls and attempts that end from now on; at most `spans_max` wait in the channel, others are dropped
    /// and counted. With arguments and results only if `contents`. `None`: the spans are taken already.
    pub fn spans(&self, spans_max: usize, contents: bool) -> Option<mpsc::Receiver<TraceSpan>> {
        self.0.meters.trace(spans_max, contents)
    }

    /// The number of readers of events.
    pub fn readers(&self) -> u64 {
        self.0.feeds.readers.load(Ordering::Relaxed)
    }

    /// The open calls here, by session, oldest first, recorded or not. Those not in memory are read from the
    /// store.
    pub async fn open(&self) -> Result<Vec<OpenCall>, SessionError> {
        waits::open(&self.0).await
    }

    /// The open calls in memory: all that run or wait for their turns, and those that a caller here waits
    /// for. The [record](crate::read::inspect::waiting_for) says what the others wait for.
    pub fn live(&self) -> Vec<OpenCall> {
        waits::live(&self.0, |_| true).into_iter().map(|(_, open)| open).collect()
    }

    /// The open calls of one session that are in memory.
    pub fn live_in(&self, session: &str) -> Vec<OpenCall> {
        waits::live(&self.0, |name| name == session).into_iter().map(|(_, open)| open).collect()
    }

    /// A sentence for people about what an open call does. `None`: it is not open here.
    pub fn narration(&self, open: &OpenCall, locale: Locale) -> Option<String> {
        let handle = Handle::parse(&open.call)?;
        let call = CallId::unpacked(handle.open(self.0.store.secret(), HandleKind::Call)?);
        events::narration(&self.0, &open.session, call, locale)
    }

    /// The name of the session that a call belongs to, recorded or not. `None`: there is no such call.
    pub async fn session_of(&self, call: CallId) -> Result<Option<String>, SessionError> {
        if let Some(session) = inspect::session_of(&*self.0.store, call).await? {
            return Ok(Some(session.name));
        }
        let holds = |session: &Arc<Session>| session.find_no(call.batch).is_some();
        Ok(self.0.owned().into_iter().find(holds).map(|session| session.name.to_string()))
    }

    /// The workers of the store; only this process, as `local`, if it has the store for itself.
    pub async fn workers(&self) -> Result<Vec<WorkerEntry>, SessionError> {
        self.0.owners.workers(&self.0).await
    }

    /// Whether it is one of several workers on a store.
    pub fn is_shared(&self) -> bool {
        self.0.owners.has_others()
    }

    /// The owner of a session, as far as it is known without taking the session: another worker has to be asked about its calls.
    pub async fn owner_of(&self, session: &str) -> Result<OwnerPlace, SessionError> {
        self.0.owners.place(&self.0, session).await
    }

    /// The other workers of the store that are alive.
    pub async fn other_workers(&self) -> Result<Vec<OtherWorker>, SessionError> {
        self.0.owners.others(&self.0).await
    }

    /// Whether another worker was alive when this one last looked, which it does with every heartbeat.
    pub fn is_worker_alive(&self, worker: &str) -> bool {
        self.0.owners.is_alive(worker)
    }

    /// Tells the other workers that this one takes no more work: they wait for its sessions instead of asking it.
    pub fn begin_leaving(&self) {
        self.0.owners.begin_leaving();
        if self.is_shared() {
            self.0.release_idle();
        }
    }

    /// Gives up everything that it owns as a worker, for good: the others take it at once instead of waiting for a lease. Durable when
    /// this returns. Calls that still run here are lost, as in a crash.
    pub async fn retire(&self) -> Result<(), SessionError> {
        self.0.owners.retire(&self.0).await
    }

    /// The numbers of waiting, running and parked calls.
    pub fn counts(&self) -> Counts {
        self.0.turns.counts()
    }

    /// The number of objects remembered for calls that may start: 0 while no call is open. For tests.
    #[doc(hidden)]
    pub fn kept(&self) -> usize {
        self.0.turns.kept() + self.0.away.len()
    }

    /// The number of parked calls that are not in memory: nobody here waits for their batches, and they exist
    /// only in the store.
    pub fn away(&self) -> u64 {
        self.0.away.len() as u64
    }

    /// The number of sessions in memory. For tests.
    #[doc(hidden)]
    pub fn sessions_in_memory(&self) -> usize {
        self.0.owned().len()
    }
}
