//! Gates of files: a session's files may be written until the session is removed.

use crate::api::locks::{LockRank, OrderedMutex, OrderedRwLock, ReadGuard};
use crate::session::inner::Inner;
use crate::session::owner::Session;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Lets the files of a session be written until the session is removed. Waiting for it means waiting for the
/// disk, as any writer does.
#[derive(Debug, Default)]
pub(crate) struct FileGate(OrderedRwLock<bool, { LockRank::FileGate as u8 }>);

impl FileGate {
    /// Held while a file is written. `None`: the session is removed.
    pub(super) fn enter(&self) -> Option<ReadGuard<'_, bool>> {
        let closed = self.0.read();
        (!*closed).then_some(closed)
    }

    /// Waits for current writers, and admits no more.
    pub(super) fn close(&self) {
        *self.0.write() = true;
    }
}

/// The gates of sessions, by name. A gate lives while it has writers, even when its session leaves memory and
/// is taken again.
#[derive(Default)]
pub(crate) struct FileGates(OrderedMutex<HashMap<String, Weak<FileGate>>, { LockRank::FileGates as u8 }>);

/// The number of gates remembered before unused ones are forgotten.
const GATES_MIN: usize = 256;

impl FileGates {
    /// The gate of the session of this name.
    pub(crate) fn of(&self, session: &str) -> Arc<FileGate> {
        let mut gates = self.0.lock();
        if let Some(gate) = gates.get(session).and_then(Weak::upgrade) {
            return gate;
        }
        if gates.len() >= GATES_MIN.max(gates.capacity() / 2) {
            gates.retain(|_, gate| gate.strong_count() > 0);
        }
        let gate = Arc::new(FileGate::default());
        gates.insert(session.to_string(), Arc::downgrade(&gate));
        gate
    }
}

/// The gate of a session: lets files be written until the session is removed.
pub(super) fn gate_of(rt: &Inner, session: &Session) -> Arc<FileGate> {
    let gates = rt.slots.of::<FileGates>();
    session.slots.of_or(|| gates.of(&session.name))
}
