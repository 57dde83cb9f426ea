//! The checker: joins what clients were told, what the journal says and what the ledger saw, and names every
//! promise that was broken.

mod approvals;
mod case;
mod inside;
mod nested;
mod shifting;
mod siblings;
mod streams;
mod tasks;
mod waits;

use super::client::{is_open, is_unknown};
use super::history::{BatchReply, CallHistory, Journal, WorkerReplies};
use super::ledger::Effect;
use super::plan::ProofPlan;
use case::Case;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::ids::{BatchNo, EntryNo};

/// All that is known of a trial once it is over.
#[derive(Clone, Debug)]
pub struct Histories {
    /// The submitted plan.
    pub plan: ProofPlan,
    /// The replies to each worker's client.
    pub told: Vec<WorkerReplies>,
    /// The recorded journals.
    pub journal: Journal,
    /// The ledger's observations.
    pub effects: Vec<Effect>,
    /// How many workers died, or ended because their store had failed.
    pub deaths: u32,
    /// How many ended because their store had failed. Before one ends it may take a session again, as after a lost
    /// lease.
    pub failed: u32,
}

/// Every broken promise, each as one line; none is what must be.
pub fn violations(histories: &Histories) -> Vec<String> {
    let mut found = histories.journal.problems.clone();
    nothing_is_set_aside(histories, &mut found);
    every_call_ended_once(histories, &mut found);
    nothing_told_is_lost(histories, &mut found);
    claims_are_in_order(histories, &mut found);
    attempts_are_lost_with_their_worker(histories, &mut found);
    for batch in &histories.journal.batches {
        found.extend(siblings::problems(histories, batch));
    }
    streams::problems(histories, &mut found);
    tasks::problems(histories, &mut found);
    let recorded: BTreeMap<&str, &CallHistory> =
        histories.journal.calls.iter().map(|call| (call.name.as_str(), call)).collect();
    for (session, batch, plan) in histories.plan.calls() {
        let name = format!("{}/{}/{}", session.name, batch.key, plan.id);
        let Some(&recorded) = recorded.get(name.as_str()) else { continue };
        let added = batch.grows && batch.calls.last().is_some_and(|last| last.id == plan.id);
        let inside = nested::inside(histories, recorded);
        let cases = inside.iter().filter_map(|inside| {
            let (_, plan) = nested::planned(plan, inside)?;
            Some(Case { added, around: Some(recorded), ..Case::new(histories, plan, inside) })
        });
        for case in cases {
            found.extend(case.problems(histories).into_iter().map(|problem| described(&case, &problem)));
        }
        let case = Case { added, inside, ..Case::new(histories, plan, recorded) };
        found.extend(case.problems(histories).into_iter().map(|problem| described(&case, &problem)));
    }
    for (plan, recorded) in tasks::scheduled(histories) {
        let case = Case::new(histories, &plan.call, recorded);
        found.extend(case.problems(histories).into_iter().map(|problem| described(&case, &problem)));
    }
    found
}

fn described(Case { plan, recorded, .. }: &Case<'_>, problem: &str) -> String {
    let (name, state, attempts) = (&recorded.name, recorded.state(), recorded.attempts);
    format!("{problem} [{name} {} {}, {state}, {attempts} attempts]", plan.kind.tool(), plan.args())
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
            // It may never have been pushed.
            None if batch.streamed => {}
            times => found.push(format!("R1: {name} is recorded {} times", times.unwrap_or(0))),
        }
    }
    for call in histories.journal.calls.iter().filter(|call| call.nesting.is_some()) {
        let times = recorded.remove(call.name.as_str());
        if times != Some(1) || !nested::is_planned(histories, call) {
            found.push(format!("nested: {} is recorded, and nobody was to call it", call.name));
        }
    }
    for (_, call) in tasks::scheduled(histories) {
        recorded.remove(call.name.as_str());
    }
    found.extend(recorded.keys().map(|name| format!("R1: {name} was never submitted")));
    let known: BTreeSet<&str> = histories.journal.calls.iter().map(|call| call.name.as_str()).collect();
    let strangers =
        histories.effects.iter().filter(|effect| !known.contains(effect.call.as_str())).filter(|effect| {
            !streams::may_be_gone(histories, effect) && !nested::may_be_gone(histories, effect)
        });
    found
        .extend(strangers.map(|effect| format!("R2: the ledger saw {}, which is not recorded", effect.call)));
}

/// No record contradicts itself.
fn nothing_is_set_aside(histories: &Histories, found: &mut Vec<String>) {
    for call in &histories.journal.calls {
        found.extend(call.past.set_aside.iter().map(|why| format!("R8: {} was set aside: {why}", call.name)));
    }
}

/// A reply to a client never changes, and matches the record.
fn nothing_told_is_lost(histories: &Histories, found: &mut Vec<String>) {
    let recorded: BTreeMap<&str, &CallHistory> =
        histories.journal.calls.iter().map(|call| (call.name.as_str(), call)).collect();
    for (told, answer) in histories.told.iter().flat_map(|told| told.answers.iter().map(move |a| (told, a))) {
        let place = format!("{}/{}", answer.session, answer.batch);
        let asked = histories.plan.sessions.iter().filter(|session| session.name == answer.session);
        let asked = asked.flat_map(|session| &session.batches).find(|batch| batch.key == answer.batch);
        let ids: Vec<&str> = answer.calls.iter().filter_map(|call| call["id"].as_str()).collect();
        let in_order = asked.is_some_and(|batch| {
            let mut asked = batch.calls.iter().map(|call| &call.id);
            match answer.alone {
                true => ids.len() == 1 && asked.any(|id| id == ids[0]),
                // Of what is pushed there may be less.
                false => {
                    (batch.streamed || ids.len() >= batch.first()) && ids.iter().eq(asked.take(ids.len()))
                }
            }
        });
        if !in_order {
            found.push(format!("R1: worker {} was answered {ids:?} for {place}", told.worker));
        }
        for call in &answer.calls {
            let name = format!("{place}/{}", call["id"].as_str().unwrap_or_default());
            let Some(recorded) = recorded.get(name.as_str()) else {
                found.push(format!("R1: {name}: worker {} was told its end and it is gone", told.worker));
                continue;
            };
            let resolved = recorded.is_resolved();
            // It was told that it goes on: then it is a task, for good.
            let goes_on = is_open(call) && recorded.answer["task"] == call["task"];
            if recorded.answer != *call && !(resolved && is_unknown(call)) && !goes_on {
                found.push(format!(
                    "R1: {name}: worker {} was told {call}, and recorded is {}",
                    told.worker, recorded.answer
                ));
            }
        }
    }
    resolutions_stand(histories, found);
}

/// A call is unknown until it is resolved, always in the same words, and then what the resolution says, for good.
fn resolutions_stand(histories: &Histories, found: &mut Vec<String>) {
    let mut last: BTreeMap<String, (u32, &Value)> = BTreeMap::new();
    for (told, answer) in histories.told.iter().flat_map(|told| told.answers.iter().map(move |a| (told, a))) {
        let BatchReply { session, batch, calls, alone, .. } = answer;
        for call in calls {
            let name = format!("{session}/{batch}/{}", call["id"].as_str().unwrap_or_default());
            // Whoever pushed a call is answered in a task of its own, which may say so after the one that resolved it.
            let is_late = |worker: u32| *alone && worker == told.worker && is_unknown(call);
            if last.get(&name).is_some_and(|(worker, _)| is_late(*worker)) {
                continue;
            }
            if let Some((_, before)) = last.insert(name.clone(), (told.worker, call))
                && before != call
                && !is_unknown(before)
                && !is_open(before)
            {
                found.push(format!("R12: {name}: worker {} was told {call}, after {before}", told.worker));
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
    // One inside another runs while that one has what both claim.
    let in_line = |call: &&CallHistory| !added.contains(&call.name) && call.nesting.is_none();
    let calls: Vec<&CallHistory> = histories.journal.calls.iter().filter(in_line).collect();
    // One that waits for the world outside or its tool lets others pass, and those of its batch stand behind it again.
    let passed: BTreeSet<BatchNo> =
        calls.iter().filter(|call| call.gave_way).map(|call| call.batch).collect();
    for (place, earlier) in calls.iter().enumerate() {
        for later in calls[place + 1..].iter().filter(|later| later.session == earlier.session) {
            let conflict = !(reads(earlier) && reads(later) || is_apart(earlier) || is_apart(later));
            if conflict && passed.contains(&earlier.batch) {
                // They run by the piece, whichever comes first.
                if overlap(earlier, later) {
                    let (one, two) = (&earlier.name, &later.name);
                    found.push(format!("order: {one} and {two} ran at the same time"));
                }
                continue;
            }
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

/// Whether two calls ran at the same time, by their journals.
fn overlap(one: &CallHistory, two: &CallHistory) -> bool {
    let before = |start: EntryNo, end: Option<EntryNo>| end.is_none_or(|end| start < end);
    let meets = |(start, end): &(EntryNo, Option<EntryNo>)| {
        two.pieces.iter().any(|(begin, over)| before(*start, *over) && before(*begin, *end))
    };
    one.pieces.iter().any(meets)
}

fn reads(call: &CallHistory) -> bool {
    call.answer["tool"].as_str().is_some_and(|tool| tool.starts_with("read_"))
}

fn is_apart(call: &CallHistory) -> bool {
    call.answer["tool"].as_str().is_some_and(|tool| tool.ends_with("_apart") || tool.ends_with("_background"))
}

/// Calls that write have their session alone, so a dying worker takes at most one of their attempts in each with it,
/// and one more if its store had failed before.
fn attempts_are_lost_with_their_worker(histories: &Histories, found: &mut Vec<String>) {
    let mut lost: BTreeMap<&str, u32> = BTreeMap::new();
    let alone = |call: &&CallHistory| !reads(call) && !is_apart(call) && call.nesting.is_none();
    for call in histories.journal.calls.iter().filter(alone) {
        *lost.entry(call.session.as_str()).or_default() += call.past.lost;
    }
    let Histories { deaths, failed, .. } = histories;
    for (session, lost) in lost.iter().filter(|(_, lost)| **lost > deaths + failed) {
        found.push(format!(
            "R3: {lost} attempts of session {session} were lost, {deaths} workers died, {failed} by their store"
        ));
    }
}
