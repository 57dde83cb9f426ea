//! Payloads, external answers and signals as types of the tool's own.

use crate::api::misuse::StepError;
use crate::api::output::ToolError;
use crate::api::pending::Completed;
use crate::session::cx::Cx;
use serde::de::DeserializeOwned;
use std::time::Duration;

impl Cx {
    /// The payload that the tool's preparation attached, as a type of yours; an internal failure if it does not fit.
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// #[derive(serde::Deserialize)]
    /// struct Quote { cents: u64 }
    ///
    /// async fn buy(_: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let quote: Option<Quote> = cx.payload_as()?;
    ///     Ok(json!(quote.map(|quote| quote.cents)).into())
    /// }
    /// ```
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<Option<T>, ToolError> {
        let unfit =
            |error| ToolError::internal(format!("the payload of the call is not as expected: {error}"));
        self.payload().map(|payload| serde_json::from_str(payload).map_err(unfit)).transpose()
    }

    /// Waits for a signal, and reads its payload as a type of yours. See [`on_signal`](Self::on_signal).
    pub async fn on_signal_as<T: DeserializeOwned>(
        &self,
        name: &str,
        deadline: Option<Duration>,
    ) -> Result<Option<T>, StepError> {
        let unfit = |error| {
            let what = format!("the payload of signal {name:?} is not as expected: {error}");
            StepError::Failed(ToolError::internal(what))
        };
        self.on_signal(name, deadline)
            .await?
            .map(|payload| serde_json::from_value(payload).map_err(unfit))
            .transpose()
    }
}

impl Completed {
    /// The value as a type of yours, or the error for a tool that needs it.
    ///
    /// ```
    /// use windlass::wait::Completed;
    ///
    /// let approved: bool = Completed::ok(serde_json::json!(true)).value()?;
    /// assert!(approved);
    /// let refused = Completed::error("declined", "The bank declined.");
    /// assert_eq!(refused.value::<bool>().unwrap_err().tool_code.as_deref(), Some("declined"));
    /// # Ok::<(), windlass::ToolError>(())
    /// ```
    pub fn value<T: DeserializeOwned>(self) -> Result<T, ToolError> {
        match self {
            Completed::Ok(output) => serde_json::from_value(output.value).map_err(|error| {
                ToolError::internal(format!("the external answer is not as expected: {error}"))
            }),
            Completed::Error { code, message, .. } => {
                Err(ToolError { tool_code: Some(code), ..ToolError::new(message) })
            }
            Completed::Cancelled => Err(ToolError::new("The external answer was cancelled.")),
            Completed::TimedOut => Err(ToolError::new("The external answer took too long.")),
        }
    }
}
