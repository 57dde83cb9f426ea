//! Values by number: a number is reused when its value is gone, so memory follows the current size.

use std::ops::{Index, IndexMut};

/// The number of no value.
pub(super) const NONE: u32 = u32::MAX;

/// Values by number.
#[derive(Debug)]
pub(super) struct Slab<T> {
    things: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { things: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.things[number as usize] = thing;
                number
            }
            None => {
                self.things.push(thing);
                (self.things.len() - 1) as u32
            }
        }
    }

    /// Frees a number and puts `empty` in its place until it is used again.
    pub(super) fn replace(&mut self, number: u32, empty: T) -> T {
        self.free.push(number);
        std::mem::replace(&mut self.things[number as usize], empty)
    }

    /// All things with their numbers, and empty ones where a number is free.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.things)
    }

    /// How many things there are.
    pub(super) fn len(&self) -> usize {
        self.things.len() - self.free.len()
    }
}

impl<T: Default> Slab<T> {
    pub(super) fn remove(&mut self, number: u32) -> T {
        self.replace(number, T::default())
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, number: u32) -> &T {
        &self.things[number as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.things[number as usize]
    }
}
