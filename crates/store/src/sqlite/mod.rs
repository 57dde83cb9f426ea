//! The store on SQLite: one file, one process that writes it, one thread of that process that does.
//!
//! A write goes `commit` → `queue` → `writer` → `apply` → answer; `checkpoint` brings the write-ahead
//! log home. A read goes to a connection of the `pool`, `read` asks and `history` verifies. `file`,
//! `schema` and `lock` are about opening.

mod apply;
mod ballast;
mod checkpoint;
mod file;
mod history;
mod lock;
mod log;
mod lookups;
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
use crate::queue::{self, Request};
use crate::{
    Answer, BatchRow, BlobSize, Durability, Inbound, JournalRow, Posted, Record, RecordPage, Removal,
    Removed, Sequence, SessionRow, Space, Store, StoreError,
};
use ballast::Ballast;
use history::Places;
use lock::OwnerLock;
use lookups::{Known, Lookups};
use pool::Pool;

use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::oneshot;
use windlass_core::handle::Secret;
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Lookup, Mark, SessionNo};
use windlass_core::limits::Limits;
use writer::Writer;

/// A store in a folder.
///
/// Dropping it writes what waits, brings the write-ahead log home and gives the folder up.
pub struct SqliteStore {
    // The order is the order of ending: readers, then the writer with the last connection, then the right to be there.
    reads: Arc<Reads>,
    access: Access,
    secret: Secret,
    durability: Durability,
}

/// What is needed to read.
struct Reads {
    pool: Pool,
    /// Where walks through histories stopped.
    places: Places,
}

impl Reads {
    fn new(path: PathBuf) -> Arc<Reads> {
        Arc::new(Reads { pool: Pool::new(path), places: Places::default() })
    }
}

/// What the store may do.
enum Access {
    Owner { writer: Writer, lookups: Arc<Lookups>, next: [AtomicU64; 3], lock: OwnerLock },
    Reader { folder: PathBuf },
}

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The data folder; made if it is not there.
    pub folder: PathBuf,
    /// What an acknowledged commit survives: [`Durability::Full`], or less if it is asked for.
    pub durability: Durability,
    /// The limits in force.
    pub limits: Limits,
}

impl Options {
    /// A store in this folder, with full durability and the usual limits.
    pub fn new(folder: impl Into<PathBuf>) -> Options {
        Options { folder: folder.into(), durability: Durability::Full, limits: Limits::default() }
    }
}

impl SqliteStore {
    /// Opens the store of a folder, making it if there is none, and owns it until it is dropped.
    ///
    /// Refused if another process owns it ([`StoreError::Owned`]), if a newer Windlass wrote it
    /// ([`StoreError::Newer`]), if the file is not a whole store of ours ([`StoreError::Open`]; it is not touched),
    /// or if the SQLite library is not safe ([`StoreError::UnsafeSqlite`]).
    pub fn open(options: Options) -> Result<SqliteStore, StoreError> {
        let path = file::path(&options.folder);
        if options.durability == Durability::Memory {
            return Err(file::refused(&path, "on a disk the durability is full or relaxed"));
        }
        file::check_library()?;
        file::make_folder(&options.folder)?;
        let lock = OwnerLock::take(&options.folder)?;
        let ballast = Ballast::of(&options.folder);
        let Found { secret, next, lookups } = match open_file(&path, &options) {
            // Even opening needs a little room.
            Err(error) if file::may_be_full(&error) && ballast.release() => open_file(&path, &options)?,
            opened => {
                let opened = opened?;
                ballast.make(&options.limits);
                opened
            }
        };
        let Options { durability, limits, .. } = options;
        let lookups = Arc::new(lookups);
        let writer = Writer::start((&path, ballast), Arc::clone(&lookups), durability, &limits)?;
        let access = Access::Owner { writer, lookups, next, lock };
        Ok(SqliteStore { reads: Reads::new(path), access, secret, durability })
    }

    /// Opens the store of a folder for reading only, whoever owns it, and makes nothing. Writing answers
    /// [`StoreError::ReadOnly`].
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
        let access = Access::Reader { folder };
        let durability = Durability::Full;
        Ok(SqliteStore { reads: Reads::new(path), access, secret, durability })
    }

    /// Hands a request to the writer, and its answer to who asked.
    fn send<T>(&self, request: impl FnOnce(queue::Reply<T>) -> Request) -> Answer<T> {
        match &self.access {
            Access::Owner { writer, .. } => {
                let (reply, answer) = oneshot::channel();
                writer.queue.push(request(reply));
                Answer::reply(answer)
            }
            Access::Reader { folder } => Answer::ready(Err(StoreError::ReadOnly { folder: folder.clone() })),
        }
    }
}

impl Store for SqliteStore {
    fn commit(&self, changes: Vec<Change>) -> Answer<Vec<Result<Receipt, Refused>>> {
        self.send(|reply| Request::Commit { changes, reply })
    }

    fn post(&self, message: Inbound) -> Answer<Posted> {
        self.send(|reply| Request::Post { message, reply })
    }

    fn remove(&self, piece: Removal) -> Answer<Result<Removed, Refused>> {
        let queue = match &self.access {
            Access::Owner { writer, .. } => Arc::clone(&writer.queue),
            Access::Reader { folder } => {
                return Answer::ready(Err(StoreError::ReadOnly { folder: folder.clone() }));
            }
        };
        let reads = Arc::downgrade(&self.reads);
        Answer::boxed(async move {
            let marks = remove::marks(reads, piece).await?;
            let (reply, answer) = oneshot::channel();
            queue.push(Request::Remove { piece, marks, reply });
            answer.await.unwrap_or(Err(StoreError::Closed))
        })
    }

    fn reserve(&self, what: Sequence, count: u64) -> Answer<u64> {
        Answer::ready(match &self.access {
            Access::Owner { next, .. } => Ok(next[what as usize].fetch_add(count, Ordering::Relaxed)),
            Access::Reader { folder } => Err(StoreError::ReadOnly { folder: folder.clone() }),
        })
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

    fn batch(&self, lookup: Lookup) -> Answer<Option<BatchRow>> {
        let known = match &self.access {
            Access::Owner { lookups, .. } => lookups.find(lookup),
            Access::Reader { .. } => return Answer::ready(read::batch_anywhere(&self.reads.pool, lookup)),
        };
        Answer::ready(match known {
            Known::Absent => Ok(None),
            Known::Batch(no) => read::batch(&self.reads.pool, BatchNo(no)),
            Known::Perhaps => read::batch_indexed(&self.reads.pool, lookup),
        })
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

    fn record(&self, session: SessionNo, space: Space, key: &str) -> Answer<Option<Record>> {
        Answer::ready(records::one(&self.reads.pool, session, space, key))
    }

    fn records(&self, page: RecordPage<'_>) -> Answer<Vec<Record>> {
        Answer::ready(records::page(&self.reads.pool, page))
    }

    fn count_records(&self, session: SessionNo, space: Space) -> Answer<u64> {
        Answer::ready(records::count(&self.reads.pool, session, space))
    }

    fn secret(&self) -> &Secret {
        &self.secret
    }

    fn durability(&self) -> Durability {
        self.durability
    }

    fn last_owner_died(&self) -> bool {
        match &self.access {
            Access::Owner { lock, .. } => lock.last_owner_died(),
            Access::Reader { .. } => false,
        }
    }

    fn commits(&self) -> u64 {
        match &self.access {
            Access::Owner { writer, .. } => writer.commits(),
            Access::Reader { .. } => 0,
        }
    }
}

/// What is in a file that is opened.
struct Found {
    secret: Secret,
    /// The first free numbers.
    next: [AtomicU64; 3],
    lookups: Lookups,
}

/// Makes the file if there is none, and looks it over.
fn open_file(path: &Path, options: &Options) -> Result<Found, StoreError> {
    if !path.exists() {
        file::create(&options.folder, path)?;
    }
    file::recognise(path)?;
    file::check_log(path)?;
    let failed = |error| file::sql_failed(path, error);
    let conn = file::connect(path).map_err(failed)?;
    file::check_format(path, schema::format(&conn).map_err(failed)?)?;
    file::check_whole(&conn, path)?;
    schema::update(&conn).map_err(failed)?;
    let lookups = file::check_tables(&conn, path)?;
    checkpoint::catch_up(&conn).map_err(failed)?;
    let removed = remove::numbers(&conn).map_err(failed)?;
    let removed =
        removed.ok_or_else(|| file::refused(path, "its numbers are damaged; restore it from a backup"))?;
    let next = next_numbers(&conn, removed).map_err(failed)?;
    Ok(Found { secret: secret(&conn, path)?, next, lookups })
}

fn secret(conn: &Connection, path: &Path) -> Result<Secret, StoreError> {
    let secret = schema::secret(conn).map_err(|error| file::sql_failed(path, error))?;
    secret.ok_or_else(|| file::refused(path, "its secret is damaged; restore it from a backup"))
}

/// The first free number of each [`Sequence`], in its order: after what is there, and after what was removed.
fn next_numbers(conn: &Connection, removed: remove::Numbers) -> Result<[AtomicU64; 3], rusqlite::Error> {
    let max = |sql: &str| conn.query_row(sql, (), |row| Ok(row.get::<_, Option<i64>>(0)?.unwrap_or(0)));
    let session = uint(max("SELECT max(no) FROM sessions")?);
    // A journal may know of a batch that was never recorded.
    let batch = uint(max("SELECT max(no) FROM batches")?).max(row_of(max("SELECT max(row) FROM journal")?).0);
    let blob = uint(max("SELECT max(piece) FROM chunks")?) >> 24;
    let last = [session.max(removed[0]), batch.max(removed[1]), blob.max(removed[2])];
    Ok(last.map(|last| AtomicU64::new(last + 1)))
}
