//! Removing a session in pieces. The journal is cut from its end, so that the rest is a valid journal after every
//! piece, and an interrupted removal finds by looking where to continue. A piece is one transaction, so its deletions
//! have no kill points of their own: it can be cut where the transaction begins and where it commits.

use super::Reads;
use super::apply::{AppliedSession, Applier};
use super::expire::{self, gap_before};
use super::read::most;
use super::seal::{numbers_seal, open_part, record_seal};
use crate::chain::{ChainLink, START, int, piece_key, row_of, uint};
use crate::change::Refused;
use crate::record::{blob_of, gone_key};
use crate::{PIECE_ROWS, Removal, Removed, Shelf, Space, StoreError, gone_value};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use std::sync::{Arc, Weak};
use windlass_core::ids::{BatchNo, BlobNo, Fence, Lookup, Mark, SessionNo};

/// The page size for reading marks.
const MARKS_PAGE: i64 = 4_096;

/// The highest removed numbers, in the order of [`Sequence`](crate::Sequence).
pub(super) type RemovedNumbers = [u64; 3];

impl Applier<'_> {
    /// Removes one piece.
    pub fn remove(&mut self, piece: Removal, rest: &RemovalRest) -> Result<Result<Removed, Refused>, Error> {
        let Some(mut seat) = self.seat(piece.session)? else { return Ok(Ok(Removed::All)) };
        if seat.fence != piece.fence.0 {
            return Ok(Err(Refused::Fenced { now: Fence(seat.fence) }));
        }
        let rows = most(piece.most);
        if seat.last_row.is_some() {
            self.cut_journal(piece.session, &mut seat, rows)?;
            self.keep(piece.session, seat);
            return Ok(Ok(Removed::Piece));
        }
        let session = int(piece.session.0);
        let mut gone = self.sql.delete_all_open.execute((session, rows))?;
        gone += self.sql.delete_messages.execute((session, rows))?;
        for space in Space::REMOVED {
            if gone == 0 {
                gone = self.remove_records(piece.session, space, rows)?;
            }
        }
        for no in &rest.expired {
            self.remove_batch(&mut seat, no.0)?;
            self.pass([0, no.0, 0])?;
            gone += 1;
        }
        for mark in &rest.marks {
            gone += self.sql.delete_mark.execute((mark.0, session))?;
        }
        if gone > 0 {
            return Ok(Ok(Removed::Piece));
        }
        self.pass([piece.session.0, 0, 0])?;
        self.keep_name(piece.session)?;
        self.sql.delete_records.execute((Space::Removing.number(), session, i64::MAX))?;
        self.sql.delete_gaps.execute([session])?;
        self.sql.delete_session.execute([session])?;
        self.forget_session(piece.session);
        Ok(Ok(Removed::All))
    }

    /// Keeps a hash of the name of a session that is gone: it is not used again.
    fn keep_name(&mut self, session: SessionNo) -> Result<(), Error> {
        if windlass_core::mutant::breaks("name-reused") {
            return Ok(());
        }
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let (name, principal): (String, Option<String>) = self.sql.name.query_row([int(session.0)], read)?;
        let (key, value) =
            (gone_key(&self.secret, &name), gone_value(&self.secret, &name, principal.as_deref()));
        self.put_record(Shelf::gone(), &key, &value)?;
        Ok(())
    }

    /// Cuts this many rows off the end of a journal, each batch with its first row.
    fn cut_journal(&mut self, session: SessionNo, seat: &mut AppliedSession, rows: i64) -> Result<(), Error> {
        let mut last_batch = 0;
        for _ in 0..rows {
            let Some(key) = seat.last_row else { break };
            let before =
                |row: &Row<'_>| Ok((uint(row.get(0)?), row.get(1)?, row.get::<_, Option<ChainLink>>(2)?));
            // A row hidden by damage ends the journal here: the rows before it can no longer be found.
            let found = self.sql.cut_journal.query_row([key], before).optional()?;
            // Expired rows are passed over. Their run stays until the end: it says that there are batches without rows.
            let (first, prev, mut link) = match found {
                Some(found) => found,
                None => match gap_before(self.conn, session, seat.head + 1)? {
                    Some(gap) => (gap.first, gap.prev, gap.prev.map(|_| gap.before)),
                    None => (1, None, None),
                },
            };
            if let (Some(_), None) = (prev, link) {
                link = gap_before(self.conn, session, first)?.map(|gap| gap.link);
            }
            self.sql.delete_journal.execute([key])?;
            let (batch, row) = row_of(key);
            last_batch = last_batch.max(batch);
            if row == 0 && found.is_some() {
                self.remove_batch(seat, batch)?;
            }
            seat.head = first.saturating_sub(1);
            (seat.last_row, seat.chain) = match (prev, link) {
                (Some(prev), Some(link)) => (Some(prev), link),
                (_, _) => (None, START),
            };
        }
        self.pass([0, last_batch, 0])
    }

    fn remove_batch(&mut self, seat: &mut AppliedSession, no: u64) -> Result<(), Error> {
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, Lookup(row.get(1)?)));
        let Some((session, lookup)) = self.sql.batch.query_row([int(no)], read).optional()? else {
            return Ok(());
        };
        self.lookups.remove(lookup, no, &mut self.sql)?;
        self.sql.delete_batch.execute([int(no)])?;
        if self.sql.delete_open.execute((session, int(no)))? > 0 {
            seat.open = seat.open.wrapping_sub(open_part(no));
        }
        Ok(())
    }

    /// Removes records of one space; blobs one at a time, piece by piece, and the record with the last.
    fn remove_records(&mut self, session: SessionNo, space: Space, rows: i64) -> Result<usize, Error> {
        let place = (space.number(), int(session.0));
        if space != Space::Blob {
            let gone = (place.0, place.1, rows);
            return self.sql.delete_records.execute(gone);
        }
        let read = |row: &Row<'_>| Ok((uint(row.get(0)?), row.get(1)?, row.get(2)?, row.get(3)?));
        let found: Option<(u64, String, Vec<u8>, i64)> =
            self.sql.first_record.query_row(place, read).optional()?;
        let Some((generation, key, value, seal)) = found else { return Ok(0) };
        // A damaged record might name the blob of another session.
        let is_own = record_seal(generation, space.of(session), &key, &value) == seal;
        if let Some(blob) = blob_of(&key).filter(|_| is_own) {
            let pieces = (rows / int(PIECE_ROWS)).max(1);
            let range = (piece_key(blob, 0), piece_key(BlobNo(blob.0 + 1), 0), pieces);
            self.pass([0, 0, blob.0])?;
            let gone = self.sql.delete_chunks.execute(range)?;
            if gone as i64 == pieces {
                return Ok(gone);
            }
        }
        self.sql.remove_record.execute((place.0, place.1, key))?;
        Ok(1)
    }

    /// These numbers are gone for good: the next owner must not hand them out again.
    pub(super) fn pass(&mut self, removed: RemovedNumbers) -> Result<(), Error> {
        let kept: Vec<u8> = self.sql.numbers.query_row((), |row| row.get(0))?;
        let kept = read_numbers(&kept).unwrap_or_default();
        let mut now = kept;
        now.iter_mut().zip(removed).for_each(|(now, removed)| *now = removed.max(*now));
        if now != kept {
            point!("write.removed", self.sql.set_numbers.execute([write_numbers(now)]))?;
        }
        Ok(())
    }
}

/// The highest removed numbers; `None` if they are damaged.
pub(super) fn numbers(conn: &Connection) -> Result<Option<RemovedNumbers>, Error> {
    let kept =
        conn.query_row("SELECT value FROM meta WHERE key = 'removed'", (), |row| row.get::<_, Vec<u8>>(0));
    Ok(kept.optional()?.and_then(|kept| read_numbers(&kept)))
}

pub(super) fn write_numbers(numbers: RemovedNumbers) -> Vec<u8> {
    let mut kept: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    kept.extend(numbers_seal(&kept).to_le_bytes());
    kept
}

pub(super) fn read_numbers(kept: &[u8]) -> Option<RemovedNumbers> {
    let words: Vec<u64> = kept
        .chunks_exact(8)
        .map(|word| word.try_into().map(u64::from_le_bytes))
        .collect::<Result<_, _>>()
        .ok()?;
    let [session, batch, blob, seal] = words[..] else { return None };
    (kept.len() == 32 && numbers_seal(&kept[..24]).cast_unsigned() == seal).then_some([session, batch, blob])
}

/// The parts of a session that are not found by it and go with its last pieces: its marks, and its expired batches.
#[derive(Default)]
pub(crate) struct RemovalRest {
    pub marks: Vec<Mark>,
    pub expired: Vec<BatchNo>,
}

/// The marks and expired batches of a session of which nothing else is left, at most a page. They are stored among those of all
/// other sessions, so the search is here, where no writer waits for it.
pub(super) async fn rest(reads: Weak<Reads>, piece: Removal) -> Result<RemovalRest, StoreError> {
    let reads_now: Arc<Reads> = reads.upgrade().ok_or(StoreError::Closed)?;
    if !is_bare(&reads_now, piece.session)? {
        return Ok(RemovalRest::default());
    }
    let expired = expire::leftovers(&reads_now.pool, piece.session, piece.most)?;
    drop(reads_now);
    Ok(RemovalRest { marks: marks(reads, piece).await?, expired })
}

async fn marks(reads: Weak<Reads>, piece: Removal) -> Result<Vec<Mark>, StoreError> {
    let upgraded = || reads.upgrade().ok_or(StoreError::Closed);
    let mut found = Vec::new();
    let mut after = Mark([0; 16]);
    loop {
        let reads: Arc<Reads> = upgraded()?;
        let page: Vec<(Mark, u64)> = reads.pool.read("read the marks of a session", |conn| {
            let sql = "SELECT mark, session FROM marks WHERE mark >= ?1 ORDER BY mark LIMIT ?2";
            let mark = |row: &Row<'_>| Ok((Mark(row.get(0)?), uint(row.get(1)?)));
            conn.prepare_cached(sql)?.query_map((after.0, MARKS_PAGE), mark)?.collect()
        })?;
        drop(reads);
        let own = page.iter().filter(|(_, session)| *session == piece.session.0);
        found.extend(own.map(|(mark, _)| *mark));
        let Some((last, _)) = page.last().filter(|_| page.len() as i64 == MARKS_PAGE) else { break };
        if found.len() as u64 >= piece.most {
            break;
        }
        // The last one is read twice, and removed once.
        after = *last;
        tokio::task::yield_now().await;
    }
    found.truncate(usize::try_from(piece.most).unwrap_or(usize::MAX));
    Ok(found)
}

/// Whether a session has neither entries nor messages nor records.
fn is_bare(reads: &Reads, session: SessionNo) -> Result<bool, StoreError> {
    reads.pool.read("read what is left of a session", |conn| {
        let sql = "SELECT NOT EXISTS (SELECT 1 FROM sessions WHERE no = ?1 AND last_row IS NOT NULL)
                   AND NOT EXISTS (SELECT 1 FROM inbound WHERE session = ?1)";
        let mut bare: bool = conn.prepare_cached(sql)?.query_row([int(session.0)], |row| row.get(0))?;
        let mut any = conn.prepare_cached("SELECT 1 FROM records WHERE space = ?1 AND owner = ?2")?;
        for space in Space::REMOVED {
            bare = bare && !any.exists((space.number(), int(session.0)))?;
        }
        Ok(bare)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_what_was_written_are_noticed() {
        let kept = write_numbers([7, 8, 9]);
        assert_eq!(read_numbers(&kept), Some([7, 8, 9]));
        for place in 0..kept.len() {
            let mut damaged = kept.clone();
            damaged[place] ^= 1;
            assert_eq!(read_numbers(&damaged), None, "byte {place}");
        }
        assert_eq!(read_numbers(&kept[1..]), None);
    }
}
