//! Looking at what happens: events, numbers, and the calls that are open.

use super::Runtime;
use crate::error::BatchError;
use crate::events::{Events, EventsError};
use crate::inspect;
use crate::session::Session;
use crate::trace::{self, Span};
use crate::waits::{self, OpenCall};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::mpsc;
use windlass_core::ids::{CallId, EntryNo};
use windlass_core::plan::Counts;

impl Runtime {
    /// Follows what happens in a session, which need not exist yet: from behind an entry, whose number an earlier event had
    /// (0 is before the first), or from now on.
    pub async fn events(&self, session: &str, after: Option<EntryNo>) -> Result<Events, EventsError> {
        Events::new(&self.0, session, after).await
    }

    /// What is counted, as Prometheus reads it.
    pub fn metrics(&self) -> String {
        trace::metrics(&self.0)
    }

    /// The spans of calls that end from now on; at most so many wait to be taken, what comes beyond that is dropped and
    /// counted. With their arguments and results only if `contents`. `None`: somebody takes them already.
    pub fn spans(&self, spans_max: usize, contents: bool) -> Option<mpsc::Receiver<Span>> {
        self.0.meters.trace(spans_max, contents)
    }

    /// How many follow a session.
    pub fn readers(&self) -> u64 {
        self.0.feeds.readers.load(Ordering::Relaxed)
    }

    /// The calls that are open here, by session, oldest first, recorded or not. Those that are not in memory are read from the
    /// store.
    pub async fn open(&self) -> Result<Vec<OpenCall>, BatchError> {
        waits::open(&self.0).await
    }

    /// Those of them that are in memory: all that run or wait for their turns, and those that somebody here waits for. What the
    /// others wait for is in the [record](crate::inspect::waiting_for).
    pub fn live(&self) -> Vec<OpenCall> {
        waits::live(&self.0, |_| true).into_iter().map(|(_, open)| open).collect()
    }

    /// The same of one session.
    pub fn live_in(&self, session: &str) -> Vec<OpenCall> {
        waits::live(&self.0, |name| name == session).into_iter().map(|(_, open)| open).collect()
    }

    /// The name of the session that a call belongs to, recorded or not. `None`: there is no such call.
    pub async fn session_of(&self, call: CallId) -> Result<Option<String>, BatchError> {
        if let Some(session) = inspect::session_of(&*self.0.store, call).await? {
            return Ok(Some(session.name));
        }
        let holds = |session: &Arc<Session>| session.find_no(call.batch).is_some();
        Ok(self.0.owned().into_iter().find(holds).map(|session| session.name.to_string()))
    }

    /// How many calls wait, run and are parked.
    pub fn counts(&self) -> Counts {
        self.0.turns.counts()
    }

    /// How many things are remembered of calls that may start: none while no call is open. For tests.
    #[doc(hidden)]
    pub fn kept(&self) -> usize {
        self.0.turns.kept() + self.0.away.len()
    }

    /// How many of the parked calls are not in memory: nobody here waits for their batches, and all that is known of them is
    /// in the store.
    pub fn away(&self) -> u64 {
        self.0.away.len() as u64
    }

    /// How many sessions are in memory. For tests.
    #[doc(hidden)]
    pub fn sessions_in_memory(&self) -> usize {
        self.0.owned().len()
    }
}
