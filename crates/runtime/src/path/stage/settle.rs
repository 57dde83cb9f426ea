//! Make the outcome and what the model is told of it.

mod edits;

use crate::api::error::Lost;
use crate::path::grants::BY_GRANT;
use crate::path::nested;
use crate::session::artifacts::Artifacts;
use crate::session::held::Held;
use crate::session::notices;
use crate::session::same::SharedEnd;
use crate::tools::projector::{self, ProjectedCall};
use std::time::Duration;
use windlass_core::attempt::Deadline;
use windlass_core::call::{
    ApprovalAnswer, Cause, Ended, Fact, Model, Result as Attempted, SameAs, Settlement, Spent, State, Step,
    TooLate, Unconnected,
};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Retry, Source};
use windlass_core::outcome::{Effect, ModelAnswer, Outcome, Part, Success, Value};
use windlass_core::plan::TurnRefusal;
use windlass_core::projection;
use windlass_core::tool::EffectClass;
use windlass_core::wait::Wait;

/// The call ends as its attempts add up.
pub(crate) fn note(held: &mut Held) -> Result<(), Lost> {
    let Step::Settle(settlement) = held.next() else { return Ok(()) };
    let outcome = match settlement {
        Settlement::Returned(_) => return returned(held),
        Settlement::Answered(success) | Settlement::Landed(success) => Outcome::Succeeded(success.clone()),
        Settlement::Exhausted(failure) => {
            let retry = Retry::Exhausted { attempts: held.call.tries };
            let outcome = Outcome::Failed(Box::new(Failure { retry, ..failure.clone() }));
            let model = held.model.take().map_or_else(|| told(held, &outcome), Model::Own);
            return end(held, Some(outcome), model);
        }
        Settlement::Failed(failure) => Outcome::Failed(Box::new(failure.clone())),
        Settlement::TimedOut(cause) => Outcome::Failed(Box::new(timed_out(held, cause))),
        Settlement::Unconnected { said, declined } => {
            Outcome::Failed(Box::new(unconnected(held, said, declined)))
        }
        Settlement::DidNotHappen => Outcome::Failed(Box::new(Failure::did_not_happen())),
        Settlement::Poison => Outcome::Failed(Box::new(poison(held))),
        Settlement::Denied => Outcome::Denied { reason: denial(held) },
        Settlement::Cancelled(effect) => Outcome::Cancelled { effect },
        Settlement::Overdue(deadline) => Outcome::Failed(Box::new(overdue(held, deadline))),
        Settlement::Unknown => Outcome::Unknown,
    };
    ended(held, outcome)
}

/// A cancelled call whose own journal says that it took effect, and that has called others: it says so only if it is known of
/// them too.
pub(crate) async fn cancelled(held: &mut Held) -> Result<(), Lost> {
    let effect = if nested::are_known(held).await { Effect::Landed } else { Effect::Unknown };
    ended(held, Outcome::Cancelled { effect })
}

/// Why the call was denied, for the model.
fn denial(held: &Held) -> String {
    let answered = held.call.approval_answer().map(|answered| &answered.answer);
    if let Some(ApprovalAnswer::Denied { reason }) = answered {
        return match reason {
            Some(reason) => format!("a person denied it: {reason}"),
            None => "a person denied it".to_string(),
        };
    }
    let permission = held.call.permission.as_deref();
    let judged = permission.and_then(|known| known.judged.as_ref()).filter(|judged| !judged.allowed);
    match (judged, permission.and_then(|known| known.asked.as_ref())) {
        (Some(judged), _) => {
            let rules = judged.by.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            match &judged.reason {
                Some(reason) if judged.by.iter().any(|by| **by == *BY_GRANT) => reason.to_string(),
                Some(reason) => format!("{reason} (policy: {rules})"),
                None => format!("the policy forbids it ({rules})"),
            }
        }
        (None, Some(asked)) => {
            format!("nobody approved it within {} s", asked.parked.length_us / 1_000_000)
        }
        (None, None) => "it was not allowed".to_string(),
    }
}

/// A connection that its session needs is missing.
fn unconnected(held: &Held, said: &Unconnected, declined: bool) -> Failure {
    let provider = &said.provider;
    let (class, code, message) = if declined {
        let message =
            format!("The tool needs {provider}, and the user declined to connect it. Do without the tool.");
        (FailureClass::Unavailable, Code::ConnectionDeclined, message)
    } else {
        let message =
            format!("The tool needs {provider}, and nobody connected it in time. Do without the tool.");
        (FailureClass::Timeout, Code::Timeout, message)
    };
    let did_not_happen = held.call.effect() == Effect::None;
    Failure { class, source: Source::Runtime, did_not_happen, ..Failure::invalid_request(code, message) }
}

/// The call ends as its last attempt returned.
fn returned(held: &mut Held) -> Result<(), Lost> {
    let State::Returned { result, .. } = &held.call.state else { return Ok(()) };
    let model = match (result, held.model.take()) {
        (_, Some(answer)) => Model::Own(answer),
        (Attempted::Ok(Success { value: Value::Inline(text), parts, .. }), None) if parts.is_empty() => {
            if text.starts_with('"') {
                Model::ValueString
            } else {
                Model::ValueText
            }
        }
        (Attempted::Ok(success), None) => told(held, &Outcome::Succeeded(success.clone())),
        (Attempted::Failed(failure), None) => told(held, &Outcome::Failed(failure.clone())),
    };
    end(held, None, model)
}

/// The call ends like the one it is the same as, and the model is told the same.
pub(crate) fn same(held: &mut Held, answer: &SharedEnd) -> Result<(), Lost> {
    let first = answer.first;
    if held.call.same_as() != Some(first) {
        held.note(Fact::SameAs(SameAs { first }))?;
    }
    end(held, Some(answer.end.outcome.clone()), Model::Own(answer.end.model()))
}

/// The call ends without an attempt.
pub(crate) fn refused(held: &mut Held, failure: Box<Failure>) -> Result<(), Lost> {
    ended(held, Outcome::Failed(failure))
}

/// The call ends because it may not run, before it was judged by the policy.
pub(crate) fn denied(held: &mut Held, reason: String) -> Result<(), Lost> {
    ended(held, Outcome::Denied { reason })
}

/// The call ends because it can never have its turn.
pub(crate) fn no_turn(held: &mut Held, why: &TurnRefusal) -> Result<(), Lost> {
    let failure = Failure {
        class: FailureClass::ResourceLimit,
        source: Source::Runtime,
        did_not_happen: held.call.effect() == Effect::None,
        ..Failure::invalid_request(why.code(), why.to_string())
    };
    refused(held, Box::new(failure))
}

/// A deadline passed while the call did not run.
fn overdue(held: &Held, deadline: Deadline) -> Failure {
    let rules = held.rules();
    let ms = if deadline == Deadline::Queue { rules.queue_ms } else { rules.total_ms };
    let mut failure = Failure::timeout(deadline, ms);
    failure.did_not_happen = held.call.effect() == Effect::None;
    let waits = held.call.parked.map(|(parked, _)| Wait::from(parked.reason));
    let same = held.call.same_as().map(|_| Wait::SameAs);
    for wait in waits.into_iter().chain(same) {
        failure.message.push_str(wait.in_vain());
    }
    failure
}

/// The next attempt would come after the total deadline, so it is not waited for. The failure keeps the delay that the tool
/// asked for: whoever made the call can come back then.
pub(crate) fn too_late(held: &mut Held, TooLate { delay_us }: TooLate) -> Result<(), Lost> {
    let failure = if let State::Returned { result: Attempted::Failed(failure), .. } = &held.call.state {
        (**failure).clone()
    } else if let State::Aborted(abort) = &held.call.state {
        abort.failure.clone()
    } else if let State::Stopped { cause, .. } = held.call.state {
        timed_out(held, cause)
    } else {
        Failure::did_not_happen()
    };
    let (delay_ms, total_ms) = (delay_us / 1_000, held.call.rules().total_ms);
    let message = format!(
        "{} Its next attempt, {delay_ms} ms later, would have come after the {total_ms} ms that the call may take in all.",
        failure.message
    );
    let code = Code::RetryTooLate;
    ended(held, Outcome::Failed(Box::new(Failure { code, message, ..failure })))
}

fn timed_out(held: &Held, cause: Cause) -> Failure {
    let rules = held.rules();
    let (deadline, ms) = match cause {
        Cause::Silence => (Deadline::Silence, rules.silence_ms),
        Cause::Total => (Deadline::Total, rules.total_ms),
        Cause::Attempt | Cause::Cancel => (Deadline::Attempt, rules.attempt_ms),
    };
    let retry = match (held.call.tries, held.call.class()) {
        (1, Some(EffectClass::Read)) => Retry::Safe { after_ms: None },
        // Called anew it would have another key, and might take effect twice.
        (0 | 1, _) => Retry::Never,
        (attempts, _) => Retry::Exhausted { attempts },
    };
    let mut failure = Failure { retry, raw: last_output(held), ..Failure::timeout(deadline, ms) };
    if held.call.effect() != Effect::None {
        failure.message.push_str(" It may have taken effect.");
    }
    failure
}

fn last_output(held: &Held) -> Option<String> {
    let State::Stopped { output, .. } = &held.call.state else { return None };
    output.as_deref().map(str::to_string)
}

fn poison(held: &Held) -> Failure {
    let reference = Artifacts::new(held.on.session.lane.clone()).call_handle(held.id).to_string();
    let deaths = held.call.deaths;
    let detail = format!("the owner died {deaths} times while the call was running; it is set aside");
    tracing::error!(%reference, tool = %held.call.opened.tool, deaths, "a call is set aside as poison");
    Failure::internal(Code::Poison, &reference, detail)
}

fn ended(held: &mut Held, outcome: Outcome) -> Result<(), Lost> {
    // What was made from a value that is kept beside the journal was made when it was at hand.
    let model = match (&outcome, held.model.take()) {
        (Outcome::Succeeded(_), Some(answer)) => Model::Own(answer),
        _ => told(held, &outcome),
    };
    end(held, Some(outcome), model)
}

fn told(held: &Held, outcome: &Outcome) -> Model {
    Model::Own(projection::project(outcome, None, &held.answer_limits()))
}

/// The projector's view of a call, if the host has one and it has an opinion.
fn projected(held: &Held, outcome: Option<&Outcome>) -> Option<ModelAnswer> {
    let projector = held.on.rt.projector.as_ref()?;
    let call = &held.call;
    let result = if let State::Returned { result, .. } = &call.state { Some(result) } else { None };
    let returned = result.map(|result| match result {
        Attempted::Ok(success) => Outcome::Succeeded(success.clone()),
        Attempted::Failed(failure) => Outcome::Failed(failure.clone()),
    });
    let made = call.made.as_ref().and_then(|made| made.args.as_deref());
    let ended = ProjectedCall {
        session: &held.on.session.name,
        tool: &call.opened.tool,
        args: made.unwrap_or(&call.opened.args.text),
        outcome: outcome.or(returned.as_ref())?,
        ran: Duration::from_micros(call.ran_us),
    };
    let answer = projector::ask(projector, &ended)?;
    let texts = answer.parts.iter().filter_map(Part::text);
    if projection::fits(&texts.collect::<Vec<_>>().join("\n"), &held.answer_limits()) {
        return Some(answer);
    }
    projector::report(&ended, "its texts are longer than answer_bytes_max or answer_lines_max");
    None
}

fn end(held: &mut Held, outcome: Option<Outcome>, model: Model) -> Result<(), Lost> {
    let model = projected(held, outcome.as_ref()).map_or(model, Model::Own);
    let model = match held.call.edited_args() {
        Some(edited) => Model::Own(edits::told(held, outcome.as_ref(), model, edited)),
        None => model,
    };
    if let Some(Outcome::Unknown | Outcome::Cancelled { effect: Effect::Unknown }) = &outcome {
        held.carry(vec![notices::unknown_row(held.id)]);
    }
    let call = &held.call;
    let started = call.first_started_at.unwrap_or_else(|| held.now());
    let queued_us = started.since(call.opened_at);
    let spent = Spent { queued_us, waited_us: call.waited_us, ran_us: call.ran_us };
    held.note(Fact::Ended(Ended { outcome, model, spent }))
}
