//! Records: guards, writes and queries.

use super::apply::Applier;
use super::pool::ReaderPool;
use super::read::most;
use super::seal::record_seal;
use crate::chain::{int, uint};
use crate::change::{Guard, Refused};
use crate::{RecordPage, Space, StoreError, StoredRecord};
use rusqlite::{Error, OptionalExtension, Row};
use windlass_core::ids::SessionNo;

impl Applier<'_> {
    /// The guard of a record that does not hold.
    pub(super) fn unmet_record(
        &mut self,
        session: SessionNo,
        guard: &Guard,
    ) -> Result<Option<Refused>, Error> {
        match guard {
            Guard::Generation { space, key, is } => {
                let now = self.generation_of(session, *space, key)?;
                let holds = now == *is || windlass_core::mutant::breaks("guard-skipped");
                Ok((!holds).then_some(Refused::Changed { now }))
            }
            Guard::Room { space, key, max } => {
                if self.generation_of(session, *space, key)? != 0 {
                    return Ok(None);
                }
                let counted = (space.number(), int(space.owner(session).0), most(*max));
                let count: i64 = self.sql.count_records.query_row(counted, |row| row.get(0))?;
                Ok((uint(count) >= *max).then_some(Refused::Full))
            }
        }
    }

    /// Writes a record; returns the generation of one that is put.
    pub(super) fn write_record(
        &mut self,
        session: SessionNo,
        row: &crate::Row,
    ) -> Result<Option<u64>, Error> {
        if let crate::Row::Remove { space, key } = row {
            let place = (space.number(), int(space.owner(session).0), key);
            point!("write.remove", self.sql.remove_record.execute(place))?;
        }
        let crate::Row::Put { space, key, value } = row else { return Ok(None) };
        let last = match self.generation {
            Some(last) => last,
            None => uint(self.sql.last_generation.query_row((), |row| row.get(0))?),
        };
        let (owner, generation) = (space.owner(session), last + 1);
        let seal = record_seal(generation, *space, owner, key, value);
        let kept = (int(generation), space.number(), int(owner.0), key, &value[..], seal);
        point!("write.put", self.sql.put_record.execute(kept))?;
        self.generation = Some(generation);
        Ok(Some(generation))
    }

    fn generation_of(&mut self, session: SessionNo, space: Space, key: &str) -> Result<u64, Error> {
        let place = (space.number(), int(space.owner(session).0), key);
        let found = self.sql.record.query_row(place, |row| row.get(0)).optional()?;
        Ok(found.map_or(0, uint))
    }
}

/// The record of this key.
pub(super) fn one(
    pool: &ReaderPool,
    session: SessionNo,
    space: Space,
    key: &str,
) -> Result<Option<StoredRecord>, StoreError> {
    let owner = space.owner(session);
    let found = pool.read("read a record", |conn| {
        let sql =
            "SELECT key, value, generation, seal FROM records WHERE space = ?1 AND owner = ?2 AND key = ?3";
        let place = (space.number(), int(owner.0), key);
        conn.prepare_cached(sql)?.query_row(place, record).optional()
    })?;
    found.map(|(record, seal)| trusted(space, owner, record, seal)).transpose()
}

/// A page of them, by key.
pub(super) fn page(pool: &ReaderPool, page: RecordPage<'_>) -> Result<Vec<StoredRecord>, StoreError> {
    let owner = page.space.owner(page.session);
    let found: Vec<(StoredRecord, i64)> = pool.read("read records", |conn| {
        let sql = "SELECT key, value, generation, seal FROM records
                   WHERE space = ?1 AND owner = ?2 AND key >= ?3 AND key IS NOT ?4 ORDER BY key LIMIT ?5";
        let range = (page.space.number(), int(owner.0), page.from(), page.after, most(page.limit));
        conn.prepare_cached(sql)?.query_map(range, record)?.collect()
    })?;
    // Records of one prefix are neighbours.
    let wanted = found.into_iter().take_while(|(record, _)| record.key.starts_with(page.prefix));
    wanted.map(|(record, seal)| trusted(page.space, owner, record, seal)).collect()
}

/// How many there are.
pub(super) fn count(pool: &ReaderPool, session: SessionNo, space: Space) -> Result<u64, StoreError> {
    pool.read("count records", |conn| {
        let sql = "SELECT count(*) FROM records WHERE space = ?1 AND owner = ?2";
        let shelf = (space.number(), int(space.owner(session).0));
        conn.prepare_cached(sql)?.query_row(shelf, |row| Ok(uint(row.get(0)?)))
    })
}

/// A record from the file, not verified yet, and its seal.
fn record(row: &Row<'_>) -> Result<(StoredRecord, i64), Error> {
    Ok((StoredRecord { key: row.get(0)?, value: row.get(1)?, generation: uint(row.get(2)?) }, row.get(3)?))
}

fn trusted(
    space: Space,
    owner: SessionNo,
    record: StoredRecord,
    seal: i64,
) -> Result<StoredRecord, StoreError> {
    if record_seal(record.generation, space, owner, &record.key, &record.value) == seal {
        return Ok(record);
    }
    let what = format!("the record {:?} of it is not what was written", record.key);
    Err(StoreError::Damaged { session: owner, entry: 0, what })
}
