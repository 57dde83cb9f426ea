//! Calls with the same dedupe key: which of them runs, and which wait for it.
//!
//! While one of them is open no other with its key runs: the others queue behind it, hold nothing, and get
//! its result once that is durable. After that, the mark of the key in the store points to the call that ran
//! last.

use crate::api::locks::{LockRank, OrderedMutex};
use crate::session::batch::{CallDemand, DemandReach, HeardDemand};
use crate::session::held::{EndedCall, Held};
use crate::session::inner::Inner;
use crate::session::owner::Session;
use std::collections::{BTreeSet, HashMap, hash_map};
use std::sync::Arc;
use windlass_core::call::{End, Role};
use windlass_core::ids::{CallId, Mark};

/// The open calls of a session with a dedupe key, by key.
#[derive(Default)]
pub(crate) struct Firsts(OrderedMutex<HashMap<Mark, FollowerLine>, { LockRank::Firsts as u8 }>);

struct FollowerLine {
    first: CallId,
    /// In the order of their requests, which is the same after a restart.
    followers: BTreeSet<CallId>,
}

/// The standing of a call among its duplicates.
pub(crate) enum DedupeStanding {
    /// No other is open; later ones queue behind it.
    Alone,
    /// It was a follower, and the one before it did not take effect.
    First,
    /// It is behind this one.
    Behind(CallId),
}

/// The end of a call that others duplicate.
#[derive(Debug)]
pub(crate) struct SharedEnd {
    /// The call that ran.
    pub(crate) first: CallId,
    pub(crate) end: End,
}

/// The fate of a finished call's followers.
enum FollowerNext {
    Nothing,
    /// They get its answer.
    Answered(BTreeSet<CallId>),
    /// This one runs, and the others queue behind it.
    First(CallId),
}

impl Firsts {
    /// Finds the place of a call.
    pub(crate) fn stand(&self, mark: Mark, call: CallId) -> DedupeStanding {
        match self.0.lock().entry(mark) {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(FollowerLine { first: call, followers: BTreeSet::new() });
                DedupeStanding::Alone
            }
            hash_map::Entry::Occupied(line) if line.get().first == call => DedupeStanding::First,
            hash_map::Entry::Occupied(mut line) => {
                line.get_mut().followers.insert(call);
                DedupeStanding::Behind(line.get().first)
            }
        }
    }

    /// Registers a call that an earlier owner left as the first of its key.
    pub(crate) fn register_first(&self, held: &Held) {
        if let Some(dedupe) = held.call.dedupe.as_ref().filter(|dedupe| dedupe.role == Role::First) {
            let line = FollowerLine { first: held.id, followers: BTreeSet::new() };
            self.0.lock().insert(dedupe.same.mark, line);
        }
    }

    /// Whether there is no call with a key.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The call that the others of this key wait for.
    pub(crate) fn first(&self, mark: Mark) -> Option<CallId> {
        self.0.lock().get(&mark).map(|line| line.first)
    }

    /// A call is over, or no longer has this key.
    fn leave(&self, mark: Mark, call: CallId, stands: bool) -> FollowerNext {
        let mut lines = self.0.lock();
        let Some(line) = lines.get_mut(&mark) else { return FollowerNext::Nothing };
        if line.first != call {
            line.followers.remove(&call);
            return FollowerNext::Nothing;
        }
        let next = if stands { None } else { line.followers.pop_first() };
        match next {
            Some(next) => {
                line.first = next;
                FollowerNext::First(next)
            }
            None => lines
                .remove(&mark)
                .map_or(FollowerNext::Nothing, |line| FollowerNext::Answered(line.followers)),
        }
    }
}

/// Messages for calls.
pub(crate) type FollowerNews = Vec<(CallId, CallDemand)>;

/// The messages about calls whose ends are durable.
pub(crate) fn ended(session: &Session, ended: &[EndedCall]) -> FollowerNews {
    let mut told = FollowerNews::new();
    for EndedCall { id, call, .. } in ended {
        let (Some(dedupe), Some(end)) = (&call.dedupe, call.end()) else { continue };
        match session.firsts.leave(dedupe.same.mark, *id, end.stands()) {
            FollowerNext::Nothing => {}
            FollowerNext::First(next) => told.push((next, CallDemand::Look)),
            FollowerNext::Answered(followers) if followers.is_empty() => {}
            FollowerNext::Answered(followers) => {
                let first = call.same_as().unwrap_or(*id);
                let answer = Arc::new(SharedEnd { first, end: end.clone() });
                told.extend(followers.into_iter().map(|call| (call, CallDemand::Same(answer.clone()))));
            }
        }
    }
    told
}

/// A call was prepared again, and no longer has this mark: its duplicates do not wait for it.
pub(crate) fn withdraw(held: &Held, mark: Mark) {
    let (rt, session) = (&held.on.rt, &held.on.session);
    if let FollowerNext::First(next) = session.firsts.leave(mark, held.id, false) {
        tell(rt, session, vec![(next, CallDemand::Look)]);
    }
}

/// Delivers messages, and wakes waiting calls. A call that is just about to wait receives its message then.
pub(crate) fn tell(rt: &Arc<Inner>, session: &Arc<Session>, told: FollowerNews) {
    for (call, what) in told {
        let Some(batch) = session.find_no(call.batch) else { continue };
        if batch.ask(call.ordinal, HeardDemand { what, ack: None }) == DemandReach::Parked {
            session.wake(rt, call);
        }
    }
}
