//! Records: small rows by key that are not facts about a call. Whatever needs no table of its own is kept in them.

use crate::change::BLOBS_MAX;
use windlass_core::ids::{BlobNo, SessionNo};

/// Whom the records of the whole store belong to.
pub const STORE: SessionNo = SessionNo(0);

/// A key has at most this many bytes, so that it fits in an index.
pub const RECORD_KEY_BYTES_MAX: usize = 256;
/// A value has at most this many bytes: what is larger is a blob.
pub const RECORD_VALUE_BYTES_MAX: usize = 64 << 10;

/// What a record is about. A number that was released never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// Key-value pairs of a session.
    Pair = 1,
    /// Tokens of the store.
    Token = 2,
    /// What is set for a session, by its name: it may be set before the session is opened.
    Setting = 3,
    /// What is known of a blob, by its number.
    Artifact = 10,
    /// The blobs of a session, by their content.
    Content = 11,
    /// The blobs that nothing refers to, by their number.
    Loose = 12,
    /// The blobs of a session, by their numbers as [`blob_key`] writes them: they are removed with it. Put with the first piece
    /// of each.
    Blob = 16,
    /// What the agent of a session is to be told.
    Notice = 20,
    /// What tasks of a session have said.
    Log = 21,
    /// Which calls of a session are tasks.
    Task = 22,
    /// The schedules of a session.
    Schedule = 23,
    /// Which of them are enabled.
    Armed = 24,
    /// The triggers of a session.
    Trigger = 27,
    /// The workers of a store that several share, by their ids: put again and again by whoever is alive.
    Worker = 30,
    /// Which worker owns a session of such a store.
    Owner = 31,
    /// Which sessions have something to hear, by their owners: put by whoever leaves a message for another worker.
    Knock = 32,
}

/// The key of a blob in [`Space::Blob`].
pub fn blob_key(blob: BlobNo) -> String {
    format!("{:016x}", blob.0)
}

/// The blob that a key of [`Space::Blob`] is about.
pub(crate) fn blob_of(key: &str) -> Option<BlobNo> {
    let number = u64::from_str_radix(key, 16).ok().filter(|number| *number < BLOBS_MAX)?;
    (key == blob_key(BlobNo(number))).then_some(BlobNo(number))
}

impl Space {
    /// Those whose records are a session's own, and go with it. Blobs come first: what is left of one is found by its record.
    pub(crate) const OF_SESSIONS: [Space; 10] = [
        Space::Blob,
        Space::Content,
        Space::Pair,
        Space::Notice,
        Space::Log,
        Space::Task,
        Space::Schedule,
        Space::Armed,
        Space::Trigger,
        Space::Owner,
    ];

    /// Whose records these are, for one who works in this session: the session's own, or the store's.
    pub fn owner(self, session: SessionNo) -> SessionNo {
        if self.is_of_store() { STORE } else { session }
    }

    /// Whether its records belong to the whole store.
    pub(crate) fn is_of_store(self) -> bool {
        match self {
            Space::Pair | Space::Content | Space::Blob | Space::Notice | Space::Log | Space::Task => false,
            Space::Schedule | Space::Armed | Space::Trigger | Space::Owner => false,
            Space::Token | Space::Setting | Space::Artifact | Space::Loose => true,
            Space::Worker | Space::Knock => true,
        }
    }

    /// The number it is kept under.
    pub(crate) fn number(self) -> i64 {
        self as i64
    }
}

/// A record as it was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its key.
    pub key: String,
    /// What it holds.
    pub value: Vec<u8>,
    /// Which writing of it this is: each has a number of its own in the store, and a later one a larger, whatever was
    /// removed in between.
    pub generation: u64,
}

/// Which records are asked for: those of a space in the order of their keys.
#[derive(Clone, Copy, Debug)]
pub struct RecordPage<'a> {
    /// The session they belong to; it does not matter for a space of the whole store.
    pub session: SessionNo,
    /// The space.
    pub space: Space,
    /// How their keys begin.
    pub prefix: &'a str,
    /// The key after which the page begins.
    pub after: Option<&'a str>,
    /// How many at most.
    pub limit: u64,
}

impl<'a> RecordPage<'a> {
    /// The first key that may be on the page. The one it comes after is not, even if it is this one.
    pub(crate) fn from(&self) -> &'a str {
        self.after.map_or(self.prefix, |after| after.max(self.prefix))
    }
}
