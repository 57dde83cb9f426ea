//! Calls inside a call: made once for each name and try, whoever dies; over before it is; told to it as they ended.

use super::Histories;
use super::case::Case;
use crate::proof::client::is_unknown;
use crate::proof::history::{CallHistory, NestedCalls};
use crate::proof::ledger::Effect;
use crate::proof::plan::{CallPlan, RACE};
use crate::proof::tools::NESTED;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The recorded calls inside this one.
pub(super) fn inside<'a>(histories: &'a Histories, around: &CallHistory) -> Vec<&'a CallHistory> {
    let is_inside = |call: &&CallHistory| {
        let nesting = call.nesting.as_ref();
        nesting.is_some_and(|nesting| nesting.parent == around.name)
    };
    histories.journal.calls.iter().filter(is_inside).collect()
}

/// The planned nested call, and its name, if there is one.
pub(super) fn planned<'a>(around: &'a CallPlan, call: &CallHistory) -> Option<(&'a str, &'a CallPlan)> {
    let nesting = call.nesting.as_ref()?;
    let id = call.name.rsplit('/').next()?;
    around.nested.all().find(|(name, plan)| *name == nesting.name && plan.id == id)
}

/// Whether the call around a recorded call was to make it.
pub(super) fn is_planned(histories: &Histories, call: &CallHistory) -> bool {
    let around = call.nesting.as_ref().map(|nesting| nesting.parent.as_str());
    histories.plan.calls().any(|(session, batch, plan)| {
        around == Some(&format!("{}/{}/{}", session.name, batch.key, plan.id))
            && planned(plan, call).is_some()
    })
}

/// Whether the ledger may have seen a call inside another of which nothing is recorded: what only reads may run before its
/// batch is durable, and the call around it, which died with it, does not make it again if it must not be repeated, was
/// cancelled, or its batch was decided without it. If it succeeds, [all that it was to call](told) must be there.
pub(super) fn may_be_gone(histories: &Histories, effect: &Effect) -> bool {
    let parts: Vec<&str> = effect.call.split('/').collect();
    let &[_, batch, name, id] = parts.as_slice() else { return false };
    let Some(around) = batch.strip_prefix("inside:") else { return false };
    // Behind it stands for the how manieth time.
    let name = name.split('#').next().unwrap_or_default();
    let died = |call: &&CallHistory| call.answer["call"] == around && call.past.lost > 0;
    let calls = |call: &CallHistory| {
        histories.plan.calls().any(|(session, batch, plan)| {
            call.name == format!("{}/{}/{}", session.name, batch.key, plan.id)
                && plan.nested.all().any(|(called, plan)| called == name && plan.id == id)
        })
    };
    effect.kind == "read" && histories.journal.calls.iter().filter(died).any(calls)
}

/// The ledger's observations of a call, without questions.
pub(super) fn effects<'a>(histories: &'a Histories, call: &CallHistory) -> impl Iterator<Item = &'a Effect> {
    histories.effects.iter().filter(move |effect| effect.call == call.name && !effect.is_question())
}

/// The ledger's observations of a call in earlier rounds of the call around it.
pub(super) fn earlier<'a>(histories: &'a Histories, call: &CallHistory) -> Vec<&'a Effect> {
    let is_earlier =
        |other: &&CallHistory| other.path() == call.path() && generation(other) < generation(call);
    let calls = histories.journal.calls.iter().filter(is_earlier);
    calls.flat_map(|earlier| effects(histories, earlier)).collect()
}

/// Whether the ledger applied something for a call inside.
pub(super) fn has_applied(case: &Case<'_>, histories: &Histories) -> bool {
    let mut effects = case.inside.iter().flat_map(|inside| effects(histories, inside));
    effects.any(|effect| effect.verdict == "applied")
}

/// Whether it is known of every call inside what it did.
pub(super) fn is_all_known(case: &Case<'_>) -> bool {
    !case.inside.iter().any(|inside| is_unknown(&inside.answer))
}

/// Whether a call inside failed the last time it was made, or nobody won a race, so that the call around may fail.
pub(super) fn has_failed(case: &Case<'_>) -> bool {
    let last = last(case);
    let states = |plans: &[CallPlan]| -> Vec<&str> {
        plans.iter().filter_map(|plan| last.get(plan.id.as_str())).map(|inside| inside.state()).collect()
    };
    let raced = states(&case.plan.nested.race);
    let unwon = !raced.is_empty() && !raced.contains(&"succeeded");
    states(&case.plan.nested.calls).contains(&"failed") || unwon
}

/// Whether a call was stopped because of the one around it, for the reason that is recorded.
pub(super) fn stops(around: &CallHistory, call: &CallHistory) -> bool {
    let past = &around.past;
    match call.past.cancel_reason.as_deref() {
        Some("the call around it was cancelled") => past.cancel_asked.is_some(),
        // It may have died before it was recorded that it was stopped.
        Some("the call around it took too long") => past.stopped + past.stopped_in_time + past.lost > 0,
        Some("the call around it ended without waiting for it") => past.lost > 0,
        _ => false,
    }
}

/// Each call inside as it was made last, by its id.
fn last<'a>(case: &Case<'a>) -> BTreeMap<&'a str, &'a CallHistory> {
    let mut last: BTreeMap<&str, &CallHistory> = BTreeMap::new();
    for &call in &case.inside {
        let id = call.name.rsplit('/').next().unwrap_or_default();
        let known = last.entry(id).or_insert(call);
        if generation(known) < generation(call) {
            *known = call;
        }
    }
    last
}

fn generation(call: &CallHistory) -> u32 {
    call.nesting.as_ref().map_or(0, |nesting| nesting.generation)
}

/// Every promise that was broken.
pub(super) fn problems(case: &Case<'_>, problems: &mut Vec<String>) {
    let called = &case.recorded.inside.called;
    for (name, calls) in called {
        if !case.plan.nested.all().any(|(planned, _)| planned == name) {
            problems.push(format!("nested: it called {name}, which it was not to"));
        }
        let generations = calls.iter().map(|called| called.generation);
        let in_tries_of_their_own = calls.windows(2).all(|two| two[0].round < two[1].round);
        if !generations.eq(1..=calls.len() as u32) || !in_tries_of_their_own {
            problems.push(format!("nested: it called {name} as {calls:?}"));
        }
    }
    for inside in &case.inside {
        within(case, inside, problems);
    }
    told(case, problems);
}

/// A call inside was called before it was made, is over before the one around it, and is made again only if it failed.
fn within(case: &Case<'_>, call: &CallHistory, problems: &mut Vec<String>) {
    let (around, name) = (case.recorded, &call.name);
    let Some(nesting) = &call.nesting else { return };
    let all = around.inside.called.get(&nesting.name).map(Vec::as_slice).unwrap_or_default();
    let of = |generation: u32| all.iter().find(|called| called.generation == generation);
    match of(nesting.generation) {
        None => problems.push(format!("nested: {name} was made, and it is not recorded that it was called")),
        Some(NestedCalls { at, .. }) if call.started.first().is_some_and(|started| started < at) => {
            problems.push(format!("nested: {name} started before it was called at entry {at}"));
        }
        Some(_) => {}
    }
    if let (Some(end), Some(inside)) = (around.ended.last(), call.ended.last())
        && inside > end
    {
        problems.push(format!("nested: {name} ended at entry {inside}, and the call around it at {end}"));
    }
    let Some(again) = of(nesting.generation + 1) else { return };
    let is_next = |other: &&&CallHistory| {
        let id = |call: &CallHistory| call.name.rsplit('/').next().map(str::to_owned);
        generation(other) == nesting.generation + 1 && id(other) == id(call)
    };
    let stands = matches!(call.state(), "succeeded" | "unknown")
        || (call.state() == "cancelled" && call.detail() != "none");
    if stands && case.inside.iter().any(|other| is_next(&other)) {
        problems.push(format!("nested: {name} is {}, and was made again", call.state()));
    }
    if call.ended.last().is_some_and(|ended| *ended > again.at) {
        problems.push(format!("nested: {name} was not over when it was called again"));
    }
}

/// It continued with their ends; in a race, the first that succeeded won.
fn told(case: &Case<'_>, problems: &mut Vec<String>) {
    if case.plan.nested.is_empty() || case.recorded.state() != "succeeded" || case.recorded.is_resolved() {
        return;
    }
    // Asked after, it was told by the ledger, which knows nothing of the calls inside.
    if case.recorded.past.reconciled.last() == Some(&"landed") {
        return;
    }
    let mut expected = json!({});
    let last = last(case);
    for (id, inside) in &last {
        expected[*id] = json!([inside.state(), inside.receipt()]);
    }
    for (_, plan) in case.plan.nested.all().filter(|(_, plan)| !last.contains_key(plan.id.as_str())) {
        problems.push(format!("nested: it succeeded, and {} was never made", plan.id));
    }
    for plan in &case.plan.nested.calls {
        if last.get(plan.id.as_str()).is_some_and(|inside| inside.state() == "failed") {
            problems.push(format!("nested: it succeeded, and {} failed", plan.id));
        }
    }
    if !case.plan.nested.race.is_empty() {
        let races =
            |inside: &&&CallHistory| inside.nesting.as_ref().is_some_and(|nesting| nesting.name == RACE);
        let won = case.inside.iter().filter(races).filter(|inside| inside.state() == "succeeded");
        let first = won.min_by_key(|inside| inside.ended.last().copied());
        let id = first.and_then(|inside| inside.name.rsplit('/').next());
        expected[RACE] = id.into_iter().map(|id| json!(id)).collect();
    }
    let value = case.recorded.value.as_ref().map_or(&Value::Null, |value| &value[NESTED]);
    if *value != expected {
        problems.push(format!("nested: it went on with {value}, and recorded is {expected}"));
    }
}
