//! Facts that few calls have.

use super::fact::{CancelAsked, Fact};
use super::fold::{Call, State, is_open};
use super::illegal::Illegal;
use crate::time::Timestamp;

impl Call {
    /// The legal pairs of what happens to few calls.
    pub(super) fn apply_rare(&mut self, fact: &Fact) -> Result<(), Illegal> {
        match (&self.state, fact) {
            (State::Opened, Fact::StartRefused) if self.opened.task.is_some() => self.task = None,
            (state, Fact::SetAside(aside)) if is_open(state) => {
                self.state = State::SetAside { why: aside.why.clone(), recorded: true };
            }
            (_, fact) => return Err(self.illegal(fact)),
        }
        Ok(())
    }

    /// Its batch was decided without it, which is recorded before whatever its driver has noted and not sent.
    pub fn dismissed(&mut self, asked: CancelAsked) {
        self.cancel = Some(asked);
    }

    /// The wall clock moved by so much while none of the call's time passed: nobody owned the call, or the clock was set. What is
    /// measured across that is measured by the clock as it is now. A call that is over is as it was.
    pub fn clock_moved(&mut self, by_us: i64) {
        if !is_open(&self.state) {
            return;
        }
        self.moved_us = self.moved_us.saturating_add(by_us);
        if let Some((_, since)) = &mut self.parked {
            since.0 = since.0.saturating_add(by_us);
            // Who asks how long it waited means by the wall clock.
            self.waited_us = self.waited_us.saturating_add(u64::try_from(by_us).unwrap_or(0));
        }
    }

    /// How long it was open until then, in microseconds, whatever the wall clock was set to meanwhile.
    pub fn open_us(&self, until: Timestamp) -> u64 {
        Timestamp(until.0.saturating_sub(self.moved_us)).since(self.opened_at)
    }
}
