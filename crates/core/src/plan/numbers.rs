//! The numbers of calls, by call. The calls of a batch come, are asked for and go together, so they lie together.

use super::slab::NONE;
use crate::few::Few;
use crate::ids::{BatchNo, CallId, Ordinal};

#[derive(Debug, Default)]
pub(super) struct Numbers {
    batches: Few<BatchNo, Batch>,
    len: usize,
}

#[derive(Debug)]
enum Batch {
    /// Of many batches only one call waits: that needs no list.
    One(Ordinal, u32),
    /// By ordinal, [`NONE`] where no call is; and how many there are.
    Many(Vec<u32>, u32),
}

impl Numbers {
    pub(super) fn get(&self, call: CallId) -> Option<u32> {
        match self.batches.get(&call.batch)? {
            Batch::One(ordinal, number) => (*ordinal == call.ordinal).then_some(*number),
            Batch::Many(numbers, _) => {
                numbers.get(usize::from(call.ordinal.0)).copied().filter(|number| *number != NONE)
            }
        }
    }

    /// Adds a call that is not there.
    pub(super) fn insert(&mut self, call: CallId, number: u32) {
        self.len += 1;
        let batch = match self.batches.get_mut(&call.batch) {
            None => {
                self.batches.insert(call.batch, Batch::One(call.ordinal, number));
                return;
            }
            Some(batch) => batch,
        };
        if let Batch::One(ordinal, number) = *batch {
            let mut numbers = Vec::new();
            put(&mut numbers, ordinal, number);
            *batch = Batch::Many(numbers, 1);
        }
        if let Batch::Many(numbers, count) = batch {
            put(numbers, call.ordinal, number);
            *count += 1;
        }
    }

    /// Takes a call out that is there.
    pub(super) fn remove(&mut self, call: CallId) {
        let Some(batch) = self.batches.get_mut(&call.batch) else { return };
        self.len -= 1;
        let is_last = match batch {
            Batch::One(..) => true,
            Batch::Many(numbers, count) => {
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
        self.batches.get(&batch).into_iter().flat_map(Batch::numbers).collect()
    }

    /// All of them, in the order of calls.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        self.batches.values().flat_map(Batch::numbers)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Batch {
    fn numbers(&self) -> impl Iterator<Item = u32> {
        let numbers = match self {
            Batch::One(_, number) => std::slice::from_ref(number),
            Batch::Many(numbers, _) => numbers,
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
