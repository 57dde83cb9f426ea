//! Calls that continue without callers, and their notices: the inboxes of sessions, and scheduled calls.

use super::Histories;
use crate::proof::agent::LEASE_MS;
use crate::proof::history::{CallHistory, RecordedBatch, SCHEDULE, Taken};
use crate::proof::plan::SchedulePlan;
use std::collections::BTreeSet;
use windlass::tasks::Wake;

/// The kinds of notices that tell of an end: of a task, and of a call whose caller was answered before.
const ENDED: [&str; 2] = ["task_ended", "call_ended"];
/// The kind of the notice that tells of a question.
const ASKS: &str = "task_asks";
const US_PER_MS: u64 = 1_000;

/// Every promise that was broken.
pub(super) fn problems(histories: &Histories, found: &mut Vec<String>) {
    let silent = |batch: &&RecordedBatch| batch.wake == Wake::Silent;
    let silent = histories.journal.batches.iter().filter(silent).flat_map(|batch| &batch.calls);
    let silent: BTreeSet<&str> = silent.map(String::as_str).collect();
    for call in &histories.journal.calls {
        told_of_its_end(histories, call, silent.contains(call.name.as_str()), found);
        told_of_its_question(histories, call, found);
    }
    for (_, _, plan) in histories.plan.calls().filter(|(_, _, plan)| plan.task.is_some()) {
        let id = format!("/{}", plan.id);
        let other = |call: &&CallHistory| call.name.ends_with(&id) && call.task != plan.task;
        for call in histories.journal.calls.iter().filter(other) {
            found.push(format!("task: {} is to be {:?}, and is {:?}", call.name, plan.task, call.task));
        }
    }
    gone_is_gone(histories, found);
    recorded_before_it_was_told(histories, found);
    leases_hold(histories, found);
    for plan in &histories.plan.schedules {
        fired_once(histories, plan, found);
    }
}

/// The calls that a schedule has started.
pub(super) fn scheduled(histories: &Histories) -> impl Iterator<Item = (&SchedulePlan, &CallHistory)> {
    histories.plan.schedules.iter().flat_map(|plan| {
        let place = format!("{}{SCHEDULE}{}/", plan.session, plan.id);
        histories
            .journal
            .calls
            .iter()
            .filter(move |call| call.name.starts_with(&place))
            .map(move |call| (plan, call))
    })
}

/// Ids of the notices of this kind that tell of a call: those that were taken, and those that are left.
fn notices<'a>(histories: &'a Histories, call: &CallHistory, kinds: &[&str]) -> BTreeSet<&'a str> {
    let taken = histories.told.iter().flat_map(|told| &told.taken).chain(&histories.journal.notices);
    let of_it = taken.filter(|notice| {
        kinds.contains(&notice.kind.as_str()) && call.answer["call"] == notice.task.as_str()
    });
    of_it.map(|notice| notice.id.as_str()).collect()
}

/// Whether a notice is there, or somebody was about to acknowledge it.
fn is_kept(histories: &Histories, id: &str) -> bool {
    let left = histories.journal.notices.iter().any(|notice| notice.id == id);
    left || histories.told.iter().any(|told| told.acknowledging.iter().any(|gone| gone == id))
}

/// Of the end of a task, and of a call whose caller was answered before, its session is told once, under one id, unless nobody is
/// to be told; of other calls never.
fn told_of_its_end(histories: &Histories, call: &CallHistory, is_silent: bool, found: &mut Vec<String>) {
    let told = notices(histories, call, &ENDED);
    let is_told = match call.task {
        Some(wake) => wake != Wake::Silent,
        None => call.provisional && !is_silent,
    };
    if told.len() != usize::from(is_told && !call.ended.is_empty()) {
        let CallHistory { name, task, provisional, .. } = call;
        found.push(match task {
            Some(_) => format!("notice: {name} is {task:?}, and its end is told under {told:?}"),
            None => format!(
                "notice: R23: {name} was answered before its end: {provisional}, and its end is told under {told:?}"
            ),
        });
    }
    for id in told.iter().filter(|id| !is_kept(histories, id)) {
        found.push(format!("notice: {id} of {} is gone, and nobody acknowledged it", call.name));
    }
}

/// A reply before a call's end is recorded as such.
fn recorded_before_it_was_told(histories: &Histories, found: &mut Vec<String>) {
    let calls = &histories.journal.calls;
    for handle in histories.told.iter().flat_map(|told| &told.provisional) {
        let call = calls.iter().find(|call| call.answer["call"] == handle.as_str());
        if !call.is_some_and(|call| call.provisional || call.task.is_some()) {
            let name = call.map_or("a call that is not there", |call| &call.name);
            found.push(format!(
                "R23: a client was told of {name} before it had ended, and that is not recorded"
            ));
        }
    }
}

/// Of a question of a task its session is told once, if it is to be told of what a task does.
fn told_of_its_question(histories: &Histories, call: &CallHistory, found: &mut Vec<String>) {
    let told = notices(histories, call, &[ASKS]).len();
    let expected = if call.task == Some(Wake::OnActivity) { call.inside.questions } else { 0 };
    if told != expected as usize {
        found.push(format!(
            "notice: {} asked {} times, and that is told {told} times",
            call.name, call.inside.questions
        ));
    }
}

/// An acknowledged notice is never taken again; a notice of an end is taken after it.
fn gone_is_gone(histories: &Histories, found: &mut Vec<String>) {
    let mut gone: BTreeSet<&str> = BTreeSet::new();
    for told in &histories.told {
        for Taken { id, .. } in told.taken.iter().filter(|taken| gone.contains(taken.id.as_str())) {
            found.push(format!("notice: {id} was acknowledged, and worker {} got it again", told.worker));
        }
        gone.extend(told.acknowledged.iter().map(String::as_str));
        let open =
            told.taken.iter().filter(|taken| ENDED.contains(&taken.kind.as_str()) && !is_end(&taken.state));
        found.extend(
            open.map(|taken| format!("notice: {} tells of an end, and it is {}", taken.task, taken.state)),
        );
    }
    let back = histories.journal.notices.iter().filter(|notice| gone.contains(notice.id.as_str()));
    found.extend(back.map(|notice| format!("notice: {} was acknowledged, and is there", notice.id)));
}

/// A worker does not get a notice again before its lease is over, unless it returned it, whatever its wall clock does.
fn leases_hold(histories: &Histories, found: &mut Vec<String>) {
    for told in &histories.told {
        let kept = told.taken.iter().filter(|taken| !told.requeued.contains(&taken.id));
        for (place, first) in kept.clone().enumerate() {
            let again = kept.clone().skip(place + 1).find(|taken| taken.id == first.id);
            let early = again.filter(|again| again.within_us.1 < first.within_us.0 + LEASE_MS * US_PER_MS);
            if let Some(again) = early {
                let after_us = again.within_us.1.saturating_sub(first.within_us.0);
                found.push(format!(
                    "notice: {} was lent for {LEASE_MS} ms, and worker {} got it again after {after_us} us",
                    first.id, told.worker
                ));
            }
        }
    }
}

fn is_end(state: &str) -> bool {
    matches!(state, "succeeded" | "failed" | "denied" | "cancelled" | "unknown")
}

/// A call at a time is started once, whoever was there then.
fn fired_once(histories: &Histories, plan: &SchedulePlan, found: &mut Vec<String>) {
    let acknowledged = histories.told.iter().any(|told| told.scheduled.contains(&plan.id));
    let times = scheduled(histories).filter(|(of, _)| of.id == plan.id).count();
    if !acknowledged || times != 1 {
        found.push(format!("R13: the schedule {} has started {times} calls", plan.id));
    }
}
