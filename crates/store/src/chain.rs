//! The hash chain of a session's journal, and the keys of rows.

use crate::{JournalRow, StoreError};
use windlass_core::ids::{BatchNo, BlobNo};

/// The link of a row: the hash of everything before it.
pub(crate) type ChainLink = [u8; 32];

/// The link of a session's first row.
pub(crate) const START: ChainLink = [0; 32];

/// The parts of a journal row that its link covers.
pub(crate) struct Linked<'a> {
    pub session: u64,
    pub batch: u64,
    pub row: u32,
    pub first: u64,
    pub count: u32,
    pub data: &'a [u8],
}

impl Linked<'_> {
    /// The link of this row after `prev`. The fixed part fills one block of the hash, so it costs one step.
    pub fn link(&self, prev: &ChainLink) -> ChainLink {
        let mut fixed = [0; 64];
        fixed[..32].copy_from_slice(prev);
        fixed[32..40].copy_from_slice(&self.session.to_le_bytes());
        fixed[40..48].copy_from_slice(&self.batch.to_le_bytes());
        fixed[48..52].copy_from_slice(&self.row.to_le_bytes());
        fixed[52..60].copy_from_slice(&self.first.to_le_bytes());
        fixed[60..64].copy_from_slice(&self.count.to_le_bytes());
        let mut hasher = blake3::Hasher::new();
        hasher.update(&fixed).update(self.data);
        *hasher.finalize().as_bytes()
    }
}

/// Verifies a journal row against its stored link and the previous one.
pub(crate) fn verify(row: &JournalRow, prev: &ChainLink, link: &ChainLink) -> Result<(), StoreError> {
    let linked = Linked {
        session: row.session.0,
        batch: row.batch.0,
        row: row.row,
        first: row.first.0,
        count: row.count,
        data: &row.data,
    };
    if linked.link(prev) == *link { Ok(()) } else { Err(damaged(row, "its hash is another")) }
}

/// The error for a damaged journal row.
pub(crate) fn damaged(row: &JournalRow, what: &str) -> StoreError {
    StoreError::Damaged { session: row.session, entry: row.first.0, what: what.to_owned() }
}

/// The key of a journal row. [`Change::fits`](crate::Change) has checked that the parts do not overlap.
pub(crate) fn row_key(batch: BatchNo, row: u32) -> i64 {
    int(batch.0 << 20 | u64::from(row))
}

/// The batch and the row of a journal key.
pub(crate) fn row_of(key: i64) -> (u64, u32) {
    (uint(key) >> 20, (uint(key) & 0xf_ffff) as u32)
}

/// The key of a piece of a blob.
pub(crate) fn piece_key(blob: BlobNo, seq: u32) -> i64 {
    int(blob.0 << 24 | u64::from(seq))
}

/// The integers of databases are signed; our numbers stay far below the sign.
pub(crate) fn int(number: u64) -> i64 {
    number.cast_signed()
}

/// The number that [`int`] wrote.
pub(crate) fn uint(number: i64) -> u64 {
    number.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_back() {
        assert_eq!(row_of(row_key(BatchNo((1 << 43) - 1), 0xf_ffff)), ((1 << 43) - 1, 0xf_ffff));
        assert_eq!(row_of(row_key(BatchNo(7), 3)), (7, 3));
        assert!(piece_key(BlobNo((1 << 39) - 1), 0xff_ffff) > 0);
    }

    #[test]
    fn a_link_vouches_for_every_part() {
        let link = |change: fn(&mut Linked<'_>), prev: &ChainLink| {
            let mut row = Linked { session: 1, batch: 2, row: 3, first: 4, count: 5, data: b"data" };
            change(&mut row);
            row.link(prev)
        };
        let links = [
            link(|_| {}, &START),
            link(|_| {}, &[1; 32]),
            link(|row| row.session = 9, &START),
            link(|row| row.batch = 9, &START),
            link(|row| row.row = 9, &START),
            link(|row| row.first = 9, &START),
            link(|row| row.count = 9, &START),
            link(|row| row.data = b"date", &START),
        ];
        for (place, one) in links.iter().enumerate() {
            assert!(!links[..place].contains(one), "case {place}");
        }
    }
}
