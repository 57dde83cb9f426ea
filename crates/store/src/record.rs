//! Records: small rows by key that are not facts about a call, for everything that needs no table of its own.

use crate::change::BLOBS_MAX;
use windlass_core::handle::Secret;
use windlass_core::ids::{BlobNo, SessionNo};

/// The number that stands for the whole store where rows have the number of a session.
const WHOLE_STORE: SessionNo = SessionNo(0);

/// The maximum size of a key, so that it fits in an index.
pub const RECORD_KEY_BYTES_MAX: usize = 256;
/// The maximum size of a value: anything larger is a blob.
pub const RECORD_VALUE_BYTES_MAX: usize = 64 << 10;

/// The subject of a session's records. They are written by its owner and removed with it. A released number, here or in
/// [`StoreSpace`], never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// Key-value pairs.
    Pair = 1,
    /// The blobs by their content.
    Content = 11,
    /// The blobs without references, by their number.
    Loose = 12,
    /// The blobs with their metadata, by their numbers as [`blob_key`] writes them: they are removed with the session. Put with the first
    /// piece of each; a blob has one record of this kind in the whole store.
    Blob = 16,
    /// Notices for the agent.
    Notice = 20,
    /// Logs of tasks.
    Log = 21,
    /// The calls that are tasks.
    Task = 22,
    /// The schedules.
    Schedule = 23,
    /// The enabled schedules.
    Armed = 24,
    /// The triggers.
    Trigger = 27,
    /// The worker that owns the session, on a shared store.
    Owner = 31,
    /// Settings, limits and the parent of the session: put by the change that opens it, or by its owner.
    About = 33,
    /// Whether the session is being removed. It goes with the session's own row: an interrupted removal is always found.
    Removing = 35,
    /// The children, by name. A name that is listed here may not be open yet, or not any more.
    Child = 36,
    /// Waits of calls for tasks and named events, and events that are emitted once their calls succeed.
    Awaited = 40,
    /// The named events that were fulfilled.
    Fulfilled = 41,
    /// The count of the events, and those with a key of their own.
    Event = 42,
    /// Acknowledged notices, oldest first.
    Acknowledged = 43,
    /// The tools that were revealed to the model, by name.
    Revealed = 50,
    /// The approvals that are given again, by id.
    Remembered = 60,
    /// The grants, by id.
    Grant = 66,
    /// The uses of grants: each claims a key, of the grant's id and a number.
    GrantUse = 67,
    /// The calls that ended as unknown, by number, until somebody says how they ended.
    Unknown = 65,
    /// The secrets, by name: encrypted.
    Secret = 62,
    /// Messages for webhooks that are not delivered yet, by webhook and by the time of their next delivery.
    Outgoing = 63,
    /// The answers that reached their caller, by the digest of the call.
    Delivered = 68,
}

/// The subject of the records of the whole store. Each is written by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum StoreSpace {
    /// Tokens.
    Token = 2,
    /// Settings.
    Setting = 3,
    /// The workers of a shared store, by their ids: each live worker writes its own again and again.
    Worker = 30,
    /// Sessions with pending messages, by their owners: written by the worker that posts a message for another.
    Knock = 32,
    /// The policy: the newest version, and those before it.
    Policy = 70,
    /// The secrets of all sessions, by name: encrypted.
    FolderSecret = 72,
    /// Webhooks, by their ids.
    Webhook = 71,
    /// Codes that log a browser in once, by their hashes.
    Login = 73,
    /// Changes for all workers at once, apart from the policy: paused tools, and the number of revocations.
    Order = 75,
    /// The `global:` names that calls hold, and the workers that wait for them, on a store that several workers share.
    GlobalName = 76,
    /// The limits of tools and groups that several workers share: who has how much of each.
    Limit = 77,
    /// The requests that each of several workers has let in, by tokens.
    TokenUse = 78,
    /// Toolboxes by their names, and the pieces of their manifests.
    Toolbox = 74,
}

/// The number of the space of removed sessions' names, as [`gone_key`] hashes them: they are never used again. A store writes it with
/// the last piece of a removal, and reads it when a session is opened.
pub(crate) const GONE: i64 = 34;

/// The records of one space in one home: a session, or the whole store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shelf {
    space: u8,
    home: SessionNo,
}

impl Shelf {
    /// The number of the space in the database.
    pub(crate) fn number(self) -> i64 {
        i64::from(self.space)
    }

    /// The home in the database: the session, or 0.
    pub(crate) fn home(self) -> SessionNo {
        self.home
    }

    /// The shelf of these numbers in the database.
    #[cfg(feature = "postgres")]
    pub(crate) fn read(number: i64, home: SessionNo) -> Shelf {
        Shelf { space: u8::try_from(number).unwrap_or(u8::MAX), home }
    }

    /// The names of removed sessions.
    pub(crate) const fn gone() -> Shelf {
        Shelf { space: GONE as u8, home: WHOLE_STORE }
    }
}

impl StoreSpace {
    /// Its records.
    pub const fn shelf(self) -> Shelf {
        Shelf { space: self as u8, home: WHOLE_STORE }
    }
}

/// The key of a blob in [`Space::Blob`].
pub fn blob_key(blob: BlobNo) -> String {
    format!("{:016x}", blob.0)
}

/// The key by which a removed session's name is kept: a hash, keyed by the store's secret.
pub(crate) fn gone_key(secret: &Secret, name: &str) -> String {
    gone_hash(secret, name).to_hex().to_string()
}

/// The hash by which a removed session's name is kept.
pub(crate) fn gone_hash(secret: &Secret, name: &str) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(&secret.0);
    hasher.update(b"gone session").update(name.as_bytes());
    hasher.finalize()
}

/// The value that is kept of a removed session of this name and principal: also a hash, so that only those who
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
    /// The spaces that are removed with their session, in this order. Blobs come first: the rest of a blob is found by its record.
    /// [`Space::Removing`] is not among them.
    pub(crate) const REMOVED: [Space; 25] = [
        Space::Blob,
        Space::Content,
        Space::Loose,
        Space::Pair,
        Space::Notice,
        Space::Log,
        Space::Task,
        Space::Schedule,
        Space::Armed,
        Space::Trigger,
        Space::Owner,
        Space::About,
        Space::Child,
        Space::Awaited,
        Space::Fulfilled,
        Space::Event,
        Space::Acknowledged,
        Space::Revealed,
        Space::Remembered,
        Space::Secret,
        Space::Outgoing,
        Space::Unknown,
        Space::Grant,
        Space::GrantUse,
        Space::Delivered,
    ];

    /// Its records in a session.
    pub const fn of(self, session: SessionNo) -> Shelf {
        Shelf { space: self as u8, home: session }
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

/// The records to list: those of a shelf in the order of their keys.
#[derive(Clone, Copy, Debug)]
pub struct RecordPage<'a> {
    /// The records to choose from.
    pub shelf: Shelf,
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
