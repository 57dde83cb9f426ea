//! The wire format of grants.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass::RetryRule;
use windlass::grants::{Grant, GrantNarrowing, GrantTerms, IssuedGrant, NewGrantCopy};
use windlass::time::{Timestamp, wall_time};

/// A grant to issue.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "GrantRequest")]
pub struct GrantBody {
    /// The session it is issued to, which must exist.
    pub session: String,
    /// The tool: its name or its stable id.
    pub tool: String,
    /// The source that the tool must have, such as `registered`, `declared` or `mcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The digest of the contract that the tool must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<String>,
    /// A value for the tool, which nobody else looks at and which is never shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Value>,
    /// Conditions on the arguments, as in an `allow` rule of the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Value>,
    /// How long it lasts, in seconds; by default as long as its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
    /// How many calls may start by it; by default any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u64>,
    /// The retry rule of its calls, instead of the tool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<GrantRetry>,
}

/// The retry rule of a grant's calls.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GrantRetry {
    /// The maximum number of attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The longest wait before the second attempt, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_ms: Option<u64>,
    /// The longest wait overall, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_ms: Option<u64>,
}

impl GrantBody {
    /// The terms, from this time on.
    pub fn terms(self, now: Timestamp) -> GrantTerms {
        let GrantBody { tool, source, contract, binding, args, expires_in_s, uses, retry, .. } = self;
        let retry =
            retry.map(|GrantRetry { attempts, base_ms, cap_ms }| RetryRule { attempts, base_ms, cap_ms });
        let expires_at = expires_in_s.map(|seconds| after(now, seconds));
        GrantTerms { tool, source, contract, binding, args, expires_at, uses, retry }
    }
}

/// A narrower copy of a grant.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "GrantCopyRequest")]
pub struct AttenuateBody {
    /// The session that gets it: a child of the grant's session; by default the grant's session itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// More conditions on the arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Value>,
    /// How long it lasts, in seconds; by default and at most as long as the grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
    /// The uses that it takes out of the grant; needed if the grant counts its uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<u64>,
}

impl AttenuateBody {
    /// The copy, from this time on.
    pub fn copy(self, now: Timestamp) -> NewGrantCopy {
        let AttenuateBody { session, args, expires_in_s, uses } = self;
        let expires_at = expires_in_s.map(|seconds| after(now, seconds));
        NewGrantCopy { session, narrowing: GrantNarrowing { args, expires_at, uses } }
    }
}

fn after(now: Timestamp, seconds: u64) -> i64 {
    now.0.saturating_add(i64::try_from(seconds.saturating_mul(1_000_000)).unwrap_or(i64::MAX))
}

/// The grants to list.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantQuery {
    /// Only those of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// At most this many; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Start after this one: `next` of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A grant, without its token and its binding.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Grant")]
pub struct GrantView {
    /// Its id.
    pub id: String,
    /// The session it was issued to.
    pub session: String,
    /// The principal it was issued to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The grant that it is a copy of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// `active`, `expired`, `used_up` or `revoked`.
    pub state: String,
    /// The tool.
    pub tool: String,
    /// The source that the tool must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The digest of the contract that the tool must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<String>,
    /// Whether it has a value for the tool.
    pub bound: bool,
    /// The conditions on the arguments.
    pub args: Vec<Value>,
    /// When it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// How many calls may start by it, its copies included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<u64>,
    /// How many calls have started by it, if they are counted.
    pub used: u64,
    /// The uses that its copies took.
    pub shared: u64,
    /// Its copies, by id.
    pub copies: Vec<String>,
    /// The principal that issued it.
    pub issued_by: String,
    /// When it was issued.
    pub issued_at: String,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<String>,
}

impl GrantView {
    /// A grant as it is at this time.
    pub fn of(grant: Grant, now: Timestamp) -> GrantView {
        let state = match (grant.revoked_at, grant.left()) {
            (Some(_), _) => "revoked",
            (None, Some(0)) => "used_up",
            (None, _) if grant.is_over(now) => "expired",
            (None, _) => "active",
        };
        let time = |at: i64| wall_time(Timestamp(at));
        let Grant { id, session, principal, parent, terms, .. } = grant;
        GrantView {
            id,
            session,
            principal,
            parent,
            state: state.to_string(),
            tool: terms.tool,
            source: terms.source,
            contract: terms.contract,
            bound: terms.binding.is_some(),
            args: terms.args,
            expires_at: terms.expires_at.map(time),
            uses: terms.uses,
            used: grant.used,
            shared: grant.shared,
            copies: grant.copies.into_iter().map(|copy| copy.id).collect(),
            issued_by: grant.issued_by,
            issued_at: time(grant.issued_at),
            revoked_at: grant.revoked_at.map(time),
        }
    }
}

/// An issued grant.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "NewGrant")]
pub struct NewGrantView {
    /// The token. It is returned only here.
    pub token: String,
    /// The rest of the grant.
    #[serde(flatten)]
    pub shown: GrantView,
}

impl NewGrantView {
    /// A grant that was just issued.
    pub fn of(issued: IssuedGrant, now: Timestamp) -> NewGrantView {
        NewGrantView { token: issued.token.reveal().to_string(), shown: GrantView::of(issued.grant, now) }
    }
}
