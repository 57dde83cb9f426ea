//! The store on SQLite: one file, one writing process, one writing thread in it.
//!
//! A write goes `commit` → `queue` → `writer` → `apply` → answer; `checkpoint` moves the write-ahead log into
//! the database. A read goes to a connection of the `pool`, `read` queries and `history` verifies. `file`,
//! `schema` and `lock` are about opening, `backup` about copies of the whole folder.

mod apply;
pub mod backup;
mod ballast;
mod checkpoint;
mod expire;
mod file;
mod heal;
mod history;
mod homes;
mod identity;
mod lock;
mod log;
mod lookups;
mod numbers;
mod older;
mod pool;
mod read;
mod records;
mod remove;
mod schema;
mod seal;
mod statements;
mod writer;

use crate::chain::{row_of, uint};
use crate::change::{Change, Receipt, Refused};
use crate::health::HealthMonitor;
use crate::queue::{self, WriteRequest};
use crate::record::gone_key;
use crate::{
    Answer, BatchRow, BlobSize, Durability, Health, Inbound, JournalRow, KeptBatch, Original, Posted,
    RecordPage, Removal, Removed, Sequence, SessionPage, SessionRow, Shelf, Space, Store, StoreError,
    StoreUsage, StoredRecord,
};
use backup::BackupMark;
use ballast::Ballast;
use history::WalkPlaces;
use identity::{FileIdentity, OpenFile};
use lock::OwnerLock;
use lookups::{LookupGuess, Lookups};
use numbers::Reservations;
use older::OlderCopies;
use pool::ReaderPool;
pub(crate) use remove::RemovalRest;

use crate::limits::{BALLAST_BYTES_MAX, StoreLimits};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{oneshot, watch};
use windlass_core::handle::Secret;
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Lookup, Mark, SessionNo};
use windlass_core::time::Timestamp;
use writer::{SqliteWriter, Work};

/// A store in a folder.
///
/// Dropping it writes pending changes, checkpoints the write-ahead log and releases the folder.
pub struct SqliteStore {
    // In the order of dropping: readers, then the writer with the last connection, then the lock.
    reads: Arc<Reads>,
    access: Access,
    secret: Secret,
    durability: Durability,
}

/// Everything needed to read.
struct Reads {
    pool: ReaderPool,
    /// The places where walks through histories stopped.
    places: WalkPlaces,
}

impl Reads {
    fn new(path: PathBuf, file: Option<OpenFile>) -> Arc<Reads> {
        Arc::new(Reads { pool: ReaderPool::new(path, file), places: WalkPlaces::default() })
    }
}

/// The rights of the store.
enum Access {
    Owner(Box<FolderOwner>),
    Reader { folder: PathBuf, is_copy: bool, backup: Option<BackupMark> },
}

/// The state of a folder's owner.
struct FolderOwner {
    writer: SqliteWriter,
    lookups: Arc<Lookups>,
    reservations: Arc<Reservations>,
    file: OpenFile,
    is_copy: Arc<AtomicBool>,
    /// The first batch made in this file.
    own_from: u64,
    health: HealthMonitor,
    /// Why no space is reserved for a full disk, if none is.
    no_ballast: Option<String>,
    _older: OlderCopies,
    lock: OwnerLock,
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data folder; created if it is missing.
    pub folder: PathBuf,
    /// The durability of an acknowledged commit: [`Durability::Full`] by default.
    pub durability: Durability,
    /// The effective limits.
    pub limits: StoreLimits,
}

impl Options {
    /// A store in this folder, with full durability and the default limits.
    pub fn new(folder: impl Into<PathBuf>) -> Options {
        Options { folder: folder.into(), durability: Durability::Full, limits: StoreLimits::default() }
    }
}

impl SqliteStore {
    /// Opens the store of a folder, creating it if there is none, and owns it until it is dropped.
    ///
    /// Refused if another process owns it ([`StoreError::Owned`]), if a newer Windlass wrote it
    /// ([`StoreError::Newer`]), if the file is not an intact store of ours ([`StoreError::Open`]; it is not
    /// touched), or if the SQLite library is not safe ([`StoreError::UnsafeSqlite`]).
    pub fn open(options: Options) -> Result<SqliteStore, StoreError> {
        let path = file::path(&options.folder);
        if matches!(options.durability, Durability::Memory | Durability::Replicated) {
            return Err(file::refused(&path, "on a disk the durability is full or relaxed"));
        }
        if options.limits.ballast_bytes > BALLAST_BYTES_MAX {
            let help = format!("`ballast_bytes` is at most {BALLAST_BYTES_MAX}");
            return Err(file::refused(&path, &help));
        }
        file::check_library()?;
        file::make_folder(&options.folder)?;
        let lock = OwnerLock::take(&options.folder)?;
        let ballast = Ballast::of(&options.folder, options.limits.ballast_bytes);
        let (found, no_ballast) = match open_file(&path, &options) {
            // Even opening needs a little space.
            Err(error) if file::may_be_full(&error) && ballast.release() => {
                (open_file(&path, &options)?, Some("the disk is full".to_owned()))
            }
            opened => (opened?, ballast.make().err().map(|error| error.to_string())),
        };
        if let Some(error) = &no_ballast {
            tracing::warn!(%error, "no ballast is kept; when the disk is full, running work cannot end");
        }
        let FileState { secret, reservations, lookups, file, identity, is_copy, conn } = found;
        let Options { durability, limits, .. } = options;
        let (lookups, reservations) = (Arc::new(lookups), Arc::new(reservations));
        let health = HealthMonitor::default();
        let work = Work {
            path: path.clone(),
            file: file.clone(),
            identity,
            secret: secret.clone(),
            lookups: Arc::clone(&lookups),
            reservations: Arc::clone(&reservations),
            ballast: Arc::new(ballast),
            health: health.clone(),
            durability,
        };
        let writer = SqliteWriter::start(work, &limits)?;
        // Not before the writer has connections of its own: closing the last one removes the log.
        drop(conn);
        // A copy has no batches of its own yet.
        let own_from = if is_copy { u64::MAX } else { identity.own_from() };
        let is_copy = Arc::new(AtomicBool::new(is_copy));
        let reads = Reads::new(path.clone(), Some(file.clone()));
        let owner = FolderOwner {
            writer,
            lookups,
            reservations,
            file,
            is_copy,
            own_from,
            health: health.clone(),
            no_ballast,
            _older: OlderCopies { path, health },
            lock,
        };
        Ok(SqliteStore { reads, access: Access::Owner(Box::new(owner)), secret, durability })
    }

    /// Why no space is reserved for a full disk, if none is: then running calls cannot finish on one.
    pub fn no_ballast(&self) -> Option<&str> {
        match &self.access {
            Access::Owner(owner) => owner.no_ballast.as_deref(),
            Access::Reader { .. } => None,
        }
    }

    /// Opens the store of a folder for reading only, whichever process owns it, and creates nothing. Writing
    /// answers [`StoreError::ReadOnly`].
    pub fn open_reader(folder: impl Into<PathBuf>) -> Result<SqliteStore, StoreError> {
        let folder = folder.into();
        let path = file::path(&folder);
        file::check_library()?;
        if !path.exists() {
            return Err(file::refused(&path, "there is no store yet; run `windlass run` first"));
        }
        file::recognise(&path)?;
        let failed = |error| file::sql_failed(&path, error);
        let conn = file::connect_reader(&path).map_err(failed)?;
        let format = schema::format(&conn).map_err(failed)?;
        file::check_format(&path, format)?;
        if format < schema::KNOWN {
            return Err(file::refused(
                &path,
                "an older Windlass made it; run `windlass run` once to bring it up to date",
            ));
        }
        let secret = secret(&conn, &path)?;
        let identity = identity(&conn, &path)?;
        let backup = BackupMark::recorded(&conn).map_err(failed)?;
        let access = Access::Reader { folder, is_copy: identity.is_copy, backup };
        let durability = Durability::Full;
        Ok(SqliteStore { reads: Reads::new(path, None), access, secret, durability })
    }

    /// When the backup was taken that this folder is. `None`: it is none, or was started since, or this process owns it.
    pub fn backup_taken(&self) -> Option<Timestamp> {
        match &self.access {
            Access::Owner(_) => None,
            Access::Reader { backup, .. } => backup.map(|mark| mark.taken),
        }
    }

    /// Sends a request to the writer, and its answer to the caller.
    fn send<T>(&self, request: impl FnOnce(queue::WriteReply<T>) -> WriteRequest) -> Answer<T> {
        match &self.access {
            Access::Owner(owner) => {
                let (reply, answer) = oneshot::channel();
                owner.writer.queue.push(request(reply));
                Answer::reply(answer)
            }
            Access::Reader { folder, .. } => {
                Answer::ready(Err(StoreError::ReadOnly { folder: folder.clone() }))
            }
        }
    }
}

impl Store for SqliteStore {
    fn commit(&self, changes: Vec<Change>) -> Answer<Vec<Result<Receipt, Refused>>> {
        self.send(|reply| WriteRequest::Commit { changes, reply })
    }

    fn commit_here(&self, changes: Vec<Change>) -> Answer<Vec<Result<Receipt, Refused>>> {
        let Access::Owner(owner) = &self.access else { return self.commit(changes) };
        let (reply, answer) = oneshot::channel();
        owner.writer.queue.push_to_lead(WriteRequest::Commit { changes, reply });
        Answer::led(answer, owner.writer.leader())
    }

    fn post(&self, message: Inbound) -> Answer<Posted> {
        self.send(|reply| WriteRequest::Post { message, reply })
    }

    fn remove(&self, piece: Removal) -> Answer<Result<Removed, Refused>> {
        let queue = match &self.access {
            Access::Owner(owner) => Arc::clone(&owner.writer.queue),
            Access::Reader { folder, .. } => {
                return Answer::ready(Err(StoreError::ReadOnly { folder: folder.clone() }));
            }
        };
        let reads = Arc::downgrade(&self.reads);
        Answer::boxed(async move {
            let rest = remove::rest(reads, piece).await?;
            let (reply, answer) = oneshot::channel();
            queue.push(WriteRequest::Remove { piece, rest, reply });
            answer.await.unwrap_or(Err(StoreError::Closed))
        })
    }

    fn reserve(&self, what: Sequence, count: u64) -> Answer<u64> {
        match &self.access {
            Access::Owner(owner) => owner.reservations.take(what, count, &owner.writer.queue),
            Access::Reader { folder, .. } => {
                Answer::ready(Err(StoreError::ReadOnly { folder: folder.clone() }))
            }
        }
    }

    fn session(&self, name: &str) -> Answer<Option<SessionRow>> {
        Answer::ready(read::session(&self.reads.pool, name))
    }

    fn session_by_no(&self, no: SessionNo) -> Answer<Option<SessionRow>> {
        Answer::ready(read::session_by_no(&self.reads.pool, no))
    }

    fn sessions(&self, after: Option<SessionNo>, limit: u64) -> Answer<Vec<SessionRow>> {
        Answer::ready(read::sessions(&self.reads.pool, after, limit))
    }

    fn sessions_by_name(&self, page: SessionPage<'_>) -> Answer<Vec<SessionRow>> {
        Answer::ready(read::sessions_by_name(&self.reads.pool, page))
    }

    fn sessions_with(&self, space: Space, after: Option<SessionNo>, limit: u64) -> Answer<Vec<SessionRow>> {
        Answer::ready(read::sessions_with(&self.reads.pool, space, after, limit))
    }

    fn batch(&self, lookup: Lookup) -> Answer<Option<BatchRow>> {
        let known = match &self.access {
            Access::Owner(owner) => owner.lookups.find(lookup),
            Access::Reader { .. } => return Answer::ready(read::batch_anywhere(&self.reads.pool, lookup)),
        };
        Answer::ready(match known {
            LookupGuess::Absent => Ok(None),
            LookupGuess::Batch(no) => read::batch(&self.reads.pool, BatchNo(no)),
            LookupGuess::Perhaps => read::batch_indexed(&self.reads.pool, lookup),
        })
    }

    fn batch_by_no(&self, no: BatchNo) -> Answer<Option<BatchRow>> {
        Answer::ready(read::batch(&self.reads.pool, no))
    }

    fn kept_batches(&self, after: BatchNo, limit: u64) -> Answer<Vec<KeptBatch>> {
        Answer::ready(expire::kept_batches(&self.reads.pool, after, limit))
    }

    fn usage(&self) -> Answer<StoreUsage> {
        Answer::ready(expire::usage(&self.reads.pool))
    }

    fn shrink(&self, pages: u64) -> Answer<bool> {
        self.send(|reply| WriteRequest::Shrink { pages, reply })
    }

    fn open_batches(&self, session: Option<SessionNo>) -> Answer<Vec<BatchRow>> {
        Answer::ready(read::open_batches(&self.reads.pool, session))
    }

    fn journal(&self, batch: BatchNo) -> Answer<Vec<JournalRow>> {
        Answer::ready(history::of_batch(&self.reads.pool, batch))
    }

    fn history(&self, session: SessionNo, before: Option<EntryNo>, limit: u64) -> Answer<Vec<JournalRow>> {
        Answer::ready(history::of_session(&self.reads, session, before, limit))
    }

    fn journal_after(&self, session: SessionNo, after: EntryNo, limit: u64) -> Answer<Vec<JournalRow>> {
        history::forward(&self.reads, session, after, limit)
    }

    fn blob(&self, blob: BlobNo, offset: u64, len: u64) -> Answer<Option<Vec<u8>>> {
        Answer::ready(read::blob(&self.reads.pool, blob, offset, len))
    }

    fn blob_size(&self, blob: BlobNo) -> Answer<Option<BlobSize>> {
        Answer::ready(read::blob_size(&self.reads.pool, blob))
    }

    fn inbound(&self, session: SessionNo, limit: u64) -> Answer<Vec<Inbound>> {
        Answer::ready(read::inbound(&self.reads.pool, session, limit))
    }

    fn marked(&self, mark: Mark) -> Answer<Option<CallId>> {
        Answer::ready(read::marked(&self.reads.pool, mark))
    }

    fn record(&self, shelf: Shelf, key: &str) -> Answer<Option<StoredRecord>> {
        Answer::ready(records::one(&self.reads.pool, shelf, key))
    }

    fn records(&self, page: RecordPage<'_>) -> Answer<Vec<StoredRecord>> {
        Answer::ready(records::page(&self.reads.pool, page))
    }

    fn count_records(&self, shelf: Shelf) -> Answer<u64> {
        Answer::ready(records::count(&self.reads.pool, shelf))
    }

    fn blob_session(&self, blob: BlobNo) -> Answer<Option<SessionNo>> {
        Answer::ready(records::blob_session(&self.reads.pool, blob))
    }

    fn gone(&self, name: &str) -> Answer<Option<Vec<u8>>> {
        let kept = records::one(&self.reads.pool, Shelf::gone(), &gone_key(&self.secret, name));
        Answer::ready(kept.map(|kept| kept.map(|kept| kept.value)))
    }

    fn secret(&self) -> &Secret {
        &self.secret
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn last_owner_died(&self) -> bool {
        match &self.access {
            Access::Owner(owner) => owner.lock.last_owner_died(),
            Access::Reader { .. } => false,
        }
    }

    fn commits(&self) -> u64 {
        match &self.access {
            Access::Owner(owner) => owner.writer.commits(),
            Access::Reader { .. } => 0,
        }
    }

    fn health(&self) -> watch::Receiver<Health> {
        let Access::Owner(owner) = &self.access else { return watch::channel(Health::Ready).1 };
        // An idle writer does not notice, so it is given something to write.
        if let (false, Err(gone)) = (owner.health.is_bad(), owner.file.check())
            && owner.health.set(Health::Stalled { because: gone.to_string().into() })
        {
            owner
                .writer
                .queue
                .push(WriteRequest::Commit { changes: Vec::new(), reply: oneshot::channel().0 });
        }
        owner.health.watch()
    }

    fn is_copy(&self) -> bool {
        match &self.access {
            Access::Owner(owner) => owner.is_copy.load(Ordering::Acquire),
            Access::Reader { is_copy, .. } => *is_copy,
        }
    }

    fn own_file(&self, original: Original) -> Answer<()> {
        let is_copy = match &self.access {
            Access::Owner(owner) => Arc::clone(&owner.is_copy),
            Access::Reader { folder, .. } => {
                return Answer::ready(Err(StoreError::ReadOnly { folder: folder.clone() }));
            }
        };
        let recorded = self.send(|reply| WriteRequest::OwnFile { original, reply });
        Answer::boxed(async move {
            recorded.await?;
            is_copy.store(false, Ordering::Release);
            Ok(())
        })
    }

    fn may_have_started(&self, batch: BatchNo) -> bool {
        match &self.access {
            Access::Owner(owner) => batch.0 >= owner.own_from && owner.reservations.may_have(batch.0),
            Access::Reader { .. } => false,
        }
    }
}

/// The state of an opened file.
struct FileState {
    secret: Secret,
    reservations: Reservations,
    lookups: Lookups,
    file: OpenFile,
    identity: FileIdentity,
    is_copy: bool,
    conn: Connection,
}

/// Creates the file if there is none, and checks it.
fn open_file(path: &Path, options: &Options) -> Result<FileState, StoreError> {
    if !path.exists() {
        file::create(&options.folder, path)?;
    }
    file::recognise(path)?;
    file::check_log(path)?;
    let failed = |error| file::sql_failed(path, error);
    let conn = file::connect(path).map_err(failed)?;
    file::check_format(path, schema::format(&conn).map_err(failed)?)?;
    file::check_whole(&conn, path)?;
    let secret = secret(&conn, path)?;
    older::update(&conn, &options.folder, path, &secret)?;
    let lookups = file::check_tables(&conn, path)?;
    checkpoint::catch_up(&conn).map_err(failed)?;
    // All checks that may refuse the file come before the first write to it, but for those of a migrated file.
    let Identified { identity, is_copy, is_recorded } = identity(&conn, path)?;
    let opening = conn.unchecked_transaction().map_err(failed)?;
    if !is_recorded {
        // Made by a Windlass that recorded none, or just now: it is the original.
        identity.record(&conn).map_err(failed)?;
    }
    let reservations = reserve(&conn, path)?;
    opening.commit().map_err(failed)?;
    let file = OpenFile::at(path).map_err(|error| file::unreadable(path, error))?;
    Ok(FileState { secret, reservations, lookups, file, identity, is_copy, conn })
}

fn secret(conn: &Connection, path: &Path) -> Result<Secret, StoreError> {
    let secret = schema::secret(conn).map_err(|error| file::sql_failed(path, error))?;
    secret.ok_or_else(|| file::refused(path, "its secret is damaged; restore it from a backup"))
}

/// The identity of the file, and whether it matches the recorded one.
struct Identified {
    identity: FileIdentity,
    is_copy: bool,
    is_recorded: bool,
}

fn identity(conn: &Connection, path: &Path) -> Result<Identified, StoreError> {
    let identity = FileIdentity::of(path).map_err(|error| file::unreadable(path, error))?;
    let recorded = FileIdentity::recorded(conn).map_err(|error| file::sql_failed(path, error))?;
    let recorded =
        recorded.map_err(|()| file::refused(path, "its identity is damaged; restore it from a backup"))?;
    let is_copy = recorded.is_some_and(|recorded| !identity.is(recorded));
    let identity = identity.owning(recorded.map_or(0, FileIdentity::own_from));
    Ok(Identified { identity, is_copy, is_recorded: recorded.is_some() })
}

/// Continues with the numbers after all used, removed and reserved ones.
fn reserve(conn: &Connection, path: &Path) -> Result<Reservations, StoreError> {
    let failed = |error| file::sql_failed(path, error);
    let damaged = || file::refused(path, "its numbers are damaged; restore it from a backup");
    let removed = remove::numbers(conn).map_err(failed)?.ok_or_else(damaged)?;
    let last = last_numbers(conn, removed).map_err(failed)?;
    Reservations::begin(conn, last).map_err(failed)?.ok_or_else(damaged)
}

/// The last used number of each [`Sequence`], in its order.
fn last_numbers(
    conn: &Connection,
    removed: remove::RemovedNumbers,
) -> Result<remove::RemovedNumbers, rusqlite::Error> {
    let max = |sql: &str| conn.query_row(sql, (), |row| Ok(row.get::<_, Option<i64>>(0)?.unwrap_or(0)));
    let session = uint(max("SELECT max(no) FROM sessions")?);
    // A journal may have a batch that was never recorded.
    let batch = uint(max("SELECT max(no) FROM batches")?).max(row_of(max("SELECT max(row) FROM journal")?).0);
    let blob = uint(max("SELECT max(piece) FROM chunks")?) >> 24;
    Ok([session.max(removed[0]), batch.max(removed[1]), blob.max(removed[2])])
}
