//! Make the result of a call of what the world outside has answered.

use crate::api::error::Lost;
use crate::api::output::ToolError;
use crate::api::pending::{answered_extras, answered_output, no_json};
use crate::attempt::threads::Ran;
use crate::path::stage::attempt::{self, Pinned};
use crate::path::stage::prepare;
use crate::path::stage::result;
use crate::session::adopting::adopt_now;
use crate::session::held::Held;
use crate::tools::registry::Registered;
use std::sync::Arc;
use windlass_core::call::{Fact, Result as Attempted, Returned, State};
use windlass_core::code::Code;
use windlass_core::failure::{Failure, FailureClass, Source};
use windlass_core::ids::AttemptNo;
use windlass_core::operation::{Completion, Did, Operation, WaitOutcome};

/// Makes the result, if the tool is there.
pub(crate) async fn note(held: &mut Held, attempt: AttemptNo) -> Result<(), Lost> {
    match attempt::pin(held).await? {
        Pinned::Tool(tool) => note_result(held, &tool, attempt).await,
        Pinned::Accepted | Pinned::Missing => Ok(()),
        Pinned::Again => prepare::note(held).await,
    }
}

/// The tool has done its part, and what it left to the world outside is over: the answer is treated like its own.
async fn note_result(held: &mut Held, tool: &Registered, attempt: AttemptNo) -> Result<(), Lost> {
    held.begin_stage();
    let Some(name) = waited_for(held) else { return Ok(()) };
    if answer(held, &name).is_none() {
        // What was left for the owner before the deadline counts.
        adopt_now(&held.on).await?;
        held.hear()?;
    }
    let returned = match answer(held, &name) {
        Some(WaitOutcome::Given(Completion::Ok { value, extras })) => {
            serde_json::from_str(&value).map_err(no_json).and_then(|value| answered_output(value, extras))
        }
        Some(WaitOutcome::Given(Completion::Error { code, message, extras })) => {
            let class = FailureClass::External;
            match answered_extras(extras) {
                Ok(extras) => {
                    Err(ToolError { class, tool_code: Some(code), extras, ..ToolError::new(message) })
                }
                Err(error) => Err(error),
            }
        }
        // The call is cancelled, which is for whoever looks at it next.
        Some(WaitOutcome::Given(Completion::Cancelled)) => return Ok(()),
        Some(WaitOutcome::Given(Completion::TimedOut)) => return not_answered(held, attempt, THEY_SAY_SO),
        Some(WaitOutcome::TimedOut) => return not_answered(held, attempt, NOBODY),
        None => {
            held.note(Fact::Operation(Box::new(Operation { name, did: Did::TimedOut })))?;
            return not_answered(held, attempt, NOBODY);
        }
    };
    let result = match result::of(held, tool, Ran::Returned(returned)) {
        Ok(result) => result,
        Err(waits) => waits.await,
    };
    held.note(Fact::Returned(Returned { attempt, ran_us: 0, result }))
}

fn waited_for(held: &Held) -> Option<Arc<str>> {
    let State::Suspended(suspended) = &held.call.state else { return None };
    suspended.waits.first().cloned()
}

fn answer(held: &Held, name: &str) -> Option<WaitOutcome> {
    held.call.operations.as_deref()?.wait(name).1.cloned()
}

/// Nobody answered before the deadline.
const NOBODY: &str = "Nobody answered in time.";
/// The side that was to answer gave up.
const THEY_SAY_SO: &str = "It took too long for whoever was to answer.";

fn not_answered(held: &mut Held, attempt: AttemptNo, why: &str) -> Result<(), Lost> {
    let message = format!("{why} What the tool has started may still go on; find out before you repeat it.");
    let failure = Failure {
        class: FailureClass::Timeout,
        source: Source::Runtime,
        ..Failure::invalid_request(Code::Timeout, message)
    };
    let result = Attempted::Failed(Box::new(failure));
    held.note(Fact::Returned(Returned { attempt, ran_us: 0, result }))
}
