//! How long the caller waits before the call continues without it.

use crate::session::held::Held;
use crate::tools::registry::Registered;
use windlass_core::call::DetachedBy;

/// Until when the caller waits for the call, by the clock that never jumps, and why. `None`: without limit,
/// since nobody waits for it, or it may not continue alone.
pub(crate) fn due(held: &Held) -> Option<(DetachedBy, u64)> {
    let tool = held.tool.as_ref().filter(|tool| tool.spec.flags.background)?;
    let batch = &held.on.batch;
    if batch.head.parent.is_some() || held.call.task.is_some() || !batch.is_waited_for() {
        return None;
    }
    let limits = &held.on.rt.limits;
    let Some(started_at) = held.call.first_started_at else {
        return Some((DetachedBy::Queue, held.past.clock.due_us(limits.inline_queue_ms)));
    };
    let clock = &held.on.rt.clock;
    let budget_ms = budget_of(held, tool);
    let spent_us = held.on.rt.wheel.age_us(started_at);
    let left_us = budget_ms.saturating_mul(1_000).saturating_sub(spent_us);
    Some((DetachedBy::Budget, clock.elapsed_us().saturating_add(left_us)))
}

/// How long the caller waits for the call once it runs, in milliseconds.
pub(crate) fn budget_ms(held: &Held) -> Option<u64> {
    held.tool.as_ref().map(|tool| budget_of(held, tool))
}

fn budget_of(held: &Held, tool: &Registered) -> u64 {
    let own = held.call.opened.inline_ms.or(tool.spec.inline_ms).or_else(|| held.on.session.inline_ms());
    own.unwrap_or(held.on.rt.limits.inline_ms)
}

/// The due time, or never.
pub(crate) fn due_us(held: &Held) -> u64 {
    due(held).map_or(u64::MAX, |(_, due_us)| due_us)
}
