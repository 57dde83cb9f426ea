//! Results and errors of tools.

use crate::api::limits::Limits;
use crate::api::pending::Pending;
use serde_json::Value;
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Retry, Source};
use windlass_core::outcome::{KeptBytes, Part};

/// Whether an attempt took effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciled {
    /// It did, with this result.
    Landed(Output),
    /// It certainly did not.
    DidNotHappen,
    /// It cannot be determined.
    Unknown,
}

/// The result of a tool's look at a call before it is allowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Prepared {
    /// A value for its attempts, as [`Cx::payload`](crate::Cx::payload).
    Payload(Value),
    /// The answer; there is no attempt.
    Answer(Value),
}

/// A tool's result: a value, and parts that JSON cannot express.
///
/// ```
/// use windlass::Output;
///
/// let output: Output = serde_json::json!({ "temperature": 21 }).into();
/// assert!(output.parts.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The value.
    pub value: Value,
    /// The value's bytes, if it was too large to pass: text that [`Cx::keep`](crate::Cx::keep) stored. `value` is then ignored.
    pub kept: Option<KeptBytes>,
    /// Images and files.
    pub parts: Vec<Part>,
    /// The external answer it waits for; `value` is then ignored.
    pub pending: Option<Box<Pending>>,
}

impl From<Value> for Output {
    fn from(value: Value) -> Output {
        Output { value, ..Output::default() }
    }
}

/// A tool's error.
///
/// ```
/// use windlass::ToolError;
/// use windlass::error::FailureClass;
///
/// // The model reads the message, so it says what to do instead.
/// let refused = ToolError::new("There is no city of that name. Use the name of its country's language.");
/// assert_eq!(refused.class, FailureClass::Execution);
/// // The request never left: even a `once` call may be tried again.
/// let offline = ToolError::new("The weather service is unreachable.").did_not_happen();
/// assert!(offline.did_not_happen);
/// // The model must not see this; operators do.
/// let hidden = ToolError::internal("table weather is missing");
/// assert_eq!(hidden.class, FailureClass::Internal);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolError {
    /// The class of the failure; `Internal` hides the message from the model.
    pub class: FailureClass,
    /// Written for the model: what went wrong and what to do instead.
    pub message: String,
    /// Windlass's code, if the tool passes on a refusal of Windlass; `None` means `tool_failed`.
    pub code: Option<Code>,
    /// A code of the tool's own.
    pub tool_code: Option<String>,
    /// For operators only.
    pub detail: Option<String>,
    /// Whether a retry is allowed.
    pub retry: Retry,
    /// Whether it certainly had no effect: then even a `once` call may be retried.
    pub did_not_happen: bool,
    /// Whether it ended only because it was asked to stop: then the stop counts, and not this failure.
    pub stopped: bool,
    /// Whether the work was cut off from outside, so that its effect is not known: then the class of the tool
    /// decides, as after a crash.
    pub aborted: bool,
    /// The connection the session needs first: then this is no failure, and the call waits for the connection.
    pub connection: Option<Box<Connection>>,
}

/// A connection that a session needs before a tool can work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The provider's name.
    pub provider: String,
    /// Where a person can connect it.
    pub setup_url: Option<String>,
}

impl ToolError {
    /// A failure; `message` explains it to the model.
    pub fn new(message: impl Into<String>) -> ToolError {
        ToolError {
            class: FailureClass::Execution,
            message: message.into(),
            code: None,
            tool_code: None,
            detail: None,
            retry: Retry::Never,
            did_not_happen: false,
            stopped: false,
            aborted: false,
            connection: None,
        }
    }

    /// Nothing happened, because the session is not connected to this provider. The call waits as `awaiting_connection`
    /// until the connection is reported ([`Runtime::connected`](crate::Runtime::connected)), and then runs again,
    /// whatever its class: this does not count as an attempt.
    pub fn needs_connection(provider: impl Into<String>, setup_url: Option<&str>) -> ToolError {
        let connection = Connection { provider: provider.into(), setup_url: setup_url.map(str::to_string) };
        ToolError {
            connection: Some(Box::new(connection)),
            did_not_happen: true,
            ..ToolError::new("The tool needs a connection that is not there.")
        }
    }

    /// The work was cut off from outside, such as by a killed process or a connection lost after a request: its effect
    /// is not known. A `once` call is reconciled or ends as unknown; a repeatable call is retried by its rule.
    pub fn aborted(message: impl Into<String>) -> ToolError {
        let retry = Retry::Safe { after_ms: None };
        ToolError { aborted: true, retry, ..ToolError::new(message) }
    }

    /// The tool ended because it was asked to stop, and does not know the effect of its work.
    pub fn stopped() -> ToolError {
        ToolError { stopped: true, ..ToolError::new("The tool was stopped.") }
    }

    /// An internal error that does not concern the model, which sees a fixed sentence; operators see `detail`.
    pub fn internal(detail: impl Into<String>) -> ToolError {
        ToolError { class: FailureClass::Internal, detail: Some(detail.into()), ..ToolError::new("") }
    }

    /// Allows a retry, where the effect class does.
    pub fn safe_to_retry(self) -> ToolError {
        ToolError { retry: Retry::Safe { after_ms: None }, ..self }
    }

    /// Allows a retry after this many milliseconds, where the effect class does.
    pub fn safe_to_retry_after(self, after_ms: u64) -> ToolError {
        ToolError { retry: Retry::Safe { after_ms: Some(after_ms) }, ..self }
    }

    /// Windlass refused the tool's request, and nothing happened.
    pub(crate) fn refused(failure: &Failure) -> ToolError {
        let (class, code) = (failure.class, Some(failure.code));
        ToolError { class, code, did_not_happen: true, ..ToolError::new(failure.message.clone()) }
    }

    /// Marks that it certainly had no effect: even a `once` call may be retried.
    pub fn did_not_happen(self) -> ToolError {
        let retry = if self.retry == Retry::Never { Retry::Safe { after_ms: None } } else { self.retry };
        ToolError { retry, did_not_happen: true, ..self }
    }
}

/// A tool's error in its recorded form.
pub(crate) fn recorded_failure(error: &ToolError, limits: &Limits) -> Failure {
    Failure {
        class: error.class,
        source: Source::Tool,
        code: error.code.unwrap_or(Code::ToolFailed),
        tool_code: error.tool_code.clone(),
        message: shorten(error.message.clone(), limits),
        detail: error.detail.clone().map(|detail| shorten(detail, limits)),
        retry: error.retry,
        did_not_happen: error.did_not_happen,
        raw: None,
    }
}

/// Bounds a tool's error text like an answer, because the journal stores it.
pub(crate) fn shorten(mut text: String, limits: &Limits) -> String {
    let max = text.floor_char_boundary(limits.answer_bytes_max as usize);
    if max < text.len() {
        text.truncate(max);
        text.push('…');
    }
    text
}
