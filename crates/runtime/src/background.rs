//! Calls that go on without their callers.
//!
//! Whoever waits for a call of a tool with the flag `background` waits for so long, and no longer: then it is recorded that the
//! call is a task, and only then its caller is told so. A task is its call: it has no state and no end of its own. What is
//! told of it later, the inbox of its session keeps.

use crate::error::Lost;
use crate::held::Held;
use crate::registry::{Found, Registered};
use crate::runtime::Inner;
use crate::signal::Signal;
use crate::stage::prepare;
use crate::tasks;
use crate::tool::Place;
use serde_json::{Map, Value};
use std::sync::Arc;
use windlass_core::call::{Cause, Detached, DetachedBy, Fact, Wake};
use windlass_core::code::Code;
use windlass_core::failure::Failure;

/// When its caller waits for the call no longer, by the clock that never jumps, and why. `None`: as long as it takes, since
/// nobody waits for it, or it may not go on alone.
pub(crate) fn due(held: &Held) -> Option<(DetachedBy, u64)> {
    let tool = held.tool.as_ref().filter(|tool| tool.spec.flags.background)?;
    let batch = &held.on.batch;
    if batch.head.parent.is_some() || held.call.task.is_some() || !batch.is_waited_for() {
        return None;
    }
    let limits = &held.on.rt.limits;
    let Some(started_at) = held.call.first_started_at else {
        return Some((DetachedBy::Queue, held.past.due_us(limits.inline_queue_ms)));
    };
    let clock = &held.on.rt.clock;
    let budget_ms = held.call.opened.inline_ms.or(tool.spec.inline_ms).unwrap_or(limits.inline_ms);
    let spent_us = clock.now().since(started_at);
    let left_us = budget_ms.saturating_mul(1_000).saturating_sub(spent_us);
    Some((DetachedBy::Budget, clock.elapsed_us().saturating_add(left_us)))
}

/// The same, or never.
pub(crate) fn due_us(held: &Held) -> u64 {
    due(held).map_or(u64::MAX, |(_, due_us)| due_us)
}

/// Whether a call that was parked may have outlasted whoever waits for it.
pub(crate) fn may_be_due(held: &Held) -> bool {
    held.past.waited && due(held).is_some()
}

/// Makes a call a task that does not run now and whose caller waits no longer.
pub(crate) async fn detach(held: &mut Held) -> Result<(), Lost> {
    let Some(detached) = overdue(held) else { return Ok(()) };
    held.note(Fact::Detached(Box::new(detached)))?;
    held.carry(vec![tasks::row(held.id)]);
    held.commit().await?;
    told(held);
    Ok(())
}

/// Makes a call a task whose attempt runs. If that cannot be recorded the attempt is stopped: nothing goes on that nobody
/// knows of.
pub(crate) async fn detach_running(held: &Held, signal: &Signal) {
    let Some(detached) = overdue(held).filter(|_| !signal.book.is_detached()) else { return };
    let on = &held.on;
    signal.book.detach(on.rt.clock.now(), detached, tasks::row(held.id));
    match signal.book.commit(&on.batch, &on.session.lane).await {
        Ok(()) => told(held),
        Err(_) => signal.stop(Cause::Cancel),
    }
}

/// The planner and whoever waits hear that the call is a task.
fn told(held: &Held) {
    let rt = &held.on.rt;
    rt.turns.detach(rt, held.id);
    held.on.batch.detached(held.id.ordinal);
}

/// How the call becomes a task now, if its caller waits no longer.
fn overdue(held: &Held) -> Option<Detached> {
    let (by, due_us) = due(held)?;
    let is_over = held.on.rt.clock.elapsed_us() >= due_us;
    is_over.then_some(Detached { by, wake: Wake::OnEnd, title: None, starter: None, depth: 0 })
}

/// The tool that is to be called as a task, and the arguments of that call. All rules of the tool hold for the task itself; what
/// can be known before it is started is told now.
pub(crate) async fn target(
    rt: &Inner,
    place: &Place,
    (tool, args): (&str, Value),
) -> Result<(Arc<Registered>, Value), Box<Failure>> {
    let found = target_tool(rt, place, tool).await?;
    let args = if args.is_null() { Value::Object(Map::new()) } else { args };
    let args = prepare::checked(&found, args, &rt.limits)?.value;
    Ok((found, args))
}

/// The tool alone.
pub(crate) async fn target_tool(
    rt: &Inner,
    place: &Place,
    tool: &str,
) -> Result<Arc<Registered>, Box<Failure>> {
    let found = match rt.registry.look_up(place, tool).await {
        Found::Tool(found) => found,
        Found::Missing { nearest } => return Err(prepare::missing(tool, nearest)),
        Found::Unavailable(_) => {
            let message = format!("The tool {tool:?} cannot be had now. Try again later.");
            return Err(Box::new(Failure::invalid_request(Code::ProviderFailed, message)));
        }
    };
    may_be_task(&found)?;
    Ok(found)
}

/// Refuses to start a task of a tool that does not go on without a caller.
pub(crate) fn may_be_task(tool: &Registered) -> Result<(), Box<Failure>> {
    if tool.spec.flags.background {
        return Ok(());
    }
    let name = &tool.spec.name;
    let message = match tool.spec.flags.stays_direct {
        true => format!("The tool {name:?} is only called directly, and never as a task. Call it directly."),
        false => format!("The tool {name:?} does not run in the background. Call it directly."),
    };
    Err(Box::new(Failure::invalid_request(Code::NotBackground, message)))
}
