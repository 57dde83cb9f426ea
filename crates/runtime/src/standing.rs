//! What schedules and triggers have in common: calls that a session has ordered in advance, each under an id.

use crate::background;
use crate::error::{BatchError, no_randomness};
use crate::runtime::{Inner, check_session_name};
use crate::tool::Place;
use serde_json::Value;
use windlass_core::limits::Limits;

/// The id that somebody chose for a schedule or a trigger, if it can be one.
pub(crate) fn check_id(what: &str, id: &str) -> Result<(), String> {
    // As sessions are named.
    check_session_name(id)
        .map_err(|_| format!("the id of a {what} is 1 to 64 of a-z, A-Z, 0-9, _, . and -; {id:?} is not"))
}

/// An id that nobody has.
pub(crate) fn fresh_id() -> Result<String, BatchError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(no_randomness)?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

/// Whether people can call it so.
pub(crate) fn check_title(title: Option<&str>, limits: &Limits) -> Result<(), String> {
    let max = limits.schedule_text_chars_max;
    if title.is_none_or(|title| title.chars().count() as u64 <= max && !title.chars().any(char::is_control)) {
        return Ok(());
    }
    Err(format!(
        "a title has at most {max} characters, and no control characters; call it by something shorter"
    ))
}

/// The arguments for the tool that is to be called in this session, if it can be.
pub(crate) async fn target(rt: &Inner, session: &str, (tool, args): (&str, Value)) -> Result<Value, String> {
    let target = background::target(rt, &place(session), (tool, args)).await;
    target.map(|(_, args)| args).map_err(|failure| failure.message)
}

/// Where such a call is made: nothing but its session is known.
pub(crate) fn place(session: &str) -> Place {
    Place::new(session.into(), "".into(), None)
}
