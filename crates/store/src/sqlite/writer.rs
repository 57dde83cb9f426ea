//! The one thread that writes. It commits everything that waits in one transaction, so that throughput is
//! bounded by rows and not by waits for the disk.

use super::apply::{Applier, Fault};
use super::ballast::{Ballast, is_full};
use super::checkpoint::Checkpoints;
use super::lookups::Lookups;
use super::{checkpoint, file};
use crate::change::Refused;
use crate::queue::{self, EndOnDrop, Gather, Queue, Request, Told};
use crate::{Durability, StoreError};
use rusqlite::Connection;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use windlass_core::limits::Limits;

/// The queue holds this many groups; past that whoever writes must wait.
const GROUPS_WAITING_MAX: usize = 16;

/// A disk that takes this long for a commit is slow: callers come back sooner.
const SLOW_DISK: Duration = Duration::from_millis(2);

/// The writer waits at most this long for those who were just answered.
const GATHER_MAX: Duration = Duration::from_millis(1);

/// A group of this many requests is a crowd: to wait for so many more costs nobody who is alone anything.
const CROWD: usize = 3;

/// A commit costs the processor about as much as this many changes, so there is little to win by waiting for more.
const CROWD_CHANGES: usize = 16;

/// Where the disk is quick, a crowd is waited for at most this long: a fraction of what its calls take anyhow.
const CROWD_GATHER: Duration = Duration::from_micros(600);

/// The writer and the checkpointer, until they are dropped; then everything that waits is written, the log is
/// brought home, and both threads have ended.
pub(super) struct Writer {
    pub queue: Arc<Queue>,
    commits: Arc<AtomicU64>,
    checkpoints: Arc<Checkpoints>,
    threads: Option<(JoinHandle<()>, JoinHandle<()>)>,
}

impl Writer {
    /// Starts both threads on a file that is open already.
    pub fn start(
        (path, ballast): (&Path, Ballast),
        lookups: Arc<Lookups>,
        durability: Durability,
        limits: &Limits,
    ) -> Result<Writer, StoreError> {
        let failed = |error| file::sql_failed(path, error);
        let (conn, checkpointer) =
            (file::connect(path).map_err(failed)?, file::connect(path).map_err(failed)?);
        let synchronous = match durability {
            Durability::Relaxed => "NORMAL",
            Durability::Full | Durability::Memory => "FULL",
        };
        conn.pragma_update(None, "synchronous", synchronous).map_err(failed)?;
        conn.pragma_update(None, "cache_size", CACHE_KIB_NEGATED).map_err(failed)?;
        let group_max = limits.group_changes_max as usize;
        let queue = Arc::new(Queue::new(group_max * GROUPS_WAITING_MAX));
        let commits = Arc::new(AtomicU64::new(0));
        let checkpoints = Arc::new(Checkpoints::default());
        let ballast = Arc::new(ballast);
        let thread = Thread {
            ballast: Arc::clone(&ballast),
            queue: Arc::clone(&queue),
            commits: Arc::clone(&commits),
            checkpoints: Arc::clone(&checkpoints),
            group_max,
            wal_bytes_max: limits.wal_bytes_max,
        };
        let spawn_failed = |error| StoreError::Open {
            path: PathBuf::from(path),
            help: "no thread could be started".to_owned(),
            source: Some(Box::new(error)),
        };
        let shared = Arc::clone(&checkpoints);
        let second = std::thread::Builder::new()
            .name("windlass-checkpoint".to_owned())
            .spawn(move || checkpoint::run(&checkpointer, &shared, &ballast))
            .map_err(spawn_failed)?;
        let first = std::thread::Builder::new()
            .name("windlass-writer".to_owned())
            .spawn(move || thread.run(&conn, lookups));
        let first = first.map_err(|error| {
            checkpoints.stop();
            spawn_failed(error)
        })?;
        Ok(Writer { queue, commits, checkpoints, threads: Some((first, second)) })
    }

    /// Group commits so far.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
        let Some((writer, checkpointer)) = self.threads.take() else { return };
        // A thread that panicked has nothing left to write; the file is as its last commit left it.
        let _ended = writer.join();
        self.checkpoints.stop();
        let _ended = checkpointer.join();
    }
}

/// What the writer's connection keeps of the file in memory, so that old look-ups are found without reading:
/// 32 MiB, in the KiB below zero that SQLite takes.
const CACHE_KIB_NEGATED: i64 = -(32 << 10);

struct Thread {
    ballast: Arc<Ballast>,
    queue: Arc<Queue>,
    commits: Arc<AtomicU64>,
    checkpoints: Arc<Checkpoints>,
    group_max: usize,
    wal_bytes_max: u64,
}

impl Thread {
    fn run(self, conn: &Connection, lookups: Arc<Lookups>) {
        let _told = EndOnDrop(&self.queue);
        let mut applier = match Applier::new(conn, lookups) {
            Ok(applier) => applier,
            Err(error) => {
                tracing::error!(%error, "the writer could not start");
                return;
            }
        };
        let mut gather = Gather::default();
        while let Some(group) = self.queue.take(self.group_max, gather) {
            let mut written = write(&mut applier, &group);
            if written.as_ref().is_err_and(is_full) && self.ballast.release() {
                tracing::warn!("the disk is full; the ballast is released so that running work can end");
                written = applier.recover().and_then(|()| write(&mut applier, &group));
            }
            match written {
                Ok(told) => {
                    self.commits.fetch_add(1, Ordering::Relaxed);
                    gather = for_whom(&group, applier.took());
                    for (request, told) in group.into_iter().zip(told) {
                        request.answer(told);
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "a write failed; the store is closed until it is opened anew");
                    self.queue.poison(&error.to_string().into());
                    queue::fail_group(group, error);
                    return;
                }
            }
            self.checkpoints.after_commit(conn, self.wal_bytes_max);
        }
        // Whatever is missing in the index the next owner reads from the batches themselves.
        if let Err(error) = applier.finish() {
            tracing::warn!(%error, "the index of the look-ups could not be completed");
        }
    }
}

/// For whom to wait after a group for which the disk took so long. If it is slow, for all who are now answered, since they
/// come back soon beside the next commit. If it is quick, for a part of a crowd: commits of a few changes each would cost
/// the processors more than the changes do. Whoever is alone is never waited for.
fn for_whom(group: &[Request], took: Duration) -> Gather {
    let changes = group.iter().map(Request::changes).sum();
    if took >= SLOW_DISK {
        Gather { changes, patience: (took / 4).min(GATHER_MAX) }
    } else if group.len() >= CROWD {
        Gather { changes: changes.min(CROWD_CHANGES), patience: CROWD_GATHER }
    } else {
        Gather::default()
    }
}

/// Applies a group in one transaction; again without a change that turned out to be impossible half-way.
fn write(applier: &mut Applier<'_>, group: &[Request]) -> Result<Vec<Told>, rusqlite::Error> {
    let mut refused = HashMap::new();
    loop {
        applier.begin()?;
        match apply(applier, group, &refused)? {
            Ok(told) => {
                applier.commit()?;
                return Ok(told);
            }
            Err((place, because)) => {
                applier.rollback()?;
                refused.insert(place, because);
            }
        }
    }
}

/// Which change of a group: the request's place and the change's place in it.
type Place = (usize, usize);

/// Applies a group, or says which change must be left out.
fn apply(
    applier: &mut Applier<'_>,
    group: &[Request],
    refused: &HashMap<Place, Refused>,
) -> Result<Result<Vec<Told>, (Place, Refused)>, rusqlite::Error> {
    let mut told = Vec::with_capacity(group.len());
    for (at, request) in group.iter().enumerate() {
        match request {
            Request::Commit { changes, .. } => {
                let mut receipts = Vec::with_capacity(changes.len());
                for (change_at, change) in changes.iter().enumerate() {
                    let place = (at, change_at);
                    if let Some(because) = refused.get(&place) {
                        receipts.push(Err(*because));
                        continue;
                    }
                    match applier.change(change) {
                        Ok(receipt) => receipts.push(receipt),
                        Err(Fault::Redo(because)) => return Ok(Err((place, because))),
                        Err(Fault::Sql(error)) => return Err(error),
                    }
                }
                told.push(Told::Commit(receipts));
            }
            Request::Post { message, .. } => told.push(Told::Post(applier.post(message)?)),
            Request::Remove { piece, marks, .. } => told.push(Told::Remove(applier.remove(*piece, marks)?)),
        }
    }
    Ok(Ok(told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    fn commit() -> Request {
        Request::Commit { changes: Vec::new(), reply: oneshot::channel().0 }
    }

    #[test]
    fn callers_are_waited_for_where_the_disk_is_slow() {
        let group = [commit(), commit()];
        for (took_ms, changes, patience_ms) in
            [(0, 0, 0), (1, 0, 0), (2, 2, 0), (3, 2, 0), (4, 2, 1), (99, 2, 1)]
        {
            let gather = for_whom(&group, Duration::from_millis(took_ms));
            let patience = gather.patience.as_millis();
            assert_eq!((gather.changes, patience), (changes, patience_ms), "{took_ms} ms");
        }
    }

    #[test]
    fn a_crowd_is_waited_for_and_nobody_alone() {
        for (requests, changes) in [(1, 0), (2, 0), (3, 3), (16, 16), (64, 16)] {
            let group: Vec<Request> = (0..requests).map(|_| commit()).collect();
            let gather = for_whom(&group, Duration::from_micros(150));
            assert_eq!(gather.changes, changes, "{requests} requests");
            assert_eq!(gather.patience > Duration::ZERO, changes > 0, "{requests} requests");
        }
    }
}
