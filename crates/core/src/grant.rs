//! Grants: standing permissions to call one tool, held by whoever has the token.
//!
//! A grant never goes around the policy. It says which tool a call may name although it is not in the catalog, or how much
//! less than the catalog a call may do: with which arguments, until when, how often. A copy of a grant is never wider than the
//! grant it was made of.

use crate::attempt::{RetryRule, Rules};
use crate::limits::CallLimits;
use crate::policy::{ArgumentRules, PolicyProblem};
use crate::time::Timestamp;
use crate::tool::{Digest, ToolSource};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The name of a grant: a hash of its token, so whoever knows the id cannot use the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(pub [u8; 16]);

impl GrantId {
    /// The id of the grant with this token.
    pub fn of(token: &GrantToken) -> GrantId {
        let mut id = [0; 16];
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"windlass grant").update(token.0.as_bytes());
        hasher.finalize_xof().fill(&mut id);
        GrantId(id)
    }

    /// Parses the text form: 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<GrantId> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut id = [0; 16];
        for (place, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
        }
        Some(GrantId(id))
    }
}

impl fmt::Display for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The token of a grant. It is all the authority needed in its session, is shown once, and is stored nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct GrantToken(String);

impl GrantToken {
    /// The token made of these random bytes.
    pub fn new(bytes: &[u8; 32]) -> GrantToken {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        GrantToken(format!("grant_{digits}"))
    }

    /// A token as a caller gave it.
    pub fn given(text: impl Into<String>) -> GrantToken {
        GrantToken(text.into())
    }

    /// Its text, for whoever it was issued to.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for GrantToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GrantToken(…)")
    }
}

/// The terms of a grant, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrantTerms {
    /// The tool: its name or its stable id.
    pub tool: String,
    /// The source that the tool must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The digest of the contract that the tool must have, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<String>,
    /// A value for the tool that nobody else looks at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Value>,
    /// Conditions on the arguments, as in an `allow` rule of the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Value>,
    /// Until when, in microseconds since 1970; `None` as long as its session is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// How many calls may start by it; `None`: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uses: Option<u64>,
    /// The retry rule of its calls, instead of the tool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryRule>,
}

/// The changes by which a copy of a grant is narrower.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GrantNarrowing {
    /// More conditions on the arguments.
    pub args: Vec<Value>,
    /// An earlier end, in microseconds since 1970.
    pub expires_at: Option<i64>,
    /// The number of uses that the copy takes out of the grant; a grant that counts its uses needs it.
    pub uses: Option<u64>,
}

/// A mistake in the terms of a grant or of a copy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantProblem {
    /// A condition on the arguments is invalid.
    #[error("the conditions on arguments are refused: {0}")]
    Args(#[from] PolicyProblem),
    /// No tool is named, or the name is too long.
    #[error("a grant is for one tool: give its name or its stable id, at most {max} bytes")]
    Tool {
        /// The limit `policy_text_bytes_max`.
        max: u64,
    },
    /// There is no such source.
    #[error("there is no source {source_name:?}; write one of {}", ToolSource::ALL.iter().map(|known| known.as_str()).collect::<Vec<_>>().join(", "))]
    Source {
        /// The source.
        source_name: String,
    },
    /// The digest of the contract is none.
    #[error("the contract is a digest of 64 hexadecimal digits, as `windlass tools --json` shows it")]
    Contract,
    /// The binding is too large.
    #[error(
        "the binding has {bytes} bytes and may have {max}; give the tool a name under which it finds the rest"
    )]
    Binding {
        /// Its size.
        bytes: u64,
        /// The limit `grant_binding_bytes_max`.
        max: u64,
    },
    /// The number of uses is out of bounds.
    #[error("a grant has 1 to {max} uses, and {uses} were asked for; leave `uses` out for any number")]
    Uses {
        /// The number.
        uses: u64,
        /// The limit `grant_uses_max`.
        max: u64,
    },
    /// The retry rule could never run a call.
    #[error("retry.attempts is 0, and a call is tried at least once; write 1 for no retry")]
    Retry,
    /// A copy would last longer than its grant.
    #[error("a copy ends no later than the grant it is made of; give an earlier time, or none")]
    Later,
    /// A copy says not how many uses it takes, or takes more than its grant has.
    #[error("a copy takes its uses out of the grant it is made of: give `uses`, at most {left}")]
    MoreUses {
        /// The uses left in the grant.
        left: u64,
    },
}

/// A reason why a call is not within the terms of its grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantMismatch {
    /// It names another tool.
    #[error("the grant is for another tool; call the tool that the grant was issued for")]
    Tool,
    /// The tool has another source or contract than the grant says.
    #[error("the tool is no longer the one that the grant was issued for; ask for a new grant")]
    Changed,
    /// An argument does not meet a condition.
    #[error(
        "the grant covers only calls for which {condition}; change the arguments, or ask for another grant"
    )]
    Argument {
        /// The condition, in words.
        condition: String,
    },
}

/// The facts of a tool that a grant looks at.
#[derive(Clone, Copy, Debug)]
pub struct GrantedTool<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its stable id.
    pub id: &'a str,
    /// Its origin.
    pub source: ToolSource,
    /// The digest of its contract.
    pub contract: &'a Digest,
}

/// Compiled terms of a grant.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantCheck {
    terms: GrantTerms,
    source: Option<ToolSource>,
    contract: Option<Digest>,
    args: ArgumentRules,
}

impl GrantCheck {
    /// Compiles the terms of a grant.
    pub fn new(terms: GrantTerms, limits: &CallLimits) -> Result<GrantCheck, GrantProblem> {
        let (max, tool) = (limits.policy_text_bytes_max, terms.tool.trim());
        if tool.is_empty() || tool.len() as u64 > max {
            return Err(GrantProblem::Tool { max });
        }
        let source = match &terms.source {
            Some(name) => {
                let unknown = || GrantProblem::Source { source_name: name.chars().take(64).collect() };
                Some(ToolSource::parse(name).ok_or_else(unknown)?)
            }
            None => None,
        };
        let contract = match &terms.contract {
            Some(text) => Some(Digest::parse(text).ok_or(GrantProblem::Contract)?),
            None => None,
        };
        let bytes = terms.binding.as_ref().map_or(0, |binding| binding.to_string().len() as u64);
        if bytes > limits.grant_binding_bytes_max {
            return Err(GrantProblem::Binding { bytes, max: limits.grant_binding_bytes_max });
        }
        let max = limits.grant_uses_max;
        if let Some(uses) = terms.uses.filter(|uses| !(1..=max).contains(uses)) {
            return Err(GrantProblem::Uses { uses, max });
        }
        if terms.retry.is_some_and(|retry| retry.attempts == Some(0)) {
            return Err(GrantProblem::Retry);
        }
        let args = ArgumentRules::parse(&terms.args, limits)?;
        Ok(GrantCheck { terms, source, contract, args })
    }

    /// The terms as they are written.
    pub fn terms(&self) -> &GrantTerms {
        &self.terms
    }

    /// Whether it is over by now.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.terms.expires_at.is_some_and(|until| now.0 >= until)
    }

    /// Whether it is for this tool.
    pub fn covers(&self, tool: &GrantedTool<'_>) -> Result<(), GrantMismatch> {
        if self.terms.tool != tool.name && self.terms.tool != tool.id {
            return Err(GrantMismatch::Tool);
        }
        let is_same = self.source.is_none_or(|source| source == tool.source)
            && self.contract.is_none_or(|contract| contract == *tool.contract);
        if is_same { Ok(()) } else { Err(GrantMismatch::Changed) }
    }

    /// Whether a call of this tool with these arguments is within its terms.
    pub fn permits(&self, tool: &GrantedTool<'_>, args: &Value) -> Result<(), GrantMismatch> {
        self.covers(tool)?;
        match self.args.unmet(args) {
            Some(condition) => Err(GrantMismatch::Argument { condition }),
            None => Ok(()),
        }
    }

    /// The rules of its calls, where the tool has these.
    pub fn rules(&self, of_tool: Rules) -> Rules {
        let Some(retry) = self.terms.retry else { return of_tool };
        let base_ms = retry.base_ms.unwrap_or(of_tool.base_ms);
        Rules {
            attempts: retry.attempts.unwrap_or(of_tool.attempts),
            base_ms,
            cap_ms: retry.cap_ms.unwrap_or(of_tool.cap_ms).max(base_ms),
            ..of_tool
        }
    }

    /// A copy with these changes, which has `left` uses to take its own from, if the grant counts them.
    pub fn narrowed(
        &self,
        by: &GrantNarrowing,
        left: Option<u64>,
        limits: &CallLimits,
    ) -> Result<GrantCheck, GrantProblem> {
        let expires_at = match (by.expires_at, self.terms.expires_at) {
            (Some(wanted), Some(ours)) if wanted > ours => return Err(GrantProblem::Later),
            (wanted, ours) => wanted.or(ours),
        };
        let uses = match (by.uses, left) {
            (Some(wanted), Some(left)) if wanted > left => return Err(GrantProblem::MoreUses { left }),
            (None, Some(left)) => return Err(GrantProblem::MoreUses { left }),
            (wanted, _) => wanted,
        };
        let mut args = self.terms.args.clone();
        if crate::mutant::breaks("wider-grant") {
            args.clear();
        }
        args.extend(by.args.iter().filter(|condition| !self.terms.args.contains(condition)).cloned());
        GrantCheck::new(GrantTerms { args, expires_at, uses, ..self.terms.clone() }, limits)
    }

    /// Whether whatever these terms allow, the others allow too: a copy is within the grant it was made of.
    pub fn is_within(&self, other: &GrantCheck) -> bool {
        let (ours, theirs) = (&self.terms, &other.terms);
        let ends_in_time = match (ours.expires_at, theirs.expires_at) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(ours), Some(theirs)) => ours <= theirs,
        };
        let has_no_more_uses = match (ours.uses, theirs.uses) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(ours), Some(theirs)) => ours <= theirs,
        };
        ours.tool == theirs.tool
            && ours.binding == theirs.binding
            && ours.retry == theirs.retry
            && (other.source.is_none() || self.source == other.source)
            && (other.contract.is_none() || self.contract == other.contract)
            && ends_in_time
            && has_no_more_uses
            && (self.args.contain(&other.args) || crate::mutant::breaks("wider-grant"))
    }
}
