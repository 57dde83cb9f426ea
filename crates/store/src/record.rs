//! Records: small rows by key that are not facts about a call, for everything that needs no table of its own.

use crate::change::BLOBS_MAX;
use windlass_core::handle::Secret;
use windlass_core::ids::{BlobNo, SessionNo};

/// The owner of store-wide records.
pub const STORE: SessionNo = SessionNo(0);

/// The maximum size of a key, so that it fits in an index.
pub const RECORD_KEY_BYTES_MAX: usize = 256;
/// The maximum size of a value: anything larger is a blob.
pub const RECORD_VALUE_BYTES_MAX: usize = 64 << 10;

/// The subject of a record. A released number never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// Key-value pairs of a session.
    Pair = 1,
    /// Tokens of the store.
    Token = 2,
    /// Settings of a session, by its name: they may be set before the session is opened.
    Setting = 3,
    /// Metadata of a blob, by its number.
    Artifact = 10,
    /// The blobs of a session, by their content.
    Content = 11,
    /// The blobs without references, by their number.
    Loose = 12,
    /// The blobs of a session, by their numbers as [`blob_key`] writes them: they are removed with it. Put with the first piece
    /// of each.
    Blob = 16,
    /// Notices for the agent of a session.
    Notice = 20,
    /// Logs of a session's tasks.
    Log = 21,
    /// The calls of a session that are tasks.
    Task = 22,
    /// The schedules of a session.
    Schedule = 23,
    /// The enabled schedules.
    Armed = 24,
    /// The triggers of a session.
    Trigger = 27,
    /// The workers of a shared store, by their ids: each live worker writes its own again and again.
    Worker = 30,
    /// The worker that owns a session of a shared store.
    Owner = 31,
    /// Sessions with pending messages, by their owners: written by the worker that posts a message for another.
    Knock = 32,
    /// Settings, limits and the parent of a session: put by the change that opens it, or by its owner.
    About = 33,
    /// Names of removed sessions, as [`gone_key`](crate::gone_key) hashes them: they are never used again.
    Gone = 34,
    /// The tools that were revealed to the model of a session, by name.
    Revealed = 50,
}

/// The key of a blob in [`Space::Blob`].
pub fn blob_key(blob: BlobNo) -> String {
    format!("{:016x}", blob.0)
}

/// The key in [`Space::Gone`] of the session that had this name: a hash, keyed by the store's secret.
pub fn gone_key(secret: &Secret, name: &str) -> String {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    hasher.update(b"gone session").update(name.as_bytes());
    hasher.finalize().to_hex().to_string()
}

/// The value in [`Space::Gone`] for a session of this name and principal: also a hash, so that only those who
/// know both can tell.
pub fn gone_value(secret: &Secret, name: &str, principal: Option<&str>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    hasher.update(b"principal of gone session").update(&(name.len() as u64).to_le_bytes());
    hasher.update(name.as_bytes()).update(&[u8::from(principal.is_some())]);
    hasher.update(principal.unwrap_or_default().as_bytes());
    *hasher.finalize().as_bytes()
}

/// The blob of a key in [`Space::Blob`].
pub(crate) fn blob_of(key: &str) -> Option<BlobNo> {
    let number = u64::from_str_radix(key, 16).ok().filter(|number| *number < BLOBS_MAX)?;
    (key == blob_key(BlobNo(number))).then_some(BlobNo(number))
}

impl Space {
    /// The spaces of sessions, removed with them. Blobs come first: the rest of a blob is found by its record.
    pub(crate) const OF_SESSIONS: [Space; 12] = [
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
        Space::About,
        Space::Revealed,
    ];

    /// The owner of the records for an access in this session: the session, or the store.
    pub fn owner(self, session: SessionNo) -> SessionNo {
        if self.is_of_store() { STORE } else { session }
    }

    /// Whether its records belong to the whole store.
    pub(crate) fn is_of_store(self) -> bool {
        match self {
            Space::Pair | Space::Content | Space::Blob | Space::Notice | Space::Log | Space::Task => false,
            Space::Schedule | Space::Armed | Space::Trigger | Space::Owner | Space::About => false,
            Space::Revealed => false,
            Space::Token | Space::Setting | Space::Artifact | Space::Loose => true,
            Space::Worker | Space::Knock | Space::Gone => true,
        }
    }

    /// Its number in the database.
    pub(crate) fn number(self) -> i64 {
        self as i64
    }
}

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// Its generation: larger after each write in its session, whatever was removed in between; of a record of the whole store,
    /// never one that it had before.
    pub generation: u64,
}

/// The records to list: those of a space in the order of their keys.
#[derive(Clone, Copy, Debug)]
pub struct RecordPage<'a> {
    /// The session they belong to; it does not matter for a space of the whole store.
    pub session: SessionNo,
    /// The space.
    pub space: Space,
    /// The prefix of their keys.
    pub prefix: &'a str,
    /// The key after which the page begins.
    pub after: Option<&'a str>,
    /// The maximum number of records.
    pub limit: u64,
}

impl<'a> RecordPage<'a> {
    /// The first key that may be on the page. `after` itself is excluded, even if it is this key.
    pub(crate) fn from(&self) -> &'a str {
        self.after.map_or(self.prefix, |after| after.max(self.prefix))
    }
}
