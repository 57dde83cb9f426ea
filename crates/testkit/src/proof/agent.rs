//! The agent of a session, as part of a worker's client: reads its inbox, and asks for calls at a time. What it takes from the
//! inbox it acknowledges, gives back, or forgets until its lease is over.

use super::person::{LOOK, think};
use super::plan::SchedulePlan;
use super::tools::World;
use crate::chance::Chance;
use anyhow::Result;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use windlass::Runtime;
use windlass::error::{AskError, ScheduleError};
use windlass::schedules::NewSchedule;
use windlass::tasks::Wake;
use windlass::time::wall_time;
use windlass_core::time::Timestamp;

/// How long nobody else gets what was taken.
pub const LEASE_MS: u64 = 15;
/// How many notices are taken together.
const MOST: u64 = 3;
const US_PER_MS: u64 = 1_000;
/// A time that is so far away is to come, whatever the machine does.
const LATER_US_MAX: u64 = 10_000_000;

/// Reads the inbox of a session, until nobody needs that any more.
pub async fn listen(runtime: Runtime, world: Arc<World>, session: String, mut chance: Chance) -> Result<()> {
    let inbox = runtime.inbox(&session);
    loop {
        let before_us = runtime.clock().elapsed_us();
        let taken = inbox.take(MOST, LEASE_MS).await?;
        let after_us = runtime.clock().elapsed_us();
        if taken.is_empty() {
            tokio::time::sleep(LOOK).await;
        }
        for notice in taken {
            let (id, task, kind, state) = (&notice.id, &notice.call, notice.kind, notice.call_state);
            let within_us = [before_us, after_us];
            let taken = json!({"id": id, "task": task, "kind": kind, "state": state, "within_us": within_us});
            world.say(json!({"taken": taken}))?;
            think(&mut chance).await;
            if chance.percent(60) {
                world.say(json!({"acknowledging": id}))?;
                inbox.acknowledge(id).await?;
                world.say(json!({"acknowledged": id}))?;
            } else if chance.percent(50) {
                world.say(json!({"requeued": id}))?;
                inbox.requeue(id).await?;
            }
        }
    }
}

/// Asks for a call at a time, unless it was asked for before, and waits until it is over.
pub async fn schedule(runtime: Runtime, world: Arc<World>, plan: SchedulePlan) -> Result<()> {
    let SchedulePlan { session, id, after_ms, call } = &plan;
    let schedules = runtime.schedules(session);
    let mut after_us = after_ms * US_PER_MS;
    loop {
        match schedules.get(id).await {
            Ok(_) => break,
            Err(ScheduleError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let at = Timestamp(runtime.clock().now().0.saturating_add_unsigned(after_us));
        let new = NewSchedule {
            id: Some(id.clone()),
            at: Some(wall_time(at)),
            tool: call.kind.tool(),
            args: call.args(),
            wake: call.task.unwrap_or(Wake::OnEnd),
            ..NewSchedule::default()
        };
        match schedules.create(new).await {
            // On a busy machine the time is over before it is looked at.
            Err(ScheduleError::Invalid { .. }) if after_us < LATER_US_MAX => after_us *= 2,
            made => drop(made?),
        }
    }
    world.say(json!({"scheduled": id}))?;
    loop {
        let known = schedules.get(id).await?;
        if let Some(task) = &known.last_task {
            let within = Duration::from_secs(30);
            return match runtime.tasks(session).wait(task, within).await {
                // Whoever checks sees that it is not there.
                Ok(_) | Err(AskError::NotFound { .. }) => Ok(()),
                Err(error) => Err(error.into()),
            };
        }
        tokio::time::sleep(LOOK).await;
    }
}
