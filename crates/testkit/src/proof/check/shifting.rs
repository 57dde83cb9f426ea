//! A call whose tool has another class with every worker: no run follows one that it must not follow, and the world sees
//! one effect at most, whatever the classes were.

use super::case::Case;
use windlass::EffectClass;

/// Every promise that was broken.
pub(super) fn problems(case: &Case<'_>, problems: &mut Vec<String>) {
    let (recorded, past) = (case.recorded, &case.recorded.past);
    if let Some((then, now)) = past.repeated() {
        problems.push(format!("R3: a run as {then} that may have acted was followed by one as {now}"));
    }
    // Under whichever key: that of the call, or of its step.
    let applied = case.effects.iter().filter(|effect| effect.verdict == "applied").count();
    if applied > 1 {
        problems.push(format!("R3: it was applied {applied} times, by {:?}", past.runs));
    }
    let (state, detail) = (recorded.state(), recorded.detail());
    let in_doubt = past.runs.iter().any(|run| run.in_doubt);
    let has_run = !past.runs.is_empty();
    let fits = match (state, detail) {
        ("succeeded", _) => {
            let landed = past.reconciled.last() == Some(&"landed");
            let reads = past.runs.last().is_some_and(|run| run.class == EffectClass::Read);
            has_run && (applied == 1 || reads || landed)
        }
        ("unknown", _) | ("cancelled", "unknown") => in_doubt || !recorded.inside.steps.is_empty(),
        ("cancelled", "none") => applied == 0,
        ("cancelled", "landed") => applied == 1,
        ("failed", "poison") => recorded.deaths > 0,
        ("failed", "tool_failed" | "did_not_happen" | "retry_too_late") => has_run,
        _ => false,
    };
    if !fits {
        problems.push(format!("R3: it must not be {state} {detail}, by {past:?}"));
    }
}
