//! The policy in force, as every call of the runtime reads it.

use crate::api::locks::{LockRank, OrderedRwLock};
use crate::session::inner::Inner;
use crate::tools::policy::{self, PolicyRuling};
use crate::tools::registry::Registered;
use serde_json::Value;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use windlass_core::call::JudgedCall;
use windlass_core::policy::{CallFacts, DecidedBy, Judgement, Policy, Ruling};
use windlass_core::time::Timestamp;

/// The policy in force. Until it is loaded, it denies everything.
pub(crate) struct PolicyCell {
    /// The rules that the host declares.
    pub(crate) declared: Option<Value>,
    /// Changes with the policy; [`NOTHING`] while there is nothing in it.
    stamp: AtomicU64,
    version: AtomicU64,
    current: OrderedRwLock<Arc<CurrentPolicy>, { LockRank::Policy as u8 }>,
}

/// The stamp of a policy without rules.
const NOTHING: u64 = 0;
/// The stamp of a policy that is not loaded.
const UNLOADED: u64 = u64::MAX;
/// The stamp of one that cannot be read and has no number.
const BROKEN: u64 = u64::MAX - 1;

/// One version of the policy, compiled.
#[derive(Debug)]
pub(crate) struct CurrentPolicy {
    /// Its number; 0 before there was a policy.
    pub(crate) version: u64,
    pub(crate) state: PolicyState,
    /// The rules that the host declared, as written.
    pub(crate) declared: Vec<Value>,
    /// The rules that were set, as written.
    pub(crate) set: Vec<Value>,
    /// The author of this version.
    pub(crate) by: String,
    /// The time of the change.
    pub(crate) at: Timestamp,
}

/// Whether the rules can be used.
#[derive(Debug)]
pub(crate) enum PolicyState {
    /// They can.
    Sound(Policy),
    /// They cannot, for this reason: everything is denied.
    Broken(String),
}

impl PolicyCell {
    pub(crate) fn new(declared: Option<Value>) -> PolicyCell {
        let unloaded = CurrentPolicy {
            version: 0,
            state: PolicyState::Broken("the policy is not loaded yet".to_string()),
            declared: Vec::new(),
            set: Vec::new(),
            by: String::new(),
            at: Timestamp::default(),
        };
        PolicyCell {
            declared,
            stamp: AtomicU64::new(UNLOADED),
            version: AtomicU64::new(0),
            current: OrderedRwLock::new(Arc::new(unloaded)),
        }
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.stamp() != UNLOADED
    }

    /// A number that changes with the policy; 0 while there is nothing in it.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    /// The version in force, as the start of an attempt records it.
    #[inline]
    pub(crate) fn recorded(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.version())
    }

    /// The number of the version in force; 0 before there was a policy, and until it is loaded.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn current(&self) -> Arc<CurrentPolicy> {
        Arc::clone(&*self.current.read())
    }

    /// Puts a version into force.
    pub(crate) fn install(&self, policy: CurrentPolicy) {
        let has_rules = !matches!(&policy.state, PolicyState::Sound(rules) if rules.is_empty());
        let version = policy.version;
        let mut current = self.current.write();
        *current = Arc::new(policy);
        self.version.store(version, Ordering::Release);
        let stamp = match (has_rules, version) {
            (false, _) => NOTHING,
            (true, 0) => BROKEN,
            (true, version) => version,
        };
        self.stamp.store(stamp, Ordering::Release);
    }
}

impl Inner {
    /// The policy in force.
    pub(crate) fn current_policy(&self) -> Arc<CurrentPolicy> {
        self.policy.current()
    }
}

impl CurrentPolicy {
    /// The ruling on a call of this tool.
    pub(crate) fn judge(&self, tool: &Registered, call: &CallFacts<'_>) -> PolicyRuling {
        match &self.state {
            PolicyState::Sound(policy) => tool.policy_rules(self.version, policy).judge(call),
            PolicyState::Broken(_) => PolicyRuling::Objects(Judgement {
                ruling: Ruling::Deny,
                by: vec![DecidedBy::Broken],
                four_eyes: false,
                untrusted: false,
                expires_ms: None,
                on_expiry: Ruling::Deny,
                reason: Some("the policy cannot be read; an operator must mend it".to_string()),
            }),
        }
    }

    /// The record of a judgement by this version.
    pub(crate) fn judged(&self, judgement: &Judgement, allowed: bool) -> JudgedCall {
        policy::judged(self.version, judgement, allowed)
    }

    /// The record of a call that no rule matches any more.
    pub(crate) fn allowed_by_none(&self) -> JudgedCall {
        JudgedCall { allowed: true, policy: self.version, by: Vec::new(), reason: None }
    }
}
