//! What waits for a writer, whichever database it writes to. Its order is the order in which `commit` was called, so it is filled by the
//! caller and not by a future that may be polled late.

use crate::change::{Change, Receipt, Refused};
use crate::{Inbound, Posted, Removal, Removed, StoreError};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use windlass_core::ids::Mark;

/// To whom the answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// One thing to be written.
pub(crate) enum Request {
    Commit {
        changes: Vec<Change>,
        reply: Reply<Vec<Result<Receipt, Refused>>>,
    },
    Post {
        message: Inbound,
        reply: Reply<Posted>,
    },
    /// `marks`: those of the session that go too, if nothing else is left of it.
    Remove {
        piece: Removal,
        marks: Vec<Mark>,
        reply: Reply<Result<Removed, Refused>>,
    },
}

/// What a request of a group is told once the group is durable.
pub(crate) enum Told {
    Commit(Vec<Result<Receipt, Refused>>),
    Post(Posted),
    Remove(Result<Removed, Refused>),
}

impl Request {
    /// Answers with what was done.
    pub fn answer(self, told: Told) {
        // Whoever asked may be gone; what it asked for is durable all the same.
        match (self, told) {
            (Request::Commit { reply, .. }, Told::Commit(receipts)) => drop(reply.send(Ok(receipts))),
            (Request::Post { reply, .. }, Told::Post(posted)) => drop(reply.send(Ok(posted))),
            (Request::Remove { reply, .. }, Told::Remove(removed)) => drop(reply.send(Ok(removed))),
            (request, _) => request.fail(poisoned("it answered something else".into())),
        }
    }

    /// Answers with an error.
    pub fn fail(self, error: StoreError) {
        // Whoever asked may be gone; then nobody needs the answer.
        match self {
            Request::Commit { reply, .. } => drop(reply.send(Err(error))),
            Request::Post { reply, .. } => drop(reply.send(Err(error))),
            Request::Remove { reply, .. } => drop(reply.send(Err(error))),
        }
    }

    pub fn changes(&self) -> usize {
        match self {
            Request::Commit { changes, .. } => changes.len().max(1),
            Request::Post { .. } | Request::Remove { .. } => 1,
        }
    }
}

/// For whom the writer waits before it writes. Whoever was just answered has often more to say at once: a call
/// whose intent is durable, its end. To write the first of them alone makes all others wait for two commits, which is
/// worse than to wait for them where a commit takes long.
#[derive(Clone, Copy, Default)]
pub(crate) struct Gather {
    /// How many changes are expected.
    pub changes: usize,
    /// How long it waits for them.
    pub patience: Duration,
}

/// The queue in front of the writer.
pub(crate) struct Queue {
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

enum Ended {
    Closed,
    Poisoned(Arc<str>),
}

fn poisoned(because: Arc<str>) -> StoreError {
    StoreError::Poisoned { because }
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
        match &state.ended {
            Some(Ended::Closed) => request.fail(StoreError::Closed),
            Some(Ended::Poisoned(because)) => request.fail(poisoned(because.clone())),
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
    pub fn poison(&self, because: &Arc<str>) {
        let waiting = {
            let mut state = self.lock();
            state.ended = Some(Ended::Poisoned(because.clone()));
            state.changes = 0;
            std::mem::take(&mut state.requests)
        };
        self.emptied.notify_all();
        for request in waiting {
            request.fail(poisoned(because.clone()));
        }
    }

    /// The writer is gone: what should still wait was not written, and nothing more will be.
    pub fn end(&self) {
        let closed = matches!(self.lock().ended, Some(Ended::Closed));
        // One that failed before has said so.
        if !matches!(self.lock().ended, Some(Ended::Poisoned(_))) {
            self.poison(&"its writer is gone".into());
        }
        if closed {
            self.lock().ended = Some(Ended::Closed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by the thread of a writer: however that ends, a panic included, nobody may wait for a writer that is gone.
pub(crate) struct EndOnDrop<'a>(pub &'a Queue);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Tells everybody in a group that it failed, and why.
pub(crate) fn fail_group<E>(group: Vec<Request>, error: E)
where
    E: std::error::Error + Send + Sync + 'static,
{
    let error = Arc::new(error);
    for request in group {
        request.fail(StoreError::Io { doing: "write", source: Box::new(Shared(Arc::clone(&error))) });
    }
}

/// One failure, told to everybody in the group.
#[derive(Debug)]
struct Shared<E>(Arc<E>);

impl<E: std::fmt::Display> std::fmt::Display for Shared<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Shared<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}
