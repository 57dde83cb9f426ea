//! What an owner writes: a fence, guards, rows; all of it or none of it.

use crate::record::{RECORD_KEY_BYTES_MAX, RECORD_VALUE_BYTES_MAX, STORE, Space};
use std::sync::Arc;
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Fence, Lookup, Mark, SessionNo};

/// A write to one session, applied whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The session it belongs to.
    pub session: SessionNo,
    /// By what right.
    pub hold: Hold,
    /// What must be true when it is applied.
    pub guards: Vec<Guard>,
    /// What is written.
    pub rows: Vec<Row>,
}

/// The right by which a change is made. Opening and taking travel with the first change, so that owning a
/// session costs no commit of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The session is new: it is made, with this name and fence 1. Refused with [`Refused::Exists`] if the name or number is taken.
    Open {
        /// Its name.
        name: String,
    },
    /// The session had the fence `from` when it was read; from now on it has `to`. Refused with
    /// [`Refused::Fenced`] if somebody took it in between, or if `to` is not larger.
    ///
    /// Changes may be sent behind this one before it is answered. So two who read the same fence must not choose
    /// the same `to`: the loser's next changes would be taken for the winner's. See [`Fence::after`].
    Take {
        /// The fence that was read.
        from: Fence,
        /// The fence from now on.
        to: Fence,
    },
    /// The session is ours under this fence.
    Held(Fence),
    /// No session: only records of the whole store are written and blobs cut, and who else may do that is told by guards.
    /// The change is that of [`STORE`]; refused with [`Refused::Fenced`] if it is another's or writes anything else.
    Store,
}

/// What must be true when a change is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// No batch is recorded under this look-up.
    Absent(Lookup),
    /// The record has this generation; with 0 there is none. Refused with [`Refused::Changed`].
    Generation {
        /// The space.
        space: Space,
        /// The record's key.
        key: String,
        /// The generation that was read.
        is: u64,
    },
    /// There is such a record, or fewer than `max` of its space. Refused with [`Refused::Full`].
    Room {
        /// The space.
        space: Space,
        /// The record's key.
        key: String,
        /// How many there may be.
        max: u64,
    },
}

/// What a change writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A batch, open.
    Batch {
        /// Its number, reserved.
        no: BatchNo,
        /// How it is found.
        lookup: Lookup,
    },
    /// Entries of one batch. The store gives them the session's next numbers.
    Journal {
        /// The batch.
        batch: BatchNo,
        /// The next row of that batch, from 0. Refused with [`Refused::Exists`] if it is there already.
        row: u32,
        /// How many entries there are, at least one.
        count: u32,
        /// The entries, packed.
        data: Vec<u8>,
    },
    /// The last call of a batch of this session ended. Closing it again changes nothing.
    Close(BatchNo),
    /// A call was added to a closed batch of this session. Reopening an open one changes nothing.
    Reopen(BatchNo),
    /// A piece of a blob; pieces are numbered from 0 and all but the last have the same length.
    Chunk {
        /// The blob, its number reserved.
        blob: BlobNo,
        /// The number of the piece.
        seq: u32,
        /// The bytes.
        data: Arc<[u8]>,
    },
    /// A blob has only its first `pieces` pieces from now on; with none it is there no more, and its number is never given
    /// out again. Cutting what is shorter changes nothing.
    Cut {
        /// The blob.
        blob: BlobNo,
        /// How many are left.
        pieces: u32,
    },
    /// A message of this session's `inbound` was made into entries; refused with [`Refused::Adopted`] if it is
    /// not waiting there.
    Adopt {
        /// The message's key.
        key: String,
    },
    /// A mark is at this call from now on, wherever it was before.
    Mark {
        /// The mark; it belongs to this session alone.
        mark: Mark,
        /// The call.
        call: CallId,
    },
    /// A record is this from now on, whatever it was before.
    Put {
        /// The space.
        space: Space,
        /// Its key.
        key: String,
        /// What it holds.
        value: Arc<[u8]>,
    },
    /// A record is there no more. Removing what is not there changes nothing.
    Remove {
        /// The space.
        space: Space,
        /// Its key.
        key: String,
    },
}

/// A change was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The number of its first entry; of the next one, if it had none.
    pub first: EntryNo,
    /// The generation of the last record it put, 0 if it put none. Several have generations that follow each other.
    pub generation: u64,
}

/// A change was not applied, and nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The session is not ours: its fence is another.
    #[error("the session is owned by another worker (its fence is {now}); this one must stop")]
    Fenced {
        /// The fence in force; 0 if there is no such session.
        now: Fence,
    },
    /// The session, a batch under that look-up, or a row of the change is recorded already.
    #[error("it is recorded already; read what is there and go on from it")]
    Exists,
    /// The message was adopted before, or never sent.
    #[error("the message is not waiting; read what is there and go on from it")]
    Adopted,
    /// A number in it is past what stores can key: [`BATCHES_MAX`], [`BATCH_ROWS_MAX`], [`BLOBS_MAX`], [`BLOB_PIECES_MAX`];
    /// or a record is larger than one may be: [`RECORD_KEY_BYTES_MAX`], [`RECORD_VALUE_BYTES_MAX`].
    #[error("the batch, blob or record is larger than a store can keep; it must be ended or made smaller")]
    TooLarge,
    /// A record was written by somebody else.
    #[error("the record was changed (its generation is {now}); read what is there and go on from it")]
    Changed {
        /// Its generation; 0 if there is none.
        now: u64,
    },
    /// There are as many records as there may be.
    #[error("there is no room for another record; remove one first")]
    Full,
}

/// Batches are numbered below this, so that a batch and a row of it fit in one signed 64-bit key.
pub const BATCHES_MAX: u64 = 1 << 43;
/// Rows of one batch are numbered below this; see [`BATCHES_MAX`].
pub const BATCH_ROWS_MAX: u32 = 1 << 20;
/// Blobs are numbered below this, so that a blob and a piece of it fit in one signed 64-bit key.
pub const BLOBS_MAX: u64 = 1 << 39;
/// Pieces of one blob are numbered below this; see [`BLOBS_MAX`].
pub const BLOB_PIECES_MAX: u32 = 1 << 24;

impl Change {
    /// Whether every number in it can be kept.
    pub(crate) fn fits(&self) -> bool {
        self.rows.iter().all(|row| match row {
            Row::Batch { no, .. } | Row::Close(no) | Row::Reopen(no) => no.0 < BATCHES_MAX,
            Row::Journal { batch, row, .. } => batch.0 < BATCHES_MAX && *row < BATCH_ROWS_MAX,
            Row::Chunk { blob, seq, .. } => blob.0 < BLOBS_MAX && *seq < BLOB_PIECES_MAX,
            Row::Cut { blob, pieces } => blob.0 < BLOBS_MAX && *pieces < BLOB_PIECES_MAX,
            Row::Mark { call, .. } => call.batch.0 < BATCHES_MAX,
            Row::Put { key, value, .. } => {
                key.len() <= RECORD_KEY_BYTES_MAX && value.len() <= RECORD_VALUE_BYTES_MAX
            }
            Row::Adopt { .. } | Row::Remove { .. } => true,
        })
    }

    /// Whether all it does is to write records of the whole store and to cut blobs.
    pub(crate) fn is_of_store(&self) -> bool {
        self.session == STORE
            && self.rows.iter().all(|row| match row {
                Row::Put { space, .. } | Row::Remove { space, .. } => space.is_of_store(),
                Row::Cut { .. } => true,
                Row::Batch { .. } | Row::Journal { .. } | Row::Close(_) | Row::Reopen(_) => false,
                Row::Chunk { .. } | Row::Adopt { .. } | Row::Mark { .. } => false,
            })
    }

    /// Whether a batch that one of its rows makes is open in the end; `None` if none does.
    pub(crate) fn leaves_open(&self, wanted: BatchNo) -> Option<bool> {
        let (mut made, mut open) = (false, true);
        for row in &self.rows {
            match row {
                Row::Batch { no, .. } if *no == wanted => (made, open) = (true, true),
                Row::Close(no) if *no == wanted => open = false,
                Row::Reopen(no) if *no == wanted => open = true,
                Row::Batch { .. } | Row::Close(_) | Row::Reopen(_) => {}
                Row::Journal { .. } | Row::Chunk { .. } | Row::Adopt { .. } | Row::Mark { .. } => {}
                Row::Put { .. } | Row::Remove { .. } | Row::Cut { .. } => {}
            }
        }
        made.then_some(open)
    }

    /// Whether one of its rows makes this batch: then writing the row finds out whether it is absent.
    pub(crate) fn makes(&self, wanted: Lookup) -> bool {
        self.rows.iter().any(|row| matches!(row, Row::Batch { lookup, .. } if *lookup == wanted))
    }
}
