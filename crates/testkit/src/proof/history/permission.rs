//! Facts about the permission of a call.

use windlass_core::call::{ApprovalAnswered, ApprovalAsked, Fact, JudgedCall, Started};

/// A start, or a fact about who permitted one.
#[derive(Clone, Debug)]
pub enum PermissionFact {
    /// An attempt started.
    Started(Started),
    /// It was judged under the policy.
    Judged(JudgedCall),
    /// People were asked.
    Asked(ApprovalAsked),
    /// They answered, or the wait was over.
    Answered(ApprovalAnswered),
}

/// How remembered answers are named in the record.
const REMEMBERED: &str = "remembered ";

impl PermissionFact {
    /// From a fact of a call, if it is one of these.
    pub fn of(fact: &Fact) -> Option<PermissionFact> {
        if let Fact::Started(started) = fact {
            return Some(PermissionFact::Started(*started));
        }
        if let Fact::Judged(judged) = fact {
            return Some(PermissionFact::Judged((**judged).clone()));
        }
        if let Fact::ApprovalAsked(asked) = fact {
            return Some(PermissionFact::Asked((**asked).clone()));
        }
        let Fact::ApprovalAnswered(answered) = fact else { return None };
        Some(PermissionFact::Answered((**answered).clone()))
    }

    /// The answer that was given, if this is one.
    pub fn answered(&self) -> Option<&ApprovalAnswered> {
        if let PermissionFact::Answered(answered) = self { Some(answered) } else { None }
    }

    /// Whether the call was allowed because of a remembered answer.
    pub fn is_remembered(&self) -> bool {
        let PermissionFact::Judged(judged) = self else { return false };
        judged.allowed && judged.by.iter().any(|by| by.starts_with(REMEMBERED))
    }
}
