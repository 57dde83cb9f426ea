//! Requests about tasks that are refused, as errors of tools.

use crate::api::error::chain;
use crate::api::output::ToolError;
use crate::mailbox::ask::AskError;

/// Why a request about a task was refused, for whoever asked: each reason has a code of its own.
pub(crate) fn refusal(error: AskError) -> ToolError {
    let code = match &error {
        AskError::Session(error) => return ToolError::internal(chain(error)),
        AskError::NotFound { .. } => "not_found",
        AskError::NoSignal { .. } => "no_such_signal",
        AskError::NoQuestion | AskError::NoKey | AskError::NoApproval => "no_such_question",
        AskError::StaleDigest { .. } => "stale_digest",
        AskError::FourEyes { .. } => "four_eyes",
        AskError::Over { .. } | AskError::Unfit { .. } => "over",
        AskError::Answered | AskError::Conflict => "answered",
        AskError::TooManySignals { .. } => "too_many_signals",
        AskError::KeyUsed => "key_used",
        AskError::Invalid { .. } | AskError::LongReason { .. } | AskError::Shape { .. } => "invalid",
        AskError::FilesLeft { .. } => "files_left",
    };
    let tool_code = Some(code.to_string());
    ToolError { tool_code, did_not_happen: true, ..ToolError::new(sentence(&error.to_string())) }
}

/// An error as a sentence.
pub(crate) fn sentence(what: &str) -> String {
    let mut letters = what.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", letters.as_str())
}
