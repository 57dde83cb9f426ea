//! Applying changes inside the writer's transaction.
//!
//! What a change demands is read before its first row is written, so that refusing it needs no savepoint and
//! leaves no trace. Only what the demands did not foresee (a row that is there already) is found while writing;
//! then the whole group is rolled back and done again without that change.

use super::lookups::{Indexer, Lookups};
use super::seal::{Sealed, batch_seal, mark_seal, message_digest, open_part, piece_digest};
use super::statements::Statements;
use crate::chain::{Link, Linked, START, int, piece_key, row_key, uint};
use crate::change::{Change, Guard, Hold, Receipt, Refused, Row};
use crate::{BLOB_PIECES_MAX, Inbound, Posted};
use rusqlite::{Connection, Error, OptionalExtension};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::ids::{BatchNo, BlobNo, EntryNo, Fence, SessionNo};

/// Sessions whose rows are remembered between groups; past that all are forgotten and read again.
const SEATS_MAX: usize = 16_384;

/// The writer's connection and what it knows of the sessions.
pub(super) struct Applier<'c> {
    conn: &'c Connection,
    pub(super) sql: Statements<'c>,
    pub(super) lookups: Indexer,
    /// Session rows as this connection last wrote or read them.
    seats: HashMap<SessionNo, Seat>,
    /// Sessions whose rows must be written before the commit.
    changed: Vec<SessionNo>,
    /// How long the disk took for the last group.
    took: Duration,
    /// Moves when somebody else wrote to the file; then the seats are worth nothing.
    data_version: Option<i64>,
    /// The generation of the record that was put last, once it is known.
    pub(super) generation: Option<u64>,
}

#[derive(Clone, Copy)]
pub(super) struct Seat {
    pub(super) fence: u64,
    pub(super) head: u64,
    pub(super) last_row: Option<i64>,
    pub(super) chain: Link,
    /// The sum over its open batches.
    pub(super) open: i64,
    changed: bool,
}

impl Seat {
    /// A session before its first entry.
    fn new(fence: u64) -> Seat {
        Seat { fence, head: 0, last_row: None, chain: START, open: 0, changed: false }
    }
}

/// Why a change was given up while its group is being applied.
pub(super) enum Fault {
    /// It must be refused, but some of it was written: the group must be done again without it.
    Redo(Refused),
    /// The database failed.
    Sql(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Sql(error)
    }
}

impl<'c> Applier<'c> {
    /// Prepares every statement once.
    pub fn new(conn: &'c Connection, lookups: Arc<Lookups>) -> Result<Applier<'c>, Error> {
        Ok(Applier {
            conn,
            sql: Statements::new(conn)?,
            lookups: Indexer::new(lookups),
            seats: HashMap::new(),
            changed: Vec::new(),
            took: Duration::ZERO,
            data_version: None,
            generation: None,
        })
    }

    /// Begins a group.
    pub fn begin(&mut self) -> Result<(), Error> {
        point!("write.begin", self.sql.begin.execute(()))?;
        let now = self.sql.data_version.query_row((), |row| row.get(0))?;
        let before = self.data_version.replace(now);
        if before != Some(now) || self.seats.len() > SEATS_MAX {
            self.seats.clear();
        }
        if before != Some(now) {
            self.generation = None;
        }
        if before.is_some_and(|before| before != now) {
            self.lookups.reload(self.conn)?;
        }
        self.lookups.begin();
        Ok(())
    }

    /// Ends a group: the sessions' rows, each once, and the wait for the disk.
    pub fn commit(&mut self) -> Result<(), Error> {
        self.lookups.before_commit(&mut self.sql)?;
        for no in self.changed.drain(..) {
            if let Some(seat) = self.seats.get_mut(&no) {
                seat.changed = false;
                let Seat { fence, head, last_row, chain, open, .. } = *seat;
                let seal = Sealed { no: no.0, fence, head, last_row, chain, open }.seal();
                let row = (int(no.0), int(fence), int(head), last_row, chain, open, seal);
                point!("write.owner", self.sql.update_session.execute(row))?;
            }
        }
        let began = Instant::now();
        point!("write.commit", self.sql.commit.execute(()))?;
        self.took = began.elapsed();
        self.lookups.committed();
        Ok(())
    }

    /// How long the disk took for the last group.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Before the end: completes the index, so that nobody has to do without it.
    pub fn finish(&mut self) -> Result<(), Error> {
        while self.lookups.is_behind() {
            point!("index.begin", self.sql.begin.execute(()))?;
            self.lookups.write_rest(&mut self.sql)?;
            point!("index.commit", self.sql.commit.execute(()))?;
            self.lookups.committed();
        }
        Ok(())
    }

    /// Undoes the group, and forgets what it thought it knew.
    pub fn rollback(&mut self) -> Result<(), Error> {
        self.forget();
        point!("write.rollback", self.sql.rollback.execute(()))?;
        Ok(())
    }

    /// Undoes a group that failed, whether SQLite has undone it already or not.
    pub fn recover(&mut self) -> Result<(), Error> {
        self.forget();
        if self.conn.is_autocommit() { Ok(()) } else { self.rollback() }
    }

    fn forget(&mut self) {
        self.seats.clear();
        self.changed.clear();
        self.generation = None;
        self.lookups.undone();
    }

    /// Applies one change.
    pub fn change(&mut self, change: &Change) -> Result<Result<Receipt, Refused>, Fault> {
        if !change.fits() {
            return Ok(Err(Refused::TooLarge));
        }
        let mut seat = match self.hold(change)? {
            Ok(seat) => seat,
            Err(refused) => return Ok(Err(refused)),
        };
        if let Some(refused) = self.unmet(change)? {
            return Ok(Err(refused));
        }
        let mut wrote = false;
        let first = EntryNo(seat.head + 1);
        let generation = match self.write(change, &mut seat, &mut wrote) {
            Ok(generation) => generation,
            Err(fault) => {
                return match conflict(fault)? {
                    refused if wrote => Err(Fault::Redo(refused)),
                    refused => Ok(Err(refused)),
                };
            }
        };
        if change.hold != Hold::Store {
            self.keep(change.session, seat);
        }
        Ok(Ok(Receipt { first, generation }))
    }

    /// Keeps a message, if its key is new.
    pub fn post(&mut self, message: &Inbound) -> Result<Posted, Error> {
        let digest = message_digest(int(message.session.0), &message.key, &message.body);
        let key = (int(message.session.0), &message.key);
        let kept = self.sql.message.query_row(key, |row| row.get::<_, Link>(0)).optional()?;
        if let Some(kept) = kept {
            return Ok(if kept == digest { Posted::Again } else { Posted::Differs });
        }
        point!("write.message", self.sql.insert_message.execute((key.0, key.1, digest, &message.body)))?;
        Ok(Posted::New)
    }

    /// The session as it will be held, if the change has the right to it.
    fn hold(&mut self, change: &Change) -> Result<Result<Seat, Refused>, Error> {
        let from = match &change.hold {
            // Whether name and number are free is found by writing the row, first of all.
            Hold::Open { .. } => return Ok(Ok(Seat::new(1))),
            Hold::Store if change.is_of_store() => return Ok(Ok(Seat::new(0))),
            Hold::Store => {
                let now = self.seat(change.session)?.map_or(0, |seat| seat.fence);
                return Ok(Err(Refused::Fenced { now: Fence(now) }));
            }
            Hold::Take { from, .. } | Hold::Held(from) => *from,
        };
        let Some(mut seat) = self.seat(change.session)? else {
            return Ok(Err(Refused::Fenced { now: Fence(0) }));
        };
        if seat.fence != from.0 && !windlass_core::mutant::breaks("no-fence") {
            return Ok(Err(Refused::Fenced { now: Fence(seat.fence) }));
        }
        if let Hold::Take { to, .. } = change.hold {
            if to <= from {
                return Ok(Err(Refused::Fenced { now: from }));
            }
            seat.fence = to.0;
        }
        Ok(Ok(seat))
    }

    pub(super) fn seat(&mut self, no: SessionNo) -> Result<Option<Seat>, Error> {
        let vacant = match self.seats.entry(no) {
            Entry::Occupied(seat) => return Ok(Some(*seat.get())),
            Entry::Vacant(vacant) => vacant,
        };
        let read = self.sql.session.query_row([int(no.0)], |row| {
            Ok(Seat {
                fence: uint(row.get(0)?),
                head: uint(row.get(1)?),
                last_row: row.get(2)?,
                chain: row.get(3)?,
                open: row.get(4)?,
                changed: false,
            })
        });
        Ok(read.optional()?.map(|seat| *vacant.insert(seat)))
    }

    /// A session is gone.
    pub(super) fn let_go(&mut self, no: SessionNo) {
        self.seats.remove(&no);
    }

    pub(super) fn keep(&mut self, no: SessionNo, mut seat: Seat) {
        if !seat.changed {
            seat.changed = true;
            self.changed.push(no);
        }
        self.seats.insert(no, seat);
    }

    /// What the change demands and is not so.
    fn unmet(&mut self, change: &Change) -> Result<Option<Refused>, Error> {
        for guard in &change.guards {
            if let Guard::Absent(lookup) = guard {
                let unknown = !change.makes(*lookup) && !windlass_core::mutant::breaks("guard-skipped");
                if unknown && self.lookups.has(*lookup, &mut self.sql)? {
                    return Ok(Some(Refused::Exists));
                }
            } else if let Some(refused) = self.unmet_record(change.session, guard)? {
                return Ok(Some(refused));
            }
        }
        for row in &change.rows {
            if let Row::Adopt { key } = row
                && !self.sql.waiting.exists((int(change.session.0), key))?
            {
                return Ok(Some(Refused::Adopted));
            }
        }
        Ok(None)
    }

    /// Writes the rows; says the generation of the last record that was put.
    fn write(&mut self, change: &Change, seat: &mut Seat, wrote: &mut bool) -> Result<u64, Fault> {
        let mut generation = 0;
        let session = int(change.session.0);
        if let Hold::Open { name } = &change.hold {
            point!("write.session", self.sql.insert_session.execute((session, name, START)))?;
            *wrote = true;
        }
        for row in &change.rows {
            match row {
                Row::Batch { no, lookup } => {
                    if self.lookups.has(*lookup, &mut self.sql)? {
                        return Err(Fault::Redo(Refused::Exists));
                    }
                    let seal = batch_seal(no.0, change.session.0, *lookup);
                    let kept = (int(no.0), session, lookup.0, seal);
                    point!("write.batch", self.sql.insert_batch.execute(kept))?;
                    *wrote = true;
                    self.lookups.add(*lookup, no.0, &mut self.sql)?;
                    if change.leaves_open(*no) == Some(true) {
                        point!("write.open", self.sql.insert_open.execute((session, int(no.0))))?;
                        seat.open = seat.open.wrapping_add(open_part(no.0));
                    }
                }
                Row::Journal { batch, row, count, data } => {
                    let (session, first) = (change.session.0, seat.head + 1);
                    self.append(
                        &Linked { session, batch: batch.0, row: *row, first, count: *count, data },
                        seat,
                    )?;
                }
                // What the batch is in the end was written with the batch.
                Row::Close(no) | Row::Reopen(no) if change.leaves_open(*no).is_some() => {}
                Row::Close(no) => {
                    if point!("write.close", self.sql.delete_open.execute((session, int(no.0))))? > 0 {
                        seat.open = seat.open.wrapping_sub(open_part(no.0));
                    }
                }
                Row::Reopen(no) => {
                    if point!("write.reopen", self.sql.reopen.execute((session, int(no.0))))? > 0 {
                        seat.open = seat.open.wrapping_add(open_part(no.0));
                    }
                }
                Row::Chunk { blob, seq, data } => {
                    let key = piece_key(*blob, *seq);
                    let piece = (key, piece_digest(key, data), &data[..]);
                    point!("write.chunk", self.sql.insert_chunk.execute(piece))?;
                }
                Row::Cut { blob, pieces } => self.cut(*blob, *pieces)?,
                Row::Adopt { key } => {
                    if point!("write.adopt", self.sql.adopt.execute((session, key)))? == 0 {
                        return Err(Fault::Redo(Refused::Adopted));
                    }
                }
                Row::Mark { mark, call } => {
                    let seal = mark_seal(*mark, change.session.0, *call);
                    let kept = (mark.0, session, int(call.packed()), seal);
                    point!("write.mark", self.sql.set_mark.execute(kept))?;
                }
                Row::Put { .. } | Row::Remove { .. } => {
                    generation = self.write_record(change.session, row)?.unwrap_or(generation);
                }
            }
            *wrote = true;
        }
        Ok(generation)
    }

    /// Cuts a blob.
    fn cut(&mut self, blob: BlobNo, pieces: u32) -> Result<(), Error> {
        let range = (piece_key(blob, pieces), piece_key(blob, BLOB_PIECES_MAX - 1));
        point!("write.cut", self.sql.cut.execute(range))?;
        if pieces == 0 { self.pass([0, 0, blob.0]) } else { Ok(()) }
    }

    /// Adds a journal row to its session's chain.
    fn append(&mut self, row: &Linked<'_>, seat: &mut Seat) -> Result<(), Error> {
        let (key, link) = (row_key(BatchNo(row.batch), row.row), row.link(&seat.chain));
        let kept = (key, int(row.session), int(row.first), row.count, seat.last_row, link, row.data);
        point!("write.journal", self.sql.insert_journal.execute(kept))?;
        seat.head += u64::from(row.count);
        seat.last_row = Some(key);
        seat.chain = link;
        Ok(())
    }
}

/// A row that is there already is the change's fault; everything else is the database's.
fn conflict(fault: Fault) -> Result<Refused, Fault> {
    use rusqlite::ffi;
    match fault {
        Fault::Redo(refused) => Ok(refused),
        Fault::Sql(Error::SqliteFailure(failure, _))
            if matches!(
                failure.extended_code,
                ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                    | ffi::SQLITE_CONSTRAINT_UNIQUE
                    | ffi::SQLITE_CONSTRAINT_ROWID
            ) =>
        {
            Ok(Refused::Exists)
        }
        Fault::Sql(error) => Err(Fault::Sql(error)),
    }
}
