//! Stop driving a call until something wakes it: it has no task, no timer and no future then.

use crate::drive::Driven;
use crate::error::Lost;
use crate::held::Held;
use crate::session::Session;
use crate::turns::Turns;
use crate::wheel::When;
use windlass_core::call::{Fact, Parked, Reason};

/// Parks a call until its next attempt. That it waits is recorded.
pub(crate) fn until(mut held: Box<Held>, parked: Parked) -> Driven {
    let clock = held.on.rt.clock.clone();
    // In this order: if time passes in between, it is woken too early, and looks again.
    let now_us = clock.elapsed_us();
    let now = clock.now();
    // It may stand in line for a turn: the wall clock said that it was due, and was set back.
    Turns::rest(&mut held, now_us);
    // It waits since its stage began, not since that was durable; and however often it is woken for something else.
    let stage = held.now();
    let stage_us = now_us.saturating_sub(now.since(stage));
    let (_, since_us) = *held.past.parked_at.get_or_insert((stage, stage_us));
    // A process waits at most as long as the wait was to be, whatever has become of the wall clock since.
    let most_us = parked.length_us.saturating_sub(now_us.saturating_sub(since_us));
    let left_us = parked.wake_at.since(now).min(most_us);
    // Its deadline comes first if it is earlier.
    let (_, due_us) = held.deadline();
    let when = When { due_us: now_us.saturating_add(left_us).min(due_us), wall: Some(parked.wake_at) };
    held.on.batch.rests();
    Session::park(held, when);
    Driven::Parked
}

/// Parks a call until its tool is there, is resumed, or is accepted as it is now; at the latest until its deadline.
pub(crate) async fn wait_for_tool(mut held: Box<Held>, reason: Reason) -> Result<Driven, Lost> {
    let rt = held.on.rt.clone();
    let looked = held.looked_generation;
    // Before it is recorded that it waits: whoever comes after it must find it in its place.
    Turns::rest(&mut held, rt.clock.elapsed_us());
    let (_, due_us) = held.deadline();
    let known = held.call.parked.is_some_and(|(parked, _)| parked.reason == reason);
    if !known {
        let length_us = due_us.saturating_sub(rt.clock.elapsed_us());
        let length = i64::try_from(length_us).unwrap_or(i64::MAX);
        let wake_at = windlass_core::time::Timestamp(held.now().0.saturating_add(length));
        held.note(Fact::Parked(Parked { reason, wake_at, length_us }))?;
        held.commit().await?;
    }
    let (id, session) = (held.id, held.on.session.clone());
    rt.waits_for_tool(&session, id);
    Session::park(held, When { due_us, wall: None });
    // What changed before it was parked did not find it.
    if rt.registry.generation() != looked {
        session.wake(&rt, id);
    }
    Ok(Driven::Parked)
}
