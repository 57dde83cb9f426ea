//! A call of a test, under way and ended.

use crate::observed::ObservedRun;
use serde::de::DeserializeOwned;
use windlass::{BatchRequest, CallAnswer, ToolError};

/// A call that may not have ended. It holds nothing of the runtime, so it outlives a restart.
#[derive(Clone, Debug)]
pub struct StartedCall {
    pub(crate) batch: BatchRequest,
}

/// A call that has ended, and what it did.
pub struct TestedCall {
    pub(crate) answer: CallAnswer,
    pub(crate) runs: Vec<ObservedRun>,
    pub(crate) steps: Vec<String>,
}

impl TestedCall {
    /// The state it ended in: `succeeded`, `failed`, `denied`, `cancelled` or `unknown`.
    pub fn state(&self) -> &'static str {
        self.answer.state()
    }

    /// The value, as a type of yours.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, ToolError> {
        self.answer.value()
    }

    /// The text that the model saw.
    pub fn model_text(&self) -> String {
        self.answer.model_text()
    }

    /// The runs of the body: attempts, and replays after waits and restarts.
    pub fn runs(&self) -> &[ObservedRun] {
        &self.runs
    }

    /// The names of its recorded steps, in the order in which they ended; a step that failed and ran again is there twice.
    pub fn steps(&self) -> Vec<&str> {
        self.steps.iter().map(String::as_str).collect()
    }

    /// The whole answer.
    pub fn answer(&self) -> &CallAnswer {
        &self.answer
    }

    /// Panics unless it succeeded.
    #[track_caller]
    pub fn assert_succeeded(&self) {
        let (state, told) = (self.state(), self.model_text());
        assert_eq!(state, "succeeded", "the call ended as {state}; the model saw: {told}");
    }

    /// Panics unless it failed with this code, ours or the tool's own.
    #[track_caller]
    pub fn assert_failed(&self, code: &str) {
        let Some(failure) = self.answer.failure() else {
            panic!(
                "the call ended as {} and not as failed; the model saw: {}",
                self.state(),
                self.model_text()
            );
        };
        let codes = [Some(failure.code.as_str()), failure.tool_code.as_deref()];
        assert!(
            codes.contains(&Some(code)),
            "the call failed with {codes:?}, not with {code:?}: {}",
            failure.message
        );
    }

    /// Panics unless the body ran so often.
    #[track_caller]
    pub fn assert_runs(&self, count: usize) {
        assert_eq!(self.runs.len(), count, "the body ran {} times: {:?}", self.runs.len(), self.runs);
    }

    /// Panics unless exactly these steps ended, in this order.
    #[track_caller]
    pub fn assert_steps(&self, names: &[&str]) {
        assert_eq!(self.steps, names, "other steps ended than expected");
    }

    /// Panics unless every run had one and the same idempotency key; returns it.
    #[track_caller]
    pub fn assert_one_key(&self) -> &str {
        let Some(first) = self.runs.first() else { panic!("the body never ran") };
        assert!(self.runs.iter().all(|run| run.key == first.key), "the key changed: {:?}", self.runs);
        &first.key
    }

    /// Panics unless the model saw this text.
    #[track_caller]
    pub fn assert_model_saw(&self, text: &str) {
        let told = self.model_text();
        assert!(told.contains(text), "the model saw {told:?}, and not {text:?}");
    }
}
