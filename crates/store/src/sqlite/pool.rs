//! A few connections for reading, lent for one query at a time.

use super::file;
use super::identity::OpenFile;
use crate::StoreError;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// More would only compete for the processors.
const CONNECTIONS_MAX: usize = 4;

/// The connections that read.
pub(super) struct ReaderPool {
    path: PathBuf,
    /// The owner's file: a connection to another one would read another store.
    file: Option<OpenFile>,
    state: Mutex<PoolState>,
    returned: Condvar,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Connection>,
    lent: usize,
}

impl ReaderPool {
    /// A pool for this file; connections are opened at the first use.
    pub fn new(path: PathBuf, file: Option<OpenFile>) -> ReaderPool {
        ReaderPool { path, file, state: Mutex::default(), returned: Condvar::new() }
    }

    /// Runs a query on one of the connections.
    pub fn read<T>(
        &self,
        doing: &'static str,
        question: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, StoreError> {
        let mut lent = LentConnection { pool: self, conn: self.take() };
        let conn = match lent.conn.take() {
            Some(conn) => Ok(conn),
            None if let Some(Err(gone)) = self.file.as_ref().map(OpenFile::check) => {
                return Err(gone.reading(doing));
            }
            None => file::connect_reader(&self.path),
        };
        conn.and_then(|conn| question(lent.conn.insert(conn)))
            .map_err(|error| StoreError::Io { doing, source: Box::new(error) })
    }

    /// Takes the right to use a connection, and an idle one if there is one.
    fn take(&self) -> Option<Connection> {
        let mut state = self.lock();
        while state.lent == CONNECTIONS_MAX {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.lent += 1;
        state.idle.pop()
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns its connection, however the query ended.
struct LentConnection<'a> {
    pool: &'a ReaderPool,
    conn: Option<Connection>,
}

impl Drop for LentConnection<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.lent -= 1;
        state.idle.extend(self.conn.take());
        drop(state);
        self.pool.returned.notify_one();
    }
}
