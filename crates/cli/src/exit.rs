//! Exit codes, and how errors are reported.

use crate::show::ReaderGone;
use serde_json::Value;
use std::process::ExitCode;
use windlass::BatchError;
use windlass::error::{AskError, Lost, RegisterError, SessionError};
use windlass::store::StoreError;
use windlass::store::sqlite::backup::BackupError;
use windlass_core::code::Code;
use windlass_server::client::ClientError;
use windlass_server::{Problem, ProblemCode};
use windlass_tools::ConfigError;

const FAILED: u8 = 1;
/// The exit code clap uses, too.
const USAGE: u8 = 2;
const UNKNOWN: u8 = 3;
const REFUSED: u8 = 4;
const OPEN: u8 = 5;
const FOLDER: u8 = 6;

/// Wrong usage of the command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// A signal to stop, before there was anything to be stopped.
#[derive(Debug, thiserror::Error)]
#[error("{0}: stopped before it served anybody")]
pub struct StoppedWaiting(pub &'static str);

/// The exit code for these calls: the worst of them decides.
pub fn of(calls: &[Value]) -> ExitCode {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let refused = [Code::Conflict.as_str(), Code::CallIdConflict.as_str(), Code::Expired.as_str()];
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

/// The exit code for a test message that was not delivered.
pub fn failed() -> ExitCode {
    ExitCode::from(FAILED)
}

/// The exit code for calls that stay open.
pub fn open() -> ExitCode {
    ExitCode::from(OPEN)
}

/// Exits at once, with calls open.
pub fn leave_now() -> ! {
    crate::logs::flush();
    std::process::exit(i32::from(OPEN))
}

/// The exit code for an unusable folder.
pub fn folder() -> ExitCode {
    ExitCode::from(FOLDER)
}

/// Prints an error with its causes, and returns the exit code for its kind.
pub fn report(error: &anyhow::Error) -> ExitCode {
    // `| head` expects a silent exit.
    if error.is::<ReaderGone>() {
        return ExitCode::SUCCESS;
    }
    let causes: String = error.chain().skip(1).map(|cause| format!("\n  because {cause}")).collect();
    crate::logs::tell!("{error}{causes}");
    ExitCode::from(code(error))
}

fn code(error: &anyhow::Error) -> u8 {
    if error.is::<StoppedWaiting>() {
        return 0;
    }
    // The same requests get the same codes, whoever answered them: a server, or the library in this process.
    if let Some(error) = error.downcast_ref::<BatchError>() {
        return of_problem(error.into());
    }
    if let Some(error) = error.downcast_ref::<SessionError>() {
        return of_problem(error.into());
    }
    if let Some(error) = error.downcast_ref::<AskError>() {
        return of_problem(error.into());
    }
    if let Some(error) = error.downcast_ref::<ClientError>() {
        return match error {
            ClientError::Problem(problem) => of_answer(problem),
            ClientError::Unreachable { .. } | ClientError::Garbled { .. } => FOLDER,
            ClientError::NoAddress { .. } => USAGE,
        };
    }
    if let Some(problem) = error.downcast_ref::<Problem>() {
        return of_answer(problem);
    }
    if let Some(error) = error.downcast_ref::<BackupError>() {
        return if matches!(error, BackupError::Target { .. }) { USAGE } else { FOLDER };
    }
    if error.is::<StoreError>() || error.is::<Lost>() {
        return FOLDER;
    }
    // windlass.toml counts as user input, like the command line.
    let usage = error.is::<Usage>() || error.is::<ConfigError>() || error.is::<RegisterError>();
    if usage { USAGE } else { FAILED }
}

/// The exit code for an answer of a server, which may be newer than this command and have a code of its own.
fn of_answer(problem: &Problem) -> u8 {
    if problem.code == ProblemCode::Unlisted { of_status(problem.status) } else { of_problem(problem.code) }
}

fn of_problem(code: ProblemCode) -> u8 {
    // A batch that is refused is refused, whatever is wrong with it.
    let is_batch = matches!(code, ProblemCode::BadBatch | ProblemCode::Overloaded);
    if is_batch { REFUSED } else { of_status(code.status()) }
}

fn of_status(status: u16) -> u8 {
    match status {
        400 | 404 => USAGE,
        401 | 403 | 500.. => FOLDER,
        _ => REFUSED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_malformed_requests_and_missing_sessions_have_codes_of_their_own() {
        let missing = || SessionError::NotFound { session: "s".to_string() };
        let damaged = || SessionError::unreadable("entry 7");
        let malformed = || windlass::sessions::check_session_name("no name").unwrap_err();
        for (error, expected) in [
            (anyhow::Error::new(missing()), USAGE),
            (AskError::from(missing()).into(), USAGE),
            (damaged().into(), FOLDER),
            (AskError::from(damaged()).into(), FOLDER),
            (BatchError::from(damaged()).into(), FOLDER),
            (malformed().into(), USAGE),
            (BatchError::from(malformed()).into(), REFUSED),
            (SessionError::Gone { session: "s".to_string() }.into(), REFUSED),
        ] {
            assert_eq!(code(&error), expected, "{error:#}");
        }
    }

    #[test]
    fn an_answer_of_a_newer_server_is_understood_by_its_status() {
        let problem = |status: u16, code: &str| {
            let told =
                serde_json::json!({"type": "", "title": "", "status": status, "detail": "", "code": code});
            code_of(serde_json::from_value(told).unwrap())
        };
        assert_eq!([problem(404, "of tomorrow"), problem(503, "of tomorrow")], [USAGE, FOLDER]);
        assert_eq!([problem(400, "bad_batch"), problem(400, "bad_query")], [REFUSED, USAGE]);
        assert_eq!([problem(503, "overloaded"), problem(422, "of tomorrow")], [REFUSED, REFUSED]);
    }

    fn code_of(problem: Problem) -> u8 {
        code(&ClientError::Problem(problem).into())
    }

    #[test]
    fn a_store_that_cannot_be_had_or_was_lost_is_told_apart() {
        let lost = || SessionError::from(StoreError::Poisoned { because: "a fault".into() });
        let damaged = StoreError::Damaged {
            session: windlass_core::ids::SessionNo(1),
            entry: 1,
            what: "its hash is another".to_owned(),
        };
        for error in [
            anyhow::Error::new(lost()),
            anyhow::Error::new(SessionError::from(damaged)),
            anyhow::Error::new(StoreError::Closed),
            anyhow::Error::new(lost()).context("while it ran"),
        ] {
            assert_eq!(code(&error), FOLDER, "{error:#}");
        }
        assert!(lost().to_string().contains("what was acknowledged is safe"), "{}", lost());
    }
}
