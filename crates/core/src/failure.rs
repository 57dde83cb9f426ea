//! Why a call failed: for the model a sentence and a code, for operators the detail.

use crate::attempt::Deadline;
use crate::code::Code;

/// Declares an enum whose variants have a fixed text, in journals and answers alike.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// Every one there is.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The text in answers and journals.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// Reads what [`as_str`](Self::as_str) wrote.
            pub fn parse(text: &str) -> Option<$name> {
                match text { $($text => Some($name::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use named;

named! {
    /// What kind of failure it is.
    FailureClass {
        /// The caller asked for something that cannot be.
        InvalidRequest = "invalid_request",
        /// What is needed is not there now.
        Unavailable = "unavailable",
        /// It took too long.
        Timeout = "timeout",
        /// The tool did its work and it went wrong.
        Execution = "execution",
        /// A system outside said no.
        External = "external",
        /// A limit was reached.
        ResourceLimit = "resource_limit",
        /// It contradicts what is recorded.
        Conflict = "conflict",
        /// Something inside is broken; only operators see what.
        Internal = "internal",
    }
}

named! {
    /// Who said that it failed.
    Source {
        /// The tool.
        Tool = "tool",
        /// Windlass.
        Runtime = "runtime",
        /// A rule.
        Policy = "policy",
        /// A hook.
        Hook = "hook",
        /// The caller, by what it asked for.
        Caller = "caller",
    }
}

/// Whether the same call may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Trying again gives the same, or does harm.
    Never,
    /// It may be tried again, after so many milliseconds if the tool said so.
    Safe {
        /// How long the tool asks to wait.
        after_ms: Option<u64>,
    },
    /// It was tried as often as its rule allows.
    Exhausted {
        /// How often.
        attempts: u32,
    },
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure.
    pub class: FailureClass,
    /// Who says so.
    pub source: Source,
    /// Which of ours.
    pub code: Code,
    /// A code of the tool's or of an outside system's own.
    pub tool_code: Option<String>,
    /// For the model.
    pub message: String,
    /// For operators only.
    pub detail: Option<String>,
    /// Whether it may be tried again.
    pub retry: Retry,
    /// Whether it is certain that nothing happened: then even a `once` call may be tried again.
    pub did_not_happen: bool,
    /// The value that was refused, as JSON text, where there is one.
    pub raw: Option<String>,
}

impl Failure {
    /// A request that cannot be answered as it stands.
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

    /// Something inside is broken. The model is told a fixed sentence with `reference`; operators get `detail`.
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
