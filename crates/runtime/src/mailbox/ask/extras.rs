//! Parts and raw output of external answers: checked before they are stored.

use super::{AskError, kept};
use crate::api::data_error::ArtifactError;
use crate::api::error::SessionError;
use crate::api::limits::Limits;
use crate::api::output::{ErrorExtras, Output, RawOutput};
use crate::session::artifacts::size_in;
use serde_json::Value;
use windlass_core::ids::SessionNo;
use windlass_core::operation::{AnswerExtras, Completion};
use windlass_core::outcome::{JsonText, Part};
use windlass_store::Store;

/// Parts and raw output of an answer, if it has any.
pub(super) fn of_output(output: &Output, limits: &Limits) -> Result<Option<Box<AnswerExtras>>, AskError> {
    let Output { parts, raw, control, pending, kept: elsewhere, .. } = output;
    if pending.is_some() || elsewhere.is_some() {
        let what =
            "an answer from outside is neither pending nor kept: upload what is long, and name it in a part";
        return Err(AskError::Invalid { what: what.to_string() });
    }
    let raw = raw.as_deref().map(|raw| raw_json(raw, limits)).transpose()?;
    joined(parts, raw, control.as_deref(), limits)
}

/// Parts and raw output of an error, if it has any.
pub(super) fn of_error(extras: &ErrorExtras, limits: &Limits) -> Result<Option<Box<AnswerExtras>>, AskError> {
    let raw = extras.raw.as_ref().map(|raw| kept(raw, limits)).transpose()?;
    joined(&extras.parts, raw, extras.control.as_ref(), limits)
}

fn joined(
    parts: &[Part],
    raw: Option<JsonText>,
    control: Option<&Value>,
    limits: &Limits,
) -> Result<Option<Box<AnswerExtras>>, AskError> {
    check_parts(parts, limits)?;
    let control = control.map(|control| kept(control, limits)).transpose()?;
    if parts.is_empty() && raw.is_none() && control.is_none() {
        return Ok(None);
    }
    Ok(Some(Box::new(AnswerExtras { parts: parts.to_vec(), raw, control })))
}

/// Raw output of an answer travels as JSON: text that is JSON as it is, other text as a string.
fn raw_json(raw: &RawOutput, limits: &Limits) -> Result<JsonText, AskError> {
    let invalid = |what: &str| AskError::Invalid { what: what.to_string() };
    let RawOutput::Bytes { bytes, .. } = raw else {
        return Err(invalid(
            "the raw output of an answer from outside is a value; name stored bytes in a part",
        ));
    };
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("the raw output of an answer is text"))?;
    let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    kept(&value, limits)
}

fn check_parts(parts: &[Part], limits: &Limits) -> Result<(), AskError> {
    let bytes: u64 = parts.iter().map(|part| crate::api::output::part_bytes(part) as u64).sum();
    let (max, most) = (limits.result_json_bytes_max, limits.answer_parts_max);
    let what = if bytes > max {
        format!("the parts have {bytes} bytes and may have {max}; upload them as artifacts")
    } else if parts.len() as u64 > most {
        format!("the answer has {} parts and may have {most}", parts.len())
    } else {
        return Ok(());
    };
    Err(AskError::Invalid { what })
}

/// The answer with the sizes of the artifacts that it names. One that names artifacts of other sessions, or none at all, is
/// refused.
pub(super) async fn with_sizes(
    store: &dyn Store,
    session: SessionNo,
    completion: &Completion,
) -> Result<Completion, AskError> {
    let mut completion = completion.clone();
    let (Completion::Ok { extras: Some(extras), .. } | Completion::Error { extras: Some(extras), .. }) =
        &mut completion
    else {
        return Ok(completion);
    };
    for part in &mut extras.parts {
        let (Part::File { kept, .. } | Part::KeptImage { kept, .. }) = part else { continue };
        let Some(bytes) = size_in(store, session, kept.artifact).await.map_err(lost)? else {
            let artifact = kept.artifact;
            let what =
                format!("there is no artifact {artifact} in the session of the call; upload it there first");
            return Err(AskError::Invalid { what });
        };
        kept.bytes = bytes;
    }
    Ok(completion)
}

fn lost(error: ArtifactError) -> AskError {
    match error {
        ArtifactError::Lost(lost) => SessionError::from(lost).into(),
        error @ (ArtifactError::TooLarge { .. }
        | ArtifactError::Unknown { .. }
        | ArtifactError::MediaType { .. }) => AskError::Invalid { what: error.to_string() },
    }
}
