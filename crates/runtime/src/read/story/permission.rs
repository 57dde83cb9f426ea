//! Sentences about the permission of a call.

use super::shorten;
use crate::api::answer::wall_time;
use std::sync::Arc;
use windlass_core::call::{ApprovalAnswer, ApprovalAnswered, ApprovalAsked, JudgedCall};
use windlass_core::policy::DecidedBy;
use windlass_core::redact::SecretNames;

/// A call was judged.
pub(super) fn judged(fact: &JudgedCall) -> String {
    let verb = if fact.allowed { "allowed" } else { "denied" };
    with_reason(format!("{verb} by {}, policy {}", rule_names(&fact.by), fact.policy), fact.reason.as_deref())
}

/// A person is asked.
pub(super) fn asked(fact: &ApprovalAsked) -> String {
    let (rules, policy, until) = (rule_names(&fact.by), fact.policy, wall_time(fact.parked.wake_at));
    let who = if fact.four_eyes { "a person other than its caller" } else { "a person" };
    let then = if fact.allows_on_expiry { "it runs" } else { "it is denied" };
    let told = format!(
        "{rules} asks {who} whether it may run (policy {policy}, digest {}); without an answer {then} at {until}",
        fact.digest
    );
    with_reason(told, fact.reason.as_deref())
}

/// That was answered.
pub(super) fn answered(fact: &ApprovalAnswered, names: &SecretNames) -> String {
    let who =
        fact.by.as_deref().map_or_else(|| "nobody answered in time, so it was".to_string(), visible_name);
    let told = match &fact.answer {
        ApprovalAnswer::Approved { args: None, .. } => format!("{who} approved"),
        ApprovalAnswer::Approved { args: Some(args), .. } => {
            format!("{who} approved with other arguments: {}", super::arguments(args, names))
        }
        ApprovalAnswer::Denied { reason: None } => format!("{who} denied"),
        ApprovalAnswer::Denied { reason: Some(reason) } => format!("{who} denied: {}", shorten(reason)),
    };
    match &fact.remembered {
        Some(remembered) => format!("{told}; remembered as {remembered}"),
        None => told,
    }
}

/// The names of rules, as a phrase.
pub(crate) fn rule_names(names: &[Arc<str>]) -> String {
    let by_tool = DecidedBy::Tool.to_string();
    let is_rule = |name: &&Arc<str>| ***name != *by_tool;
    let quoted: Vec<String> =
        names.iter().filter(is_rule).map(|name| format!("{:?}", shorten(name))).collect();
    let rules = match quoted.len() {
        0 => None,
        1 => Some(format!("the rule {}", quoted[0])),
        _ => Some(format!("the rules {}", quoted.join(", "))),
    };
    match (rules, quoted.len() < names.len()) {
        (Some(rules), true) => format!("{rules} and the tool itself"),
        (Some(rules), false) => rules,
        (None, true) => "the tool itself".to_string(),
        (None, false) => "the default".to_string(),
    }
}

fn visible_name(name: &str) -> String {
    shorten(name)
}

fn with_reason(told: String, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{told}: {}", shorten(reason)),
        None => told,
    }
}
