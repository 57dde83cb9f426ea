//! Where journals live. The contract ([`Store`]) is prose here and one suite in `windlass-testkit`; memory and
//! SQLite keep it.
//!
//! The feature `postgres` adds a spike on PostgreSQL that keeps it too, with several connections and several
//! processes, so that the contract stays one that they can keep. It is not yet a store to run on: a policy for
//! migrations and tuning are missing.
//!
//! A store knows nothing of calls: it keeps rows, in the order in which a session's owner sent them, and
//! refuses whoever is not the owner any more.
#![warn(missing_docs)]

#[macro_use]
pub mod points;

mod answer;
mod chain;
mod change;
mod error;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
mod queue;
mod record;
pub mod sqlite;

pub use answer::Answer;
pub use change::{
    BATCH_ROWS_MAX, BATCHES_MAX, BLOB_PIECES_MAX, BLOBS_MAX, Change, Guard, Hold, Receipt, Refused, Row,
};
pub use error::StoreError;
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
pub use record::{RECORD_KEY_BYTES_MAX, RECORD_VALUE_BYTES_MAX, Record, RecordPage, STORE, Space, blob_key};
pub use sqlite::SqliteStore;

use windlass_core::handle::Secret;
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Fence, Lookup, Mark, SessionNo};

/// Keeps what it acknowledged, and lets only a session's owner write to it.
///
/// - **Writing** is [`commit`](Store::commit) and [`post`](Store::post). Once they return, what they accepted
///   is as durable as [`durability`](Store::durability) says.
/// - **Order**: the changes of one session apply in the order in which `commit` was called.
/// - **Ownership**: a change whose fence is not the session's is refused and changes nothing.
/// - **Reading** sees every change whose commit has returned.
/// - **Poison**: after an I/O error on a write nobody knows what is on the disk. Every later write answers
///   [`StoreError::Poisoned`] until the store is opened anew.
pub trait Store: Send + Sync + 'static {
    /// Applies each change whole or not at all and answers each in its place; a refused change does not touch
    /// its neighbours. Several commits may become durable together.
    fn commit(&self, changes: Vec<Change>) -> Answer<Vec<Result<Receipt, Refused>>>;

    /// Leaves a message for the owner of a session. Unique by `(session, key)`: the same again is
    /// [`Posted::Again`], another body under a used key is [`Posted::Differs`] and changes nothing.
    fn post(&self, message: Inbound) -> Answer<Posted>;

    /// Removes a piece of a session, its newest entries first: at most about so many rows, whatever it has. A batch goes with its
    /// first row; messages, records, blobs and marks go when there are no entries any more, and with the last piece the
    /// session itself. What is left can be read as before, so whoever is cut off goes on where it was. Of a session that is
    /// not there nothing is left. Numbers of what was removed are never handed out again.
    fn remove(&self, piece: Removal) -> Answer<Result<Removed, Refused>>;

    /// Numbers that are neither recorded nor handed out since the store was opened, `count` of them, from the
    /// returned one on. Nothing becomes durable.
    fn reserve(&self, what: Sequence, count: u64) -> Answer<u64>;

    /// The session of this name.
    fn session(&self, name: &str) -> Answer<Option<SessionRow>>;

    /// The session of this number.
    fn session_by_no(&self, no: SessionNo) -> Answer<Option<SessionRow>>;

    /// All sessions after `after`, by number, at most `limit`.
    fn sessions(&self, after: Option<SessionNo>, limit: u64) -> Answer<Vec<SessionRow>>;

    /// The batch found by this look-up.
    fn batch(&self, lookup: Lookup) -> Answer<Option<BatchRow>>;

    /// The batches with an open call, oldest first; of one session, or of all.
    fn open_batches(&self, session: Option<SessionNo>) -> Answer<Vec<BatchRow>>;

    /// The journal rows of a batch, by row. Each is checked against its hash where the store keeps one; damage
    /// is [`StoreError::Damaged`].
    fn journal(&self, batch: BatchNo) -> Answer<Vec<JournalRow>>;

    /// A session's journal rows that begin before entry `before` (or from its end), newest first, at most
    /// `limit`. Each is checked against the hash its successor was chained to; damage is [`StoreError::Damaged`].
    fn history(&self, session: SessionNo, before: Option<EntryNo>, limit: u64) -> Answer<Vec<JournalRow>>;

    /// A session's journal rows that hold entries after `after`, oldest first, at most `limit`; none only if there is no such
    /// entry. Each is checked like those of a history. Reading a journal so from its beginning to its end costs about
    /// what it holds, however long it is.
    fn journal_after(&self, session: SessionNo, after: EntryNo, limit: u64) -> Answer<Vec<JournalRow>>;

    /// At most `len` bytes of a blob from `offset`; fewer at its end, none past it. `None`: there is no such blob.
    fn blob(&self, blob: BlobNo, offset: u64, len: u64) -> Answer<Option<Vec<u8>>>;

    /// How large a blob is. `None`: there is no such blob.
    fn blob_size(&self, blob: BlobNo) -> Answer<Option<BlobSize>>;

    /// The messages for a session that its owner has not adopted yet, oldest first, at most `limit`.
    fn inbound(&self, session: SessionNo, limit: u64) -> Answer<Vec<Inbound>>;

    /// The call that a mark is at; `None` if it was never set.
    fn marked(&self, mark: Mark) -> Answer<Option<CallId>>;

    /// The record of this key; `session` does not matter for a space of the whole store.
    fn record(&self, session: SessionNo, space: Space, key: &str) -> Answer<Option<Record>>;

    /// A page of a space's records, by key.
    fn records(&self, page: RecordPage<'_>) -> Answer<Vec<Record>>;

    /// How many records a space has.
    fn count_records(&self, session: SessionNo, space: Space) -> Answer<u64>;

    /// The secret from which this store's handles are derived; made when the store was.
    fn secret(&self) -> &Secret;

    /// What an acknowledged commit survives.
    fn durability(&self) -> Durability;

    /// Whether whoever owned the store last was cut off, rather than closing it: then what it was doing may be what
    /// killed it. Once this was asked, closing the store in good order clears it.
    fn last_owner_died(&self) -> bool;

    /// How often the store waited for durability since it was opened: group commits, not changes. A store that
    /// never waits counts how often it would have for a caller on its own.
    fn commits(&self) -> u64;
}

/// What an acknowledged commit survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: it is gone with the process.
    Memory,
    /// The death of the process, not a power cut. Must be asked for.
    Relaxed,
    /// The death of the process and a power cut.
    Full,
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Durability::Memory => "memory",
            Durability::Relaxed => "relaxed",
            Durability::Full => "full",
        })
    }
}

/// What the store numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// Sessions, from 1.
    Session,
    /// Batches of all sessions, from 1.
    Batch,
    /// Blobs, from 1.
    Blob,
}

/// A session as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its number.
    pub no: SessionNo,
    /// Its name.
    pub name: String,
    /// Its owner's fence.
    pub fence: Fence,
    /// Its last entry; 0 before the first.
    pub head: EntryNo,
}

/// A batch as the store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRow {
    /// Its number.
    pub no: BatchNo,
    /// Its session.
    pub session: SessionNo,
    /// How it is found.
    pub lookup: Lookup,
    /// Whether one of its calls is open.
    pub open: bool,
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
    /// How many entries there are.
    pub count: u32,
    /// The entries.
    pub data: Vec<u8>,
}

/// How large a blob is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobSize {
    /// How many bytes it has.
    pub bytes: u64,
    /// How many pieces.
    pub pieces: u32,
}

/// A piece of a session that is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The session.
    pub session: SessionNo,
    /// Its owner's fence; refused with [`Refused::Fenced`] if it is another.
    pub fence: Fence,
    /// How many rows at most. Pieces of blobs are larger than other rows and count for [`PIECE_ROWS`] each.
    pub most: u64,
}

/// For how many rows a piece of a blob counts when it is removed.
pub const PIECE_ROWS: u64 = 16;

/// What became of a session of which a piece was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Something of it is left.
    Piece,
    /// It is gone.
    All,
}

/// A message for the owner of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// For whose owner.
    pub session: SessionNo,
    /// What makes it one message, however often it is sent.
    pub key: String,
    /// What it says.
    pub body: Vec<u8>,
}

/// What became of a posted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is kept.
    New,
    /// The same message was there already, adopted or not.
    Again,
    /// Another message has this key; this one was not kept.
    Differs,
}
