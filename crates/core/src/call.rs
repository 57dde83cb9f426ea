//! The heart: the facts a call's journal is made of, the state they add up to, and what happens next.
//!
//! Fresh, woken and recovered calls take the same path: facts are [applied](Call::apply) one after the other,
//! and [`Call::next`] says what is to be done now. Nothing else decides. A fact is recorded before it is acted
//! on, so whatever prefix of a journal survived a crash is a state from which the call goes on.

mod clock;
mod end;
mod fact;
mod fold;
mod illegal;
mod kind;
mod permission;
mod rare;
mod repeat;
mod span;

pub use clock::{CallClock, LatestEnd, Moment, TooLate, ToolSearch, Waited};
pub use end::End;
pub use fact::{
    Abort, Accepted, CancelAsked, Cause, Connected, Detached, DetachedBy, Ended, Fact, LostAttempt, Model,
    Opened, Parked, PreparedCall, PreparedResult, Reason, ReconciledAttempt, Resolved, Resolver, Result,
    Resumed, Returned, Same, SameAs, SetAside, Spent, Started, Stopped, Suspended, Then, Unconnected,
    Verdict, Wake,
};
pub use fold::{Call, Deduped, Pin, Role, State};
pub use illegal::Illegal;
pub use kind::Kind;
pub use permission::{
    ApprovalAnswer, ApprovalAnswered, ApprovalAsked, JudgedCall, Permission, Permit, Withheld,
};
pub use span::{InsideTime, LiveAttempt, SpanEnd, SpanKind, TimeSpan, spans};

use crate::attempt::{Deadline, Rules};
use crate::failure::{Failure, Retry};
use crate::ids::{AttemptNo, CallId};
use crate::operation::{Completion, Handover, WaitOutcome};
use crate::outcome::{Effect, Outcome, Success};
use crate::time::Timestamp;
use crate::tool::EffectClass;
use std::num::NonZeroU64;
use std::sync::Arc;

/// The next step of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// Find its tool, parse and validate its arguments.
    Prepare,
    /// Judge it under the policy.
    Authorize,
    /// Record that a person is asked whether it may run, and wait for the answer.
    Ask,
    /// Nobody answered in time, and the rule that asked lets it run then: record that.
    ApproveByDefault,
    /// Find out whether another call that is the same runs or ran: then wait for that one, or take its answer.
    Join(Same),
    /// Make an attempt, or go on with one.
    Attempt(Start),
    /// Go on with an attempt that a toolbox has: the journal says it runs, and it does not run in its owner.
    Continue(AttemptNo),
    /// The journal says it runs, and whoever asks is not running it: its owner died. Record that.
    Lose(AttemptNo),
    /// Ask the tool whether the attempt that did not return took effect.
    Reconcile(AttemptNo),
    /// Try it again: choose when, and record that; or, if that would be too late, settle it as exhausted.
    Retry {
        /// How long the tool asks to wait.
        after_ms: Option<u64>,
    },
    /// The external wait of a returned tool is over: make the result from the answer.
    Return {
        /// Of which attempt.
        attempt: AttemptNo,
        /// The answer; `None` if none came in time.
        answer: Option<&'a Completion>,
    },
    /// Wait until its time has come.
    Park(Parked),
    /// Wait for its tool, which is not there, is another or is paused.
    AwaitTool(Reason),
    /// Its record contradicts itself: record that, and what the contradiction is.
    SetAside(&'a Arc<str>),
    /// Its attempts are over: make the outcome and record it.
    Settle(Settlement<'a>),
    /// It ended.
    Done(&'a End),
}

/// The attempt that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Which one.
    pub attempt: AttemptNo,
    /// The entries that must be on disk before the tool is started.
    pub intent: Intent,
    /// How it begins.
    pub begins: Begins,
}

/// How an attempt begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// As every one does.
    Anew,
    /// Because an earlier one was lost with its owner.
    Redriven,
    /// It was put aside, and what it waited for is over.
    Resumed,
    /// It never stopped: a toolbox has it, and its owner was another.
    Continued,
}

impl Begins {
    /// Whether the attempt was allowed to start before.
    pub fn is_under_way(self) -> bool {
        matches!(self, Begins::Resumed | Begins::Continued)
    }
}

impl Start {
    /// The fact to record, of a call that was judged by this version of the policy; none if its start is recorded.
    pub fn fact(self, policy: Option<NonZeroU64>) -> Option<Fact> {
        let Start { attempt, begins, .. } = self;
        match begins {
            Begins::Anew => Some(Fact::Started(Started { attempt, redrive: false, policy })),
            Begins::Redriven => Some(Fact::Started(Started { attempt, redrive: true, policy })),
            Begins::Resumed => Some(Fact::Resumed(Resumed { attempt })),
            Begins::Continued => None,
        }
    }
}

/// When the start of an attempt must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Before the tool runs: after a crash it must be known that it may have.
    First,
    /// With the result: running it again after a crash changes nothing.
    WithResult,
}

/// The result of an ended series of attempts.
#[derive(Clone, Debug, PartialEq)]
pub enum Settlement<'a> {
    /// As the last attempt returned.
    Returned(&'a Result),
    /// The tool knew the answer before any attempt.
    Answered(&'a Success),
    /// An attempt that did not return took effect, with this result.
    Landed(&'a Success),
    /// It failed, and was tried as often as its rule allows.
    Exhausted(&'a Failure),
    /// It failed without returning that, and trying again would not help.
    Failed(&'a Failure),
    /// An attempt took too long, and is not made again.
    TimedOut(Cause),
    /// A deadline passed while it did not run.
    Overdue(Deadline),
    /// The attempt certainly did not take effect, and is not made again.
    DidNotHappen,
    /// Its owner died each time it ran.
    Poison,
    /// A connection it needs was declined, or did not come in time.
    Unconnected {
        /// The missing connection.
        said: &'a Unconnected,
        /// Whether somebody declined.
        declined: bool,
    },
    /// The policy or a person denied it, or nobody allowed it in time.
    Denied,
    /// It was cancelled, having done this.
    Cancelled(Effect),
    /// An attempt did not return and must not be made again: nobody knows whether it took effect.
    Unknown,
}

impl Call {
    /// The next step now.
    #[inline]
    pub fn next(&self, now: &Moment) -> Step<'_> {
        let step = self.step(self.decision_time(now));
        if now.waited.is_none() && now.tool == ToolSearch::NotMissed && now.permit == Permit::Granted {
            return step;
        }
        self.if_permitted(self.unless_too_late(step, now), now)
    }

    /// The next step at this time, as far as the journal decides it.
    fn step(&self, now: Timestamp) -> Step<'_> {
        match &self.state {
            State::Ended(end) => Step::Done(end),
            State::Running { attempt } if self.handover().is_some() => Step::Continue(*attempt),
            State::Running { attempt } => Step::Lose(*attempt),
            State::Returned { result, .. } => self.after_return(result),
            State::Opened
            | State::Ready
            | State::Retrying(_)
            | State::Unconnected { .. }
            | State::AwaitingApproval { .. }
                if self.cancel.is_some() =>
            {
                self.after_cancel(AttemptNo(self.attempts))
            }
            State::Opened => Step::Prepare,
            State::AwaitingApproval { .. } => self.after_ask(now),
            State::Ready if let Some(same) = self.unjoined() => Step::Join(same),
            State::Ready => match self.answer_at_once() {
                Some(answer) => Step::Settle(Settlement::Answered(answer)),
                None => self.attempt(Begins::Anew),
            },
            State::SetAside { why, recorded: false } => Step::SetAside(why),
            State::SetAside { recorded: true, .. } => Step::Settle(self.unknown()),
            State::Retrying(parked) if now < parked.wake_at => Step::Park(*parked),
            State::Retrying(_) => self.attempt(Begins::Anew),
            State::Interrupted { attempt } => self.after_loss(*attempt),
            State::Stopped { attempt, cause, .. } => self.after_stop(*attempt, *cause),
            State::Aborted(abort) => self.after_abort(abort),
            State::Reconciled { verdict, .. } => self.after_verdict(verdict),
            State::Suspended(suspended) => self.after_suspension(suspended, now),
            State::Unconnected { said, declined: false } if now < said.parked.wake_at => {
                Step::Park(said.parked)
            }
            State::Unconnected { said, declined } => {
                Step::Settle(Settlement::Unconnected { said, declined: *declined })
            }
        }
    }

    fn after_suspension<'a>(&'a self, suspended: &'a Suspended, now: Timestamp) -> Step<'a> {
        let attempt = suspended.attempt;
        if self.cancel.is_some() {
            return self.after_cancel(attempt);
        }
        let operations = self.operations.as_deref();
        let over = |name: &Arc<str>| operations.is_some_and(|operations| operations.is_over(name, now));
        if now < suspended.parked.wake_at && !suspended.waits.iter().any(over) {
            return Step::Park(suspended.parked);
        }
        match suspended.then {
            Then::Return => self.after_answer(suspended),
            Then::Replay if !self.may_repeat() => self.ask_or_give_up(attempt),
            Then::Replay => {
                let intent = match self.class() {
                    // That it goes on is recorded with what it does next: until then it is still put aside.
                    Some(EffectClass::Stepped | EffectClass::Read) | None => Intent::WithResult,
                    // Its tool became another meanwhile: from here on its body acts for itself.
                    Some(EffectClass::Keyed | EffectClass::Once) => Intent::First,
                };
                Step::Attempt(Start { attempt, intent, begins: Begins::Resumed })
            }
        }
    }

    /// It was cancelled while no attempt runs. What must not be repeated is asked after, if its tool can be.
    fn after_cancel(&self, attempt: AttemptNo) -> Step<'_> {
        match self.may_repeat() {
            true => Step::Settle(Settlement::Cancelled(self.effect())),
            false => self.ask_or_give_up(attempt),
        }
    }

    fn after_answer<'a>(&'a self, suspended: &'a Suspended) -> Step<'a> {
        let answer = suspended.waits.iter().find_map(|name| self.operations.as_deref()?.wait(name).1);
        match answer {
            Some(WaitOutcome::Given(Completion::Cancelled)) => {
                Step::Settle(Settlement::Cancelled(self.effect()))
            }
            Some(WaitOutcome::Given(answer)) => {
                Step::Return { attempt: suspended.attempt, answer: Some(answer) }
            }
            Some(WaitOutcome::TimedOut) | None => Step::Return { attempt: suspended.attempt, answer: None },
        }
    }

    fn attempt(&self, begins: Begins) -> Step<'_> {
        // A recorded retry of what may be repeated is its own intent, unless a cancel could still say that nothing happened.
        let repeated = matches!(self.state, State::Retrying(_)) && self.doubt == self.class();
        if !self.may_repeat() {
            return self.ask_or_give_up(AttemptNo(self.attempts));
        }
        let intent = match self.class() {
            Some(EffectClass::Read) => Intent::WithResult,
            Some(EffectClass::Keyed | EffectClass::Stepped) if repeated => Intent::WithResult,
            Some(EffectClass::Keyed | EffectClass::Stepped | EffectClass::Once) => Intent::First,
            None => return Step::Prepare,
        };
        Step::Attempt(Start { attempt: AttemptNo(self.attempts + 1), intent, begins })
    }

    fn after_return<'a>(&'a self, result: &'a Result) -> Step<'a> {
        let failure = match result {
            Result::Ok(_) => return Step::Settle(Settlement::Returned(result)),
            Result::Failed(failure) => failure,
        };
        let Retry::Safe { after_ms } = failure.retry else {
            return Step::Settle(Settlement::Returned(result));
        };
        match (self.may_retry() && self.cancel.is_none(), self.tries < self.rules().attempts) {
            (true, true) => Step::Retry { after_ms },
            (true, false) if self.tries > 1 => Step::Settle(Settlement::Exhausted(failure)),
            (true | false, true | false) => Step::Settle(Settlement::Returned(result)),
        }
    }

    fn after_loss(&self, attempt: AttemptNo) -> Step<'_> {
        match self.class() {
            Some(_) if !self.may_repeat() => self.ask_or_give_up(attempt),
            Some(_) if self.cancel.is_some() => Step::Settle(Settlement::Cancelled(self.effect())),
            Some(_) if self.is_poison() => Step::Settle(Settlement::Poison),
            Some(_) => self.attempt(Begins::Redriven),
            None => Step::Prepare,
        }
    }

    fn after_stop(&self, attempt: AttemptNo, cause: Cause) -> Step<'_> {
        let is_last = cause == Cause::Total || self.tries >= self.rules().attempts;
        if !self.may_repeat() {
            self.ask_or_give_up(attempt)
        } else if self.cancel.is_some() || cause == Cause::Cancel {
            Step::Settle(Settlement::Cancelled(self.effect()))
        } else if is_last {
            Step::Settle(Settlement::TimedOut(cause))
        } else {
            Step::Retry { after_ms: None }
        }
    }

    fn after_abort<'a>(&'a self, abort: &'a Abort) -> Step<'a> {
        let helps = matches!(abort.failure.retry, Retry::Safe { .. });
        if !self.may_repeat() {
            self.ask_or_give_up(abort.attempt)
        } else if self.cancel.is_some() {
            Step::Settle(Settlement::Cancelled(self.effect()))
        } else if helps && self.tries < self.rules().attempts {
            Step::Retry { after_ms: None }
        } else if helps && self.tries > 1 {
            Step::Settle(Settlement::Exhausted(&abort.failure))
        } else {
            Step::Settle(Settlement::Failed(&abort.failure))
        }
    }

    fn after_verdict<'a>(&'a self, verdict: &'a Verdict) -> Step<'a> {
        match (verdict, self.cancel.is_some()) {
            (Verdict::Landed(success), false) => Step::Settle(Settlement::Landed(success)),
            (Verdict::Failed(failure), false) => Step::Settle(Settlement::Failed(failure)),
            (Verdict::Landed(_), true) => Step::Settle(Settlement::Cancelled(Effect::Landed)),
            (Verdict::Unknown, false) => Step::Settle(Settlement::Unknown),
            (Verdict::Unknown | Verdict::DidNotHappen | Verdict::Failed(_), true) => {
                Step::Settle(Settlement::Cancelled(self.effect()))
            }
            (Verdict::DidNotHappen, false) if self.is_poison() => Step::Settle(Settlement::Poison),
            (Verdict::DidNotHappen, false) if self.tries >= self.rules().attempts => {
                Step::Settle(Settlement::DidNotHappen)
            }
            (Verdict::DidNotHappen, false) => Step::Retry { after_ms: None },
        }
    }

    /// An attempt that must not be repeated did not return.
    fn ask_or_give_up(&self, attempt: AttemptNo) -> Step<'_> {
        match (self.can_be_asked_after(), self.cancel.is_some()) {
            (true, _) => Step::Reconcile(attempt),
            (false, true) => Step::Settle(Settlement::Cancelled(self.effect())),
            (false, false) => Step::Settle(Settlement::Unknown),
        }
    }

    /// Its effect so far, as far as it is known. The effects of nested calls are in their own journals.
    pub fn effect(&self) -> Effect {
        match (self.class(), self.operations.as_deref()) {
            _ if self.doubt.is_some() => Effect::Unknown,
            (Some(EffectClass::Stepped), Some(operations)) => operations.effect(),
            _ => Effect::None,
        }
    }

    fn is_poison(&self) -> bool {
        self.deaths >= self.rules().deaths
    }

    /// Whether it ran at so many deaths of its owner that one more sets it aside: it is run alone then, so that no
    /// other call is taken for it.
    pub fn is_suspect(&self) -> bool {
        self.deaths > 0 && self.deaths + 1 >= self.rules().deaths
    }

    /// How its attempts are made: with the deadlines of a task once it is one.
    pub fn rules(&self) -> Rules {
        let rules = self.own_rules();
        if self.task.is_some() { rules.for_task() } else { rules }
    }

    /// How its attempts are made while somebody waits for it.
    pub fn own_rules(&self) -> Rules {
        match &self.rules {
            Some(rules) => **rules,
            None => Rules::unsaid(self.class().unwrap_or(EffectClass::Once)),
        }
    }

    /// The class it is pinned to, once prepared.
    pub fn class(&self) -> Option<EffectClass> {
        self.pin.map(|pin| pin.class)
    }

    /// Whether nothing of it may go on in a copy of the data. What waits for an answer from outside goes on where that
    /// answer is given, and what only has to be settled does nothing more; everything else is under way at the owner of the
    /// original, or may be: it is queued, runs, waits for its next attempt, or sleeps.
    pub fn is_under_way(&self, now: &Moment) -> bool {
        match self.next(now) {
            Step::Settle(_) | Step::SetAside(_) | Step::Done(_) => false,
            Step::Park(parked) => !parked.reason.is_outside(),
            Step::Prepare | Step::Join(_) | Step::Attempt(_) | Step::Lose(_) | Step::AwaitTool(_) => true,
            Step::Continue(_) => true,
            Step::Authorize | Step::Ask | Step::ApproveByDefault => true,
            Step::Reconcile(_) | Step::Retry { .. } | Step::Return { .. } => true,
        }
    }

    /// Adds that its data is a copy: it goes on elsewhere, if anywhere, so nobody here ever knows what it did.
    fn copy_found(&mut self, at: Timestamp) {
        self.waited(at);
        self.doubt = Some(EffectClass::Once);
        self.state = State::Reconciled { attempt: AttemptNo(self.attempts), verdict: Verdict::Unknown };
    }

    /// The connection it waits for, if it does.
    pub fn unconnected(&self) -> Option<&Unconnected> {
        let State::Unconnected { said, declined: false } = &self.state else { return None };
        Some(said)
    }

    /// The handover of its running attempt, if a toolbox has that.
    pub fn handover(&self) -> Option<&Handover> {
        let State::Running { attempt } = &self.state else { return None };
        self.operations.as_deref()?.handover().filter(|handover| handover.attempt == *attempt)
    }

    /// Which calls are the same, unless it is the one of them that runs.
    fn unjoined(&self) -> Option<Same> {
        self.dedupe.as_ref().filter(|dedupe| dedupe.role != Role::First).map(|dedupe| dedupe.same)
    }

    /// The call that it waits for, or whose answer it has.
    pub fn same_as(&self) -> Option<CallId> {
        match self.dedupe.as_ref()?.role {
            Role::SameAs(first) => Some(first),
            Role::Undecided | Role::First => None,
        }
    }

    fn answer_at_once(&self) -> Option<&Success> {
        self.made.as_ref()?.answer.as_ref()
    }

    /// The call as it was when its end was not known yet.
    pub fn before_its_end(&self) -> Call {
        let mut call = self.clone();
        if matches!(call.state, State::Ended(_)) {
            call.state = match self.attempts {
                0 => State::Ready,
                attempts => State::Running { attempt: AttemptNo(attempts) },
            };
        }
        call
    }

    /// The outcome, once there is one.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.end().map(|end| &end.outcome)
    }

    /// Whether a schedule started it.
    pub fn is_scheduled(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.by == DetachedBy::Scheduled)
    }

    /// Whether it planned events that are emitted if it succeeds.
    pub fn has_planned_event(&self) -> bool {
        self.operations.as_deref().is_some_and(|done| done.has_planned_event())
    }

    /// How long the attempts of an ended call ran, in microseconds; `None` if nobody measured any of them.
    pub fn measured_us(&self) -> Option<u64> {
        let ran_us = self.end()?.spent.ran_us;
        (ran_us > 0 || self.lost == 0).then_some(ran_us)
    }

    /// How it ended, once it did.
    pub fn end(&self) -> Option<&End> {
        match &self.state {
            State::Ended(end) => Some(end),
            State::Opened
            | State::Ready
            | State::Running { .. }
            | State::Interrupted { .. }
            | State::Returned { .. }
            | State::Stopped { .. }
            | State::Reconciled { .. }
            | State::Suspended(_)
            | State::Unconnected { .. }
            | State::AwaitingApproval { .. }
            | State::SetAside { .. }
            | State::Aborted(_)
            | State::Retrying(_) => None,
        }
    }
}

impl Opened {
    /// How many calls and events lie between it and whoever asked first, if it lies inside no call.
    pub fn depth(&self) -> u32 {
        self.task.as_ref().map_or(0, |task| task.depth)
    }
}
