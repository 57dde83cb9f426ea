//! Choose when a call is tried again, and record that; or end it, if that would be too late.

use crate::api::error::Lost;
use crate::path::stage::settle;
use crate::session::held::Held;
use windlass_core::call::{Fact, Parked, Reason};
use windlass_core::time::Timestamp;

/// Notes when the next attempt is made. The record is also its intent, where the call may be repeated.
pub(crate) async fn note(held: &mut Held, after_ms: Option<u64>) -> Result<(), Lost> {
    let rt = held.on.rt.clone();
    let length_us = match held.call.retry(after_ms, rt.chance(), held.left_us()) {
        Ok(delay_us) => delay_us,
        Err(late) => return settle::too_late(held, late),
    };
    // It was made of the failure that is tried again.
    held.model = None;
    held.begin_stage();
    let length = i64::try_from(length_us).unwrap_or(i64::MAX);
    let wake_at = Timestamp(held.now().0.saturating_add(length));
    held.note(Fact::Parked(Parked { reason: Reason::Retry, wake_at, length_us }))?;
    held.commit().await
}
