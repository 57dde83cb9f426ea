//! An ordered map that mostly has one entry or none: a single entry needs no allocation.

use std::collections::BTreeMap;

/// Values by key, in the order of the keys.
#[derive(Clone, Debug)]
pub struct Few<K, V> {
    /// Its key is smaller than all others; there are no others without it.
    first: Option<(K, V)>,
    others: BTreeMap<K, V>,
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Few<K, V> {
        Few { first: None, others: BTreeMap::new() }
    }
}

impl<K: Ord + Copy, V> Few<K, V> {
    /// The value under a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        match &self.first {
            Some((first, thing)) if first == key => Some(thing),
            Some(_) if !self.others.is_empty() => self.others.get(key),
            Some(_) | None => None,
        }
    }

    /// The value under a key, mutable.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match &mut self.first {
            Some((first, thing)) if first == key => Some(thing),
            Some(_) if !self.others.is_empty() => self.others.get_mut(key),
            Some(_) | None => None,
        }
    }

    /// Sets the value under a key.
    pub fn insert(&mut self, key: K, thing: V) {
        match &mut self.first {
            Some((first, _)) if *first < key => drop(self.others.insert(key, thing)),
            Some((first, there)) if *first == key => *there = thing,
            first => {
                if let Some((key, thing)) = first.replace((key, thing)) {
                    self.others.insert(key, thing);
                }
            }
        }
    }

    /// Removes the value under a key.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        match &self.first {
            Some((first, _)) if first == key => {
                let next = if self.others.is_empty() { None } else { self.others.pop_first() };
                std::mem::replace(&mut self.first, next).map(|(_, thing)| thing)
            }
            Some(_) if !self.others.is_empty() => self.others.remove(key),
            Some(_) | None => None,
        }
    }

    /// The smallest key.
    pub fn first(&self) -> Option<K> {
        self.first.as_ref().map(|(key, _)| *key)
    }

    /// The keys in their order.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.first().into_iter().chain(self.others.keys().copied())
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.first.iter().map(|(_, thing)| thing).chain(self.others.values())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map_in_order(changes in prop::collection::vec((any::<bool>(), 0..6u8, any::<u8>()), 0..40)) {
            let (mut few, mut map) = (Few::default(), BTreeMap::new());
            for (adds, key, value) in changes {
                if adds {
                    few.insert(key, value);
                    map.insert(key, value);
                } else {
                    prop_assert_eq!(few.remove(&key), map.remove(&key));
                }
                prop_assert!(few.keys().eq(map.keys().copied()));
                prop_assert!(few.values().eq(map.values()));
                prop_assert_eq!(few.get(&key), map.get(&key));
                prop_assert_eq!(few.get_mut(&key), map.get_mut(&key));
                prop_assert_eq!((few.len(), few.is_empty()), (map.len(), map.is_empty()));
            }
        }
    }
}
