//! What the exit code says, and how errors are told.

use serde_json::Value;
use std::process::ExitCode;
use windlass::core::code::Code;
use windlass::store::StoreError;
use windlass::{AskError, BatchError, Lost, RegisterError};
use windlass_server::Problem;
use windlass_server::client::ClientError;
use windlass_tools::ConfigError;

const FAILED: u8 = 1;
/// What clap exits with, too.
const USAGE: u8 = 2;
const UNKNOWN: u8 = 3;
const REFUSED: u8 = 4;
const OPEN: u8 = 5;
const FOLDER: u8 = 6;

/// Something was asked for in the wrong way.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The code that tells how these calls ended: the worst of them decides.
pub fn of(calls: &[Value]) -> ExitCode {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let refused = [Code::Conflict.as_str(), Code::CallIdConflict.as_str()];
    let worst = calls.iter().map(|call| match text(&call["state"]).as_str() {
        "succeeded" => 0,
        "unknown" => UNKNOWN,
        _ if call["outcome"].is_null() => OPEN,
        _ if refused.contains(&text(&call["outcome"]["failure"]["code"]).as_str()) => REFUSED,
        _ => FAILED,
    });
    // An unknown call needs a person before anything else; a conflict is a mistake of the caller.
    let rank = |code: &u8| [0, OPEN, FAILED, REFUSED, UNKNOWN].iter().position(|known| known == code);
    ExitCode::from(worst.max_by_key(rank).unwrap_or(0))
}

/// The code for calls that stay open.
pub fn open() -> ExitCode {
    ExitCode::from(OPEN)
}

/// Leaves at once, with calls open.
pub fn leave_now() -> ! {
    std::process::exit(i32::from(OPEN))
}

/// The code for a folder that is not what it should be.
pub fn folder() -> ExitCode {
    ExitCode::from(FOLDER)
}

/// Prints an error with its causes, and says by its code what kind it is.
pub fn report(error: &anyhow::Error) -> ExitCode {
    eprintln!("windlass: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  because {cause}");
    }
    ExitCode::from(code(error))
}

fn code(error: &anyhow::Error) -> u8 {
    if let Some(error) = error.downcast_ref::<BatchError>() {
        return batch(error);
    }
    if let Some(error) = error.downcast_ref::<AskError>() {
        return match error {
            AskError::NotFound { .. } | AskError::NoKey | AskError::NoQuestion => USAGE,
            AskError::Unfit { .. }
            | AskError::Conflict
            | AskError::Answered
            | AskError::Over { .. }
            | AskError::NoSignal { .. }
            | AskError::TooManySignals { .. }
            | AskError::KeyUsed
            | AskError::Invalid { .. } => REFUSED,
            AskError::Batch(error) => batch(error),
        };
    }
    if let Some(error) = error.downcast_ref::<ClientError>() {
        return match error {
            // The same requests get the same codes, whoever answered them.
            ClientError::Problem(problem) => problem_code(problem),
            ClientError::Unreachable { .. } | ClientError::Garbled { .. } => FOLDER,
            ClientError::NoAddress { .. } => USAGE,
        };
    }
    if let Some(problem) = error.downcast_ref::<Problem>() {
        return problem_code(problem);
    }
    if error.is::<StoreError>() || error.is::<Lost>() {
        return FOLDER;
    }
    // What is written in windlass.toml is as much asked for as what is written on the command line.
    let usage = error.is::<Usage>() || error.is::<ConfigError>() || error.is::<RegisterError>();
    if usage { USAGE } else { FAILED }
}

fn problem_code(problem: &Problem) -> u8 {
    match problem.status {
        // A batch that is refused is refused, whatever is wrong with it.
        400 if problem.code == "bad_batch" => REFUSED,
        400 | 404 => USAGE,
        401 | 403 => FOLDER,
        500.. if problem.code != "overloaded" => FOLDER,
        _ => REFUSED,
    }
}

fn batch(error: &BatchError) -> u8 {
    match error {
        BatchError::Shape { .. } | BatchError::Closed { .. } => REFUSED,
        BatchError::SessionClosed { .. } | BatchError::Overloaded { .. } => REFUSED,
        BatchError::Owned { .. } | BatchError::Unreadable { .. } | BatchError::Lost(_) => FOLDER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_cannot_be_had_or_was_lost_is_told_apart() {
        let lost = || BatchError::from(StoreError::Poisoned { because: "a fault".into() });
        let damaged = StoreError::Damaged {
            session: windlass::core::ids::SessionNo(1),
            entry: 1,
            what: "its hash is another".to_owned(),
        };
        for error in [
            anyhow::Error::new(lost()),
            anyhow::Error::new(BatchError::from(damaged)),
            anyhow::Error::new(StoreError::Closed),
            anyhow::Error::new(lost()).context("while it ran"),
        ] {
            assert_eq!(code(&error), FOLDER, "{error:#}");
        }
        assert!(lost().to_string().contains("what was acknowledged is safe"), "{}", lost());
    }
}
