//! The checker: joins what clients were told, what the journal says and what the ledger saw, and names every
//! promise that was broken.

use super::history::{Journal, Recorded, Told};
use super::ledger::Effect;
use super::plan::{CallPlan, Kind, Plan, hash};
use std::collections::{BTreeMap, BTreeSet};

/// A call is set aside after it took this many workers with it.
const DEATHS_MAX: u32 = 3;

/// All that is known of a trial once it is over.
#[derive(Clone, Debug)]
pub struct Histories {
    /// What was submitted.
    pub plan: Plan,
    /// What each worker's client was told.
    pub told: Vec<Told>,
    /// What is recorded.
    pub journal: Journal,
    /// What the ledger saw.
    pub effects: Vec<Effect>,
    /// How many workers died.
    pub deaths: u32,
}

/// Every broken promise, each as one line; none is what must be.
pub fn violations(histories: &Histories) -> Vec<String> {
    let mut found = histories.journal.problems.clone();
    every_call_ended_once(histories, &mut found);
    nothing_told_is_lost(histories, &mut found);
    claims_are_in_order(histories, &mut found);
    attempts_are_lost_with_their_worker(histories, &mut found);
    let recorded: BTreeMap<&str, &Recorded> =
        histories.journal.calls.iter().map(|call| (call.name.as_str(), call)).collect();
    for (session, batch, plan) in histories.plan.calls() {
        let name = format!("{}/{}/{}", session.name, batch.key, plan.id);
        let Some(&recorded) = recorded.get(name.as_str()) else { continue };
        let effects: Vec<&Effect> = histories.effects.iter().filter(|effect| effect.call == name).collect();
        let case = Case { plan, recorded, effects };
        let mut problems = Vec::new();
        case.outcome(&mut problems);
        case.effects_are_its_own(&mut problems);
        case.never_runs_again(histories, &mut problems);
        case.class_bounds(&mut problems);
        found.extend(problems.into_iter().map(|problem| {
            let (state, attempts) = (recorded.state(), recorded.attempts);
            format!("{problem} [{name} {} {}, {state}, {attempts} attempts]", plan.kind.class(), plan.order)
        }));
    }
    found
}

/// Every submitted call is recorded and ended, exactly once, and nothing else is.
fn every_call_ended_once(histories: &Histories, found: &mut Vec<String>) {
    let mut recorded: BTreeMap<&str, u32> = BTreeMap::new();
    for call in &histories.journal.calls {
        *recorded.entry(call.name.as_str()).or_default() += 1;
        if call.ended.len() != 1 {
            found.push(format!("R8: {} ended {} times", call.name, call.ended.len()));
        }
    }
    for (session, batch, call) in histories.plan.calls() {
        let name = format!("{}/{}/{}", session.name, batch.key, call.id);
        match recorded.remove(name.as_str()) {
            Some(1) => {}
            times => found.push(format!("R1: {name} is recorded {} times", times.unwrap_or(0))),
        }
    }
    found.extend(recorded.keys().map(|name| format!("R1: {name} was never submitted")));
    let known: BTreeSet<&str> = histories.journal.calls.iter().map(|call| call.name.as_str()).collect();
    let strangers = histories.effects.iter().filter(|effect| !known.contains(effect.call.as_str()));
    found
        .extend(strangers.map(|effect| format!("R2: the ledger saw {}, which is not recorded", effect.call)));
}

/// What a client was told once is what it is told ever after, and what is recorded.
fn nothing_told_is_lost(histories: &Histories, found: &mut Vec<String>) {
    let recorded: BTreeMap<&str, &Recorded> =
        histories.journal.calls.iter().map(|call| (call.name.as_str(), call)).collect();
    for (told, answer) in histories.told.iter().flat_map(|told| told.answers.iter().map(move |a| (told, a))) {
        let place = format!("{}/{}", answer.session, answer.batch);
        let asked = histories.plan.sessions.iter().filter(|session| session.name == answer.session);
        let asked = asked.flat_map(|session| &session.batches).find(|batch| batch.key == answer.batch);
        let ids: Vec<&str> = answer.calls.iter().filter_map(|call| call["id"].as_str()).collect();
        let in_order = asked.is_some_and(|batch| {
            let least = batch.calls.len() - usize::from(batch.grows);
            ids.len() >= least && ids.iter().eq(batch.calls.iter().map(|call| &call.id).take(ids.len()))
        });
        if !in_order {
            found.push(format!("R1: worker {} was answered {ids:?} for {place}", told.worker));
        }
        for call in &answer.calls {
            let name = format!("{place}/{}", call["id"].as_str().unwrap_or_default());
            match recorded.get(name.as_str()) {
                Some(recorded) if recorded.answer == *call => {}
                Some(recorded) => found.push(format!(
                    "R1: {name}: worker {} was told {call}, and recorded is {}",
                    told.worker, recorded.answer
                )),
                None => {
                    found.push(format!("R1: {name}: worker {} was told its end and it is gone", told.worker))
                }
            }
        }
    }
}

/// A call that conflicts with an earlier one of its session starts after that one's end, in the journal's own order.
fn claims_are_in_order(histories: &Histories, found: &mut Vec<String>) {
    // A call that was added later queued behind batches with larger numbers.
    let added: BTreeSet<String> = histories
        .plan
        .calls()
        .filter(|(_, batch, call)| batch.grows && batch.calls.last().is_some_and(|last| last.id == call.id))
        .map(|(session, batch, call)| format!("{}/{}/{}", session.name, batch.key, call.id))
        .collect();
    let reads = |call: &Recorded| call.answer["tool"] == Kind::Read.tool();
    let calls: Vec<&Recorded> =
        histories.journal.calls.iter().filter(|call| !added.contains(&call.name)).collect();
    for (place, earlier) in calls.iter().enumerate() {
        for later in calls[place + 1..].iter().filter(|later| later.session == earlier.session) {
            let conflict = !(reads(earlier) && reads(later));
            let (Some(end), Some(start)) = (earlier.ended.last(), later.started.first()) else { continue };
            if conflict && !earlier.started.is_empty() && end > start {
                found.push(format!(
                    "order: {} started at entry {start}, before {} ended at entry {end}",
                    later.name, earlier.name
                ));
            }
        }
    }
}

/// Calls that write have their session alone, so a dying worker takes at most one of their attempts in each with it.
fn attempts_are_lost_with_their_worker(histories: &Histories, found: &mut Vec<String>) {
    let mut lost: BTreeMap<&str, u32> = BTreeMap::new();
    for call in histories.journal.calls.iter().filter(|call| call.answer["tool"] != Kind::Read.tool()) {
        *lost.entry(call.session.as_str()).or_default() += call.deaths;
    }
    for (session, lost) in lost.iter().filter(|(_, lost)| **lost > histories.deaths) {
        let deaths = histories.deaths;
        found.push(format!("R3: {lost} attempts of session {session} were lost and {deaths} workers died"));
    }
}

/// One call in all three histories.
struct Case<'a> {
    plan: &'a CallPlan,
    recorded: &'a Recorded,
    effects: Vec<&'a Effect>,
}

impl Case<'_> {
    /// It ended as what it asked for must end; `unknown` only if it must not be repeated and an attempt was cut.
    fn outcome(&self, problems: &mut Vec<String>) {
        let failure = &self.recorded.answer["outcome"]["failure"];
        let code = failure["code"].as_str().unwrap_or_default();
        let cut = self.recorded.deaths > 0;
        if code == "poison" {
            if self.recorded.deaths < DEATHS_MAX {
                problems.push(format!("R3: set aside after {} deaths", self.recorded.deaths));
            }
            return;
        }
        let expected = match (self.plan.kind, self.plan.order.as_str()) {
            (Kind::Missing, _) => ("failed", "no_such_tool"),
            (Kind::Once, _) if cut => ("unknown", ""),
            (_, "reject" | "drop") => ("failed", "tool_failed"),
            _ => ("succeeded", ""),
        };
        if (self.recorded.state(), code) != expected {
            problems.push(format!("R3: it is {} {code}, and must be {expected:?}", self.recorded.state()));
        }
        let value = self.recorded.value.as_ref();
        if expected.0 == "succeeded" && value.is_none_or(|value| value["call"] != self.plan.id.as_str()) {
            problems.push("R1: its value is another's".to_owned());
        }
        if (self.plan.kind == Kind::Missing) != (self.recorded.attempts == 0) {
            problems.push("R2: attempts".to_owned());
        }
    }

    /// What the ledger saw of it came under its own key, class and arguments, and its receipt is one of its own.
    fn effects_are_its_own(&self, problems: &mut Vec<String>) {
        let Case { plan, recorded, effects } = self;
        for effect in effects {
            if effect.key != recorded.key {
                problems.push(format!("R3: line {} came under another key", effect.number));
            }
            if effect.kind != plan.kind.class() || effect.hash != hash(&plan.args()) {
                problems.push(format!("R3: line {} came with another class or arguments", effect.number));
            }
            if plan.kind != Kind::Read && recorded.answer["call"] != effect.handle.as_str() {
                problems.push(format!("R3: line {} came under another handle", effect.number));
            }
        }
        if let Some(receipt) = recorded.receipt()
            && !effects.iter().any(|effect| effect.number == receipt && effect.verdict != "rejected")
        {
            problems.push(format!("R2: its receipt {receipt} is not its own"));
        }
    }

    /// Each attempt runs once, and none after the end was recorded or told.
    fn never_runs_again(&self, histories: &Histories, problems: &mut Vec<String>) {
        let Case { plan, recorded, effects } = self;
        let mut ran = BTreeSet::new();
        for effect in effects {
            // The number of an attempt that reads is recorded with its result, so a new worker counts from there.
            let worker = if plan.kind == Kind::Read { effect.worker.number } else { 0 };
            if !ran.insert((worker, effect.attempt)) {
                problems.push(format!("R2: attempt {} ran again at line {}", effect.attempt, effect.number));
            }
            if effect.attempt > recorded.attempts {
                problems.push(format!("R2: line {} is of attempt {}", effect.number, effect.attempt));
            }
        }
        let name = recorded.name.as_str();
        let told = histories.told.iter().find(|told| told.answers.iter().any(|answer| names(answer, name)));
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
        let returned = effects.iter().filter(|effect| match plan.kind {
            Kind::Read => recorded.receipt() == Some(effect.number),
            Kind::Once | Kind::Keyed | Kind::Missing => effect.attempt == recorded.attempts,
        });
        if let Some(last) = returned.map(|effect| effect.worker).max() {
            for effect in effects.iter().filter(|effect| effect.worker > last) {
                problems.push(format!("R2: line {} is of a run after the recorded one", effect.number));
            }
        }
    }

    /// At most one effect of `once`; of `keyed` repeats, and one application; exactly one if it succeeded.
    fn class_bounds(&self, problems: &mut Vec<String>) {
        let applied = self.effects.iter().filter(|effect| effect.verdict == "applied").count();
        let asked = self.effects.len();
        let bound = match self.plan.kind {
            Kind::Once => asked <= 1,
            Kind::Keyed => applied <= 1,
            Kind::Read => applied == 0,
            Kind::Missing => asked == 0,
        };
        if !bound {
            problems.push(format!("R3: the ledger was asked {asked} times and applied it {applied} times"));
        }
        let succeeded = self.recorded.state() == "succeeded";
        if succeeded && (asked == 0 || (self.plan.kind != Kind::Read && applied != 1)) {
            problems.push("R3: it succeeded and the ledger knows nothing of it".to_owned());
        }
        if self.plan.order == "reject" && applied > 0 {
            problems.push("R3: it was refused and applied".to_owned());
        }
    }
}

fn names(answer: &super::history::Answer, name: &str) -> bool {
    answer.calls.iter().any(|call| {
        let id = call["id"].as_str().unwrap_or_default();
        format!("{}/{}/{id}", answer.session, answer.batch) == name
    })
}
