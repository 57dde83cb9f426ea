//! What an owner writes: a fence, guards, rows; all of it or none of it.

use std::sync::Arc;
use windlass_core::ids::{BatchNo, BlobNo, EntryNo, Fence, Lookup, SessionNo};

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
    /// The session had this fence when it was read; from now on it has the next. Refused with
    /// [`Refused::Fenced`] if somebody took it in between.
    Take {
        /// The fence that was read.
        from: Fence,
    },
    /// The session is ours under this fence.
    Held(Fence),
}

/// What must be true when a change is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// No batch is recorded under this look-up.
    Absent(Lookup),
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
        /// The next row of that batch, from 0.
        row: u32,
        /// How many entries there are.
        count: u32,
        /// The entries, packed.
        data: Arc<[u8]>,
    },
    /// The last call of a batch ended.
    Close(BatchNo),
    /// A call was added to a batch that was closed.
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
    /// A message of this session's `inbound` was made into entries; refused with [`Refused::Adopted`] if it is
    /// not waiting there.
    Adopt {
        /// The message's key.
        key: String,
    },
}

/// A change was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The number of its first entry; of the next one, if it had none.
    pub first: EntryNo,
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
    /// The session, or a batch under that look-up, is recorded already.
    #[error("it is recorded already; read what is there and go on from it")]
    Exists,
    /// The message was adopted before, or never sent.
    #[error("the message is not waiting; read what is there and go on from it")]
    Adopted,
}
