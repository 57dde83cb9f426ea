//! Judging a group, without SQL: the facts needed, and from them which changes are applied and what they
//! write.
//!
//! An error inside a PostgreSQL transaction aborts the whole transaction. So nothing is tried: everything is
//! read at once, judged here, and written at once.

use super::version::SessionVersion;
use crate::chain::{ChainLink, Linked, int, piece_key, row_key};
use crate::change::{Change, Guard, Hold, Receipt, RecordChange, RecordGuard, Refused, Row, SessionChange};
use crate::queue::{WriteOutcome, WriteRequest};
use crate::record::gone_hash;
use crate::{BLOB_PIECES_MAX, Inbound, Posted, Removal, Removed, Shelf, StoreSpace};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use windlass_core::handle::Secret;
use windlass_core::ids::{EntryNo, Fence, Lookup, Mark};

/// A unique key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    Name(ChainLink),
    /// The name of a removed session.
    Gone(ChainLink),
    Lookup(Lookup),
    Batch(i64),
    Row(i64),
    Piece(i64),
}

/// The place of a record.
pub(super) type RecordPlace = (Shelf, Vec<u8>);

fn place(shelf: Shelf, key: &str) -> RecordPlace {
    (shelf, key.as_bytes().to_vec())
}

/// The facts needed to judge a group.
#[derive(Default)]
pub(super) struct JudgeQuestions {
    /// The sessions to lock.
    pub sessions: BTreeSet<i64>,
    /// Those of them that get a version, if they are what the group takes them for.
    pub changed: BTreeSet<i64>,
    /// Keys to look up.
    pub keys: BTreeSet<Key>,
    /// Messages by session and digest of their key.
    pub messages: BTreeSet<(i64, ChainLink)>,
    /// The generations of these records.
    pub records: BTreeSet<RecordPlace>,
    /// Spaces whose records are counted.
    pub counts: BTreeSet<Shelf>,
    /// The maximum number of records of the whole store that are put.
    pub puts: i64,
    /// The locks of records of the whole store.
    pub locks: BTreeSet<i64>,
    /// The batches that should expire.
    pub expiring: BTreeSet<i64>,
}

/// The facts read from the database.
#[derive(Default)]
pub(super) struct JudgeAnswers<'g> {
    pub seats: BTreeMap<i64, JudgedSession<'g>>,
    pub keys: HashSet<Key>,
    pub messages: HashMap<(i64, ChainLink), SentMessage>,
    /// The generations of existing records.
    pub records: HashMap<RecordPlace, u64>,
    /// The number of records in each space.
    pub counts: HashMap<Shelf, u64>,
    /// The generations of the next records of the whole store.
    pub generations: VecDeque<u64>,
    /// Session and openness of each batch that should expire.
    pub expiring: HashMap<i64, (i64, bool)>,
}

/// A session while its group is judged.
#[derive(Clone, Copy)]
pub(super) struct JudgedSession<'g> {
    /// Its last version, with what the group has changed so far.
    pub last: SessionVersion,
    pub write: SessionWrite<'g>,
}

/// The version that a group appends to a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionWrite<'g> {
    /// None: the group changes nothing of the session.
    Nothing,
    Changed,
    Taken,
    /// The first one, with the session's row.
    New {
        name: &'g str,
        principal: Option<&'g str>,
    },
}

/// A message sent before.
pub(super) struct SentMessage {
    pub digest: ChainLink,
    pub waiting: bool,
}

/// The writes of a group.
#[derive(Default)]
pub(super) struct GroupWrites<'g> {
    /// The sessions that get a version, in the order in which they get it.
    pub seats: BTreeMap<i64, JudgedSession<'g>>,
    /// Number, session, look-up.
    pub batches: Vec<(i64, i64, Lookup)>,
    /// Whether a batch is open at the end, by session and number.
    pub open: BTreeMap<(i64, i64), bool>,
    pub journal: Vec<Entries<'g>>,
    /// Key, digest, bytes.
    pub pieces: Vec<(i64, ChainLink, &'g [u8])>,
    /// First and last keys of pieces to remove, before any is written.
    pub cuts: Vec<(i64, i64)>,
    /// Digest of the key, digest of the body, message.
    pub messages: Vec<(ChainLink, ChainLink, &'g Inbound)>,
    pub adopted: Vec<(i64, ChainLink)>,
    /// Session and call of each mark: one statement sets a mark once.
    pub marks: BTreeMap<Mark, (i64, i64)>,
    /// Generation and value of each record; `None`: it is removed. One statement puts a record once.
    pub records: BTreeMap<RecordPlace, Option<(u64, &'g [u8])>>,
    /// Place in the group, session, maximum rows. They come after all other writes: the remover of a session
    /// writes nothing else to it.
    pub removals: Vec<(usize, i64, i64)>,
    /// Session and number of each batch that expires, after all other writes of the group.
    pub expired: Vec<(i64, i64)>,
}

/// A journal row.
pub(super) struct Entries<'g> {
    pub key: i64,
    pub session: i64,
    pub first: i64,
    pub count: i64,
    pub before: ChainLink,
    pub link: ChainLink,
    pub data: &'g [u8],
}

/// The digest by which texts and bodies are found and compared.
pub(super) fn digest(bytes: &[u8]) -> ChainLink {
    *blake3::hash(bytes).as_bytes()
}

impl JudgeQuestions {
    /// The facts this group needs.
    pub fn of(group: &[WriteRequest], secret: &Secret) -> JudgeQuestions {
        let mut asked = JudgeQuestions::default();
        for request in group {
            match request {
                WriteRequest::Commit { changes, .. } => {
                    changes.iter().for_each(|change| match change {
                        Change::Session(change) if change.fits() => asked.change(change, secret),
                        Change::Record(change) if change.fits() => asked.store_record(change),
                        Change::Session(_) | Change::Record(_) => {}
                    });
                }
                WriteRequest::Post { message, .. } => {
                    asked.sessions.insert(int(message.session.0));
                    asked.messages.insert((int(message.session.0), digest(message.key.as_bytes())));
                }
                WriteRequest::Remove { piece, .. } => {
                    asked.sessions.insert(int(piece.session.0));
                    asked.changed.insert(int(piece.session.0));
                }
                WriteRequest::OwnFile { .. } | WriteRequest::Shrink { .. } => {}
            }
        }
        asked
    }

    fn change(&mut self, change: &SessionChange, secret: &Secret) {
        self.sessions.insert(int(change.session.0));
        self.changed.insert(int(change.session.0));
        if let Hold::Open { name, .. } = &change.hold {
            self.keys.insert(Key::Name(digest(name.as_bytes())));
            self.keys.insert(Key::Gone(*gone_hash(secret, name).as_bytes()));
        }
        for guard in &change.guards {
            match guard {
                Guard::Generation { space, key, .. } => {
                    self.records.insert(place(space.of(change.session), key));
                }
                Guard::Room { space, key, .. } => {
                    self.records.insert(place(space.of(change.session), key));
                    self.counts.insert(space.of(change.session));
                }
            }
        }
        for row in &change.rows {
            self.keys.extend(keys(row).into_iter().flatten());
            match row {
                Row::Adopt { key } => {
                    self.messages.insert((int(change.session.0), digest(key.as_bytes())));
                }
                Row::Put { space, key, .. } | Row::Claim { space, key } | Row::Remove { space, key } => {
                    self.records.insert(place(space.of(change.session), key));
                }
                Row::Expire(no) => {
                    self.expiring.insert(int(no.0));
                }
                Row::Batch { .. } | Row::Journal { .. } | Row::Close(_) | Row::Reopen(_) => {}
                Row::Chunk { .. } | Row::Cut { .. } | Row::Mark { .. } => {}
            }
        }
    }

    /// A record of the whole store is locked by itself. Those of a session are locked with it.
    fn store_record(&mut self, change: &RecordChange) {
        let shelf = change.space.shelf();
        self.records.insert(place(shelf, &change.key));
        self.locks.insert(lock_of(change.space, &change.key));
        self.puts += i64::from(change.value.is_some());
        if let Some(RecordGuard::Room(_)) = change.guard {
            self.counts.insert(shelf);
            // No other one may come between counting and putting.
            self.locks.insert(lock_of(change.space, ""));
        }
    }
}

/// The number by which a record of the whole store is locked. Two records with one number wait for each other needlessly.
pub(super) fn lock_of(space: StoreSpace, key: &str) -> i64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&space.shelf().number().to_le_bytes()).update(key.as_bytes());
    let mut number = [0; 8];
    hasher.finalize_xof().fill(&mut number);
    i64::from_le_bytes(number)
}

/// The unique keys that a row creates.
fn keys(row: &Row) -> [Option<Key>; 2] {
    match row {
        Row::Batch { no, lookup } => [Some(Key::Batch(int(no.0))), Some(Key::Lookup(*lookup))],
        Row::Journal { batch, row, .. } => [Some(Key::Row(row_key(*batch, *row))), None],
        Row::Chunk { blob, seq, .. } => [Some(Key::Piece(piece_key(*blob, *seq))), None],
        Row::Close(_) | Row::Reopen(_) | Row::Adopt { .. } | Row::Mark { .. } => [None, None],
        Row::Put { .. } | Row::Claim { .. } | Row::Remove { .. } => [None, None],
        Row::Cut { .. } | Row::Expire(_) => [None, None],
    }
}

/// Judges a group in its order.
pub(super) fn judge<'g>(
    group: &'g [WriteRequest],
    known: JudgeAnswers<'g>,
    secret: &'g Secret,
) -> (Vec<WriteOutcome>, GroupWrites<'g>) {
    let mut judge = Judge { known, writes: GroupWrites::default(), secret };
    let told = group
        .iter()
        .enumerate()
        .map(|(at, request)| match request {
            WriteRequest::Commit { changes, .. } => {
                let judged = changes.iter().map(|change| match change {
                    Change::Session(change) => judge.change(change),
                    Change::Record(change) => judge.store_record(change),
                });
                WriteOutcome::Commit(judged.collect())
            }
            WriteRequest::Post { message, .. } => WriteOutcome::Post(judge.post(message)),
            WriteRequest::Remove { piece, .. } => WriteOutcome::Remove(judge.piece(at, *piece)),
            // No file, so it cannot be a copy.
            WriteRequest::OwnFile { .. } => WriteOutcome::OwnFile,
            // The server's own vacuum does that.
            WriteRequest::Shrink { .. } => WriteOutcome::Shrink(false),
        })
        .collect();
    let Judge { known, mut writes, .. } = judge;
    writes.seats = known.seats;
    writes.seats.retain(|_, seat| seat.write != SessionWrite::Nothing);
    writes.seats.values_mut().for_each(|seat| seat.last.version += 1);
    (told, writes)
}

struct Judge<'g> {
    known: JudgeAnswers<'g>,
    writes: GroupWrites<'g>,
    secret: &'g Secret,
}

impl<'g> Judge<'g> {
    /// Everything is checked before anything is noted, so that a refused change leaves no trace.
    fn change(&mut self, change: &'g SessionChange) -> Result<Receipt, Refused> {
        let (mut seat, made) = self.check(change)?;
        self.known.keys.extend(made);
        let mut receipt = Receipt { first: EntryNo(seat.last.head + 1), generation: 0 };
        if !change.rows.is_empty() {
            seat.change();
        }
        for row in &change.rows {
            receipt.generation = self.record(change, &mut seat, row).unwrap_or(receipt.generation);
            self.note(int(change.session.0), &mut seat, row);
        }
        self.known.seats.insert(int(change.session.0), seat);
        Ok(receipt)
    }

    /// Judges and notes the write of a record of the whole store.
    fn store_record(&mut self, change: &'g RecordChange) -> Result<Receipt, Refused> {
        if !change.fits() {
            return Err(Refused::TooLarge);
        }
        let (shelf, key) = (change.space.shelf(), change.key.as_str());
        match change.guard {
            Some(RecordGuard::Generation(is)) => self.check_generation(shelf, key, is)?,
            Some(RecordGuard::Room(max)) => self.check_room(shelf, key, max)?,
            None => {}
        }
        let mut receipt = Receipt { first: EntryNo(1), generation: 0 };
        match &change.value {
            None => self.remove(place(shelf, key)),
            Some(value) => {
                // As many were drawn as are put at most.
                receipt.generation = self.known.generations.pop_front().unwrap_or_default();
                self.put(place(shelf, key), receipt.generation, value);
            }
        }
        Ok(receipt)
    }

    /// Why the change may not be applied; or the session's new state, and the keys that the change creates.
    fn check(&self, change: &'g SessionChange) -> Result<(JudgedSession<'g>, HashSet<Key>), Refused> {
        if !change.fits() {
            return Err(Refused::TooLarge);
        }
        let mut made = HashSet::new();
        let seat = self.hold(change, &mut made)?;
        for guard in &change.guards {
            match guard {
                Guard::Generation { space, key, is } => {
                    self.check_generation(space.of(change.session), key, *is)?;
                }
                Guard::Room { space, key, max } => self.check_room(space.of(change.session), key, *max)?,
            }
        }
        let (mut adopted, mut put) = (HashSet::new(), HashSet::new());
        for row in &change.rows {
            for key in keys(row).into_iter().flatten() {
                if self.known.keys.contains(&key) || !made.insert(key) {
                    return Err(Refused::Exists);
                }
            }
            if let Row::Expire(no) = row
                && !self.may_expire(int(change.session.0), int(no.0))
            {
                return Err(Refused::NotOver);
            }
            if let Row::Claim { space, key } = row
                && (self.generation(space.of(change.session), key) != 0 || put.contains(&(space, key)))
            {
                return Err(Refused::Exists);
            }
            if let Row::Put { space, key, .. } | Row::Claim { space, key } = row {
                put.insert((space, key));
            }
            if let Row::Adopt { key } = row {
                let key = (int(change.session.0), digest(key.as_bytes()));
                let waiting = self.known.messages.get(&key).is_some_and(|message| message.waiting);
                if !waiting || !adopted.insert(key) {
                    return Err(Refused::Adopted);
                }
            }
        }
        Ok((seat, made))
    }

    /// Whether this batch is recorded in this session, and closed, with what the group has written so far.
    fn may_expire(&self, session: i64, no: i64) -> bool {
        let made = self.writes.batches.iter().find(|batch| batch.0 == no).map(|batch| (batch.1, true));
        let Some((of, open)) = made.or_else(|| self.known.expiring.get(&no).copied()) else { return false };
        of == session && !self.writes.open.get(&(session, no)).copied().unwrap_or(open)
    }

    fn generation(&self, shelf: Shelf, key: &str) -> u64 {
        self.known.records.get(&place(shelf, key)).copied().unwrap_or(0)
    }

    fn check_generation(&self, shelf: Shelf, key: &str, is: u64) -> Result<(), Refused> {
        match self.generation(shelf, key) {
            now if now == is => Ok(()),
            now => Err(Refused::Changed { now }),
        }
    }

    fn check_room(&self, shelf: Shelf, key: &str, max: u64) -> Result<(), Refused> {
        let count = self.known.counts.get(&shelf).copied().unwrap_or(0);
        let has_room = self.generation(shelf, key) != 0 || count < max;
        has_room.then_some(()).ok_or(Refused::Full)
    }

    /// Notes a record of a session; returns the generation of one that is put.
    fn record(&mut self, change: &SessionChange, seat: &mut JudgedSession<'g>, row: &'g Row) -> Option<u64> {
        match row {
            Row::Remove { space, key } => {
                self.remove(place(space.of(change.session), key));
                None
            }
            Row::Put { space, key, value } => {
                seat.last.generation += 1;
                self.put(place(space.of(change.session), key), seat.last.generation, value);
                Some(seat.last.generation)
            }
            Row::Claim { space, key } => {
                seat.last.generation += 1;
                self.put(place(space.of(change.session), key), seat.last.generation, &[]);
                Some(seat.last.generation)
            }
            Row::Batch { .. } | Row::Journal { .. } | Row::Close(_) | Row::Reopen(_) => None,
            Row::Expire(_) | Row::Chunk { .. } | Row::Cut { .. } | Row::Adopt { .. } | Row::Mark { .. } => {
                None
            }
        }
    }

    fn put(&mut self, place: RecordPlace, generation: u64, value: &'g [u8]) {
        if self.known.records.insert(place.clone(), generation).is_none() {
            self.known.counts.entry(place.0).and_modify(|count| *count += 1);
        }
        self.writes.records.insert(place, Some((generation, value)));
    }

    fn remove(&mut self, place: RecordPlace) {
        if self.known.records.remove(&place).is_some() {
            self.known.counts.entry(place.0).and_modify(|count| *count -= 1);
            self.writes.records.insert(place, None);
        }
    }

    fn hold(&self, change: &'g SessionChange, made: &mut HashSet<Key>) -> Result<JudgedSession<'g>, Refused> {
        let now = self.known.seats.get(&int(change.session.0));
        let (from, to) = match &change.hold {
            Hold::Open { name, principal } => {
                let key = Key::Name(digest(name.as_bytes()));
                if now.is_some() || self.known.keys.contains(&key) {
                    return Err(Refused::Exists);
                }
                if self.known.keys.contains(&Key::Gone(*gone_hash(self.secret, name).as_bytes())) {
                    return Err(Refused::Gone);
                }
                made.insert(key);
                let write = SessionWrite::New { name, principal: principal.as_deref() };
                return Ok(JudgedSession { last: SessionVersion::OPENED, write });
            }
            Hold::Take { from, to } => (from, Some(*to)),
            Hold::Held(from) => (from, None),
        };
        let mut seat = *now.ok_or(Refused::Fenced { now: Fence(0) })?;
        if seat.last.fence != from.0 && !windlass_core::mutant::breaks("no-fence") {
            return Err(Refused::Fenced { now: Fence(seat.last.fence) });
        }
        if let Some(to) = to {
            if to <= *from {
                return Err(Refused::Fenced { now: *from });
            }
            seat.last.fence = to.0;
            seat.take();
        }
        Ok(seat)
    }

    fn note(&mut self, session: i64, seat: &mut JudgedSession<'g>, row: &'g Row) {
        let writes = &mut self.writes;
        match row {
            Row::Batch { no, lookup } => {
                writes.batches.push((int(no.0), session, *lookup));
                writes.open.insert((session, int(no.0)), true);
            }
            Row::Journal { batch, row, count, data } => {
                let first = seat.last.head + 1;
                let linked = Linked {
                    session: session.cast_unsigned(),
                    batch: batch.0,
                    row: *row,
                    first,
                    count: *count,
                    data,
                };
                let (before, link) = (seat.last.chain, linked.link(&seat.last.chain));
                let (key, first, count) = (row_key(*batch, *row), int(first), i64::from(*count));
                writes.journal.push(Entries { key, session, first, count, before, link, data });
                seat.last.head += count.cast_unsigned();
                seat.last.chain = link;
            }
            Row::Close(no) => {
                writes.open.insert((session, int(no.0)), false);
            }
            Row::Reopen(no) => {
                writes.open.insert((session, int(no.0)), true);
            }
            Row::Chunk { blob, seq, data } => {
                writes.pieces.push((piece_key(*blob, *seq), digest(data), data));
            }
            Row::Cut { blob, pieces } => {
                let range = piece_key(*blob, *pieces)..=piece_key(*blob, BLOB_PIECES_MAX - 1);
                writes.pieces.retain(|(key, ..)| !range.contains(key));
                self.known.keys.retain(|key| !matches!(key, Key::Piece(key) if range.contains(key)));
                writes.cuts.push(range.into_inner());
            }
            Row::Adopt { key } => {
                let key = (session, digest(key.as_bytes()));
                writes.adopted.push(key);
                self.known.messages.entry(key).and_modify(|message| message.waiting = false);
            }
            Row::Mark { mark, call } => {
                writes.marks.insert(*mark, (session, int(call.packed())));
            }
            Row::Expire(no) => writes.expired.push((session, int(no.0))),
            // `record` has noted them.
            Row::Put { .. } | Row::Claim { .. } | Row::Remove { .. } => {}
        }
    }

    /// Whether a piece may be removed; removing it shows whether anything is left.
    fn piece(&mut self, at: usize, piece: Removal) -> Result<Removed, Refused> {
        let session = int(piece.session.0);
        match self.known.seats.get_mut(&session) {
            None => Ok(Removed::All),
            Some(seat) if seat.last.fence != piece.fence.0 => {
                Err(Refused::Fenced { now: Fence(seat.last.fence) })
            }
            Some(seat) => {
                seat.change();
                self.writes.removals.push((at, session, i64::try_from(piece.most).unwrap_or(i64::MAX)));
                Ok(Removed::Piece)
            }
        }
    }

    fn post(&mut self, message: &'g Inbound) -> Posted {
        if !self.known.seats.contains_key(&int(message.session.0)) {
            return Posted::NoSession;
        }
        let (key, body) = (digest(message.key.as_bytes()), digest(&message.body));
        match self.known.messages.get(&(int(message.session.0), key)) {
            Some(kept) if kept.digest == body => Posted::Again,
            Some(_) => Posted::Differs,
            None => {
                let kept = SentMessage { digest: body, waiting: true };
                self.known.messages.insert((int(message.session.0), key), kept);
                self.writes.messages.push((key, body, message));
                Posted::New
            }
        }
    }
}

impl JudgedSession<'_> {
    fn change(&mut self) {
        if self.write == SessionWrite::Nothing {
            self.write = SessionWrite::Changed;
        }
    }

    fn take(&mut self) {
        if matches!(self.write, SessionWrite::Nothing | SessionWrite::Changed) {
            self.write = SessionWrite::Taken;
        }
    }
}

impl GroupWrites<'_> {
    /// The last versions of its sessions. Those of sessions of which pieces are removed are known to the server only.
    pub fn versions(&self) -> Vec<(i64, SessionVersion)> {
        let is_removed = |session| self.removals.iter().any(|(_, removed, _)| *removed == session);
        let kept = self.seats.iter().filter(|(session, _)| !is_removed(**session));
        kept.map(|(session, seat)| (*session, seat.last)).collect()
    }

    /// Whether there is nothing to make durable. Whatever is written to a session comes with a version of it.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty() && self.messages.is_empty() && self.records.is_empty()
    }
}
