//! The facts a call's journal is made of. A released kind never changes; fields may be added.

use super::permission::{ApprovalAnswered, ApprovalAsked, JudgedCall, Withheld};
use crate::attempt::{Deadline, Deadlines, Rules};
use crate::failure::Failure;
use crate::grant::GrantId;
use crate::ids::{AttemptNo, CallId, Mark};
use crate::operation::Operation;
use crate::outcome::{JsonText, ModelAnswer, Outcome, Success};
use crate::projection::AnswerBudget;
use crate::time::Timestamp;
use crate::tool::{Digest, EffectClass, Origin};
use std::num::NonZeroU64;
use std::sync::Arc;
use windlass_args::arguments::Arguments;
use windlass_args::named;
use windlass_args::repair::Repair;
use windlass_args::text::Text;

/// One fact about a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// It was asked for.
    Opened(Opened),
    /// Its tool was found and its arguments fit.
    Prepared(PreparedCall),
    /// An attempt starts.
    Started(Started),
    /// An attempt was running when its owner died.
    Lost(LostAttempt),
    /// An attempt returned.
    Returned(Returned),
    /// The call is over.
    Ended(Ended),
    /// An attempt was stopped.
    Stopped(Stopped),
    /// The tool said whether an attempt that did not return took effect.
    Reconciled(ReconciledAttempt),
    /// It waits, and for what.
    Parked(Parked),
    /// Somebody asked to cancel it.
    CancelAsked(CancelAsked),
    /// An operator lets it go on although its tool has changed.
    Accepted(Accepted),
    /// It became known whether a call that ended as unknown took effect.
    Resolved(Box<Resolved>),
    /// It is the same as another call, and waits for that one's end or has its answer.
    SameAs(SameAs),
    /// It is the first of its dedupe key: it runs, and others may wait for it.
    First,
    /// Its tool did something by name.
    Operation(Box<Operation>),
    /// An attempt was put aside until something that it waits for is over.
    Suspended(Box<Suspended>),
    /// An attempt that was put aside goes on.
    Resumed(Resumed),
    /// An attempt did nothing, because its session is not connected to something.
    Unconnected(Box<Unconnected>),
    /// Somebody connected that, or declined to.
    Connected(Connected),
    /// It goes on without a caller: it is a task from now on.
    Detached(Box<Detached>),
    /// The data was found to be a copy while the call was under way: the owner of the original may go on with it, so here
    /// nobody does.
    CopyFound,
    /// Its record contradicts itself: it ends as unknown, and only its operator can say how it ended.
    SetAside(SetAside),
    /// An attempt was cut off from outside: nobody knows what it did.
    Aborted(Box<Abort>),
    /// It was to be a task from the start and was refused at once: it never was one.
    StartRefused,
    /// It was judged under the policy.
    Judged(Arc<JudgedCall>),
    /// A person is asked whether it may run.
    ApprovalAsked(Box<ApprovalAsked>),
    /// That was answered.
    ApprovalAnswered(Box<ApprovalAnswered>),
    /// An attempt was started on record, and not run.
    Withheld(Withheld),
}

/// It was asked for: what was submitted, before anything was made of it. Identity compares this.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// The id the model gave it.
    pub id: Text,
    /// The tool, as it was asked for: a name or a stable id.
    pub tool: Arc<str>,
    /// The arguments as they were given.
    pub args: Arguments,
    /// Opaque data of the model's provider, as JSON; returned with the answer.
    pub provider: Option<JsonText>,
    /// How long it may take, where its caller said so; outside identity.
    pub deadlines: Option<Box<Deadlines>>,
    /// Higher starts before lower, among calls that do not collide; outside identity.
    pub priority: i8,
    /// How long its caller waits for it once it runs, in milliseconds, where it may go on without one and its caller said so;
    /// outside identity.
    pub inline_ms: Option<u64>,
    /// How it is a task from the start, if it is; outside identity.
    pub task: Option<Box<Detached>>,
    /// How long its answer may be, where its caller said so; outside identity.
    pub answer: Option<Box<AnswerBudget>>,
    /// The grant by which it is made, if it is made by one; outside identity.
    pub grant: Option<Box<GrantId>>,
}

/// Its tool was found and its arguments fit: the call is pinned to the tool's contract.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedCall {
    /// The contract of the tool.
    pub contract: Digest,
    /// The class it had.
    pub class: EffectClass,
    /// How its attempts are made; `None` for [`Rules::unsaid`].
    pub rules: Option<Arc<Rules>>,
    /// Whether the tool can be asked if an attempt took effect.
    pub reconciles: bool,
    /// The result of preparation; most calls run as requested.
    pub made: Option<Arc<PreparedResult>>,
    /// Which calls are the same as it, where its tool says so.
    pub same: Option<Box<Same>>,
    /// How long its answer may be, as its caller, its tool or its session said; `None` if none of them did.
    pub answer: Option<Box<AnswerBudget>>,
    /// The origin of its result.
    pub origin: Origin,
}

/// Which calls are the same as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Same {
    /// By what they are found.
    pub mark: Mark,
    /// How long the answer of the first stands for them, in milliseconds since it was asked for.
    pub for_ms: Option<u64>,
}

/// It is the same as another call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SameAs {
    /// The one that runs or ran.
    pub first: CallId,
}

/// The result of preparing a call. Fixed once it is recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreparedResult {
    /// The arguments that run, as JSON, where they are not those that were asked for.
    pub args: Option<JsonText>,
    /// The repairs of its arguments.
    pub repairs: Vec<Repair>,
    /// The payload that the tool attached for its attempts, as JSON.
    pub payload: Option<JsonText>,
    /// The answer, where the tool or a hook had it at once.
    pub answer: Option<Success>,
    /// The hook that answered; `None` if the tool did.
    pub answered_by: Option<Arc<str>>,
}

/// An attempt starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Which one.
    pub attempt: AttemptNo,
    /// Whether it is because an earlier one was lost.
    pub redrive: bool,
    /// The version of the policy that it was judged by; `None` if there is none.
    pub policy: Option<NonZeroU64>,
}

/// An attempt was running when its owner died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostAttempt {
    /// Which one.
    pub attempt: AttemptNo,
    /// Whether the death counts against the call: not where its owner left in good order, nor where another call
    /// was under suspicion and ran alone.
    pub blamed: bool,
}

/// An attempt was stopped: it did not return within its grace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Which one.
    pub attempt: AttemptNo,
    /// How long it ran, in microseconds, by the monotonic clock.
    pub ran_us: u64,
    /// Why.
    pub cause: Cause,
    /// Whether it may have taken effect: the tool was started, and has not said that nothing happened.
    pub may_have_acted: bool,
    /// Whether the tool still blocks its thread.
    pub stuck: bool,
    /// The last of what it had written.
    pub output: Option<Arc<str>>,
}

named! {
    /// Why an attempt was stopped.
    Cause {
        /// It took too long.
        Attempt = "attempt",
        /// It gave no sign of life.
        Silence = "silence",
        /// The call took too long.
        Total = "total",
        /// Somebody asked to cancel it.
        Cancel = "cancel",
    }
}

impl Cause {
    /// The deadline that ran out, if one did.
    pub fn deadline(self) -> Option<Deadline> {
        match self {
            Cause::Attempt => Some(Deadline::Attempt),
            Cause::Silence => Some(Deadline::Silence),
            Cause::Total => Some(Deadline::Total),
            Cause::Cancel => None,
        }
    }
}

/// The tool said whether an attempt that did not return took effect.
#[derive(Clone, Debug, PartialEq)]
pub struct ReconciledAttempt {
    /// Which one.
    pub attempt: AttemptNo,
    /// The verdict.
    pub verdict: Verdict,
}

/// Whether an attempt took effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It did, and this is its result.
    Landed(Success),
    /// It ran to its end and failed so, by its own account: it is not repeated.
    Failed(Box<Failure>),
    /// It did not.
    DidNotHappen,
    /// That cannot be told.
    Unknown,
}

/// It waits, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parked {
    /// For what.
    pub reason: Reason,
    /// Until when, by the wall clock.
    pub wake_at: Timestamp,
    /// How long at most, in microseconds, whatever the wall clock says.
    pub length_us: u64,
}

named! {
    /// The reason of a parked call's wait.
    Reason {
        /// The time of its next attempt.
        Retry = "retry",
        /// An operator who accepts the changed tool.
        ToolChanged = "tool_changed",
        /// Its tool to be registered.
        NoSuchTool = "no_such_tool",
        /// Its tool to be resumed.
        ToolPaused = "tool_paused",
        /// A process that serves its toolbox.
        NoWorker = "no_worker",
        /// The end of a sleep.
        Sleep = "sleep",
        /// An answer from the world outside.
        Completion = "completion",
        /// An answer of a person.
        Input = "input",
        /// Somebody who connects its session to something.
        Connection = "connection",
        /// The caller, who runs the tool and posts its result.
        Client = "client",
        /// A signal.
        Signal = "signal",
        /// A task or a named event of its session.
        Awaited = "awaited",
        /// A person who says whether it may run.
        Approval = "approval",
    }
}

impl Reason {
    /// Whether it waits for the world outside: that time no deadline of the call counts.
    pub fn is_outside(self) -> bool {
        match self {
            Reason::Completion | Reason::Input | Reason::Connection | Reason::Client | Reason::Signal => true,
            Reason::Awaited | Reason::Approval => true,
            Reason::Retry | Reason::ToolChanged | Reason::NoSuchTool | Reason::ToolPaused => false,
            Reason::NoWorker | Reason::Sleep => false,
        }
    }
}

/// An attempt was put aside: nothing of it runs until something that it waits for is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspended {
    /// Which one.
    pub attempt: AttemptNo,
    /// How long it ran, in microseconds, by the monotonic clock.
    pub ran_us: u64,
    /// For what it waits, until when at most.
    pub parked: Parked,
    /// The names of the operations it waits for: the first that is over wakes it.
    pub waits: Vec<Arc<str>>,
    /// The continuation.
    pub then: Then,
}

named! {
    /// The continuation of a suspended attempt that is woken.
    Then {
        /// Its body runs again, and is told what is recorded.
        Replay = "replay",
        /// The answer is its result: the tool has returned.
        Return = "return",
    }
}

/// An attempt that was put aside goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Which one.
    pub attempt: AttemptNo,
}

/// An attempt did nothing, because its session is not connected to something. It is made anew once it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconnected {
    /// Which one.
    pub attempt: AttemptNo,
    /// How long it ran, in microseconds, by the monotonic clock.
    pub ran_us: u64,
    /// Until when it waits for that.
    pub parked: Parked,
    /// To what.
    pub provider: Arc<str>,
    /// Where a person can connect it, if the tool knows.
    pub setup_url: Option<Arc<str>>,
}

/// Somebody connected what a call waits for, or declined to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// Whether it is connected.
    pub connected: bool,
}

/// A call goes on without a caller: it is a task from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// Why.
    pub by: DetachedBy,
    /// When its session is told of it.
    pub wake: Wake,
    /// Its title for people; `None` means the title of its tool.
    pub title: Option<Arc<str>>,
    /// The call that started it, if one did.
    pub starter: Option<CallId>,
    /// How many calls lie between it and whoever asked first, where it was triggered or started by a call that was.
    pub depth: u32,
    /// How long its caller waited for it, in milliseconds, where it took longer.
    pub budget_ms: Option<u64>,
    /// Words by which programs and people find it.
    pub tags: Vec<String>,
}

named! {
    /// Why a call goes on without a caller.
    DetachedBy {
        /// It ran longer than its caller waits for it.
        Budget = "budget",
        /// It waited longer for its first start than its caller waits for it.
        Queue = "queue",
        /// Somebody started it so.
        Spawned = "spawned",
        /// A schedule started it.
        Scheduled = "scheduled",
        /// An event started it.
        Triggered = "triggered",
    }
}

named! {
    /// When a session is told of a task.
    Wake {
        /// Never.
        Silent = "silent",
        /// When it has ended.
        OnEnd = "on_end",
        /// Also when it asks for something or says something.
        OnActivity = "on_activity",
    }
}

impl Wake {
    /// The rule that `signal_on_completion` means, which is true by default.
    pub fn signals(on_completion: Option<bool>) -> Wake {
        if on_completion.unwrap_or(true) { Wake::OnEnd } else { Wake::Silent }
    }
}

#[expect(clippy::derivable_impls, reason = "the enum is declared with its names")]
impl Default for Wake {
    fn default() -> Wake {
        Wake::OnEnd
    }
}

/// Somebody asked to cancel it. That is no end: what its attempt returns in time still counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CancelAsked {
    /// Why, if they said so.
    pub reason: Option<Arc<str>>,
}

/// An operator lets it go on under what its tool has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The contract from now on.
    pub contract: Digest,
    /// The class from now on.
    pub class: EffectClass,
    /// Whether the tool can be asked if an attempt took effect.
    pub reconciles: bool,
}

/// An attempt ended without telling what it did: what ran it was killed or lost.
#[derive(Clone, Debug, PartialEq)]
pub struct Abort {
    /// Which one.
    pub attempt: AttemptNo,
    /// How long it ran, in microseconds, by the monotonic clock.
    pub ran_us: u64,
    /// The failure, as far as it is known. Its `retry` says whether running it again may help.
    pub failure: Failure,
}

/// A call is set aside, because a fact about it cannot follow what is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// The contradiction, for operators.
    pub why: Arc<str>,
}

/// It became known whether a call that ended as unknown took effect. The outcome and the answer are those from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// How it ended after all.
    pub outcome: Outcome,
    /// The model's view from now on.
    pub model: ModelAnswer,
    /// The resolver.
    pub by: Resolver,
}

named! {
    /// The resolver of a call.
    Resolver {
        /// An operator.
        Operator = "operator",
        /// The tool, which was asked again.
        Tool = "tool",
    }
}

/// An attempt returned.
#[derive(Clone, Debug, PartialEq)]
pub struct Returned {
    /// Which one.
    pub attempt: AttemptNo,
    /// How long it ran, in microseconds, by the monotonic clock.
    pub ran_us: u64,
    /// The result.
    pub result: Result,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Result {
    /// A value.
    Ok(Success),
    /// A failure.
    Failed(Box<Failure>),
}

/// The call is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// How; `None` if exactly as its last attempt returned, which is then not written twice.
    pub outcome: Option<Outcome>,
    /// The model's view, fixed for ever.
    pub model: Model,
    /// Where its time went.
    pub spent: Spent,
}

/// The model's view, written once: most answers are the value itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Model {
    /// The value's compact JSON, as it stands in the journal.
    ValueText,
    /// The string that the value is.
    ValueString,
    /// These parts.
    Own(ModelAnswer),
}

/// Where a call's time went, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// From being asked for until its first start.
    pub queued_us: u64,
    /// Parked.
    pub waited_us: u64,
    /// Running, over all attempts.
    pub ran_us: u64,
}
