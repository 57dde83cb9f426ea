//! Records by key.

use crate::{RecordPage, Space, StoredRecord};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::ids::SessionNo;

/// All records, and the number of generations so far.
#[derive(Default)]
pub(super) struct MemoryRecords {
    kept: BTreeMap<(Space, SessionNo, String), MemoryRecord>,
    generations: u64,
}

struct MemoryRecord {
    value: Arc<[u8]>,
    generation: u64,
}

impl MemoryRecords {
    /// The next session that has a record in this space.
    pub fn next_owner(&self, space: Space, after: Option<SessionNo>) -> Option<SessionNo> {
        let from = (space, SessionNo(after.map_or(0, |after| after.0 + 1)), String::new());
        let ((found, owner, _), _) = self.kept.range(from..).next()?;
        (*found == space).then_some(*owner)
    }

    /// The record of this key.
    pub fn get(&self, session: SessionNo, space: Space, key: &str) -> Option<StoredRecord> {
        let kept = self.kept.get(&place(session, space, key))?;
        Some(kept.record(key))
    }

    /// Its generation; 0 if there is none.
    pub fn generation(&self, session: SessionNo, space: Space, key: &str) -> u64 {
        self.kept.get(&place(session, space, key)).map_or(0, |kept| kept.generation)
    }

    /// The number of records in a space, counted up to `max`.
    pub fn count(&self, session: SessionNo, space: Space, max: u64) -> u64 {
        let owner = space.owner(session);
        let of_space = self.kept.range(place(session, space, "")..);
        let of_space = of_space.take_while(|((kept, of, _), _)| (*kept, *of) == (space, owner));
        of_space.take(max as usize).count() as u64
    }

    /// The bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        self.kept.iter().map(|((_, _, key), kept)| (key.len() + kept.value.len()) as u64).sum()
    }

    /// A page, by key.
    pub fn page(&self, page: RecordPage<'_>) -> Vec<StoredRecord> {
        let owner = page.space.owner(page.session);
        let from = self.kept.range(place(page.session, page.space, page.from())..);
        from.take_while(|((space, of, key), _)| {
            (*space, *of) == (page.space, owner) && key.starts_with(page.prefix)
        })
        .filter(|((_, _, key), _)| Some(key.as_str()) != page.after)
        .take(page.limit as usize)
        .map(|((_, _, key), kept)| kept.record(key))
        .collect()
    }

    /// Puts a record, and returns its generation.
    pub fn put(&mut self, session: SessionNo, space: Space, key: String, value: Arc<[u8]>) -> u64 {
        self.generations += 1;
        let generation = self.generations;
        self.kept.insert((space, space.owner(session), key), MemoryRecord { value, generation });
        generation
    }

    /// Removes a record, if it exists.
    pub fn remove(&mut self, session: SessionNo, space: Space, key: String) {
        self.kept.remove(&(space, space.owner(session), key));
    }

    /// The first records of a session's space, at most `most` keys.
    pub fn first(&self, session: SessionNo, space: Space, most: usize) -> Vec<String> {
        let of_space = self.kept.range(place(session, space, "")..);
        let of_space = of_space.take_while(|((kept, of, _), _)| (*kept, *of) == (space, session));
        of_space.take(most).map(|((_, _, key), _)| key.clone()).collect()
    }
}

impl MemoryRecord {
    fn record(&self, key: &str) -> StoredRecord {
        StoredRecord { key: key.to_owned(), value: self.value.to_vec(), generation: self.generation }
    }
}

fn place(session: SessionNo, space: Space, key: &str) -> (Space, SessionNo, String) {
    (space, space.owner(session), key.to_owned())
}
