//! The state that facts add up to.

use super::end::End;
use super::fact::{
    Abort, CancelAsked, Cause, Connected, Detached, Ended, Fact, LostAttempt, Model, Opened, Parked,
    PreparedCall, PreparedResult, Reason, ReconciledAttempt, Resolved, Result, Returned, Same, Started,
    Stopped, Suspended, Then, Unconnected, Verdict,
};
use super::illegal::Illegal;
use super::permission::Permission;
use super::rare::{can_park, can_resolve};
use crate::attempt::Rules;
use crate::ids::{AttemptNo, CallId};
use crate::operation::{Did, Operation, Operations};
use crate::outcome::{Outcome, Value};
use crate::projection::AnswerBudget;
use crate::time::Timestamp;
use crate::tool::{Digest, EffectClass, Origin};
use crate::wait::Wait;
use std::sync::Arc;

/// A call, as its journal adds up to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The request.
    pub opened: Opened,
    /// When.
    pub opened_at: Timestamp,
    /// The contract it is pinned to, once prepared.
    pub pin: Option<Pin>,
    /// How its attempts are made, once prepared; see [`Call::rules`].
    pub rules: Option<Arc<Rules>>,
    /// The result of its preparation.
    pub made: Option<Arc<PreparedResult>>,
    /// How long its answer may be, once prepared; `None` as the limits say.
    pub answer: Option<Box<AnswerBudget>>,
    /// Everything known about its permission; `None` if it was allowed without a rule that says so.
    pub permission: Option<Box<Permission>>,
    /// How it stands to calls that are the same, where its tool says which are.
    pub dedupe: Option<Box<Deduped>>,
    /// Whether its tool can be asked if an attempt took effect.
    pub reconciles: bool,
    /// The origin of its result, once prepared.
    pub origin: Origin,
    /// The class of the attempts that may have taken effect without telling us, if any may; `Once` if they differ.
    pub doubt: Option<EffectClass>,
    /// Whether steps are in doubt: they have keys of their own, so whoever is asked by the key of the call knows nothing of them.
    pub doubted_steps: bool,
    /// The class its last attempt was started under.
    pub started_as: Option<EffectClass>,
    /// How many attempts were started.
    pub attempts: u32,
    /// How many of them count against the rule of its tool: not those that were lost and may be repeated.
    pub tries: u32,
    /// How often what an attempt needed was connected after it: the next one is no other try.
    pub connections: u32,
    /// How many deaths of its owner count against it.
    pub deaths: u32,
    /// How many attempts were lost with their owner: nobody measured how long these ran.
    pub lost: u32,
    /// When the first attempt started.
    pub first_started_at: Option<Timestamp>,
    /// How long it waited for its next attempts, or for what its attempts wait for, in microseconds.
    pub waited_us: u64,
    /// How much of that it waited for the world outside: time that no deadline of the call counts.
    pub excused_us: u64,
    /// How far the wall clock moved since it was asked for while none of its time passed, in microseconds.
    pub moved_us: i64,
    /// How long its attempts ran, in microseconds.
    pub ran_us: u64,
    /// The request to cancel it, if there was one.
    pub cancel: Option<CancelAsked>,
    /// Its wait, and since when.
    pub parked: Option<(Parked, Timestamp)>,
    /// How it became a task, if it is one.
    pub task: Option<Box<Detached>>,
    /// Whether its caller was answered before it had ended: an entry of its batch says so.
    pub is_provisional: bool,
    /// Its tool's named operations, if there are any.
    pub operations: Option<Box<Operations>>,
    /// Where it stands.
    pub state: State,
}

/// How a call stands to others that are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deduped {
    /// Which are the same.
    pub same: Same,
    /// Whether it is the one that runs.
    pub role: Role,
}

/// Which of several calls that are the same one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// That was not looked at yet.
    Undecided,
    /// The one that runs.
    First,
    /// One that waits for this call, or has its answer.
    SameAs(CallId),
}

/// The contract that a call is pinned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The tool's contract.
    pub contract: Digest,
    /// The tool's class, which decides what may happen after a crash.
    pub class: EffectClass,
}

/// Where a call stands.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Asked for.
    Opened,
    /// Prepared, and not started yet.
    Ready,
    /// An attempt runs, or was running when its owner died.
    Running {
        /// Which one.
        attempt: AttemptNo,
    },
    /// An attempt was lost with its owner.
    Interrupted {
        /// Which one.
        attempt: AttemptNo,
    },
    /// An attempt returned.
    Returned {
        /// Which one.
        attempt: AttemptNo,
        /// The result.
        result: Result,
    },
    /// An attempt was stopped.
    Stopped {
        /// Which one.
        attempt: AttemptNo,
        /// Why.
        cause: Cause,
        /// Whether it may have taken effect: the tool was started, and has not said that nothing happened.
        may_have_acted: bool,
        /// The last of what it had written.
        output: Option<Arc<str>>,
    },
    /// An attempt was cut off from outside.
    Aborted(Box<Abort>),
    /// An attempt that did not return was asked after.
    Reconciled {
        /// Which one.
        attempt: AttemptNo,
        /// The tool's verdict.
        verdict: Verdict,
    },
    /// It waits for its next attempt.
    Retrying(Parked),
    /// An attempt is put aside until something that it waits for is over.
    Suspended(Box<Suspended>),
    /// It waits until its session is connected to something, for its next attempt.
    Unconnected {
        /// The report of its last attempt.
        said: Box<Unconnected>,
        /// Whether somebody declined to connect it.
        declined: bool,
    },
    /// It waits for a person who says whether it may run.
    AwaitingApproval {
        /// Where it stood before.
        before: Box<State>,
    },
    /// Its record contradicts itself.
    SetAside {
        /// The contradiction, for operators.
        why: Arc<str>,
        /// Whether that is recorded; else the fold of its journal found it.
        recorded: bool,
    },
    /// It is over.
    Ended(End),
}

impl State {
    /// Its name, for people and for the API.
    pub fn name(&self) -> &'static str {
        match self {
            State::Opened | State::Ready => "queued",
            State::Running { .. }
            | State::Interrupted { .. }
            | State::Returned { .. }
            | State::Stopped { .. }
            | State::Aborted(_)
            | State::Reconciled { .. }
            | State::SetAside { .. } => "running",
            State::Retrying(parked) => Wait::from(parked.reason).state(),
            State::Unconnected { said, .. } => Wait::from(said.parked.reason).state(),
            State::Suspended(suspended) => Wait::from(suspended.parked.reason).state(),
            State::AwaitingApproval { .. } => Wait::Approval.state(),
            State::Ended(end) => end.outcome.name(),
        }
    }
}

impl Call {
    /// A call that was just asked for.
    pub fn new(opened: Opened, at: Timestamp) -> Call {
        Call {
            task: opened.task.clone(),
            opened,
            opened_at: at,
            pin: None,
            rules: None,
            made: None,
            answer: None,
            permission: None,
            dedupe: None,
            reconciles: false,
            origin: Origin::default(),
            doubt: None,
            doubted_steps: false,
            started_as: None,
            attempts: 0,
            tries: 0,
            connections: 0,
            deaths: 0,
            lost: 0,
            first_started_at: None,
            waited_us: 0,
            excused_us: 0,
            moved_us: 0,
            ran_us: 0,
            cancel: None,
            parked: None,
            is_provisional: false,
            operations: None,
            state: State::Opened,
        }
    }

    /// Adds a fact. The legal pairs are listed; everything else is [`Illegal`] and changes nothing.
    pub fn apply(&mut self, at: Timestamp, fact: &Fact) -> std::result::Result<(), Illegal> {
        match (&self.state, fact) {
            (State::Opened | State::Ready, Fact::Prepared(prepared)) => {
                self.prepared(prepared);
                self.state = State::Ready;
            }
            // A tool that changed while its owner was gone is asked again, as long as running again is allowed.
            (State::Interrupted { .. } | State::Retrying(_), Fact::Prepared(prepared)) => {
                self.prepared(prepared);
            }
            (State::Ready, Fact::SameAs(same)) if self.dedupe.is_some() => {
                self.decided(Role::SameAs(same.first));
            }
            (State::Ready, Fact::First) if self.dedupe.is_some() => self.decided(Role::First),
            (State::Ready | State::Retrying(_), Fact::Started(started))
                if self.is_next(started) && !started.redrive && self.may_run() =>
            {
                self.started(at, *started);
            }
            (State::Interrupted { .. }, Fact::Started(started)) if self.may_run_again(started) => {
                self.started(at, *started);
            }
            (State::Running { attempt }, Fact::Lost(lost)) if *attempt == lost.attempt => self.lost(*lost),
            (State::Running { attempt }, Fact::Returned(returned)) if *attempt == returned.attempt => {
                self.returned(returned);
            }
            (State::Running { attempt }, Fact::Stopped(stopped)) if *attempt == stopped.attempt => {
                self.stopped(stopped);
            }
            (State::Running { attempt }, Fact::Aborted(abort)) if *attempt == abort.attempt => {
                self.aborted(abort);
            }
            (_, Fact::Reconciled(reconciled)) if self.can_reconcile(reconciled) => {
                self.reconciled(reconciled);
            }
            (State::Suspended(suspended), Fact::Returned(returned))
                if suspended.attempt == returned.attempt && suspended.then == Then::Return =>
            {
                self.waited(at);
                self.returned(returned);
            }
            (_, Fact::Suspended(_) | Fact::Resumed(_) | Fact::Unconnected(_) | Fact::Connected(_)) => {
                return self.apply_wait(at, fact);
            }
            (state, Fact::Operation(operation)) if self.can_do(state, operation) => self.did(operation),
            (state, Fact::Parked(parked)) if can_park(state, parked.reason) => self.park(at, *parked),
            // Who drives a call and who decides about its batch may both have it recorded: the first stands.
            (state, Fact::CancelAsked(asked)) if is_open(state) => {
                self.cancel.get_or_insert_with(|| asked.clone());
            }
            (state, Fact::Detached(detached)) if is_open(state) && self.task.is_none() => {
                self.task = Some(detached.clone());
            }
            (state, Fact::Accepted(accepted)) if is_open(state) && self.pin.is_some() => {
                self.leaves_class(accepted.class);
                self.pin = Some(Pin { contract: accepted.contract, class: accepted.class });
                self.reconciles = accepted.reconciles;
                self.parked = None;
            }
            (state, Fact::CopyFound) if is_open(state) => self.copy_found(at),
            (state, Fact::Ended(ended))
                if is_open(state) && !matches!(state, State::Running { .. }) && self.can_end(ended) =>
            {
                self.ended(at, ended);
            }
            (State::Ended(end), Fact::Resolved(resolved)) if can_resolve(end, resolved) => {
                self.resolved(at, resolved);
            }
            (_, fact) => return self.apply_rare(at, fact),
        }
        Ok(())
    }

    /// The legal pairs of what puts an attempt aside, and of what wakes it.
    fn apply_wait(&mut self, at: Timestamp, fact: &Fact) -> std::result::Result<(), Illegal> {
        match (&self.state, fact) {
            (State::Running { attempt }, Fact::Suspended(suspended)) if *attempt == suspended.attempt => {
                self.suspended(at, suspended);
            }
            (State::Suspended(suspended), Fact::Resumed(resumed))
                if suspended.attempt == resumed.attempt && suspended.then == Then::Replay =>
            {
                self.waited(at);
                self.started_as = self.class();
                self.state = State::Running { attempt: resumed.attempt };
            }
            (State::Running { attempt }, Fact::Unconnected(said)) if *attempt == said.attempt => {
                self.ran_us += said.ran_us;
                self.parked = Some((said.parked, at));
                self.state = State::Unconnected { said: said.clone(), declined: false };
            }
            (State::Unconnected { .. }, Fact::Connected(Connected { connected: true })) => {
                self.waited(at);
                self.connections += 1;
                self.state = State::Ready;
            }
            (
                State::Unconnected { said, declined: false },
                Fact::Connected(Connected { connected: false }),
            ) => {
                self.state = State::Unconnected { said: said.clone(), declined: true };
            }
            (_, fact) => return Err(self.illegal(fact)),
        }
        Ok(())
    }

    /// Whether this can happen to it now.
    pub fn takes(&self, operation: &Operation) -> bool {
        self.can_do(&self.state, operation)
    }

    /// Only what runs does something; an answer from outside may come at any time.
    fn can_do(&self, state: &State, operation: &Operation) -> bool {
        let lives = match operation.did {
            Did::Completed(_) | Did::Signalled { .. } => is_open(state),
            Did::TimedOut => matches!(state, State::Running { .. } | State::Suspended(_)),
            Did::StepStarted { .. }
            | Did::StepEnded { .. }
            | Did::SleepBegan(_)
            | Did::SleepEnded
            | Did::KeyTaken
            | Did::WaitBegan(_)
            | Did::Called { .. }
            | Did::Asked(_)
            | Did::PairsRead { .. }
            | Did::PairWritten { .. }
            | Did::Emitted { .. }
            | Did::Spawned { .. }
            | Did::ChildOpened { .. }
            | Did::Said { .. }
            | Did::EventPlanned { .. }
            | Did::Awaited { .. }
            | Did::Attached { .. }
            | Did::Handed(_)
            | Did::SignalAwaited(_) => matches!(state, State::Running { .. }),
        };
        let follows = match &self.operations {
            Some(operations) => operations.can_follow(operation),
            None => Operations::default().can_follow(operation),
        };
        lives && follows
    }

    fn did(&mut self, operation: &Operation) {
        let round = self.round();
        self.operations.get_or_insert_default().apply(operation, round);
    }

    /// Which attempts are one as far as its steps go: in the next one those that failed run again.
    pub fn round(&self) -> u32 {
        self.tries + self.connections
    }

    fn suspended(&mut self, at: Timestamp, suspended: &Suspended) {
        self.ran_us += suspended.ran_us;
        self.parked = Some((suspended.parked, at));
        // The tool has returned, and what it set off goes on outside.
        if self.acts() && suspended.then == Then::Return {
            self.doubted();
        }
        self.state = State::Suspended(Box::new(suspended.clone()));
    }

    /// A wait is over.
    pub(super) fn waited(&mut self, at: Timestamp) {
        if let Some((parked, since)) = self.parked.take() {
            self.waited_us += at.since(since);
            self.excused_us += if parked.reason.is_outside() { at.since(since) } else { 0 };
        }
    }

    fn is_next(&self, started: &Started) -> bool {
        started.attempt.0 == self.attempts + 1
    }

    /// Whether no other call runs in its place.
    fn may_run(&self) -> bool {
        self.dedupe.as_ref().is_none_or(|dedupe| dedupe.role == Role::First)
    }

    /// Journals from before the class of an attempt was kept apart may go on with what is `once` no more.
    fn may_run_again(&self, started: &Started) -> bool {
        let repeatable = self.pin.is_some_and(|pin| pin.class != EffectClass::Once) || self.may_repeat();
        self.is_next(started) && started.redrive && repeatable
    }

    /// Whether the tool can have told of this attempt: it did not return, or its tool changed while the next one was waited
    /// for, which must not be made any more.
    fn can_reconcile(&self, reconciled: &ReconciledAttempt) -> bool {
        let attempt = match &self.state {
            State::Interrupted { attempt } | State::Stopped { attempt, .. } => *attempt,
            State::Aborted(abort) => abort.attempt,
            State::Suspended(suspended) => suspended.attempt,
            State::Ready | State::Retrying(_) if !self.may_repeat() => AttemptNo(self.attempts),
            State::Opened
            | State::Ready
            | State::Retrying(_)
            | State::Running { .. }
            | State::Returned { .. }
            | State::Reconciled { .. }
            | State::Unconnected { .. }
            | State::AwaitingApproval { .. }
            | State::SetAside { .. }
            | State::Ended(_) => return false,
        };
        attempt == reconciled.attempt && self.reconciles
    }

    /// An end needs an outcome unless an attempt returned one; an answer that is the value needs a value.
    fn can_end(&self, ended: &Ended) -> bool {
        let value = match (&ended.outcome, &self.state) {
            (Some(Outcome::Succeeded(success)), _)
            | (None, State::Returned { result: Result::Ok(success), .. }) => Some(&success.value),
            (Some(_), _) | (None, State::Returned { result: Result::Failed(_), .. }) => None,
            (None, _) => return false,
        };
        match &ended.model {
            Model::ValueText | Model::ValueString => matches!(value, Some(Value::Inline(_))),
            Model::Own(_) => true,
        }
    }

    pub(super) fn prepared(&mut self, prepared: &PreparedCall) {
        self.pin = Some(Pin { contract: prepared.contract, class: prepared.class });
        self.rules = prepared.rules.clone();
        self.reconciles = prepared.reconciles;
        self.origin = prepared.origin;
        self.made = prepared.made.clone();
        self.answer.clone_from(&prepared.answer);
        self.parked = None;
        // Prepared again it is still what it was, unless it is the same as others now.
        let before = self.dedupe.take();
        self.dedupe = prepared.same.as_deref().map(|same| {
            let role = match before {
                Some(before) if before.same.mark == same.mark => before.role,
                _ if self.attempts > 0 => Role::First,
                _ => Role::Undecided,
            };
            Box::new(Deduped { same: *same, role })
        });
    }

    fn decided(&mut self, role: Role) {
        if let Some(dedupe) = &mut self.dedupe {
            dedupe.role = role;
        }
    }

    fn started(&mut self, at: Timestamp, started: Started) {
        if let State::Retrying(_) = self.state {
            self.waited(at);
        }
        self.parked = None;
        self.attempts += 1;
        self.first_started_at.get_or_insert(at);
        self.started_as = self.class();
        self.state = State::Running { attempt: started.attempt };
    }

    fn lost(&mut self, lost: LostAttempt) {
        self.deaths += u32::from(lost.blamed);
        self.lost += 1;
        // What may be repeated is driven again, apart from its retries; what must not be has been tried.
        self.tries += u32::from(self.attempt_class() == Some(EffectClass::Once));
        self.doubted();
        self.state = State::Interrupted { attempt: lost.attempt };
    }

    fn returned(&mut self, returned: &Returned) {
        self.ran_us += returned.ran_us;
        self.tries += 1;
        if self.acts() && matches!(&returned.result, Result::Failed(failure) if !failure.did_not_happen) {
            self.doubted();
        }
        self.state = State::Returned { attempt: returned.attempt, result: returned.result.clone() };
    }

    fn stopped(&mut self, stopped: &Stopped) {
        self.ran_us += stopped.ran_us;
        self.tries += 1;
        if stopped.may_have_acted {
            self.doubted();
        }
        let Stopped { attempt, cause, may_have_acted, .. } = *stopped;
        let output = stopped.output.clone();
        self.state = State::Stopped { attempt, cause, may_have_acted, output };
    }

    fn aborted(&mut self, abort: &Abort) {
        self.ran_us += abort.ran_us;
        self.tries += 1;
        if self.acts() {
            self.doubted();
        }
        self.state = State::Aborted(Box::new(abort.clone()));
    }

    fn reconciled(&mut self, reconciled: &ReconciledAttempt) {
        // All attempts have one key, so the verdict is about all of them.
        if reconciled.verdict == Verdict::DidNotHappen {
            self.doubt = None;
        }
        self.state = State::Reconciled { attempt: reconciled.attempt, verdict: reconciled.verdict.clone() };
    }

    fn park(&mut self, at: Timestamp, parked: Parked) {
        // What it waited for in the world outside is over: now it waits for its tool.
        if matches!(self.state, State::Suspended(_)) {
            self.waited(at);
        }
        self.parked = Some((parked, at));
        if parked.reason == Reason::Retry {
            self.state = State::Retrying(parked);
        }
    }

    /// Whether its body has effects of its own: those of a stepped call are its steps, each of which says what it did.
    fn acts(&self) -> bool {
        !matches!(self.attempt_class(), Some(EffectClass::Read | EffectClass::Stepped))
    }

    fn ended(&mut self, at: Timestamp, ended: &Ended) {
        // What was returned becomes the outcome; the state it is taken from is over.
        let outcome = match (&ended.outcome, std::mem::replace(&mut self.state, State::Opened)) {
            (Some(outcome), _) => outcome.clone(),
            (None, State::Returned { result: Result::Ok(success), .. }) => Outcome::Succeeded(success),
            (None, State::Returned { result: Result::Failed(failure), .. }) => Outcome::Failed(failure),
            (None, other) => {
                self.state = other;
                return;
            }
        };
        let told = ended.model.clone();
        self.parked = None;
        self.state = State::Ended(End { outcome, told, spent: ended.spent, at, resolved: None });
    }

    fn resolved(&mut self, at: Timestamp, resolved: &Resolved) {
        if let State::Ended(end) = &mut self.state {
            end.outcome = resolved.outcome.clone();
            end.told = Model::Own(resolved.model.clone());
            end.resolved = Some((resolved.by, at));
        }
    }
}

pub(super) fn is_open(state: &State) -> bool {
    !matches!(state, State::Ended(_))
}
