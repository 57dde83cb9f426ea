//! Questions to a language model inside a call.

use crate::api::misuse::{Misuse, StepError};
use crate::api::output::ToolError;
use crate::api::polling;
use crate::session::cx::Cx;
use crate::tools::model::{ModelReply, ModelRequest};
use windlass_core::failure::FailureClass;

impl Cx {
    /// Asks a language model through the [client of the host](crate::Config::model), once: the answer is durable with its usage
    /// when this returns, and a replay gets it without asking again. It fails like a [step](Self::step), ends with the
    /// attempt, and earlier if the request says so. Without a client it is refused.
    ///
    /// ```
    /// # use windlass::model::{ModelMessage, ModelRequest}; use windlass::{Cx, Output, ToolError}; use serde_json::{Value, json};
    /// async fn summarise(args: Value, cx: &Cx) -> Result<Output, ToolError> {
    ///     let question = format!("Summarise in one sentence: {}", args["text"]);
    ///     let request = ModelRequest { messages: vec![ModelMessage::user(question)], ..ModelRequest::default() };
    ///     let reply = cx.complete("summary", request).await?;
    ///     Ok(json!({ "summary": reply.message.text, "tokens": reply.usage.output }).into())
    /// }
    /// ```
    pub async fn complete(&self, name: &str, request: ModelRequest) -> Result<ModelReply, StepError> {
        let model = self.hold.upgrade().ok_or(Misuse::Over)?.rt.model.clone();
        let Some(model) = model else {
            let what = "the host has no language model; give the runtime one as `Config::model`";
            return Err(Misuse::unkept(name, what).into());
        };
        let key = self.step_key(name);
        self.step(name, request, |request| async move {
            let within_us = request.timeout_ms.map_or(u64::MAX, |ms| ms.saturating_mul(1_000));
            let due_us = self.clock().elapsed_us().saturating_add(within_us);
            let asking = polling::polled(model.complete(&request, &key));
            tokio::select! {
                answered = asking => match answered {
                    Ok(reply) => reply,
                    Err(what) => Err(ToolError::internal(format!("the client of the language model panicked: {what}"))),
                },
                () = self.stopping() => Err(ToolError::stopped()),
                () = self.wheel.until(due_us) => Err(late(request.timeout_ms)),
            }
        })
        .await
    }

    /// Whether the host has a language model that tools may ask.
    pub fn has_model(&self) -> bool {
        self.hold.upgrade().is_some_and(|hold| hold.rt.model.is_some())
    }
}

fn late(timeout_ms: Option<u64>) -> ToolError {
    let ms = timeout_ms.unwrap_or_default();
    let message = format!("The language model did not answer within {ms} ms.");
    ToolError { class: FailureClass::Timeout, ..ToolError::new(message) }.safe_to_retry()
}
