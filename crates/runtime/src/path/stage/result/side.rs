//! Output beside a result: raw output, the word to the host, and the parts of failures.

use super::{TEXT, bad_output, check_parts, refer};
use crate::api::data_error::ArtifactError;
use crate::api::limits::EnforcedLimits;
use crate::api::output::{ErrorExtras, RawOutput};
use crate::session::artifacts::{Artifacts, check_media_type};
use crate::session::held::Held;
use windlass_args::json;
use windlass_core::failure::Failure;
use windlass_core::outcome::{KeptBytes, Outcome, SideOutput};
use windlass_core::projection;

/// Keeps raw output beside the journal; the result that is recorded next refers to it.
pub(super) async fn keep_raw(held: &mut Held, raw: RawOutput) -> Result<KeptBytes, Box<Failure>> {
    let artifacts = Artifacts::new(held.on.session.lane.clone());
    let (bytes, media_type) = match raw {
        RawOutput::Kept(kept) => {
            refer(held, Some(kept), &[]).await?;
            return Ok(kept);
        }
        RawOutput::Bytes { bytes, media_type } => (bytes, media_type),
    };
    let rows = match check_media_type(&media_type, artifacts.limits()) {
        Ok(()) => artifacts.rows(held.id.batch, &bytes, &media_type).await,
        Err(error) => Err(error),
    };
    match rows {
        Ok((kept, rows)) => {
            held.carry(rows);
            Ok(kept)
        }
        Err(error @ (ArtifactError::TooLarge { .. } | ArtifactError::MediaType { .. })) => {
            Err(Box::new(bad_output(format!("Its raw output cannot be kept: {error}."), None)))
        }
        Err(error) => Err(Box::new(super::unreadable(held, error))),
    }
}

/// The word to the host, as it is recorded.
pub(super) fn control(
    control: serde_json::Value,
    limits: &EnforcedLimits,
) -> Result<Box<SideOutput>, String> {
    let mut text = String::new();
    match json::write_result(&control, limits.args(), &mut text) {
        Ok(_) => Ok(Box::new(SideOutput { raw: None, control: Some(text.into()) })),
        Err(problem) => {
            json::dismantle(control);
            Err(format!("Its control value cannot be kept: {problem}."))
        }
    }
}

/// Adds what a tool's error carries; [`failure`] checks it before it is recorded.
pub(super) fn attach(failure: &mut Failure, extras: ErrorExtras) {
    let ErrorExtras { parts, raw, control } = extras;
    failure.parts = parts;
    failure.raw = raw.map(|raw| raw.to_string());
    if let Some(control) = control {
        failure.side.get_or_insert_default().control = Some(control.to_string().into());
    }
}

/// A failure as it is recorded: its parts are checked, the artifacts they name are referred to, and what is too long is kept
/// beside the journal. Parts that cannot be recorded are left out, and operators are told why: the failure itself stands.
pub(crate) async fn failure(held: &mut Held, mut failure: Box<Failure>) -> Box<Failure> {
    let limits = held.on.rt.limits.clone();
    let mut problem = check_parts(&failure.parts, &limits).err();
    if problem.is_none() && failure.parts.iter().any(|part| part.kept().is_some()) {
        problem = refer(held, None, &failure.parts).await.err();
    }
    if let Some(problem) = problem {
        failure.parts.clear();
        note(&mut failure, &format!("its parts were left out: {}", problem.message));
    }
    if let Some(raw) = failure.raw.take_if(|raw| !projection::fits(raw, limits.call())) {
        match keep_raw(held, RawOutput::text(raw, super::JSON)).await {
            Ok(kept) => failure.side.get_or_insert_default().raw = Some(kept),
            Err(problem) => note(&mut failure, &problem.message),
        }
    }
    if let Some(side) = &mut failure.side
        && side.control.as_ref().is_some_and(|control| control.len() as u64 > limits.result_json_bytes_max)
    {
        side.control = None;
        note(&mut failure, "its control value was left out: it is too long");
    }
    keep_text(held, &failure).await;
    failure
}

fn note(failure: &mut Failure, what: &str) {
    let detail = failure.detail.get_or_insert_default();
    if !detail.is_empty() {
        detail.push_str("; ");
    }
    detail.push_str(what);
}

/// Keeps the text of the parts if the model cannot be shown all of it.
async fn keep_text(held: &mut Held, failure: &Failure) {
    let limits = held.answer_limits().into_owned();
    let text = projection::failure_text(failure);
    if projection::failure_fits(failure, &limits) {
        return;
    }
    let outcome = Outcome::Failed(Box::new(failure.clone()));
    let artifacts = Artifacts::new(held.on.session.lane.clone());
    if let Ok((kept, rows)) = artifacts.rows(held.id.batch, text.as_bytes(), TEXT).await {
        held.carry(rows);
        held.model = Some(projection::project(&outcome, Some(kept), &limits));
    }
}
