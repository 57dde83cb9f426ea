//! Signals for a running call.

use super::read;
use crate::api::misuse::{Misuse, StepError};
use crate::session::cx::Cx;
use serde_json::Value;
use std::time::Duration;
use windlass_core::operation::Completion;

impl Cx {
    /// Receives the next signal of a name that the tool [declares](windlass_core::tool::ToolSpec::signals), sent with
    /// [`Runtime::signal`](crate::Runtime::signal). Signals come in the order in which they were sent, each once, and early
    /// ones are kept. `None`: none came until the deadline given the first time; by default within a day.
    /// A body that runs again gets the same ones again.
    ///
    /// ```
    /// # use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn collect(_: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let mut items = Vec::new();
    ///     while let Some(item) = cx.on_signal("item", None).await? {
    ///         if item.is_null() {
    ///             break;
    ///         }
    ///         items.push(item);
    ///     }
    ///     Ok(json!(items).into())
    /// }
    /// ```
    pub async fn on_signal(
        &self,
        name: &str,
        deadline: Option<Duration>,
    ) -> Result<Option<Value>, StepError> {
        if !self.kinds.as_ref().is_some_and(|kinds| kinds.takes(name)) {
            return Err(Misuse::undeclared("signal", "signals", name, None).into());
        }
        let length = deadline.unwrap_or(Duration::from_millis(self.limits().completion_ms));
        let (at, until) = (self.now(), self.until(length));
        let (slot, until) = self.book().begin_signal(name, at, until, self.limits().operations_max)?;
        match self.answer(&slot, until).await? {
            Some(Completion::Ok { value: payload, .. }) => Ok(Some(read(name, &payload)?)),
            Some(Completion::Error { .. } | Completion::Cancelled | Completion::TimedOut) | None => Ok(None),
        }
    }
}
