//! The store in memory: a lock and appends, so that journaling costs a call next to nothing.
//!
//! Clones share one store, so a process can simulate several owners of it. There is no hash chain: nothing
//! here can be damaged without the process being damaged too.

mod expire;
mod records;
mod remove;
mod rows;

use crate::answer::Answer;
use crate::change::{Change, Guard, Hold, Receipt, RecordChange, RecordGuard, Refused, Row, SessionChange};
use crate::record::{blob_of, gone_key};
use crate::{
    BatchRow, BlobSize, Durability, Inbound, JournalRow, KeptBatch, Posted, RecordPage, Removal, Removed,
    Sequence, SessionPage, SessionRow, Shelf, Space, Store, StoreError, StoreUsage, StoredRecord,
};
use expire::ExpiredRun;
use records::MemoryRecords;
use rows::{NumberMap, Posts, Rows};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_core::handle::Secret;
use windlass_core::ids::{BatchNo, BlobNo, CallId, EntryNo, Fence, Lookup, Mark, SessionNo};

/// A store in memory. Clones share the data.
#[derive(Clone)]
pub struct MemoryStore(Arc<MemoryStoreParts>);

struct MemoryStoreParts {
    secret: Secret,
    next: [AtomicU64; 3],
    state: Mutex<MemoryState>,
}

#[derive(Default)]
struct MemoryState {
    sessions: BTreeMap<SessionNo, MemorySession>,
    names: BTreeMap<String, SessionNo>,
    /// The batches that are not expired.
    batches: NumberMap<BatchNo, BatchRows>,
    expired: NumberMap<BatchNo, BatchRow>,
    lookups: NumberMap<Lookup, BatchNo>,
    open: BTreeSet<(SessionNo, BatchNo)>,
    rows: Rows,
    pieces: BTreeMap<(BlobNo, u32), Arc<[u8]>>,
    /// The session of each blob.
    blobs: NumberMap<BlobNo, SessionNo>,
    messages: BTreeMap<(SessionNo, String), MemoryMessage>,
    waiting: BTreeMap<(SessionNo, u64), String>,
    messages_sent: u64,
    marks: NumberMap<Mark, (SessionNo, CallId)>,
    records: MemoryRecords,
    commits: u64,
}

struct MemorySession {
    name: String,
    principal: Option<String>,
    fence: Fence,
    head: u64,
    last: Option<usize>,
    posts: Posts,
    /// Its expired rows, by their first entries; no two of them touch.
    runs: BTreeMap<u64, ExpiredRun>,
}

/// A batch, and the place of its last row. Rows may come without the batch being recorded.
#[derive(Default)]
struct BatchRows {
    recorded: Option<BatchRow>,
    last: Option<usize>,
}

struct MemoryMessage {
    sent: u64,
    digest: blake3::Hash,
    /// `None` once it is adopted.
    body: Option<Vec<u8>>,
}

impl MemoryStore {
    /// An empty store with a secret of its own.
    pub fn new() -> Result<MemoryStore, StoreError> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)
            .map_err(|error| StoreError::Io { doing: "draw its secret", source: Box::new(error) })?;
        Ok(MemoryStore::with_secret(Secret(secret)))
    }

    /// An empty store with a given secret, for reproducible runs.
    pub fn with_secret(secret: Secret) -> MemoryStore {
        let next = [AtomicU64::new(1), AtomicU64::new(1), AtomicU64::new(1)];
        MemoryStore(Arc::new(MemoryStoreParts { secret, next, state: Mutex::default() }))
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn commit(&self, changes: Vec<Change>) -> Answer<Vec<Result<Receipt, Refused>>> {
        let (mut state, secret) = (self.state(), &self.0.secret);
        state.commits += 1;
        let mut receipts = Vec::with_capacity(changes.len());
        // Not collected: that would reuse the memory of the changes, and then return most of it.
        changes.into_iter().for_each(|change| receipts.push(state.apply(secret, change)));
        Answer::ready(Ok(receipts))
    }

    fn post(&self, message: Inbound) -> Answer<Posted> {
        let mut state = self.state();
        state.commits += 1;
        Answer::ready(Ok(state.post(message)))
    }

    fn remove(&self, piece: Removal) -> Answer<Result<Removed, Refused>> {
        let mut state = self.state();
        state.commits += 1;
        Answer::ready(Ok(state.remove(&self.0.secret, piece)))
    }

    fn reserve(&self, what: Sequence, count: u64) -> Answer<u64> {
        Answer::ready(Ok(self.0.next[what as usize].fetch_add(count, Ordering::Relaxed)))
    }

    fn session(&self, name: &str) -> Answer<Option<SessionRow>> {
        let state = self.state();
        Answer::ready(Ok(state.names.get(name).and_then(|no| state.session(*no))))
    }

    fn session_by_no(&self, no: SessionNo) -> Answer<Option<SessionRow>> {
        Answer::ready(Ok(self.state().session(no)))
    }

    fn sessions(&self, after: Option<SessionNo>, limit: u64) -> Answer<Vec<SessionRow>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.state();
        let found = state.sessions.range((from, Bound::Unbounded)).take(limit as usize);
        Answer::ready(Ok(found.map(|(no, session)| session.row(*no)).collect()))
    }

    fn sessions_by_name(&self, page: SessionPage<'_>) -> Answer<Vec<SessionRow>> {
        let state = self.state();
        let from = page.after.map_or(Bound::Unbounded, Bound::Excluded);
        let is_listed = |row: &SessionRow| {
            page.principal.is_none_or(|principal| row.principal.as_deref() == Some(principal))
        };
        let named = state.names.range::<str, _>((from, Bound::Unbounded));
        let found = named.filter_map(|(_, no)| state.session(*no)).filter(is_listed);
        Answer::ready(Ok(found.take(page.limit as usize).collect()))
    }

    fn sessions_with(&self, space: Space, after: Option<SessionNo>, limit: u64) -> Answer<Vec<SessionRow>> {
        let state = self.state();
        let (mut found, mut after) = (Vec::new(), after);
        while (found.len() as u64) < limit
            && let Some(no) = state.records.next_owner(space, after)
        {
            found.extend(state.session(no));
            after = Some(no);
        }
        Answer::ready(Ok(found))
    }

    fn batch(&self, lookup: Lookup) -> Answer<Option<BatchRow>> {
        let state = self.state();
        Answer::ready(Ok(state.lookups.get(&lookup).and_then(|no| state.batch(*no))))
    }

    fn batch_by_no(&self, no: BatchNo) -> Answer<Option<BatchRow>> {
        Answer::ready(Ok(self.state().batch(no)))
    }

    fn kept_batches(&self, after: BatchNo, limit: u64) -> Answer<Vec<KeptBatch>> {
        Answer::ready(Ok(self.state().kept_batches(after, limit)))
    }

    fn usage(&self) -> Answer<StoreUsage> {
        Answer::ready(Ok(self.state().usage()))
    }

    fn open_batches(&self, session: Option<SessionNo>) -> Answer<Vec<BatchRow>> {
        let state = self.state();
        let range = match session {
            Some(session) => (session, BatchNo(0))..=(session, BatchNo(u64::MAX)),
            None => (SessionNo(0), BatchNo(0))..=(SessionNo(u64::MAX), BatchNo(u64::MAX)),
        };
        let mut found: Vec<_> = state.open.range(range).filter_map(|(_, no)| state.batch(*no)).collect();
        found.sort_by_key(|batch| batch.no);
        Answer::ready(Ok(found))
    }

    fn journal(&self, batch: BatchNo) -> Answer<Vec<JournalRow>> {
        let state = self.state();
        let last = state.batches.get(&batch).and_then(|batch| batch.last);
        let mut found: Vec<_> = state.rows.of_batch(last).cloned().collect();
        found.sort_by_key(|row| row.row);
        Answer::ready(Ok(found))
    }

    fn history(&self, session: SessionNo, before: Option<EntryNo>, limit: u64) -> Answer<Vec<JournalRow>> {
        let state = self.state();
        let Some(session) = state.sessions.get(&session) else { return Answer::ready(Ok(Vec::new())) };
        let rows = state.rows_of(session, session.last);
        let older = rows.filter(|row| before.is_none_or(|before| row.first < before));
        Answer::ready(Ok(older.take(limit as usize).cloned().collect()))
    }

    fn journal_after(&self, session: SessionNo, after: EntryNo, limit: u64) -> Answer<Vec<JournalRow>> {
        Answer::ready(Ok(self.state().journal_after(session, after, limit)))
    }

    fn blob(&self, blob: BlobNo, offset: u64, len: u64) -> Answer<Option<Vec<u8>>> {
        Answer::ready(Ok(self.state().blob(blob, offset, len)))
    }

    fn blob_size(&self, blob: BlobNo) -> Answer<Option<BlobSize>> {
        Answer::ready(Ok(self.state().blob_size(blob)))
    }

    fn inbound(&self, session: SessionNo, limit: u64) -> Answer<Vec<Inbound>> {
        let state = self.state();
        let waiting = state.waiting.range((session, 0)..=(session, u64::MAX)).take(limit as usize);
        let found = waiting.filter_map(|(_, key)| {
            let body = state.messages.get(&(session, key.clone()))?.body.clone()?;
            Some(Inbound { session, key: key.clone(), body })
        });
        Answer::ready(Ok(found.collect()))
    }

    fn marked(&self, mark: Mark) -> Answer<Option<CallId>> {
        Answer::ready(Ok(self.state().marks.get(&mark).map(|(_, call)| *call)))
    }

    fn record(&self, shelf: Shelf, key: &str) -> Answer<Option<StoredRecord>> {
        Answer::ready(Ok(self.state().records.get(shelf, key)))
    }

    fn records(&self, page: RecordPage<'_>) -> Answer<Vec<StoredRecord>> {
        Answer::ready(Ok(self.state().records.page(page)))
    }

    fn count_records(&self, shelf: Shelf) -> Answer<u64> {
        Answer::ready(Ok(self.state().records.count(shelf, u64::MAX)))
    }

    fn blob_session(&self, blob: BlobNo) -> Answer<Option<SessionNo>> {
        Answer::ready(Ok(self.state().blobs.get(&blob).copied()))
    }

    fn gone(&self, name: &str) -> Answer<Option<Vec<u8>>> {
        let kept = self.state().records.get(Shelf::gone(), &gone_key(&self.0.secret, name));
        Answer::ready(Ok(kept.map(|kept| kept.value)))
    }

    fn secret(&self) -> &Secret {
        &self.0.secret
    }

    fn durability(&self) -> Durability {
        Durability::Memory
    }

    fn last_owner_died(&self) -> bool {
        false
    }

    fn commits(&self) -> u64 {
        self.state().commits
    }
}

impl MemorySession {
    fn row(&self, no: SessionNo) -> SessionRow {
        let (name, principal) = (self.name.clone(), self.principal.clone());
        SessionRow { no, name, principal, fence: self.fence, head: EntryNo(self.head) }
    }
}

impl MemoryState {
    /// Everything is checked before anything is written, so that a refused change leaves no trace.
    fn apply(&mut self, secret: &Secret, change: Change) -> Result<Receipt, Refused> {
        match change {
            Change::Session(change) => self.apply_to_session(secret, change),
            Change::Record(change) => self.apply_to_store(change),
        }
    }

    fn apply_to_session(&mut self, secret: &Secret, change: SessionChange) -> Result<Receipt, Refused> {
        let fence = self.check(secret, &change)?;
        for row in &change.rows {
            // A batch closed again by the same change was never open.
            if let Row::Batch { no, .. } = row
                && change.leaves_open(*no) == Some(true)
            {
                self.open.insert((change.session, *no));
            }
        }
        if let Hold::Open { name, principal } = change.hold {
            self.names.insert(name.clone(), change.session);
            let (posts, runs) = (Posts::default(), BTreeMap::new());
            let session = MemorySession { name, principal, fence, head: 0, last: None, posts, runs };
            self.sessions.insert(change.session, session);
        }
        let mut first = EntryNo(1);
        if let Some(session) = self.sessions.get_mut(&change.session) {
            session.fence = fence;
            first = EntryNo(session.head + 1);
        }
        let mut generation = 0;
        for row in change.rows {
            generation = self.write(change.session, row).unwrap_or(generation);
        }
        Ok(Receipt { first, generation })
    }

    fn apply_to_store(&mut self, change: RecordChange) -> Result<Receipt, Refused> {
        if !change.fits() {
            return Err(Refused::TooLarge);
        }
        let RecordChange { space, key, guard, value } = change;
        let shelf = space.shelf();
        match guard {
            Some(RecordGuard::Generation(is)) => self.check_generation(shelf, &key, is)?,
            Some(RecordGuard::Room(max)) => self.check_room(shelf, &key, max)?,
            None => {}
        }
        let generation = match value {
            Some(value) => self.records.put(shelf, key, value),
            None => {
                self.records.remove(shelf, key);
                0
            }
        };
        Ok(Receipt { first: EntryNo(1), generation })
    }

    /// Why the change may not be applied, or the session's new fence.
    fn check(&self, secret: &Secret, change: &SessionChange) -> Result<Fence, Refused> {
        if !change.fits() {
            return Err(Refused::TooLarge);
        }
        let now = self.sessions.get(&change.session).map_or(Fence(0), |session| session.fence);
        let fence = match &change.hold {
            Hold::Open { name, .. } if now != Fence(0) || self.names.contains_key(name) => {
                return Err(Refused::Exists);
            }
            Hold::Open { name, .. }
                if self.records.generation(Shelf::gone(), &gone_key(secret, name)) != 0 =>
            {
                return Err(Refused::Gone);
            }
            Hold::Open { .. } => Fence(1),
            Hold::Take { from, .. } | Hold::Held(from) if now == Fence(0) || now != *from => {
                return Err(Refused::Fenced { now });
            }
            Hold::Take { from, to } if to <= from => return Err(Refused::Fenced { now }),
            Hold::Take { to, .. } => *to,
            Hold::Held(fence) => *fence,
        };
        for guard in &change.guards {
            match guard {
                Guard::Generation { space, key, is } => {
                    self.check_generation(space.of(change.session), key, *is)?;
                }
                Guard::Room { space, key, max } => self.check_room(space.of(change.session), key, *max)?,
            }
        }
        for (place, row) in change.rows.iter().enumerate() {
            self.check_row(change, row)?;
            if let Some(refused) = change.rows[..place].iter().find_map(|earlier| clash(earlier, row)) {
                return Err(refused);
            }
        }
        Ok(fence)
    }

    fn check_generation(&self, shelf: Shelf, key: &str, is: u64) -> Result<(), Refused> {
        match self.records.generation(shelf, key) {
            now if now == is => Ok(()),
            now => Err(Refused::Changed { now }),
        }
    }

    fn check_room(&self, shelf: Shelf, key: &str, max: u64) -> Result<(), Refused> {
        let has_room = self.records.generation(shelf, key) != 0 || self.records.count(shelf, max) < max;
        has_room.then_some(()).ok_or(Refused::Full)
    }

    fn check_row(&self, change: &SessionChange, row: &Row) -> Result<(), Refused> {
        let exists = match row {
            Row::Batch { no, lookup } => self.lookups.contains_key(lookup) || self.batch(*no).is_some(),
            Row::Journal { batch, row, .. } => {
                let last = self.batches.get(batch).and_then(|batch| batch.last);
                // Rows come with growing numbers, so this looks only at the last one.
                self.rows.of_batch(last).take_while(|kept| kept.row >= *row).any(|kept| kept.row == *row)
            }
            Row::Chunk { blob, seq, .. } => self.pieces.contains_key(&(*blob, *seq)),
            Row::Adopt { key } => {
                let message = self.messages.get(&(change.session, key.clone()));
                return message
                    .is_some_and(|message| message.body.is_some())
                    .then_some(())
                    .ok_or(Refused::Adopted);
            }
            Row::Expire(no) => {
                let own = self.batch(*no).filter(|batch| batch.session == change.session && !batch.open);
                return own.map(drop).ok_or(Refused::NotOver);
            }
            Row::Close(_) | Row::Reopen(_) | Row::Mark { .. } | Row::Cut { .. } => false,
            Row::Claim { space, key } => self.records.generation(space.of(change.session), key) != 0,
            Row::Put { .. } | Row::Remove { .. } => false,
        };
        if exists { Err(Refused::Exists) } else { Ok(()) }
    }

    /// Writes a row; returns the generation of a record.
    fn write(&mut self, session: SessionNo, row: Row) -> Option<u64> {
        match row {
            Row::Put { space, key, value } => {
                if let Some(blob) = blob_of(&key).filter(|_| space == Space::Blob) {
                    self.blobs.insert(blob, session);
                }
                return Some(self.records.put(space.of(session), key, value));
            }
            Row::Claim { space, key } => {
                return Some(self.records.put(space.of(session), key, Arc::default()));
            }
            Row::Remove { space, key } => {
                if let Some(blob) = blob_of(&key).filter(|_| space == Space::Blob) {
                    self.blobs.remove(&blob);
                }
                self.records.remove(space.of(session), key);
            }
            Row::Batch { no, lookup } => {
                self.lookups.insert(lookup, no);
                let recorded = BatchRow { no, session, lookup, open: true, expired: false };
                self.batches.entry(no).or_default().recorded = Some(recorded);
            }
            Row::Journal { batch, row, count, data } => {
                let owner = self.sessions.get_mut(&session)?;
                let kept = self.batches.entry(batch).or_default();
                let first = EntryNo(owner.head + 1);
                owner.head += u64::from(count);
                let row = JournalRow { session, batch, row, first, count, data };
                let at = self.rows.push(rows::MemoryRow { row, in_batch: kept.last, in_session: owner.last });
                kept.last = Some(at);
                owner.last = Some(at);
                owner.posts.passed(first, at);
            }
            Row::Close(no) => {
                let recorded = self.batches.get_mut(&no).and_then(|batch| batch.recorded.as_mut());
                if let Some(batch) = recorded.filter(|batch| batch.session == session) {
                    batch.open = false;
                    self.open.remove(&(session, no));
                }
            }
            Row::Reopen(no) => {
                let recorded = self.batches.get_mut(&no).and_then(|batch| batch.recorded.as_mut());
                if let Some(batch) = recorded.filter(|batch| batch.session == session) {
                    batch.open = true;
                    self.open.insert((session, no));
                }
            }
            Row::Chunk { blob, seq, data } => {
                self.pieces.insert((blob, seq), data);
            }
            Row::Cut { blob, pieces } => {
                let gone: Vec<_> =
                    self.pieces.range((blob, pieces)..=(blob, u32::MAX)).map(|(key, _)| *key).collect();
                gone.iter().for_each(|key| _ = self.pieces.remove(key));
            }
            Row::Adopt { key } => {
                if let Some(message) = self.messages.get_mut(&(session, key)) {
                    message.body = None;
                    self.waiting.remove(&(session, message.sent));
                }
            }
            Row::Mark { mark, call } => {
                self.marks.insert(mark, (session, call));
            }
            Row::Expire(no) => self.expire(session, no),
        }
        None
    }

    fn post(&mut self, message: Inbound) -> Posted {
        if !self.sessions.contains_key(&message.session) {
            return Posted::NoSession;
        }
        let digest = blake3::hash(&message.body);
        if let Some(kept) = self.messages.get(&(message.session, message.key.clone())) {
            return if kept.digest == digest { Posted::Again } else { Posted::Differs };
        }
        let sent = self.messages_sent;
        self.messages_sent += 1;
        self.waiting.insert((message.session, sent), message.key.clone());
        let kept = MemoryMessage { sent, digest, body: Some(message.body) };
        self.messages.insert((message.session, message.key), kept);
        Posted::New
    }

    fn session(&self, no: SessionNo) -> Option<SessionRow> {
        self.sessions.get(&no).map(|session| session.row(no))
    }

    fn batch(&self, no: BatchNo) -> Option<BatchRow> {
        let kept = self.batches.get(&no).and_then(|batch| batch.recorded);
        kept.or_else(|| self.expired.get(&no).copied())
    }

    /// The links lead back, so the walk begins a little after the requested rows.
    fn journal_after(&self, session: SessionNo, after: EntryNo, limit: u64) -> Vec<JournalRow> {
        let Some(session) = self.sessions.get(&session) else { return Vec::new() };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let start = session.posts.behind(after, limit).or(session.last);
        let holds = |row: &&JournalRow| row.first.0 + u64::from(row.count) > after.0.saturating_add(1);
        let mut found: Vec<_> = self.rows_of(session, start).take_while(holds).collect();
        found.reverse();
        found.into_iter().take(limit).cloned().collect()
    }

    fn blob_size(&self, blob: BlobNo) -> Option<BlobSize> {
        self.pieces.get(&(blob, 0))?;
        let all = self.pieces.range((blob, 0)..=(blob, u32::MAX));
        let empty = BlobSize { bytes: 0, pieces: 0 };
        Some(all.fold(empty, |size, (_, piece)| BlobSize {
            bytes: size.bytes + piece.len() as u64,
            pieces: size.pieces + 1,
        }))
    }

    fn blob(&self, blob: BlobNo, offset: u64, len: u64) -> Option<Vec<u8>> {
        let piece_len = self.pieces.get(&(blob, 0))?.len() as u64;
        let mut found = Vec::new();
        let Some(first) = offset.checked_div(piece_len).and_then(|piece| u32::try_from(piece).ok()) else {
            return Some(found);
        };
        let mut skip = (offset % piece_len) as usize;
        for (_, piece) in self.pieces.range((blob, first)..=(blob, u32::MAX)) {
            let wanted = (len as usize).saturating_sub(found.len());
            if wanted == 0 {
                break;
            }
            found.extend(piece.iter().skip(skip).take(wanted));
            skip = 0;
        }
        Some(found)
    }
}

/// Why two rows of one change cannot both be written.
fn clash(earlier: &Row, row: &Row) -> Option<Refused> {
    match (earlier, row) {
        (Row::Batch { no: a, lookup: x }, Row::Batch { no: b, lookup: y }) if a == b || x == y => {
            Some(Refused::Exists)
        }
        (Row::Journal { batch: a, row: x, .. }, Row::Journal { batch: b, row: y, .. })
            if (a, x) == (b, y) =>
        {
            Some(Refused::Exists)
        }
        (Row::Chunk { blob: a, seq: x, .. }, Row::Chunk { blob: b, seq: y, .. }) if (a, x) == (b, y) => {
            Some(Refused::Exists)
        }
        (Row::Adopt { key: a }, Row::Adopt { key: b }) if a == b => Some(Refused::Adopted),
        (
            Row::Claim { space: x, key: a } | Row::Put { space: x, key: a, .. },
            Row::Claim { space: y, key: b },
        ) if (x, a) == (y, b) => Some(Refused::Exists),
        _ => None,
    }
}
