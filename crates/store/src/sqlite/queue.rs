//! What waits for the writer. Its order is the order in which `commit` was called, so it is filled by the
//! caller and not by a future that may be polled late.

use crate::change::{Change, Receipt, Refused};
use crate::{Inbound, Posted, StoreError};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// To whom the answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// One thing to be written.
pub(super) enum Request {
    Commit { changes: Vec<Change>, reply: Reply<Vec<Result<Receipt, Refused>>> },
    Post { message: Inbound, reply: Reply<Posted> },
}

impl Request {
    /// Answers with an error.
    pub fn fail(self, error: StoreError) {
        // Whoever asked may be gone; then nobody needs the answer.
        match self {
            Request::Commit { reply, .. } => drop(reply.send(Err(error))),
            Request::Post { reply, .. } => drop(reply.send(Err(error))),
        }
    }

    pub fn changes(&self) -> usize {
        match self {
            Request::Commit { changes, .. } => changes.len().max(1),
            Request::Post { .. } => 1,
        }
    }
}

/// For whom the writer waits before it writes. Whoever was just answered has often more to say at once: a call
/// whose intent is durable, its end. To write the first of them alone would make all others wait for two commits.
#[derive(Clone, Copy, Default)]
pub(super) struct Gather {
    /// How many changes are expected.
    pub changes: usize,
    /// How long it waits for them.
    pub patience: Duration,
}

/// The queue in front of the writer.
pub(super) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
    changes_max: usize,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Request>,
    changes: usize,
    /// The writer sleeps until so many changes wait.
    sleeps_until: Option<usize>,
    ended: Option<Ended>,
}

#[derive(Clone, Copy)]
enum Ended {
    Closed,
    Poisoned,
}

impl Queue {
    /// A queue that holds about this many changes.
    pub fn new(changes_max: usize) -> Queue {
        Queue { state: Mutex::default(), filled: Condvar::new(), emptied: Condvar::new(), changes_max }
    }

    /// Puts a request at the end. When the queue is full this blocks until the writer has taken some: waiting
    /// in a future instead would let a later commit of the same session overtake.
    pub fn push(&self, request: Request) {
        let mut state = self.lock();
        while state.changes >= self.changes_max && state.ended.is_none() {
            state = self.emptied.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match state.ended {
            Some(Ended::Closed) => request.fail(StoreError::Closed),
            Some(Ended::Poisoned) => request.fail(StoreError::Poisoned),
            None => {
                state.changes += request.changes();
                state.requests.push_back(request);
                if state.sleeps_until.is_some_and(|wanted| state.changes >= wanted) {
                    state.sleeps_until = None;
                    self.filled.notify_one();
                }
            }
        }
    }

    /// Everything that waits, up to about `changes_max` changes; `None` when the queue is closed and empty.
    pub fn take(&self, changes_max: usize, gather: Gather) -> Option<Vec<Request>> {
        let mut state = self.lock();
        while state.requests.is_empty() {
            if state.ended.is_some() {
                return None;
            }
            state.sleeps_until = Some(1);
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let expected = gather.changes.min(changes_max);
        if state.changes < expected {
            state.sleeps_until = Some(expected);
            let few = |state: &mut State| state.changes < expected && state.ended.is_none();
            let woken = self.filled.wait_timeout_while(state, gather.patience, few);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.sleeps_until = None;
        }
        let was_full = state.changes >= self.changes_max;
        let mut taken = Vec::with_capacity(state.requests.len().min(changes_max));
        let mut changes = 0;
        while let Some(request) = state.requests.front() {
            let more = request.changes();
            if changes > 0 && changes + more > changes_max {
                break;
            }
            changes += more;
            taken.extend(state.requests.pop_front());
        }
        state.changes -= changes;
        drop(state);
        if was_full {
            self.emptied.notify_all();
        }
        Some(taken)
    }

    /// Lets nobody in any more; what waits is still written.
    pub fn close(&self) {
        let mut state = self.lock();
        state.ended.get_or_insert(Ended::Closed);
        self.filled.notify_all();
        self.emptied.notify_all();
    }

    /// After a failed write: whoever waits, and whoever comes, is told.
    pub fn poison(&self) {
        let waiting = {
            let mut state = self.lock();
            state.ended = Some(Ended::Poisoned);
            state.changes = 0;
            std::mem::take(&mut state.requests)
        };
        self.emptied.notify_all();
        for request in waiting {
            request.fail(StoreError::Poisoned);
        }
    }

    /// The writer is gone: what should still wait was not written, and nothing more will be.
    pub fn end(&self) {
        let closed = matches!(self.lock().ended, Some(Ended::Closed));
        self.poison();
        if closed {
            self.lock().ended = Some(Ended::Closed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
