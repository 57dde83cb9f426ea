//! The queue of a writer, for any database. Its order is the order in which `commit` was called, so the
//! caller fills it and not a future that may be polled late.

use crate::change::{Change, Receipt, Refused};
use crate::sqlite::RemovalRest;
use crate::{Inbound, Original, Posted, Removal, Removed, StoreError};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// A commit that takes so long is slow: callers come back sooner.
const SLOW_COMMIT: Duration = Duration::from_millis(2);

/// The maximum wait for callers that were just answered.
const GATHER_MAX: Duration = Duration::from_millis(1);

/// A group of this many requests is a crowd: waiting for as many again costs no single caller anything.
const CROWD: usize = 3;

/// A commit costs the processor about as much as this many changes, so there is little to gain by waiting for more.
const CROWD_CHANGES: usize = 16;

/// A disk that takes longer for a commit is waited for by the writer's thread only: a caller's thread has other tasks.
const LED_MAX: Duration = Duration::from_millis(1);

/// The maximum wait for a crowd where commits are fast: a fraction of what its calls take anyway.
const CROWD_GATHER: Duration = Duration::from_micros(600);

/// The receiver of the answer.
pub(crate) type WriteReply<T> = oneshot::Sender<Result<T, StoreError>>;

/// A request to write.
pub(crate) enum WriteRequest {
    Commit {
        changes: Vec<Change>,
        reply: WriteReply<Vec<Result<Receipt, Refused>>>,
    },
    Post {
        message: Inbound,
        reply: WriteReply<Posted>,
    },
    /// `rest`: what to remove of the session too, if nothing else is left of it.
    Remove {
        piece: Removal,
        rest: RemovalRest,
        reply: WriteReply<Result<Removed, Refused>>,
    },
    /// Returns free pages to the file system.
    Shrink {
        pages: u64,
        reply: WriteReply<bool>,
    },
    /// Records that the store belongs to the file it was opened in.
    OwnFile {
        original: Original,
        reply: WriteReply<()>,
    },
}

/// The answer to a request of a group, once the group is durable.
pub(crate) enum WriteOutcome {
    Commit(Vec<Result<Receipt, Refused>>),
    Post(Posted),
    Remove(Result<Removed, Refused>),
    Shrink(bool),
    OwnFile,
}

impl WriteRequest {
    /// Answers with the outcome.
    pub fn answer(self, told: WriteOutcome) {
        // The caller may be gone; the write is durable all the same.
        match (self, told) {
            (WriteRequest::Commit { reply, .. }, WriteOutcome::Commit(receipts)) => {
                drop(reply.send(Ok(receipts)))
            }
            (WriteRequest::Post { reply, .. }, WriteOutcome::Post(posted)) => drop(reply.send(Ok(posted))),
            (WriteRequest::Remove { reply, .. }, WriteOutcome::Remove(removed)) => {
                drop(reply.send(Ok(removed)))
            }
            (WriteRequest::Shrink { reply, .. }, WriteOutcome::Shrink(more)) => drop(reply.send(Ok(more))),
            (WriteRequest::OwnFile { reply, .. }, WriteOutcome::OwnFile) => drop(reply.send(Ok(()))),
            (request, _) => request.fail(poisoned("it answered something else".into())),
        }
    }

    /// Answers with an error.
    pub fn fail(self, error: StoreError) {
        // The caller may be gone; then nobody needs the answer.
        match self {
            WriteRequest::Commit { reply, .. } => drop(reply.send(Err(error))),
            WriteRequest::Post { reply, .. } => drop(reply.send(Err(error))),
            WriteRequest::Remove { reply, .. } => drop(reply.send(Err(error))),
            WriteRequest::Shrink { reply, .. } => drop(reply.send(Err(error))),
            WriteRequest::OwnFile { reply, .. } => drop(reply.send(Err(error))),
        }
    }

    pub fn changes(&self) -> usize {
        match self {
            WriteRequest::Commit { changes, .. } => changes.len().max(1),
            WriteRequest::Post { .. } | WriteRequest::Remove { .. } => 1,
            WriteRequest::Shrink { .. } | WriteRequest::OwnFile { .. } => 1,
        }
    }
}

/// Whom the writer waits for before it writes. A caller that was just answered often writes again at once: a
/// call whose intent is durable, its end. Writing the first of them alone makes all others wait for two
/// commits, which is worse than waiting for them where a commit takes long.
#[derive(Clone, Copy, Default)]
pub(crate) struct Gather {
    /// The number of expected changes.
    pub changes: usize,
    /// The maximum wait for them.
    pub patience: Duration,
    /// Whether the last group was that of a single caller on a fast disk: the next one may write in the writer's place while the
    /// writer sleeps, which saves two changes of threads.
    pub lone: bool,
}

impl Gather {
    /// Whom to wait for after a group whose commit took so long. If that is long, for all callers that are now
    /// answered, since they come back soon, in time for the next commit. If it is short, for a part of a crowd: commits of a
    /// few changes each would cost the processors more than the changes do. A single caller is never waited for.
    pub fn after(group: &[WriteRequest], took: Duration) -> Gather {
        let changes = group.iter().map(WriteRequest::changes).sum();
        if took >= SLOW_COMMIT {
            Gather { changes, patience: (took / 4).min(GATHER_MAX), lone: false }
        } else if group.len() >= CROWD {
            Gather { changes: changes.min(CROWD_CHANGES), patience: CROWD_GATHER, lone: false }
        } else {
            Gather { lone: group.len() == 1 && took < LED_MAX, ..Gather::default() }
        }
    }
}

/// The queue of the writer.
pub(crate) struct WriteQueue {
    state: Mutex<QueueState>,
    filled: Condvar,
    emptied: Condvar,
    changes_max: usize,
    when_full: WhenFull,
}

/// The fate of a request that does not fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    /// Its caller waits: the writer is on this machine, and takes some soon.
    Waits,
    /// It is refused: the writer depends on another machine, and nothing may stand still with it.
    #[cfg(feature = "postgres")]
    Refused,
}

#[derive(Default)]
struct QueueState {
    requests: VecDeque<WriteRequest>,
    changes: usize,
    /// The writer sleeps until this many changes wait.
    sleeps_until: Option<usize>,
    /// A caller may write in the sleeping writer's place.
    lone: bool,
    /// A caller writes in the sleeping writer's place.
    led: bool,
    /// The group of a caller that wrote has failed: the writer finds out what became of it.
    failed: bool,
    /// The reason why the writer cannot write now.
    stalled: Option<Arc<str>>,
    ended: Option<QueueEnd>,
}

enum QueueEnd {
    Closed,
    Poisoned(Arc<str>),
}

fn poisoned(because: Arc<str>) -> StoreError {
    StoreError::Poisoned { because }
}

impl WriteQueue {
    /// A queue for about this many changes. Whoever fills it waits.
    pub fn new(changes_max: usize) -> WriteQueue {
        WriteQueue::with(changes_max, WhenFull::Waits)
    }

    /// A queue for about this many changes that never blocks: requests that do not fit are refused.
    #[cfg(feature = "postgres")]
    pub fn refusing(changes_max: usize) -> WriteQueue {
        WriteQueue::with(changes_max, WhenFull::Refused)
    }

    fn with(changes_max: usize, when_full: WhenFull) -> WriteQueue {
        let (filled, emptied) = (Condvar::new(), Condvar::new());
        WriteQueue { state: Mutex::default(), filled, emptied, changes_max, when_full }
    }

    /// Appends a request. When the queue is full this blocks until the writer has taken some, unless it refuses: waiting in a
    /// future instead would let a later commit of the same session overtake. While the writer is stalled
    /// nobody is blocked, since that may last: requests that do not fit are refused.
    pub fn push(&self, request: WriteRequest) {
        let mut state = self.append(request);
        self.wake(&mut state);
    }

    /// Appends a request whose caller may write it itself: it calls [`lead`](WriteQueue::lead), or [`attend`](WriteQueue::attend)
    /// if it does not wait for the answer.
    pub fn push_to_lead(&self, request: WriteRequest) {
        let mut state = self.append(request);
        if !state.lone {
            self.wake(&mut state);
        }
    }

    /// Wakes the writer if it sleeps and something waits for it.
    pub fn attend(&self) {
        self.wake(&mut self.lock());
    }

    /// The group that the caller writes in the sleeping writer's place, if it may; otherwise the writer is woken. Whoever gets a
    /// group calls [`led`](WriteQueue::led).
    pub fn lead(&self, changes_max: usize) -> Option<Vec<WriteRequest>> {
        let mut state = self.lock();
        let may = state.lone && !state.led && state.sleeps_until.is_some() && state.ended.is_none();
        if !may || state.requests.is_empty() {
            self.wake(&mut state);
            return None;
        }
        state.led = true;
        Some(self.drain(state, changes_max))
    }

    /// The caller has written its group; `lone`: so may the next one. The writer goes on if more has come.
    pub fn led(&self, lone: bool) {
        let mut state = self.lock();
        state.led = false;
        state.lone = lone && state.requests.is_empty();
        self.wake(&mut state);
    }

    /// The caller could not write its group, and leaves it to the writer.
    pub fn led_in_vain(&self) {
        let mut state = self.lock();
        (state.led, state.lone, state.failed) = (false, false, true);
        self.wake(&mut state);
    }

    fn append(&self, request: WriteRequest) -> MutexGuard<'_, QueueState> {
        let mut state = self.lock();
        let is_full = |state: &QueueState| state.changes >= self.changes_max;
        while is_full(&state)
            && state.ended.is_none()
            && state.stalled.is_none()
            && self.when_full == WhenFull::Waits
        {
            // Nobody may lead what waits.
            self.wake(&mut state);
            state = self.emptied.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let full = is_full(&state);
        match (&state.ended, &state.stalled) {
            (Some(QueueEnd::Closed), _) => request.fail(StoreError::Closed),
            (Some(QueueEnd::Poisoned(because)), _) => request.fail(poisoned(because.clone())),
            (None, Some(because)) if full => request.fail(StoreError::Stalled { because: because.clone() }),
            (None, None) if full => {
                request.fail(StoreError::Stalled { because: "writes come faster than it takes them".into() })
            }
            (None, _) => {
                state.changes += request.changes();
                state.requests.push_back(request);
            }
        }
        state
    }

    /// Wakes the writer if it sleeps, nobody writes in its place, and there is something to do.
    fn wake(&self, state: &mut QueueState) {
        let due = state.sleeps_until.is_some_and(|wanted| state.changes >= wanted);
        if !state.led && (due || state.failed || state.ended.is_some()) {
            state.sleeps_until = None;
            self.filled.notify_one();
        }
    }

    /// Takes all pending requests, up to about `changes_max` changes; `None` when the queue is closed and empty. Empty if
    /// [a caller's group has failed](WriteQueue::led_in_vain).
    pub fn take(&self, changes_max: usize, gather: Gather) -> Option<Vec<WriteRequest>> {
        let mut state = self.lock();
        state.lone = gather.lone && state.requests.is_empty();
        while state.led || state.requests.is_empty() {
            if !state.led && std::mem::take(&mut state.failed) {
                return Some(Vec::new());
            }
            if !state.led && state.ended.is_some() {
                return None;
            }
            state.sleeps_until = Some(1);
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (state.sleeps_until, state.lone) = (None, false);
        Some(self.gathered(state, changes_max, gather))
    }

    /// Takes what comes within the patience for a crowd; `None` if nothing does.
    pub fn take_soon(&self, changes_max: usize, gather: Gather) -> Option<Vec<WriteRequest>> {
        let mut state = self.lock();
        if state.requests.is_empty() && gather.changes > 0 {
            state.sleeps_until = Some(1);
            let none = |state: &mut QueueState| state.requests.is_empty() && state.ended.is_none();
            let woken = self.filled.wait_timeout_while(state, gather.patience, none);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.sleeps_until = None;
        }
        (!state.requests.is_empty()).then(|| self.gathered(state, changes_max, gather))
    }

    /// Waits for the rest of a crowd, and takes what has come.
    fn gathered(
        &self,
        mut state: MutexGuard<'_, QueueState>,
        changes_max: usize,
        gather: Gather,
    ) -> Vec<WriteRequest> {
        let expected = gather.changes.min(changes_max);
        if state.changes < expected {
            state.sleeps_until = Some(expected);
            let few = |state: &mut QueueState| state.changes < expected && state.ended.is_none();
            let woken = self.filled.wait_timeout_while(state, gather.patience, few);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.sleeps_until = None;
        }
        self.drain(state, changes_max)
    }

    /// Takes pending requests, up to about `changes_max` changes.
    fn drain(&self, mut state: MutexGuard<'_, QueueState>, changes_max: usize) -> Vec<WriteRequest> {
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
        taken
    }

    /// Sets the reason why the writer cannot write; `None`: it can again.
    pub fn stall(&self, because: Option<Arc<str>>) {
        self.lock().stalled = because;
        self.emptied.notify_all();
    }

    /// Waits until the queue is closed, at most `wait`. Returns whether it is.
    pub fn is_closed_within(&self, wait: Duration) -> bool {
        let state = self.lock();
        let woken = self.filled.wait_timeout_while(state, wait, |state| state.ended.is_none());
        woken.unwrap_or_else(PoisonError::into_inner).0.ended.is_some()
    }

    /// Closes the queue to new requests; pending ones are still written.
    pub fn close(&self) {
        let mut state = self.lock();
        state.ended.get_or_insert(QueueEnd::Closed);
        self.filled.notify_all();
        self.emptied.notify_all();
    }

    /// After a failed write: fails pending and future requests.
    pub fn poison(&self, because: &Arc<str>) {
        let waiting = {
            let mut state = self.lock();
            state.ended = Some(QueueEnd::Poisoned(because.clone()));
            state.changes = 0;
            std::mem::take(&mut state.requests)
        };
        self.emptied.notify_all();
        for request in waiting {
            request.fail(poisoned(because.clone()));
        }
    }

    /// The writer is gone: requests that still wait were not written, and none will be.
    pub fn end(&self) {
        let closed = matches!(self.lock().ended, Some(QueueEnd::Closed));
        // A poisoned queue has already answered.
        if !matches!(self.lock().ended, Some(QueueEnd::Poisoned(_))) {
            self.poison(&"its writer is gone".into());
        }
        if closed {
            self.lock().ended = Some(QueueEnd::Closed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Held by the thread of a writer: however that ends, panics included, nobody may wait for a dead writer.
pub(crate) struct EndOnDrop<'a>(pub &'a WriteQueue);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Fails all requests of a group with one error.
pub(crate) fn fail_group<E>(group: Vec<WriteRequest>, error: E)
where
    E: std::error::Error + Send + Sync + 'static,
{
    let error = Arc::new(error);
    for request in group {
        request.fail(StoreError::Io { doing: "write", source: Box::new(GroupFailure(Arc::clone(&error))) });
    }
}

/// One failure, shared by all requests of the group.
#[derive(Debug)]
struct GroupFailure<E>(Arc<E>);

impl<E: std::fmt::Display> std::fmt::Display for GroupFailure<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: std::error::Error + 'static> std::error::Error for GroupFailure<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit() -> WriteRequest {
        WriteRequest::Commit { changes: Vec::new(), reply: oneshot::channel().0 }
    }

    #[test]
    fn callers_are_waited_for_where_commits_are_slow() {
        let group = [commit(), commit()];
        for (took_ms, changes, patience_ms) in
            [(0, 0, 0), (1, 0, 0), (2, 2, 0), (3, 2, 0), (4, 2, 1), (99, 2, 1)]
        {
            let gather = Gather::after(&group, Duration::from_millis(took_ms));
            let patience = gather.patience.as_millis();
            assert_eq!((gather.changes, patience), (changes, patience_ms), "{took_ms} ms");
        }
    }

    #[test]
    fn a_crowd_is_waited_for_and_nobody_alone() {
        for (requests, changes) in [(1, 0), (2, 0), (3, 3), (16, 16), (64, 16)] {
            let group: Vec<WriteRequest> = (0..requests).map(|_| commit()).collect();
            let gather = Gather::after(&group, Duration::from_micros(150));
            assert_eq!(gather.changes, changes, "{requests} requests");
            assert_eq!(gather.patience > Duration::ZERO, changes > 0, "{requests} requests");
        }
    }
}
