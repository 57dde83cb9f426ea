//! How a call ended, and what the model is told of it.

use super::fact::{Model, Resolver, Spent};
use crate::outcome::{Effect, ModelAnswer, Outcome, Part, Value};
use crate::time::Timestamp;

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The outcome.
    pub outcome: Outcome,
    /// The recorded form of the model's view; see [`End::model`].
    pub told: Model,
    /// Where its time went.
    pub spent: Spent,
    /// When.
    pub at: Timestamp,
    /// When it became known how it ended, where it ended as unknown.
    pub resolved: Option<(Resolver, Timestamp)>,
}

impl End {
    /// The model's view, read from the record: never projected again. Made on request, since mostly it is the
    /// value once more.
    pub fn model(&self) -> ModelAnswer {
        answer(&self.outcome, &self.told)
    }

    /// Whether it is not known if the call took effect, so that it can be resolved.
    pub fn is_unknown(&self) -> bool {
        matches!(self.outcome, Outcome::Unknown | Outcome::Cancelled { effect: Effect::Unknown })
    }

    /// Whether calls that are the same get this end rather than run: it took effect, or may have.
    pub fn stands(&self) -> bool {
        match &self.outcome {
            Outcome::Succeeded(_) | Outcome::Unknown => true,
            Outcome::Cancelled { effect } => *effect != Effect::None,
            Outcome::Failed(_) | Outcome::Denied { .. } => false,
        }
    }
}

fn answer(outcome: &Outcome, model: &Model) -> ModelAnswer {
    let value = match outcome {
        Outcome::Succeeded(success) => match &success.value {
            Value::Inline(text) => &**text,
            Value::Kept { .. } => "",
        },
        Outcome::Failed(_) | Outcome::Denied { .. } | Outcome::Cancelled { .. } | Outcome::Unknown => "",
    };
    let text = match model {
        Model::Own(answer) => return answer.clone(),
        Model::ValueText => value.to_string(),
        Model::ValueString => serde_json::from_str(value).unwrap_or_default(),
    };
    ModelAnswer { parts: vec![Part::Text(text)], is_error: false }
}
