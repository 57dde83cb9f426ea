//! Errors of named operations inside a tool.

use crate::api::error::{Lost, chain};
use crate::api::output::ToolError;
use windlass_core::operation::Mismatch;

/// A failed operation.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The step ran and failed.
    #[error("{}", .0.message)]
    Failed(ToolError),
    /// The step must not be repeated, was started before a crash, and its outcome is not known.
    #[error("it is not known whether the step {name:?} took effect")]
    Unknown {
        /// Its name.
        name: String,
    },
    /// The body differs from its record, or does something that a body must not do.
    #[error(transparent)]
    Misused(#[from] Misuse),
    /// The attempt must stop, so it makes no more calls, or its nested call was stopped too.
    #[error("the attempt must stop")]
    Stopped,
    /// Nothing can be recorded any more: the call continues elsewhere.
    #[error("nothing can be recorded any more")]
    Lost(#[source] Lost),
}

/// Misuse of operations by a tool's body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// An operation without a name.
    #[error("an operation has a blank name; records are found by name, so give it one")]
    Blank,
    /// A name used twice in one run of the body.
    #[error("the name {name:?} is used twice; each step and each sleep of a call has a name of its own")]
    Repeated {
        /// The name.
        name: String,
    },
    /// A name with our prefix.
    #[error("the name {name:?} begins with `windlass.`, which is reserved; choose another")]
    Reserved {
        /// The name.
        name: String,
    },
    /// An event or a signal that the tool does not declare.
    #[error("the tool declares no {what} {kind:?}{hint}; add it to `{place}` of its spec")]
    Undeclared {
        /// `event` or `signal`.
        what: &'static str,
        /// Its name.
        kind: String,
        /// A suggestion.
        hint: String,
        /// The field of the spec that declares it.
        place: &'static str,
    },
    /// More operations than a call may have.
    #[error("a call may record {max} operations, and has; do more in each, or in nested calls")]
    TooMany {
        /// The limit `operations_max`.
        max: u64,
    },
    /// The body differs from the record.
    #[error(
        "the body diverges from its record at {name:?}: {found}; a changed body needs a new version of its tool"
    )]
    Diverged {
        /// The operation's name.
        name: String,
        /// The difference.
        found: String,
    },
    /// The recorded state of the operation does not allow this now.
    #[error("the operation {name:?} cannot be done now; what is recorded of it does not allow it")]
    Unfit {
        /// The operation's name.
        name: String,
    },
    /// A value that cannot be stored.
    #[error("the input or output of {name:?} cannot be stored: {why}")]
    Unkept {
        /// The operation's name.
        name: String,
        /// The reason.
        why: String,
    },
    /// The attempt is over.
    #[error("the attempt is over; nothing is recorded for it any more")]
    Over,
}

impl Misuse {
    pub(crate) fn of(name: &str, found: Mismatch) -> Misuse {
        Misuse::Diverged { name: name.to_string(), found: found.to_string() }
    }

    pub(crate) fn undeclared(
        what: &'static str,
        place: &'static str,
        kind: &str,
        nearest: Option<String>,
    ) -> Misuse {
        let hint = nearest.map(|near| format!(", but {near:?}")).unwrap_or_default();
        Misuse::Undeclared { what, kind: kind.to_string(), hint, place }
    }

    pub(crate) fn unkept(name: &str, why: impl ToString) -> Misuse {
        Misuse::Unkept { name: name.to_string(), why: why.to_string() }
    }
}

impl StepError {
    /// The error of a tool that does not handle it.
    pub(crate) fn into_tool_error(self) -> ToolError {
        match self {
            StepError::Failed(error) => error,
            StepError::Unknown { name } => ToolError::new(format!(
                "It is not known whether the step {name:?} took effect. Do not repeat it blindly; find out first."
            )),
            StepError::Stopped => ToolError::stopped(),
            StepError::Misused(misuse) => ToolError::internal(misuse.to_string()),
            StepError::Lost(lost) => ToolError::internal(chain(&lost)),
        }
    }
}
