//! The decision of a batch whose calls have a sibling rule.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};
use std::sync::Arc;
use windlass_core::batch::Batch;
use windlass_core::siblings::{Decision, Siblings, Tally};

/// The decision of a batch whose calls have a sibling rule.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Decided {
    /// The rule of the batch: `fail_fast`, `race`, or `{"quorum": n}`.
    #[schemars(schema_with = "siblings_rule")]
    pub siblings: Siblings,
    /// How it was decided: enough calls have succeeded, or too few are left that could.
    #[schemars(schema_with = "decisions")]
    pub decision: Decision,
    /// The ids of the calls that had succeeded by then, in the order of their ends.
    #[schemars(with = "Vec<String>")]
    pub winners: Vec<Arc<str>>,
}

fn siblings_rule(_: &mut SchemaGenerator) -> Schema {
    let rules: Vec<Value> =
        [Siblings::Independent, Siblings::FailFast, Siblings::Race].map(|rule| json!(rule)).into();
    let number = json!({ "type": "integer", "minimum": 0 });
    let quorum = json!({ "type": "object", "properties": { "quorum": number }, "required": ["quorum"] });
    json_schema!({ "anyOf": [{ "type": "string", "enum": rules }, quorum] })
}

fn decisions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": [json!(Decision::Reached), json!(Decision::Unreachable)] })
}

impl Decided {
    /// The decision that follows from the ends of a batch's calls; `calls` once their number is known.
    pub(crate) fn of(
        tally: &Tally,
        calls: Option<usize>,
        id: impl Fn(usize) -> Option<Arc<str>>,
    ) -> Option<Decided> {
        let decision = tally.verdict(calls)?;
        let winners = tally.won().iter().filter_map(|call| id(usize::from(call.0))).collect();
        Some(Decided { siblings: tally.siblings(), decision, winners })
    }

    /// The decision of a batch read from its journal.
    pub(crate) fn recorded(batch: &Batch) -> Option<Decided> {
        let may_grow = batch.opening.streamed && batch.closed.is_none();
        let id = |place: usize| batch.calls.get(place).map(|call| Arc::from(&call.opened.id));
        Decided::of(batch.tally.as_deref()?, (!may_grow).then_some(batch.calls.len()), id)
    }
}
