//! Find the tool, parse and validate the arguments: all before any effect.

use crate::error::Lost;
use crate::held::Held;
use crate::registry::Registered;
use crate::request::Parsed;
use crate::stage::settle;
use std::sync::Arc;
use windlass_core::batch::parse_args;
use windlass_core::call::{Fact, Prepared};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Source};
use windlass_core::json;

/// Notes that the call is prepared, or that it ended because it cannot be.
pub(crate) async fn note(held: &mut Held) -> Result<(), Lost> {
    held.seen_generation = held.on.rt.registry.generation();
    match check(held) {
        Ok((tool, parsed)) => {
            let prepared = Prepared {
                contract: tool.contract,
                class: tool.class,
                rules: {
                    let rules = windlass_core::attempt::Rules::of(&tool.spec, &held.on.rt.limits);
                    (rules != windlass_core::attempt::Rules::unsaid(tool.class)).then(|| Arc::new(rules))
                },
                reconciles: tool.tool.reconciler().is_some(),
                made: None,
            };
            held.tool = Some(tool);
            held.parsed = Some(Ok(parsed));
            held.note(Fact::Prepared(prepared))
        }
        Err(failure) => settle::refused(held, failure),
    }
}

/// Whether the call cannot be prepared yet: one that was taken over waits for its tool, a fresh one is refused.
pub(crate) fn must_wait(held: &Held) -> bool {
    !held.past.fresh && held.on.rt.registry.find(&held.call.opened.tool).is_none()
}

fn check(held: &mut Held) -> Result<(Arc<Registered>, Parsed), Box<Failure>> {
    let opened = &held.call.opened;
    if held.on.batch.has_twin(held.id.ordinal) {
        let message = format!(
            "Two different calls of this batch have the id {:?}, so neither was run. Give each call its own id.",
            opened.id
        );
        return Err(Box::new(Failure::invalid_request(Code::CallIdConflict, message)));
    }
    let tool = find(held, &opened.tool)?;
    let parsed = match held.parsed.take() {
        Some(parsed) => parsed.map_err(unfit)?,
        None => parse(held)?,
    };
    validate(&tool, &parsed)?;
    Ok((tool, parsed))
}

/// The tool that was asked for, or the failure that names the nearest.
pub(crate) fn find(held: &Held, asked: &str) -> Result<Arc<Registered>, Box<Failure>> {
    held.on.rt.registry.find(asked).ok_or_else(|| {
        let hint = match held.on.rt.registry.nearest(asked) {
            Some(nearest) => format!("Did you mean {nearest:?}?"),
            None => "Use one of the tools you were given.".to_string(),
        };
        Box::new(Failure {
            class: FailureClass::Unavailable,
            source: Source::Runtime,
            ..Failure::invalid_request(Code::NoSuchTool, format!("There is no tool {asked:?}. {hint}"))
        })
    })
}

/// Reads the arguments from the record.
pub(crate) fn parse(held: &Held) -> Result<Parsed, Box<Failure>> {
    let limits = &held.on.rt.limits;
    let parsed = parse_args(&held.call.opened.args, limits).and_then(|value| {
        let size = json::measure(&value, limits)?;
        Ok(Parsed { value, size })
    });
    parsed.map_err(unfit)
}

fn unfit(problem: json::Problem) -> Box<Failure> {
    Box::new(Failure::invalid_request(problem.code, problem.to_string()))
}

fn validate(tool: &Registered, parsed: &Parsed) -> Result<(), Box<Failure>> {
    let (code, problem) = match &tool.input {
        Some(schema) => match schema.validate(&parsed.value, parsed.size) {
            Ok(()) => return Ok(()),
            Err(invalid) => (invalid.code(), invalid.to_string()),
        },
        None if parsed.value.is_object() => return Ok(()),
        None => (Code::InvalidArgs, "the arguments: expected an object".to_string()),
    };
    let message = format!("The arguments of {:?} are not valid.\n{problem}", tool.spec.name);
    Err(Box::new(Failure::invalid_request(code, message)))
}
