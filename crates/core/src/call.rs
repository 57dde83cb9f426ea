//! The heart: the facts a call's journal is made of, the state they add up to, and what happens next.
//!
//! Fresh, woken and recovered calls take the same path: facts are [applied](Call::apply) one after the other,
//! and [`Call::next`] says what is to be done now. Nothing else decides. A fact is recorded before it is acted
//! on, so whatever prefix of a journal survived a crash is a state from which the call goes on.

mod fact;
mod fold;
mod kind;

pub use fact::{
    Accepted, Arguments, CancelAsked, Cause, Connected, Detached, DetachedBy, Ended, Fact, Given, Lost, Made,
    Model, Opened, Parked, Prepared, Reason, Reconciled, Resolved, Resolver, Result, Resumed, Returned, Same,
    SameAs, Spent, Started, Stopped, Suspended, Then, Unconnected, Verdict, Wake,
};
pub use fold::{Call, Deduped, End, Illegal, Pin, Role, State};
pub use kind::Kind;

use crate::attempt::Rules;
use crate::failure::{Failure, Retry};
use crate::ids::{AttemptNo, CallId};
use crate::operation::{Answer, Completion};
use crate::outcome::{Effect, Outcome, Success};
use crate::time::Timestamp;
use crate::tool::EffectClass;
use std::sync::Arc;

/// What is to be done with a call now.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<'a> {
    /// Find its tool, parse and validate its arguments.
    Prepare,
    /// Find out whether another call that is the same runs or ran: then wait for that one, or take its answer.
    Join(Same),
    /// Make an attempt, or go on with one.
    Attempt(Start),
    /// The journal says it runs, and whoever asks is not running it: its owner died. Record that.
    Lose(AttemptNo),
    /// Ask the tool whether the attempt that did not return took effect.
    Reconcile(AttemptNo),
    /// Try it again: choose when, and record that; or, if that would be too late, settle it as exhausted.
    Retry {
        /// How long the tool asks to wait.
        after_ms: Option<u64>,
    },
    /// What the tool left to the world outside is over: make its result of the answer.
    Return {
        /// Of which attempt.
        attempt: AttemptNo,
        /// What was answered; `None` if nothing was, in time.
        answer: Option<&'a Completion>,
    },
    /// Wait until its time has come.
    Park(Parked),
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
    /// What must be on disk before the tool is started.
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
}

impl Start {
    /// What is recorded of it.
    pub fn fact(self, clock_jump_us: Option<i64>) -> Fact {
        let Start { attempt, begins, .. } = self;
        match begins {
            Begins::Anew => Fact::Started(Started { attempt, redrive: false, clock_jump_us }),
            Begins::Redriven => Fact::Started(Started { attempt, redrive: true, clock_jump_us }),
            Begins::Resumed => Fact::Resumed(Resumed { attempt }),
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

/// What an ended series of attempts adds up to.
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
    /// An attempt took too long, and is not made again.
    TimedOut(Cause),
    /// The attempt certainly did not take effect, and is not made again.
    DidNotHappen,
    /// Its owner died each time it ran.
    Poison,
    /// What it needs was not connected: declined, or not in time.
    Unconnected {
        /// What it needs.
        said: &'a Unconnected,
        /// Whether somebody declined.
        declined: bool,
    },
    /// It was cancelled, having done this.
    Cancelled(Effect),
    /// An attempt did not return and must not be made again: nobody knows whether it took effect.
    Unknown,
}

impl Call {
    /// What is to be done now.
    pub fn next(&self, now: Timestamp) -> Step<'_> {
        match &self.state {
            State::Ended(end) => Step::Done(end),
            State::Running { attempt } => Step::Lose(*attempt),
            State::Returned { result, .. } => self.after_return(result),
            State::Opened | State::Ready | State::Retrying(_) | State::Unconnected { .. }
                if self.cancel.is_some() =>
            {
                Step::Settle(Settlement::Cancelled(self.effect()))
            }
            State::Opened => Step::Prepare,
            State::Ready if let Some(same) = self.unjoined() => Step::Join(same),
            State::Ready => match self.answer_at_once() {
                Some(answer) => Step::Settle(Settlement::Answered(answer)),
                None => self.attempt(Begins::Anew),
            },
            State::Retrying(parked) if now < parked.wake_at => Step::Park(*parked),
            State::Retrying(_) => self.attempt(Begins::Anew),
            State::Interrupted { attempt } => self.after_loss(*attempt),
            State::Stopped { attempt, cause, may_have_acted, .. } => {
                self.after_stop(*attempt, *cause, *may_have_acted)
            }
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
            return match self.class() {
                Some(EffectClass::Once) => self.ask_or_give_up(attempt),
                _ => Step::Settle(Settlement::Cancelled(self.effect())),
            };
        }
        let operations = self.operations.as_deref();
        let over = |name: &Arc<str>| operations.is_some_and(|operations| operations.is_over(name, now));
        if now < suspended.parked.wake_at && !suspended.waits.iter().any(over) {
            return Step::Park(suspended.parked);
        }
        match suspended.then {
            // That it goes on is recorded with what it does next: until then it is still put aside.
            Then::Replay => {
                Step::Attempt(Start { attempt, intent: Intent::WithResult, begins: Begins::Resumed })
            }
            Then::Return => self.after_answer(suspended),
        }
    }

    fn after_answer<'a>(&'a self, suspended: &'a Suspended) -> Step<'a> {
        let answer = suspended.waits.iter().find_map(|name| self.operations.as_deref()?.wait(name).1);
        match answer {
            Some(Answer::Given(Completion::Cancelled)) => Step::Settle(Settlement::Cancelled(self.effect())),
            Some(Answer::Given(answer)) => Step::Return { attempt: suspended.attempt, answer: Some(answer) },
            Some(Answer::TimedOut) | None => Step::Return { attempt: suspended.attempt, answer: None },
        }
    }

    fn attempt(&self, begins: Begins) -> Step<'_> {
        // A recorded retry of what may be repeated is its own intent, unless a cancel could still say that nothing happened.
        let repeated = matches!(self.state, State::Retrying(_)) && self.may_have_landed;
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
        let repeatable = self.class() != Some(EffectClass::Once)
            || failure.did_not_happen
            || crate::mutant::breaks("once-retried");
        match (repeatable && self.cancel.is_none(), self.tries < self.rules().attempts) {
            (true, true) => Step::Retry { after_ms },
            (true, false) if self.tries > 1 => Step::Settle(Settlement::Exhausted(failure)),
            (true | false, true | false) => Step::Settle(Settlement::Returned(result)),
        }
    }

    fn after_loss(&self, attempt: AttemptNo) -> Step<'_> {
        match self.class() {
            Some(EffectClass::Once) => self.ask_or_give_up(attempt),
            Some(_) if self.cancel.is_some() => Step::Settle(Settlement::Cancelled(self.effect())),
            Some(_) if self.is_poison() => Step::Settle(Settlement::Poison),
            Some(_) => self.attempt(Begins::Redriven),
            None => Step::Prepare,
        }
    }

    fn after_stop(&self, attempt: AttemptNo, cause: Cause, may_have_acted: bool) -> Step<'_> {
        let cancelled = self.cancel.is_some() || cause == Cause::Cancel;
        match self.class() {
            Some(EffectClass::Once) if may_have_acted => self.ask_or_give_up(attempt),
            _ if cancelled => Step::Settle(Settlement::Cancelled(self.effect())),
            _ if cause == Cause::Total || self.tries >= self.rules().attempts => {
                Step::Settle(Settlement::TimedOut(cause))
            }
            _ => Step::Retry { after_ms: None },
        }
    }

    fn after_verdict<'a>(&'a self, verdict: &'a Verdict) -> Step<'a> {
        match (verdict, self.cancel.is_some()) {
            (Verdict::Landed(success), false) => Step::Settle(Settlement::Landed(success)),
            (Verdict::Landed(_), true) => Step::Settle(Settlement::Cancelled(Effect::Landed)),
            (Verdict::Unknown, false) => Step::Settle(Settlement::Unknown),
            (Verdict::Unknown | Verdict::DidNotHappen, true) => {
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
        match (self.reconciles, self.cancel.is_some()) {
            (true, _) => Step::Reconcile(attempt),
            (false, true) => Step::Settle(Settlement::Cancelled(self.effect())),
            (false, false) => Step::Settle(Settlement::Unknown),
        }
    }

    /// What it has done so far: we never state what we do not know. The calls inside it may be unknown; theirs are other
    /// journals.
    pub fn effect(&self) -> Effect {
        match (self.class(), self.operations.as_deref()) {
            _ if self.may_have_landed => Effect::Unknown,
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

    /// How its attempts are made.
    pub fn rules(&self) -> Rules {
        match &self.rules {
            Some(rules) => **rules,
            None => Rules::unsaid(self.class().unwrap_or(EffectClass::Once)),
        }
    }

    /// The class it is pinned to, once prepared.
    pub fn class(&self) -> Option<EffectClass> {
        self.pin.map(|pin| pin.class)
    }

    /// What it waits to be connected to, if it does.
    pub fn unconnected(&self) -> Option<&Unconnected> {
        let State::Unconnected { said, declined: false } = &self.state else { return None };
        Some(said)
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
