//! The one writing thread. It commits all pending requests in one transaction, so that throughput is bounded
//! by rows and not by syncs.

use super::apply::{Applier, ApplyFault};
use super::ballast::{Ballast, is_full};
use super::checkpoint::{Checkpointer, Checkpoints};
use super::heal::{FailedGroup, WriteError};
use super::identity::{FileIdentity, LogEnd, OpenFile, OpenLog};
use super::lookups::{Indexer, Lookups};
use super::numbers::Reservations;
use super::statements::Statements;
use super::{checkpoint, file};
use crate::change::Refused;
use crate::health::HealthMonitor;
use crate::limits::StoreLimits;
use crate::queue::{EndOnDrop, Gather, WriteOutcome, WriteQueue, WriteRequest};
use crate::{Durability, StoreError};
use rusqlite::Connection;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use windlass_core::handle::Secret;

/// The capacity of the queue in groups; above it writers must wait.
const GROUPS_WAITING_MAX: usize = 16;

/// The writer and the checkpointer. Dropping them writes all pending requests, checkpoints the log, and ends
/// both threads.
pub(super) struct SqliteWriter {
    pub queue: Arc<WriteQueue>,
    commits: Arc<AtomicU64>,
    checkpoints: Arc<Checkpoints>,
    threads: Option<(JoinHandle<()>, JoinHandle<()>)>,
}

/// The parts of a writer.
pub(super) struct Work {
    pub path: PathBuf,
    pub file: OpenFile,
    pub identity: FileIdentity,
    pub lookups: Arc<Lookups>,
    pub reservations: Arc<Reservations>,
    pub secret: Secret,
    pub ballast: Arc<Ballast>,
    pub health: HealthMonitor,
    pub durability: Durability,
}

impl SqliteWriter {
    /// Starts both threads on a file that is already open.
    pub fn start(work: Work, limits: &StoreLimits) -> Result<SqliteWriter, StoreError> {
        let path = work.path.clone();
        let failed = |error| file::sql_failed(&path, error);
        let conn = connect(&path, work.durability).map_err(failed)?;
        let checkpointer = file::connect(&path).map_err(failed)?;
        let frames = checkpoint::length(&conn).map_err(failed)?;
        let open_log = || OpenLog::open(&path).map_err(|gone| file::refused(&path, &gone.to_string()));
        let mut log = open_log()?;
        let checkpointer = Checkpointer::new(checkpointer, open_log()?);
        let group_max = limits.group_changes_max as usize;
        let queue = Arc::new(WriteQueue::new(group_max * GROUPS_WAITING_MAX));
        let commits = Arc::new(AtomicU64::new(0));
        let checkpoints = Arc::new(Checkpoints::default());
        let ballast = work.ballast;
        let thread = Thread {
            ballast: Arc::clone(&ballast),
            queue: Arc::clone(&queue),
            commits: Arc::clone(&commits),
            checkpoints: Arc::clone(&checkpoints),
            group_max,
            wal_bytes_max: limits.wal_bytes_max,
            path: work.path,
            file: work.file,
            identity: work.identity,
            secret: work.secret,
            durability: work.durability,
            reservations: work.reservations,
            health: work.health,
            log_end: log.end(frames),
            log,
            tries: 0,
        };
        let indexer = Indexer::new(work.lookups);
        let spawn_failed = |error| StoreError::Open {
            path: path.clone(),
            help: "no thread could be started".to_owned(),
            source: Some(Box::new(error)),
        };
        let shared = Arc::clone(&checkpoints);
        let second = std::thread::Builder::new()
            .name("windlass-checkpoint".to_owned())
            .spawn(move || checkpoint::run(checkpointer, &shared, &ballast))
            .map_err(spawn_failed)?;
        let first = std::thread::Builder::new()
            .name("windlass-writer".to_owned())
            .spawn(move || thread.run(conn, indexer));
        let first = first.map_err(|error| {
            checkpoints.stop();
            spawn_failed(error)
        })?;
        Ok(SqliteWriter { queue, commits, checkpoints, threads: Some((first, second)) })
    }

    /// The number of group commits so far.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

impl Drop for SqliteWriter {
    fn drop(&mut self) {
        self.queue.close();
        let Some((writer, checkpointer)) = self.threads.take() else { return };
        // A panicked thread has nothing left to write; the file is as its last commit left it.
        let _ended = writer.join();
        self.checkpoints.stop();
        let _ended = checkpointer.join();
    }
}

/// The writer's page cache, so that old look-ups are found without reading: 8 MiB, in SQLite's negated KiB. Not more: after every
/// commit in which pages changed places SQLite walks half of the table that finds them.
const CACHE_KIB_NEGATED: i64 = -(8 << 10);

/// A connection for the writer.
pub(super) fn connect(path: &Path, durability: Durability) -> Result<Connection, rusqlite::Error> {
    let conn = file::connect(path)?;
    let synchronous = match durability {
        Durability::Relaxed => "NORMAL",
        Durability::Full | Durability::Memory | Durability::Replicated => "FULL",
    };
    conn.pragma_update(None, "synchronous", synchronous)?;
    conn.pragma_update(None, "cache_size", CACHE_KIB_NEGATED)?;
    Ok(conn)
}

pub(super) struct Thread {
    ballast: Arc<Ballast>,
    pub(super) queue: Arc<WriteQueue>,
    commits: Arc<AtomicU64>,
    checkpoints: Arc<Checkpoints>,
    group_max: usize,
    wal_bytes_max: u64,
    pub(super) path: PathBuf,
    pub(super) file: OpenFile,
    identity: FileIdentity,
    secret: Secret,
    pub(super) durability: Durability,
    reservations: Arc<Reservations>,
    pub(super) health: HealthMonitor,
    pub(super) log: OpenLog,
    /// The end of the log after the last written group.
    pub(super) log_end: Option<LogEnd>,
    /// How often writing the current group has failed.
    pub(super) tries: u32,
}

impl Thread {
    fn run(mut self, mut conn: Connection, mut indexer: Indexer) {
        let queue = Arc::clone(&self.queue);
        let _told = EndOnDrop(&queue);
        let mut unwritten = None;
        loop {
            let (kept, ended) = self.serve(&conn, indexer, unwritten.take());
            indexer = kept;
            let Err(failed) = ended else { return };
            match self.heal(conn, &mut indexer, failed) {
                Some(healed) => (conn, unwritten) = healed,
                None => return,
            }
        }
    }

    /// Writes groups on one connection, until the queue is closed or a write fails.
    fn serve(
        &mut self,
        conn: &Connection,
        indexer: Indexer,
        unwritten: Option<Vec<WriteRequest>>,
    ) -> (Indexer, Result<(), FailedGroup>) {
        let sql = match Statements::new(conn) {
            Ok(sql) => sql,
            Err(error) => {
                let requests = unwritten.unwrap_or_default();
                return (indexer, Err(FailedGroup { requests, told: None, error: error.into() }));
            }
        };
        let mut applier =
            Applier::new(conn, sql, indexer, self.secret.clone(), Arc::clone(&self.reservations));
        let ended = self.write_all(&mut applier, conn, unwritten);
        (applier.into_indexer(), ended)
    }

    fn write_all(
        &mut self,
        applier: &mut Applier<'_>,
        conn: &Connection,
        mut unwritten: Option<Vec<WriteRequest>>,
    ) -> Result<(), FailedGroup> {
        let mut gather = Gather::default();
        while let Some(requests) = unwritten.take().or_else(|| self.queue.take(self.group_max, gather)) {
            let mut told = None;
            let mut written = self.write(applier, &requests, &mut told);
            if matches!(&written, Err(WriteError::Sql(error)) if is_full(error)) && self.ballast.release() {
                tracing::warn!("the disk is full; the ballast is released so that running work can end");
                told = None;
                written = match applier.recover() {
                    Ok(()) => self.write(applier, &requests, &mut told),
                    Err(error) => Err(error.into()),
                };
            }
            if let Err(error) = written {
                return Err(FailedGroup { requests, told, error });
            }
            self.commits.fetch_add(1, Ordering::Relaxed);
            gather = Gather::after(&requests, applier.took());
            self.answer(requests, told.unwrap_or_default());
            let frames = self.checkpoints.after_commit(conn, self.wal_bytes_max);
            self.log_end = frames.and_then(|frames| self.log.end(frames));
        }
        // The next owner reads look-ups missing in the index from the batches themselves.
        if let Err(error) = applier.finish() {
            tracing::warn!(%error, "the index of the look-ups could not be completed");
        }
        Ok(())
    }

    /// Applies a group in one transaction; again without a change that turned out to be impossible half-way.
    /// Once the answers are known, `told` has them, whether the commit succeeds or not.
    fn write(
        &mut self,
        applier: &mut Applier<'_>,
        group: &[WriteRequest],
        told: &mut Option<Vec<WriteOutcome>>,
    ) -> Result<(), WriteError> {
        let mut refused = HashMap::new();
        loop {
            applier.begin()?;
            match apply(applier, group, self.identity, &refused)? {
                Ok(answers) => {
                    *told = Some(answers);
                    applier.commit()?;
                    // Nothing is acknowledged into a file that cannot be found again.
                    self.file.check()?;
                    return Ok(self.log.check()?);
                }
                Err((place, because)) => {
                    applier.rollback()?;
                    refused.insert(place, because);
                }
            }
        }
    }
}

/// The place of a change: of its request in the group, and of the change in it.
type ChangePlace = (usize, usize);

/// Applies a group, or returns which change must be left out.
fn apply(
    applier: &mut Applier<'_>,
    group: &[WriteRequest],
    identity: FileIdentity,
    refused: &HashMap<ChangePlace, Refused>,
) -> Result<Result<Vec<WriteOutcome>, (ChangePlace, Refused)>, rusqlite::Error> {
    let mut told = Vec::with_capacity(group.len());
    for (at, request) in group.iter().enumerate() {
        match request {
            WriteRequest::Commit { changes, .. } => {
                let mut receipts = Vec::with_capacity(changes.len());
                for (change_at, change) in changes.iter().enumerate() {
                    let place = (at, change_at);
                    if let Some(because) = refused.get(&place) {
                        receipts.push(Err(*because));
                        continue;
                    }
                    match applier.change(change) {
                        Ok(receipt) => receipts.push(receipt),
                        Err(ApplyFault::Redo(because)) => return Ok(Err((place, because))),
                        Err(ApplyFault::Sql(error)) => return Err(error),
                    }
                }
                told.push(WriteOutcome::Commit(receipts));
            }
            WriteRequest::Post { message, .. } => told.push(WriteOutcome::Post(applier.post(message)?)),
            WriteRequest::Remove { piece, rest, .. } => {
                told.push(WriteOutcome::Remove(applier.remove(*piece, rest)?))
            }
            WriteRequest::Shrink { pages, .. } => told.push(WriteOutcome::Shrink(applier.shrink(*pages)?)),
            WriteRequest::OwnFile { original, .. } => {
                applier.own_file(identity, *original)?;
                told.push(WriteOutcome::OwnFile);
            }
        }
    }
    Ok(Ok(told))
}
