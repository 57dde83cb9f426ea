//! How a call was permitted, and where its result comes from.

use schemars::JsonSchema;
use serde::Serialize;
use windlass_core::call::{ApprovalAnswer, Call};
use windlass_core::tool::Origin;

/// How a call was permitted or denied.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Permission")]
pub struct PermissionView<'a> {
    /// `allow`, `ask` or `deny`.
    pub ruling: &'static str,
    /// The rules that decided, by name.
    pub rules: Vec<&'a str>,
    /// The version of the policy.
    pub policy: u64,
    /// The reason that the rules give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// A person's answer, if one was asked and has answered: `approve` or `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<&'static str>,
    /// The principal that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'a str>,
    /// Whether a person gave it other arguments.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub edited: bool,
}

impl PermissionView<'_> {
    /// The permission of a call, if a rule or a person was asked.
    pub fn of(call: &Call) -> Option<PermissionView<'_>> {
        let known = call.permission.as_deref()?;
        let edited = known.edited.is_some();
        // An approval that was asked for later than the last judgement decides.
        if let Some(asked) =
            known.asked.as_ref().filter(|_| known.judged.as_ref().is_none_or(|judged| judged.allowed))
        {
            let answered = call.approval_answer();
            let decision = answered.map(|answered| match answered.answer {
                ApprovalAnswer::Approved { .. } => "approve",
                ApprovalAnswer::Denied { .. } => "deny",
            });
            return Some(PermissionView {
                ruling: "ask",
                rules: names(&asked.by),
                policy: asked.policy,
                reason: asked.reason.as_deref(),
                decision,
                by: answered.and_then(|answered| answered.by.as_deref()),
                edited,
            });
        }
        let judged = known.judged.as_ref()?;
        Some(PermissionView {
            ruling: if judged.allowed { "allow" } else { "deny" },
            rules: names(&judged.by),
            policy: judged.policy,
            reason: judged.reason.as_deref(),
            decision: None,
            by: None,
            edited,
        })
    }
}

fn names(by: &[std::sync::Arc<str>]) -> Vec<&str> {
    by.iter().map(|name| &**name).collect()
}

/// The origin of a call's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Origin")]
pub struct OriginView {
    /// The source of the tool.
    pub source: &'static str,
    /// Whether the result may hold private data.
    pub private: bool,
    /// Whether strangers may have written some of it.
    pub untrusted: bool,
}

impl OriginView {
    /// The origin, unless nothing is said of it.
    pub fn of(origin: Origin) -> Option<OriginView> {
        let source = origin.source().filter(|_| origin.0 != 0)?;
        let (private, untrusted) = (origin.is_private(), origin.is_untrusted());
        Some(OriginView { source: source.as_str(), private, untrusted })
    }
}
