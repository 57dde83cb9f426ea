//! Storage of journals. The contract ([`Store`]) is prose here and one suite in `windlass-testkit`; memory, SQLite and (feature
//! `postgres`) PostgreSQL implement it. A database on PostgreSQL is shared by several processes.
//!
//! A store knows nothing of calls: it keeps rows, in the order in which a session's owner sent them, and
//! refuses writes of former owners.
#![warn(missing_docs)]

#[macro_use]
pub mod points;

mod answer;
mod chain;
mod change;
mod error;
mod health;
pub mod limits;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
mod queue;
mod record;
pub mod sqlite;
mod wakes;

pub use answer::Answer;
pub use change::{
    BATCH_ROWS_MAX, BATCHES_MAX, BLOB_PIECES_MAX, BLOBS_MAX, Change, Guard, Hold, Receipt, RecordChange,
    RecordGuard, Refused, Row, SessionChange,
};
pub use error::StoreError;
pub use health::Health;
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
pub use record::{
    RECORD_KEY_BYTES_MAX, RECORD_VALUE_BYTES_MAX, RecordPage, Shelf, Space, StoreSpace, StoredRecord,
    blob_key, gone_value,
};
pub use sqlite::SqliteStore;
pub use wakes::{WakeWay, Wakes};

use tokio::sync::watch;
use windlass_core::handle::Secret;
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Fence, Lookup, Mark, SessionNo};

/// Keeps acknowledged writes, and lets only a session's owner write to it.
///
/// - **Writing** is [`commit`](Store::commit) and [`post`](Store::post). Once they return, what they accepted
///   is as durable as [`durability`](Store::durability) says.
/// - **Order**: the changes of one session apply in the order in which `commit` was called.
/// - **Ownership**: a change whose fence is not the session's is refused and changes nothing. Taking a session is a change in
///   the same order as all others of the session: whatever its former owner sends is refused from then on, also what it sends
///   before it hears of it.
/// - **Reading** sees every change whose commit has returned.
/// - **Stall**: after an I/O error on a write, the state of the disk is unknown. The store reopens its file, finds out
///   whether the write is there, and repeats it if it is not. Until then nothing is acknowledged: writers wait, and
///   [`health`](Store::health) says why. Only an error that would come again closes the store: then every write answers
///   [`StoreError::Poisoned`] until it is opened again.
pub trait Store: Send + Sync + 'static {
    /// Applies each change whole or not at all and answers each in its place; a refused change does not
    /// affect its neighbours. Several commits may become durable together.
    fn commit(&self, changes: Vec<Change>) -> Answer<Vec<Result<Receipt, Refused>>>;

    /// Like [`commit`](Store::commit), for a caller that has nothing else to do until it is answered: a store whose writer is
    /// idle may write in the thread that asks for the answer, for as long as a fast disk takes. What is sent to be answered
    /// together with others is committed instead.
    fn commit_here(&self, changes: Vec<Change>) -> Answer<Vec<Result<Receipt, Refused>>> {
        self.commit(changes)
    }

    /// Posts a message for the owner of a session. Unique by `(session, key)`: a repetition is
    /// [`Posted::Again`], another body under a used key is [`Posted::Differs`] and changes nothing. A message
    /// for a session that does not exist is [`Posted::NoSession`] and is not stored.
    fn post(&self, message: Inbound) -> Answer<Posted>;

    /// Removes a piece of a session, its newest entries first: at most about `most` rows, of any kind. A batch is
    /// removed with its first row; messages, records, blobs and marks once there are no entries left, and the session
    /// itself with the last piece, which keeps a hash of its name: see [`gone`](Store::gone). The rest can be read as before, so an interrupted removal continues where it was.
    /// Removing a missing session leaves nothing. Numbers of removed objects are never used again.
    fn remove(&self, piece: Removal) -> Answer<Result<Removed, Refused>>;

    /// Reserves `count` numbers that are neither recorded nor were ever handed out, from the returned one on.
    /// Numbers of batches and blobs are reserved durably before they are handed out, in blocks, so that
    /// handles made of them never name anything else, whatever crashed; mostly that costs no commit.
    fn reserve(&self, what: Sequence, count: u64) -> Answer<u64>;

    /// The session of this name.
    fn session(&self, name: &str) -> Answer<Option<SessionRow>>;

    /// The session of this number.
    fn session_by_no(&self, no: SessionNo) -> Answer<Option<SessionRow>>;

    /// All sessions after `after`, by number, at most `limit`.
    fn sessions(&self, after: Option<SessionNo>, limit: u64) -> Answer<Vec<SessionRow>>;

    /// A page of sessions in the order of their names' bytes: those of one principal, or all.
    fn sessions_by_name(&self, page: SessionPage<'_>) -> Answer<Vec<SessionRow>>;

    /// The sessions after `after` that have a record in this space, by number, at most `limit`.
    fn sessions_with(&self, space: Space, after: Option<SessionNo>, limit: u64) -> Answer<Vec<SessionRow>>;

    /// The batch found by this look-up.
    fn batch(&self, lookup: Lookup) -> Answer<Option<BatchRow>>;

    /// Whether the owner that holds the session under this fence may take a batch of this look-up for a new one without
    /// [asking](Store::batch): only an owner adds batches, and this one has added all of them. `false`: that is not known.
    fn is_new(&self, _session: SessionNo, _fence: Fence, _lookup: Lookup) -> bool {
        false
    }

    /// The batch of this number, also if it is expired.
    fn batch_by_no(&self, no: BatchNo) -> Answer<Option<BatchRow>>;

    /// The batches that have rows, by number, after `after`, at most `limit`: those that are not expired. Numbers are reserved in
    /// order, so they come about as old as they are. Costs about what it returns, however many are expired.
    fn kept_batches(&self, after: BatchNo, limit: u64) -> Answer<Vec<KeptBatch>>;

    /// The space that the store uses, by kind. It reads about every row, so it is for people who ask.
    fn usage(&self) -> Answer<StoreUsage>;

    /// Returns some of the space that removed rows left to the file system, at most about `pages` pages. `false`: there is
    /// nothing worth returning now. A store whose space is reused or returned by itself does nothing.
    fn shrink(&self, _pages: u64) -> Answer<bool> {
        Answer::ready(Ok(false))
    }

    /// The batches with an open call, oldest first; of one session, or of all.
    fn open_batches(&self, session: Option<SessionNo>) -> Answer<Vec<BatchRow>>;

    /// The journal rows of a batch, by row. Each is checked against its hash where the store keeps one; damage
    /// is [`StoreError::Damaged`].
    fn journal(&self, batch: BatchNo) -> Answer<Vec<JournalRow>>;

    /// A session's journal rows that begin before entry `before` (or from its end), newest first, at most
    /// `limit`. Each is checked against the hash its successor was chained to; damage is [`StoreError::Damaged`]. Rows of
    /// expired batches are left out, so the entries of neighbours may have a gap between them.
    fn history(&self, session: SessionNo, before: Option<EntryNo>, limit: u64) -> Answer<Vec<JournalRow>>;

    /// A session's journal rows that hold entries after `after`, oldest first, at most `limit`; none only if there is no such
    /// entry that has not expired. Each is checked like those of a history. Reading a journal so from its beginning to its end costs about
    /// what it holds, however long it is.
    fn journal_after(&self, session: SessionNo, after: EntryNo, limit: u64) -> Answer<Vec<JournalRow>>;

    /// At most `len` bytes of a blob from `offset`; fewer at its end, none past it. `None`: there is no such blob.
    fn blob(&self, blob: BlobNo, offset: u64, len: u64) -> Answer<Option<Vec<u8>>>;

    /// How large a blob is. `None`: there is no such blob.
    fn blob_size(&self, blob: BlobNo) -> Answer<Option<BlobSize>>;

    /// The messages for a session that its owner has not adopted yet, oldest first, at most `limit`.
    fn inbound(&self, session: SessionNo, limit: u64) -> Answer<Vec<Inbound>>;

    /// The session of a blob: the one whose record in [`Space::Blob`] names it.
    fn blob_session(&self, blob: BlobNo) -> Answer<Option<SessionNo>>;

    /// The hash kept of the removed session that had this name, as [`gone_value`] makes it. `None`: no session of this name was
    /// removed.
    fn gone(&self, name: &str) -> Answer<Option<Vec<u8>>>;

    /// The call that a mark is at; `None` if it was never set.
    fn marked(&self, mark: Mark) -> Answer<Option<CallId>>;

    /// The record of this key.
    fn record(&self, shelf: Shelf, key: &str) -> Answer<Option<StoredRecord>>;

    /// A page of a shelf's records, by key.
    fn records(&self, page: RecordPage<'_>) -> Answer<Vec<StoredRecord>>;

    /// How many records a shelf has.
    fn count_records(&self, shelf: Shelf) -> Answer<u64>;

    /// The secret from which this store's handles are derived; made when the store was.
    fn secret(&self) -> &Secret;

    /// The durability of an acknowledged commit.
    fn durability(&self) -> Durability;

    /// Whether the last owner of the store died instead of closing it: then its work may be what killed it.
    /// Once this was called, closing the store cleanly clears it.
    fn last_owner_died(&self) -> bool;

    /// Whether writes are committed now, to read and to watch. A store that never stalls is always ready.
    fn health(&self) -> watch::Receiver<Health> {
        watch::channel(Health::Ready).1
    }

    /// Wakes whoever waits for this target, in any process on the store: soon, at most once in a while, or not at all.
    fn wake(&self, _target: &str) {}

    /// The wakes of a target from now on. They are hints: whoever waits for something looks for it from time to time all the same.
    fn wakes(&self, _target: &str) -> Wakes {
        Wakes::never()
    }

    /// How wakes reach other processes.
    fn wake_way(&self) -> WakeWay {
        WakeWay::Poll
    }

    /// Whether the data is a copy of data that another owner may still be working on, so that nothing of it
    /// may be acted on. It stays a copy until [`own_file`](Store::own_file) has returned.
    fn is_copy(&self) -> bool {
        false
    }

    /// Records that the data is no longer a copy: its original is gone, or its open calls are settled here.
    fn own_file(&self, _original: Original) -> Answer<()> {
        Answer::ready(Ok(()))
    }

    /// Whether a call of this batch can have been started from this very data, rather than from its original or a copy of it.
    fn may_have_started(&self, _batch: BatchNo) -> bool {
        true
    }

    /// How often the store waited for durability since it was opened: group commits, not changes. A store
    /// that never waits counts how often it would have for a single caller.
    fn commits(&self) -> u64;
}

/// The fate of the original of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Original {
    /// Nobody works on it any more.
    Gone,
    /// It may still be in use. So new batches get numbers that it never hands out, and handles made there and here stay distinct.
    MayLive,
}

/// The durability of an acknowledged commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// None: it is gone with the process.
    Memory,
    /// Survives the death of the process, not a power cut. Opt-in.
    Relaxed,
    /// Survives the death of the process and a power cut.
    Full,
    /// Also survives the loss of the server: a replica has it.
    Replicated,
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Durability::Memory => "memory",
            Durability::Relaxed => "relaxed",
            Durability::Full => "full",
            Durability::Replicated => "full+replica",
        })
    }
}

/// The kinds of numbers that the store hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// Sessions, from 1.
    Session,
    /// Batches of all sessions, from 1.
    Batch,
    /// Blobs, from 1.
    Blob,
}

/// A session in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its number.
    pub no: SessionNo,
    /// Its name.
    pub name: String,
    /// The principal it belongs to. `None`: it has none, or was opened before sessions had principals.
    pub principal: Option<String>,
    /// Its owner's fence.
    pub fence: Fence,
    /// Its last entry; 0 before the first.
    pub head: EntryNo,
}

/// The sessions to list, in the order of their names.
#[derive(Clone, Copy, Debug)]
pub struct SessionPage<'a> {
    /// Lists only the sessions of this principal.
    pub principal: Option<&'a str>,
    /// The name after which the page begins.
    pub after: Option<&'a str>,
    /// How many at most.
    pub limit: u64,
}

/// A batch in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRow {
    /// Its number.
    pub no: BatchNo,
    /// Its session.
    pub session: SessionNo,
    /// Its look-up.
    pub lookup: Lookup,
    /// Whether one of its calls is open.
    pub open: bool,
    /// Whether its rows were removed by [`Row::Expire`]: then only this is left of it.
    pub expired: bool,
}

/// A batch that has rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptBatch {
    /// Its number.
    pub no: BatchNo,
    /// Its session.
    pub session: SessionNo,
    /// The number of bytes of its entries.
    pub bytes: u64,
}

/// The space that a store uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreUsage {
    /// The bytes of the entries.
    pub journal_bytes: u64,
    /// The bytes of the blobs.
    pub blob_bytes: u64,
    /// The bytes of the records: notices, logs of tasks, pairs, schedules.
    pub record_bytes: u64,
    /// The bytes of the messages that wait for their session's owner.
    pub message_bytes: u64,
    /// The number of batches, expired ones included.
    pub batches: u64,
    /// The number of batches that are expired.
    pub expired_batches: u64,
    /// The bytes of the file; 0 for a store without one.
    pub file_bytes: u64,
    /// The bytes of the file that are free, to be reused or returned.
    pub free_bytes: u64,
}

/// Entries of one batch that were committed together, packed by [`windlass_core::entry`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRow {
    /// The session.
    pub session: SessionNo,
    /// The batch they belong to.
    pub batch: BatchNo,
    /// The number of this row in its batch, from 0.
    pub row: u32,
    /// The number of the first of these entries in the session.
    pub first: EntryNo,
    /// The number of entries.
    pub count: u32,
    /// The entries.
    pub data: Vec<u8>,
}

/// The size of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobSize {
    /// The number of bytes.
    pub bytes: u64,
    /// The number of pieces.
    pub pieces: u32,
}

/// A piece of a session to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The session.
    pub session: SessionNo,
    /// Its owner's fence; refused with [`Refused::Fenced`] if it is another.
    pub fence: Fence,
    /// The maximum number of rows. Pieces of blobs are larger than other rows and count for [`PIECE_ROWS`] each.
    pub most: u64,
}

/// How many rows a piece of a blob counts for when it is removed.
pub const PIECE_ROWS: u64 = 16;

/// The state of a session after a piece was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Some of it is left.
    Piece,
    /// It is gone.
    All,
}

/// A message for the owner of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// The session whose owner gets it.
    pub session: SessionNo,
    /// Idempotency key of the message.
    pub key: String,
    /// Its content.
    pub body: Vec<u8>,
}

/// The result of posting a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is stored.
    New,
    /// It was stored already, adopted or not.
    Again,
    /// Another message has this key; this one was not stored.
    Differs,
    /// The session does not exist, or no longer; the message was not stored.
    NoSession,
}
