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
    /// It ran to its end and failed with this error. It is not repeated: it may have had an effect before.
    Failed(ToolError),
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
    /// Other arguments, which are validated again, and maybe a value for its attempts.
    Rewrite {
        /// The arguments that run.
        args: Value,
        /// As in [`Prepared::Payload`].
        payload: Option<Value>,
    },
    /// The answer, with its parts; there is no attempt.
    Answer(Output),
}

/// A tool's result: a value, parts that JSON cannot express, and output that is not for the model.
///
/// ```
/// use windlass::Output;
/// use windlass::outcome::Part;
/// use windlass::tool::RawOutput;
/// use serde_json::json;
///
/// let output: Output = json!({ "temperature": 21 }).into();
/// assert!(output.parts.is_empty());
/// // The model reads the parts in this order; operators find the page it was made from beside the call.
/// let chart = Part::Image { media_type: "image/png".into(), data: b"\x89PNG"[..].into() };
/// let output = Output {
///     parts: vec![Part::Text("The last day:".into()), chart, Part::Text("It gets warmer.".into())],
///     ..Output::default()
/// };
/// let output = output.with_raw(RawOutput::text("<html>…</html>", "text/html"));
/// // A word to the host, which Windlass records and shows but never acts on.
/// let output = output.with_control(json!({ "end_turn": true }));
/// assert!(output.raw.is_some() && output.control.is_some());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The value.
    pub value: Value,
    /// The value's bytes, if it was too large to pass: text that [`Cx::keep`](crate::Cx::keep) stored. `value` is then ignored.
    pub kept: Option<KeptBytes>,
    /// Texts, images and files, in the order in which the model gets them, behind the value.
    pub parts: Vec<Part>,
    /// The external answer it waits for; `value` is then ignored.
    pub pending: Option<Box<Pending>>,
    /// The output from which the value was made: kept as an artifact that is listed on the call and never shown to the model.
    pub raw: Option<Box<RawOutput>>,
    /// A word to the host, such as that the turn is over: recorded, in the answer and in the event, never acted on.
    pub control: Option<Box<Value>>,
}

/// Raw output of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawOutput {
    /// Bytes that are stored with the result.
    Bytes {
        /// The bytes.
        bytes: Vec<u8>,
        /// Such as `text/html`.
        media_type: String,
    },
    /// Bytes that [`Cx::keep`](crate::Cx::keep) or [`Cx::attach`](crate::Cx::attach) stored.
    Kept(KeptBytes),
}

impl RawOutput {
    /// Text of this media type.
    pub fn text(text: impl Into<String>, media_type: impl Into<String>) -> RawOutput {
        RawOutput::Bytes { bytes: text.into().into_bytes(), media_type: media_type.into() }
    }
}

impl Output {
    /// The result with the raw output it was made from.
    pub fn with_raw(self, raw: RawOutput) -> Output {
        Output { raw: Some(Box::new(raw)), ..self }
    }

    /// The result with a word to the host.
    pub fn with_control(self, control: Value) -> Output {
        Output { control: Some(Box::new(control)), ..self }
    }
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
    /// Whether the tool ends its call as cancelled: then this is no failure.
    pub cancelled: bool,
    /// Parts, raw output and a word to the host; most errors have none.
    pub extras: Option<Box<ErrorExtras>>,
}

/// Parts, raw output and a word to the host, beside an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorExtras {
    /// For the model, in order, behind the message.
    pub parts: Vec<Part>,
    /// The raw value, such as the response of an external system; for programs and operators.
    pub raw: Option<Value>,
    /// A word to the host, as [`Output::control`].
    pub control: Option<Value>,
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
            cancelled: false,
            extras: None,
        }
    }

    /// The tool ends its call as cancelled, of its own accord: a person declined, or there is nothing left to do. The call
    /// ends as if somebody had cancelled it while it ran; with [`did_not_happen`](ToolError::did_not_happen) it had no
    /// effect. `reason` is recorded for people.
    ///
    /// ```
    /// # use windlass::ToolError;
    /// let declined = ToolError::cancelled("the user closed the window").did_not_happen();
    /// assert!(declined.cancelled);
    /// ```
    pub fn cancelled(reason: impl Into<String>) -> ToolError {
        ToolError { cancelled: true, ..ToolError::new(reason) }
    }

    /// The error with parts for the model: a failed test shows its screenshot.
    pub fn with_parts(mut self, parts: Vec<Part>) -> ToolError {
        self.extras.get_or_insert_default().parts = parts;
        self
    }

    /// The error with the raw value it was made from.
    pub fn with_raw(mut self, raw: Value) -> ToolError {
        self.extras.get_or_insert_default().raw = Some(raw);
        self
    }

    /// The error with a word to the host.
    pub fn with_control(mut self, control: Value) -> ToolError {
        self.extras.get_or_insert_default().control = Some(control);
        self
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
        parts: Vec::new(),
        side: None,
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

/// The bytes of a part in the journal.
pub(crate) fn part_bytes(part: &Part) -> usize {
    match part {
        Part::Text(text) => text.len(),
        Part::Json(json) => json.len(),
        Part::Image { data, .. } => data.len(),
        Part::KeptImage { .. } | Part::File { .. } => 0,
    }
}
