//! Facts that few calls have.

use super::end::End;
use super::fact::{CancelAsked, Fact, Reason, Resolved, Result as Attempted, Verdict};
use super::fold::{Call, State, is_open};
use super::illegal::Illegal;
use crate::outcome::Outcome;
use crate::time::Timestamp;

impl Call {
    /// The legal pairs of what happens to few calls.
    pub(super) fn apply_rare(&mut self, at: Timestamp, fact: &Fact) -> Result<(), Illegal> {
        match (&self.state, fact) {
            (State::Opened | State::Ready, Fact::StartRefused) if self.opened.task.is_some() => {
                self.task = None
            }
            (state, Fact::SetAside(aside)) if is_open(state) => {
                self.state = State::SetAside { why: aside.why.clone(), recorded: true };
            }
            (_, fact) => return self.apply_permission(at, fact),
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

/// A retry follows what may be tried again; every other wait is for the tool, and nothing runs meanwhile.
pub(super) fn can_park(state: &State, reason: Reason) -> bool {
    match (state, reason) {
        (State::Returned { result: Attempted::Failed(_), .. } | State::Stopped { .. }, Reason::Retry) => true,
        (State::Reconciled { verdict: Verdict::DidNotHappen, .. } | State::Aborted(_), Reason::Retry) => true,
        (_, Reason::Retry) => false,
        (State::Running { .. } | State::Returned { .. } | State::Reconciled { .. }, _) => false,
        (State::SetAside { .. } | State::Ended(_), _) => false,
        (_, Reason::Sleep | Reason::Completion | Reason::Input | Reason::Connection | Reason::Client) => {
            false
        }
        (_, Reason::Signal | Reason::Awaited | Reason::Approval) => false,
        (State::AwaitingApproval { .. }, _) => false,
        (_, Reason::ToolChanged | Reason::NoSuchTool | Reason::ToolPaused | Reason::NoWorker) => true,
    }
}

/// Only what is not known is superseded, and only by what is known: once.
pub(super) fn can_resolve(end: &End, resolved: &Resolved) -> bool {
    let open = end.is_unknown() || crate::mutant::breaks("resolution-changes");
    open && matches!(resolved.outcome, Outcome::Succeeded(_) | Outcome::Failed(_))
}
