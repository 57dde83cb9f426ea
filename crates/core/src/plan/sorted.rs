//! A set in order of which mostly one thing is wanted: the first. Alone, it needs no memory of its own.

use std::collections::BTreeSet;

#[derive(Debug)]
pub(super) struct Sorted<T> {
    /// Smaller than all others; there are no others without it.
    first: Option<T>,
    others: BTreeSet<T>,
}

impl<T> Default for Sorted<T> {
    fn default() -> Sorted<T> {
        Sorted { first: None, others: BTreeSet::new() }
    }
}

impl<T: Ord + Copy> Sorted<T> {
    pub(super) fn insert(&mut self, thing: T) {
        match self.first {
            None => self.first = Some(thing),
            Some(first) if thing < first => {
                self.others.insert(first);
                self.first = Some(thing);
            }
            Some(first) if thing == first => {}
            Some(_) => drop(self.others.insert(thing)),
        }
    }

    pub(super) fn remove(&mut self, thing: &T) {
        if self.first.as_ref() == Some(thing) {
            self.first = self.others.pop_first();
        } else {
            self.others.remove(thing);
        }
    }

    pub(super) fn first(&self) -> Option<T> {
        self.first
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        self.first.into_iter().chain(self.others.iter().copied())
    }
}
