//! An ordered set of which mostly the first element is needed.

use crate::few::Few;

#[derive(Debug)]
pub(super) struct Sorted<T>(Few<T, ()>);

impl<T> Default for Sorted<T> {
    fn default() -> Sorted<T> {
        Sorted(Few::default())
    }
}

impl<T: Ord + Copy> Sorted<T> {
    pub(super) fn insert(&mut self, thing: T) {
        self.0.insert(thing, ());
    }

    pub(super) fn remove(&mut self, thing: &T) {
        self.0.remove(thing);
    }

    pub(super) fn first(&self) -> Option<T> {
        self.0.first()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = T> {
        self.0.keys()
    }
}
