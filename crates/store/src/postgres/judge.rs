//! Deciding about a group, without a word of SQL: what must be known first, and from that which changes are
//! applied and what they write.
//!
//! An error inside a transaction of PostgreSQL takes the whole transaction with it. So nothing is found out by
//! trying: everything is asked at once, judged here, and written at once.

use crate::chain::{Link, Linked, START, int, piece_key, row_key};
use crate::change::{Change, Guard, Hold, Receipt, Refused, Row};
use crate::queue::{Request, Told};
use crate::{BLOB_PIECES_MAX, Inbound, Posted, Removal, Removed, Space};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use windlass_core::ids::{EntryNo, Fence, Lookup, Mark, SessionNo};

/// What can be there once only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    Name(Link),
    Lookup(Lookup),
    Batch(i64),
    Row(i64),
    Piece(i64),
}

/// Whose records of a space: the space, and the session or 0.
pub(super) type Shelf = (i64, i64);

/// Where a record is.
pub(super) type Place = (Shelf, Vec<u8>);

fn shelf(session: SessionNo, space: Space) -> Shelf {
    (space.number(), int(space.owner(session).0))
}

fn place(session: SessionNo, space: Space, key: &str) -> Place {
    (shelf(session, space), key.as_bytes().to_vec())
}

/// What must be known before a group can be judged.
#[derive(Default)]
pub(super) struct Asked {
    /// The sessions, to be locked.
    pub sessions: BTreeSet<i64>,
    /// Are these there?
    pub keys: BTreeSet<Key>,
    /// Messages by session and digest of their key.
    pub messages: BTreeSet<(i64, Link)>,
    /// The generations of these records.
    pub records: BTreeSet<Place>,
    /// How many records are there?
    pub counts: BTreeSet<Shelf>,
    /// How many records may be put.
    pub puts: i64,
    /// Whether records of the whole store are looked at or written.
    pub is_of_store: bool,
}

/// What is known, of what was asked.
#[derive(Default)]
pub(super) struct Known<'g> {
    pub seats: BTreeMap<i64, Seat<'g>>,
    pub keys: HashSet<Key>,
    pub messages: HashMap<(i64, Link), Message>,
    /// The generation of each record that is there.
    pub records: HashMap<Place, u64>,
    /// How many records there are, of each shelf that was asked for.
    pub counts: HashMap<Shelf, u64>,
    /// The generation of the next record that is put.
    pub generation: u64,
}

/// A session while its group is judged.
#[derive(Clone, Copy)]
pub(super) struct Seat<'g> {
    pub fence: u64,
    pub head: u64,
    pub chain: Link,
    pub kept: Kept<'g>,
}

/// What the session's row needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept<'g> {
    Same,
    Changed,
    New { name: &'g str },
}

/// A message that was sent before.
pub(super) struct Message {
    pub digest: Link,
    pub waiting: bool,
}

/// What a group writes.
#[derive(Default)]
pub(super) struct Writes<'g> {
    pub seats: BTreeMap<i64, Seat<'g>>,
    /// Number, session, look-up.
    pub batches: Vec<(i64, i64, Lookup)>,
    /// Whether a batch is open in the end, by session and number.
    pub open: BTreeMap<(i64, i64), bool>,
    pub journal: Vec<Entries<'g>>,
    /// Key, digest, bytes.
    pub pieces: Vec<(i64, Link, &'g [u8])>,
    /// First and last key of pieces that go, before any is written.
    pub cuts: Vec<(i64, i64)>,
    /// Digest of the key, digest of the body, message.
    pub messages: Vec<(Link, Link, &'g Inbound)>,
    pub adopted: Vec<(i64, Link)>,
    /// Session and call of each mark: one statement sets a mark once.
    pub marks: BTreeMap<Mark, (i64, i64)>,
    /// Generation and value of each record; `None`: it is removed. One statement puts a record once.
    pub records: BTreeMap<Place, Option<(u64, &'g [u8])>>,
    /// Place in the group, session, rows at most. They come after all other writes: whoever removes a session writes nothing
    /// else to it.
    pub removals: Vec<(usize, i64, i64)>,
}

/// A journal row.
pub(super) struct Entries<'g> {
    pub key: i64,
    pub session: i64,
    pub first: i64,
    pub count: i64,
    pub before: Link,
    pub link: Link,
    pub data: &'g [u8],
}

/// By what texts and bodies are found and compared.
pub(super) fn digest(bytes: &[u8]) -> Link {
    *blake3::hash(bytes).as_bytes()
}

impl Asked {
    /// What this group must know.
    pub fn of(group: &[Request]) -> Asked {
        let mut asked = Asked::default();
        for request in group {
            match request {
                Request::Commit { changes, .. } => {
                    changes.iter().filter(|change| change.fits()).for_each(|change| asked.change(change));
                }
                Request::Post { message, .. } => {
                    asked.messages.insert((int(message.session.0), digest(message.key.as_bytes())));
                }
                Request::Remove { piece, .. } => {
                    asked.sessions.insert(int(piece.session.0));
                }
            }
        }
        asked
    }

    fn change(&mut self, change: &Change) {
        self.sessions.insert(int(change.session.0));
        if let Hold::Open { name } = &change.hold {
            self.keys.insert(Key::Name(digest(name.as_bytes())));
        }
        for guard in &change.guards {
            match guard {
                Guard::Absent(lookup) => {
                    self.keys.insert(Key::Lookup(*lookup));
                }
                Guard::Generation { space, key, .. } => self.record(change.session, *space, key),
                Guard::Room { space, key, .. } => {
                    self.record(change.session, *space, key);
                    self.counts.insert(shelf(change.session, *space));
                }
            }
        }
        for row in &change.rows {
            self.keys.extend(keys(row).into_iter().flatten());
            match row {
                Row::Adopt { key } => {
                    self.messages.insert((int(change.session.0), digest(key.as_bytes())));
                }
                Row::Put { space, key, .. } => {
                    self.record(change.session, *space, key);
                    self.puts += 1;
                }
                Row::Remove { space, key } => self.record(change.session, *space, key),
                Row::Batch { .. } | Row::Journal { .. } | Row::Close(_) | Row::Reopen(_) => {}
                Row::Chunk { .. } | Row::Cut { .. } | Row::Mark { .. } => {}
            }
        }
    }

    fn record(&mut self, session: SessionNo, space: Space, key: &str) {
        self.records.insert(place(session, space, key));
        self.is_of_store |= space.is_of_store();
    }
}

/// What a row makes that must not be there.
fn keys(row: &Row) -> [Option<Key>; 2] {
    match row {
        Row::Batch { no, lookup } => [Some(Key::Batch(int(no.0))), Some(Key::Lookup(*lookup))],
        Row::Journal { batch, row, .. } => [Some(Key::Row(row_key(*batch, *row))), None],
        Row::Chunk { blob, seq, .. } => [Some(Key::Piece(piece_key(*blob, *seq))), None],
        Row::Close(_) | Row::Reopen(_) | Row::Adopt { .. } | Row::Mark { .. } => [None, None],
        Row::Put { .. } | Row::Remove { .. } | Row::Cut { .. } => [None, None],
    }
}

/// Judges a group in its order.
pub(super) fn judge<'g>(group: &'g [Request], known: Known<'g>) -> (Vec<Told>, Writes<'g>) {
    let mut judge = Judge { known, writes: Writes::default() };
    let told = group
        .iter()
        .enumerate()
        .map(|(at, request)| match request {
            Request::Commit { changes, .. } => {
                Told::Commit(changes.iter().map(|change| judge.change(change)).collect())
            }
            Request::Post { message, .. } => Told::Post(judge.post(message)),
            Request::Remove { piece, .. } => Told::Remove(judge.piece(at, *piece)),
        })
        .collect();
    let Judge { known, mut writes } = judge;
    writes.seats = known.seats;
    writes.seats.retain(|_, seat| seat.kept != Kept::Same);
    (told, writes)
}

struct Judge<'g> {
    known: Known<'g>,
    writes: Writes<'g>,
}

impl<'g> Judge<'g> {
    /// Everything is checked before anything is noted, so that a refused change leaves no trace.
    fn change(&mut self, change: &'g Change) -> Result<Receipt, Refused> {
        let (mut seat, made) = self.check(change)?;
        self.known.keys.extend(made);
        let mut receipt = Receipt { first: EntryNo(seat.head + 1), generation: 0 };
        for row in &change.rows {
            receipt.generation = self.record(change.session, row).unwrap_or(receipt.generation);
            self.note(int(change.session.0), &mut seat, row);
        }
        if change.hold != Hold::Store {
            self.known.seats.insert(int(change.session.0), seat);
        }
        Ok(receipt)
    }

    /// Why the change may not be applied; or the session as it is then held, and what the change makes.
    fn check(&self, change: &'g Change) -> Result<(Seat<'g>, HashSet<Key>), Refused> {
        if !change.fits() {
            return Err(Refused::TooLarge);
        }
        let mut made = HashSet::new();
        let seat = self.hold(change, &mut made)?;
        for guard in &change.guards {
            self.check_guard(change.session, guard)?;
        }
        let mut adopted = HashSet::new();
        for row in &change.rows {
            for key in keys(row).into_iter().flatten() {
                if self.known.keys.contains(&key) || !made.insert(key) {
                    return Err(Refused::Exists);
                }
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

    fn check_guard(&self, session: SessionNo, guard: &Guard) -> Result<(), Refused> {
        let generation =
            |space, key| self.known.records.get(&place(session, space, key)).copied().unwrap_or(0);
        match guard {
            Guard::Absent(lookup) if self.known.keys.contains(&Key::Lookup(*lookup)) => Err(Refused::Exists),
            Guard::Absent(_) => Ok(()),
            Guard::Generation { space, key, is } => match generation(*space, key) {
                now if now == *is => Ok(()),
                now => Err(Refused::Changed { now }),
            },
            Guard::Room { space, key, max } => {
                let count = self.known.counts.get(&shelf(session, *space)).copied().unwrap_or(0);
                let has_room = generation(*space, key) != 0 || count < *max;
                has_room.then_some(()).ok_or(Refused::Full)
            }
        }
    }

    /// Notes a record; says the generation of one that is put.
    fn record(&mut self, session: SessionNo, row: &'g Row) -> Option<u64> {
        if let Row::Remove { space, key } = row {
            self.remove(place(session, *space, key));
        }
        let Row::Put { space, key, value } = row else { return None };
        Some(self.put(place(session, *space, key), value))
    }

    fn put(&mut self, place: Place, value: &'g [u8]) -> u64 {
        let generation = self.known.generation;
        self.known.generation += 1;
        if self.known.records.insert(place.clone(), generation).is_none() {
            self.known.counts.entry(place.0).and_modify(|count| *count += 1);
        }
        self.writes.records.insert(place, Some((generation, value)));
        generation
    }

    fn remove(&mut self, place: Place) {
        if self.known.records.remove(&place).is_some() {
            self.known.counts.entry(place.0).and_modify(|count| *count -= 1);
            self.writes.records.insert(place, None);
        }
    }

    fn hold(&self, change: &'g Change, made: &mut HashSet<Key>) -> Result<Seat<'g>, Refused> {
        let now = self.known.seats.get(&int(change.session.0));
        let (from, to) = match &change.hold {
            Hold::Open { name } => {
                let key = Key::Name(digest(name.as_bytes()));
                if now.is_some() || self.known.keys.contains(&key) {
                    return Err(Refused::Exists);
                }
                made.insert(key);
                return Ok(Seat { fence: 1, head: 0, chain: START, kept: Kept::New { name } });
            }
            Hold::Take { from, to } => (from, Some(*to)),
            Hold::Held(from) => (from, None),
            Hold::Store if change.is_of_store() => {
                return Ok(Seat { fence: 0, head: 0, chain: START, kept: Kept::Same });
            }
            Hold::Store => return Err(Refused::Fenced { now: Fence(now.map_or(0, |seat| seat.fence)) }),
        };
        let mut seat = *now.ok_or(Refused::Fenced { now: Fence(0) })?;
        if seat.fence != from.0 {
            return Err(Refused::Fenced { now: Fence(seat.fence) });
        }
        if let Some(to) = to {
            if to <= *from {
                return Err(Refused::Fenced { now: *from });
            }
            seat.fence = to.0;
            seat.change();
        }
        Ok(seat)
    }

    fn note(&mut self, session: i64, seat: &mut Seat<'g>, row: &'g Row) {
        let writes = &mut self.writes;
        match row {
            Row::Batch { no, lookup } => {
                writes.batches.push((int(no.0), session, *lookup));
                writes.open.insert((session, int(no.0)), true);
            }
            Row::Journal { batch, row, count, data } => {
                let first = seat.head + 1;
                let linked = Linked {
                    session: session.cast_unsigned(),
                    batch: batch.0,
                    row: *row,
                    first,
                    count: *count,
                    data,
                };
                let (before, link) = (seat.chain, linked.link(&seat.chain));
                let (key, first, count) = (row_key(*batch, *row), int(first), i64::from(*count));
                writes.journal.push(Entries { key, session, first, count, before, link, data });
                seat.head += count.cast_unsigned();
                seat.chain = link;
                seat.change();
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
            // `record` has noted them.
            Row::Put { .. } | Row::Remove { .. } => {}
        }
    }

    /// Whether a piece may be removed; whether something is left is found by removing it.
    fn piece(&mut self, at: usize, piece: Removal) -> Result<Removed, Refused> {
        let session = int(piece.session.0);
        match self.known.seats.get(&session) {
            None => Ok(Removed::All),
            Some(seat) if seat.fence != piece.fence.0 => Err(Refused::Fenced { now: Fence(seat.fence) }),
            Some(_) => {
                self.writes.removals.push((at, session, i64::try_from(piece.most).unwrap_or(i64::MAX)));
                Ok(Removed::Piece)
            }
        }
    }

    fn post(&mut self, message: &'g Inbound) -> Posted {
        let (key, body) = (digest(message.key.as_bytes()), digest(&message.body));
        match self.known.messages.get(&(int(message.session.0), key)) {
            Some(kept) if kept.digest == body => Posted::Again,
            Some(_) => Posted::Differs,
            None => {
                let kept = Message { digest: body, waiting: true };
                self.known.messages.insert((int(message.session.0), key), kept);
                self.writes.messages.push((key, body, message));
                Posted::New
            }
        }
    }
}

impl Seat<'_> {
    fn change(&mut self) {
        if self.kept == Kept::Same {
            self.kept = Kept::Changed;
        }
    }
}

impl Writes<'_> {
    /// Nothing to make durable.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
            && self.open.is_empty()
            && self.pieces.is_empty()
            && self.cuts.is_empty()
            && self.messages.is_empty()
            && self.adopted.is_empty()
            && self.marks.is_empty()
            && self.records.is_empty()
            && self.removals.is_empty()
    }
}
