//! The mark in the database of a backup that was not started yet: when it was taken.

use crate::sqlite::seal::numbers_seal;
use rusqlite::{Connection, Error, OptionalExtension};
use windlass_core::time::Timestamp;

/// The mark of a backup. Its first start removes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sqlite) struct BackupMark {
    /// Everything acknowledged before this time is in the backup.
    pub taken: Timestamp,
}

impl BackupMark {
    /// The mark in a file; `None` if it is no backup, or the mark is damaged: it only informs.
    pub fn recorded(conn: &Connection) -> Result<Option<BackupMark>, Error> {
        let sql = "SELECT value FROM meta WHERE key = 'backup'";
        let kept = conn.query_row(sql, (), |row| row.get::<_, Vec<u8>>(0)).optional()?;
        Ok(kept.and_then(|kept| BackupMark::decode(&kept)))
    }

    /// Records it, in the current transaction.
    pub fn record(self, conn: &Connection) -> Result<(), Error> {
        let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES ('backup', ?1)";
        conn.execute(sql, [self.encode()]).map(drop)
    }

    /// Removes the mark from a file, in the current transaction.
    pub fn remove(conn: &Connection) -> Result<(), Error> {
        conn.execute("DELETE FROM meta WHERE key = 'backup'", ()).map(drop)
    }

    fn encode(self) -> Vec<u8> {
        let mut bytes = self.taken.0.to_le_bytes().to_vec();
        bytes.extend(numbers_seal(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<BackupMark> {
        let (taken, seal) = bytes.split_at_checked(8)?;
        let is_whole = seal == numbers_seal(taken).to_le_bytes();
        let taken = Timestamp(taken.try_into().map(i64::from_le_bytes).ok()?);
        is_whole.then_some(BackupMark { taken })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_mark_is_none() {
        let mark = BackupMark { taken: Timestamp(1_794_884_494_000_000) };
        let kept = mark.encode();
        assert_eq!(BackupMark::decode(&kept), Some(mark));
        for place in 0..kept.len() {
            let mut damaged = kept.clone();
            damaged[place] ^= 1;
            assert_eq!(BackupMark::decode(&damaged), None, "byte {place}");
        }
        assert_eq!(BackupMark::decode(&kept[1..]), None);
    }
}
