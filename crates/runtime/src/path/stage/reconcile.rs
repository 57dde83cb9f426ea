//! Ask the tool whether an attempt that did not return took effect.

use crate::api::error::{Lost, chain};
use crate::api::output::{Reconciled, ToolError};
use crate::api::polling::{caught, polled};
use crate::path::stage::attempt::{self, Pinned};
use crate::path::stage::prepare;
use crate::path::stage::result;
use crate::session::arguments;
use crate::session::held::{Held, due_us};
use crate::session::signal::{AttemptSignal, Began};
use crate::session::vault;
use crate::tools::registry::Registered;
use std::sync::Arc;
use windlass_core::call::{Fact, ReconciledAttempt, Verdict};
use windlass_core::failure::Failure;
use windlass_core::ids::AttemptNo;

/// Asks the tool, if it is there, and notes what it says.
pub(crate) async fn note(held: &mut Held, attempt: AttemptNo) -> Result<(), Lost> {
    match attempt::pin(held).await? {
        Pinned::Tool(tool) => note_verdict(held, &tool, attempt).await,
        Pinned::Accepted | Pinned::Missing => Ok(()),
        Pinned::Again => prepare::note(held).await,
    }
}

/// Notes what the tool says. Whatever keeps it from telling means that it is not known.
async fn note_verdict(held: &mut Held, tool: &Arc<Registered>, attempt: AttemptNo) -> Result<(), Lost> {
    moment!("at.reconcile");
    let said = ask(held, tool, attempt).await;
    moment!("at.reconciled");
    held.begin_stage();
    let verdict = match said {
        Ok(Reconciled::DidNotHappen) => Verdict::DidNotHappen,
        Ok(Reconciled::Unknown) => Verdict::Unknown,
        Ok(Reconciled::Landed(output)) => match result::success(held, tool, output).await {
            Ok(success) => Verdict::Landed(success),
            Err(failure) => cannot_tell(held, failure.message),
        },
        Ok(Reconciled::Failed(error)) => Verdict::Failed(failed(held, error).await),
        Err(what) => cannot_tell(held, what),
    };
    held.note(Fact::Reconciled(ReconciledAttempt { attempt, verdict }))
}

/// Asks the tool, for at most as long as an attempt may take.
pub(crate) async fn ask(
    held: &mut Held,
    tool: &Arc<Registered>,
    attempt: AttemptNo,
) -> Result<Reconciled, String> {
    let rt = held.on.rt.clone();
    let now_us = rt.clock.elapsed_us();
    let due_us = due_us(now_us, held.rules().attempt_ms);
    let Some(reconciler) = tool.tool.reconciler() else { return Ok(Reconciled::Unknown) };
    let revealed = if rt.secrets.is_used() { arguments::revealed(held) } else { Ok(None) };
    let args = match revealed.map_err(|error| error.detail.unwrap_or(error.message))? {
        Some(args) => args,
        None => arguments::parse(held).map_err(|failure| failure.message)?.value,
    };
    let signal = Arc::new(AttemptSignal::new(Began { attempt, at_us: now_us, is_recorded: true }));
    let frame = attempt::AttemptFrame {
        attempt,
        redrive: true,
        began_us: now_us,
        signal: signal.clone(),
        approved: None,
        handed: None,
    };
    let cx = attempt::context(held, frame);
    signal.book.show(held);
    let answer = async {
        let asked = caught(|| reconciler.reconcile(args, &cx))?;
        tokio::select! {
            answer = polled(asked) => answer,
            () = rt.wheel.until(due_us) => Err("it took too long to tell".to_string()),
        }
    };
    let answer = answer.await;
    signal.book.hide(held);
    answer?.map_err(|error: ToolError| error.detail.unwrap_or(error.message))
}

/// The recorded failure of an attempt that ended with this error.
pub(crate) async fn failed(held: &mut Held, mut error: ToolError) -> Box<Failure> {
    if let Some(known) = held.on.session.lane.vault().known() {
        vault::scrub_error(&known, &mut error);
    }
    let failure = Box::new(result::failure(held, error));
    result::settled_failure(held, failure).await
}

fn cannot_tell(held: &Held, what: String) -> Verdict {
    let error = std::io::Error::other(what);
    let call = held.id;
    tracing::warn!(%call, tool = %held.call.opened.tool, error = %chain(&error), "a tool could not tell whether it took effect");
    Verdict::Unknown
}
