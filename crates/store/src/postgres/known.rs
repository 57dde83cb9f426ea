//! Look-ups of the sessions that this process opened or took, and still owns: for its owner a batch that is not among them is
//! new, and asking the database would cost a round trip for every new batch.
//!
//! Only a session's owner adds batches to it. Those of a session that this process takes are read once the taking is durable:
//! from then on nobody else adds any. An owner that lost its session without noticing may take a recorded batch for a new one;
//! but nothing of it can be committed under the old fence.

use crate::change::{Change, Hold, Row, SessionChange};
use crate::queue::{WriteOutcome, WriteRequest};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use windlass_core::ids::{Fence, Lookup, SessionNo};

/// The fence of a session that nobody took since it was opened.
const OPENED: Fence = Fence(1);

/// The look-ups that are kept in all: about 32 bytes each.
const LOOKUPS_MAX: usize = 1 << 20;
/// The look-ups that are read of a session that is taken; one that has more is asked for each.
pub(super) const TAKEN_LOOKUPS_MAX: usize = 1 << 14;

/// The sessions of which every batch is known.
#[derive(Default)]
pub(super) struct KnownSessions(Mutex<KnownLookups>);

#[derive(Default)]
struct KnownLookups {
    sessions: HashMap<SessionNo, KnownSession>,
    count: usize,
}

/// A session of which every batch is known.
struct KnownSession {
    /// The fence under which this process owns it.
    fence: Fence,
    lookups: HashSet<Lookup>,
}

/// A session that was taken under this fence.
#[derive(Clone, Copy)]
pub(super) struct TakenSession {
    pub session: SessionNo,
    pub fence: Fence,
}

impl KnownSessions {
    /// Whether no batch of this session, held under this fence, has this look-up.
    pub fn is_new(&self, session: SessionNo, fence: Fence, lookup: Lookup) -> bool {
        let is_new = |known: &KnownSession| known.fence == fence && !known.lookups.contains(&lookup);
        self.lock().sessions.get(&session).is_some_and(is_new)
    }

    /// Notes a group that is durable, before it is answered. Returns the sessions it took, to be [learned](KnownSessions::learn).
    pub fn note(&self, group: &[WriteRequest], outcomes: &[WriteOutcome]) -> Vec<TakenSession> {
        let (mut known, mut taken) = (self.lock(), Vec::new());
        for (request, outcome) in group.iter().zip(outcomes) {
            match (request, outcome) {
                (WriteRequest::Commit { changes, .. }, WriteOutcome::Commit(answers)) => {
                    let applied = changes.iter().zip(answers).filter(|(_, answer)| answer.is_ok());
                    applied.for_each(|(change, _)| match change {
                        Change::Session(change) => taken.extend(known.note(change)),
                        Change::Record(_) => {}
                    });
                }
                (WriteRequest::Remove { piece, .. }, _) => known.forget(piece.session),
                _ => {}
            }
        }
        taken
    }

    /// Notes all look-ups of a session that was taken, before the group that took it is answered.
    pub fn learn(&self, taken: TakenSession, lookups: HashSet<Lookup>) {
        let mut known = self.lock();
        known.forget(taken.session);
        known.count += lookups.len();
        known.sessions.insert(taken.session, KnownSession { fence: taken.fence, lookups });
        known.bound();
    }

    fn lock(&self) -> MutexGuard<'_, KnownLookups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownLookups {
    fn note(&mut self, change: &SessionChange) -> Option<TakenSession> {
        let session = change.session;
        let taken = match &change.hold {
            Hold::Open { .. } => {
                self.forget(session);
                self.sessions.insert(session, KnownSession { fence: OPENED, lookups: HashSet::new() });
                None
            }
            Hold::Take { to, .. } => {
                self.forget(session);
                Some(TakenSession { session, fence: *to })
            }
            Hold::Held(_) => None,
        };
        for row in &change.rows {
            if let Row::Batch { lookup, .. } = row
                && let Some(known) = self.sessions.get_mut(&session)
                && known.lookups.insert(*lookup)
            {
                self.count += 1;
            }
        }
        self.bound();
        taken
    }

    fn bound(&mut self) {
        if self.count > LOOKUPS_MAX {
            // Whatever is needed is asked for from now on, and new sessions are known again.
            *self = KnownLookups::default();
        }
    }

    fn forget(&mut self, session: SessionNo) {
        self.count -= self.sessions.remove(&session).map_or(0, |known| known.lookups.len());
    }
}
