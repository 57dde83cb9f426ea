//! Make the outcome and what the model is told of it.

use crate::error::Lost;
use crate::held::Held;
use windlass_core::call::{Ended, Fact, Model, Result as Attempted, Spent, State};
use windlass_core::failure::Failure;
use windlass_core::outcome::{Outcome, Value};
use windlass_core::projection;

/// The call ends as its last attempt returned.
pub(crate) fn returned(held: &mut Held) -> Result<(), Lost> {
    let State::Returned { result, .. } = &held.call.state else { return Ok(()) };
    let limits = &held.rt.limits;
    let model = match result {
        Attempted::Ok(success) => match (&success.value, held.preview.take()) {
            (Value::Inline(text), _) if success.parts.is_empty() => {
                if text.starts_with('"') {
                    Model::ValueString
                } else {
                    Model::ValueText
                }
            }
            (_, preview) => Model::Own(projection::success(success, preview, limits)),
        },
        Attempted::Failed(failure) => Model::Own(projection::failure(failure, limits)),
    };
    end(held, None, model)
}

/// The call ends because it must not be repeated and nobody knows whether it took effect.
pub(crate) fn unknown(held: &mut Held) -> Result<(), Lost> {
    let model = projection::outcome(&Outcome::Unknown, &held.rt.limits);
    end(held, Some(Outcome::Unknown), Model::Own(model))
}

/// The call ends without an attempt.
pub(crate) fn refused(held: &mut Held, failure: Box<Failure>) -> Result<(), Lost> {
    let model = projection::failure(&failure, &held.rt.limits);
    end(held, Some(Outcome::Failed(failure)), Model::Own(model))
}

fn end(held: &mut Held, outcome: Option<Outcome>, model: Model) -> Result<(), Lost> {
    let call = &held.call;
    let started = call.first_started_at.unwrap_or_else(|| held.now());
    let spent = Spent { queued_us: started.since(call.opened_at), waited_us: 0, ran_us: call.ran_us };
    held.note(Fact::Ended(Box::new(Ended { outcome, model, spent })))
}
