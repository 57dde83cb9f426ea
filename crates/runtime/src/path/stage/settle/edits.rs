//! The line by which the model learns that a person approved its call with other arguments.

use crate::session::held::Held;
use serde_json::Value as Json;
use windlass_args::canonical;
use windlass_core::call::{End, Model, Result as Attempted, Spent, State};
use windlass_core::outcome::{ModelAnswer, Outcome, Part};
use windlass_core::visible;

/// The most differences that are told one by one; the model sees what ran by its result.
const DIFFERENCES_MAX: usize = 8;
/// The most characters of a value in that line.
const VALUE_CHARS_MAX: usize = 120;

/// The model's view of a call, behind a line that tells what a person changed.
pub(super) fn told(held: &Held, outcome: Option<&Outcome>, model: Model, edited: &str) -> ModelAnswer {
    let answer = match model {
        Model::Own(answer) => answer,
        told @ (Model::ValueText | Model::ValueString) => whole(held, outcome, told),
    };
    let note = Part::Text(line(held, edited));
    ModelAnswer { parts: std::iter::once(note).chain(answer.parts).collect(), is_error: answer.is_error }
}

/// The view of a value that is not written twice.
fn whole(held: &Held, outcome: Option<&Outcome>, told: Model) -> ModelAnswer {
    let outcome = match (outcome, &held.call.state) {
        (Some(outcome), _) => outcome.clone(),
        (None, State::Returned { result: Attempted::Ok(success), .. }) => Outcome::Succeeded(success.clone()),
        (None, State::Returned { result: Attempted::Failed(failure), .. }) => {
            Outcome::Failed(failure.clone())
        }
        (None, _) => Outcome::Unknown,
    };
    End { outcome, told, spent: Spent::default(), at: held.now(), resolved: None }.model()
}

fn line(held: &Held, edited: &str) -> String {
    let given = held.call.opened.args.parse(held.on.rt.limits.args()).unwrap_or_default();
    let ran: Json = serde_json::from_str(edited).unwrap_or_default();
    let pointers = canonical::differences(&given, &ran, DIFFERENCES_MAX + 1);
    let shown = |value: Option<&Json>| match value {
        Some(value) => visible::shortened(&value.to_string(), VALUE_CHARS_MAX),
        None => "nothing".to_string(),
    };
    let change = |pointer: &String| {
        let place = if pointer.is_empty() { "the arguments" } else { pointer.as_str() };
        format!("{place}: {} instead of {}", shown(ran.pointer(pointer)), shown(given.pointer(pointer)))
    };
    let mut changes: Vec<String> = pointers.iter().take(DIFFERENCES_MAX).map(change).collect();
    if pointers.len() > DIFFERENCES_MAX {
        changes.push("and more".to_string());
    }
    if changes.is_empty() {
        return "A person approved this call.".to_string();
    }
    format!("A person approved this call with other arguments than you gave: {}.", changes.join("; "))
}
