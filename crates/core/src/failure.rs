//! Failures of calls: a sentence and a code for the model, the detail for operators.

use crate::attempt::Deadline;
use crate::code::Code;
use crate::outcome::{Part, SideOutput};
use windlass_args::named;

named! {
    /// The class of a failure.
    FailureClass {
        /// The request is invalid.
        InvalidRequest = "invalid_request",
        /// A needed service is unavailable.
        Unavailable = "unavailable",
        /// It took too long.
        Timeout = "timeout",
        /// The tool did its work and it went wrong.
        Execution = "execution",
        /// An external system refused.
        External = "external",
        /// A limit was reached.
        ResourceLimit = "resource_limit",
        /// It contradicts the record.
        Conflict = "conflict",
        /// An internal error; only operators see it.
        Internal = "internal",
    }
}

named! {
    /// The origin of a failure.
    Source {
        /// The tool.
        Tool = "tool",
        /// Windlass.
        Runtime = "runtime",
        /// A rule.
        Policy = "policy",
        /// A hook.
        Hook = "hook",
        /// The caller, by its request.
        Caller = "caller",
    }
}

/// Whether the same call may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// A retry gives the same result, or does harm.
    Never,
    /// A retry is safe, after this many milliseconds if the tool asked for it.
    Safe {
        /// The delay the tool asked for.
        after_ms: Option<u64>,
    },
    /// The maximum number of attempts was made.
    Exhausted {
        /// The number of attempts.
        attempts: u32,
    },
}

/// A failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its class.
    pub class: FailureClass,
    /// Its origin.
    pub source: Source,
    /// Windlass's code.
    pub code: Code,
    /// A code of the tool or of an external system.
    pub tool_code: Option<String>,
    /// For the model.
    pub message: String,
    /// For operators only.
    pub detail: Option<String>,
    /// Whether it may be retried.
    pub retry: Retry,
    /// Whether it certainly had no effect: then even a `once` call may be retried.
    pub did_not_happen: bool,
    /// The refused value, as JSON text, if there is one.
    pub raw: Option<String>,
    /// Parts for the model beside the message, in order: a failed test shows its screenshot.
    pub parts: Vec<Part>,
    /// The side output; most failures have none.
    pub side: Option<Box<SideOutput>>,
}

impl Failure {
    /// An invalid request.
    pub fn invalid_request(code: Code, message: impl Into<String>) -> Failure {
        Failure {
            class: FailureClass::InvalidRequest,
            source: Source::Caller,
            code,
            tool_code: None,
            message: message.into(),
            detail: None,
            retry: Retry::Never,
            did_not_happen: false,
            raw: None,
            parts: Vec::new(),
            side: None,
        }
    }

    /// A deadline ran out.
    pub fn timeout(deadline: Deadline, ms: u64) -> Failure {
        let message = match deadline {
            Deadline::Queue => {
                format!("The call did not start within {ms} ms and was given up; nothing ran.")
            }
            Deadline::Attempt => format!("The tool did not finish within {ms} ms and was stopped."),
            Deadline::Silence => format!("The tool gave no sign of life for {ms} ms and was stopped."),
            Deadline::Total => format!("The call was not over within {ms} ms and was given up."),
        };
        Failure {
            class: FailureClass::Timeout,
            source: Source::Runtime,
            did_not_happen: deadline == Deadline::Queue,
            ..Failure::invalid_request(Code::Timeout, message)
        }
    }

    /// A call that is not run because it was answered before, and its record has expired.
    pub fn expired() -> Failure {
        let message = "This call was answered before, and the record of its answer has expired. It is not run again. If it \
                       is needed once more, make it as a new call in a new batch.";
        Failure {
            class: FailureClass::Unavailable,
            source: Source::Runtime,
            ..Failure::invalid_request(Code::Expired, message.to_string())
        }
    }

    /// The call certainly did not take effect, although it was started.
    pub fn did_not_happen() -> Failure {
        let message = "The call was interrupted and certainly did not take effect; it may be made again.";
        Failure {
            class: FailureClass::Unavailable,
            source: Source::Runtime,
            retry: Retry::Safe { after_ms: None },
            did_not_happen: true,
            ..Failure::invalid_request(Code::DidNotHappen, message)
        }
    }

    /// An internal error. The model gets a fixed sentence with `reference`; operators get `detail`.
    pub fn internal(code: Code, reference: &str, detail: impl Into<String>) -> Failure {
        Failure {
            class: FailureClass::Internal,
            source: Source::Runtime,
            message: format!(
                "An internal error occurred; the operator finds it under reference {reference}."
            ),
            detail: Some(detail.into()),
            ..Failure::invalid_request(code, "")
        }
    }
}
