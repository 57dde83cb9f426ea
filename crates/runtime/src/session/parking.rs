//! Parking a call until a recorded time.

use crate::session::held::Held;
use crate::session::owner::Session;
use crate::session::turns::Turns;
use crate::session::wheel::WakeTime;
use windlass_core::call::Parked;

/// Parks a call until its next attempt. The wait is recorded.
pub(crate) fn until(mut held: Box<Held>, parked: Parked) {
    let clock = held.on.rt.clock.clone();
    // In this order: if time passes in between, it is woken too early, and looks again.
    let now_us = clock.elapsed_us();
    let now = clock.now();
    // It may be in line for a turn: the wall clock said that it was due, and was set back.
    Turns::release_room(&mut held, now_us);
    // It waits since its stage began, not since that was durable; and however often it is woken for something else.
    let stage = held.now();
    let stage_us = now_us.saturating_sub(now.since(stage));
    let since_us = *held.past.clock.parked_us.get_or_insert(stage_us);
    // A process waits at most the length of the wait, whatever has become of the wall clock since.
    let most_us = parked.length_us.saturating_sub(now_us.saturating_sub(since_us));
    let left_us = parked.wake_at.since(now).min(most_us);
    // Its deadline comes first if it is earlier.
    let due_us = held.due_us();
    let when = WakeTime { due_us: now_us.saturating_add(left_us).min(due_us), wall: Some(parked.wake_at) };
    held.on.batch.mark_evictable();
    Session::park(held, when);
}
