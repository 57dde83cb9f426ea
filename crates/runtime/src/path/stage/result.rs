//! Make the recorded result of what a tool returned.

mod side;

pub(crate) use side::failure as settled_failure;

use crate::api::data_error::ArtifactError;
use crate::api::limits::EnforcedLimits;
use crate::api::output::{ErrorExtras, Output, ToolError, part_bytes, recorded_failure, shorten};
use crate::attempt::threads::Ran;
use crate::path::hooks;
use crate::session::artifacts::Artifacts;
use crate::session::held::Held;
use crate::session::vault;
use crate::tools::registry::Registered;
use std::pin::Pin;
use windlass_args::json::{self, Size};
use windlass_core::call::Result as Attempted;
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Source};
use windlass_core::handle::Handle;
use windlass_core::outcome::{Effect, Form, KeptBytes, Outcome, Part, Success, Value};
use windlass_core::projection::{self, Ends};

/// The media type of stored text.
const TEXT: &str = "text/plain";
/// The media type of a stored value.
const JSON: &str = "application/json";

/// Room for the text of most results.
const TEXT_BYTES: usize = 128;

/// A wait before the recorded result is known.
pub(crate) type ResultWait<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The recorded form of an attempt's result. Mostly that is known at once; waits for hooks or for the store
/// are boxed, so that most results need no space for them.
pub(crate) fn of<'a>(
    held: &'a mut Held,
    tool: &'a Registered,
    ran: Ran,
) -> Result<Attempted, ResultWait<'a, Attempted>> {
    let returned = match ran {
        Ran::Returned(returned) => returned.map_err(|error| Box::new(failure(held, error))),
        Ran::Panicked(what) => Err(Box::new(internal(held, Code::ToolPanicked, what))),
        Ran::Waits => Err(Box::new(internal(held, Code::Internal, "a tool waits that cannot".to_string()))),
    };
    if !held.on.rt.hooks.is_empty() || is_more(&returned) {
        return Err(Box::pin(async move {
            let returned = match held.on.rt.hooks.is_empty() {
                true => returned,
                false => hooks::after(held, tool, returned).await,
            };
            let returned = match returned {
                Ok(output) => success(held, tool, output).await,
                Err(failure) => Err(side::failure(held, failure).await),
            };
            attempted(held, tool, returned)
        }));
    }
    match returned.map(|output| checked(held, tool, output)) {
        Ok(ResultVerdict::Told(success)) => Ok(Attempted::Ok(success)),
        Ok(checked) => Err(Box::pin(async move {
            let returned = settled(held, checked).await;
            attempted(held, tool, returned)
        })),
        Err(failure) => Ok(attempted(held, tool, Err(failure))),
    }
}

/// Replaces secrets in whatever a tool returned, before anybody sees it. A value that fitted the tool's output schema still counts as
/// fitting: the tool has kept its promise.
#[cold]
pub(crate) fn scrub_ran(held: &mut Held, tool: &Registered, ran: &mut Ran) {
    held.is_scrubbed = false;
    let Some(known) = held.on.session.lane.vault().known() else { return };
    match ran {
        Ran::Returned(Ok(output)) => {
            let size = json::measure_result(&output.value, held.on.rt.limits.args());
            let fits = size.is_ok_and(|size| broken_promise(tool, &output.value, size).is_none());
            held.is_scrubbed = vault::scrub_output(&known, output) && fits;
        }
        Ran::Returned(Err(error)) => vault::scrub_error(&known, error),
        Ran::Panicked(what) => known.scrub_string(what),
        Ran::Waits => {}
    }
}

/// Whether it takes the store to record the result: raw output is kept there, and parts of a failure may name artifacts.
fn is_more(returned: &Result<Output, Box<Failure>>) -> bool {
    match returned {
        Ok(output) => output.raw.is_some(),
        Err(failure) => !failure.parts.is_empty() || failure.side.is_some() || failure.raw.is_some(),
    }
}

/// Checks what the tool returned, and keeps what is too long for an answer beside the journal.
pub(crate) async fn success(
    held: &mut Held,
    tool: &Registered,
    mut output: Output,
) -> Result<Success, Box<Failure>> {
    if held.on.rt.secrets.is_used()
        && let Some(known) = held.on.session.lane.vault().known()
    {
        vault::scrub_output(&known, &mut output);
    }
    let raw = match output.raw.take() {
        Some(raw) => Some(side::keep_raw(held, *raw).await?),
        None => None,
    };
    let checked = checked(held, tool, output);
    let settled = settled(held, checked).await;
    let Some(raw) = raw else { return settled };
    match settled {
        Ok(mut success) => {
            success.side.get_or_insert_default().raw = Some(raw);
            Ok(success)
        }
        Err(mut failure) => {
            failure.side.get_or_insert_default().raw = Some(raw);
            Err(failure)
        }
    }
}

/// The result of an attempt; what operators should know of it is logged.
fn attempted(held: &Held, tool: &Registered, returned: Result<Success, Box<Failure>>) -> Attempted {
    let failure = match returned {
        Ok(success) => return Attempted::Ok(success),
        Err(failure) => failure,
    };
    // One that is internal is logged where its reference is made.
    if failure.class != FailureClass::Internal
        && let Some(detail) = &failure.detail
    {
        tracing::error!(reference = %handle(held), tool = %tool.spec.name, code = %failure.code, detail, "a call failed inside");
    }
    Attempted::Failed(failure)
}

/// How to record a tool's result.
enum ResultVerdict {
    /// The model is told all of it.
    Told(Success),
    /// The model sees all of it, and it names artifacts.
    Named(Success),
    /// It is too long for that, or is to be kept whatever its length.
    Long(Success),
    /// The tool has kept it itself.
    Kept(KeptBytes, Success),
    /// The tool has kept it itself, and promised something that cannot be checked of it.
    Unchecked(KeptBytes),
    /// It is not what the tool promised.
    Broken { problem: String, text: String },
    /// It cannot be recorded.
    Bad(Box<Failure>),
}

fn checked(held: &mut Held, tool: &Registered, output: Output) -> ResultVerdict {
    let Output { value, kept, parts, control, .. } = output;
    let limits = &*held.on.rt.limits;
    let side = match control.map(|control| side::control(*control, limits)) {
        None => None,
        Some(Ok(side)) => Some(side),
        Some(Err(problem)) => return ResultVerdict::Bad(Box::new(bad_output(problem, None))),
    };
    if let Some(kept) = kept {
        let success = Success { parts, side, ..Success::default() };
        return match tool.output {
            Some(_) => ResultVerdict::Unchecked(kept),
            None => ResultVerdict::Kept(kept, success),
        };
    }
    let mut text = std::mem::take(&mut held.spare.scratch);
    if text.capacity() < TEXT_BYTES {
        text = String::with_capacity(TEXT_BYTES);
    }
    let size = match json::write_result(&value, limits.args(), &mut text) {
        Ok(size) => size,
        Err(problem) => {
            json::dismantle(value);
            return ResultVerdict::Bad(Box::new(bad_output(problem.to_string(), None)));
        }
    };
    if let Err(failure) = check_parts(&parts, limits) {
        return ResultVerdict::Bad(failure);
    }
    if !held.is_scrubbed
        && let Some(problem) = broken_promise(tool, &value, size)
    {
        return ResultVerdict::Broken { problem, text };
    }
    drop(value);
    let success = Success { value: Value::Inline(text.as_str().into()), parts, side };
    text.clear();
    held.spare.scratch = text;
    let is_told = projection::fits(&projection::full_text(&success), &held.answer_limits());
    match is_told && !tool.spec.flags.persist_output {
        true if names_files(&success.parts) => ResultVerdict::Named(success),
        true => ResultVerdict::Told(success),
        false => ResultVerdict::Long(success),
    }
}

async fn settled(held: &mut Held, checked: ResultVerdict) -> Result<Success, Box<Failure>> {
    match checked {
        ResultVerdict::Told(success) => Ok(success),
        ResultVerdict::Named(success) => {
            refer(held, None, &success.parts).await?;
            Ok(success)
        }
        ResultVerdict::Long(success) => {
            refer(held, None, &success.parts).await?;
            kept_beside(held, success).await
        }
        ResultVerdict::Kept(kept, success) => {
            refer(held, Some(kept), &success.parts).await?;
            streamed(held, kept, success).await
        }
        ResultVerdict::Unchecked(kept) => {
            refer(held, Some(kept), &[]).await?;
            let what = uncheckable(kept, &held.on.rt.limits);
            Err(Box::new(bad_output(what, None)))
        }
        ResultVerdict::Broken { problem, text } => Err(Box::new(refused_output(held, problem, text).await)),
        ResultVerdict::Bad(failure) => Err(failure),
    }
}

fn names_files(parts: &[Part]) -> bool {
    parts.iter().any(|part| part.kept().is_some())
}

/// From now on the result refers to the artifacts it names.
async fn refer(held: &mut Held, kept: Option<KeptBytes>, parts: &[Part]) -> Result<(), Box<Failure>> {
    let artifacts = Artifacts::new(held.on.session.lane.clone());
    let files = parts.iter().filter_map(Part::kept);
    for kept in kept.into_iter().chain(files) {
        match artifacts.refer(held.id.batch, kept.artifact).await {
            Ok(rows) => held.carry(rows),
            Err(error @ ArtifactError::Unknown { .. }) => {
                return Err(Box::new(bad_output(error.to_string(), None)));
            }
            Err(error) => return Err(Box::new(unreadable(held, error))),
        }
    }
    Ok(())
}

/// Keeps all text of a result beside the journal; the model is told its ends, and where the rest is.
async fn kept_beside(held: &mut Held, success: Success) -> Result<Success, Box<Failure>> {
    let full = projection::full_text(&success);
    let has_text = success.parts.iter().any(|part| matches!(part, Part::Text(_) | Part::Json(_)));
    let is_json = matches!(&success.value, Value::Inline(text) if !text.starts_with('"')) && !has_text;
    let media_type = if is_json { JSON } else { TEXT };
    let rows =
        Artifacts::new(held.on.session.lane.clone()).rows(held.id.batch, full.as_bytes(), media_type).await;
    let (kept, rows) = rows.map_err(|error| Box::new(failure(held, error.into())))?;
    held.carry(rows);
    let whole = Outcome::Succeeded(success.clone());
    held.model = Some(projection::project(&whole, Some(kept), &held.answer_limits()));
    Ok(kept_value(success, kept))
}

/// The value as it is recorded once all its text is kept: not a second time, unless parts were added to it.
fn kept_value(success: Success, kept: KeptBytes) -> Success {
    let has_text = success.parts.iter().any(|part| matches!(part, Part::Text(_) | Part::Json(_)));
    match success.value {
        Value::Inline(text) if !has_text => {
            let form = if text.starts_with('"') { Form::Text } else { Form::Json };
            Success { value: Value::Kept { kept, form }, ..success }
        }
        value @ (Value::Inline(_) | Value::Kept { .. }) => Success { value, ..success },
    }
}

/// A result that the tool has kept itself: the model is told its ends.
async fn streamed(held: &mut Held, kept: KeptBytes, success: Success) -> Result<Success, Box<Failure>> {
    let limits = held.answer_limits().into_owned();
    let artifacts = Artifacts::new(held.on.session.lane.clone());
    let most = limits.answer_bytes_max;
    let ends = async {
        let head = artifacts.read(kept.artifact, 0, most).await?;
        let tail = artifacts.read(kept.artifact, kept.bytes.saturating_sub(most), most).await?;
        Ok::<_, ArtifactError>((head, tail))
    };
    let (head, tail) = ends.await.map_err(|error| Box::new(unreadable(held, error)))?;
    let ends = Ends { head: &head, tail: &tail, total: kept.bytes };
    let mut model = projection::project_ends(ends, Some(kept), &limits);
    model.parts.extend(projection::parts_in_order(&success.parts, &limits));
    held.model = Some(model);
    Ok(Success { value: Value::Kept { kept, form: Form::Text }, ..success })
}

/// A value that was just stored cannot be read: the store is lost, and that is not a failure of the tool.
fn unreadable(held: &Held, error: ArtifactError) -> Failure {
    if let ArtifactError::Lost(lost) = &error {
        held.on.session.lane.lose(lost.clone());
    }
    failure(held, error.into())
}

/// The problem of bytes where the tool's output schema requires a value.
pub(crate) fn uncheckable(kept: KeptBytes, limits: &EnforcedLimits) -> String {
    let KeptBytes { artifact, bytes } = kept;
    let max = limits.result_json_bytes_max;
    format!(
        "It cannot be checked by the tool's own output schema: it is kept as bytes ({bytes} of them), since it is no text or \
         larger than the {max} bytes that are read as JSON.\nWhat it returned is kept as artifact {artifact}."
    )
}

/// The problem of a result by the tool's own output schema.
pub(crate) fn broken_promise(tool: &Registered, value: &serde_json::Value, size: Size) -> Option<String> {
    let invalid = tool.output.as_ref()?.validate(value, size).err()?;
    Some(format!("It does not fit the tool's own output schema.\n{invalid}"))
}

/// The failure of a result that was refused, with the result itself: in the journal, or beside it if it is long.
async fn refused_output(held: &mut Held, problem: String, text: String) -> Failure {
    if projection::fits(&text, held.on.rt.limits.call()) {
        return bad_output(problem, Some(text));
    }
    match Artifacts::new(held.on.session.lane.clone()).rows(held.id.batch, text.as_bytes(), JSON).await {
        Ok((kept, rows)) => {
            held.carry(rows);
            bad_output(format!("{problem}\nWhat it returned is kept as artifact {}.", kept.artifact), None)
        }
        Err(error) => failure(held, error.into()),
    }
}

/// Parts lie in the journal, so they are bounded like everything there.
fn check_parts(parts: &[Part], limits: &EnforcedLimits) -> Result<(), Box<Failure>> {
    if parts.is_empty() {
        return Ok(());
    }
    let bytes = parts.iter().map(part_bytes).sum::<usize>() as u64;
    let (max, most) = (limits.result_json_bytes_max, limits.answer_parts_max);
    let what = if bytes > max {
        format!("Its parts have {bytes} bytes and may have {max}; it must keep them as artifacts.")
    } else if parts.len() as u64 > most {
        format!("It has {} parts and may have {most}.", parts.len())
    } else {
        return Ok(());
    };
    Err(Box::new(bad_output(what, None)))
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

pub(crate) fn failure(held: &Held, error: ToolError) -> Failure {
    if error.class == FailureClass::Internal {
        let control = error.extras.and_then(|extras| extras.control);
        let mut failure = internal(held, Code::Internal, error.detail.unwrap_or(error.message));
        if control.is_some() {
            side::attach(&mut failure, ErrorExtras { control, ..ErrorExtras::default() });
        }
        return failure;
    }
    let mut failure = recorded_failure(&error, &held.on.rt.limits);
    if let Some(extras) = error.extras {
        side::attach(&mut failure, *extras);
    }
    // It speaks for this attempt, or a step says so of itself; of all that the call did the journal knows.
    failure.did_not_happen &= held.call.effect() == Effect::None;
    failure
}

/// The failure of an attempt that was cut off; it is logged for operators.
pub(crate) fn aborted(held: &Held, tool: &Registered, error: ToolError) -> Failure {
    let (retry, what) = (error.retry, error.detail.clone().unwrap_or_else(|| error.message.clone()));
    tracing::warn!(call = %handle(held), tool = %tool.spec.name, what, "an attempt was cut off from outside");
    Failure { retry, ..failure(held, error) }
}

/// An internal failure. The log has its whole cause under the reference that the model is told; the journal what fits.
pub(crate) fn internal(held: &Held, code: Code, detail: String) -> Failure {
    let (reference, tool) = (handle(held), &held.call.opened.tool);
    tracing::error!(%reference, %tool, %code, detail, "a call failed inside");
    Failure::internal(code, &reference.to_string(), shorten(detail, &held.on.rt.limits))
}

pub(crate) fn handle(held: &Held) -> Handle {
    Artifacts::new(held.on.session.lane.clone()).call_handle(held.id)
}
