//! The rules of the policy for one tool, and what they say about a call of it.

use std::sync::{Arc, OnceLock};
use windlass_core::call::JudgedCall;
use windlass_core::policy::{CallFacts, Judgement, PolicyRule, RuleDecision, Ruling, ToolRules};

/// The finding of a policy about one call.
pub(crate) enum PolicyRuling {
    /// It may run, because of these rules; `None` if no rule says so.
    Allows(Option<Arc<JudgedCall>>),
    /// It must not run, or a person must be asked.
    Objects(Judgement),
}

/// The record of a judgement by this version of the policy.
pub(crate) fn judged(policy: u64, judgement: &Judgement, allowed: bool) -> JudgedCall {
    let by = judgement.by.iter().map(|by| by.to_string().into()).collect();
    JudgedCall { allowed, policy, by, reason: judgement.reason.as_deref().map(Into::into) }
}

/// The rules of one version of the policy that can match calls of one tool.
pub(crate) struct ToolPolicy {
    pub(crate) version: u64,
    pub(crate) rules: ToolRules,
    /// The rules by which a call was allowed first, and the record of that: most calls of a tool are allowed by the same ones.
    allowed: OnceLock<(Vec<Arc<PolicyRule>>, Arc<JudgedCall>)>,
}

impl ToolPolicy {
    pub(crate) fn new(version: u64, rules: ToolRules) -> ToolPolicy {
        ToolPolicy { version, rules, allowed: OnceLock::new() }
    }

    /// The ruling on a call of the tool.
    pub(crate) fn judge(&self, call: &CallFacts<'_>) -> PolicyRuling {
        let decision = self.rules.decide(call);
        match decision.ruling {
            Ruling::Ask | Ruling::Deny => PolicyRuling::Objects(decision.judgement()),
            Ruling::Allow if decision.rules.is_empty() => PolicyRuling::Allows(None),
            Ruling::Allow => PolicyRuling::Allows(Some(self.allowed_by(&decision))),
        }
    }

    /// The record of an allowed call.
    fn allowed_by(&self, decision: &RuleDecision<'_>) -> Arc<JudgedCall> {
        let record = || Arc::new(judged(self.version, &decision.judgement(), true));
        let first = || (decision.rules.iter().map(Arc::clone).collect(), record());
        let (rules, known) = self.allowed.get_or_init(first);
        if decision.rules.iter().map(Arc::as_ptr).eq(rules.iter().map(Arc::as_ptr)) {
            return Arc::clone(known);
        }
        record()
    }
}
