//! Calls that are the same by their tool's dedupe key: which of them runs, and which wait for it.
//!
//! While one of them is open nobody else with its key runs: the others stand behind it, hold nothing, and are told how
//! it ended once that is durable. What they are not told here is in the store: the mark of the key is at the call that
//! ran last.

use crate::batch::{Asked, Heard, Reached};
use crate::held::{Ended, Held};
use crate::runtime::Inner;
use crate::session::Session;
use std::collections::{BTreeSet, HashMap, hash_map};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_core::call::{End, Role};
use windlass_core::ids::{CallId, Mark};

/// The open calls of a session that have a dedupe key, by that.
#[derive(Default)]
pub(crate) struct Firsts(Mutex<HashMap<Mark, Line>>);

struct Line {
    first: CallId,
    /// In the order in which they were asked for, which is the same after a restart.
    followers: BTreeSet<CallId>,
}

/// Where a call stands among those that are the same.
pub(crate) enum Standing {
    /// No other is open; those that come now stand behind it.
    Alone,
    /// It was a follower, and the one before it did not take effect.
    First,
    /// Behind this one.
    Behind(CallId),
}

/// How a call ended that others are the same as.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The one that ran.
    pub(crate) first: CallId,
    pub(crate) end: End,
}

/// What becomes of the followers of a call that is over.
enum Next {
    Nothing,
    /// They get its answer.
    Answered(BTreeSet<CallId>),
    /// This one runs, and the others stand behind it.
    First(CallId),
}

impl Firsts {
    /// Finds the place of a call.
    pub(crate) fn stand(&self, mark: Mark, call: CallId) -> Standing {
        match self.lock().entry(mark) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(Line { first: call, followers: BTreeSet::new() });
                Standing::Alone
            }
            hash_map::Entry::Occupied(line) if line.get().first == call => Standing::First,
            hash_map::Entry::Occupied(mut line) => {
                line.get_mut().followers.insert(call);
                Standing::Behind(line.get().first)
            }
        }
    }

    /// A call that an earlier owner left goes on as the first of its key.
    pub(crate) fn take_over(&self, held: &Held) {
        if let Some(dedupe) = held.call.dedupe.as_ref().filter(|dedupe| dedupe.role == Role::First) {
            let line = Line { first: held.id, followers: BTreeSet::new() };
            self.lock().insert(dedupe.same.mark, line);
        }
    }

    /// Whether none has a key.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Whom the others of this key wait for.
    pub(crate) fn first(&self, mark: Mark) -> Option<CallId> {
        self.lock().get(&mark).map(|line| line.first)
    }

    /// A call is over, or the same as others no more.
    fn leave(&self, mark: Mark, call: CallId, stands: bool) -> Next {
        let mut lines = self.lock();
        let Some(line) = lines.get_mut(&mark) else { return Next::Nothing };
        if line.first != call {
            line.followers.remove(&call);
            return Next::Nothing;
        }
        let next = if stands { None } else { line.followers.pop_first() };
        match next {
            Some(next) => {
                line.first = next;
                Next::First(next)
            }
            None => lines.remove(&mark).map_or(Next::Nothing, |line| Next::Answered(line.followers)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Mark, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What calls are to be told.
pub(crate) type Told = Vec<(CallId, Asked)>;

/// What others are to be told of calls whose ends are durable.
pub(crate) fn ended(session: &Session, ended: &[Ended]) -> Told {
    let mut told = Told::new();
    for Ended { id, call, .. } in ended {
        let (Some(dedupe), Some(end)) = (&call.dedupe, call.end()) else { continue };
        match session.firsts.leave(dedupe.same.mark, *id, end.stands()) {
            Next::Nothing => {}
            Next::First(next) => told.push((next, Asked::Look)),
            Next::Answered(followers) if followers.is_empty() => {}
            Next::Answered(followers) => {
                let first = call.same_as().unwrap_or(*id);
                let answer = Arc::new(Answer { first, end: end.clone() });
                told.extend(followers.into_iter().map(|call| (call, Asked::Same(answer.clone()))));
            }
        }
    }
    told
}

/// A call was prepared anew, and has no longer this mark: others that have it do not wait for it.
pub(crate) fn withdraw(held: &Held, mark: Mark) {
    let (rt, session) = (&held.on.rt, &held.on.session);
    if let Next::First(next) = session.firsts.leave(mark, held.id, false) {
        tell(rt, session, vec![(next, Asked::Look)]);
    }
}

/// Tells calls, and wakes those that wait. Whoever is just about to wait hears it when it does.
pub(crate) fn tell(rt: &Arc<Inner>, session: &Arc<Session>, told: Told) {
    for (call, what) in told {
        let Some(batch) = session.find_no(call.batch) else { continue };
        if batch.ask(call.ordinal, Heard { what, ack: None }) == Reached::Parked {
            session.wake(rt, call);
        }
    }
}
