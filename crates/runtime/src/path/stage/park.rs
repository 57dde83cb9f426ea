//! Stop driving a call until something wakes it: it has no task, no timer and no future then.

use crate::api::error::Lost;
use crate::path::drive::DriveOutcome;
use crate::session::held::Held;
use crate::session::outgoing::WebhookKind;
use crate::session::owner::Session;
use crate::session::parking;
use crate::session::turns::Turns;
use crate::session::wheel::WakeTime;
use windlass_core::call::{Fact, Parked, Reason};

/// Parks a call until its next attempt. That it waits is recorded.
pub(crate) fn until(held: Box<Held>, parked: Parked) -> DriveOutcome {
    parking::until(held, parked);
    DriveOutcome::Parked
}

/// Parks a call until its tool is there, is resumed, or is accepted as it is now; at the latest until its deadline.
pub(crate) async fn wait_for_tool(mut held: Box<Held>, reason: Reason) -> Result<DriveOutcome, Lost> {
    let rt = held.on.rt.clone();
    let looked = held.looked_generation;
    // Before it is recorded that it waits: whoever comes after it must find it in its place.
    Turns::release_room(&mut held, rt.clock.elapsed_us());
    let due_us = held.tool_due_us();
    let known = held.call.parked.is_some_and(|(parked, _)| parked.reason == reason);
    if !known {
        let length_us = due_us.saturating_sub(rt.clock.elapsed_us());
        let length = i64::try_from(length_us).unwrap_or(i64::MAX);
        let wake_at = windlass_core::time::Timestamp(held.now().0.saturating_add(length));
        held.note(Fact::Parked(Parked { reason, wake_at, length_us }))?;
        if reason == Reason::ToolChanged {
            held.tell_webhooks(WebhookKind::ToolChanged, "", "", wake_at);
        }
        held.commit().await?;
    }
    let (id, session) = (held.id, held.on.session.clone());
    rt.waits_for_tool(&session, id);
    Session::park(held, WakeTime { due_us, wall: None });
    // What changed before it was parked did not find it.
    if rt.registry.generation() != looked {
        session.wake(&rt, id);
    }
    Ok(DriveOutcome::Parked)
}
