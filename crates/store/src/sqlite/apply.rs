//! Applying changes inside the writer's transaction.
//!
//! The conditions of a change are read before its first row is written, so that refusing it needs no savepoint and
//! leaves no trace. Only conflicts that the conditions did not foresee (a row that exists already) are found while
//! writing; then the whole group is rolled back and applied again without that change.

use super::backup::BackupMark;
use super::identity::FileIdentity;
use super::lookups::Indexer;
use super::numbers::Reservations;
use super::remove::{self, RemovedNumbers};
use super::seal::{Sealed, batch_seal, mark_seal, message_digest, open_part, piece_digest};
use super::statements::Statements;
use crate::chain::{ChainLink, Linked, START, int, piece_key, row_key, uint};
use crate::change::{Change, Guard, Hold, Receipt, RecordChange, RecordGuard, Refused, Row, SessionChange};
use crate::record::gone_key;
use crate::{BLOB_PIECES_MAX, Inbound, Original, Posted, Shelf};
use rusqlite::{Connection, Error, OptionalExtension};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_core::handle::Secret;
use windlass_core::ids::{BatchNo, BlobNo, EntryNo, Fence, SessionNo};

/// How many sessions' rows are cached between groups; above this all are dropped and read again.
const SEATS_MAX: usize = 16_384;

/// The writer's connection and its cached sessions, for as long as one thread writes.
pub(super) struct Applier<'c> {
    pub(super) conn: &'c Connection,
    pub(super) sql: Statements<'c>,
    pub(super) lookups: Indexer,
    pub(super) secret: Secret,
    /// Session rows as this connection last wrote or read them.
    seats: HashMap<SessionNo, AppliedSession>,
    /// Sessions whose rows must be written before the commit.
    changed: Vec<SessionNo>,
    /// How long the disk took for the last group.
    took: Duration,
    /// Changes when another connection wrote to the file; then the cache is invalid.
    data_version: Option<i64>,
    /// The generation of the last record, once known.
    pub(super) generation: Option<u64>,
    reservations: Arc<Reservations>,
    /// The numbers that the current transaction reserves.
    reserving: Option<RemovedNumbers>,
}

/// The caches of an applier between two groups, while no thread writes.
pub(super) struct AppliedCache {
    pub lookups: Indexer,
    secret: Secret,
    reservations: Arc<Reservations>,
    seats: HashMap<SessionNo, AppliedSession>,
    data_version: Option<i64>,
    generation: Option<u64>,
}

impl AppliedCache {
    /// Empty caches, but for the look-ups.
    pub fn new(lookups: Indexer, secret: Secret, reservations: Arc<Reservations>) -> AppliedCache {
        let seats = HashMap::new();
        AppliedCache { lookups, secret, reservations, seats, data_version: None, generation: None }
    }

    /// Forgets what another connection had read: only the look-ups outlive it.
    pub fn reconnect(&mut self) {
        self.seats.clear();
        (self.data_version, self.generation) = (None, None);
    }
}

#[derive(Clone, Copy)]
pub(super) struct AppliedSession {
    pub(super) fence: u64,
    pub(super) head: u64,
    pub(super) last_row: Option<i64>,
    pub(super) chain: ChainLink,
    /// The sum over its open batches.
    pub(super) open: i64,
    changed: bool,
}

impl AppliedSession {
    /// A session before its first entry.
    fn new(fence: u64) -> AppliedSession {
        AppliedSession { fence, head: 0, last_row: None, chain: START, open: 0, changed: false }
    }
}

/// Why a change was given up while its group is applied.
pub(super) enum ApplyFault {
    /// It must be refused, but some of it was written: the group must be applied again without it.
    Redo(Refused),
    /// The database failed.
    Sql(Error),
}

impl From<Error> for ApplyFault {
    fn from(error: Error) -> ApplyFault {
        ApplyFault::Sql(error)
    }
}

impl<'c> Applier<'c> {
    /// Continues on this connection with what the last applier cached.
    pub fn new(conn: &'c Connection, cache: AppliedCache) -> Applier<'c> {
        let AppliedCache { lookups, secret, reservations, seats, data_version, generation } = cache;
        Applier {
            conn,
            sql: Statements::new(conn),
            lookups,
            secret,
            seats,
            changed: Vec::new(),
            took: Duration::ZERO,
            data_version,
            generation,
            reservations,
            reserving: None,
        }
    }

    /// Releases the connection. After a failure the caches are those of another connection: see [`AppliedCache::reconnect`].
    pub fn into_cache(self) -> AppliedCache {
        let Applier { lookups, secret, reservations, seats, data_version, generation, .. } = self;
        AppliedCache { lookups, secret, reservations, seats, data_version, generation }
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

    /// Ends a group: the sessions' rows, each once, and the sync.
    pub fn commit(&mut self) -> Result<(), Error> {
        self.lookups.before_commit(&mut self.sql)?;
        for no in self.changed.drain(..) {
            if let Some(seat) = self.seats.get_mut(&no) {
                seat.changed = false;
                let AppliedSession { fence, head, last_row, chain, open, .. } = *seat;
                let seal = Sealed { no: no.0, fence, head, last_row, chain, open }.seal();
                let row = (int(no.0), int(fence), int(head), last_row, chain, open, seal);
                point!("write.owner", self.sql.update_session.execute(row))?;
            }
        }
        self.reserving = self.reservations.due();
        if let Some(numbers) = self.reserving {
            self.sql.set_reserved.execute([remove::write_numbers(numbers)])?;
        }
        let began = Instant::now();
        point!("write.commit", self.sql.commit.execute(()))?;
        self.took = began.elapsed();
        self.lookups.committed();
        if let Some(numbers) = self.reserving.take() {
            self.reservations.reserved(numbers);
        }
        Ok(())
    }

    /// Records the identity of the file.
    pub fn own_file(&mut self, identity: FileIdentity, original: Original) -> Result<(), Error> {
        let identity = match original {
            Original::Gone => identity,
            // The leap is durable with this: it is reserved before the commit.
            Original::MayLive => identity.owning(self.reservations.leap()),
        };
        BackupMark::remove(self.conn)?;
        identity.record(self.conn)
    }

    /// How long the disk took for the last group.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Completes the index before the end, so that the next owner need not.
    pub fn finish(&mut self) -> Result<(), Error> {
        while self.lookups.is_behind() {
            point!("index.begin", self.sql.begin.execute(()))?;
            self.lookups.write_rest(&mut self.sql)?;
            point!("index.commit", self.sql.commit.execute(()))?;
            self.lookups.committed();
        }
        Ok(())
    }

    /// Rolls the group back, and drops the cache.
    pub fn rollback(&mut self) -> Result<(), Error> {
        self.forget();
        point!("write.rollback", self.sql.rollback.execute(()))?;
        Ok(())
    }

    /// Rolls back a failed group, whether SQLite has done so already or not.
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
    pub fn change(&mut self, change: &Change) -> Result<Result<Receipt, Refused>, ApplyFault> {
        match change {
            Change::Session(change) => self.change_session(change),
            Change::Record(change) => Ok(self.change_record(change)?),
        }
    }

    /// Writes one record of the whole store.
    fn change_record(&mut self, change: &RecordChange) -> Result<Result<Receipt, Refused>, Error> {
        if !change.fits() {
            return Ok(Err(Refused::TooLarge));
        }
        let (shelf, key) = (change.space.shelf(), change.key.as_str());
        let unmet = match change.guard {
            Some(RecordGuard::Generation(is)) => self.unmet_generation(shelf, key, is)?,
            Some(RecordGuard::Room(max)) => self.unmet_room(shelf, key, max)?,
            None => None,
        };
        if let Some(refused) = unmet {
            return Ok(Err(refused));
        }
        let generation = match &change.value {
            Some(value) => self.put_record(shelf, key, value)?,
            None => {
                self.remove_record(shelf, key)?;
                0
            }
        };
        Ok(Ok(Receipt { first: EntryNo(1), generation }))
    }

    fn change_session(&mut self, change: &SessionChange) -> Result<Result<Receipt, Refused>, ApplyFault> {
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
                    refused if wrote => Err(ApplyFault::Redo(refused)),
                    refused => Ok(Err(refused)),
                };
            }
        };
        self.keep(change.session, seat);
        Ok(Ok(Receipt { first, generation }))
    }

    /// Stores a message, if its key is new.
    pub fn post(&mut self, message: &Inbound) -> Result<Posted, Error> {
        if self.seat(message.session)?.is_none() {
            return Ok(Posted::NoSession);
        }
        let digest = message_digest(int(message.session.0), &message.key, &message.body);
        let key = (int(message.session.0), &message.key);
        let kept = self.sql.message.query_row(key, |row| row.get::<_, ChainLink>(0)).optional()?;
        if let Some(kept) = kept {
            return Ok(if kept == digest { Posted::Again } else { Posted::Differs });
        }
        point!("write.message", self.sql.insert_message.execute((key.0, key.1, digest, &message.body)))?;
        Ok(Posted::New)
    }

    /// The session's new state, if the change has the right to it.
    fn hold(&mut self, change: &SessionChange) -> Result<Result<AppliedSession, Refused>, Error> {
        let from = match &change.hold {
            // Writing the row, first of all, checks that name and number are free.
            Hold::Open { name, .. } => {
                let is_gone = self.generation_of(Shelf::gone(), &gone_key(&self.secret, name))? != 0;
                return Ok(if is_gone { Err(Refused::Gone) } else { Ok(AppliedSession::new(1)) });
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

    pub(super) fn seat(&mut self, no: SessionNo) -> Result<Option<AppliedSession>, Error> {
        let vacant = match self.seats.entry(no) {
            Entry::Occupied(seat) => return Ok(Some(*seat.get())),
            Entry::Vacant(vacant) => vacant,
        };
        let read = self.sql.session.query_row([int(no.0)], |row| {
            Ok(AppliedSession {
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

    /// Forgets a removed session.
    pub(super) fn forget_session(&mut self, no: SessionNo) {
        self.seats.remove(&no);
    }

    pub(super) fn keep(&mut self, no: SessionNo, mut seat: AppliedSession) {
        if !seat.changed {
            seat.changed = true;
            self.changed.push(no);
        }
        self.seats.insert(no, seat);
    }

    /// The first condition of the change that does not hold.
    fn unmet(&mut self, change: &SessionChange) -> Result<Option<Refused>, Error> {
        for guard in &change.guards {
            let unmet = match guard {
                Guard::Generation { space, key, is } => {
                    self.unmet_generation(space.of(change.session), key, *is)?
                }
                Guard::Room { space, key, max } => self.unmet_room(space.of(change.session), key, *max)?,
            };
            if unmet.is_some() {
                return Ok(unmet);
            }
        }
        for row in &change.rows {
            if let Row::Adopt { key } = row
                && !self.sql.waiting.exists((int(change.session.0), key))?
            {
                return Ok(Some(Refused::Adopted));
            }
            if let Row::Expire(no) = row
                && !self.may_expire(change.session, *no)?
            {
                return Ok(Some(Refused::NotOver));
            }
        }
        Ok(None)
    }

    /// Writes the rows; returns the generation of the last record put.
    fn write(
        &mut self,
        change: &SessionChange,
        seat: &mut AppliedSession,
        wrote: &mut bool,
    ) -> Result<u64, ApplyFault> {
        let mut generation = 0;
        let session = int(change.session.0);
        if let Hold::Open { name, principal } = &change.hold {
            let kept = (session, name, principal, START);
            point!("write.session", self.sql.insert_session.execute(kept))?;
            *wrote = true;
        }
        for row in &change.rows {
            match row {
                Row::Batch { no, lookup } => {
                    if self.lookups.has(*lookup, &mut self.sql)? {
                        return Err(ApplyFault::Redo(Refused::Exists));
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
                // The batch's final state was written with the batch.
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
                        return Err(ApplyFault::Redo(Refused::Adopted));
                    }
                }
                Row::Mark { mark, call } => {
                    let seal = mark_seal(*mark, change.session.0, *call);
                    let kept = (mark.0, session, int(call.packed()), seal);
                    point!("write.mark", self.sql.set_mark.execute(kept))?;
                }
                Row::Expire(no) => {
                    // It may find damage when a part is written.
                    *wrote = true;
                    self.expire(change.session, *no)?;
                }
                Row::Put { space, key, value } => {
                    generation = self.put_record(space.of(change.session), key, value)?;
                }
                Row::Claim { space, key } => generation = self.claim(space.of(change.session), key)?,
                Row::Remove { space, key } => self.remove_record(space.of(change.session), key)?,
            }
            *wrote = true;
        }
        Ok(generation)
    }

    /// Adds an empty record where there is none, and returns its generation.
    fn claim(&mut self, shelf: Shelf, key: &str) -> Result<u64, ApplyFault> {
        if self.generation_of(shelf, key)? != 0 {
            return Err(ApplyFault::Redo(Refused::Exists));
        }
        Ok(self.put_record(shelf, key, &[])?)
    }

    /// Cuts a blob.
    fn cut(&mut self, blob: BlobNo, pieces: u32) -> Result<(), Error> {
        let range = (piece_key(blob, pieces), piece_key(blob, BLOB_PIECES_MAX - 1));
        point!("write.cut", self.sql.cut.execute(range))?;
        if pieces == 0 { self.pass([0, 0, blob.0]) } else { Ok(()) }
    }

    /// Adds a journal row to its session's chain.
    fn append(&mut self, row: &Linked<'_>, seat: &mut AppliedSession) -> Result<(), Error> {
        let (key, link) = (row_key(BatchNo(row.batch), row.row), row.link(&seat.chain));
        let kept = (key, int(row.session), int(row.first), row.count, seat.last_row, link, row.data);
        point!("write.journal", self.sql.insert_journal.execute(kept))?;
        seat.head += u64::from(row.count);
        seat.last_row = Some(key);
        seat.chain = link;
        Ok(())
    }
}

/// A row that exists already is the change's fault; everything else is the database's.
fn conflict(fault: ApplyFault) -> Result<Refused, ApplyFault> {
    use rusqlite::ffi;
    match fault {
        ApplyFault::Redo(refused) => Ok(refused),
        ApplyFault::Sql(Error::SqliteFailure(failure, _))
            if matches!(
                failure.extended_code,
                ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                    | ffi::SQLITE_CONSTRAINT_UNIQUE
                    | ffi::SQLITE_CONSTRAINT_ROWID
            ) =>
        {
            Ok(Refused::Exists)
        }
        ApplyFault::Sql(error) => Err(ApplyFault::Sql(error)),
    }
}
