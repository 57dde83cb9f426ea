//! The clocks of a call: which deadline ends it while it does not run, and which moment counts for it.

use super::fact::{Parked, Reason};
use super::fold::{Call, State};
use super::permission::Permit;
use super::{Settlement, Step};
use crate::attempt::{Deadline, Rules};
use crate::outcome::Effect;
use crate::time::Timestamp;

/// Since when a call is open, as its owner counts it by the clock that never jumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallClock {
    /// Since when this owner has it.
    pub since_us: u64,
    /// How long earlier owners had it; time without an owner is not counted.
    pub counted_us: u64,
    /// How long it waited behind calls whose clocks stood still, which its deadlines do not count.
    pub stood_us: u64,
    /// When it was first parked since its last attempt.
    pub parked_us: Option<u64>,
}

impl CallClock {
    /// The clock of a call that nobody had before.
    pub fn starting(since_us: u64) -> CallClock {
        CallClock { since_us, ..CallClock::default() }
    }

    /// When so many milliseconds of the call's time have passed.
    pub fn due_us(&self, ms: u64) -> u64 {
        if ms == Rules::NONE {
            return u64::MAX;
        }
        self.since_us.saturating_add(ms.saturating_mul(1_000).saturating_sub(self.counted_us))
    }
}

/// The clocks and findings with which the owner of a call asks for the [next step](Call::next).
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time by the wall clock.
    pub at: Timestamp,
    /// The clocks of a call that has waited. No deadline of any other can have passed before an attempt runs.
    pub waited: Option<Waited>,
    /// The state of its tool.
    pub tool: ToolSearch,
    /// The finding of the policy.
    pub permit: Permit,
}

impl Moment {
    /// The moment of a call that has not waited.
    pub fn at(at: Timestamp) -> Moment {
        Moment { at, waited: None, tool: ToolSearch::NotMissed, permit: Permit::Granted }
    }
}

/// The clocks of a call that has waited.
#[derive(Clone, Copy, Debug)]
pub struct Waited {
    /// Since when it is open.
    pub clock: CallClock,
    /// The time by the same clock.
    pub now_us: u64,
    /// The rules in force for it now.
    pub rules: Rules,
    /// Whether the answer it waited for is there: then it cannot be too late.
    pub is_answered: bool,
}

/// The result of looking for the tool of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolSearch {
    /// It is there, or was not looked for.
    #[default]
    NotMissed,
    /// The call cannot go on with it, for this reason.
    Missing(Reason),
    /// The call could not be prepared before its deadline.
    TooSlow,
}

/// The latest times at which an attempt and its call must be over, by the clock that never jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatestEnd {
    /// Of the attempt.
    pub attempt_us: u64,
    /// Of the call.
    pub total_us: u64,
}

/// The next attempt would come after the total deadline, so it is not waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLate {
    /// How long it would have been waited for.
    pub delay_us: u64,
}

impl Call {
    /// A deadline ends what has not begun or waits, and nothing is begun with a tool that is not there.
    pub(super) fn unless_too_late<'a>(&'a self, step: Step<'a>, now: &Moment) -> Step<'a> {
        let late = now.waited.as_ref().and_then(|waited| self.overdue(waited));
        match (step, now.tool, late) {
            (Step::Join(_) | Step::Attempt(_) | Step::Park(_), _, Some(late)) => self.after_deadline(late),
            (Step::Prepare, ToolSearch::TooSlow, Some(late)) => self.after_deadline(late),
            (Step::Prepare | Step::Return { .. }, ToolSearch::Missing(_), Some(late)) => {
                self.after_deadline(late)
            }
            // Neither a cancel nor a deadline waits for a tool that cannot be asked.
            (Step::Reconcile(_), ToolSearch::Missing(_), Some(_)) => Step::Settle(self.unknown()),
            (Step::Reconcile(_), ToolSearch::Missing(_), None) if self.cancel.is_some() => {
                Step::Settle(self.unknown())
            }
            (
                Step::Prepare | Step::Attempt(_) | Step::Return { .. } | Step::Reconcile(_),
                ToolSearch::Missing(reason),
                None,
            ) => Step::AwaitTool(reason),
            (step, _, _) => step,
        }
    }

    /// A deadline passed while the call did not run.
    fn after_deadline(&self, deadline: Deadline) -> Step<'_> {
        Step::Settle(if self.may_repeat() { Settlement::Overdue(deadline) } else { self.unknown() })
    }

    /// The end of a call that must not be repeated, where nobody knows whether it took effect.
    pub(super) fn unknown(&self) -> Settlement<'_> {
        match self.cancel {
            Some(_) => Settlement::Cancelled(Effect::Unknown),
            None => Settlement::Unknown,
        }
    }

    /// The deadline that has passed while it waited, if one has.
    fn overdue(&self, waited: &Waited) -> Option<Deadline> {
        if waited.is_answered {
            return None;
        }
        let (deadline, due_us) = self.deadline(&waited.clock, &waited.rules);
        (waited.now_us >= due_us).then_some(deadline)
    }

    /// The time by which its recorded waits are compared: one that lasted as long as it was to is over, whatever the wall clock
    /// says.
    #[inline]
    pub fn decision_time(&self, now: &Moment) -> Timestamp {
        let Some(waited) = &now.waited else { return now.at };
        let Some(parked_us) = waited.clock.parked_us else { return now.at };
        let Some(parked) = self.recorded_wait() else { return now.at };
        let is_due = waited.now_us.saturating_sub(parked_us) >= parked.length_us;
        if is_due { now.at.max(parked.wake_at) } else { now.at }
    }

    /// The recorded wait that it is in, if what it waits for is its next attempt or the world outside.
    fn recorded_wait(&self) -> Option<Parked> {
        match &self.state {
            State::Suspended(suspended) => Some(suspended.parked),
            State::Unconnected { said, .. } => Some(said.parked),
            State::Retrying(parked) => Some(*parked),
            State::AwaitingApproval { .. } => self.open_approval().map(|asked| asked.parked),
            State::Opened
            | State::Ready
            | State::Running { .. }
            | State::Interrupted { .. }
            | State::Returned { .. }
            | State::Stopped { .. }
            | State::Reconciled { .. }
            | State::SetAside { .. }
            | State::Aborted(_)
            | State::Ended(_) => None,
        }
    }

    /// Whether it has started, and waits for the world outside.
    pub fn waits_outside(&self) -> bool {
        let declined = matches!(self.state, State::Unconnected { declined: true, .. });
        !declined && self.recorded_wait().is_some_and(|parked| parked.reason.is_outside())
    }

    /// The deadline that ends it while it does not run, and when that is due by the clock that never jumps.
    pub fn deadline(&self, clock: &CallClock, rules: &Rules) -> (Deadline, u64) {
        // A wait for the world outside has a deadline of its own, and no other counts. Once it is over and the tool is
        // waited for, those of the call count again.
        let waits_outside = self.parked.is_none_or(|(parked, _)| parked.reason.is_outside());
        let suspended =
            matches!(&self.state, State::Suspended(suspended) if suspended.parked.reason.is_outside());
        let asks = matches!(self.state, State::Unconnected { .. } | State::AwaitingApproval { .. });
        if (suspended && waits_outside) || asks {
            return (Deadline::Total, u64::MAX);
        }
        let total = self.total_due_us(clock, rules);
        if self.attempts > 0 {
            return (Deadline::Total, total);
        }
        let queue = clock.due_us(rules.queue_ms).saturating_add(clock.stood_us);
        if queue <= total { (Deadline::Queue, queue) } else { (Deadline::Total, total) }
    }

    /// When it is too late for a call whose tool is not there, or is another.
    pub fn tool_due_us(&self, clock: &CallClock, rules: &Rules, at: Timestamp) -> u64 {
        match (&self.state, self.parked) {
            // The wait for the world outside ends here, and was excused.
            (State::Suspended(_), Some((parked, since))) if parked.reason.is_outside() => {
                self.total_due_us(clock, rules).saturating_add(at.since(since))
            }
            _ => self.deadline(clock, rules).1,
        }
    }

    /// When the call must be over.
    pub fn total_due_us(&self, clock: &CallClock, rules: &Rules) -> u64 {
        let excused_us = self.excused_us.saturating_add(clock.stood_us);
        clock.due_us(rules.total_ms).saturating_add(excused_us)
    }

    /// When an attempt that began then, and the call, must be over.
    pub fn latest_end(&self, clock: &CallClock, rules: &Rules, began_us: u64) -> LatestEnd {
        let total_us = self.total_due_us(clock, rules);
        let attempt_us = began_us.saturating_add(rules.attempt_ms.saturating_mul(1_000));
        LatestEnd { attempt_us: attempt_us.min(total_us), total_us }
    }

    /// The wait for its next attempt, which begins now, as `chance` falls; unless that would be later than the call may take,
    /// which has `left_us` left.
    pub fn retry(&self, asked_ms: Option<u64>, chance: u64, left_us: u64) -> Result<u64, TooLate> {
        let delay_us = self.rules().delay_us(self.tries, asked_ms, chance);
        if delay_us >= left_us { Err(TooLate { delay_us }) } else { Ok(delay_us) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_earlier_owners_counts_and_no_deadline_is_none() {
        let clock = CallClock { since_us: 5_000, counted_us: 2_000, ..CallClock::default() };
        assert_eq!(clock.due_us(10), 13_000);
        assert_eq!(clock.due_us(1), 5_000, "it was over before this owner had it");
        assert_eq!(clock.due_us(Rules::NONE), u64::MAX);
    }
}
