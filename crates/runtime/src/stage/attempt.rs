//! Run the tool once: commit the intent, run, note the end.

use crate::artifacts::{ArtifactError, Artifacts};
use crate::error::Lost;
use crate::held::Held;
use crate::registry::Registered;
use crate::stage::{prepare, settle};
use crate::threads::{Ran, Threads};
use crate::tool::{Cx, Output, ToolError};
use std::sync::Arc;
use windlass_core::call::{Fact, Intent, Result as Attempted, Returned, Started};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Source};
use windlass_core::handle::Handle;
use windlass_core::ids::AttemptNo;
use windlass_core::json::{self, Size};
use windlass_core::outcome::{Form, Kept, Outcome, Part, Success, Value};
use windlass_core::projection::{self, Ends};
use windlass_core::tool::EffectClass;

/// The attempt that is to be made.
pub(crate) struct Start {
    pub(crate) attempt: AttemptNo,
    pub(crate) intent: Intent,
    pub(crate) redrive: bool,
}

pub(crate) async fn run(held: &mut Held, start: Start) -> Result<(), Lost> {
    let Some(tool) = pinned_tool(held)? else { return Ok(()) };
    let Start { attempt, intent, redrive } = start;
    held.note(Fact::Started(Started { attempt, redrive }))?;
    if intent == Intent::First {
        held.commit().await?;
    }
    let args = match held.parsed.take() {
        Some(parsed) => Ok(parsed),
        None => prepare::parse(held),
    };
    let began = held.on.rt.clock.elapsed_us();
    let ran = match args {
        Ok(parsed) => {
            let cx = context(held, attempt, redrive);
            Threads::run(&held.on.rt, &tool, parsed.value, cx).await
        }
        // Prepared arguments were parsed before; that they cannot be parsed now is ours to explain.
        Err(failure) => Ran::Returned(Err(ToolError::internal(failure.message))),
    };
    let ran_us = held.on.rt.clock.elapsed_us().saturating_sub(began);
    let result = result(held, &tool, ran).await;
    held.begin_stage();
    held.note(Fact::Returned(Returned { attempt, ran_us, result }))
}

/// The tool the call is pinned to. If it is gone or has changed while nobody owned the call, the call is
/// prepared again where running again is allowed, and ends where it is not.
fn pinned_tool(held: &mut Held) -> Result<Option<Arc<Registered>>, Lost> {
    if let Some(tool) = &held.tool {
        return Ok(Some(tool.clone()));
    }
    let pin = held.call.pin;
    let started = held.call.attempts > 0;
    let found = prepare::find(held, &held.call.opened.tool);
    match found {
        Ok(tool) if pin.is_some_and(|pin| pin.contract == tool.contract) => {
            held.tool = Some(tool.clone());
            Ok(Some(tool))
        }
        // Whatever ran before ran under another contract: only a call without effects may go on under this one.
        _ if started && pin.is_some_and(|pin| pin.class != EffectClass::Read) => {
            settle::unknown(held).map(|()| None)
        }
        Ok(_) => prepare::note(held).map(|()| None),
        Err(failure) => settle::refused(held, failure).map(|()| None),
    }
}

fn context(held: &Held, attempt: AttemptNo, redrive: bool) -> Cx {
    Cx {
        call: held.id,
        id: held.call.opened.id.clone(),
        attempt,
        redrive,
        fence: held.on.session.lane.fence(),
        place: held.on.batch.head.place.clone(),
        artifacts: Artifacts::new(held.on.session.lane.clone()),
    }
}

async fn result(held: &mut Held, tool: &Registered, ran: Ran) -> Attempted {
    let failure = match ran {
        Ran::Returned(Ok(output)) => match success(held, tool, output).await {
            Ok(success) => return Attempted::Ok(success),
            Err(failure) => failure,
        },
        Ran::Returned(Err(error)) => Box::new(failure(held, error)),
        Ran::Panicked(what) => Box::new(internal(held, Code::ToolPanicked, what)),
    };
    if let Some(detail) = &failure.detail {
        tracing::error!(call = %handle(held), tool = %tool.spec.name, code = %failure.code, detail, "a call failed inside");
    }
    Attempted::Failed(failure)
}

/// Checks what the tool returned, and keeps what is too long for an answer beside the journal.
async fn success(held: &mut Held, tool: &Registered, output: Output) -> Result<Success, Box<Failure>> {
    let Output { value, kept, parts } = output;
    if let Some(kept) = kept {
        return streamed(held, kept, parts).await;
    }
    let limits = &*held.on.rt.limits;
    let size = match json::measure_result(&value, limits) {
        Ok(size) => size,
        Err(problem) => {
            json::dismantle(value);
            return Err(Box::new(bad_output(problem.to_string(), None)));
        }
    };
    let text = serde_json::to_string(&value).unwrap_or_default();
    check_output(tool, &value, (size, &text))?;
    drop(value);
    let success = Success { value: Value::Inline(text.into()), parts };
    let full = projection::full_text(&success);
    if projection::fits(&full, limits) && !tool.spec.flags.persist_output {
        return Ok(success);
    }
    let limits = held.on.rt.limits.clone();
    let rows = Artifacts::new(held.on.session.lane.clone()).rows(full.as_bytes()).await;
    let (kept, rows) = rows.map_err(|error| Box::new(failure(held, error.into())))?;
    held.carry(rows);
    let whole = Outcome::Succeeded(success.clone());
    held.model = Some(projection::project(&whole, Some(kept), &limits));
    Ok(kept_value(success, kept))
}

/// The value as it is recorded once all its text is kept: not a second time, unless parts were added to it.
fn kept_value(success: Success, kept: Kept) -> Success {
    let has_text = success.parts.iter().any(|part| matches!(part, Part::Text(_) | Part::Json(_)));
    match success.value {
        Value::Inline(text) if !has_text => {
            let form = if text.starts_with('"') { Form::Text } else { Form::Json };
            Success { value: Value::Kept { kept, form }, parts: success.parts }
        }
        value @ (Value::Inline(_) | Value::Kept { .. }) => Success { value, parts: success.parts },
    }
}

/// A result that the tool has kept itself: the model is told its ends.
async fn streamed(held: &mut Held, kept: Kept, parts: Vec<Part>) -> Result<Success, Box<Failure>> {
    let limits = held.on.rt.limits.clone();
    let artifacts = Artifacts::new(held.on.session.lane.clone());
    let most = limits.answer_bytes_max;
    let ends = async {
        let head = artifacts.read(kept.artifact, 0, most).await?;
        let tail = artifacts.read(kept.artifact, kept.bytes.saturating_sub(most), most).await?;
        Ok::<_, ArtifactError>((head, tail))
    };
    let (head, tail) = ends.await.map_err(|error| Box::new(failure(held, error.into())))?;
    let ends = Ends { head: &head, tail: &tail, total: kept.bytes };
    let mut model = projection::project_ends(ends, Some(kept), &limits);
    model.parts.extend(parts.iter().cloned());
    held.model = Some(model);
    Ok(Success { value: Value::Kept { kept, form: Form::Text }, parts })
}

fn check_output(
    tool: &Registered,
    value: &serde_json::Value,
    (size, text): (Size, &str),
) -> Result<(), Box<Failure>> {
    let Some(schema) = &tool.output else { return Ok(()) };
    schema.validate(value, size).map_err(|invalid| {
        Box::new(bad_output(
            format!("It does not fit the tool's own output schema.\n{invalid}"),
            Some(text.to_string()),
        ))
    })
}

fn bad_output(what: String, raw: Option<String>) -> Failure {
    Failure {
        class: FailureClass::Execution,
        source: Source::Tool,
        raw,
        ..Failure::invalid_request(
            Code::InvalidOutput,
            format!("The tool returned something that is refused. {what}"),
        )
    }
}

fn failure(held: &Held, error: ToolError) -> Failure {
    if error.class == FailureClass::Internal {
        return internal(held, Code::Internal, error.detail.unwrap_or(error.message));
    }
    Failure {
        class: error.class,
        source: Source::Tool,
        code: Code::ToolFailed,
        tool_code: error.tool_code,
        message: error.message,
        detail: error.detail,
        retry: error.retry,
        raw: None,
    }
}

fn internal(held: &Held, code: Code, detail: String) -> Failure {
    Failure::internal(code, &handle(held).to_string(), detail)
}

fn handle(held: &Held) -> Handle {
    Artifacts::new(held.on.session.lane.clone()).call_handle(held.id)
}
