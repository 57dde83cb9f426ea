//! External waits of a call: answers, questions, signals, results of tools that the client runs, connections.

use super::Histories;
use super::case::Case;
use crate::proof::kind::Class;
use crate::proof::plan::Connects;
use crate::proof::tools::{ANSWER, QUESTION, SIGNAL, SIGNALS};
use serde_json::Value;
use windlass_core::operation::CLIENT;

/// Every promise that was broken.
pub(super) fn problems(case: &Case<'_>, histories: &Histories, problems: &mut Vec<String>) {
    let inside = case.plan.inside;
    answers(case, histories, ANSWER, inside.answer, problems);
    answers(case, histories, QUESTION, inside.question, problems);
    answers(case, histories, CLIENT, case.class() == Class::Client, problems);
    let (recorded, asked) = (case.recorded, case.recorded.inside.questions);
    let must_ask = inside.question && recorded.state() == "succeeded" && !recorded.is_resolved();
    if asked > u32::from(inside.question) || (must_ask && asked != 1) {
        problems.push(format!("R12: it asked its question {asked} times"));
    }
    signals(case, histories, problems);
    connections(case, histories, problems);
}

/// Every acknowledged signal came once, in order. The client sends no signal before the last one is
/// acknowledged, so a missing one before another was lost.
fn signals(case: &Case<'_>, histories: &Histories, problems: &mut Vec<String>) {
    let (recorded, came) = (case.recorded, &case.recorded.inside.signals);
    let expected: Vec<Value> = (1..=came.len() as u64).map(Value::from).collect();
    let most = if case.plan.inside.signal { SIGNALS + 1 } else { 0 };
    if *came != expected || came.len() as u64 > most {
        problems.push(format!("R12: the signals that came are {came:?}"));
    }
    let told = histories.told.iter().flat_map(|told| &told.signalled);
    let acknowledged = told.filter(|(call, _)| *call == recorded.name).map(|(_, number)| *number).max();
    let succeeded = recorded.state() == "succeeded" && !recorded.is_resolved();
    if case.plan.inside.signal && succeeded {
        let received = recorded.value.as_ref().map(|value| &value[SIGNAL]);
        let first = Value::Array(expected.into_iter().take(SIGNALS as usize).collect());
        if received != Some(&first) || (came.len() as u64) < SIGNALS {
            problems
                .push(format!("R12: it received {received:?}, and {came:?} came ({acknowledged:?} sent)"));
        }
    }
}

/// Every acknowledged answer reached the call, once.
fn answers(case: &Case<'_>, histories: &Histories, name: &str, waits: bool, problems: &mut Vec<String>) {
    let recorded = case.recorded;
    let given = recorded.inside.answers.get(name).map(Vec::as_slice).unwrap_or_default();
    if given.len() > 1 {
        problems.push(format!("R12: it was answered {} times as {name}", given.len()));
    }
    let told = histories.told.iter().flat_map(|told| &told.answered);
    let of_it = told.filter(|answered| answered.call == recorded.name && answered.name == name);
    let acknowledged: Vec<&Value> = of_it.map(|answered| &answered.said).collect();
    for said in &acknowledged {
        if given.first().is_some_and(|first| first != *said) || acknowledged[0] != *said {
            problems.push(format!("R12: {said} was acknowledged, and is not what it was answered as {name}"));
        }
    }
    if waits && recorded.state() == "succeeded" && !recorded.is_resolved() {
        let value = recorded.value.as_ref().map(|value| if name == CLIENT { value } else { &value[name] });
        if given.is_empty() || value != given.first() {
            problems.push(format!("R12: it went on with {value:?}, and was answered {given:?} as {name}"));
        }
    }
}

/// An attempt that says what it needs has no effect; the call goes on once that is connected, which it is told once.
fn connections(case: &Case<'_>, histories: &Histories, problems: &mut Vec<String>) {
    let (recorded, past) = (case.recorded, &case.recorded.past);
    let ran = case.effects.iter().find(|effect| {
        past.unconnected_in.contains(&effect.attempt) && !case.may_be_unrecorded(histories, effect)
    });
    if let Some(effect) = ran {
        let (attempt, line) = (effect.attempt, effect.number);
        problems.push(format!("R3: attempt {attempt} needed a connection, and had an effect at line {line}"));
    }
    if past.connected.len() > 1 || past.connected.len() > past.unconnected_in.len() {
        problems.push(format!("R12: it was connected {} times", past.connected.len()));
    }
    let (needs, made) = (case.plan.connects != Connects::Nothing, case.plan.connects == Connects::Made);
    if past.connected.iter().any(|connected| *connected != made)
        || (!needs && !past.unconnected_in.is_empty())
    {
        problems.push(format!("R12: it was connected as {:?}", past.connected));
    }
    let mut told = histories.told.iter().flat_map(|told| &told.connected);
    let acknowledged = told.any(|(call, _)| *call == recorded.name);
    let cancelled = past.cancel_asked.is_some();
    if acknowledged && past.connected.is_empty() && !cancelled {
        problems.push("R12: that it is connected was acknowledged, and it was not told".to_owned());
    }
    if case.plan.connects == Connects::Declined && !case.effects.is_empty() {
        problems.push("R3: its connection was declined, and it had an effect".to_owned());
    }
    let succeeded = recorded.state() == "succeeded" && !recorded.is_resolved();
    // What only reads may have said so in an attempt that nobody knows of.
    if made && succeeded && case.class() != Class::Read && past.connected.is_empty() {
        problems.push("R12: it succeeded, and was never connected".to_owned());
    }
}
