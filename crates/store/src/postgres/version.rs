//! Versions of sessions, and those that a lane knows.
//!
//! A version is the state of a session after a group. A writer appends the version after the last one, and the key refuses it if
//! another writer did so first. A lane may append without reading only where nobody but a taker can have come in between: to a
//! session whose last known version it wrote itself, under the fence that the change carries. The versions of takers are never
//! deleted, so the first version that a former owner tries is there for ever.

use crate::chain::{ChainLink, START};
use crate::queue::WriteRequest;
use crate::{Change, SessionChange};
use std::collections::HashMap;

/// The sessions of which a lane knows the last version; above this all are forgotten and read again.
const SESSIONS_KNOWN_MAX: usize = 16_384;

/// Old versions of a session are deleted when its version reaches a multiple of this.
pub(super) const VERSIONS_KEPT: u64 = 256;

/// The state of a session after a group, and its number.
#[derive(Clone, Copy)]
pub(super) struct SessionVersion {
    /// From 1.
    pub version: u64,
    /// Its owner's fence.
    pub fence: u64,
    /// Its last entry.
    pub head: u64,
    /// The link of the row of that entry.
    pub chain: ChainLink,
    /// The generation of the last record it put.
    pub generation: u64,
}

impl SessionVersion {
    /// A session that is opened, before its first version.
    pub const OPENED: SessionVersion =
        SessionVersion { version: 0, fence: 1, head: 0, chain: START, generation: 0 };
}

/// The last versions that a lane wrote.
#[derive(Default)]
pub(super) struct KnownVersions(HashMap<i64, SessionVersion>);

impl KnownVersions {
    /// The last version of a session, as far as this lane knows.
    pub fn get(&self, session: i64) -> Option<SessionVersion> {
        self.0.get(&session).copied()
    }

    /// Notes the versions of a group that is durable.
    pub fn note(&mut self, versions: Vec<(i64, SessionVersion)>) {
        if self.0.len() + versions.len() > SESSIONS_KNOWN_MAX {
            self.0.clear();
        }
        self.0.extend(versions);
    }

    /// Forgets the sessions of a group, before they are read.
    pub fn forget(&mut self, group: &[WriteRequest]) {
        for request in group {
            match request {
                WriteRequest::Commit { changes, .. } => {
                    changes.iter().for_each(|change| match change {
                        Change::Session(SessionChange { session, .. }) => {
                            self.0.remove(&session.0.cast_signed());
                        }
                        Change::Record(_) => {}
                    });
                }
                WriteRequest::Remove { piece, .. } => {
                    self.0.remove(&piece.session.0.cast_signed());
                }
                WriteRequest::Post { .. } | WriteRequest::OwnFile { .. } | WriteRequest::Shrink { .. } => {}
            }
        }
    }
}
