//! Shared by schedules and triggers: calls that a session has ordered in advance, each under an id.

use crate::api::error::{SessionError, no_randomness};
use crate::api::limits::Limits;
use crate::path::background;
use crate::session::inner::Inner;
use crate::tools::place::BatchPlace;
use crate::tools::request::check_session_name;
use serde_json::Value;
use windlass_core::code::Code;
use windlass_core::failure::Failure;

/// Checks the chosen id of a schedule or a trigger.
pub(crate) fn check_id(what: &str, id: &str) -> Result<(), String> {
    // The rules of session names.
    check_session_name(id)
        .map_err(|_| format!("the id of a {what} is 1 to 64 of a-z, A-Z, 0-9, _, . and -; {id:?} is not"))
}

/// A unique id.
pub(crate) fn fresh_id() -> Result<String, SessionError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(no_randomness)?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

/// Checks a title.
pub(crate) fn check_title(title: Option<&str>, limits: &Limits) -> Result<(), String> {
    let max = limits.schedule_text_chars_max;
    let fits = |title: &str| {
        let chars = title.chars().count() as u64;
        !title.trim().is_empty() && chars <= max && !title.chars().any(char::is_control)
    };
    if title.is_none_or(fits) {
        return Ok(());
    }
    Err(format!(
        "a title has 1 to {max} characters, is not blank and has no control characters; call it by something else"
    ))
}

/// Checks the arguments for the tool to be called in this session.
pub(crate) async fn target(
    rt: &Inner,
    session: &str,
    tool: &str,
    args: Value,
) -> Result<Value, Box<Failure>> {
    if rt.secrets.is_used()
        && let Some(session) = rt.owned_session(session)
        && let Some(known) = session.lane.vault().known()
        && known.is_in(&args.to_string())
    {
        let message = "The arguments hold the value of a secret, and would be kept with it. Give the tool the secret by name instead.";
        return Err(Box::new(Failure::invalid_request(Code::InvalidArgs, message)));
    }
    background::target(rt, &place(session), tool, args).await.map(|(_, args)| args)
}

/// The surroundings of such a call: only its session is known.
pub(crate) fn place(session: &str) -> BatchPlace {
    BatchPlace::new(session.into(), "".into(), None)
}
