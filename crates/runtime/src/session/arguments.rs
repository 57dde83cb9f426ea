//! The recorded arguments of a call.

use crate::api::limits::EnforcedLimits;
use crate::api::output::ToolError;
use crate::api::secret::SecretError;
use crate::session::held::Held;
use crate::session::vault::untag;
use crate::tools::request::Parsed;
use serde_json::Value;
use std::borrow::Cow;
use windlass_args::json;
use windlass_core::failure::Failure;

/// Reads the arguments that run from the record: those made in preparation, else the submitted ones.
pub(crate) fn parse(held: &Held) -> Result<Parsed, Box<Failure>> {
    let limits = &held.on.rt.limits;
    let value = match held.call.made.as_ref().and_then(|made| made.args.as_deref()) {
        Some(args) => json::parse(args, limits.args()),
        None => held.call.opened.args.parse(limits.args()),
    };
    value.and_then(|value| measured(value, limits)).map_err(unfit)
}

/// Takes the arguments that run: as they are at hand, or from the record.
pub(crate) fn take(held: &mut Held) -> Result<Parsed, Box<Failure>> {
    match held.parsed.take() {
        Some(Ok(parsed)) => Ok(parsed),
        Some(Err(_)) | None => parse(held),
    }
}

/// The arguments that run with the secrets that they refer to; `None` if they refer to none.
#[cold]
pub(crate) fn revealed(held: &Held) -> Result<Option<Value>, ToolError> {
    let made = held.call.made.as_ref().and_then(|made| made.args.as_deref());
    let text = made.unwrap_or(&held.call.opened.args.text);
    let vault = held.on.session.lane.vault();
    let revealed = vault.reveal(held.reference_place(), text).map_err(SecretError::into_tool_error)?;
    let value = revealed.map(|text| json::parse(text.trim_ascii(), held.on.rt.limits.args()));
    // The problem may show a value.
    value
        .transpose()
        .map_err(|_| ToolError::internal("the arguments cannot be read once secrets stand in them"))
}

/// Arguments by which calls are compared with others: references to one secret are equal there, whichever call has them.
pub(crate) fn untagged<'a>(held: &Held, args: &'a Value) -> Cow<'a, Value> {
    if !held.on.rt.secrets.is_used() {
        return Cow::Borrowed(args);
    }
    let text = untag(&args.to_string());
    text.and_then(|text| serde_json::from_str(&text).ok()).map_or(Cow::Borrowed(args), Cow::Owned)
}

pub(crate) fn measured(value: Value, limits: &EnforcedLimits) -> Result<Parsed, json::JsonProblem> {
    match json::measure(&value, limits.args()) {
        Ok(size) => Ok(Parsed { value, size }),
        Err(problem) => {
            json::dismantle(value);
            Err(problem)
        }
    }
}

pub(crate) fn unfit(problem: json::JsonProblem) -> Box<Failure> {
    Box::new(Failure::invalid_request(problem.code.into(), problem.to_string()))
}
