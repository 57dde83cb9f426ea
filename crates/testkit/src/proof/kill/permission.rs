//! Counts of a run about the permission of calls.

use crate::proof::check::Histories;
use crate::proof::history::PermissionFact;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use windlass_core::call::ApprovalAnswer;

/// Questions about calls, and what became of them.
#[derive(Clone, Debug, Default)]
pub struct PermissionCounts {
    /// Questions, and those about a call that had been asked about before.
    pub asked: u64,
    /// See above.
    pub asked_again: u64,
    /// Approvals by people, and those of them with other arguments.
    pub approved: u64,
    /// See above.
    pub edited: u64,
    /// Denials by people.
    pub denied: u64,
    /// Calls that ended as denied because nobody answered, and questions that were answered with yes because of that.
    pub lapsed: u64,
    /// See above.
    pub lapsed_allowed: u64,
    /// Starts by a remembered answer.
    pub remembered: u64,
    /// Starts that were taken back.
    pub withheld: u64,
    /// Answers that were acknowledged.
    pub acknowledged: u64,
    /// Versions of the policy.
    pub policies: u64,
    /// Calls that started by a grant, those of them that started again, and calls whose grant refused them.
    pub granted: u64,
    /// See above.
    pub granted_again: u64,
    /// See above.
    pub ungranted: u64,
    /// Revocations that were acknowledged.
    pub revoked: u64,
}

impl PermissionCounts {
    /// Adds those of a trial.
    pub fn add(&mut self, histories: &Histories) {
        for call in &histories.journal.calls {
            let (mut asked, mut answered) = (0, 0);
            for (_, fact) in &call.permission {
                match fact {
                    PermissionFact::Asked(_) => asked += 1,
                    PermissionFact::Answered(given) => {
                        answered += 1;
                        match (&given.answer, &given.by) {
                            (ApprovalAnswer::Approved { .. }, None) => self.lapsed_allowed += 1,
                            (ApprovalAnswer::Approved { args, .. }, Some(_)) => {
                                self.approved += 1;
                                self.edited += u64::from(args.is_some());
                            }
                            (ApprovalAnswer::Denied { .. }, _) => self.denied += 1,
                        }
                    }
                    PermissionFact::Judged(_) => self.remembered += u64::from(fact.is_remembered()),
                    PermissionFact::Started(_) => {}
                }
            }
            self.asked += asked;
            self.asked_again += asked.saturating_sub(1);
            self.lapsed += u64::from(call.state() == "denied" && answered == 0);
            self.withheld += u64::from(call.past.withheld);
            if call.answer["grant"].is_string() {
                self.granted += u64::from(!call.started.is_empty());
                self.granted_again += u64::from(call.started.len() > 1);
                self.ungranted += u64::from(call.state() == "denied");
            }
        }
        let decided: BTreeSet<String> =
            histories.told.iter().flat_map(|told| &told.decided).map(Value::to_string).collect();
        self.acknowledged += decided.len() as u64;
        self.revoked += histories.told.iter().map(|told| told.revoked.len() as u64).sum::<u64>();
        let said = histories.told.iter().rev().find_map(|told| told.policies.last());
        self.policies += said.and_then(Value::as_array).map_or(0, |versions| versions.len() as u64);
    }

    /// As part of a line of the results.
    pub fn json(&self) -> Value {
        json!({
            "asked": self.asked, "asked_again": self.asked_again, "approved": self.approved, "edited": self.edited,
            "denied": self.denied, "lapsed": self.lapsed, "lapsed_allowed": self.lapsed_allowed,
            "remembered": self.remembered, "withheld": self.withheld, "acknowledged": self.acknowledged,
            "policies": self.policies, "granted": self.granted, "granted_again": self.granted_again,
            "ungranted": self.ungranted, "revoked": self.revoked,
        })
    }
}
