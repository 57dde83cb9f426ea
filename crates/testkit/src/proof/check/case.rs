//! One call in all three histories: what its class promises.

use super::{Histories, approvals, inside, nested, shifting, waits};
use crate::proof::client::is_open;
use crate::proof::history::{BatchReply, CallHistory, WorkerReplies};
use crate::proof::kind::{Class, EffectWitness};
use crate::proof::ledger::Effect;
use crate::proof::plan::{CallPlan, Connects, Then, hash};
use crate::proof::tools::EFFECT;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::handle::step_key;

/// A call is set aside after it took this many workers with it.
const DEATHS_MAX: u32 = 3;

/// One call in all three histories.
pub(super) struct Case<'a> {
    pub plan: &'a CallPlan,
    pub recorded: &'a CallHistory,
    /// Whether it was added to its batch later.
    pub added: bool,
    /// The ledger's observations of it, without questions.
    pub effects: Vec<&'a Effect>,
    /// The observations of earlier rounds of the call around it.
    pub earlier: Vec<&'a Effect>,
    /// The call inside which it was made.
    pub around: Option<&'a CallHistory>,
    /// The calls inside it.
    pub inside: Vec<&'a CallHistory>,
}

impl<'a> Case<'a> {
    /// One that is inside no other and has none inside.
    pub fn new(histories: &'a Histories, plan: &'a CallPlan, recorded: &'a CallHistory) -> Case<'a> {
        let effects = nested::effects(histories, recorded).collect();
        let earlier = nested::earlier(histories, recorded);
        Case { plan, recorded, added: false, effects, earlier, around: None, inside: Vec::new() }
    }
}

impl Case<'_> {
    /// Every promise that was broken.
    pub fn problems(&self, histories: &Histories) -> Vec<String> {
        let mut problems = Vec::new();
        if self.class() == Class::Shifting {
            self.never_runs_again(histories, &mut problems);
            self.stays_cancelled(histories, &mut problems);
            shifting::problems(self, &mut problems);
            return problems;
        }
        self.outcome(histories, &mut problems);
        self.attempts(histories, &mut problems);
        self.effects_are_its_own(&mut problems);
        self.never_runs_again(histories, &mut problems);
        self.stays_cancelled(histories, &mut problems);
        self.class_bounds(&mut problems);
        if self.class() == Class::Stepped {
            inside::problems(self, &mut problems);
        }
        waits::problems(self, histories, &mut problems);
        nested::problems(self, &mut problems);
        approvals::problems(self, histories, &mut problems);
        problems
    }

    /// The call that a client knows: it, or the one around it.
    fn root(&self) -> &str {
        &self.around.unwrap_or(self.recorded).name
    }

    /// How often it was applied; of a stepped call its last step.
    fn applied(&self) -> usize {
        let key = self.key();
        let all = self.effects.iter().chain(&self.earlier);
        all.filter(|effect| effect.key == key && effect.verdict == "applied").count()
    }

    /// The key of its effect.
    fn key(&self) -> String {
        match self.class() {
            Class::Stepped => self.step_key(EFFECT),
            Class::Once | Class::Keyed | Class::Read | Class::Shifting | Class::Client | Class::Missing => {
                self.recorded.key.clone()
            }
        }
    }

    /// The key of a step.
    pub fn step_key(&self, step: &str) -> String {
        step_key(&self.recorded.key, step)
    }

    /// The ledger's observations under this key.
    pub fn under(&self, key: &str) -> impl Iterator<Item = &Effect> {
        self.effects.iter().copied().filter(move |effect| effect.key == key)
    }

    pub fn class(&self) -> Class {
        self.plan.kind.class
    }

    fn tries(&self) -> u32 {
        self.recorded.past.tries(self.class() == Class::Once)
    }

    /// It ended as what happened to it must end.
    fn outcome(&self, histories: &Histories, problems: &mut Vec<String>) {
        let (recorded, past) = (self.recorded, &self.recorded.past);
        let (state, detail) = (recorded.state(), recorded.detail());
        let nobody_asked = self.class() == Class::Once && self.is_asked_in_vain();
        let resolved = recorded.is_resolved();
        // What must not be repeated and was cut is unknown, until somebody says otherwise.
        let must_be_unknown = nobody_asked && past.is_cut() && !resolved;
        let is_unknown = state == "unknown" || (state, detail) == ("cancelled", "unknown");
        if must_be_unknown && !is_unknown {
            problems.push(format!("R3: it is {state} {detail}, and was cut: it must be unknown"));
        }
        let fits = match (state, detail) {
            ("succeeded", _) if resolved => self.applied() == 1,
            ("failed", "did_not_happen") if resolved => self.applied() == 0,
            ("succeeded", _) => self.may_succeed(),
            ("failed", "poison") => recorded.deaths >= DEATHS_MAX,
            ("failed", "no_such_tool") => self.class() == Class::Missing,
            // It was taken over before it could be refused.
            ("failed", "timeout") if self.class() == Class::Missing => histories.deaths > 0,
            // What must not be repeated failed only if it was stopped each time before it could act.
            ("failed", "timeout") => {
                let in_time = past.stopped == 0 && past.stopped_in_time > 0;
                self.plan.kind.is_brief() && (self.class() != Class::Once || in_time) && self.is_exhausted()
            }
            ("failed", "tool_failed") => self.may_fail(),
            ("failed", "tool_panicked") => self.plan.then == Then::Panic,
            ("denied", _) => approvals::may_be_denied(self),
            ("failed", "connection_declined") => self.plan.connects == Connects::Declined,
            ("failed", "did_not_happen") => {
                past.reconciled.last() == Some(&"did not happen")
                    && self.is_exhausted()
                    && self.applied() == 0
            }
            ("cancelled", effect) => {
                self.is_cancelled(histories) && self.is_true_to_the_ledger(histories, effect)
            }
            // Whoever is dismissed while its end is on its way keeps that.
            ("unknown", _) => {
                let asked = past.cancel_asked.is_some() && !past.dismissed;
                let cut = nobody_asked && past.is_cut() && !asked;
                (cut || approvals::may_be_denied_later(self)) && !resolved
            }
            _ => false,
        };
        if !fits {
            problems.push(format!("R3: it must not be {state} {detail}, by {past:?}"));
        }
        let value = recorded.value.as_ref();
        if state == "succeeded" && value.is_none_or(|value| value["call"] != self.plan.id.as_str()) {
            problems.push("R1: its value is another's".to_owned());
        }
        let after_its_end = past.resolved.iter().all(|resolved| recorded.ended.last() < Some(resolved));
        if past.resolved.len() > 1 || !after_its_end {
            problems.push(format!("R12: it was resolved at {:?}", past.resolved));
        }
    }

    /// Nobody can tell whether it took effect; or who has little time was asked for too long.
    fn is_asked_in_vain(&self) -> bool {
        let too_long = self.plan.kind.is_brief() && self.recorded.past.reconciled.last() == Some(&"unknown");
        self.plan.kind.asks != EffectWitness::Ledger || too_long
    }

    fn is_exhausted(&self) -> bool {
        self.tries() >= self.class().tries()
    }

    fn may_succeed(&self) -> bool {
        let landed = self.recorded.past.reconciled.last() == Some(&"landed");
        let never = matches!(self.plan.order.as_str(), "reject" | "drop")
            || self.plan.connects == Connects::Declined
            || matches!(self.plan.then, Then::Hang | Then::HangFirst | Then::HangLater);
        self.class() != Class::Missing && (landed || (!never && self.recorded.past.returned > 0))
    }

    /// It is only over with a failure if it may not be tried again, or was tried as often as it may be.
    fn may_fail(&self) -> bool {
        let refused = self.plan.order.starts_with("reject") || self.plan.order.starts_with("refuse");
        let retry = &self.recorded.answer["outcome"]["failure"]["retry"];
        let is_over = |retried: bool| {
            let retried = retried && self.recorded.past.cancel_asked.is_none();
            let exhausted = json!({"exhausted": {"attempts": self.tries()}});
            !retried || (*retry == exhausted && self.is_exhausted())
        };
        let by_itself = (refused || self.plan.order == "drop") && is_over(self.plan.is_retried(refused));
        by_itself || (nested::has_failed(self) && is_over(self.class() != Class::Once))
    }

    /// Somebody asked for it: a client, one of its siblings, or whoever stopped the call around it.
    fn is_cancelled(&self, histories: &Histories) -> bool {
        let past = &self.recorded.past;
        let mut asked = histories.told.iter().flat_map(|told| &told.cancels);
        let by_a_client = asked.any(|cancel| cancel.reaches(self.root()));
        let from_around = self.around.is_some_and(|around| nested::stops(around, self.recorded));
        past.cancel_asked.is_some() && (past.dismissed || by_a_client || from_around)
    }

    /// Its stated effect matches the ledger's observations of it, and of its nested calls.
    fn is_true_to_the_ledger(&self, histories: &Histories, effect: &str) -> bool {
        let started = self.recorded.attempts > 0;
        // Whoever can be asked after answers for the calls inside too.
        let asked_after = self.recorded.past.reconciled.last() == Some(&"did not happen");
        let nothing_inside = || asked_after || !nested::has_applied(self, histories);
        match (effect, self.class()) {
            ("none", Class::Read | Class::Missing) => true,
            ("none", Class::Once | Class::Keyed | Class::Client | Class::Stepped | Class::Shifting) => {
                // What it did when it was made before was another call's.
                self.effects.iter().all(|effect| effect.verdict != "applied") && nothing_inside()
            }
            ("landed", Class::Once) => self.applied() == 1 && self.plan.kind.asks == EffectWitness::Ledger,
            ("unknown", Class::Once) => self.is_asked_in_vain() && started,
            ("unknown", Class::Keyed | Class::Stepped | Class::Client) => started,
            ("landed", Class::Stepped) => inside::is_all_recorded(self) && nested::is_all_known(self),
            _ => false,
        }
    }

    /// It is not tried more often than its rule says, and not at all once it was asked to stop.
    fn attempts(&self, histories: &Histories, problems: &mut Vec<String>) {
        let (recorded, past) = (self.recorded, &self.recorded.past);
        if self.tries() > self.class().tries() {
            problems.push(format!("retry: it was tried {} times", self.tries()));
        }
        // Whoever is cancelled while it waits never returns.
        let cancelled = recorded.state() == "cancelled" || recorded.is_resolved();
        let left = u32::from(past.put_aside && cancelled);
        let unconnected = past.unconnected_in.len() as u32;
        let ended = past.returned
            + past.stopped
            + past.stopped_in_time
            + past.lost
            + past.withheld
            + unconnected
            + left;
        if ended != recorded.attempts || recorded.started.len() != recorded.attempts as usize {
            let started = recorded.started.len();
            problems.push(format!("retry: {started} attempts started, and {ended} came to an end"));
        }
        if let Some(asked) = past.cancel_asked {
            let attempts = recorded.started.iter().zip(1..);
            let mut behind = attempts.filter(|(started, _)| **started > asked);
            if let Some((started, _)) =
                behind.find(|(_, attempt)| !self.may_start_dismissed(histories, *attempt))
            {
                problems.push(format!("cancel: asked at entry {asked}, and started at entry {started}"));
            }
        }
        let denied = recorded.state() == "denied";
        let never_started = self.class() == Class::Missing || past.cancel_asked.is_some() || denied;
        if recorded.attempts == 0 && !never_started || self.class() == Class::Missing && recorded.attempts > 0
        {
            problems.push(format!("R2: it has {} attempts", recorded.attempts));
        }
    }

    /// A dismissed call may be about to start, and finds out before it runs; or it runs already, and its
    /// start is recorded with its result.
    fn may_start_dismissed(&self, histories: &Histories, attempt: u32) -> bool {
        let mut ran = self.effects.iter().filter(|effect| effect.attempt == attempt);
        self.recorded.past.dismissed && ran.all(|effect| self.may_be_unrecorded(histories, effect))
    }

    /// The ledger's observations have its own key, class and arguments, and its receipt is one of its own.
    fn effects_are_its_own(&self, problems: &mut Vec<String>) {
        let Case { recorded, effects, .. } = self;
        let approved = hash(&approvals::approved_args(self));
        for effect in effects {
            let own = match self.class() {
                Class::Stepped => inside::kind(self, effect),
                class @ (Class::Once
                | Class::Keyed
                | Class::Read
                | Class::Shifting
                | Class::Client
                | Class::Missing) => (effect.key == recorded.key).then_some(class.name()),
            };
            if own.is_none() {
                problems.push(format!("R3: line {} came under another key", effect.number));
            }
            if own.is_some_and(|kind| effect.kind != kind) || effect.hash != approved {
                problems.push(format!("R3: line {} came with another class or arguments", effect.number));
            }
            if self.class() != Class::Read && recorded.answer["call"] != effect.handle.as_str() {
                problems.push(format!("R3: line {} came under another handle", effect.number));
            }
        }
        if let Some(receipt) = recorded.receipt()
            && !effects
                .iter()
                .chain(&self.earlier)
                .any(|effect| effect.number == receipt && effect.verdict != "rejected")
        {
            problems.push(format!("R2: its receipt {receipt} is not its own"));
        }
    }

    /// Each attempt runs once, and none after the end was recorded or told.
    fn never_runs_again(&self, histories: &Histories, problems: &mut Vec<String>) {
        let Case { recorded, effects, .. } = self;
        let mut ran: BTreeMap<(u32, &str), &Effect> = BTreeMap::new();
        for effect in effects {
            if let Some(earlier) = ran.insert((effect.attempt, effect.key.as_str()), effect) {
                // What the earlier one had on its way may be entered later.
                let first = if earlier.worker < effect.worker { earlier } else { effect };
                if earlier.worker == effect.worker || !self.may_be_unrecorded(histories, first) {
                    problems
                        .push(format!("R2: attempt {} ran again at line {}", effect.attempt, effect.number));
                }
            }
            if effect.attempt > recorded.attempts && !self.may_be_unrecorded(histories, effect) {
                problems.push(format!("R2: line {} is of attempt {}", effect.number, effect.attempt));
            }
        }
        let root = self.root();
        let told = histories.told.iter().find(|told| told.answers.iter().any(|answer| names(answer, root)));
        // A worker that died may have a request on its way to the ledger; one that started later has none.
        if let Some(told) = told {
            for effect in effects.iter().filter(|effect| effect.worker.number > told.worker) {
                problems.push(format!(
                    "R2: worker {} ran it at line {}, after worker {} was told its end",
                    effect.worker.number, effect.number, told.worker
                ));
            }
        }
        // The run whose result is recorded is the last one.
        let returned = effects.iter().filter(|effect| match self.class() {
            Class::Read => recorded.receipt() == Some(effect.number),
            Class::Shifting if effect.kind == "read" => recorded.receipt() == Some(effect.number),
            Class::Once
            | Class::Keyed
            | Class::Stepped
            | Class::Shifting
            | Class::Client
            | Class::Missing => effect.attempt == recorded.attempts,
        });
        if let Some(last) = returned.map(|effect| effect.worker).max() {
            for effect in effects.iter().filter(|effect| effect.worker > last) {
                problems.push(format!("R2: line {} is of a run after the recorded one", effect.number));
            }
        }
    }

    /// The start of what may be repeated is recorded with its result, so the next worker may know nothing of it; but after
    /// a death every start is recorded first.
    pub fn may_be_unrecorded(&self, histories: &Histories, effect: &Effect) -> bool {
        let with_result = match self.class() {
            Class::Read => true,
            Class::Keyed => effect.attempt > 1,
            // By the class it had then.
            Class::Shifting => effect.kind == "read" || (effect.kind == "keyed" && effect.attempt > 1),
            // Of a stepped call it is recorded that it runs before a step does.
            Class::Once | Class::Stepped | Class::Client | Class::Missing => false,
        };
        with_result && !is_careful(&histories.told, effect.worker.number)
    }

    /// A call whose cancel was acknowledged is run by no later worker.
    fn stays_cancelled(&self, histories: &Histories, problems: &mut Vec<String>) {
        let name = self.root();
        for told in &histories.told {
            let reached = told.cancels.iter().any(|cancel| {
                let batch = name.split('/').nth(1).unwrap_or_default();
                let was_there = cancel.call.is_some() || !self.added;
                cancel.acknowledged && cancel.reaches(name) && cancel.submitted.contains(batch) && was_there
            });
            let later = |effect: &&&Effect| effect.worker.number > told.worker;
            if reached && let Some(effect) = self.effects.iter().find(later) {
                problems.push(format!(
                    "cancel: worker {} was told that it is to stop, and worker {} ran it at line {}",
                    told.worker, effect.worker.number, effect.number
                ));
            }
        }
    }

    /// At most one effect of `once`; of `keyed` repeats, and one application; exactly one if it succeeded.
    fn class_bounds(&self, problems: &mut Vec<String>) {
        let (applied, asked) = (self.applied(), self.effects.len());
        let repeatable = self.plan.kind.asks == EffectWitness::Ledger || self.plan.is_retried(true);
        let bound = match self.class() {
            Class::Once if repeatable => applied <= 1,
            Class::Once => asked <= 1,
            Class::Keyed | Class::Stepped => applied <= 1,
            Class::Read => applied == 0,
            Class::Shifting => true,
            Class::Client | Class::Missing => asked == 0,
        };
        if !bound {
            problems.push(format!("R3: the ledger was asked {asked} times and applied it {applied} times"));
        }
        let succeeded = self.recorded.state() == "succeeded" && self.class() != Class::Client;
        if succeeded && (asked == 0 || (self.class() != Class::Read && applied != 1)) {
            problems.push("R3: it succeeded and the ledger knows nothing of it".to_owned());
        }
        if self.plan.order == "reject" && applied > 0 {
            problems.push("R3: it was refused and applied".to_owned());
        }
    }
}

/// Whether a worker knew that one before it had died: one that had the store was killed, and none after it left in good
/// order.
fn is_careful(told: &[WorkerReplies], worker: u32) -> bool {
    let before = told.iter().filter(|told| told.worker < worker).rev();
    let mut died = before.map_while(|told| told.died.then_some(told));
    died.any(|told| told.reached("opened"))
}

/// Whether an answer has the end of the call of this name.
pub(super) fn names(answer: &BatchReply, name: &str) -> bool {
    let ended = answer.calls.iter().filter(|call| !is_open(call));
    let ids: BTreeSet<&str> = ended.filter_map(|call| call["id"].as_str()).collect();
    ids.iter().any(|id| format!("{}/{}/{id}", answer.session, answer.batch) == name)
}
