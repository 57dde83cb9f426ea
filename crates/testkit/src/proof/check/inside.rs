//! The steps of a stepped call, in all three histories.

use super::case::Case;
use crate::proof::history::RecordedStep;
use crate::proof::ledger::Effect;
use crate::proof::tools::{EFFECT, FIRST, ONCE};

/// Its steps in the order of the body, and what each asks the ledger for.
const STEPS: [(&str, &str); 3] = [(FIRST, "keyed"), (ONCE, "once"), (EFFECT, "keyed")];

/// Every promise that was broken.
pub(super) fn problems(case: &Case<'_>, problems: &mut Vec<String>) {
    // The first attempt in which a later step was asked for: whatever is before it in the body was recorded then.
    let mut passed: Option<u32> = None;
    for (step, kind) in STEPS.into_iter().rev() {
        let lines: Vec<&Effect> = case.under(&case.step_key(step)).collect();
        if let Some(again) = lines.iter().find(|line| passed.is_some_and(|passed| line.attempt > passed)) {
            problems.push(format!(
                "R1: the step {step} was told as done, and asked for again at line {}",
                again.number
            ));
        }
        passed = lines.iter().map(|line| line.attempt).chain(passed).min();
        one_step(case, step, kind, &lines, problems);
    }
    let slept = case.recorded.inside.sleeps;
    let succeeded = case.recorded.state() == "succeeded" && !case.recorded.is_resolved();
    if succeeded && slept != u32::from(case.plan.inside.nap) {
        problems.push(format!("R15: it slept {slept} times"));
    }
    told(case, problems);
}

/// Its writes and events happened once.
fn told(case: &Case<'_>, problems: &mut Vec<String>) {
    let inside = &case.recorded.inside;
    let succeeded = case.recorded.state() == "succeeded" && !case.recorded.is_resolved();
    let is_whole =
        |count: u32| if succeeded { count == u32::from(case.plan.inside.step) } else { count <= 1 };
    for (what, count) in [
        ("wrote its pair", inside.pairs),
        ("told of its event", inside.events),
        ("attached its file", inside.attached),
    ] {
        if !is_whole(count) {
            problems.push(format!("R2: it {what} {count} times"));
        }
    }
}

fn one_step(case: &Case<'_>, step: &str, kind: &str, lines: &[&Effect], problems: &mut Vec<String>) {
    // Made again in a later try of the call around it, it has the keys that it had.
    let key = case.step_key(step);
    let earlier = case.earlier.iter().filter(|line| line.key == key);
    let applied = lines.iter().chain(earlier).filter(|line| line.verdict == "applied").count();
    let recorded = case.recorded.inside.steps.get(step).cloned().unwrap_or_default();
    let RecordedStep { done_in, .. } = &recorded;
    if done_in.len() > 1 {
        problems.push(format!("R2: the step {step} is recorded as done {} times", done_in.len()));
    }
    if let Some(done) = done_in.first() {
        if let Some(again) = lines.iter().find(|line| line.attempt > *done) {
            problems.push(format!(
                "R2: the step {step} was recorded in attempt {done}, and asked for again at line {}",
                again.number
            ));
        }
        if applied != 1 {
            problems
                .push(format!("R3: the step {step} is recorded as done, and was applied {applied} times"));
        }
    }
    if applied > 1 || (kind == "once" && lines.len() > 1) {
        problems.push(format!(
            "R3: the step {step} was asked for {} times, and applied {applied} times",
            lines.len()
        ));
    }
    let planned = is_planned(case, step);
    let must_be_done = planned && kind != "once" && case.recorded.state() == "succeeded";
    if must_be_done && !case.recorded.is_resolved() && done_in.is_empty() {
        problems.push(format!("R1: it succeeded, and the step {step} is not recorded"));
    }
    if !planned && !lines.is_empty() {
        problems.push(format!("R3: it has no step {step}, and asked for it"));
    }
}

fn is_planned(case: &Case<'_>, step: &str) -> bool {
    let inside = case.plan.inside;
    match step {
        FIRST => inside.step,
        ONCE => inside.once,
        _ => true,
    }
}

/// Whether something was applied or called, and all that was applied is recorded. A call inside another that is made anew finds
/// applied what it did before, under the same key.
pub(super) fn is_all_recorded(case: &Case<'_>) -> bool {
    let is_applied = |line: &Effect| matches!(line.verdict.as_str(), "applied" | "again");
    let applied = |step: &str| case.under(&case.step_key(step)).any(is_applied);
    let is_recorded =
        |step: &str| case.recorded.inside.steps.get(step).is_some_and(|step| !step.done_in.is_empty());
    let has_called = !case.recorded.inside.called.is_empty();
    (has_called || STEPS.iter().any(|(step, _)| applied(step)))
        && STEPS.iter().all(|(step, _)| !applied(step) || is_recorded(step))
}

/// The ledger request under the key of this line, if the key is one of the call's.
pub(super) fn kind(case: &Case<'_>, effect: &Effect) -> Option<&'static str> {
    STEPS.iter().find(|(step, _)| case.step_key(step) == effect.key).map(|(_, kind)| *kind)
}
