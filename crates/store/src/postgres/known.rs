//! Look-ups of the sessions that this process opened and still owns: for its owner a batch that is not among them is new, and
//! asking the database would cost a round trip for every new batch.
//!
//! Only a session's owner adds batches to it. A session that this process takes, be it again, is forgotten here, and its
//! look-ups are asked for. An owner that lost its session without noticing may take a recorded batch for a new one; but
//! nothing of it can be committed under the old fence.

use crate::change::{Change, Hold, Row, SessionChange};
use crate::queue::{WriteOutcome, WriteRequest};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use windlass_core::ids::{Fence, Lookup, SessionNo};

/// The fence of a session that nobody took since it was opened.
const OPENED: Fence = Fence(1);

/// The look-ups that are kept in all: about 32 bytes each.
const LOOKUPS_MAX: usize = 1 << 20;

/// The sessions of which every batch is known.
#[derive(Default)]
pub(super) struct KnownSessions(Mutex<KnownLookups>);

#[derive(Default)]
struct KnownLookups {
    sessions: HashMap<SessionNo, HashSet<Lookup>>,
    count: usize,
}

impl KnownSessions {
    /// Whether no batch of this session, held under this fence, has this look-up.
    pub fn is_new(&self, session: SessionNo, fence: Fence, lookup: Lookup) -> bool {
        fence == OPENED && self.lock().sessions.get(&session).is_some_and(|known| !known.contains(&lookup))
    }

    /// Notes a group that is durable, before it is answered.
    pub fn note(&self, group: &[WriteRequest], outcomes: &[WriteOutcome]) {
        let mut known = self.lock();
        for (request, outcome) in group.iter().zip(outcomes) {
            match (request, outcome) {
                (WriteRequest::Commit { changes, .. }, WriteOutcome::Commit(answers)) => {
                    let applied = changes.iter().zip(answers).filter(|(_, answer)| answer.is_ok());
                    applied.for_each(|(change, _)| match change {
                        Change::Session(change) => known.note(change),
                        Change::Record(_) => {}
                    });
                }
                (WriteRequest::Remove { piece, .. }, _) => known.forget(piece.session),
                _ => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, KnownLookups> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownLookups {
    fn note(&mut self, change: &SessionChange) {
        match &change.hold {
            Hold::Open { .. } => {
                self.forget(change.session);
                self.sessions.insert(change.session, HashSet::new());
            }
            Hold::Take { .. } => self.forget(change.session),
            Hold::Held(_) => {}
        }
        for row in &change.rows {
            if let Row::Batch { lookup, .. } = row
                && let Some(known) = self.sessions.get_mut(&change.session)
                && known.insert(*lookup)
            {
                self.count += 1;
            }
        }
        if self.count > LOOKUPS_MAX {
            // Whatever is needed is asked for from now on, and new sessions are known again.
            *self = KnownLookups::default();
        }
    }

    fn forget(&mut self, session: SessionNo) {
        self.count -= self.sessions.remove(&session).map_or(0, |known| known.len());
    }
}
