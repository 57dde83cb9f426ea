//! The limits that can be changed while calls run.

use crate::error::BatchError;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass_core::limits::Limits;
use windlass_store::{Row, STORE, Space, Store};

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

/// What bounds one session more tightly than every session is bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SessionLimits {
    /// Calls of it that run at once; above `session_calls_running_max` it changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_running_max: Option<u64>,
}

impl SessionLimits {
    /// The row that keeps them for the session of this name, for a change that writes more about it. They hold from when the
    /// session is next taken; [`Runtime::limit_session`](crate::Runtime::limit_session) sets them at once.
    pub fn row(&self, session: &str) -> Row {
        let (space, key) = (Space::Setting, SessionLimits::key(session));
        if *self == SessionLimits::default() {
            return Row::Remove { space, key };
        }
        Row::Put { space, key, value: serde_json::to_vec(self).unwrap_or_default().into() }
    }

    /// Those that are kept for the session of this name.
    pub async fn of(store: &Arc<dyn Store>, session: &str) -> Result<SessionLimits, BatchError> {
        let key = SessionLimits::key(session);
        let Some(kept) = store.record(STORE, Space::Setting, &key).await? else {
            return Ok(SessionLimits::default());
        };
        serde_json::from_slice(&kept.value).map_err(|error| BatchError::Unreadable {
            what: format!("the record {key:?} says nothing: {error}"),
        })
    }

    pub(crate) fn key(session: &str) -> String {
        format!("limits/{session}")
    }

    pub(crate) fn check(self) -> Result<(), ZeroLimit> {
        match self.calls_running_max {
            Some(0) => Err(ZeroLimit { limit: "calls_running_max" }),
            Some(_) | None => Ok(()),
        }
    }
}
