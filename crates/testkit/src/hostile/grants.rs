//! Grants of a world: what each of them allows, known from how it was made, and not from what the runtime says of it.

use super::second::{self, PolicyCase};
use super::truth::{CallTruth, ToolTruth, Truth};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use windlass::grants::GrantToken;
use windlass::policy::Ruling;
use windlass_core::tool::ToolSource;

/// A grant, as it was issued, or as it was narrowed.
#[derive(Clone, Debug)]
pub struct GrantTruth {
    /// Its token.
    pub token: GrantToken,
    /// The session it is for.
    pub session: String,
    /// The grant that it is a copy of: all that is so for that one is so for this one too.
    pub parent: Option<String>,
    /// The tool, by its name or its id.
    pub tool: String,
    /// The origin that the tool must have.
    pub source: Option<ToolSource>,
    /// The version that the tool must have.
    pub version: Option<u64>,
    /// The value for the tool.
    pub binding: Value,
    /// Conditions on the arguments.
    pub args: Vec<Value>,
    /// Until when.
    pub until: Option<i64>,
    /// How many calls may start by it.
    pub uses: Option<u64>,
    /// The uses that its copies took.
    pub shared: u64,
    /// The calls that ran by it.
    pub used: BTreeSet<String>,
    /// Whether its revocation was acknowledged.
    pub is_revoked: bool,
}

impl GrantTruth {
    /// The uses left, if they are counted.
    pub fn left(&self) -> Option<u64> {
        self.uses.map(|uses| uses.saturating_sub(self.shared + self.used.len() as u64))
    }

    fn admits(&self, now: i64, tool: &ToolTruth, args: &Value) -> bool {
        let is_tool = [&tool.name, &tool.id].contains(&&self.tool)
            && self.source.is_none_or(|source| source == tool.source)
            && self.version.is_none_or(|version| version == tool.version);
        is_tool && !self.is_revoked && self.until.is_none_or(|until| now < until) && meets(args, &self.args)
    }
}

/// Whether arguments meet conditions: whether a rule with them would allow the call. Without such a rule tools of MCP servers ask.
pub fn meets(args: &Value, conditions: &[Value]) -> bool {
    if conditions.is_empty() {
        return true;
    }
    let rule = json!({"name": "grant", "ruling": "allow", "when": {"args": conditions}});
    let case = PolicyCase { source: ToolSource::Mcp, args: args.clone(), ..PolicyCase::default() };
    second::ruling(&[rule], &case).0 == Ruling::Allow
}

impl Truth {
    /// A grant, and those above it that it was made of.
    fn line<'a>(&'a self, id: &str) -> impl Iterator<Item = &'a GrantTruth> {
        let above = |grant: &&'a GrantTruth| grant.parent.as_ref().and_then(|parent| self.grants.get(parent));
        std::iter::successors(self.grants.get(id), above)
    }

    /// Whether the grant of a call, if it has one, lets it start with this tool and these arguments; one that nobody issued never.
    pub fn is_admitted(&self, call: &CallTruth, tool: &ToolTruth, args: &Value) -> bool {
        let Some(id) = &call.grant else { return true };
        let Some(own) = self.grants.get(id) else { return false };
        own.session == call.session
            && own.left() != Some(0)
            && self.line(id).all(|grant| grant.admits(self.now, tool, args))
    }

    /// A grant, and all its copies.
    pub fn family(&self, id: &str) -> BTreeSet<String> {
        let is_of = |grant: &str| {
            let above = |id: &String| self.grants.get(id).and_then(|grant| grant.parent.clone());
            std::iter::successors(Some(grant.to_owned()), above).any(|above| above == id)
        };
        self.grants.keys().filter(|grant| is_of(grant)).cloned().collect()
    }

    /// The conditions that calls by a grant must meet.
    pub fn conditions(&self, id: &str) -> Vec<Value> {
        self.line(id).flat_map(|grant| grant.args.clone()).collect()
    }

    /// The grant that a call of this tool with these arguments was made by, if it is not known by its handle yet.
    pub fn asked_by(&self, tool: &str, args: &Value) -> Option<String> {
        let number = args.get("call").and_then(Value::as_u64)?;
        self.by_grant.get(&(number, tool.to_owned())).cloned()
    }

    /// Calls that wait by these grants are not judged again by themselves.
    pub fn outdate_grants(&mut self, ids: &BTreeSet<String>) {
        for call in self.calls.values_mut() {
            call.outdated |= call.grant.as_ref().is_some_and(|id| ids.contains(id));
        }
    }

    /// A call runs by its grant: it has taken a use. Returns what is wrong with that.
    pub fn use_grant(&mut self, call: &CallTruth, handle: &str, binding: Option<&Value>) -> Option<String> {
        let grant = call.grant.as_ref().and_then(|id| self.grants.get_mut(id));
        let expected = grant.as_ref().map(|grant| grant.binding.clone());
        let wrong = (expected.as_ref() != binding)
            .then(|| format!("it ran with the binding {binding:?} instead of {expected:?}"));
        if let (Some(grant), Some(id)) = (grant, &call.grant) {
            grant.used.insert(handle.to_owned());
            if grant.left() == Some(0) {
                self.outdate_grants(&BTreeSet::from([id.clone()]));
            }
        }
        wrong
    }
}
