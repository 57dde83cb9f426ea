//! Retention: the owner of a session removes the records of calls that are over, by age and by size, in small pieces and in the
//! background. The identities of the calls stay: a re-submission is answered `expired`, and is never run.
//!
//! A batch expires in one change: its rows, the records that belong to its calls and the references of its artifacts go, or nothing
//! does. So a crash leaves no batch half expired, and the next pass finds by looking where to continue.

mod judge;
mod outlook;
mod sweep;

pub use outlook::RetentionOutlook;
pub use sweep::ExpiryReport;

use crate::api::error::{SessionError, chain};
use crate::session::inner::{Inner, Runtime};
use crate::session::wheel::WakeTime;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sweep::{Sweep, SweepPace};

/// The state of retention in a runtime.
#[derive(Default)]
pub(super) struct RetentionState {
    /// Held by a pass.
    alone: tokio::sync::Mutex<()>,
    /// Whether passes are scheduled.
    is_on: AtomicBool,
    /// Whether a session has a rule about its size.
    is_sized: AtomicBool,
}

impl Runtime {
    /// Expires everything that the rules of retention let go of now, and says how much that was. The runtime does this by itself
    /// from time to time, at a slower pace, if retention is on.
    pub async fn expire_now(&self) -> Result<ExpiryReport, SessionError> {
        pass(&self.0, SweepPace::AtOnce).await
    }
}

/// Schedules the first pass, if retention is on.
pub(crate) fn begin(rt: &Arc<Inner>) {
    if rt.retention.is_on() {
        schedule(rt);
    }
}

/// Schedules passes because a session with such limits was taken, if they have rules of their own.
pub(crate) fn begin_session(rt: &Arc<Inner>, limits: crate::api::limits::SessionLimits) {
    let state = rt.slots.of::<RetentionState>();
    state.is_sized.fetch_or(limits.retention_bytes.is_some(), Ordering::Relaxed);
    if limits.retention_age_ms.is_some() || limits.retention_bytes.is_some() {
        schedule(rt);
    }
}

fn schedule(rt: &Arc<Inner>) {
    if !rt.slots.of::<RetentionState>().is_on.swap(true, Ordering::Relaxed) {
        wake_in(rt, rt.limits.retention_every_ms.saturating_mul(1_000));
    }
}

fn wake_in(rt: &Arc<Inner>, us: u64) {
    let due_us = rt.clock.elapsed_us().saturating_add(us);
    // The alarm is for all sessions.
    rt.wheel.alarm_session(WakeTime { due_us, wall: None }, &Arc::from(""), look);
}

fn look(rt: &Arc<Inner>, _: &Arc<str>) {
    let rt = rt.clone();
    rt.tasks.clone().spawn(async move {
        let began_us = rt.clock.elapsed_us();
        let expired = pass(&rt, SweepPace::Slow).await.map(|report| report.batches).unwrap_or_else(|error| {
            let error = chain(&error);
            tracing::warn!(%error, "records that should expire are kept for now; it is tried again later");
            0
        });
        let took_us = rt.clock.elapsed_us().saturating_sub(began_us);
        let every_us = rt.limits.retention_every_ms.saturating_mul(1_000);
        // While the journal grows faster than records expire, the next pass follows at once.
        let is_behind = expired > 0 && took_us >= every_us;
        wake_in(&rt, if is_behind { 0 } else { every_us.max(took_us.saturating_mul(REST)) });
    });
}

/// A pass is followed by at least this many times its length without one, so that measuring a large store costs little.
const REST: u64 = 4;

async fn pass(rt: &Arc<Inner>, pace: SweepPace) -> Result<ExpiryReport, SessionError> {
    // Nothing of a copy is acted on.
    if rt.store.is_copy() {
        return Ok(ExpiryReport::default());
    }
    let state = rt.slots.of::<RetentionState>();
    let _alone = state.alone.lock().await;
    let is_sized = rt.retention.session_bytes.is_some()
        || rt.retention.store_bytes.is_some()
        || state.is_sized.load(Ordering::Relaxed);
    Sweep::new(rt, pace, is_sized).run().await
}
