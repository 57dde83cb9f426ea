//! Records by key.

use crate::{Record, RecordPage, Space};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_core::ids::SessionNo;

/// All records, and how many generations there were.
#[derive(Default)]
pub(super) struct Records {
    kept: BTreeMap<(Space, SessionNo, String), Kept>,
    generations: u64,
}

struct Kept {
    value: Arc<[u8]>,
    generation: u64,
}

impl Records {
    /// The record of this key.
    pub fn get(&self, session: SessionNo, space: Space, key: &str) -> Option<Record> {
        let kept = self.kept.get(&place(session, space, key))?;
        Some(kept.record(key))
    }

    /// Its generation; 0 if there is none.
    pub fn generation(&self, session: SessionNo, space: Space, key: &str) -> u64 {
        self.kept.get(&place(session, space, key)).map_or(0, |kept| kept.generation)
    }

    /// How many a space has, counted no further than this.
    pub fn count(&self, session: SessionNo, space: Space, max: u64) -> u64 {
        let owner = space.owner(session);
        let of_space = self.kept.range(place(session, space, "")..);
        let of_space = of_space.take_while(|((kept, of, _), _)| (*kept, *of) == (space, owner));
        of_space.take(max as usize).count() as u64
    }

    /// A page, by key.
    pub fn page(&self, page: RecordPage<'_>) -> Vec<Record> {
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

    /// Puts one, and says its generation.
    pub fn put(&mut self, session: SessionNo, (space, key): (Space, String), value: Arc<[u8]>) -> u64 {
        self.generations += 1;
        let generation = self.generations;
        self.kept.insert((space, space.owner(session), key), Kept { value, generation });
        generation
    }

    /// Removes one, if it is there.
    pub fn remove(&mut self, session: SessionNo, space: Space, key: String) {
        self.kept.remove(&(space, space.owner(session), key));
    }

    /// The first records of a space that belongs to sessions, at most so many keys.
    pub fn first(&self, session: SessionNo, space: Space, most: usize) -> Vec<String> {
        let of_space = self.kept.range(place(session, space, "")..);
        let of_space = of_space.take_while(|((kept, of, _), _)| (*kept, *of) == (space, session));
        of_space.take(most).map(|((_, _, key), _)| key.clone()).collect()
    }
}

impl Kept {
    fn record(&self, key: &str) -> Record {
        Record { key: key.to_owned(), value: self.value.to_vec(), generation: self.generation }
    }
}

fn place(session: SessionNo, space: Space, key: &str) -> (Space, SessionNo, String) {
    (space, space.owner(session), key.to_owned())
}
