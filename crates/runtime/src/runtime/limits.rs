//! The limits that can be changed while calls run.

use windlass_core::limits::Limits;

/// The limits that can be changed while calls run, named as in [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningLimits {
    /// Calls that run at once in the process.
    pub calls_running_max: u64,
    /// Calls of one session that run at once.
    pub session_calls_running_max: u64,
    /// Calls that wait for their start; beyond that batches are refused.
    pub calls_queued_max: u64,
    /// Calls that are parked; beyond that batches are refused.
    pub calls_parked_max: u64,
}

/// A limit of nothing, with which nothing could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit `{limit}` is 0, and with that nothing could be done; set at least 1, or pause the tools")]
pub struct ZeroLimit {
    /// Which.
    pub limit: &'static str,
}

impl RunningLimits {
    pub(crate) fn of(limits: &Limits) -> RunningLimits {
        RunningLimits {
            calls_running_max: limits.calls_running_max,
            session_calls_running_max: limits.session_calls_running_max,
            calls_queued_max: limits.calls_queued_max,
            calls_parked_max: limits.calls_parked_max,
        }
    }

    pub(crate) fn put_into(self, limits: &mut Limits) {
        limits.calls_running_max = self.calls_running_max;
        limits.session_calls_running_max = self.session_calls_running_max;
        limits.calls_queued_max = self.calls_queued_max;
        limits.calls_parked_max = self.calls_parked_max;
    }

    pub(super) fn check(self) -> Result<(), ZeroLimit> {
        let named = [
            ("calls_running_max", self.calls_running_max),
            ("session_calls_running_max", self.session_calls_running_max),
            ("calls_queued_max", self.calls_queued_max),
            ("calls_parked_max", self.calls_parked_max),
        ];
        let zero = named.into_iter().find(|(_, max)| *max == 0);
        zero.map_or(Ok(()), |(limit, _)| Err(ZeroLimit { limit }))
    }
}
