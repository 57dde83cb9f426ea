//! Records: guards, writes and queries.

use super::apply::Applier;
use super::pool::ReaderPool;
use super::read::most;
use super::seal::record_seal;
use crate::chain::{int, uint};
use crate::change::Refused;
use crate::{RecordPage, Shelf, Space, StoreError, StoredRecord, blob_key};
use rusqlite::{Error, OptionalExtension, Row};
use windlass_core::ids::{BlobNo, SessionNo};

impl Applier<'_> {
    /// Why a record does not have this generation.
    pub(super) fn unmet_generation(
        &mut self,
        shelf: Shelf,
        key: &str,
        is: u64,
    ) -> Result<Option<Refused>, Error> {
        let now = self.generation_of(shelf, key)?;
        let holds = now == is || windlass_core::mutant::breaks("guard-skipped");
        Ok((!holds).then_some(Refused::Changed { now }))
    }

    /// Why there is no room for a record.
    pub(super) fn unmet_room(&mut self, shelf: Shelf, key: &str, max: u64) -> Result<Option<Refused>, Error> {
        if self.generation_of(shelf, key)? != 0 {
            return Ok(None);
        }
        let counted = (shelf.number(), int(shelf.home().0), most(max));
        let count: i64 = self.sql.count_records.query_row(counted, |row| row.get(0))?;
        Ok((uint(count) >= max).then_some(Refused::Full))
    }

    /// Puts a record, and returns its generation.
    pub(super) fn put_record(&mut self, shelf: Shelf, key: &str, value: &[u8]) -> Result<u64, Error> {
        let last = match self.generation {
            Some(last) => last,
            None => uint(self.sql.last_generation.query_row((), |row| row.get(0))?),
        };
        let generation = last + 1;
        let seal = record_seal(generation, shelf, key, value);
        let kept = (int(generation), shelf.number(), int(shelf.home().0), key, value, seal);
        point!("write.put", self.sql.put_record.execute(kept))?;
        self.generation = Some(generation);
        Ok(generation)
    }

    /// Removes a record, if it exists.
    pub(super) fn remove_record(&mut self, shelf: Shelf, key: &str) -> Result<(), Error> {
        let place = (shelf.number(), int(shelf.home().0), key);
        point!("write.remove", self.sql.remove_record.execute(place))?;
        Ok(())
    }

    pub(super) fn generation_of(&mut self, shelf: Shelf, key: &str) -> Result<u64, Error> {
        let place = (shelf.number(), int(shelf.home().0), key);
        let found = self.sql.record.query_row(place, |row| row.get(0)).optional()?;
        Ok(found.map_or(0, uint))
    }
}

/// The record of this key.
pub(super) fn one(pool: &ReaderPool, shelf: Shelf, key: &str) -> Result<Option<StoredRecord>, StoreError> {
    let found = pool.read("read a record", |conn| {
        let sql =
            "SELECT key, value, generation, seal FROM records WHERE space = ?1 AND owner = ?2 AND key = ?3";
        let place = (shelf.number(), int(shelf.home().0), key);
        conn.prepare_cached(sql)?.query_row(place, record).optional()
    })?;
    found.map(|(record, seal)| trusted(shelf, record, seal)).transpose()
}

/// The session that has the record of a blob.
pub(super) fn blob_session(pool: &ReaderPool, blob: BlobNo) -> Result<Option<SessionNo>, StoreError> {
    let key = blob_key(blob);
    let home = pool.read("read whose a blob is", |conn| {
        // The space is written out, so that the partial index serves.
        let sql = "SELECT owner FROM records WHERE space = 16 AND key = ?1";
        conn.prepare_cached(sql)?.query_row([&key], |row| Ok(SessionNo(uint(row.get(0)?)))).optional()
    })?;
    // The record is verified with its place: damage must not give a blob to another session.
    match home {
        Some(session) => Ok(one(pool, Space::Blob.of(session), &key)?.map(|_| session)),
        None => Ok(None),
    }
}

/// A page of them, by key.
pub(super) fn page(pool: &ReaderPool, page: RecordPage<'_>) -> Result<Vec<StoredRecord>, StoreError> {
    let shelf = page.shelf;
    let found: Vec<(StoredRecord, i64)> = pool.read("read records", |conn| {
        let sql = "SELECT key, value, generation, seal FROM records
                   WHERE space = ?1 AND owner = ?2 AND key >= ?3 AND key IS NOT ?4 ORDER BY key LIMIT ?5";
        let range = (shelf.number(), int(shelf.home().0), page.from(), page.after, most(page.limit));
        conn.prepare_cached(sql)?.query_map(range, record)?.collect()
    })?;
    // Records of one prefix are neighbours.
    let wanted = found.into_iter().take_while(|(record, _)| record.key.starts_with(page.prefix));
    wanted.map(|(record, seal)| trusted(shelf, record, seal)).collect()
}

/// How many there are.
pub(super) fn count(pool: &ReaderPool, shelf: Shelf) -> Result<u64, StoreError> {
    pool.read("count records", |conn| {
        let sql = "SELECT count(*) FROM records WHERE space = ?1 AND owner = ?2";
        let counted = (shelf.number(), int(shelf.home().0));
        conn.prepare_cached(sql)?.query_row(counted, |row| Ok(uint(row.get(0)?)))
    })
}

/// A record from the file, not verified yet, and its seal.
fn record(row: &Row<'_>) -> Result<(StoredRecord, i64), Error> {
    Ok((StoredRecord { key: row.get(0)?, value: row.get(1)?, generation: uint(row.get(2)?) }, row.get(3)?))
}

fn trusted(shelf: Shelf, record: StoredRecord, seal: i64) -> Result<StoredRecord, StoreError> {
    if record_seal(record.generation, shelf, &record.key, &record.value) == seal {
        return Ok(record);
    }
    let what = format!("the record {:?} of it is not what was written", record.key);
    Err(StoreError::Damaged { session: shelf.home(), entry: 0, what })
}
