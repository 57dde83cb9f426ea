//! What goes on without its caller, and what is told of it: the inboxes of sessions, and calls at a time.

use super::Histories;
use crate::proof::history::{Recorded, SCHEDULE, Taken};
use crate::proof::plan::SchedulePlan;
use std::collections::BTreeSet;
use windlass::Wake;

/// The kind of the notice that tells of an end, and of that which tells of a question.
const ENDED: &str = "task_ended";
const ASKS: &str = "task_asks";

/// Every promise that was broken.
pub(super) fn problems(histories: &Histories, found: &mut Vec<String>) {
    for call in &histories.journal.calls {
        told_of_its_end(histories, call, found);
        told_of_its_question(histories, call, found);
    }
    for (_, _, plan) in histories.plan.calls().filter(|(_, _, plan)| plan.task.is_some()) {
        let id = format!("/{}", plan.id);
        let other = |call: &&Recorded| call.name.ends_with(&id) && call.task != plan.task;
        for call in histories.journal.calls.iter().filter(other) {
            found.push(format!("task: {} is to be {:?}, and is {:?}", call.name, plan.task, call.task));
        }
    }
    gone_is_gone(histories, found);
    for plan in &histories.plan.schedules {
        fired_once(histories, plan, found);
    }
}

/// The calls that a schedule has started.
pub(super) fn scheduled(histories: &Histories) -> impl Iterator<Item = (&SchedulePlan, &Recorded)> {
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
fn notices<'a>(histories: &'a Histories, call: &Recorded, kind: &str) -> BTreeSet<&'a str> {
    let taken = histories.told.iter().flat_map(|told| &told.taken).chain(&histories.journal.notices);
    let of_it = taken.filter(|notice| notice.kind == kind && call.answer["call"] == notice.task.as_str());
    of_it.map(|notice| notice.id.as_str()).collect()
}

/// Whether a notice is there, or somebody was about to acknowledge it.
fn is_kept(histories: &Histories, id: &str) -> bool {
    let left = histories.journal.notices.iter().any(|notice| notice.id == id);
    left || histories.told.iter().any(|told| told.acknowledging.iter().any(|gone| gone == id))
}

/// Of the end of a task its session is told once, under one id, unless nobody is to be told; of other calls never.
fn told_of_its_end(histories: &Histories, call: &Recorded, found: &mut Vec<String>) {
    let told = notices(histories, call, ENDED);
    let expected = usize::from(call.task.is_some_and(|wake| wake != Wake::Silent) && !call.ended.is_empty());
    if told.len() != expected {
        let (name, task) = (&call.name, &call.task);
        found.push(format!("notice: {name} is {task:?}, and its end is told under {told:?}"));
    }
    for id in told.iter().filter(|id| !is_kept(histories, id)) {
        found.push(format!("notice: {id} of {} is gone, and nobody acknowledged it", call.name));
    }
}

/// Of a question of a task its session is told once, if it is to be told of what a task does.
fn told_of_its_question(histories: &Histories, call: &Recorded, found: &mut Vec<String>) {
    let told = notices(histories, call, ASKS).len();
    let expected = if call.task == Some(Wake::OnActivity) { call.inside.questions } else { 0 };
    if told != expected as usize {
        found.push(format!(
            "notice: {} asked {} times, and that is told {told} times",
            call.name, call.inside.questions
        ));
    }
}

/// What was acknowledged is taken by nobody after that; what tells of an end is taken after it.
fn gone_is_gone(histories: &Histories, found: &mut Vec<String>) {
    let mut gone: BTreeSet<&str> = BTreeSet::new();
    for told in &histories.told {
        for Taken { id, .. } in told.taken.iter().filter(|taken| gone.contains(taken.id.as_str())) {
            found.push(format!("notice: {id} was acknowledged, and worker {} got it again", told.worker));
        }
        gone.extend(told.acknowledged.iter().map(String::as_str));
        let open = told.taken.iter().filter(|taken| taken.kind == ENDED && !is_end(&taken.state));
        found.extend(
            open.map(|taken| format!("notice: {} tells of an end, and it is {}", taken.task, taken.state)),
        );
    }
    let back = histories.journal.notices.iter().filter(|notice| gone.contains(notice.id.as_str()));
    found.extend(back.map(|notice| format!("notice: {} was acknowledged, and is there", notice.id)));
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
