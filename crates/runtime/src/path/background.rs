//! Calls that go on without their callers.
//!
//! The caller of a tool with the flag `background` waits for a limited time: then it is recorded that the call is a task, and
//! only then the caller learns so. A task is its call: it has no state and no end of its own. Later news of it go to the inbox
//! of its session.

use crate::api::error::Lost;
use crate::path::stage::prepare;
use crate::session::held::Held;
use crate::session::inner::Inner;
use crate::session::notices;
use crate::session::patience::{self, due};
use crate::session::signal::AttemptSignal;
use crate::tools::place::BatchPlace;
use crate::tools::registry::{Registered, ToolLookup};
use crate::tools::request::RecordedRequest;
use serde_json::{Map, Value};
use std::sync::Arc;
use windlass_core::call::{Cause, Detached, DetachedBy, Fact, State};
use windlass_core::code::Code;
use windlass_core::failure::Failure;

/// Whether a call that was parked may have outlasted whoever waits for it.
pub(crate) fn may_be_due(held: &Held) -> bool {
    held.past.waited && due(held).is_some()
}

/// Makes a call a task that does not run now and whose caller waits no longer.
pub(crate) async fn detach(held: &mut Held) -> Result<(), Lost> {
    let Some(detached) = overdue(held) else { return Ok(()) };
    held.note(Fact::Detached(Box::new(detached)))?;
    held.carry(vec![notices::task_row(held.id)]);
    held.commit().await?;
    told(held);
    Ok(())
}

/// Makes a call a task whose attempt runs. If that cannot be recorded the attempt is stopped: nothing goes on that nobody
/// knows of.
pub(crate) async fn detach_running(held: &Held, signal: &AttemptSignal) {
    let Some(detached) = overdue(held).filter(|_| !signal.book.is_detached()) else { return };
    let on = &held.on;
    signal.book.detach(on.rt.clock.now(), detached, notices::task_row(held.id));
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
    held.on.session.ring_inside(held.id);
}

/// How the call becomes a task now, if its caller waits no longer.
fn overdue(held: &Held) -> Option<Detached> {
    let (by, due_us) = due(held)?;
    let is_over = held.on.rt.clock.elapsed_us() >= due_us;
    let wake = held.on.batch.head.wake;
    let title = || title_of(held.tool.as_deref()?);
    let budget_ms = (by == DetachedBy::Budget).then(|| patience::budget_ms(held)).flatten();
    let tags = || held.tool.as_deref().map(|tool| tool.spec.tags.clone()).unwrap_or_default();
    is_over.then(|| Detached { by, wake, title: title(), starter: None, depth: 0, budget_ms, tags: tags() })
}

/// The title that a tool gives to its tasks, if it has one.
pub(crate) fn title_of(tool: &Registered) -> Option<Arc<str>> {
    Some(tool.spec.title.as_str()).filter(|title| !title.trim().is_empty()).map(Arc::from)
}

/// Takes back that a call is a task which was started as one and is refused before anybody could be told that it goes on: it
/// ends like any other call that is refused, its caller has the reason, and no notice follows.
pub(crate) fn refuse_start(held: &mut Held) -> Result<(), Lost> {
    let spawned = held.call.task.as_ref().is_some_and(|task| task.by == DetachedBy::Spawned);
    // One that waited, or that an earlier owner left, was told to be a task.
    if !spawned
        || !held.past.fresh
        || held.past.waited
        || !matches!(held.call.state, State::Opened | State::Ready)
    {
        return Ok(());
    }
    held.note(Fact::StartRefused)?;
    held.carry(vec![notices::no_task_row(held.id)]);
    held.on.batch.refuse_start(held.id.ordinal);
    Ok(())
}

/// Has providers load the tools that are to be called as tasks, so that it is known at once whether they can be. Whoever
/// takes too long is waited for by the call itself.
pub(crate) async fn load_targets(rt: &Inner, place: &BatchPlace, calls: &[RecordedRequest]) {
    let due_us = crate::session::held::due_us(rt.clock.elapsed_us(), rt.limits.inline_queue_ms);
    for asked in calls.iter().filter(|asked| asked.opened.task.is_some()) {
        if rt.registry.known_for(place, &asked.opened).is_none() {
            tokio::select! {
                _ = rt.registry.look_up(place, &asked.opened.tool) => {}
                () = rt.wheel.until(due_us) => return,
            }
        }
    }
}

/// The tool that is to be called as a task, and the arguments of that call. All rules of the tool hold for the task itself; what
/// can be known before it is started is told now.
pub(crate) async fn target(
    rt: &Inner,
    place: &BatchPlace,
    tool: &str,
    args: Value,
) -> Result<(Arc<Registered>, Value), Box<Failure>> {
    let found = target_tool(rt, place, tool).await?;
    let args = if args.is_null() { Value::Object(Map::new()) } else { args };
    let args = prepare::checked(&found, args, &rt.limits)?.value;
    Ok((found, args))
}

/// The tool alone.
pub(crate) async fn target_tool(
    rt: &Inner,
    place: &BatchPlace,
    tool: &str,
) -> Result<Arc<Registered>, Box<Failure>> {
    let found = match rt.registry.look_up(place, tool).await {
        ToolLookup::Tool(found) => found,
        ToolLookup::Missing { nearest } => return Err(prepare::missing(tool, nearest)),
        ToolLookup::Unavailable(_) => {
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
