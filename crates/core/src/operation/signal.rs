//! Signals: the first that comes fills the first slot of its name, the first receipt takes the first slot,
//! and so on. A slot that was not filled in time stays empty, and a later signal fills the next.

use super::RESERVED;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The name of the wait for the signal of this name and number, from 1.
pub fn signal_slot(signal: &str, number: u32) -> String {
    format!("{RESERVED}signal.{signal}.{number}")
}

/// The signal and the number of a slot; `None` if it is another name.
pub fn signal_of(slot: &str) -> Option<(&str, u32)> {
    let (signal, number) = slot.strip_prefix(RESERVED)?.strip_prefix("signal.")?.rsplit_once('.')?;
    Some((signal, number.parse().ok()?))
}

/// The state of a call's signals.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CallSignals {
    /// The first open slot of each signal, if it is not the first of all.
    first_open: BTreeMap<Arc<str>, u32>,
    /// The number of signals that came without a wait.
    pub(super) unheard: u64,
}

impl CallSignals {
    pub(super) fn first_open(&self, signal: &str) -> u32 {
        self.first_open.get(signal).copied().unwrap_or(1)
    }

    /// A slot was filled, or its wait is over.
    pub(super) fn ended(&mut self, signal: &str, number: u32, has_ended: impl Fn(u32) -> bool) {
        let mut first = self.first_open(signal);
        if number == first {
            while has_ended(first) {
                first += 1;
            }
            self.first_open.insert(signal.into(), first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_back() {
        let slot = signal_slot("a.b", 7);
        assert_eq!((slot.as_str(), signal_of(&slot)), ("windlass.signal.a.b.7", Some(("a.b", 7))));
        for other in ["windlass.client", "signal.a.1", "windlass.signal.a", "windlass.signal.a.x", ""] {
            assert_eq!(signal_of(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_first_open_slot_is_behind_all_that_ended_in_a_row() {
        let (mut signals, mut ended) = (CallSignals::default(), Vec::new());
        for (number, first) in [(2, 1), (1, 3), (4, 3), (5, 3), (3, 6)] {
            ended.push(number);
            signals.ended("a", number, |number| ended.contains(&number));
            assert_eq!((signals.first_open("a"), signals.first_open("b")), (first, 1), "{number}");
        }
    }
}
