//! How a command ended, and what that means for its call.

use super::run::{Ended, StartError};
use super::stdout::Held;
use std::io;
use windlass::ToolError;
use windlass::core::failure::FailureClass;

/// How a command ended.
#[derive(Debug)]
pub enum End {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// It was never started.
    NotStarted(io::Error),
    /// Its launcher died, so nobody saw how; what was left of it has been killed.
    Lost,
}

/// The exit code by which a command says that nothing happened and it may be tried again (`EX_TEMPFAIL`).
pub const EXIT_SAFE: i32 = 75;

/// The exit code by which a command says that its result comes later, by the key it was given.
pub const EXIT_PENDING: i32 = 73;

/// Why the call failed, or none if standard output is its result.
pub fn failure(title: &str, ended: &Ended, stdout: &Held) -> Option<ToolError> {
    match &ended.end {
        End::Exited(0) => None,
        End::Exited(EXIT_SAFE) => {
            let said = last_words(ended, stdout);
            let message =
                format!("{title} could not do it now, and nothing happened (exit {EXIT_SAFE}).{said}");
            Some(coded(FailureClass::Unavailable, message, format!("exit {EXIT_SAFE}")).did_not_happen())
        }
        End::Exited(code) => {
            let message = format!("{title} failed with exit code {code}.{}", last_words(ended, stdout));
            Some(coded(FailureClass::Execution, message, format!("exit {code}")))
        }
        End::Signalled(signal) => {
            let message = format!("{title} was ended by signal {signal}.{}", last_words(ended, stdout));
            Some(coded(FailureClass::Execution, message, format!("signal {signal}")))
        }
        End::NotStarted(error) => Some(not_started(&ended.program, error)),
        End::Lost => Some(ToolError::internal(format!(
            "the launcher of {} died before the command ended; what was left of the command was killed",
            ended.program
        ))),
    }
}

impl From<StartError> for ToolError {
    fn from(error: StartError) -> ToolError {
        if error.too_long() {
            let message = "the arguments are too long for a command line; give shorter ones";
            // Nothing happened, and trying the same again would not change that.
            let class = FailureClass::InvalidRequest;
            return ToolError { class, did_not_happen: true, ..ToolError::new(message) };
        }
        ToolError { class: FailureClass::Unavailable, ..ToolError::new(error.to_string()) }.did_not_happen()
    }
}

fn not_started(program: &str, error: &io::Error) -> ToolError {
    let why = if error.kind() == io::ErrorKind::NotFound {
        "it is not there, or the interpreter in its first line is not".to_string()
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "it is not executable".to_string()
    } else {
        error.to_string()
    };
    let message = format!("the program {program:?} could not be started: {why}; nothing happened");
    ToolError { class: FailureClass::Unavailable, ..ToolError::new(message) }.did_not_happen()
}

fn coded(class: FailureClass, message: String, code: String) -> ToolError {
    ToolError { class, tool_code: Some(code), ..ToolError::new(message) }
}

/// What it said last: on standard error, or on standard output if it said nothing there.
fn last_words(ended: &Ended, stdout: &Held) -> String {
    let log = ended.stderr.clone().text();
    if !log.is_empty() {
        return format!(" The last of its error output:\n{log}");
    }
    let output = stdout.end(ended.stderr.bytes_max());
    match output.trim() {
        "" => " It said nothing.".to_string(),
        output => format!(" It wrote no error output; the last of its output:\n{output}"),
    }
}
