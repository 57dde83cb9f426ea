//! Projectors: host code that shapes what the model sees of an ended call.

use crate::api::output::ToolError;
use crate::api::polling;
use std::sync::Arc;
use std::time::Duration;
use windlass_core::outcome::{ModelAnswer, Outcome};

/// Shapes what the model sees of ended calls. Given to a runtime as [`Config::projector`](crate::Config).
///
/// It is asked once, before the end of a call is recorded: the answer is recorded with it, and never made anew. It
/// computes, and does no IO. If it fails or panics, or if its texts are longer than an answer may be, the model gets the
/// default, and operators find the reason in the log.
///
/// ```
/// use std::sync::Arc;
/// use windlass::outcome::{ModelAnswer, Outcome, Part};
/// use windlass::tool::{ProjectedCall, Projector};
/// use windlass::{Config, Runtime, ToolError, store::memory::MemoryStore};
///
/// /// Tells the model how long a failed call took.
/// struct WithTimes;
///
/// impl Projector for WithTimes {
///     fn project(&self, ended: &ProjectedCall<'_>) -> Result<Option<ModelAnswer>, ToolError> {
///         let Outcome::Failed(failure) = ended.outcome else { return Ok(None) };
///         let text = format!("{} failed after {} ms: {}", ended.tool, ended.ran.as_millis(), failure.message);
///         Ok(Some(ModelAnswer { parts: vec![Part::Text(text)], is_error: true }))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::new(Config { projector: Some(Arc::new(WithTimes)), ..Config::new(MemoryStore::new()?) });
/// # let call = windlass::CallRequest { id: Some("c".into()), tool: "none".into(), ..Default::default() };
/// # let batch = windlass::BatchRequest { calls: vec![call], ..Default::default() };
/// # let answer = runtime.submit("s", batch).await?.settled().await?;
/// # assert!(answer.calls[0].model_text().starts_with("none failed after 0 ms: "), "{}", answer.calls[0].model_text());
/// # Ok(()) }
/// ```
pub trait Projector: Send + Sync + 'static {
    /// The model's view of a call; `None` leaves it to the default.
    fn project(&self, ended: &ProjectedCall<'_>) -> Result<Option<ModelAnswer>, ToolError>;
}

/// A call whose end is about to be recorded.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProjectedCall<'a> {
    /// The session of the call.
    pub session: &'a str,
    /// The tool, as requested.
    pub tool: &'a str,
    /// The arguments that ran, or were to, as the text of a JSON object; the model's text if they could not be read.
    pub args: &'a str,
    /// The outcome. Details of failures are for operators only: do not show them.
    pub outcome: &'a Outcome,
    /// How long its attempts ran.
    pub ran: Duration,
}

/// Asks the projector; `None`: the default. A failure is reported to operators.
pub(crate) fn ask(projector: &Arc<dyn Projector>, ended: &ProjectedCall<'_>) -> Option<ModelAnswer> {
    let failed = match polling::caught(|| projector.project(ended)) {
        Ok(Ok(answer)) => return answer,
        Ok(Err(error)) => error.detail.unwrap_or(error.message),
        Err(panic) => panic,
    };
    report(ended, &failed);
    None
}

/// Reports that a projector's answer was not used.
pub(crate) fn report(ended: &ProjectedCall<'_>, failed: &str) {
    let ProjectedCall { session, tool, .. } = ended;
    tracing::error!(session, tool, error = failed, "the projector failed; the model gets the default");
}
