//! Permission of a call: how it was judged, what a person was asked, and what they answered.

use super::clock::{Moment, ToolSearch};
use super::fact::{Fact, Parked};
use super::fold::{Call, State};
use super::illegal::Illegal;
use super::{Settlement, Step};
use crate::ids::AttemptNo;
use crate::outcome::{Effect, JsonText};
use crate::time::Timestamp;
use crate::tool::Digest;
use std::sync::Arc;

/// A call was judged under the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedCall {
    /// Whether it may run.
    pub allowed: bool,
    /// The version of the policy.
    pub policy: u64,
    /// The rules that decided, by name.
    pub by: Vec<Arc<str>>,
    /// The reason that they give.
    pub reason: Option<Arc<str>>,
}

/// A person is asked whether a call may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalAsked {
    /// Which of the call's approvals this is, from 1.
    pub number: u32,
    /// The digest of everything that an approval covers.
    pub digest: Digest,
    /// The digest of all of that but the arguments, which an approver may edit.
    pub frame: Digest,
    /// The version of the policy.
    pub policy: u64,
    /// The rules that ask, by name.
    pub by: Vec<Arc<str>>,
    /// Digests of those sources: another rule of the same name is another source.
    pub sources: Vec<Arc<str>>,
    /// The reason that they give.
    pub reason: Option<Arc<str>>,
    /// Until when an answer is waited for.
    pub parked: Parked,
    /// Whether the approver must be another principal than the one that made the call.
    pub four_eyes: bool,
    /// Whether it is asked because of untrusted content: then nothing remembered answers it.
    pub untrusted: bool,
    /// Whether the call may run if nobody answers in time.
    pub allows_on_expiry: bool,
}

/// A person, or the end of the wait, answered an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalAnswered {
    /// Which of the call's approvals.
    pub number: u32,
    /// The answer.
    pub answer: ApprovalAnswer,
    /// The principal that answered; `None` if nobody did in time.
    pub by: Option<Arc<str>>,
    /// The id of the record by which answers of this kind are remembered, if one was made.
    pub remembered: Option<Arc<str>>,
}

/// An answer to an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// The call may run.
    Approved {
        /// The digest of what may run: the whole, or all but the arguments if those were edited.
        digest: Digest,
        /// The arguments that it runs with instead of those that were shown, as JSON.
        args: Option<JsonText>,
    },
    /// It may not.
    Denied {
        /// The reason, for the model.
        reason: Option<Arc<str>>,
    },
}

/// An attempt was started on record and not run, since what it was allowed for had changed. Nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// Which one.
    pub attempt: AttemptNo,
}

/// Everything that is known about the permission of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Permission {
    /// How it was judged last.
    pub judged: Option<Arc<JudgedCall>>,
    /// The approval that was asked for last.
    pub asked: Option<Box<ApprovalAsked>>,
    /// The answer to that one.
    pub answered: Option<Box<ApprovalAnswered>>,
    /// The arguments that an approver gave it, as JSON.
    pub edited: Option<JsonText>,
}

/// The finding of the policy about a call, as its owner knows it now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permit {
    /// It may run.
    #[default]
    Granted,
    /// The policy was not asked, or has changed since.
    Unjudged,
    /// A person was asked about exactly what would run now, and has not answered.
    Asked,
    /// A person must be asked, and no answer covers what would run now.
    Asks,
    /// It must not run.
    Denied,
}

impl Call {
    /// The answer that decided about the approval asked last; `None` while nobody has answered.
    pub fn approval_answer(&self) -> Option<&ApprovalAnswered> {
        let permission = self.permission.as_deref()?;
        let asked = permission.asked.as_ref()?;
        permission.answered.as_deref().filter(|answered| answered.number == asked.number)
    }

    /// The open approval, if the call waits for one.
    pub fn open_approval(&self) -> Option<&ApprovalAsked> {
        let State::AwaitingApproval { .. } = &self.state else { return None };
        let asked = self.permission.as_deref()?.asked.as_deref()?;
        self.approval_answer().is_none().then_some(asked)
    }

    /// Whether it was approved, and the approval covers what has these digests: the whole, and all but the arguments. Edited
    /// arguments are those that it was prepared with since.
    pub fn covers(&self, digest: &Digest, frame: &Digest) -> bool {
        let Some(answered) = self.permission.as_deref().and_then(|known| known.answered.as_ref()) else {
            return false;
        };
        match &answered.answer {
            ApprovalAnswer::Approved { digest: approved, args } => {
                let now = if args.is_some() { frame } else { digest };
                approved == now || crate::mutant::breaks("approval-unbound")
            }
            ApprovalAnswer::Denied { .. } => false,
        }
    }

    /// The approver, if anybody approved it.
    pub fn approved_by(&self) -> Option<&Arc<str>> {
        let answered = self.permission.as_deref()?.answered.as_ref()?;
        matches!(answered.answer, ApprovalAnswer::Approved { .. }).then_some(answered.by.as_ref()?)
    }

    /// The number of its next approval.
    pub fn next_approval(&self) -> u32 {
        let asked = self.permission.as_deref().and_then(|known| known.asked.as_ref());
        asked.map_or(1, |asked| asked.number + 1)
    }

    /// The arguments that an approver gave it, as JSON.
    pub fn edited_args(&self) -> Option<&JsonText> {
        self.permission.as_deref()?.edited.as_ref()
    }

    /// Its next step, given the finding of the policy: nothing that acts is done without permission.
    pub(super) fn if_permitted<'a>(&'a self, step: Step<'a>, now: &Moment) -> Step<'a> {
        let acts = match &step {
            Step::Join(_) | Step::Settle(Settlement::Answered(_)) => true,
            // One that goes on was started before.
            Step::Attempt(start) => !start.begins.is_under_way(),
            // It waits for an answer, and may have to be judged anew.
            Step::Park(_) => self.open_approval().is_some(),
            Step::Prepare
            | Step::Authorize
            | Step::Ask
            | Step::ApproveByDefault
            | Step::Lose(_)
            | Step::Continue(_)
            | Step::Reconcile(_)
            | Step::Retry { .. }
            | Step::Return { .. }
            | Step::AwaitTool(_)
            | Step::SetAside(_)
            | Step::Settle(_)
            | Step::Done(_) => false,
        };
        match now.permit {
            _ if !acts => step,
            Permit::Granted | Permit::Asked => step,
            // Nothing is judged without its tool; whoever waits for an answer goes on waiting.
            Permit::Unjudged => match now.tool {
                ToolSearch::Missing(reason) if self.open_approval().is_none() => Step::AwaitTool(reason),
                ToolSearch::Missing(_) | ToolSearch::TooSlow | ToolSearch::NotMissed => Step::Authorize,
            },
            Permit::Asks => Step::Ask,
            Permit::Denied => self.denied(),
        }
    }

    /// It must not run. What may have happened before is not called denied.
    fn denied(&self) -> Step<'_> {
        match self.effect() {
            Effect::None => Step::Settle(Settlement::Denied),
            Effect::Landed | Effect::Unknown => Step::Settle(self.unknown()),
        }
    }

    /// Its next step while an approval is asked for, or once it is answered.
    pub(super) fn after_ask(&self, now: Timestamp) -> Step<'_> {
        let asked = self.permission.as_deref().and_then(|known| known.asked.as_ref());
        match (asked, self.approval_answer()) {
            (Some(asked), None) if now < asked.parked.wake_at => Step::Park(asked.parked),
            (Some(asked), None) if asked.allows_on_expiry => Step::ApproveByDefault,
            // Approved ones have left this state.
            (Some(_), _) => self.denied(),
            (None, _) => Step::Authorize,
        }
    }

    /// The legal pairs of facts about permission.
    pub(super) fn apply_permission(&mut self, at: Timestamp, fact: &Fact) -> Result<(), Illegal> {
        match (&self.state, fact) {
            (state, Fact::Judged(judged)) if may_be_judged(state) => {
                self.judged(at, judged);
            }
            (state, Fact::ApprovalAsked(asked))
                if may_be_judged(state) && asked.number == self.next_approval() =>
            {
                self.approval_asked(at, asked);
            }
            (State::AwaitingApproval { .. }, Fact::ApprovalAnswered(answered))
                if self.open_approval().is_some_and(|asked| asked.number == answered.number)
                    && self.takes_edit(answered) =>
            {
                self.approval_answered(at, answered);
            }
            // One whose tool changed while it waits for an approval is asked for again.
            (State::AwaitingApproval { .. }, Fact::Prepared(prepared)) => {
                let parked = self.parked;
                self.prepared(prepared);
                self.parked = parked;
            }
            (State::Running { attempt }, Fact::Withheld(withheld)) if *attempt == withheld.attempt => {
                self.state = State::Ready;
            }
            (_, fact) => return Err(self.illegal(fact)),
        }
        Ok(())
    }

    /// Arguments are edited only before the first start.
    fn takes_edit(&self, answered: &ApprovalAnswered) -> bool {
        let is_edit = matches!(answered.answer, ApprovalAnswer::Approved { args: Some(_), .. });
        !is_edit || self.attempts == 0
    }

    fn judged(&mut self, at: Timestamp, judged: &Arc<JudgedCall>) {
        if judged.allowed {
            self.leave_approval(at);
        }
        self.permission.get_or_insert_default().judged = Some(Arc::clone(judged));
    }

    fn approval_asked(&mut self, at: Timestamp, asked: &ApprovalAsked) {
        self.leave_approval(at);
        let before = std::mem::replace(&mut self.state, State::Opened);
        self.state = State::AwaitingApproval { before: Box::new(before) };
        self.parked = Some((asked.parked, at));
        let permission = self.permission.get_or_insert_default();
        permission.asked = Some(Box::new(asked.clone()));
        // An approval is for what was shown, once: what has changed and changed back is asked for again.
        if !crate::mutant::breaks("approval-kept") {
            permission.answered = None;
        }
    }

    fn approval_answered(&mut self, at: Timestamp, answered: &ApprovalAnswered) {
        if let ApprovalAnswer::Approved { args, .. } = &answered.answer {
            self.leave_approval(at);
            if let Some(args) = args {
                // It is prepared anew, with those.
                self.permission.get_or_insert_default().edited = Some(args.clone());
                self.state = State::Opened;
            }
        }
        self.permission.get_or_insert_default().answered = Some(Box::new(answered.clone()));
    }

    /// It no longer waits for an approval: it is as it was before.
    fn leave_approval(&mut self, at: Timestamp) {
        if let State::AwaitingApproval { before } = &mut self.state {
            let before = std::mem::replace(&mut **before, State::Opened);
            self.state = before;
            self.waited(at);
        }
    }
}

fn may_be_judged(state: &State) -> bool {
    match state {
        State::Ready | State::Retrying(_) | State::Interrupted { .. } => true,
        State::AwaitingApproval { .. } => true,
        State::Opened
        | State::Running { .. }
        | State::Returned { .. }
        | State::Stopped { .. }
        | State::Aborted(_)
        | State::Reconciled { .. }
        | State::Suspended(_)
        | State::Unconnected { .. }
        | State::SetAside { .. }
        | State::Ended(_) => false,
    }
}
