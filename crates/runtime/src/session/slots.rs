//! State of features for a session or the whole runtime: each under a type of its own, so that the engine names none of them.

use crate::api::locks::{LockRank, OrderedMutex};
use std::any::{Any, TypeId};
use std::sync::Arc;

/// One value of each type, made at the first use. There are few, so a linear search is enough.
#[derive(Default)]
pub(crate) struct Slots(OrderedMutex<Vec<(TypeId, Arc<dyn Any + Send + Sync>)>, { LockRank::Slots as u8 }>);

impl Slots {
    /// The value of this type.
    pub(crate) fn of<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        self.of_or(Arc::default)
    }

    /// The value of this type; the first caller makes it.
    pub(crate) fn of_or<T: Any + Send + Sync>(&self, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let mut slots = self.0.lock();
        let of_type = |slot: &&(TypeId, Arc<dyn Any + Send + Sync>)| slot.0 == TypeId::of::<T>();
        let found = slots.iter().find(of_type).and_then(|(_, kept)| kept.clone().downcast().ok());
        found.unwrap_or_else(|| {
            let made = make();
            slots.push((TypeId::of::<T>(), made.clone()));
            made
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU8, Ordering};

    #[test]
    fn each_type_has_one_value() {
        let slots = Slots::default();
        slots.of::<AtomicU8>().store(1, Ordering::SeqCst);
        assert_eq!(*slots.of_or(|| Arc::new("first")), "first");
        assert_eq!(*slots.of_or(|| Arc::new("second")), "first");
        assert_eq!(slots.of::<AtomicU8>().load(Ordering::SeqCst), 1);
    }
}
