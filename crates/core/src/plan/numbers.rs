//! The numbers of calls, by call. The calls of a batch come and go together, so they are stored together.

use super::slab::NONE;
use crate::few::Few;
use crate::ids::{BatchNo, CallId, Ordinal};

#[derive(Debug, Default)]
pub(super) struct CallNumbers {
    batches: Few<BatchNo, BatchNumbers>,
    len: usize,
}

#[derive(Debug)]
enum BatchNumbers {
    /// In many batches only one call waits: that needs no list.
    One(Ordinal, u32),
    /// By ordinal, [`NONE`] where there is no call; and their number.
    Many(Vec<u32>, u32),
}

impl CallNumbers {
    pub(super) fn get(&self, call: CallId) -> Option<u32> {
        match self.batches.get(&call.batch)? {
            BatchNumbers::One(ordinal, number) => (*ordinal == call.ordinal).then_some(*number),
            BatchNumbers::Many(numbers, _) => {
                numbers.get(usize::from(call.ordinal.0)).copied().filter(|number| *number != NONE)
            }
        }
    }

    /// Adds a new call.
    pub(super) fn insert(&mut self, call: CallId, number: u32) {
        self.len += 1;
        let batch = match self.batches.get_mut(&call.batch) {
            None => {
                self.batches.insert(call.batch, BatchNumbers::One(call.ordinal, number));
                return;
            }
            Some(batch) => batch,
        };
        if let BatchNumbers::One(ordinal, number) = *batch {
            let mut numbers = Vec::new();
            put(&mut numbers, ordinal, number);
            *batch = BatchNumbers::Many(numbers, 1);
        }
        if let BatchNumbers::Many(numbers, count) = batch {
            put(numbers, call.ordinal, number);
            *count += 1;
        }
    }

    /// Removes a call.
    pub(super) fn remove(&mut self, call: CallId) {
        let Some(batch) = self.batches.get_mut(&call.batch) else { return };
        self.len -= 1;
        let is_last = match batch {
            BatchNumbers::One(..) => true,
            BatchNumbers::Many(numbers, count) => {
                put(numbers, call.ordinal, NONE);
                *count -= 1;
                *count == 0
            }
        };
        if is_last {
            self.batches.remove(&call.batch);
        }
    }

    /// Those of a batch, in the order of its calls.
    pub(super) fn of_batch(&self, batch: BatchNo) -> Vec<u32> {
        self.batches.get(&batch).into_iter().flat_map(BatchNumbers::numbers).collect()
    }

    /// All of them, in the order of calls.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        self.batches.values().flat_map(BatchNumbers::numbers)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl BatchNumbers {
    fn numbers(&self) -> impl Iterator<Item = u32> {
        let numbers = match self {
            BatchNumbers::One(_, number) => std::slice::from_ref(number),
            BatchNumbers::Many(numbers, _) => numbers,
        };
        numbers.iter().copied().filter(|number| *number != NONE)
    }
}

fn put(numbers: &mut Vec<u32>, ordinal: Ordinal, number: u32) {
    let place = usize::from(ordinal.0);
    if numbers.len() <= place {
        numbers.resize(place + 1, NONE);
    }
    numbers[place] = number;
}
