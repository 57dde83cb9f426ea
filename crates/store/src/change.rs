//! An owner's writes: a fence, guards, rows; all of it or none of it.

use crate::record::{RECORD_KEY_BYTES_MAX, RECORD_VALUE_BYTES_MAX, Space, StoreSpace};
use std::sync::Arc;
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Fence, Lookup, Mark, SessionNo};

/// A write to one home: a session, or one record of the whole store. Applied whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes to a session.
    Session(SessionChange),
    /// Writes one record of the whole store.
    Record(RecordChange),
}

/// A write to a session by its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionChange {
    /// The session.
    pub session: SessionNo,
    /// The right to write.
    pub hold: Hold,
    /// Conditions that must hold when it is applied.
    pub guards: Vec<Guard>,
    /// The rows to write.
    pub rows: Vec<Row>,
}

/// A write of one record of the whole store, by anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordChange {
    /// The space.
    pub space: StoreSpace,
    /// The record's key.
    pub key: String,
    /// The condition that must hold when it is applied, if any.
    pub guard: Option<RecordGuard>,
    /// The record's new value; `None`: it is removed. Removing a missing one changes nothing.
    pub value: Option<Arc<[u8]>>,
}

/// A condition on the record that a [`RecordChange`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordGuard {
    /// It has this generation; 0 means that there is none. Refused with [`Refused::Changed`].
    Generation(u64),
    /// It exists, or its space has fewer than this many records. Refused with [`Refused::Full`].
    Room(u64),
}

impl From<SessionChange> for Change {
    fn from(change: SessionChange) -> Change {
        Change::Session(change)
    }
}

impl From<RecordChange> for Change {
    fn from(change: RecordChange) -> Change {
        Change::Record(change)
    }
}

impl RecordChange {
    /// Sets a record, whatever it was before.
    pub fn put(space: StoreSpace, key: impl Into<String>, value: impl Into<Arc<[u8]>>) -> RecordChange {
        RecordChange { space, key: key.into(), guard: None, value: Some(value.into()) }
    }

    /// Removes a record.
    pub fn remove(space: StoreSpace, key: impl Into<String>) -> RecordChange {
        RecordChange { space, key: key.into(), guard: None, value: None }
    }

    /// Makes it depend on a condition.
    pub fn guarded(self, guard: RecordGuard) -> RecordChange {
        RecordChange { guard: Some(guard), ..self }
    }

    /// Whether the record can be stored.
    pub(crate) fn fits(&self) -> bool {
        self.value.as_ref().is_none_or(|value| record_fits(&self.key, value))
    }
}

/// The right by which a change is made. Opening and taking travel with the first change, so that owning a
/// session costs no commit of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Opens a new session, with this name and fence 1. Refused with [`Refused::Exists`] if the name or number is taken, with
    /// [`Refused::Gone`] if a session of this name was removed.
    Open {
        /// Its name.
        name: String,
        /// The principal it belongs to, permanently; a session may have none.
        principal: Option<String>,
    },
    /// Takes the session: it had the fence `from` when it was read; from now on it has `to`. Refused with
    /// [`Refused::Fenced`] if another process took it in between, or if `to` is not larger.
    ///
    /// Changes may be sent after this one before it is answered. So two processes that read the same fence must not
    /// choose the same `to`: the loser's next changes would be taken for the winner's. See [`Fence::after`].
    Take {
        /// The fence that was read.
        from: Fence,
        /// The fence from now on.
        to: Fence,
    },
    /// The session is held under this fence.
    Held(Fence),
}

/// A condition on the records of a session that must hold when a change is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The record has this generation; 0 means that there is none. Refused with [`Refused::Changed`].
    Generation {
        /// The space.
        space: Space,
        /// The record's key.
        key: String,
        /// The generation that was read.
        is: u64,
    },
    /// The record exists, or its space has fewer than `max` records. Refused with [`Refused::Full`].
    Room {
        /// The space.
        space: Space,
        /// The record's key.
        key: String,
        /// The maximum number of records.
        max: u64,
    },
}

/// A row of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A batch, open. Refused with [`Refused::Exists`] if one is recorded under its look-up or its number.
    Batch {
        /// Its number, reserved.
        no: BatchNo,
        /// Its look-up.
        lookup: Lookup,
    },
    /// Entries of one batch. The store gives them the session's next numbers.
    Journal {
        /// The batch.
        batch: BatchNo,
        /// The next row of that batch, from 0. Refused with [`Refused::Exists`] if it exists already.
        row: u32,
        /// The number of entries, at least one.
        count: u32,
        /// The entries, packed.
        data: Vec<u8>,
    },
    /// The last call of a batch of this session has ended. Closing it again changes nothing.
    Close(BatchNo),
    /// A call was added to a closed batch of this session. Reopening an open one changes nothing.
    Reopen(BatchNo),
    /// Removes the rows of a closed batch of this session, and keeps its look-up and its number: it is *expired*. The entries of
    /// the session keep their numbers, and the rest of its journal is verified as before. Expiring an expired batch changes
    /// nothing. Refused with [`Refused::NotOver`] if the batch is open, or not recorded in this session.
    Expire(BatchNo),
    /// A piece of a blob; pieces are numbered from 0 and all but the last have the same length.
    Chunk {
        /// The blob, its number reserved.
        blob: BlobNo,
        /// The number of the piece.
        seq: u32,
        /// The bytes.
        data: Arc<[u8]>,
    },
    /// Cuts a blob to its first `pieces` pieces; with 0 it is removed, and its number is never used again.
    /// Cutting a shorter blob changes nothing.
    Cut {
        /// The blob.
        blob: BlobNo,
        /// The number of pieces left.
        pieces: u32,
    },
    /// A message of this session's `inbound` became entries; refused with [`Refused::Adopted`] if it is not
    /// pending.
    Adopt {
        /// The message's key.
        key: String,
    },
    /// Sets a mark to this call, wherever it was before.
    Mark {
        /// The mark; it belongs to this session alone.
        mark: Mark,
        /// The call.
        call: CallId,
    },
    /// Sets a record, whatever it was before.
    Put {
        /// The space.
        space: Space,
        /// Its key.
        key: String,
        /// Its value.
        value: Arc<[u8]>,
    },
    /// Claims a key: adds an empty record where there is none. Refused with [`Refused::Exists`] if there is one, so of several
    /// changes that claim a key only one is applied.
    Claim {
        /// The space.
        space: Space,
        /// The key.
        key: String,
    },
    /// Removes a record. Removing a missing one changes nothing.
    Remove {
        /// The space.
        space: Space,
        /// Its key.
        key: String,
    },
}

/// The result of an applied change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The number of its first entry; of the next one, if it had none.
    pub first: EntryNo,
    /// The generation of the last record it put, 0 if it put none. Several records get consecutive generations.
    pub generation: u64,
}

/// A change that was not applied: nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The session has another fence: this process does not own it.
    #[error("the session is owned by another worker (its fence is {now}); this one must stop")]
    Fenced {
        /// The current fence; 0 if there is no such session.
        now: Fence,
    },
    /// The session, a batch under that look-up, or a row of the change is already recorded.
    #[error("it is already recorded; read it and continue from there")]
    Exists,
    /// The message was adopted before, or never sent.
    #[error("the message is not pending; read the inbox and continue from there")]
    Adopted,
    /// A number in it is past what stores can key: [`BATCHES_MAX`], [`BATCH_ROWS_MAX`], [`BLOBS_MAX`], [`BLOB_PIECES_MAX`];
    /// or a record is larger than one may be: [`RECORD_KEY_BYTES_MAX`], [`RECORD_VALUE_BYTES_MAX`].
    #[error("the batch, blob or record is larger than a store can hold; end it or make it smaller")]
    TooLarge,
    /// A session of this name was removed: names are not used again.
    #[error("a session of this name was removed; choose another name")]
    Gone,
    /// Another process has written the record.
    #[error("the record was changed (its generation is {now}); read it and continue from there")]
    Changed {
        /// Its generation; 0 if there is none.
        now: u64,
    },
    /// The space has the maximum number of records.
    #[error("there is no room for another record; remove one first")]
    Full,
    /// A batch that should expire is open, or not recorded in this session.
    #[error("the batch cannot expire: one of its calls is open, or it is not of this session")]
    NotOver,
}

/// Batches are numbered below this, so that a batch and a row of it fit in one signed 64-bit key.
pub const BATCHES_MAX: u64 = 1 << 43;
/// Rows of one batch are numbered below this; see [`BATCHES_MAX`].
pub const BATCH_ROWS_MAX: u32 = 1 << 20;
/// Blobs are numbered below this, so that a blob and a piece of it fit in one signed 64-bit key.
pub const BLOBS_MAX: u64 = 1 << 39;
/// Pieces of one blob are numbered below this; see [`BLOBS_MAX`].
pub const BLOB_PIECES_MAX: u32 = 1 << 24;

impl SessionChange {
    /// Whether every number in it can be stored.
    pub(crate) fn fits(&self) -> bool {
        self.rows.iter().all(|row| match row {
            Row::Batch { no, .. } | Row::Close(no) | Row::Reopen(no) | Row::Expire(no) => no.0 < BATCHES_MAX,
            Row::Journal { batch, row, .. } => batch.0 < BATCHES_MAX && *row < BATCH_ROWS_MAX,
            Row::Chunk { blob, seq, .. } => blob.0 < BLOBS_MAX && *seq < BLOB_PIECES_MAX,
            Row::Cut { blob, pieces } => blob.0 < BLOBS_MAX && *pieces < BLOB_PIECES_MAX,
            Row::Mark { call, .. } => call.batch.0 < BATCHES_MAX,
            Row::Put { key, value, .. } => record_fits(key, value),
            Row::Claim { key, .. } => record_fits(key, &[]),
            Row::Adopt { .. } | Row::Remove { .. } => true,
        })
    }

    /// Whether a batch that one of its rows creates is open at the end; `None` if none does.
    pub(crate) fn leaves_open(&self, wanted: BatchNo) -> Option<bool> {
        let (mut made, mut open) = (false, true);
        for row in &self.rows {
            match row {
                Row::Batch { no, .. } if *no == wanted => (made, open) = (true, true),
                Row::Close(no) if *no == wanted => open = false,
                Row::Reopen(no) if *no == wanted => open = true,
                Row::Batch { .. } | Row::Close(_) | Row::Reopen(_) => {}
                Row::Journal { .. } | Row::Chunk { .. } | Row::Adopt { .. } | Row::Mark { .. } => {}
                Row::Put { .. } | Row::Claim { .. } | Row::Remove { .. } => {}
                Row::Cut { .. } | Row::Expire(_) => {}
            }
        }
        made.then_some(open)
    }
}

fn record_fits(key: &str, value: &[u8]) -> bool {
    key.len() <= RECORD_KEY_BYTES_MAX && value.len() <= RECORD_VALUE_BYTES_MAX
}
