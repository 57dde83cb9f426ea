//! How a command ended, and the meaning for its call.

use super::EXIT_TERMINATED;
use super::run::{CommandOutcome, StartError};
use super::stdout::BoundedOutput;
use rustix::process::Signal;
use std::io;
use windlass::ToolError;
use windlass::error::{FailureClass, Retry};
use windlass::secrets::SecretScrubber;

/// How a command ended.
#[derive(Debug)]
pub enum CommandEnd {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// It was never started.
    NotStarted(io::Error),
    /// Its launcher died, so its end was not seen; its remains have been killed.
    Lost,
}

/// The exit code for "nothing happened, a retry is safe" (`EX_TEMPFAIL`).
pub const EXIT_SAFE: i32 = 75;

/// The exit code for "the result comes later, by the issued key".
pub const EXIT_PENDING: i32 = 73;

/// Signals from another process. All others (a segmentation fault, an abort) are the command's own fault, and
/// would come again.
const FROM_OUTSIDE: [i32; 5] = [
    Signal::HUP.as_raw(),
    Signal::INT.as_raw(),
    Signal::QUIT.as_raw(),
    Signal::KILL.as_raw(),
    Signal::TERM.as_raw(),
];

/// The exit codes of a shell whose command was ended by SIGKILL, as the kernel does when out of memory, or by SIGTERM.
const SHELL_SIGNALS: [i32; 2] = [128 + Signal::KILL.as_raw(), EXIT_TERMINATED];

/// Why the call failed, or `None` if standard output is its result. The effect of a command that did not end
/// by itself is unknown.
pub fn failure(
    ended: &CommandOutcome,
    stdout: &BoundedOutput,
    secrets: &SecretScrubber,
) -> Option<ToolError> {
    let last_words = |ended: &CommandOutcome, stdout: &BoundedOutput| last_words(ended, stdout, secrets);
    match &ended.end {
        CommandEnd::Exited(0) => None,
        CommandEnd::Exited(EXIT_SAFE) => {
            let said = last_words(ended, stdout);
            let message =
                format!("The command could not do it now, and nothing happened (exit {EXIT_SAFE}).{said}");
            Some(coded(FailureClass::Unavailable, message, format!("exit {EXIT_SAFE}")).did_not_happen())
        }
        CommandEnd::Exited(code) => {
            let message = format!("The command exited with code {code}.{}", last_words(ended, stdout));
            let error = coded(FailureClass::Execution, message, format!("exit {code}"));
            let is_shells = SHELL_SIGNALS.contains(code);
            Some(if is_shells { ToolError { retry: OUTSIDE, aborted: true, ..error } } else { error })
        }
        CommandEnd::Signalled(signal) => {
            let message = format!("The command was ended by signal {signal}.{}", last_words(ended, stdout));
            let retry = if FROM_OUTSIDE.contains(signal) { OUTSIDE } else { Retry::Never };
            let error = coded(FailureClass::Execution, message, format!("signal {signal}"));
            Some(ToolError { retry, aborted: true, ..error })
        }
        CommandEnd::NotStarted(error) => Some(not_started(&ended.program, error)),
        CommandEnd::Lost => Some(cut_off(ToolError::internal(format!(
            "the launcher of {} died before the command ended; what was left of the command was killed",
            ended.program
        )))),
    }
}

/// The error of a started command whose end we did not see: its effect is unknown.
pub(crate) fn cut_off(error: ToolError) -> ToolError {
    match error.did_not_happen || error.stopped {
        true => error,
        false => ToolError { retry: OUTSIDE, aborted: true, ..error },
    }
}

/// A retry may succeed.
const OUTSIDE: Retry = Retry::Safe { after_ms: None };

/// The failure of a command that could not be started.
pub fn start_failed(error: &StartError) -> ToolError {
    if error.too_long() {
        let message = "the arguments are too long for a command line; give shorter ones";
        // Nothing happened, and a retry would not change that.
        let class = FailureClass::InvalidRequest;
        return ToolError { class, did_not_happen: true, ..ToolError::new(message) };
    }
    // Where it lies on this machine is for operators.
    let message = "the command could not be started; nothing happened. Tell the user that the operator has to look at it.";
    let detail = Some(error.to_string());
    ToolError { class: FailureClass::Unavailable, detail, ..ToolError::new(message) }.did_not_happen()
}

fn not_started(program: &str, error: &io::Error) -> ToolError {
    let why = if error.kind() == io::ErrorKind::NotFound {
        "it is not there, or the interpreter in its first line is not".to_string()
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "it is not executable".to_string()
    } else {
        error.to_string()
    };
    let message = format!("the command could not be started: {why}; nothing happened");
    // Where it lies on this machine is for operators.
    let detail = Some(format!("the program {program:?} could not be started: {error}"));
    ToolError { class: FailureClass::Unavailable, detail, ..ToolError::new(message) }.did_not_happen()
}

fn coded(class: FailureClass, message: String, code: String) -> ToolError {
    ToolError { class, tool_code: Some(code), ..ToolError::new(message) }
}

/// The end of its output: of standard error, or of standard output if that is empty.
fn last_words(ended: &CommandOutcome, stdout: &BoundedOutput, secrets: &SecretScrubber) -> String {
    let log = ended.stderr.clone().text();
    if !log.is_empty() {
        return format!(" The last of its error output:\n{log}");
    }
    let output = stdout.end(ended.stderr.bytes_max(), secrets);
    match output.trim() {
        "" => " It said nothing.".to_string(),
        output => format!(" It wrote no error output; the last of its output:\n{output}"),
    }
}
