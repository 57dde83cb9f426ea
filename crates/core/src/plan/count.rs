//! Counts of calls in each state.

use super::{Counts, Doing, Planner};

impl Planner {
    /// How many calls there are.
    pub fn counts(&self) -> Counts {
        let parked = self.counts.parked + self.away;
        Counts { running: self.room.running.map(u64::from), parked, ..self.counts }
    }

    pub(super) fn count(&mut self, number: u32) {
        self.again += u64::from(self.is_again(number));
        match self.counted(number) {
            Some(Counted::Queued) => {
                self.counts.queued += 1;
                self.sessions[self.calls[number].session].queued += 1;
            }
            Some(Counted::Parked) => self.counts.parked += 1,
            Some(Counted::Lending) => self.counts.lending += 1,
            None => {}
        }
    }

    pub(super) fn uncount(&mut self, number: u32) {
        self.again -= u64::from(self.is_again(number));
        match self.counted(number) {
            Some(Counted::Queued) => {
                self.counts.queued -= 1;
                self.sessions[self.calls[number].session].queued -= 1;
            }
            Some(Counted::Parked) => self.counts.parked -= 1,
            Some(Counted::Lending) => self.counts.lending -= 1,
            None => {}
        }
    }

    /// Whether a call has started before and is queued.
    fn is_again(&self, number: u32) -> bool {
        let call = &self.calls[number];
        let queued = matches!(call.doing, Doing::Nothing | Doing::Lined | Doing::Refused);
        call.flags.started && !call.flags.parked && queued
    }

    /// The counter of a call; running calls are counted with their room.
    fn counted(&self, number: u32) -> Option<Counted> {
        let call = &self.calls[number];
        match call.doing {
            _ if call.flags.parked => Some(Counted::Parked),
            Doing::Running | Doing::Left => None,
            Doing::Lending => Some(Counted::Lending),
            Doing::Nothing | Doing::Lined | Doing::Returning | Doing::Refused => Some(Counted::Queued),
        }
    }
}

/// A counter of calls.
enum Counted {
    Queued,
    Parked,
    Lending,
}
