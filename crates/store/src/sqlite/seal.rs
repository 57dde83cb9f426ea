//! Seals of rows outside the journal's chain: a session's own row, its set of open batches, pieces of blobs,
//! messages, records, and the definitions of the tables.

use super::expire::Gap;
use crate::Shelf;
use crate::chain::{ChainLink, uint};
use rusqlite::{Connection, Error};
use windlass_core::ids::{CallId, Lookup, Mark, SessionNo};

/// The changing parts of a session's row. Its name does not change, and is in the table and in an index.
#[derive(Clone, Copy)]
pub(super) struct Sealed {
    pub no: u64,
    pub fence: u64,
    pub head: u64,
    pub last_row: Option<i64>,
    pub chain: ChainLink,
    pub open: i64,
}

impl Sealed {
    /// The seal of the row. It fills two blocks of the hash.
    pub fn seal(&self) -> i64 {
        let mut fixed = [0; 80];
        fixed[..8].copy_from_slice(&self.no.to_le_bytes());
        fixed[8..16].copy_from_slice(&self.fence.to_le_bytes());
        fixed[16..24].copy_from_slice(&self.head.to_le_bytes());
        // No row has the key -1.
        fixed[24..32].copy_from_slice(&self.last_row.unwrap_or(-1).to_le_bytes());
        fixed[32..64].copy_from_slice(&self.chain);
        fixed[64..72].copy_from_slice(&self.open.to_le_bytes());
        first_eight(&blake3::hash(&fixed))
    }
}

/// The seal of a batch's row. It fits in one block of the hash.
pub(super) fn batch_seal(no: u64, session: u64, lookup: Lookup) -> i64 {
    let mut fixed = [0; 32];
    fixed[..8].copy_from_slice(&no.to_le_bytes());
    fixed[8..16].copy_from_slice(&session.to_le_bytes());
    fixed[16..].copy_from_slice(&lookup.0);
    first_eight(&blake3::hash(&fixed))
}

/// The seal of the row of a batch that expired.
pub(super) fn expired_seal(no: u64, session: u64, lookup: Lookup) -> i64 {
    let mut fixed = [0; 40];
    fixed[..8].copy_from_slice(&no.to_le_bytes());
    fixed[8..16].copy_from_slice(&session.to_le_bytes());
    fixed[16..32].copy_from_slice(&lookup.0);
    fixed[32..].copy_from_slice(b"expired.");
    first_eight(&blake3::hash(&fixed))
}

/// The seal of the row of a run of expired rows.
pub(super) fn gap_seal(session: SessionNo, gap: &Gap) -> i64 {
    let mut fixed = [0; 112];
    let numbers = [session.0, gap.first, gap.count, gap.last_row.cast_unsigned()];
    for (place, number) in numbers.iter().enumerate() {
        fixed[place * 8..][..8].copy_from_slice(&number.to_le_bytes());
    }
    fixed[32..64].copy_from_slice(&gap.link);
    // No row has the key -1.
    fixed[64..72].copy_from_slice(&gap.prev.unwrap_or(-1).to_le_bytes());
    fixed[72..104].copy_from_slice(&gap.before);
    first_eight(&blake3::hash(&fixed))
}

/// The seal of a mark's row.
pub(super) fn mark_seal(mark: Mark, session: u64, call: CallId) -> i64 {
    let mut fixed = [0; 32];
    fixed[..16].copy_from_slice(&mark.0);
    fixed[16..24].copy_from_slice(&session.to_le_bytes());
    fixed[24..].copy_from_slice(&call.packed().to_le_bytes());
    first_eight(&blake3::hash(&fixed))
}

/// An open batch's part of the sum in its session's row, subtracted when it is closed: the sum seals the set
/// (SplitMix64, so that no two sets that damage could make of each other have the same sum).
pub(super) fn open_part(batch: u64) -> i64 {
    let mut z = batch.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).cast_signed()
}

/// The digest of a piece of a blob, in its place.
pub(super) fn piece_digest(key: i64, data: &[u8]) -> ChainLink {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&key.to_le_bytes()).update(data);
    *hasher.finalize().as_bytes()
}

/// The digest of a message, with its session and key.
pub(super) fn message_digest(session: i64, key: &str, body: &[u8]) -> ChainLink {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&session.to_le_bytes()).update(&(key.len() as u64).to_le_bytes());
    hasher.update(key.as_bytes()).update(body);
    *hasher.finalize().as_bytes()
}

/// The seal of a record, in its place.
pub(super) fn record_seal(generation: u64, shelf: Shelf, key: &str, value: &[u8]) -> i64 {
    numbered_record_seal(generation, shelf.number(), shelf.home(), key, value)
}

/// The seal of a record in the space of this number, which may be one that this Windlass does not know.
pub(super) fn numbered_record_seal(
    generation: u64,
    space: i64,
    owner: SessionNo,
    key: &str,
    value: &[u8],
) -> i64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&generation.to_le_bytes()).update(&space.to_le_bytes());
    hasher.update(&owner.0.to_le_bytes()).update(&(key.len() as u64).to_le_bytes());
    hasher.update(key.as_bytes()).update(value);
    first_eight(&hasher.finalize())
}

/// The seal of the highest removed numbers.
pub(super) fn numbers_seal(numbers: &[u8]) -> i64 {
    first_eight(&blake3::hash(numbers))
}

/// The digest of the definitions of the tables and their root pages.
pub(super) fn schema_digest(conn: &Connection) -> Result<ChainLink, Error> {
    let sql = "SELECT type, name, tbl_name, rootpage, coalesce(sql, '') FROM sqlite_schema ORDER BY rowid";
    let mut hasher = blake3::Hasher::new();
    let mut select = conn.prepare(sql)?;
    let mut rows = select.query(())?;
    while let Some(row) = rows.next()? {
        for column in [0, 1, 2, 4] {
            let text: String = row.get(column)?;
            hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
        }
        hasher.update(&uint(row.get(3)?).to_le_bytes());
    }
    Ok(*hasher.finalize().as_bytes())
}

fn first_eight(hash: &blake3::Hash) -> i64 {
    let bytes = hash.as_bytes();
    i64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}
