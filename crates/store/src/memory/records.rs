//! Records by key.

use crate::{RecordPage, Shelf, Space, StoredRecord};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::ids::SessionNo;

/// All records, and the number of generations so far.
#[derive(Default)]
pub(super) struct MemoryRecords {
    kept: BTreeMap<(Shelf, String), MemoryRecord>,
    generations: u64,
}

struct MemoryRecord {
    value: Arc<[u8]>,
    generation: u64,
}

impl MemoryRecords {
    /// The next session that has a record in this space.
    pub fn next_owner(&self, space: Space, after: Option<SessionNo>) -> Option<SessionNo> {
        let from = (space.of(SessionNo(after.map_or(0, |after| after.0 + 1))), String::new());
        let ((found, _), _) = self.kept.range(from..).next()?;
        (found.number() == space.number()).then_some(found.home())
    }

    /// The record of this key.
    pub fn get(&self, shelf: Shelf, key: &str) -> Option<StoredRecord> {
        Some(self.kept.get(&(shelf, key.to_owned()))?.record(key))
    }

    /// Its generation; 0 if there is none.
    pub fn generation(&self, shelf: Shelf, key: &str) -> u64 {
        self.kept.get(&(shelf, key.to_owned())).map_or(0, |kept| kept.generation)
    }

    /// The number of records of a shelf, counted up to `max`.
    pub fn count(&self, shelf: Shelf, max: u64) -> u64 {
        self.of(shelf, "").take(max as usize).count() as u64
    }

    /// The bytes of all keys and values.
    pub fn bytes(&self) -> u64 {
        self.kept.iter().map(|((_, key), kept)| (key.len() + kept.value.len()) as u64).sum()
    }

    /// A page, by key.
    pub fn page(&self, page: RecordPage<'_>) -> Vec<StoredRecord> {
        self.of(page.shelf, page.from())
            .take_while(|(key, _)| key.starts_with(page.prefix))
            .filter(|(key, _)| Some(*key) != page.after)
            .take(page.limit as usize)
            .map(|(key, kept)| kept.record(key))
            .collect()
    }

    /// Puts a record, and returns its generation.
    pub fn put(&mut self, shelf: Shelf, key: String, value: Arc<[u8]>) -> u64 {
        self.generations += 1;
        let generation = self.generations;
        self.kept.insert((shelf, key), MemoryRecord { value, generation });
        generation
    }

    /// Removes a record, if it exists.
    pub fn remove(&mut self, shelf: Shelf, key: String) {
        self.kept.remove(&(shelf, key));
    }

    /// The first records of a shelf, at most `most` keys.
    pub fn first(&self, shelf: Shelf, most: usize) -> Vec<String> {
        self.of(shelf, "").take(most).map(|(key, _)| key.to_owned()).collect()
    }

    /// The records of a shelf from this key on.
    fn of(&self, shelf: Shelf, from: &str) -> impl Iterator<Item = (&str, &MemoryRecord)> {
        self.kept
            .range((shelf, from.to_owned())..)
            .take_while(move |((of, _), _)| *of == shelf)
            .map(|((_, key), kept)| (key.as_str(), kept))
    }
}

impl MemoryRecord {
    fn record(&self, key: &str) -> StoredRecord {
        StoredRecord { key: key.to_owned(), value: self.value.to_vec(), generation: self.generation }
    }
}
