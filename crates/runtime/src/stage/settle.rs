//! Make the outcome and what the model is told of it.

use crate::error::Lost;
use crate::held::Held;
use windlass_core::call::{Ended, Fact, Model, Result as Attempted, Spent, State};
use windlass_core::failure::Failure;
use windlass_core::outcome::{Outcome, Success, Value};
use windlass_core::projection;

/// The call ends as its last attempt returned.
pub(crate) fn returned(held: &mut Held) -> Result<(), Lost> {
    let State::Returned { result, .. } = &held.call.state else { return Ok(()) };
    let model = match (result, held.model.take()) {
        (_, Some(answer)) => Model::Own(answer),
        (Attempted::Ok(Success { value: Value::Inline(text), parts }), None) if parts.is_empty() => {
            if text.starts_with('"') { Model::ValueString } else { Model::ValueText }
        }
        (Attempted::Ok(success), None) => told(held, &Outcome::Succeeded(success.clone())),
        (Attempted::Failed(failure), None) => told(held, &Outcome::Failed(failure.clone())),
    };
    end(held, None, model)
}

/// The call ends as its tool answered before any attempt.
pub(crate) fn answered(held: &mut Held) -> Result<(), Lost> {
    let Some(success) = held.call.made.as_ref().and_then(|made| made.answer.clone()) else { return Ok(()) };
    let outcome = Outcome::Succeeded(success);
    let model = match held.model.take() {
        Some(answer) => Model::Own(answer),
        None => told(held, &outcome),
    };
    end(held, Some(outcome), model)
}

/// The call ends because it must not be repeated and nobody knows whether it took effect.
pub(crate) fn unknown(held: &mut Held) -> Result<(), Lost> {
    let model = told(held, &Outcome::Unknown);
    end(held, Some(Outcome::Unknown), model)
}

/// The call ends without an attempt.
pub(crate) fn refused(held: &mut Held, failure: Box<Failure>) -> Result<(), Lost> {
    let outcome = Outcome::Failed(failure);
    let model = told(held, &outcome);
    end(held, Some(outcome), model)
}

fn told(held: &Held, outcome: &Outcome) -> Model {
    Model::Own(projection::project(outcome, None, &held.on.rt.limits))
}

fn end(held: &mut Held, outcome: Option<Outcome>, model: Model) -> Result<(), Lost> {
    let call = &held.call;
    let started = call.first_started_at.unwrap_or_else(|| held.now());
    let spent = Spent { queued_us: started.since(call.opened_at), waited_us: 0, ran_us: call.ran_us };
    held.note(Fact::Ended(Box::new(Ended { outcome, model, spent })))
}
