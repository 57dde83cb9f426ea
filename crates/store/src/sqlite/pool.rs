//! A few connections for reading, lent out one question at a time.

use super::file;
use crate::StoreError;
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// More would only compete for the processors.
const CONNECTIONS_MAX: usize = 4;

/// The connections that read.
pub(super) struct Pool {
    path: PathBuf,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    lent: usize,
}

impl Pool {
    /// A pool for this file; connections are made when they are first needed.
    pub fn new(path: PathBuf) -> Pool {
        Pool { path, state: Mutex::default(), returned: Condvar::new() }
    }

    /// Answers a question on one of the connections.
    pub fn read<T>(
        &self,
        doing: &'static str,
        question: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, StoreError> {
        let mut lent = Lent { pool: self, conn: self.take() };
        let conn = match lent.conn.take() {
            Some(conn) => Ok(conn),
            None => file::connect_reader(&self.path),
        };
        conn.and_then(|conn| question(lent.conn.insert(conn)))
            .map_err(|error| StoreError::Io { doing, source: Box::new(error) })
    }

    /// The right to use a connection, and one that lies idle if there is one.
    fn take(&self) -> Option<Connection> {
        let mut state = self.lock();
        while state.lent == CONNECTIONS_MAX {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.lent += 1;
        state.idle.pop()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives its connection back, whatever became of the question.
struct Lent<'a> {
    pool: &'a Pool,
    conn: Option<Connection>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.lent -= 1;
        state.idle.extend(self.conn.take());
        drop(state);
        self.pool.returned.notify_one();
    }
}
