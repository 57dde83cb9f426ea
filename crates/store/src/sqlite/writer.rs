//! The one writer. It commits all pending requests in one transaction, so that throughput is bounded by rows and
//! not by syncs.
//!
//! It has a thread. A single caller on a fast disk would spend more time on waking that thread, and on being woken by it, than on
//! the write: while the thread sleeps such a caller writes [in its place](WriterSeat), in its own thread.

use super::apply::{AppliedCache, Applier, ApplyFault};
use super::ballast::{Ballast, is_full};
use super::checkpoint::{Checkpointer, Checkpoints};
use super::heal::{FailedGroup, WriteError};
use super::identity::{FileIdentity, LogEnd, OpenFile, OpenLog};
use super::lookups::{Indexer, Lookups};
use super::numbers::Reservations;
use super::{checkpoint, file};
use crate::answer::Leadable;
use crate::change::Refused;
use crate::health::HealthMonitor;
use crate::limits::StoreLimits;
use crate::queue::{EndOnDrop, Gather, WriteOutcome, WriteQueue, WriteRequest};
use crate::{Durability, StoreError};
use rusqlite::Connection;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use windlass_core::handle::Secret;

/// The capacity of the queue in groups; above it writers must wait.
const GROUPS_WAITING_MAX: usize = 16;

/// The writer and the checkpointer. Dropping them writes all pending requests, checkpoints the log, and ends
/// both threads.
pub(super) struct SqliteWriter {
    pub queue: Arc<WriteQueue>,
    seat: Arc<WriterSeat>,
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
        let group = GroupWriter {
            ballast: Arc::clone(&ballast),
            queue: Arc::clone(&queue),
            commits: Arc::clone(&commits),
            checkpoints: Arc::clone(&checkpoints),
            group_max,
            wal_bytes_max: limits.wal_bytes_max,
            path: work.path,
            file: work.file,
            identity: work.identity,
            durability: work.durability,
            health: work.health,
            log_end: log.end(frames),
            log,
            tries: 0,
        };
        let cache = AppliedCache::new(Indexer::new(work.lookups), work.secret, work.reservations);
        let state = WriterState { group, conn, cache: Some(cache), failed: None };
        let seat =
            Arc::new(WriterSeat { queue: Arc::clone(&queue), group_max, state: Mutex::new(Some(state)) });
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
        let sat = Arc::clone(&seat);
        let first =
            std::thread::Builder::new().name("windlass-writer".to_owned()).spawn(move || sat.write_all());
        let first = first.map_err(|error| {
            checkpoints.stop();
            spawn_failed(error)
        })?;
        Ok(SqliteWriter { queue, seat, commits, checkpoints, threads: Some((first, second)) })
    }

    /// The writer, for a caller that may write in its place.
    pub fn leader(&self) -> Arc<dyn Leadable> {
        Arc::clone(&self.seat) as Arc<dyn Leadable>
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
        // Answers that nobody asked for may outlive the store; its connection must not.
        drop(self.seat.lock().take());
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

/// The place of the writer: its state belongs to whoever writes. The queue decides who that is.
struct WriterSeat {
    queue: Arc<WriteQueue>,
    group_max: usize,
    /// `None` once the store is closed.
    state: Mutex<Option<WriterState>>,
}

impl WriterSeat {
    /// The writer's thread, until the queue is closed or a write fails for good.
    fn write_all(&self) {
        let _told = EndOnDrop(&self.queue);
        let mut gather = Gather::default();
        while let Some(group) = self.queue.take(self.group_max, gather) {
            let mut state = self.lock();
            let Some(writer) = state.as_mut() else { return };
            match writer.write_on(group) {
                Some(next) => gather = next,
                None => return drop(state.take()),
            }
        }
        if let Some(mut writer) = self.lock().take() {
            writer.complete_index();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<WriterState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leadable for WriterSeat {
    fn lead(&self) {
        let Some(group) = self.queue.lead(self.group_max) else { return };
        let mut leading = Leading { queue: &self.queue, ended: false };
        let mut state = self.lock();
        let written = match state.as_mut() {
            Some(writer) => {
                writer.serve(group, WrittenBy::Caller).map_err(|failed| writer.failed = Some(failed))
            }
            None => Ok(Gather::default()),
        };
        drop(state);
        leading.ended = true;
        match written {
            Ok(gather) => self.queue.led(gather.lone),
            Err(()) => self.queue.led_in_vain(),
        }
    }

    fn attend(&self) {
        self.queue.attend();
    }
}

/// A caller writes: should it panic, nobody may wait for it.
struct Leading<'a> {
    queue: &'a WriteQueue,
    ended: bool,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.queue.end();
            self.queue.led(false);
        }
    }
}

/// The thread that writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WrittenBy {
    /// The writer's own.
    Writer,
    /// That of a caller, which has other tasks: it writes one group and waits for nothing else.
    Caller,
}

/// The state of the writer between two groups.
struct WriterState {
    group: GroupWriter,
    conn: Connection,
    /// Taken while a group is applied.
    cache: Option<AppliedCache>,
    /// A group that a caller could not write.
    failed: Option<FailedGroup>,
}

impl WriterState {
    /// Writes groups, this one first, for as long as others come soon. Returns whom to wait for next; `None` if a write fails
    /// for good.
    fn write_on(&mut self, group: Vec<WriteRequest>) -> Option<Gather> {
        let (mut failed, mut group) = (self.failed.take(), group);
        loop {
            if let Some(failed) = failed.take() {
                let cache = self.cache.as_mut()?;
                let (conn, unwritten) = self.group.heal(&self.conn, &mut cache.lookups, failed)?;
                // The old one is dropped now: until then the log's index lives, which does not show the part that was cut off.
                self.conn = conn;
                let mut first = unwritten.unwrap_or_default();
                first.append(&mut group);
                group = first;
            }
            match self.serve(std::mem::take(&mut group), WrittenBy::Writer) {
                Ok(gather) => return Some(gather),
                Err(again) => failed = Some(again),
            }
        }
    }

    /// Writes groups on the connection until none comes soon, or a write fails.
    fn serve(&mut self, group: Vec<WriteRequest>, by: WrittenBy) -> Result<Gather, FailedGroup> {
        let Some(cache) = self.cache.take() else { return Ok(Gather::default()) };
        let mut applier = Applier::new(&self.conn, cache);
        let ended = self.group.write_groups(&mut applier, group, by);
        let mut cache = applier.into_cache();
        if ended.is_err() {
            cache.reconnect();
        }
        self.cache = Some(cache);
        ended
    }

    /// Writes the rest of the index; without it the next owner reads missing look-ups from the batches themselves.
    fn complete_index(&mut self) {
        let Some(cache) = self.cache.take() else { return };
        if let Err(error) = Applier::new(&self.conn, cache).finish() {
            tracing::warn!(%error, "the index of the look-ups could not be completed");
        }
    }
}

/// Writes one group after the other, and keeps what must be known of the last one.
pub(super) struct GroupWriter {
    ballast: Arc<Ballast>,
    pub(super) queue: Arc<WriteQueue>,
    commits: Arc<AtomicU64>,
    checkpoints: Arc<Checkpoints>,
    group_max: usize,
    wal_bytes_max: u64,
    pub(super) path: PathBuf,
    pub(super) file: OpenFile,
    identity: FileIdentity,
    pub(super) durability: Durability,
    pub(super) health: HealthMonitor,
    pub(super) log: OpenLog,
    /// The end of the log after the last written group.
    pub(super) log_end: Option<LogEnd>,
    /// How often writing the current group has failed.
    pub(super) tries: u32,
}

impl GroupWriter {
    fn write_groups(
        &mut self,
        applier: &mut Applier<'_>,
        mut requests: Vec<WriteRequest>,
        by: WrittenBy,
    ) -> Result<Gather, FailedGroup> {
        let mut gather = Gather::default();
        loop {
            if !requests.is_empty() {
                gather = self.write_group(applier, requests, by)?;
            }
            match by {
                WrittenBy::Caller => return Ok(gather),
                WrittenBy::Writer => match self.queue.take_soon(self.group_max, gather) {
                    Some(more) => requests = more,
                    None => return Ok(gather),
                },
            }
        }
    }

    /// Writes a group and answers it. Returns whom to wait for next.
    fn write_group(
        &mut self,
        applier: &mut Applier<'_>,
        requests: Vec<WriteRequest>,
        by: WrittenBy,
    ) -> Result<Gather, FailedGroup> {
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
        let mut gather = Gather::after(&requests, applier.took());
        self.answer(requests, told.unwrap_or_default());
        let log = self.checkpoints.after_commit(applier.conn, self.wal_bytes_max);
        self.log_end = log.frames.and_then(|frames| self.log.end(frames));
        match by {
            WrittenBy::Writer if log.is_full => self.checkpoints.wait_for_room(),
            // The writer does, after the next group.
            WrittenBy::Caller if log.is_full => gather.lone = false,
            WrittenBy::Writer | WrittenBy::Caller => {}
        }
        Ok(gather)
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
