//! Calls about which people are asked: what was never approved has no effect, what ran has the approved arguments, and what was
//! acknowledged is recorded.

use super::Histories;
use super::case::Case;
use crate::proof::history::PermissionFact;
use crate::proof::kind::Class;
use crate::proof::plan::PlannedAnswer;
use serde_json::Value;
use std::collections::BTreeMap;
use windlass::sessions::LOCAL;
use windlass_core::call::{ApprovalAnswer, ApprovalAnswered};

/// The permission of a call, as far as its entries were read.
#[derive(Default)]
struct ReadPermission<'a> {
    /// The version of the policy under which it was asked about last.
    asked_under: Option<u64>,
    answered: Vec<&'a ApprovalAnswered>,
    /// Whether the question asked last was answered with yes.
    is_approved: bool,
    /// Whether a remembered answer was given.
    is_remembered: bool,
}

/// Every promise that was broken.
pub(super) fn problems(case: &Case<'_>, histories: &Histories, problems: &mut Vec<String>) {
    let answer = case.plan.answer;
    let is_asked = !matches!(answer, PlannedAnswer::Unruled | PlannedAnswer::Unasked);
    let texts = texts(histories);
    let mut read = ReadPermission::default();
    for (number, fact) in &case.recorded.permission {
        match fact {
            PermissionFact::Asked(asked) => {
                read.asked_under = Some(asked.policy);
                (read.is_approved, read.is_remembered) = (false, false);
            }
            PermissionFact::Answered(answered) => {
                read.answered.push(answered);
                read.is_approved = matches!(answered.answer, ApprovalAnswer::Approved { .. });
            }
            PermissionFact::Judged(_) => read.is_remembered = fact.is_remembered(),
            PermissionFact::Started(started) => {
                let may_start = read.is_approved || (read.is_remembered && answer == PlannedAnswer::Remember);
                if is_asked && !may_start {
                    problems.push(format!("R6: it started at entry {number}, and nobody had approved it"));
                }
                let text = |version: Option<u64>| version.and_then(|version| texts.get(&version));
                let (then, now) = (text(read.asked_under), text(started.policy.map(u64::from)));
                if answer == PlannedAnswer::Changes && then != now {
                    problems.push(format!(
                        "R6: it was approved under {then:?}, and started at entry {number} under {now:?}"
                    ));
                }
            }
        }
    }
    let never = read.answered.is_empty() && !read.is_remembered && is_asked;
    if never && !case.effects.is_empty() {
        problems.push("R6: it took effect, and nobody has approved it".to_owned());
    }
    who_answered(case, histories, &read.answered, problems);
}

/// Answers are given by those who may give them, by nobody only where that is planned, and those acknowledged are recorded.
fn who_answered(
    case: &Case<'_>,
    histories: &Histories,
    answered: &[&ApprovalAnswered],
    problems: &mut Vec<String>,
) {
    let call = &case.recorded.answer["call"];
    let of_it = |said: &&Value| said["call"] == *call;
    let deciding = histories.told.iter().flat_map(|told| &told.deciding).filter(of_it);
    for answered in answered {
        if !deciding.clone().any(|said| is_said(answered, said)) && answered.by.is_some() {
            problems.push(format!("R6: {answered:?} is recorded, and nobody said so"));
        }
        if answered.by.is_none() && case.plan.answer != PlannedAnswer::LapseAllowed {
            problems.push(format!("R6: {answered:?} is recorded, and somebody had to say so"));
        }
        if answered.by.as_deref() == Some(LOCAL) {
            problems.push("R6: it was approved by its own caller".to_owned());
        }
    }
    // A rule that changed, a cancel, or the answer to another call that is remembered may come before the answer is heard.
    let may_be_late = case.plan.answer == PlannedAnswer::Changes
        || case.recorded.past.cancel_asked.is_some()
        || case.recorded.permission.iter().any(|(_, fact)| fact.is_remembered());
    let decided = histories.told.iter().flat_map(|told| &told.decided).filter(of_it);
    for said in decided.filter(|_| !may_be_late) {
        if !answered.iter().any(|answered| is_said(answered, said)) {
            problems.push(format!("R6: {said} was acknowledged, and is not recorded: {answered:?}"));
        }
    }
}

fn is_said(answered: &ApprovalAnswered, said: &Value) -> bool {
    let by = answered.by.as_deref() == said["by"].as_str();
    by && match &answered.answer {
        ApprovalAnswer::Approved { args, .. } => {
            let args = args.as_deref().and_then(|args| serde_json::from_str::<Value>(args).ok());
            said["approve"] == true && args.unwrap_or_default() == said["args"]
        }
        ApprovalAnswer::Denied { .. } => said["approve"] == false,
    }
}

/// Whether it may have ended as denied.
pub(super) fn may_be_denied(case: &Case<'_>) -> bool {
    let mut answers = case.recorded.permission.iter().filter_map(|(_, fact)| fact.answered());
    let by_a_person = answers.any(|answered| matches!(answered.answer, ApprovalAnswer::Denied { .. }));
    // Whether its grant admits it is checked with the uses that are recorded.
    if case.plan.grant.is_some() {
        return true;
    }
    match case.plan.answer {
        PlannedAnswer::Deny | PlannedAnswer::Race => by_a_person,
        PlannedAnswer::Lapse => case.effects.is_empty(),
        PlannedAnswer::Unruled
        | PlannedAnswer::Unasked
        | PlannedAnswer::Approve
        | PlannedAnswer::Edit
        | PlannedAnswer::Remember
        | PlannedAnswer::LapseAllowed
        | PlannedAnswer::FourEyes
        | PlannedAnswer::Changes => false,
    }
}

/// Whether a later attempt may have been denied, after earlier ones that may have had effects: such a call ends as unknown, since
/// `denied` says that nothing happened.
pub(super) fn may_be_denied_later(case: &Case<'_>) -> bool {
    may_be_denied(case) && case.recorded.attempts > 0 && case.class() != Class::Read
}

/// The arguments that it must run with: those of its approver, if they were edited.
pub(super) fn approved_args(case: &Case<'_>) -> Value {
    let answers = case.recorded.permission.iter().rev().filter_map(|(_, fact)| fact.answered());
    let edited = |answered: &ApprovalAnswered| match &answered.answer {
        ApprovalAnswer::Approved { args: Some(args), .. } => serde_json::from_str(args).ok(),
        ApprovalAnswer::Approved { args: None, .. } | ApprovalAnswer::Denied { .. } => None,
    };
    answers.into_iter().find_map(edited).unwrap_or_else(|| case.plan.args())
}

/// The text of the rule that changes, in each version of the policy.
fn texts(histories: &Histories) -> BTreeMap<u64, Value> {
    let said = histories.told.iter().rev().find_map(|told| told.policies.last());
    let versions = said.and_then(Value::as_array).into_iter().flatten();
    versions.filter_map(|version| Some((version[0].as_u64()?, version[1].clone()))).collect()
}
