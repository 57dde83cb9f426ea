//! The recorded arguments of a call.

use crate::api::limits::EnforcedLimits;
use crate::session::held::Held;
use crate::tools::request::Parsed;
use serde_json::Value;
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
